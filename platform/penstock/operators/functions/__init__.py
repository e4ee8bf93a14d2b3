"""Functions of the user's that keep state for each key: their calls, timers and rows (SEMANTICS 7)."""
