"""Time windows through the whole engine: watermarks, lateness, accounting (SEMANTICS 1 to 3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_jobs import ORDERS, order, plain, windowed_job

from penstock import Job, agg, count, seconds
from penstock.errors import JobError, StateTooLarge
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import LatenessRule, Sliding, Time, Tumbling, TupleWindow

pytestmark = pytest.mark.sample(3, of="windows")


def test_a_window_closes_when_the_watermark_reaches_its_end(tmp_path: Path) -> None:
    """SEMANTICS 2.2, 2.5: the watermark of a batch counts from the next one on, which follows at once."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late(), bound=seconds(5)), tmp_path) as h:
        assert h.batch({"orders": [order("a", 1, 2), order("b", 9.5, 3)]}) == {"out": []}
        assert h.batch({"orders": [order("a", 14.9)]}) == {"out": []}
        output = h.batch({"orders": [order("a", 15)]})
        assert plain(output["out"]) == [("a", 0.0, 10.0, 1, 2), ("b", 0.0, 10.0, 1, 3)]
        assert h.commit().batch == 3, "the third batch of rows, then one without rows that closes"


def test_without_follow_only_the_asked_batch_runs(tmp_path: Path) -> None:
    """API, test kit: follow=False runs the batch and leaves what became due to the next one."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        assert h.batch({"orders": [order("a", 25)]}, follow=False) == {"out": []}
        h.batch({"orders": [order("a", 47)]}, follow=False)
        output = h.batch({"orders": [order("a", 48)]}, follow=False)
        assert plain(output["out"]) == [("a", 20.0, 30.0, 1, 1)]


def test_late_rows_are_handed_over_and_partly_late_ones_counted(tmp_path: Path) -> None:
    """SEMANTICS 2.5, 2.6, 2.10: a row is late only if all of its windows are closed."""
    spec = Sliding(seconds(10), every=seconds(5)).late_to("late")
    with Harness(windowed_job(spec), tmp_path) as h:
        h.batch({"orders": [order("a", 1), order("a", 12)]})
        output = h.batch({"orders": [order("b", 1, 7), order("c", 6, 8)]})
        assert plain(h.late("late")) == [("b", 1.0, 7, 1.0, 12.0, "w")]
        counts = h.commit().accounting["window:w"]
        assert counts == {"rows": 2, "counted": 1, "late": 1, "partly_late": 1, "in_no_window": 0, "merged": 1}
        assert output == {"out": []}
        closed = h.batch(watermark=15)
        assert plain(closed["out"]) == [("a", 5.0, 15.0, 1, 1), ("c", 5.0, 15.0, 1, 8)]


def test_the_watermark_rule_is_stricter(tmp_path: Path) -> None:
    """SEMANTICS 2.3: under LatenessRule.WATERMARK a row older than the watermark is late whatever its windows."""
    spec = Tumbling(seconds(100)).late_to("late").lateness_rule(LatenessRule.WATERMARK)
    with Harness(windowed_job(spec), tmp_path) as h:
        h.batch({"orders": [order("a", 50)]})
        h.batch({"orders": [order("a", 49.999999), order("a", 50)]})
        assert [row["t"].timestamp() for row in h.late("late")] == [49.999999]


def test_windows_start_before_1970_and_at_an_offset(tmp_path: Path) -> None:
    """SEMANTICS 3: starts are congruent to the offset, negative ones included."""
    spec = Sliding(seconds(4), every=seconds(3), offset=seconds(1)).drop_late()
    with Harness(windowed_job(spec), tmp_path) as h:
        output = h.batch({"orders": [order("a", -1), order("a", 1.5), order("z", 100)]})
        assert plain(output["out"]) == [("a", -2.0, 2.0, 2, 2), ("a", 1.0, 5.0, 1, 1)]


def test_rows_between_windows_are_in_none(tmp_path: Path) -> None:
    """SEMANTICS 3, 2.10: with every > size, rows in the gaps count as in no window."""
    with Harness(windowed_job(Sliding(seconds(2), every=seconds(5)).drop_late()), tmp_path) as h:
        output = h.batch({"orders": [order("a", 1), order("a", 3), order("z", 30)]})
        assert plain(output["out"]) == [("a", 0.0, 2.0, 1, 1)]


def test_null_keys_are_a_key_of_their_own(tmp_path: Path) -> None:
    """SEMANTICS 3.4."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        output = h.batch({"orders": [order(None, 1), order("a", 2), order(None, 3, None), order("z", 30)]})
        assert sorted(plain(output["out"]), key=str) == [("a", 0.0, 10.0, 1, 1), (None, 0.0, 10.0, 2, 1)]


