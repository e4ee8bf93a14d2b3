"""Rows become blocks by time or size, memory is bounded, and senders wait for room and for the rate (SEMANTICS 8.6)."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pushing import until

from penstock.errors import RowsTooLarge
from penstock.receivers.block_buffer import BlockBuffer, Pace
from penstock.receivers.blocks import MOST_BYTES

FOREVER = 3_600.0


def numbers(*values: int) -> pa.Table:
    """Return rows of 8 bytes each."""
    return pa.table({"k": pa.array(values, pa.int64())})


class Disk:
    """Writes blocks while it is let."""

    def __init__(self) -> None:
        self.blocks: list[list[int]] = []
        self.free = threading.Event()
        self.free.set()
        self.error: BaseException | None = None

    def write(self, rows: pa.Table) -> None:
        """Keep a block."""
        self.free.wait()
        if self.error is not None:
            raise self.error
        self.blocks.append(rows["k"].to_pylist())


@pytest.fixture
def disk() -> Disk:
    """Return a disk."""
    return Disk()


@pytest.fixture
def running(disk: Disk) -> Iterator[BlockBuffer]:
    """Return a buffer that cuts blocks of 80 bytes, and never by time."""
    buffer = BlockBuffer(disk.write, interval=FOREVER, most=80)
    thread = threading.Thread(target=buffer.run, daemon=True)
    thread.start()
    yield buffer
    disk.free.set()
    buffer.close()
    thread.join(20)
    assert not thread.is_alive()


def test_a_block_is_cut_by_size_and_acknowledged_when_it_is_written(running: BlockBuffer, disk: Disk) -> None:
    """Not before: that is the promise to the sender."""
    disk.free.clear()
    first, second = running.put(numbers(*range(5))), running.put(numbers(*range(5, 10)))
    assert not first.done()
    disk.free.set()
    first.result(20)
    second.result(20)
    assert disk.blocks == [[*range(10)]]


def test_who_gives_up_on_rows_ends_no_receiver(running: BlockBuffer, disk: Disk) -> None:
    """The end of an asyncio task cancels the future that it awaits, and the rows of others are in the same block."""
    given_up, other = running.put(numbers(*range(5))), running.put(numbers(*range(5, 10)))
    given_up.cancel()
    other.result(20)
    running.put(numbers(*range(10, 20))).result(20)
    assert disk.blocks == [[*range(10)], [*range(10, 20)]]


def test_a_block_is_cut_by_time(disk: Disk) -> None:
    """One row alone waits for no other for ever."""
    buffer = BlockBuffer(disk.write, interval=0.01, most=1_000)
    threading.Thread(target=buffer.run, daemon=True).start()
    buffer.put(numbers(1)).result(20)
    buffer.put(numbers(2)).result(20)
    buffer.close()
    assert disk.blocks == [[1], [2]]


def test_the_rest_is_written_when_the_buffer_is_closed(disk: Disk) -> None:
    """Whatever the interval; and nothing is taken after that."""
    buffer = BlockBuffer(disk.write, interval=FOREVER, most=1_000)
    done = buffer.put(numbers(1))
    buffer.close()
    buffer.run()
    assert done.done()
    assert disk.blocks == [[1]]
    with pytest.raises(RuntimeError, match="stopped"):
        buffer.put(numbers(2))


def test_a_sender_waits_for_room(running: BlockBuffer, disk: Disk) -> None:
    """F47: while the disk is slow, one block waits and one is written, and the next sender is held up."""
    disk.free.clear()
    running.put(numbers(*range(10)))  # is being written
    until(lambda: running._bytes == 0)
    running.put(numbers(*range(10)))  # waits
    put = threading.Thread(target=running.put, args=[numbers(1)], daemon=True)
    put.start()
    put.join(0.2)
    assert put.is_alive()
    assert running._bytes == 80
    disk.free.set()
    put.join(20)
    assert not put.is_alive()


def test_rows_of_one_call_are_in_one_block(running: BlockBuffer, disk: Disk) -> None:
    """Also more than a block is cut at; after a crash all of them are there, or none."""
    running.put(numbers(*range(25))).result(20)
    assert disk.blocks == [[*range(25)]]


@pytest.mark.remedy("PEN-SRC-032")
def test_rows_that_no_block_holds_are_refused_and_fewer_are_taken(running: BlockBuffer) -> None:
    """A reader has to hold a block."""
    rows = pa.table({"k": pa.repeat(1, MOST_BYTES // 8 + 1)})
    with pytest.raises(RowsTooLarge):
        running.put(rows)
    running.put(rows.slice(0, 100)).result(20)


def test_what_ends_the_writing_refuses_all_that_waits(disk: Disk) -> None:
    """No row of them is acknowledged, and no later one is taken."""
    buffer = BlockBuffer(disk.write, interval=FOREVER, most=80)
    disk.error = OSError("sealed")
    done = buffer.put(numbers(*range(10)))
    with pytest.raises(OSError, match="sealed"):
        buffer.run()
    assert isinstance(done.exception(), OSError)
    with pytest.raises(OSError, match="sealed"):
        buffer.put(numbers(1))


def test_a_rate_of_nothing_holds_senders_up_until_there_is_one(running: BlockBuffer, disk: Disk) -> None:
    """A job that is paused, or whose blocks nobody reads, takes no more."""
    running.limit(0.0)
    put = threading.Thread(target=running.put, args=[numbers(*range(10))], daemon=True)
    put.start()
    put.join(0.2)
    assert put.is_alive()
    running.limit(None)
    put.join(20)
    assert until(lambda: disk.blocks) == [[*range(10)]]


@given(
    rate=st.floats(1, 1e6),
    calls=st.lists(st.tuples(st.integers(1, 1_000), st.floats(0, 5)), min_size=1, max_size=40),
)
def test_a_pace_never_gives_more_than_its_rate(rate: float, calls: list[tuple[int, float]]) -> None:
    """Of what was taken before the last call, whose rows are on credit: the rate, and a fifth of a second of it."""
    pace, now, taken = Pace(rate), 0.0, 0
    for rows, pause in calls:
        now += pause
        wait = pace.wait(now)
        assert wait >= 0
        now += wait
        assert pace.wait(now) <= 1e-6
        assert taken <= rate * (now + 0.2) * (1 + 1e-9) + 1e-3
        pace.take(rows)
        taken += rows


def test_a_pace_without_a_rate_never_waits() -> None:
    """And one of nothing always does."""
    pace = Pace()
    pace.take(10**9)
    assert pace.wait(0.0) == 0.0
    pace.change(10.0)
    assert pace.wait(0.0) == 0.0
    pace.take(5)
    assert pace.wait(0.0) == pytest.approx(0.3)
    pace.change(0.0)
    assert pace.wait(100.0) == math.inf
