"""A model of sessions in plain Python, written from SEMANTICS 2 and 3, decisions 153, 155, 170 and 181 only."""

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

    `revision` is the number of the newest row of the output, `closed` whether that is of the session as it is and final,
    and `emitted` is that row. `standing` are the rows that a table by key and end has of an open session. `since` is the time of the batch that brought the first row that no row of the output
    has yet. `parts` are what was held before the batch.
    """

    key: Any
    rows: Rows
    start: int
    end: int
    held: bool = False
    fresh: Rows = field(default_factory=list)
    revision: int = -1
    emitted: ModelRow | None = None
    closed: bool = False
    since: int | None = None
    standing: list[ModelRow] = field(default_factory=list)
    parts: list[ModelSession] = field(default_factory=list)

    def emit(self, pane: str, *, discarding: bool) -> ModelRow:
        """Return the next row of the output."""
        self.revision, self.since, self.closed = self.revision + 1, None, pane != "EARLY"
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
    every: int | None = None
    early_rows: int | None = None
    retracts: bool = False
    key: Callable[[dict[str, Any]], Any] = lambda row: row["k"]
    held: list[ModelSession] = field(default_factory=list)

    def become(self, every: int | None, time: int) -> None:
        """Emit at multiples of another period from now on, `time` being the last batch: what waits, at the next one."""
        self.every = every
        for session in self.held:
            if session.since is not None:
                session.since = max(session.since, time + 1)

    def batch(self, rows: Sequence[dict[str, Any]], *, late: int | None, close: int | None, time: int = 0) -> ModelMade:
        """Take a batch in order of arrival: what lateness has passed closes, rows merge, what is due closes or is early."""
        made = ModelMade()
        for session in self.held:
            if late is not None and session.end < late and not session.closed:
                self._close(session, "ON_TIME", made)
        self.held = [s for s in self.held if late is None or s.end + self.lateness >= late]
        for session in self.held:
            session.held, session.parts = True, [session]
            session.standing = [] if session.closed else session.standing
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
                sessions.append(ModelSession(self.key(row), [row], row["t"], row["t"] + gap, fresh=[row], since=time))
        sessions = _merged(sessions)
        late_ones = [s for s in sessions if not s.held and late is not None and s.end < late]
        made.late += [row["n"] for s in late_ones for row in s.rows]
        sessions = [s for s in sessions if s not in late_ones]
        for session in sessions:
            if self.retracts and not self.discarding:
                moved = [p for p in session.parts if (p.start, p.end) != (session.start, session.end)]
                gone = [p.emitted for p in moved if p.emitted and p.closed]
                made.closed += [replace(row, pane="RETRACTED") for row in gone]
            if close is not None and session.end < close and not session.closed:
                self._close(session, "LATE" if late is not None and session.end < late else "ON_TIME", made)
            elif not session.closed and self._is_early(session, time, came=any(row in rows for row in session.fresh)):
                self._emit(session, "EARLY", made)
        gone_by = None if close is None else close - self.lateness
        self.held = [s for s in sessions if gone_by is None or not s.closed or s.end >= gone_by]
        return made

    def _close(self, session: ModelSession, pane: str, made: ModelMade) -> None:
        """Close a session; when discarding, one without new rows has no row of the output."""
        if session.fresh or not self.discarding:
            self._emit(session, pane, made)
        session.closed = True

    def _emit(self, session: ModelSession, pane: str, made: ModelMade) -> None:
        """Emit a session, and take back what a table has of it with other bounds."""
        bounds = (session.start, session.end)
        if self.retracts and not self.discarding:
            gone = [row for row in session.standing if (row.start, row.end) != bounds]
            made.closed += [replace(row, pane="RETRACTED") for row in gone]
        made.closed.append(session.emit(pane, discarding=self.discarding))
        assert session.emitted is not None
        session.standing = [session.emitted]

    def _is_early(self, session: ModelSession, time: int, *, came: bool) -> bool:
        """Return whether an open session has new rows that are due, by their number or at a multiple of `every`."""
        if session.since is None:
            return False
        by_rows = self.early_rows is not None and came and len(session.fresh) >= self.early_rows
        return by_rows or (self.every is not None and -(-session.since // self.every) * self.every <= time)


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
            since = min((s for s in (other.since, mine.since) if s is not None), default=None)
            standing = other.standing + mine.standing
            mine = ModelSession(
                mine.key,
                rows,
                *bounds,
                held=held,
                fresh=fresh,
                revision=revision,
                parts=parts,
                since=since,
                standing=standing,
            )
        merged.append(mine)
    return merged


def _touch(one: ModelSession, other: ModelSession) -> bool:
    return one.key == other.key and one.start <= other.end and other.start <= one.end