def test_a_partition_never_read_holds_the_watermark_until_it_is_idle(tmp_path: Path) -> None:
    """SEMANTICS 2.1, 2.4: the minimum over the partitions that are not idle, by batch time (F46)."""
    job = windowed_job(Tumbling(seconds(10)).drop_late(), idle_after=seconds(3))
    with Harness(job, tmp_path) as h:
        assert h.batch({"orders": [[order("a", 1)], []]}) == {"out": []}
        assert h.batch({"orders": [[order("a", 55)], []]}, follow=False) == {"out": []}
        assert h.commit().watermarks_out == {"w": None}
        output = h.batch({"orders": [[order("a", 56)], []]}, at=5)
        assert plain(output["out"]) == [("a", 0.0, 10.0, 1, 1)]


@pytest.mark.fault("F43", "F44")
def test_rows_without_or_with_impossible_event_time_go_to_quarantine(tmp_path: Path) -> None:
    """SEMANTICS 2.7, 2.9: counted, and they do not move the watermark."""
    job = Job("bounded", partitions=1)
    orders = job.source(
        "orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0), max_future=seconds(60)
    )
    orders.window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    job.quarantine("orders").write("bad", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [order("a", 1), order("b", None), order("c", 1000), {"user": "d", "x": 1}]})
        assert [(r["_reason"], r["_position"]) for r in output["bad"]] == [
            ("null event time", 1),
            ("too far in the future", 2),
            ("unknown column 'x'", 3),
        ]
        assert h.commit().watermarks_out == {"w": 1_000_000}
        assert h.commit().accounting["source:orders"] == {"read": 4, "quarantined": 3, "passed": 1}


def test_filters_count_and_guard_the_expressions_behind_them(tmp_path: Path) -> None:
    """SEMANTICS 2.10: in = kept + filtered; an expression behind a filter never sees what was filtered."""
    job = Job("filtered", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    kept = orders.filter("v <> 0").with_columns(inverse="10 div v").filter("inverse > 1").select("user", "inverse AS i")
    kept.write("plain", MemorySink())
    kept.window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.sum("i")).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch(
            {"orders": [order("a", 1, 0), order("b", 2, 5), order("c", 3, 100), order("z", 11, None)]}, follow=False
        )
        assert output["plain"] == [{"user": "b", "i": 2}]
        counts = h.commit().accounting
        assert counts["filter:filter_1"] == {"rows": 4, "kept": 2, "filtered": 2}
        assert counts["filter:filter_2"] == {"rows": 2, "kept": 1, "filtered": 1}
        assert h.commit().watermarks_out == {"w": 11_000_000}, "a filtered row moves the watermark all the same"
        h.batch(None)
        assert plain(h.output()["out"]) == [(0.0, 10.0, 2)]


