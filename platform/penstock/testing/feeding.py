"""The rows that one call of a test feeds to the memory sources of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.errors import JobError, UnknownName
from penstock.graph.source_location import user_site
from penstock.sources.memory import MemorySource
from penstock.testing.arguments import micros

__all__ = ["Feed", "Marks", "refuse_unknown"]

Marks = float | datetime | Mapping[str, float | datetime] | None
"""A watermark that all memory sources report, or those of some; numbers are seconds since 1970."""


@dataclass(frozen=True)
class Feed:
    """Rows and watermarks by source; nothing is fed before `give`."""

    sources: Mapping[str, MemorySource]
    rows: Mapping[str, list[Any]]
    marks: Mapping[str, int]

    @classmethod
    def checked(
        cls, sources: Mapping[str, MemorySource], rows: Mapping[str, Sequence[Any]] | None, watermark: Marks
    ) -> Feed:
        """Return what is to be fed; raises UnknownName, and JobError for rows of a source that has ended."""
        watermarks = watermark if isinstance(watermark, Mapping) else dict.fromkeys(sources, watermark)
        marks = {name: micros(mark) for name, mark in watermarks.items() if mark is not None}
        fed = {name: list(listed) for name, listed in (rows or {}).items()}
        refuse_unknown([*fed, *watermarks], sources)
        if over := sorted(name for name in fed if sources[name].ended):
            raise JobError(f"source {over[0]!r} has ended and takes no more rows", where=str(user_site()))
        return cls(sources, fed, marks)

    def give(self) -> None:
        """Feed a chunk, with rows or without, to every source that has not ended."""
        for name, source in self.sources.items():
            source.watermark = self.marks.get(name, source.watermark)
            if not source.ended:
                source.feed(self.rows.get(name, []))


def refuse_unknown(names: Iterable[str], sources: Mapping[str, MemorySource]) -> None:
    """Raise UnknownName for what is no memory source."""
    if unknown := sorted(set(names) - sources.keys()):
        problem = f"{unknown[0]!r} is not a MemorySource of the job; there is {list(sources)}"
        raise UnknownName(problem, where=str(user_site()))
