"""The step that keeps the rows of a batch for the branches that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.graph.nodes import OneParent
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream, StreamMethods

__all__ = ["CacheLevel", "CacheMethods", "CacheNode"]


class CacheLevel(Enum):
    """The place of cached rows on the executors, until the end of their batch."""

    MEMORY_AND_DISK = "memory and disk"
    """Rows that do not fit into memory go to local disk."""
    MEMORY = "memory"
    """Rows that do not fit into memory are computed again by each branch."""
    DISK = "disk"


@dataclass(frozen=True, eq=False, kw_only=True)
class CacheNode(OneParent):
    """Keep the rows of a batch where several branches read them, until the batch ends."""

    level: CacheLevel


class CacheMethods(StreamMethods[Stream]):
    """Let branches share what was computed before them."""

    def cache(self, *, level: CacheLevel = CacheLevel.MEMORY_AND_DISK) -> Stream:
        """Compute the rows once in a batch for all branches that follow; released at the end of the batch.

        It changes no result. It helps where a `transform`, `map_batches` or costly expression comes before it, and
        branches with functions of their own after it: each of those would compute all of it again. Branches without
        one share a pass over the rows anyway, and `explain` says where a cache has nothing to keep.
        """
        if not isinstance(level, CacheLevel):
            raise job_error(f"cache needs a CacheLevel such as CacheLevel.DISK, not {level!r}")
        return self._stream._then(CacheNode(parent=self._stream._node, level=level))
