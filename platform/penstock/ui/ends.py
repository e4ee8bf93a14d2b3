"""Compute a job's position in each of its sources, and what each of its sinks shows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, SourceProgress

__all__ = ["SinkEnd", "SourceEnd", "sinks_of", "sources_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnd:
    """One source after the newest batch: its offsets in words, its newest event time, and the rows it has left.

    `idle` of its `partitions` bring no rows and hold no watermark back. `left` is None where it is unknown.
    """

    name: str
    offsets: str
    highest: int | None
    partitions: int
    idle: int
    left: int | None
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEnd:
    """One sink: the newest batch that it is known to show, its rows of the newest batch, and its table, if it has one.

    `held` are the rows of the newest batch that a gate has held back.
    """

    name: str
    batch: int | None
    rows: int
    held: int
    table: str | None


def sources_of(commit: Commit | None, left: object) -> tuple[SourceEnd, ...]:
    """Return the sources of the Commit in force; `left` is what the driver's record says of their rows."""
    if commit is None:
        return ()
    rows = left if isinstance(left, Mapping) else {}
    return tuple(_source(name, progress, rows.get(name)) for name, progress in commit.sources.items())


def sinks_of(commit: Commit | None, published: Mapping[str, int], tables: object) -> tuple[SinkEnd, ...]:
    """Return the sinks of the Commit in force; `tables` is what the driver's record says of where they write."""
    paths = tables if isinstance(tables, Mapping) else {}
    if commit is None:
        return ()
    return tuple(
        SinkEnd(
            name=name,
            batch=published.get(name),
            rows=sum(file.rows for file in commit.staged.get(name, ())),
            held=sum(file.rows for file in commit.held.get(name, ())),
            table=path if isinstance(path := paths.get(name), str) else None,
        )
        for name in dict.fromkeys([*commit.staged, *commit.held, *published])
    )


def _source(name: str, progress: SourceProgress, left: object) -> SourceEnd:
    known = [partition.highest for partition in progress.partitions.values() if partition.highest is not None]
    return SourceEnd(
        name=name,
        offsets=", ".join(f"{key} {_short(value)}" for key, value in progress.position.items()),
        highest=max(known, default=None),
        partitions=len(progress.partitions),
        idle=sum(partition.idle or partition.gone for partition in progress.partitions.values()),
        left=left if isinstance(left, int) and not isinstance(left, bool) else None,
        ended=progress.ended,
    )


def _short(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value).strip('"')
