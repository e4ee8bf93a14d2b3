"""List the choices a job can make, most an enum whose first use is the safe one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = [
    "Accumulation",
    "Afterwards",
    "BadRecord",
    "LatenessRule",
    "MaxRate",
    "OnEnd",
    "OnError",
    "OnFail",
    "OnGap",
    "OnMissingColumn",
    "OnNewColumn",
    "OnRewrite",
    "OnUnreadable",
    "Pane",
]


class OnFail(Enum):
    """The effect of a failed check on the rows (SEMANTICS 11.5)."""

    WARN = "warn"
    DROP = "drop"
    QUARANTINE = "quarantine"
    HOLD = "hold"
    STOP = "stop"


class LatenessRule(Enum):
    """The rule for late rows (SEMANTICS 2.3): by their windows, or by the watermark whatever the window."""

    WINDOW = "window"
    WATERMARK = "watermark"


class Accumulation(Enum):
    """The content of a pane after the first (SEMANTICS 3.2): all rows so far, or those since the pane before."""

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"


class Pane(Enum):
    """Why a window was emitted (SEMANTICS 3.2): before it closed, when it closed, or for rows that came after that."""

    EARLY = "EARLY"
    ON_TIME = "ON_TIME"
    LATE = "LATE"
    RETRACTED = "RETRACTED"
    """It takes back the row of this key, window and revision: another window has replaced it."""


class BadRecord(Enum):
    """The fate of a record that does not fit the schema (SEMANTICS 9.3)."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class OnEnd(Enum):
    """The meaning of a bounded source's end (SEMANTICS 2.1)."""

    CLOSE = "close"
    KEEP_OPEN = "keep_open"


class OnGap(Enum):
    """The policy for records that are gone before they were read (SEMANTICS 9.2): the job stops, or reads on."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRate:
    """The most rows a second that a job reads of a source, and of each of its partitions; None for no limit.

    `where` is the user's line that says so.
    """

    rows: float | None = None
    per_partition: float | None = None
    where: str | None = field(default=None, compare=False)


class OnError(Enum):
    """The policy for rows that a state function raises for: the batch fails, or they go to quarantine."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class Afterwards(Enum):
    """The fate of a file whose rows are committed and published."""

    LEAVE = "leave"
    MOVE = "move"
    DELETE = "delete"


class OnNewColumn(Enum):
    """The policy for a file with a column that the source does not name."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    IGNORE = "ignore"


class OnMissingColumn(Enum):
    """The policy for a file that lacks a column of the source."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    NULLS = "nulls"


class OnRewrite(Enum):
    """The policy for a version of a table that deletes or updates rows, where only new rows are read."""

    FAIL = "fail"
    SKIP = "skip"


class OnUnreadable(Enum):
    """The policy for a file that cannot be split into records: the batch fails, or the file is one bad record."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
