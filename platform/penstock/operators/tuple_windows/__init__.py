"""Windows whose length and slide are each a number of rows or a duration (SEMANTICS 5)."""
