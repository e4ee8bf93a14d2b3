"""A model of sessions in plain Python, written from SEMANTICS 2 and 3 only; slow on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.graph.policies import LatenessRule

Rows = list[dict[str, Any]]
_LIMIT = 2**62


@dataclass
class ModelSession:
    """One session of a key: its rows, in order of arrival."""

    key: Any
    rows: Rows
    start: int
    end: int
    held: bool = False


@dataclass
class ModelMade:
    """What a batch did."""

    closed: list[ModelSession] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    in_no_window: int = 0


@dataclass
class SessionModel:
    """Keeps every row; `gap` gives that of a row, and `key` its key."""

    gap: Callable[[dict[str, Any]], int | None]
    rule: LatenessRule = LatenessRule.WINDOW
    key: Callable[[dict[str, Any]], Any] = lambda row: row["k"]
    held: list[ModelSession] = field(default_factory=list)

    def batch(self, rows: Sequence[dict[str, Any]], *, late: int | None, close: int | None) -> ModelMade:
        """Take a batch in order of arrival: what lateness has passed closes, rows merge, what is due closes."""
        made = ModelMade()
        passed = [s for s in self.held if late is not None and s.end < late]
        self.held = [s for s in self.held if s not in passed]
        for session in self.held:
            session.held = True
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
                sessions.append(ModelSession(self.key(row), [row], row["t"], row["t"] + gap))
        sessions = _merged(sessions)
        late_ones = [s for s in sessions if not s.held and late is not None and s.end < late]
        made.late += [row["n"] for s in late_ones for row in s.rows]
        sessions = [s for s in sessions if s not in late_ones]
        due = [s for s in sessions if close is not None and s.end < close]
        self.held = [s for s in sessions if s not in due]
        made.closed = [*passed, *due]
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
            mine = ModelSession(mine.key, rows, *bounds, held=other.held or mine.held)
        merged.append(mine)
    return merged


def _touch(one: ModelSession, other: ModelSession) -> bool:
    return one.key == other.key and one.start <= other.end and other.start <= one.end
