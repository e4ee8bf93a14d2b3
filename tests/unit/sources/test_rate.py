"""Rate makes the same rows from the same numbers, as many as its definition says (SEMANTICS 8.2, 9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from source_reading import end_of_batch

from penstock import Job, seconds
from penstock.errors import ConfigError, RateChanged
from penstock.graph.durations import Duration
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import Rate
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import PARTITION, POSITION, SourceReader, Span, TaskReader
from penstock.sources.rate import RateReader, rows_before, time_of
from penstock.testing import Crashed, Harness
from penstock.testing.source_contract import Feed, Grow, SourceContract, read
from penstock.time.clock import ManualClock

START = 1_700_000_000_123_456
RATES = st.integers(1, 5_000)
RAMPS = st.sampled_from([0, 1, 999, 1_000_000, 2_500_001, 60_000_000])


def reader_of(spec: Rate, passed: int = 0, start: int = START) -> tuple[RateReader, ManualClock]:
    """Return a reader that began at the start, and its clock, so many microseconds later."""
    clock = ManualClock(start)
    reader = RateReader(spec, clock)
    clock.now += passed
    return reader, clock


class ByKey(RateReader):
    """The reader, with `value` under the name that the contract's suite asks for."""

    schema = pa.schema([RateReader.schema.field("timestamp"), pa.field("k", pa.int64())])
    clock: ManualClock

    def task_reader(self) -> TaskReader:  # type: ignore[override]
        """Return the task's reader behind a new name."""
        return _Renamed(super().task_reader())


