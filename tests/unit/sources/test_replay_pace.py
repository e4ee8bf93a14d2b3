"""A file is replayed at a speed: its rows come in the rhythm of their times (API)."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Job, seconds
from penstock.errors import ConfigError
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, replay
from penstock.sources.replay import ReplayReader
from penstock.testing import Crashed, Harness
from penstock.time.clock import ManualClock

START = 1_700_000_000_000_000
SPEEDS = st.sampled_from([0.25, 1, 2.5, 7, 3600])


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Keep the sorted copies of a test apart, and return the clock of its replays."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    clock = ManualClock(START)
    monkeypatch.setattr(replay, "SystemClock", lambda: clock)
    return clock


def reader(folder: Path, times: list[int | None], speed: float | None, **more: Any) -> ReplayReader:
    """Return a replay of rows with these times in microseconds."""
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"t": pa.array(times, pa.timestamp("us", tz="UTC"))}), path)
    return FileReplay(path, order_by="t", speed=speed, **more).open(None)


def until(replayed: ReplayReader, after: Any) -> int:
    """Return up to which row a batch after a position reads."""
    return next(iter(replayed.backlog(after).values())).batch_end


@settings(max_examples=examples(60))
@given(
    times=st.lists(st.none() | st.integers(-5_000_000, 60_000_000), max_size=30),
    speed=SPEEDS,
    passed=st.lists(st.integers(0, 40_000_000), max_size=6).map(sorted),
    rows_a_piece=st.sampled_from([1, 3, 32_768]),
)
def test_a_row_is_due_so_long_after_the_first_as_its_time_divided_by_the_speed(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int | None],
    speed: float,
    passed: list[int],
    rows_a_piece: int,
) -> None:
    """API: speed; rows without a time come with the last that has one, and a restart changes nothing."""
    known = sorted(t for t in times if t is not None)
    clock = ManualClock(START)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "SystemClock", lambda: clock)
        patch.setattr(replay, "_ROWS_A_PIECE", rows_a_piece)
        folder = tmp_path_factory.mktemp("replay")
        patch.setattr(tempfile, "tempdir", str(folder))
        replayed, after = reader(folder, times, speed), None
        replayed.backlog(None)
        for moment in passed:
            clock.now = START + moment
            due = [t for t in known if t - known[0] <= moment * Fraction(str(speed))]
            expected = len(times) if len(due) == len(known) else len(due)
            assert until(replayed, after) == expected
            after = replayed.position(after, {"0": expected})
            replayed = reader(folder, times, speed)
            assert until(replayed, after) == expected
            assert replayed.position(after, {"0": expected}) == after


def test_another_speed_counts_from_the_next_row_on(tmp_path: Path, clock: ManualClock) -> None:
    """API: neither a leap nor a long wait; without a speed all is there, and a speed may come later."""
    times: list[int | None] = [10_000_000 * k for k in range(10)]
    replayed = reader(tmp_path, times, 10)
    replayed.backlog(None)
    clock.now += 2_500_000
    after = replayed.position(None, {"0": until(replayed, None)})
    assert after["row"] == 3
    slower = reader(tmp_path, times, 1)
    assert until(slower, after) == 4
    clock.now += 9_999_999
    assert until(slower, after) == 4
    clock.now += 1
    assert until(slower, after) == 5
    after = slower.position(after, {"0": 5})
    assert until(reader(tmp_path, times, None), after) == 10
    after = reader(tmp_path, times, None).position(after, {"0": 6})
    assert "pace" not in after
    assert until(reader(tmp_path, times, 1), after) == 7


def test_a_clock_that_is_set_back_takes_no_row_away(tmp_path: Path, clock: ManualClock) -> None:
    """API: what was read stays read, and the rest comes when it is due."""
    replayed = reader(tmp_path, [0, 1_000_000], 1)
    after = replayed.position(None, {"0": until(replayed, None)})
    clock.now -= 5_000_000
    assert until(replayed, after) == 1
    assert not replayed.ended(after)


def test_a_job_reads_rows_as_they_come_due(tmp_path: Path, clock: ManualClock) -> None:
    """SEMANTICS 1.2, 1.5: a batch that crashed has the same rows later, and the end closes the job as without a speed."""
    path = tmp_path / "rows.csv"
    path.write_text("t,v\n" + "\n".join(f"2026-11-28T10:0{k}:00Z,{k}" for k in range(4)))
    job = Job("replayed", partitions=1)
    source = FileReplay(path, order_by="t", schema="t timestamp, v int", speed=60)
    job.source("rows", source, event_time="t", max_out_of_order=seconds(0)).select("v").write("out", MemorySink())
    with Harness(job, root=tmp_path / "checkpoints") as h:
        assert h.run() == {"out": [{"v": 0}]}
        clock.now += 1_000_000
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.run()
        clock.now += 1_000_000
        assert h.restart() == {"out": [{"v": 1}]}
        assert h.run() == {"out": [{"v": 2}]}
        clock.now += 1_000_000
        assert h.run() == {"out": [{"v": 3}]}
        assert h.commit().sources["rows"].ended


@pytest.mark.parametrize("speed", [0, -1, True, float("nan"), float("inf"), "fast"], ids=str)
def test_a_speed_that_is_none_is_refused(tmp_path: Path, speed: Any) -> None:
    """Issue 19: as the job is built."""
    with pytest.raises(ConfigError, match="speed is .* takes a number"):
        FileReplay(tmp_path / "rows.csv", order_by="t", speed=speed)


@pytest.mark.parametrize(("order_by", "found"), [("v", "of int64"), ("t + INTERVAL 1 DAY", "no column")])
def test_a_speed_needs_times(tmp_path: Path, order_by: str, found: str, request: pytest.FixtureRequest) -> None:
    """Issue 19: before the first batch; an expression names no column whose times the tasks could read."""
    pq.write_table(pa.table({"t": pa.array([0], pa.timestamp("us")), "v": [1]}), tmp_path / "rows.parquet")
    spark = request.getfixturevalue("spark") if " " in order_by else None
    with pytest.raises(ConfigError, match=f"is {found}"):
        FileReplay(tmp_path / "rows.parquet", order_by=order_by, speed=1).open(spark)