def test_a_union_takes_the_earliest_watermark_of_its_sources(tmp_path: Path) -> None:
    """SEMANTICS 2.1: per step the minimum over the sources upstream of it."""
    job = Job("joined", partitions=1)
    first = job.source("one", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    two = job.source("two", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    first.union(two).key_by("user").window("w", Tumbling(seconds(10)).drop_late()).aggregate(
        n=agg.count(), first=agg.first("v"), last=agg.last("v")
    ).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        assert h.batch({"one": [order("a", 1, 1), order("a", 50, 2)], "two": [order("a", 1, 3)]}) == {"out": []}
        output = h.batch({"two": [order("a", 1, 4), order("a", 12, 5)]})
        assert plain(output["out"]) == [("a", 0.0, 10.0, 3, 1, 4)], "ties by arrival: batch, source, position (1.6)"


def test_a_chained_step_judges_by_the_watermark_before_and_closes_by_this_one(tmp_path: Path) -> None:
    """SEMANTICS 2.1: the output of [s, e) has event time e - 1 us, and is not late for the step behind."""
    job = Job("chained", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    small = orders.key_by("user").window("small", Tumbling(seconds(5)).drop_late()).aggregate(n=agg.count())
    big = small.filter("n > 0").window("big", Tumbling(seconds(10)).drop_late())
    big.aggregate(windows=agg.count(), rows=agg.sum("n")).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [order("a", 1), order("b", 2), order("a", 7), order("z", 20)]})
        assert plain(output["out"]) == [(0.0, 10.0, 3, 3)]
        assert h.commit().accounting["window:big"]["late"] == 0


def test_a_state_is_shown_by_slice(tmp_path: Path) -> None:
    """API, test kit: for windows keys, slice_start and the partials."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 4), order("a", 2, 5)]})
        (row,) = h.state("w")
        assert (row["user"], row["slice_start"].timestamp(), row["_rows"]) == ("a", 0.0, 2)


def test_rows_come_in_the_order_of_their_source_whichever_way_they_took(tmp_path: Path) -> None:
    """SEMANTICS 1.6: two branches of one source do not change the order of its rows; first and last tell."""
    job = Job("order", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    both = orders.filter("v % 2 = 0").union(orders.filter("v % 2 = 1"))
    window = both.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
    window.aggregate(first=agg.first("v"), last=agg.last("v")).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1, 1), order("a", 1, 2), order("b", 1, 2), order("b", 1, 3)]})
        output = h.batch(watermark=10)
    assert plain(output["out"]) == [("a", 0.0, 10.0, 1, 2), ("b", 0.0, 10.0, 2, 3)]


def test_a_stream_united_with_itself_has_each_row_twice(tmp_path: Path) -> None:
    """As in Spark's union, in windows and in sinks."""
    job = Job("twice", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    twice = orders.union(orders)
    twice.write("rows", MemorySink())
    twice.window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        assert len(h.batch({"orders": [order("a", 1)]})["rows"]) == 2
        assert plain(h.batch(watermark=10)["out"]) == [(0.0, 10.0, 2)]


def test_filters_before_a_transform_are_counted(tmp_path: Path) -> None:
    """SEMANTICS 2.10: also where another branch of the source has no transform."""
    job = Job("counted", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    orders.write("raw", MemorySink())
    orders.filter("v > 1").transform("same", lambda df: df).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [order("a", 1, 1), order("a", 1, 2), order("b", 1, 3)]})
        counted = [c for name, c in h.commit().accounting.items() if name.startswith("filter:")]
    assert (len(output["raw"]), len(output["out"])) == (3, 2)
    assert counted == [{"rows": 3, "kept": 2, "filtered": 1}]


def test_a_step_stops_at_the_most_it_may_keep(tmp_path: Path) -> None:
    """F60: nothing of the batch is committed, and the error says how much and what to raise."""
    job = windowed_job(Tumbling(seconds(1_000)).drop_late())
    with Harness(job, tmp_path, settings=DriverSettings(caps={"w": 20_000})) as h:
        h.batch({"orders": [order("a", 1)]})
        with pytest.raises(StateTooLarge, match=r"step 'w' has .* bytes, above its cap of 20,000"):
            h.batch({"orders": [order(f"user {n}", 2) for n in range(2_000)]})
        assert h.commit().batch == 0


def test_a_function_over_counts_each_duration_stops_at_the_most_it_may_keep(tmp_path: Path) -> None:
    """F60, 5.2: the rows of an open slide are all kept, for `expired`; `state` of the limits is their bound."""
    job = Job("counts", partitions=1)
    rows = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    window = TupleWindow(count(3), seconds(1_000), time=Time.EVENT, unbounded=True)
    rows.key_by("user").window("w", window).apply(lambda key, view: None, output="n long").write("out", MemorySink())
    with Harness(job, tmp_path, settings=DriverSettings(caps={"w": 20_000})) as h:
        h.batch({"orders": [order("a", 1)]})
        with pytest.raises(StateTooLarge, match=r"step 'w' has .* bytes, above its cap of 20,000"):
            h.batch({"orders": [order("a", 2 + n % 900) for n in range(5_000)]})
        assert h.commit().batch == 0


@pytest.mark.parametrize("key", ["_hash", "_group", "_deleted"])
def test_a_key_that_the_state_has_a_column_for_is_refused_before_anything_is_written(tmp_path: Path, key: str) -> None:
    """At the line of the window."""
    job = Job("taken", partitions=1)
    schema = f"{key} string, t timestamp"
    orders = job.source("orders", MemorySource(schema), event_time="t", max_out_of_order=seconds(0))
    window = orders.key_by(key).window("w", Tumbling(seconds(10)).drop_late())
    window.aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(JobError, match=f"{key}.*test_windows.py"), Harness(job, tmp_path / "root"):
        pass
    assert not (tmp_path / "root").exists()
