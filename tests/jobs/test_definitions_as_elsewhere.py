"""Jobs in the words of other systems, from API and SEMANTICS alone, with figures computed by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import plain

from penstock import Job, agg, seconds
from penstock.graph.window_functions import WindowView
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import EVENT, State, idle
from penstock.testing import Harness
from penstock.windows import BatchWindow, Time, Tumbling, TupleWindow

pytestmark = pytest.mark.sample(2, of="windows as elsewhere")

KEYED = "k string, v int"
TIMED = f"{KEYED}, t timestamp"


def rows(*given: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return rows of a source: key, value and, where there is one, event time."""
    return [dict(zip("kvt", row, strict=False)) for row in given]


def pairs(key: str, view: WindowView) -> list[dict[str, Any]]:
    """Join the rows of both sides, as `join` of two DStreams does."""
    sides: dict[str, list[int]] = {"a": [], "b": []}
    for row in view.current.to_pylist():
        sides[row["side"]].append(row["v"])
    return [{"k": key, "a": a, "b": b} for a in sides["a"] for b in sides["b"]]


def initial() -> Any:
    """Return states that are there before the first batch."""
    from pyspark.sql import SparkSession

    return SparkSession.active().createDataFrame([("x", 5), ("z", 7)], "k string, n int")


def counted(time: datetime, key: str, row: Any, state: State) -> dict[str, Any]:
    """Count the rows of a key; say its count as a negative number when it times out."""
    if state.is_timing_out():
        return {"k": key, "n": -state.get()["n"]}
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    return {"k": key, **state.get()}


def test_windows_of_dstreams_are_joined_counted_and_counted_again(tmp_path: Path) -> None:
    """4.2, 4.4, 7.2, 7.3: windows of two lengths are joined, a window of counts is summed up, initial states time out."""
    job = Job("dstreams", interval=seconds(1), partitions=2)
    a, b = (job.source(name, MemorySource(KEYED)) for name in "ab")
    two = a.key_by("k").window("two", BatchWindow(seconds(2))).rows().select("k", "v", "'a' AS side")
    three = b.key_by("k").window("three", BatchWindow(seconds(3))).rows().select("k", "v", "'b' AS side")
    joined = two.union(three).key_by("k").window("joined", BatchWindow(seconds(1)))
    joined.apply(pairs, output="k string, a int, b int").write("pairs", MemorySink())
    counts = a.window("count", BatchWindow(seconds(2), slide=seconds(2))).count()
    counts.write("counts", MemorySink())
    total = counts.window("total", BatchWindow(seconds(4), slide=seconds(4)))
    total.aggregate(n=agg.count(), total=agg.sum("`count`")).write("totals", MemorySink())
    states = a.key_by("k").map_with_state(
        "states", counted, state="n int", output="k string, n int", initial=initial, timeout=idle(seconds(2))
    )
    states.write("counted", MemorySink())
    given = [
        (rows(("x", 1)), rows(("x", 10))),
        (rows(("y", 2)), []),
        ([], rows(("y", 30))),
        (rows(("x", 4)), rows(("x", 40))),
        *[([], [])] * 4,
    ]
    made = []
    with Harness(job, tmp_path, zero=0) as h:
        for place, (left, right) in enumerate(given, 1):
            if place == 4:
                h.restart()
            out = h.batch({"a": left, "b": right}, at=place, follow=False)
            made.append({name: sorted(plain(of)) for name, of in out.items() if of})
    assert [batch.get("pairs", []) for batch in made] == [
        [("x", 1, 10)],
        [("x", 1, 10)],
        [("y", 2, 30)],
        [("x", 4, 40)],
        [("x", 4, 40)],
        [],
        [],
        [],
    ]
    assert [batch["counts"] for batch in made if "counts" in batch] == [
        [(0, 2, 2)],
        [(2, 4, 1)],
        [(4, 6, 0)],
        [(6, 8, 0)],
    ]
    assert [batch["totals"] for batch in made if "totals" in batch] == [[(0, 4, 2, 3)], [(4, 8, 2, 0)]]
    assert [batch.get("counted", []) for batch in made] == [
        [("x", 6)], [("y", 1)], [("z", -7)], [("x", 1 + 6)], [("y", -1)], [], [("x", -7)], [],
    ]  # fmt: skip


def alarm(time: datetime, key: str, row: Any, state: State) -> list[dict[str, Any]]:
    """Set two timers for a row, of which one is past already; each calls for another four seconds on, three at most."""
    if row is not None:
        state.update(left=3)
        for moment in (row["t"] + timedelta(seconds=2), row["t"] - timedelta(seconds=100)):
            state.set_timer(moment, clock=EVENT)
        return []
    (timer,) = state.fired_timers
    left = state.get()["left"]
    if left:
        state.update(left=left - 1)
        state.set_timer(timer.at + timedelta(seconds=4), clock=EVENT)
    return [{"k": key, "at": timer.at, "left": left}]


