"""Sum up the decisions of a job's gates, beside reports on the windows that passed. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.log.entries import Commit

__all__ = ["Gate", "Reported", "gates_of", "read_reported"]

_KINDS = ("published", "quarantined", "dropped", "held")


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
