"""Global windows: the triggers that emit them, the evictors that shorten them, and their state (SEMANTICS 6)."""