def shown(key: str, view: WindowView) -> list[dict[str, Any]]:
    """Return the values of the rows of a view, as Storm's bolts and Kafka's sliding windows have them."""
    parts = {name: getattr(view, name)["v"].to_pylist() for name in ("current", "new", "expired")}
    return [{"k": key, "end": view.end, **parts}]


def test_windows_slide_by_row_and_timers_set_timers(tmp_path: Path) -> None:
    """5.1 to 5.3, 5.6, 7.8: rows out of order fire at the highest time so far, a late one goes aside; past timers fire."""
    job = Job("by_row", partitions=2)
    source = job.source("rows", MemorySource(TIMED), event_time="t", max_out_of_order=seconds(0)).key_by("k")
    window = TupleWindow(seconds(4), time=Time.EVENT, late_to="old", unbounded=True)
    output = "k string, end timestamp, current array<int>, new array<int>, expired array<int>"
    source.window("sliding", window).apply(shown, output=output).write("windows", MemorySink())
    job.late("old").write("late", MemorySink())
    timers = source.map_with_state(
        "timers", alarm, state="left int", output="k string, at timestamp, left int", unbounded=True
    )
    timers.write("alarms", MemorySink())
    with Harness(job, tmp_path) as h:
        out = h.batch({"rows": rows(("a", 1, 101), ("a", 5, 105), ("b", 2, 102), ("a", 3, 103))}, watermark=110)
        windows = plain(out["windows"])
        assert [row for row in windows if row[0] == "a"] == [
            ("a", 101, [1], [1], []),
            ("a", 105, [5, 3], [5, 3], [1]),
            ("a", 105, [5, 3], [], []),
        ]
        assert [row for row in windows if row[0] == "b"] == [("b", 102, [2], [2], [])]
        alarms = plain(out["alarms"])
        assert [row[1:] for row in alarms if row[0] == "a"] == [
            (1, 3), (3, 2), (5, 1), (7, 0), (9, 0), (103, 0), (105, 0), (107, 0),
        ]  # fmt: skip
        assert [row[1:] for row in alarms if row[0] == "b"] == [(2, 3), (6, 2), (10, 1), (14, 0), (104, 0)]
        h.restart()
        out = h.batch({"rows": rows(("a", 9, 109), ("a", 12, 112), ("a", 11, 111))}, watermark=120)
        assert plain(out["windows"]) == [("a", 112, [12, 11], [12, 11], [5, 3]), ("a", 112, [12, 11], [], [])]
        assert [row["v"] for row in out["late"]] == [9]
        assert [row[1:] for row in plain(out["alarms"])] == [
            (9, 3), (11, 2), (12, 1), (13, 0), (15, 0), (16, 0), (111, 0), (113, 0), (114, 0),
        ]  # fmt: skip


def test_a_union_has_the_least_watermark_of_its_streams(tmp_path: Path) -> None:
    """2.1, 2.3, 2.6: multiple watermarks of Structured Streaming, with the policy `min`; each source has its own delay."""
    job = Job("least", partitions=2)
    p = job.source("p", MemorySource(TIMED), event_time="t", max_out_of_order=seconds(2))
    q = job.source("q", MemorySource(TIMED), event_time="t", max_out_of_order=seconds(5))
    window = p.union(q).key_by("k").window("w", Tumbling(seconds(10)).late_to("old"))
    window.aggregate(total=agg.sum("v")).write("out", MemorySink())
    job.late("old").write("late", MemorySink())
    with Harness(job, tmp_path) as h:
        assert h.batch({"p": rows(("a", 1, 12))})["out"] == [], "q has had no row"
        assert h.batch({"q": rows(("a", 2, 3))})["out"] == [], "q is at -2"
        h.restart()
        assert h.batch({"q": rows(("a", 4, 14.999))})["out"] == [], "q is at 9.999"
        assert plain(h.batch({"q": rows(("a", 8, 16))})["out"]) == [("a", 0, 10, 2)], "p is at 10, q at 11"
        out = h.batch({"p": rows(("a", 16, 9.999), ("a", 32, 10))})
        assert plain(out["late"]) == [("a", 16, 9.999, 9.999, 10, "w")]
        assert plain(h.batch({"p": rows(("a", 64, 40)), "q": rows(("a", 128, 40))})["out"]) == [
            ("a", 10, 20, 1 + 4 + 8 + 32)
        ]
