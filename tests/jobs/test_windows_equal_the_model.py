"""Whole jobs on random rows give what a plain-Python model gives, however the rows are cut into batches."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Job, agg, seconds
from penstock.graph.windows import TimeWindow
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.testing.model import WindowModel
from penstock.windows import Cumulative, Sliding, Tumbling

SCHEMA = "k string, t timestamp, i int, d double, m decimal(10,2)"
WINDOWS: dict[str, TimeWindow] = {
    "tumbling": Tumbling(seconds(10)).late_to("late_tumbling"),
    "subtracting": Sliding(seconds(12), every=seconds(2)).late_to("late_subtracting"),
    "growing": Cumulative(seconds(12), step=seconds(2)).late_to("late_growing"),
    "stacking": Sliding(seconds(11), every=seconds(2)).late_to("late_stacking"),
}
AGGREGATES = {
    "tumbling": {"n": agg.count(), "first": agg.first("i"), "last": agg.last("i"), "low": agg.min("d")},
    "subtracting": {"n": agg.count("i"), "total": agg.sum("i"), "exact": agg.sum("m")},
    "growing": {"n": agg.count(), "total": agg.sum("d"), "last": agg.last("i")},
    "stacking": {
        "total": agg.sum("d"),
        "mean": agg.mean("d"),
        "high": agg.max("d"),
        "low": agg.min("m"),
        "spread": agg.stddev_samp("i"),
    },
}
BOUND = seconds(3)

rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "t": st.integers(-20, 60).map(float),
        "i": st.none() | st.integers(-5, 5),
        "d": st.none() | st.sampled_from([0.5, -2.25, 1e17, 1.0, math.nan, math.inf, -math.inf]),
        "m": st.none() | st.integers(-1000, 1000).map(lambda n: Decimal(n).scaleb(-2)),
    }
)
batches = st.lists(st.lists(rows, min_size=4, max_size=24) | st.just([]), min_size=2, max_size=3)


def job_with(windows: dict[str, TimeWindow]) -> Job:
    job = Job("model", partitions=2)
    source = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=BOUND)
    for name, spec in windows.items():
        source.key_by("k").window(name, spec).aggregate(**AGGREGATES[name]).write(f"out_{name}", MemorySink())
    return job


def micros(row: dict[str, Any]) -> int:
    return round(row["t"] * 1_000_000)


def run_model(name: str, given_batches: list[list[dict[str, Any]]]) -> tuple[list[Any], list[Any]]:
    """Return the windows and the late rows, with the watermarks of SEMANTICS 2.1 and 2.2."""
    model = WindowModel(WINDOWS[name], ("k",), AGGREGATES[name], micros)
    mark: int | None = None
    highest: int | None = None
    windows: list[Any] = []
    late: list[Any] = []
    for batch in given_batches:
        for part in (batch, []):  # a batch without rows follows where one closes something
            outcome = model.batch(part, late=mark, close=mark)
            windows += outcome.windows
            late += outcome.late
            times = [micros(row) for row in part]
            highest = max([*times, highest] if highest is not None else times, default=None)
            mark = mark if highest is None else max(mark or -(2**62), highest - BOUND.micros)
    return windows, late


def assert_equal(name: str, expected: list[Any], actual: list[dict[str, Any]]) -> None:
    by_place = {(w.start, w.end, w.key[0]): w for w in expected}
    assert len(actual) == len(by_place), f"{name}: {len(actual)} rows and {len(by_place)} are right"
    for row in actual:
        start, end = (round(row[c].timestamp() * 1e6) for c in ("window_start", "window_end"))
        window = by_place[start, end, row["k"]]
        for column, value in window.results.items():
            assert value.matches(row[column]), f"{name} [{start}, {end}) {row['k']}: {column} {row[column]} not {value}"


def as_fed(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as it was fed, whatever was added to it since; NaN is itself."""
    moment = row["t"].timestamp() if isinstance(row["t"], datetime) else row["t"]
    return (repr(moment), *(repr(row[name]) for name in ("k", "i", "d", "m")))


@pytest.mark.slow
@pytest.mark.fault("F43")
@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.soak)], ids=["few", "many"])
def test_windows_equal_the_model(examples: int) -> None:
    """SEMANTICS 2 and 3, 10.5: windows, late rows and every aggregate, also across a crash (F01).

    NaN, infinities and 1e17 next to 1 enter and leave sliding windows and must leave no trace (3.3).
    """
    crashes = st.sampled_from([None, "Compute", "CommitBatch", "FixOffsets"])
    given_all = given(given_batches=batches, crash=crashes)(one_run)
    settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])(given_all)()


def one_run(given_batches: list[list[dict[str, Any]]], crash: str | None) -> None:
    """Run the batches, the last one perhaps with a crash, and compare."""
    with tempfile.TemporaryDirectory() as root, Harness(job_with(WINDOWS), root) as h:
        for number, batch in enumerate(given_batches):
            if crash is not None and number == len(given_batches) - 1:
                h.crash_after(crash)
            try:
                h.batch({"rows": batch})
            except Crashed:
                h.restart()
        for name in WINDOWS:
            windows, late = run_model(name, given_batches)
            assert_equal(name, windows, h.output()[f"out_{name}"])
            assert Counter(map(as_fed, h.late(f"late_{name}"))) == Counter(map(as_fed, late))
