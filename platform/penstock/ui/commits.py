"""Sum up the Commits of a job for pages: where its sources stand, what its sinks show, what its gates decided. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.log.entries import Commit, SourceProgress

__all__ = ["Gate", "Reported", "SinkEnd", "SourceEnd", "gates_of", "read_reported", "sinks_of", "sources_of"]

_READABLE = 200
_KINDS = ("published", "quarantined", "dropped", "held")


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
    """One sink: the newest batch that it is known to show, its rows of the newest batch, and what it writes.

    `held` are the rows of the newest batch that a gate has held back. `writes` is None where no driver has noted it.
    """

    name: str
    batch: int | None
    rows: int
    held: int
    writes: str | None


def sources_of(commit: Commit | None, left: object) -> tuple[SourceEnd, ...]:
    """Return the sources of the Commit in force; `left` is what the driver's record says of their rows."""
    if commit is None:
        return ()
    rows = left if isinstance(left, Mapping) else {}
    return tuple(_source(name, progress, rows.get(name)) for name, progress in commit.sources.items())


def sinks_of(commit: Commit | None, published: Mapping[str, int], described: object) -> tuple[SinkEnd, ...]:
    """Return the sinks of the Commit in force; `described` is what the driver's record says of them."""
    if commit is None:
        return ()
    return tuple(
        SinkEnd(
            name=name,
            batch=published.get(name),
            rows=sum(file.rows for file in commit.staged.get(name, ())),
            held=sum(file.rows for file in commit.held.get(name, ())),
            writes=line if isinstance(described, Mapping) and isinstance(line := described.get(name), str) else None,
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
    """Return a value of a position as a person reads it; of a long text, such as names that are packed, the length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(_shortened(value)).strip('"')


def _shortened(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _shortened(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(part) for part in value]
    return f"({len(value):,} characters)" if isinstance(value, str) and len(value) > _READABLE else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One check: rows by what became of them, of all batches, and units by how they came out, of the `kept` ones.

    `in_all` is False where the Commit in force counts no totals, because an older version has written it: then the
    rows are those of the kept batches as well.
    """

    check: str
    rows: Mapping[str, int]
    units: Mapping[str, int]
    kept: int
    in_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The newest reports of a job. `failed` are windows; `trend` the failed share of each run, oldest first.

    All are None, and the trend empty, where the reports were made by an older version.
    """

    verdict: str | None = None
    at: int | None = None
    windows: int | None = None
    failed: int | None = None
    trend: tuple[float, ...] = ()


def gates_of(commits: Sequence[Commit]) -> list[Gate]:
    """Return the gates of a job by name; `commits` are those that were read, oldest first."""
    if not commits:
        return []
    units: dict[str, Counter[str]] = {}
    rows: dict[str, Counter[str]] = {}
    for commit in commits:
        for verdict in commit.verdicts:
            outcome = "published" if verdict.get("action") == "publish" else str(verdict.get("action"))
            units.setdefault(str(verdict.get("check")), Counter())[f"{verdict.get('status')}, {outcome}"] += 1
        for name, counts in commit.accounting.items():
            kind, _, check = name.partition(":")
            if kind == "check":
                rows.setdefault(check, Counter()).update(counts)
    totals = {name.partition(":")[2]: n for name, n in commits[-1].totals.items() if name.startswith("check:")}
    return [
        Gate(
            check=check,
            rows={fate: totals.get(check, rows.get(check, {})).get(fate, 0) for fate in _KINDS},
            units=dict(units.get(check, {})),
            kept=len(commits),
            in_all=check in totals,
        )
        for check in sorted({*totals, *rows, *units})
    ]


def read_reported(path: Path) -> Reported:
    """Return what the newest reports have noted; of a file that is not there, or odd, nothing."""
    try:
        noted: Any = json.loads(path.read_text())
        runs = [(str(r["verdict"]), int(r["at"]), int(r["windows"]), int(r["failed"])) for r in noted["runs"]]
        checks = [(int(check["windows"]), int(check["failed"])) for check in noted["checks"]]
    except (OSError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        return Reported()
    if not runs:
        return Reported()
    return Reported(
        verdict=runs[-1][0],
        at=runs[-1][1],
        windows=sum(windows for windows, _ in checks),
        failed=sum(failed for _, failed in checks),
        trend=tuple(failed / max(1, windows) for _, _, windows, failed in runs),
    )
