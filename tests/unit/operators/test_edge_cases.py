"""The edge cases of issue 20, for each kind of windows and joins beside its definition (SEMANTICS 2 to 7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

import pytest
from edge_runs import RUNS, Row, Run

from penstock.time.clock import END_OF_TIME

pytestmark = [pytest.mark.slow, pytest.mark.sample(24, of="edge cases")]

KINDS = pytest.mark.parametrize("kind", RUNS)
HOUR = 3_600_000_000
DAY = 24 * HOUR


def micros_of(*date: int) -> int:
    """Return a moment in UTC."""
    return (datetime(*date, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def rows(*times: int, first: int = 0, keys: str = "ab") -> list[Row]:
    """Return rows with these times, numbered on; two neighbours have one key, so that joins have pairs."""
    return [
        {"k": keys[number // 2 % len(keys)], "t": time, "v": number, "n": number, "s": "", "x": None, "g": None}
        for number, time in enumerate(times, first)
    ]


def ended(run: Run, time: int) -> int:
    """Run a batch at the end of event time, and at this batch time; return how many rows it emits."""
    return run.batch([], time=time, mark=END_OF_TIME)


@KINDS
def test_rows_at_a_bound_and_at_the_watermark(kind: str, tmp_path: Path) -> None:
    """2.3, 2.5, 3: a row at the watermark is on time, a bound belongs to the next window; around multiples of 10."""
    run, first, emitted = RUNS[kind](10, str(tmp_path)), 0, 0
    for mark in (0, 9, 10, 11, 19, 20, 21, 30, 40, 41):
        fed = rows(*(mark + by for by in (0, 0, 1, 1, 9, 10, 11, -1, -1, 20)), first=first)
        first += len(fed)
        emitted += run.batch(fed, time=mark + 1, mark=mark)
    assert emitted + ended(run, 80) > 0


@KINDS
@pytest.mark.parametrize(
    "start",
    [(2024, 2, 28), (2023, 2, 28), (1972, 2, 28), (1968, 2, 28), (1900, 2, 28), (1969, 12, 30), (1583, 1, 1)],
    ids=lambda start: "-".join(map(str, start)),
)
def test_days_around_the_end_of_february_and_before_1970(
    kind: str, start: tuple[int, int, int], tmp_path: Path
) -> None:
    """3: a day has 24 hours, with a 29 February and without, and on both sides of 1970."""
    run, midnight, emitted = RUNS[kind](DAY, str(tmp_path)), micros_of(*start), 0
    for day in range(5):
        begin = midnight + day * DAY
        fed = rows(*(begin + hour * HOUR for hour in (0, 0, 6, 23)), begin + DAY - 1, first=10 * day)
        emitted += run.batch(fed, time=begin + DAY, mark=begin - HOUR if day else None)
    assert emitted + ended(run, midnight + 8 * DAY) > 0


@KINDS
def test_a_window_that_is_longer_than_the_stream(kind: str, tmp_path: Path) -> None:
    """2.1, 3: a hundred years over a minute; all that waits comes at the end of time."""
    run, emitted = RUNS[kind](36_525 * DAY, str(tmp_path)), 0
    for second in range(6):
        fed = rows(*(1_000_000 * second + by for by in range(4)), first=4 * second)
        emitted += run.batch(fed, time=1_000_000 * (second + 1), mark=1_000_000 * second if second else None)
    assert emitted + ended(run, 1_000_000 * 7) > 0 or kind == "batch"


@KINDS
def test_hours_of_empty_batches_write_nothing(kind: str, tmp_path: Path) -> None:
    """1.4: while nothing is due, a batch a minute for an hour leaves the state as it is, and emits nothing."""
    run = RUNS[kind](DAY, str(tmp_path))
    begin = 10 * DAY + HOUR
    emitted = run.batch(rows(begin, begin, begin + 2, begin + 3), time=begin, mark=None)
    emitted += run.batch(rows(begin + HOUR, begin + HOUR, first=10), time=begin + HOUR, mark=begin)
    emitted += run.batch([], time=begin + HOUR + 1, mark=begin + 1)
    before = list(run.disk.refs)
    for second in range(0, 3600, 60):
        moved = begin + HOUR + 1_000_000 * (second + 1)
        assert run.batch([], time=moved, mark=begin + 1) == 0
    assert run.disk.refs == before
    assert emitted + ended(run, begin + 2 * DAY) > 0


@KINDS
def test_a_watermark_that_jumps_over_many_windows(kind: str, tmp_path: Path) -> None:
    """1.3, 2.2, 3.1: over 500 windows without rows, to one with some, and to the end."""
    run, far = RUNS[kind](10, str(tmp_path)), 5_000
    run.batch(rows(1, 2, 11, 12), time=10, mark=None)
    emitted = run.batch(rows(far, far + 1, far + 2, far + 3, first=10), time=20, mark=1)
    emitted += run.batch([], time=far, mark=far)
    emitted += run.batch(rows(far + 12, far + 13, first=20), time=far + 10, mark=far + 11)
    assert emitted + ended(run, far + 100) > 0


def many(keys: int) -> Iterator[Row]:
    """Return a row for each key."""
    return ({"k": f"k{n}", "t": 100 + n % 7, "v": n, "n": 2 * n, "s": "", "x": None, "g": None} for n in range(keys))


@KINDS
def test_one_key_with_all_rows(kind: str, tmp_path: Path) -> None:
    """3.1, 5: the rows of a batch, and those of three, are of one key."""
    run, emitted = RUNS[kind](200, str(tmp_path)), 0
    for batch in range(3):
        times = [100 * batch + n // 4 for n in range(400)]
        emitted += run.batch(rows(*times, first=1000 * batch, keys="a"), time=100 * batch + 100, mark=100 * batch)
    assert emitted + ended(run, 1000) > 0


@KINDS
def test_many_keys_with_one_row_each(kind: str, tmp_path: Path) -> None:
    """3.1, 7.6: each key has windows, rows and state of its own, in the partition that is its own."""
    run = RUNS[kind](10, str(tmp_path))
    emitted = run.batch(list(many(300)), time=10, mark=None)
    emitted += ended(run, 20)
    assert emitted >= 300 or kind in ("counts", "a duration each count")  # which fire with the second row


@pytest.mark.parametrize("keys", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["tumbling", "session", "join", "deduplicate"])
def test_a_million_keys_with_one_row_each(
    kind: str, keys: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.1, 7.6: each key has state of its own, which goes once the watermark has passed it."""
    disk = RUNS[kind](10, str(tmp_path)).disk
    # As those of Spark, which hardly any two keys share.
    monkeypatch.setattr(disk, "hash_of", lambda key: (crc32(key.encode()) << 32) - 2**63)
    fed = list(many(keys))
    for late, rows_now in ((None, fed), (END_OF_TIME, [])):
        if kind == "join":
            disk.batch([[(row["k"], row["t"], row["n"]) for row in rows_now], []], late=late, close=late)
        else:
            disk.batch([rows_now], late=late, close=late)
        assert disk.shown().num_rows == (keys if rows_now else 0)
