"""Interval joins give what the suites of other systems demand of theirs, in the words of SEMANTICS 7.6.

The watermark of an example is that of its definition (2.1, 2.2): the least of the highest times of both inputs, minus a
delay, of the batches before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from join_disk import JoinDisk, Made, Row

MS, S = 1_000, 1_000_000
Pair = tuple[str | None, int | None, int | None]
"""Key, and the times of both rows in the unit of the example; None for a row that nothing matches."""


@dataclass(frozen=True)
class Batch:
    """Rows of the left and of the right input as keys and times, and what comes out, in order."""

    left: Sequence[tuple[str | None, int]] = ()
    right: Sequence[tuple[str | None, int]] = ()
    out: Sequence[Pair] = ()


@dataclass(frozen=True)
class Example:
    """A join and its batches. `delay` is the `max_out_of_order` of both sources, in units."""

    within: tuple[int, int]
    batches: Sequence[Batch]
    how: str = "inner"
    delay: int = 10
    unit: int = S


def keyed(*times: int, key: str | None = "1") -> list[tuple[str | None, int]]:
    """Return rows of one key."""
    return [(key, time) for time in times]


def matched(pairs: Sequence[tuple[int | None, int | None]], key: str = "1") -> list[Pair]:
    """Return pairs of one key."""
    return [(key, left, right) for left, right in pairs]


ONE_TO_FOUR = keyed(1, 2, 3, 4)
EXAMPLES = {
    # Flink, IntervalJoinOperatorTest: every kind of bounds over the times 1 to 4.
    "both bounds before": Example(
        within=(-2, -1),
        batches=[
            Batch(ONE_TO_FOUR),
            Batch(right=ONE_TO_FOUR, out=matched([(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)])),
        ],
    ),
    "bounds around": Example(
        within=(-1, 1),
        batches=[
            Batch(right=ONE_TO_FOUR),
            Batch(
                ONE_TO_FOUR,
                out=matched([(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)]),
            ),
        ],
    ),
    "both bounds after": Example(
        within=(1, 2),
        batches=[
            Batch(ONE_TO_FOUR[:2]),
            Batch(ONE_TO_FOUR[2:], ONE_TO_FOUR, out=matched([(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)])),
        ],
    ),
    # Flink, late data: both inputs drop what is older than the watermark, also where a partner is still held.
    "late rows of both inputs": Example(
        within=(-1, 1),
        delay=0,
        batches=[
            Batch(keyed(1, 2, 3), keyed(1, 2, 3), matched([(1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (2, 3), (3, 3)])),
            Batch(keyed(1, 2), keyed(1, 2)),
            Batch(keyed(3), keyed(3), matched([(3, 2), (3, 3), (2, 3), (3, 3), (3, 3)])),
        ],
    ),
    # Spark, StreamingInnerJoinSuite: a left row at 20 matches right rows from 15 to 30 only, both included.
    "a range with bounds on both sides": Example(
        within=(-5, 10),
        batches=[
            Batch(keyed(20)),
            Batch(right=keyed(14, 15, 25, 26, 30, 31), out=matched([(20, 15), (20, 25), (20, 26), (20, 30)])),
        ],
    ),
    # Spark, StreamingOuterJoinSuite: a match in an early batch, none in a later one, then the watermark passes.
    "left outer rows wait for the range": Example(
        within=(-5, 5),
        how="left",
        batches=[
            Batch([("1", 5), ("3", 5)]),
            Batch(right=[("1", 10), ("2", 5)], out=[("1", 5, 10)]),
            Batch(right=[("1", 11)]),
            Batch([("1", 7)], out=[("1", 7, 10), ("1", 7, 11)]),
            Batch([("1", 30)], [("0", 30)]),
            Batch(out=[("3", 5, None)]),
            Batch([("0", 60)], [("0", 90)]),
            Batch(out=[("1", 30, None)]),
        ],
    ),
    "right outer rows wait for the range": Example(
        within=(-5, 5),
        how="right",
        batches=[
            Batch([("1", 5), ("3", 5)]),
            Batch(right=[("1", 10), ("2", 5)], out=[("1", 5, 10)]),
            Batch([("1", 30)], [("0", 30)]),
            Batch(out=[("2", None, 5)]),
        ],
    ),
    "full outer rows of both sides": Example(
        within=(0, 5),
        how="full",
        batches=[
            Batch([("1", 5), ("3", 6)], [("1", 9), ("2", 5)], [("1", 5, 9)]),
            Batch([("4", 30)], [("4", 30)], [("4", 30, 30)]),
            Batch(out=[("2", None, 5), ("3", 6, None)]),
        ],
    ),
    # Spark, SPARK-26187: a row that had a match never comes with nulls, in this batch or any later one.
    "a stream with itself has no outer rows": Example(
        within=(0, 0),
        how="left",
        batches=[
            Batch([("1", 1), ("2", 2)], [("1", 1), ("2", 2)], [("1", 1, 1), ("2", 2, 2)]),
            Batch([("1", 50)], [("1", 50)], [("1", 50, 50)]),
            Batch(),
            Batch([("2", 90)], [("2", 90)], [("2", 90, 90)]),
        ],
    ),
    # Spark: a row that is older than the watermark is dropped. Flink SQL emits it with nulls, which may be wrong.
    "late outer rows are dropped, not padded": Example(
        within=(0, 5),
        how="full",
        delay=0,
        batches=[
            Batch([("0", 20)], [("0", 20)], [("0", 20, 20)]),
            Batch([("1", 19)], [("1", 19)]),
            Batch([("0", 90)], [("0", 90)], [("0", 90, 90)]),
            Batch(),
        ],
    ),
    # Kafka Streams, JoinWindows.ofTimeDifference(100 ms): both ends belong to the window.
    "a difference of 100 ms": Example(
        within=(-100, 100),
        unit=MS,
        batches=[
            Batch(keyed(1000)),
            Batch(right=keyed(899, 900, 1100, 1101), out=matched([(1000, 900), (1000, 1100)])),
        ],
    ),
    # Kafka Streams, .before(0) and .after(100): the right row is never the earlier one; then the reverse.
    "a window after": Example(
        within=(0, 100),
        unit=MS,
        batches=[
            Batch(keyed(1000)),
            Batch(right=keyed(999, 1000, 1100, 1101), out=matched([(1000, 1000), (1000, 1100)])),
        ],
    ),
    "a window before": Example(
        within=(-100, 0),
        unit=MS,
        batches=[
            Batch(keyed(1000)),
            Batch(right=keyed(899, 900, 1000, 1001), out=matched([(1000, 900), (1000, 1000)])),
        ],
    ),
    # Kafka Streams, KStreamKStreamLeftJoinTest: rows of one key and time are rows of their own, and none comes early.
    "equal left rows come each": Example(
        within=(-100, 100),
        how="left",
        unit=MS,
        delay=0,
        batches=[
            Batch([("1", 0), ("1", 0), ("2", 0)]),
            Batch(right=[("2", 100)], out=[("2", 0, 100)]),
            Batch([("0", 100)], [("0", 100)], [("0", 100, 100)]),
            Batch(),
            Batch([("0", 101)], [("0", 101)], [("0", 101, 100), ("0", 100, 101), ("0", 101, 101)]),
            Batch(out=[("1", 0, None), ("1", 0, None)]),
        ],
    ),
    # Kafka Streams, KIP-962: a left row with a null key is an outer row at once, a right one is dropped.
    "null keys": Example(
        within=(-1, 1),
        how="left",
        batches=[
            Batch(keyed(1, key=None), keyed(1, key=None), [(None, 1, None)]),
            Batch([("1", 2)], [("1", 2)], [("1", 2, 2)]),
        ],
    ),
    # All of them: a left row whose last match is before the watermark waits for nothing.
    "an outer row that comes too late to match": Example(
        within=(-9, -1),
        how="left",
        delay=0,
        batches=[
            Batch([("0", 10), ("0", 20)], [("0", 9), ("0", 20)], [("0", 10, 9)]),
            Batch([("0", 20), ("0", 40)], out=[("0", 20, None), ("0", 20, None)]),
        ],
    ),
}


def output(made: Made, times: dict[int, int]) -> list[Pair]:
    """Return the output with the times of rows in the place of their numbers."""
    return [
        (key, None if left is None else times[left], None if right is None else times[right])
        for key, left, right in made.output
    ]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_join_does_what_it_does_elsewhere(tmp_path: Path, example: Example, partitions: int) -> None:
    """7.6: pairs come once with the later of their rows, outer rows once when no match can follow, late rows never."""
    within = (example.within[0] * example.unit, example.within[1] * example.unit)
    disk = JoinDisk(within, example.how, tmp_path, partitions=partitions)
    highest: list[int | None] = [None, None]
    times: dict[int, int] = {}
    for batch in example.batches:
        seen = [time for time in highest if time is not None]
        watermark = (min(seen) - example.delay) * example.unit if len(seen) == 2 else None
        fed: list[list[Row]] = [[], []]
        for side, rows in enumerate((batch.left, batch.right)):
            for key, time in rows:
                times[len(times)] = time
                fed[side].append((key, time * example.unit, len(times) - 1))
                highest[side] = max(time, highest[side] if highest[side] is not None else time)
        made = disk.batch(fed, late=watermark, close=watermark)
        assert output(made, times) == list(batch.out)
        for (_, left, right), at in zip(output(made, times), made.times, strict=True):
            if left is not None and right is not None:
                assert at == max(left, right) * example.unit


@pytest.mark.parametrize("within", [(-2, -1), (-1, 1), (1, 2)], ids=str)
def test_state_is_cleaned_when_no_row_can_match(tmp_path: Path, within: tuple[int, int]) -> None:
    """7.6: a row is forgotten when the watermark has passed all that it could match, at the latest a slice later."""
    disk = JoinDisk((within[0] * S, within[1] * S), "inner", tmp_path)
    disk.batch([[("1", time * S, time) for time in range(10, 15)]] * 2, late=0, close=0)
    held = [len(disk.state())]
    for watermark in (12, 14, 16, 18):
        disk.batch([[], []], late=watermark * S, close=watermark * S)
        held.append(len(disk.state()))
    assert held[0] == 10
    assert held == sorted(held, reverse=True)
    assert held[-1] == 0
