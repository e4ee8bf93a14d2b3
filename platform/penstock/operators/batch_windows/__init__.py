"""Windows of batch time: which ones fire in a batch, and what becomes of their rows (SEMANTICS 4)."""
