"""Steps behind steps give what the suites of Structured Streaming expect of theirs (SEMANTICS 2.1, 2.2, 7.6).

The rows are those of EventTimeWatermarkSuite, StreamingDeduplicationSuite and MultiStatefulOperatorsSuite, or like them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import plain

from penstock import Job, agg, micros, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(1, of="chains as elsewhere")

Rows = Sequence[tuple[Any, ...]]
FIVE, TEN = seconds(5), seconds(10)


def emitted(made: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Rows]:
    """Return the rows of each sink that got some, sorted."""
    return {sink: sorted(plain([*rows])) for sink, rows in made.items() if rows}


def test_windows_and_duplicates_follow_each_other(tmp_path: Path) -> None:
    """2.1, 2.2, 7.6: a window of windows closes behind them, and what is late for one step is on time for another."""
    job = Job("chains", partitions=2)
    times = job.source("in", MemorySource("t timestamp"), event_time="t", max_out_of_order=TEN)
    counts = times.window("fives", Tumbling(FIVE).drop_late()).aggregate(n=agg.count())
    counts.write("windows", MemorySink())
    tens = counts.window("tens", Tumbling(TEN).drop_late())
    tens.aggregate(windows=agg.count(), n=agg.sum("n")).write("windows_of_windows", MemorySink())
    distinct = times.deduplicate("distinct", by=["t"], within=TEN)
    distinct.write("first_rows", MemorySink())
    firsts = distinct.window("firsts", Tumbling(FIVE).drop_late()).aggregate(n=agg.count())
    firsts.write("windows_of_first_rows", MemorySink())
    batches: list[tuple[list[float], dict[str, Rows]]] = [
        ([10, 11, 12, 13, 14, 10], {"first_rows": [(10,), (11,), (12,), (13,), (14,)]}),
        ([25], {"first_rows": [(25,)], "windows": [(10, 15, 6)], "windows_of_first_rows": [(10, 15, 5)]}),
        ([10], {}),
        ([14.9, 15, 15], {"first_rows": [(14.9,), (15,)]}),
        (
            [36],
            {
                "first_rows": [(36,)],
                "windows": [(15, 20, 2)],
                "windows_of_windows": [(10, 20, 2, 8)],
                "windows_of_first_rows": [(15, 20, 1)],
            },
        ),
        (
            [45],
            {
                "first_rows": [(45,)],
                "windows": [(25, 30, 1)],
                "windows_of_windows": [(20, 30, 1, 1)],
                "windows_of_first_rows": [(25, 30, 1)],
            },
        ),
    ]
    with Harness(job, tmp_path) as h:
        for place, (rows, expected) in enumerate(batches):
            if place == 4:
                h.restart()
            assert emitted(h.batch({"in": [{"t": t} for t in rows]})) == expected, f"batch {place}"
        totals = h.commit().totals
    assert [totals[f"window:{step}"]["late"] for step in ("fives", "tens", "firsts")] == [2, 0, 1]


def test_joins_and_windows_follow_each_other(tmp_path: Path) -> None:
    """2.1, 7.6: outer rows reach the window that they belong to, and windows of two streams join by their bounds."""
    job = Job("chains", partitions=2)
    left, right = (
        job.source(
            name, MemorySource(f"k string, {name} int, t timestamp"), event_time="t", max_out_of_order=seconds(0)
        )
        for name in ("left", "right")
    )
    pairs = left.join("pairs", right.select("k", "right"), on=["k"], within=(seconds(-5), FIVE), how="left")
    windows = pairs.key_by("k").window("windows", Tumbling(FIVE).drop_late())
    windows.aggregate(n=agg.count(), matched=agg.sum("right")).write("windows_of_pairs", MemorySink())
    lefts, rights = (
        stream.key_by("k").window(f"{name}s", Tumbling(FIVE).drop_late()).aggregate(**{f"{name}s": agg.count()})
        for name, stream in (("left", left), ("right", right))
    )
    both = lefts.select("k", "lefts").join(
        "both", rights.select("k", "rights"), on=["k"], within=(micros(0), micros(0))
    )
    both.write("pairs_of_windows", MemorySink())
    lefts.deduplicate("once", by=["k"], within=seconds(20)).write("first_windows", MemorySink())
    batches: list[tuple[Rows, Rows, dict[str, Rows]]] = [
        ([("a", 1), ("a", 2), ("b", 3)], [("a", 3), ("a", 6)], {}),
        (
            [("a", 7)],
            [("a", 8)],
            {
                "windows_of_pairs": [("a", 0, 5, 2, 2)],
                "pairs_of_windows": [("a", 2, 1)],
                "first_windows": [("a", 0, 5, 2), ("b", 0, 5, 1)],
            },
        ),
        (
            [("c", 20)],
            [("c", 20)],
            {
                "windows_of_pairs": [("a", 5, 10, 5, 5), ("b", 5, 10, 1, None)],
                "pairs_of_windows": [("a", 1, 2)],
            },
        ),
        (
            [("a", 40)],
            [("a", 40)],
            {
                "windows_of_pairs": [("c", 20, 25, 1, 1)],
                "pairs_of_windows": [("c", 1, 1)],
                "first_windows": [("c", 20, 25, 1)],
            },
        ),
    ]
    with Harness(job, tmp_path) as h:
        for place, (lefts_fed, rights_fed, expected) in enumerate(batches):
            if place == 2:
                h.restart()
            fed = {
                name: [{"k": k, name: 1, "t": t} for k, t in rows]
                for name, rows in (("left", lefts_fed), ("right", rights_fed))
            }
            assert emitted(h.batch(fed)) == expected, f"batch {place}"