@dataclass(frozen=True)
class _Renamed(TaskReader):
    inner: TaskReader

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the tables with k for value."""
        for table in self.inner.read(span, split, splits):
            yield table.rename_columns(["k" if name == "value" else name for name in table.column_names])


def after_rows(reader: ByKey, rows: int) -> None:
    """Set the clock to when just so many rows are there."""
    rate, ramp = reader.spec.rows_per_second, reader.spec.ramp.micros if reader.spec.ramp else 0
    reader.clock.now = START + (time_of(rows - 1, rate, ramp) + 1 if rows else 0)


def fed(spec: Rate) -> Feed:
    """Return what makes a reader of a source with so many rows."""

    def make(rows: int) -> SourceReader:
        clock = ManualClock(START)
        reader = ByKey(spec, clock)
        reader.clock = clock
        after_rows(reader, rows)
        return reader

    return make


class TestRate(SourceContract):
    """One partition."""

    spec = Rate(7)

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return fed(self.spec)

    @pytest.fixture
    def grow(self) -> Grow:
        def more(reader: SourceReader, rows: int) -> None:
            assert isinstance(reader, ByKey)
            after_rows(reader, sum(waiting.rows for waiting in reader.backlog(None).values()) + rows)

        return more


class TestRateWithRampAndPartitions(TestRate):
    """A ramp that ends in the middle of the rows, and three partitions."""

    spec = Rate(10, ramp=seconds(2), partitions=3)


@settings(max_examples=examples(200), deadline=None)
@given(RATES, RAMPS, st.integers(0, 10**9))
def test_as_many_rows_are_there_as_the_definition_says(rate: int, ramp: int, passed: int) -> None:
    """The integral of the rate over time, rounded up: exact, at any time of the ramp and behind it."""
    in_ramp = min(passed, ramp)
    rows = Fraction(rate * in_ramp**2, 2 * ramp * 10**6) if ramp else Fraction(0)
    rows += Fraction(rate * (passed - in_ramp), 10**6)
    assert rows_before(passed, rate, ramp) == -(-rows.numerator // rows.denominator)


@settings(max_examples=examples(200), deadline=None)
@given(RATES, RAMPS, st.integers(0, 10**6))
def test_a_row_is_there_from_the_microsecond_after_its_time(rate: int, ramp: int, value: int) -> None:
    """`time_of` and `rows_before` are two views of one thing."""
    at = time_of(value, rate, ramp)
    assert rows_before(at, rate, ramp) <= value < rows_before(at + 1, rate, ramp)


@settings(max_examples=examples(60), deadline=None)
@given(
    RATES,
    RAMPS,
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 400)), min_size=1, max_size=6),
)
def test_any_cut_into_batches_gives_the_same_rows(
    rate: int, ramp: int, partitions: int, turns: list[tuple[int, int]]
) -> None:
    """Times and limits decide which batch has a row, and nothing else about it; each driver may be a new one."""
    spec = Rate(rate, ramp=Duration(ramp) if ramp else None, partitions=partitions)
    reader, clock = reader_of(spec)
    start, seen = None, []
    for wait, limit in turns:
        clock.now += wait
        end = end_of_batch(reader, start, ReadLimit(rows=limit))
        span = reader.span(start, end)
        seen += _rows(read(reader, span, splits=partitions)) if reader.rows(span) else []
        start = end
        again, later = reader_of(spec, start=START + 77)
        later.now = clock.now
        reader, clock = again, later
    assert start is not None
    assert start["start"] == START, "the position keeps the start of the first driver"
    expected = [
        (START + time_of(place * partitions + i, rate, ramp), place * partitions + i, i, place)
        for i in range(partitions)
        for place in range(start["rows"][str(i)])
    ]
    assert sorted(seen) == sorted(expected)


def _rows(table: pa.Table) -> list[tuple[int, ...]]:
    stamps = table["timestamp"].cast(pa.int64())
    columns = (stamps, table["value"], table[PARTITION], table[POSITION])
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_times_are_exact_after_years() -> None:
    """A rate of a thousand million rows a second passes 64 bits on the way, and the rows do not show it."""
    passed = 10 * 365 * 86_400 * 1_000_000
    reader, clock = reader_of(Rate(1_000_000_000, ramp=seconds(10), partitions=2), passed)
    end = dict(end_of_batch(reader, None))
    clock.now += 1
    span = reader.span(end, end_of_batch(reader, end))
    rows = _rows(read(reader, span))
    assert len(rows) == 1_000
    assert all(at == START + time_of(value, 1_000_000_000, 10_000_000) for at, value, *_ in rows)


def test_a_clock_that_is_set_back_takes_no_row_away() -> None:
    """Nothing is new until the clock is where it was."""
    reader, clock = reader_of(Rate(10), 1_000_000)
    end = end_of_batch(reader, None)
    clock.now -= 500_000
    assert end_of_batch(reader, end) == end
    clock.now += 1_000_000
    assert sum(end_of_batch(reader, end)["rows"].values()) == 15


def test_a_source_begins_now() -> None:
    """Rate: from the first start of the job on."""
    before = datetime.now(UTC)
    reader = Rate(1_000_000).open(None)
    end = end_of_batch(reader, None)
    assert before <= datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=end["start"]) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows_per_second": 0}, "rows_per_second is 0"),
        ({"rows_per_second": 2.5}, "rows_per_second is 2.5"),
        ({"rows_per_second": 10**9 + 1}, "to 1,000,000,000"),
        ({"rows_per_second": 1, "partitions": 0}, "partitions is 0"),
        ({"rows_per_second": 1, "partitions": 1_001}, "to 1,000"),
        ({"rows_per_second": 1, "ramp": Duration(0)}, "ramp is"),
        ({"rows_per_second": 1, "ramp": 30}, "ramp is 30"),
    ],
)
def test_a_wrong_rate_is_refused(arguments: dict[str, Any], words: str) -> None:
    """Where it is written, with what it takes."""
    with pytest.raises(ConfigError, match=words):
        Rate(**arguments)


class OfTheTest(Rate):
    """A rate that follows a clock of the test."""

    clock: ManualClock

    def open(self, spark: Any) -> RateReader:
        """Return the reader."""
        return RateReader(self, self.clock)


def job_of(clock: ManualClock, rate: int) -> Job:
    """Return a job that copies a rate."""
    OfTheTest.clock = clock
    job = Job("ticks", partitions=2)
    job.source("ticks", OfTheTest(rate, ramp=seconds(1), partitions=2)).write("out", MemorySink())
    return job


@pytest.mark.spark
@pytest.mark.remedy("PEN-SRC-026")
def test_a_job_has_each_row_once_through_crashes_and_refuses_another_rate(tmp_path: Path) -> None:
    """The position has the start, so rows are the same after a restart; another rate is named, and set back goes on."""
    clock = ManualClock(START)
    limits = DriverSettings(limits=lambda: Limits(rows=40))
    with Harness(job_of(clock, 100), tmp_path / "checkpoints", settings=limits) as h:
        for stage in ("FixOffsets", "CommitBatch", "PublishSinks"):
            clock.now += 700_000
            h.crash_after(stage)
            with pytest.raises(Crashed):
                h.batch()
            h.restart()
        with pytest.raises(RateChanged, match="rows_per_second was 100 up to the job's position, and is 50 now"):
            h.restart(job_of(clock, 50))
        h.restart(job_of(clock, 100))
        for _ in range(6):
            h.batch()
        out = h.output()["out"]
    came = rows_before(clock.now - START, 100, 1_000_000)
    assert sorted(row["value"] for row in out) == list(range(came))
    first = min(out, key=lambda row: int(row["value"]))["timestamp"]
    for row in out:
        assert row["timestamp"] - first == timedelta(microseconds=time_of(row["value"], 100, 1_000_000))
