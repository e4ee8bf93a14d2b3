"""Say which rows of a replayed file are due, where their times pass at a speed of their own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.sources.sorted_copy import SortedCopy
from penstock.time.clock import Clock

__all__ = ["ReplayPace", "checked_speed"]


class ReplayPace:
    """Let a row be due so long after the first one as their times differ, divided by the speed.

    Rows without a time are last in a copy, and due with the last row that has one.
    """

    def __init__(self, copy: SortedCopy, column: str, speed: float, clock: Clock) -> None:
        """Learn the first time of each piece; raises ConfigError where the column is none of timestamps."""
        at = copy.schema.get_field_index(column)
        if at < 0 or not pa.types.is_timestamp(copy.schema.field(at).type):
            found = "no column" if at < 0 else f"of {copy.schema.field(at).type}"
            raise ConfigError(f"speed is set, so order_by must name a column of timestamps, and {column!r} is {found}")
        self._copy, self._column, self._clock = copy, column, clock
        self.speed = speed
        self._first_times: list[int] = []
        self._last = 0
        for table in copy.read(0, copy.rows):
            times = self._times(table)
            if len(times):
                self._first_times.append(int(times[0]))
                self._last = int(times[-1])
        self._piece: tuple[int, np.ndarray] | None = None

    def begun(self, row: int) -> dict[str, Any]:
        """Return a pace that begins now, as positions keep it: this row is due at once."""
        passed = ceil(Fraction(self._time_of(row) - self._zero) / Fraction(str(self.speed)))
        return {"speed": self.speed, "start": self._clock.wall() - passed}

    def due(self, begun: Mapping[str, Any]) -> int:
        """Return how many of the first rows are due, at a pace that began so."""
        until = self._zero + floor((self._clock.wall() - begun["start"]) * Fraction(str(self.speed)))
        if until >= self._last:
            return self._copy.rows
        index = bisect_right(self._first_times, until) - 1
        if index < 0:  # the clock was set back
            return 0
        before = sum(rows for _, _, rows, _ in self._copy.pieces[:index])
        return before + int(np.searchsorted(self._piece_times(index), until, side="right"))

    @property
    def _zero(self) -> int:
        return self._first_times[0] if self._first_times else 0

    def _time_of(self, row: int) -> int:
        """Return the time of a row in microseconds; of one without a time the last there is."""
        for table in self._copy.read(row, row + 1):
            times = self._times(table)
            if len(times):
                return int(times[0])
        return self._last

    def _piece_times(self, index: int) -> np.ndarray:
        if self._piece is None or self._piece[0] != index:
            before = sum(rows for _, _, rows, _ in self._copy.pieces[:index])
            table = next(self._copy.read(before, before + self._copy.pieces[index][2]))
            self._piece = (index, self._times(table))
        return self._piece[1]

    def _times(self, table: pa.Table) -> np.ndarray:
        times: np.ndarray = pc.drop_null(table[self._column]).cast(pa.int64()).to_numpy()
        return times


def checked_speed(speed: float | None) -> None:
    """Refuse a speed that is no finite number above 0."""
    number = isinstance(speed, int | float) and not isinstance(speed, bool)
    if speed is not None and not (number and isfinite(speed) and speed > 0):
        raise ConfigError(f"speed is {speed!r}; it takes a number above 0, or None")
