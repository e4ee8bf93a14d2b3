"""Make rows at a fixed rate, as Spark's rate source does: for load tests, and for jobs without data of their own.

Nothing is stored. The value of a row says when it came, so its numbers are enough to rebuild a span exactly:

    with S microseconds at the start, R rows a second, and a ramp of T microseconds

    rows before S + t:   ceil(R * t * t / (2 * T * 1e6))     in the ramp, t <= T
                         ceil(R * (t - T / 2) / 1e6)         behind it
    time of value n:     S + floor(t), where R * t * t / (2 * T * 1e6) or R * (t - T / 2) / 1e6 is n

All of it is arithmetic of whole numbers. A row can be read from the microsecond after its own time.
Value n is in partition n modulo the number of partitions, at place n divided by that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from math import isqrt
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from penstock.errors import ConfigError, RateChanged
from penstock.graph.durations import Duration
from penstock.sources.base import Ends, Position, Source, Span, SplitReader, TaskReader, Waiting, with_hidden
from penstock.time.clock import Clock, SystemClock

__all__ = ["Rate", "RateReader", "rows_before", "time_of"]

_SECOND = 1_000_000
_ROWS_A_PIECE = 32_768
_MOST_A_SECOND = 1_000_000_000
_MOST_PARTITIONS = 1_000
_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])


@dataclass(frozen=True)
class Rate(Source):
    """Describe rows that come at a rate, from the first start of the job on: `timestamp` and `value`, from 0 on.

    What came while the job was down, or paused, waits as it does in a topic.

    Args:
        rows_per_second: How many rows come in a second, in all partitions together.
        ramp: The time in which the rate rises evenly from nothing to `rows_per_second`. With None it is there at once.
        partitions: The number of partitions, and of tasks that make the rows.

    Raises:
        ConfigError: A number is below 1 or above its bound, or the ramp has no length.
    """

    rows_per_second: Annotated[int, Ge(1)]
    _: KW_ONLY
    ramp: Duration | None = None
    partitions: Annotated[int, Ge(1)] = 1

    def __post_init__(self) -> None:
        for name, most in (("rows_per_second", _MOST_A_SECOND), ("partitions", _MOST_PARTITIONS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ConfigError(f"{name} is {value!r}; it takes a whole number from 1 to {most:,}")
        if self.ramp is not None and (not isinstance(self.ramp, Duration) or self.ramp.micros < 1):
            raise ConfigError(f"ramp is {self.ramp!r}; it takes a duration such as seconds(30), or None")

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Rate of {self.rows_per_second:,} rows a second"

    def open(self, spark: Any) -> RateReader:
        """Return the reader; a job without a position begins now."""
        return RateReader(self, SystemClock())


class RateReader(SplitReader):
    """Follow a clock: as many rows are there as have come since the start, which the position holds."""

    schema = _SCHEMA

    def __init__(self, spec: Rate, clock: Clock) -> None:
        self.spec = spec
        self.splits = spec.partitions
        self._clock = clock
        self._begins = clock.wall()
        self._facts = {
            "rows_per_second": spec.rows_per_second,
            "ramp": 0 if spec.ramp is None else spec.ramp.micros,
            "partitions": spec.partitions,
        }

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the rows of each partition that came since a position.

        Raises RateChanged where the position was counted at another rate: its places have other times.
        """
        if after is not None:
            self._refuse_other(after)
        start, read = (self._begins, {}) if after is None else (after["start"], after["rows"])
        passed = self._clock.wall() - start
        came = rows_before(passed, self.spec.rows_per_second, self._facts["ramp"])
        waiting = {}
        for i in range(self.spec.partitions):
            first = int(read.get(str(i), 0))
            # A clock that was set back takes no row away.
            waiting[str(i)] = Waiting.of_rows(first, max(first, _of_partition(came, i, self.spec.partitions)))
        return waiting

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the rows of each partition, with the start and the settings that give them their times."""
        known = {} if after is None else after["rows"]
        return {"start": self._begins if after is None else after["start"], "rows": {**known, **ends}, **self._facts}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the places of each partition, and all that makes their rows."""
        known = {} if start is None else start["rows"]
        ranges = [[int(known.get(str(i), 0)), int(end["rows"].get(str(i), 0))] for i in range(end["partitions"])]
        return {"start": end["start"], "ranges": ranges, **self._facts}

    def verify(self, span: Span) -> None:
        """Find a span as it was: it has all that makes its rows."""

    def ended(self, position: Position | None) -> bool:
        """Return False: a clock has no end."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return the number of places."""
        return sum(int(last) - int(first) for first, last in span["ranges"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the numbers of the partitions as text."""
        return tuple(str(i) for i in range(span["partitions"]))

    def task_reader(self) -> RateTaskReader:
        """Return what makes the rows."""
        return RateTaskReader()

    def _refuse_other(self, known: Position) -> None:
        for name, value in self._facts.items():
            if known[name] != value:
                raise RateChanged(f"{name} was {known[name]} up to the job's position, and is {value} now")


@dataclass(frozen=True)
class RateTaskReader(TaskReader):
    """Make rows inside a task."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield an even share of the span's rows, in the order of partitions and places."""
        total = sum(last - first for first, last in span["ranges"])
        begin, end, passed = total * split // splits, total * (split + 1) // splits, 0
        for index, (first, last) in enumerate(span["ranges"]):
            own = range(max(first, first + begin - passed), min(last, first + end - passed))
            for at in range(own.start, own.stop, _ROWS_A_PIECE):
                yield _made(span, index, at, min(at + _ROWS_A_PIECE, own.stop))
            passed += last - first


def rows_before(passed: int, rows_per_second: int, ramp: int) -> int:
    """Return how many rows have a time in the first `passed` microseconds, at a rate with a ramp in microseconds."""
    if passed <= 0:
        return 0
    if passed < ramp:
        return -(-rows_per_second * passed * passed // (2 * ramp * _SECOND))
    return -(-rows_per_second * (2 * passed - ramp) // (2 * _SECOND))


def time_of(value: int, rows_per_second: int, ramp: int) -> int:
    """Return the microseconds from the start to the row with a value, rounded down."""
    if 2 * _SECOND * value < rows_per_second * ramp:
        return isqrt(2 * _SECOND * ramp * value // rows_per_second)
    return (2 * _SECOND * value + rows_per_second * ramp) // (2 * rows_per_second)


def _of_partition(rows: int, index: int, partitions: int) -> int:
    """Return how many of the first rows a partition has."""
    return (rows - index + partitions - 1) // partitions


def _made(span: Span, index: int, first: int, last: int) -> pa.Table:
    """Return the rows of some places of a partition."""
    rate, ramp, partitions = span["rows_per_second"], span["ramp"], span["partitions"]
    places = np.arange(first, last, dtype=np.int64)
    values = places * partitions + index
    start = int(values[0])
    if 2 * _SECOND * start < rate * ramp:
        times = np.array([time_of(value, rate, ramp) for value in values.tolist()], dtype=np.int64)
    else:  # as time_of, without numbers of more than 64 bits: what follows the first is counted from it
        whole, left = divmod(2 * _SECOND * start + rate * ramp, 2 * rate)
        times = whole + (left + 2 * _SECOND * (values - start)) // (2 * rate)
    stamps = pa.array(times + span["start"]).cast(_SCHEMA.field("timestamp").type)
    table = pa.table([stamps, pa.array(values)], schema=_SCHEMA)
    return with_hidden(table, index, pa.array(places))
