"""Session windows: spans of rows that touch, and the ones that are open for each key (SEMANTICS 3)."""
