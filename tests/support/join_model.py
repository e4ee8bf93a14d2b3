"""The definition of joins in plain Python (SEMANTICS 7.6): all rows that were not late are compared with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from join_disk import Row, hash_of

__all__ = ["END", "JoinModel"]

END = 2**63 - 1
"""The watermark at the end of time."""
Output = tuple[str | None, int | None, int | None, int]
"""Key, number of the left and of the right row, event time."""


@dataclass
class _Taken:
    side: int
    key: str
    time: int
    number: int
    matched: bool = False
    emitted: bool = False


@dataclass
class JoinModel:
    """All rows that were ever on time, and what a batch makes of them."""

    within: tuple[int, int]
    outer: tuple[bool, bool]
    hashes: int = 1000
    rows: list[_Taken] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def batch(self, fed: Sequence[Sequence[Row]], *, late: int | None, close: int | None) -> tuple[list[Output], list]:
        """Return what the rows cause, in order of arrival, and what the watermark does, by time and hash."""
        by_rows: list[Output] = []
        for side, rows in enumerate(fed):
            for key, time, number in rows:
                by_rows += self._row(side, key, time, number, late)
        by_time = []
        for row in self.rows:
            last = row.time + self._latest(row.side)
            if self.outer[row.side] and not (row.matched or row.emitted) and close is not None and last < close:
                row.emitted = True
                self.counts[f"unmatched_{('left', 'right')[row.side]}"] += 1
                by_time.append((last, hash_of(row.key, self.hashes), row.side, _alone(row, max(row.time, last))))
        return by_rows, [made for *_, made in sorted(by_time, key=lambda of: of[:3])]

    def waiting(self) -> list[int]:
        """Return the last event times that rows wait for."""
        return [
            row.time + self._latest(row.side)
            for row in self.rows
            if self.outer[row.side] and not (row.matched or row.emitted)
        ]

    def _latest(self, side: int) -> int:
        return self.within[1] if side == 0 else -self.within[0]

    def _row(self, side: int, key: str | None, time: int, number: int, late: int | None) -> list[Output]:
        if late is not None and time < late:
            self.counts[f"late_{('left', 'right')[side]}"] += 1
            return []
        if key is None:
            if not self.outer[side]:
                self.counts["null_keys"] += 1
                return []
            self.counts[f"unmatched_{('left', 'right')[side]}"] += 1
            return [_alone(_Taken(side, key, time, number), time)]  # type: ignore[arg-type]
        own, made = _Taken(side, key, time, number), []
        for at, other in enumerate(self.rows):
            difference = other.time - time if side == 0 else time - other.time
            if other.side != side and other.key == key and self.within[0] <= difference <= self.within[1]:
                own.matched = other.matched = True
                assert not other.emitted
                numbers = (number, other.number) if side == 0 else (other.number, number)
                made.append((other.time, at, (key, *numbers, max(time, other.time))))
        self.rows.append(own)
        self.counts["pairs"] += len(made)
        return [pair for *_, pair in sorted(made)]


def _alone(row: _Taken, time: int) -> Output:
    return (row.key, row.number, None, time) if row.side == 0 else (row.key, None, row.number, time)
