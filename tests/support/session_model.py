"""A model of sessions in plain Python, written from SEMANTICS 2 and 3 and decision 155 only; slow on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.graph.policies import LatenessRule

Rows = list[dict[str, Any]]
_LIMIT = 2**62


@dataclass
class ModelSession:
    """One session of a key: its rows, in order of arrival, and those that no row of the output has yet.

    `revision` is the number of the newest row of the output, `emitted` that row if it is of the session as it is.
    `parts` are what was held before the batch.
    """

    key: Any
    rows: Rows
    start: int
    end: int
    held: bool = False
    fresh: Rows = field(default_factory=list)
    revision: int = -1
    emitted: ModelRow | None = None
    parts: list[ModelSession] = field(default_factory=list)

    def emit(self, pane: str, *, discarding: bool) -> ModelRow:
        """Return the next row of the output."""
        self.revision += 1
        rows = list(self.fresh if discarding else self.rows)
        self.emitted = ModelRow(self.key, self.start, self.end, rows, pane, self.revision)
        self.fresh = []
        return self.emitted


@dataclass
class ModelRow:
    """A row of the output."""

    key: Any
    start: int
    end: int
    rows: Rows
    pane: str
    revision: int


@dataclass
class ModelMade:
    """What a batch did."""

    closed: list[ModelRow] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    in_no_window: int = 0


@dataclass
class SessionModel:
    """Keeps every row; `gap` gives that of a row, and `key` its key."""

    gap: Callable[[dict[str, Any]], int | None]
    rule: LatenessRule = LatenessRule.WINDOW
    lateness: int = 0
    discarding: bool = False
    retracts: bool = False
    key: Callable[[dict[str, Any]], Any] = lambda row: row["k"]
    held: list[ModelSession] = field(default_factory=list)

    def batch(self, rows: Sequence[dict[str, Any]], *, late: int | None, close: int | None) -> ModelMade:
        """Take a batch in order of arrival: what lateness has passed closes, rows merge, what is due closes."""
        made = ModelMade()
        for session in self.held:
            if late is not None and session.end < late and session.emitted is None:
                made.closed.append(session.emit("ON_TIME", discarding=self.discarding))
        self.held = [s for s in self.held if late is None or s.end + self.lateness >= late]
        for session in self.held:
            session.held, session.parts = True, [session]
        sessions = list(self.held)
        for row in rows:
            gap = self.gap(row)
            if gap is None or gap <= 0:
                made.aside.append(row["n"])
            elif abs(row["t"]) > _LIMIT:
                made.in_no_window += 1
            elif self.rule is LatenessRule.WATERMARK and late is not None and row["t"] < late:
                made.late.append(row["n"])
            else:
                sessions.append(ModelSession(self.key(row), [row], row["t"], row["t"] + gap, fresh=[row]))
        sessions = _merged(sessions)
        late_ones = [s for s in sessions if not s.held and late is not None and s.end < late]
        made.late += [row["n"] for s in late_ones for row in s.rows]
        sessions = [s for s in sessions if s not in late_ones]
        for session in sessions:
            if self.retracts and not self.discarding:
                gone = [
                    p.emitted for p in session.parts if p.emitted and (p.start, p.end) != (session.start, session.end)
                ]
                made.closed += [replace(row, pane="RETRACTED") for row in gone]
            if close is not None and session.end < close and session.emitted is None:
                pane = "LATE" if late is not None and session.end < late else "ON_TIME"
                made.closed.append(session.emit(pane, discarding=self.discarding))
        gone_by = None if close is None else close - self.lateness
        self.held = [s for s in sessions if gone_by is None or s.emitted is None or s.end >= gone_by]
        return made


def _merged(sessions: list[ModelSession]) -> list[ModelSession]:
    """Join any two sessions of a key that touch, until none do."""
    merged: list[ModelSession] = []
    for session in sessions:
        mine = session
        while True:
            other = next((s for s in merged if _touch(s, mine)), None)
            if other is None:
                break
            merged.remove(other)
            rows = sorted(other.rows + mine.rows, key=lambda row: row["at"])
            bounds = min(other.start, mine.start), max(other.end, mine.end)
            fresh = sorted(other.fresh + mine.fresh, key=lambda row: row["at"])
            held, revision, parts = (
                other.held or mine.held,
                max(other.revision, mine.revision),
                other.parts + mine.parts,
            )
            mine = ModelSession(mine.key, rows, *bounds, held=held, fresh=fresh, revision=revision, parts=parts)
        merged.append(mine)
    return merged


def _touch(one: ModelSession, other: ModelSession) -> bool:
    return one.key == other.key and one.start <= other.end and other.start <= one.end
