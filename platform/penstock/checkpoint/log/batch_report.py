"""Sum up a Commit in a few numbers, for progress, status and the list of checkpoints. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.checkpoint.log.entries import END_OF_TIME, Commit

__all__ = ["BatchReport", "Totals", "Windows", "closed_windows", "moment", "shown_moment"]

Windows = Mapping[str, tuple[int | None, int]]
"""The windows that were closed, by step: those that end after the first moment, None for unknown, until the second."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END, BEGINNING = "end of time", "beginning of time"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The numbers of one batch. Counts are rows; times are microseconds since 1970.

    `output` and `held` count by sink, `late` and `watermarks` are by window step, and `verdicts` count by decision of
    the gates. `staged` are the bytes of the output files, and `fetched` the bytes of state that tasks fetched from HDFS
    because their machine had no copy. `load` is as in the Commit.
    """

    batch: int
    time: int
    read: Mapping[str, int]
    output: Mapping[str, int]
    held: Mapping[str, int]
    late: Mapping[str, int]
    verdicts: Mapping[str, int]
    watermarks: Mapping[str, int | None]
    staged: int
    fetched: int
    due: int | None
    load: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, commit: Commit) -> BatchReport:
        """Return the report of a Commit."""
        counts = commit.accounting
        files = [f for kind in (commit.staged, commit.held) for staged in kind.values() for f in staged]
        dues = [end for end in commit.due.values() if end is not None]
        return cls(
            batch=commit.batch,
            time=commit.time,
            read={k.removeprefix("source:"): n["read"] for k, n in counts.items() if k.startswith("source:")},
            output={sink: sum(f.rows for f in staged) for sink, staged in commit.staged.items()},
            held={sink: sum(f.rows for f in staged) for sink, staged in commit.held.items() if staged},
            late={k.partition(":")[2]: n["late"] for k, n in counts.items() if "late" in n},
            verdicts=dict(Counter(_decision(v) for v in commit.verdicts)),
            watermarks=commit.watermarks_out,
            staged=sum(f.size for f in files),
            fetched=commit.written.get("fetched", 0),
            due=min(dues, default=None),
            load=commit.load,
        )

    @property
    def rows(self) -> int:
        """Return the rows read from all sources."""
        return sum(self.read.values())

    @property
    def watermark(self) -> int | None:
        """Return the watermark of the step that is furthest behind; None at the beginning of time."""
        marks = list(self.watermarks.values())
        return None if None in marks else min((m for m in marks if m is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with times as ISO text."""
        return {
            "batch": self.batch,
            "time": moment(self.time),
            "rows": self.rows,
            "read": dict(self.read),
            "output": dict(self.output),
            "late": dict(self.late),
            "held": dict(self.held),
            "verdicts": dict(self.verdicts),
            "watermark": {step: moment(mark) for step, mark in self.watermarks.items()},
            "staged_bytes": self.staged,
            "fetched_bytes": self.fetched,
            "next_due": moment(self.due),
            "load": dict(self.load),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Hold the rows of all batches up to one, and in how many batches most rows were late, or too far ahead.

    `ahead` is a part of `quarantined`, which is that of sources. A row may be late for several steps. `requeued` are
    quarantined rows that were sent through again, of which `failed_again` are in quarantine once more.
    """

    read: int
    quarantined: int
    ahead: int
    filtered: int
    late: int
    mostly_late: int
    mostly_ahead: int
    requeued: int = 0
    failed_again: int = 0

    @classmethod
    def of(cls, commit: Commit | None) -> Totals | None:
        """Return the totals of a Commit, None where there is none, or none that says any."""
        if commit is None or not commit.totals:
            return None
        counts = commit.totals

        def add_up(kind: str, what: str) -> int:
            return sum(n.get(what, 0) for name, n in counts.items() if name.partition(":")[0] == kind)

        return cls(
            read=add_up("source", "read"),
            quarantined=add_up("source", "quarantined"),
            ahead=add_up("source", "too_far_ahead"),
            filtered=add_up("filter", "filtered"),
            late=sum(n.get("late", 0) for n in counts.values()),
            mostly_late=add_up("batches", "mostly_late"),
            mostly_ahead=add_up("batches", "mostly_too_far_ahead"),
            requeued=add_up("requeue", "read"),
            failed_again=add_up("requeue", "quarantined"),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return in words what is likely to be wrong with the event times."""
        parts = ((self.mostly_late, "late"), (self.mostly_ahead, "too far in the future"))
        return tuple(f"most rows were {problem} in {n:,} batch{'' if n == 1 else 'es'}" for n, problem in parts if n)


def closed_windows(last: Commit, before: Commit | None) -> Windows:
    """Return the windows that batches have closed, up to the `last` of them and after the one `before`, if known."""
    closed = before.watermarks_in if before is not None else {}
    ends = sorted(last.watermarks_in.items())
    return {step: (closed.get(step), end) for step, end in ends if end is not None and end != closed.get(step)}


def moment(micros: int | None) -> str | None:
    """Return a time as ISO text in UTC; None stays None, and the end of time has a name.

    A time that no calendar of Python holds is its number of microseconds.
    """
    if micros is None:
        return None
    if micros >= END_OF_TIME:
        return END
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros} us"


def shown_moment(micros: int | None) -> str:
    """Return a time for people: to the second, without the fraction."""
    text = moment(micros)
    return BEGINNING if text is None else re.sub(r"\.\d+Z$", "Z", text).replace("T", " ")


def _decision(verdict: Mapping[str, Any]) -> str:
    """Name what a gate decided on one unit: its status where all was published, else what became of the rows."""
    action, status = str(verdict["action"]), str(verdict["status"])
    return status if action == "publish" else action
