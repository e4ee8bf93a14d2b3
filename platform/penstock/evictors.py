"""Name the evictors of a global window: `from penstock.evictors import KeepLast`."""

from penstock.graph.window_evictors import KeepDelta, KeepLast, KeepNewest, RowEvictor

__all__ = ["KeepDelta", "KeepLast", "KeepNewest", "RowEvictor"]
