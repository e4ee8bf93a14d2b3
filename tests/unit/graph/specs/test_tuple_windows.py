"""Windows of counts and durations in a graph: what is refused, and what `explain` says (SEMANTICS 5.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Job, agg, count, hours, seconds
from penstock.errors import DuplicateName, JobError, MissingSink, NoEventTime, UnboundedState
from penstock.graph.job import Stream
from penstock.graph.timeouts import event_time, idle
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Time, Tumbling, TupleWindow


def rows_of(job: Job, *, timed: bool = True) -> Stream:
    """Return the rows of a source."""
    source = MemorySource("k string, v int, t timestamp")
    return (
        job.source("rows", source, event_time="t", max_out_of_order=seconds(0)) if timed else job.source("rows", source)
    )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: TupleWindow(3), "has no unit"),  # type: ignore[arg-type]
        (lambda: TupleWindow(seconds(0)), "too short"),
        (lambda: TupleWindow(count(2), seconds(0)), "too short"),
        (lambda: TupleWindow(count(0)), "from 1 on"),
        (lambda: TupleWindow(count(2), time="event"), r"Time\.EVENT"),  # type: ignore[arg-type]
        (lambda: TupleWindow(count(2), lag=seconds(1)), "for time=Time.EVENT"),
        (lambda: TupleWindow(count(2), late_to="late"), "for time=Time.EVENT"),
        (lambda: TupleWindow(count(2), ttl=event_time()), "idle"),
        (lambda: TupleWindow(count(2), ttl=hours(1), unbounded=True), "only without ttl"),
    ],
    ids=["bare", "length", "slide", "count", "time", "lag", "late_to", "deadline", "both"],
)
def test_unfit_windows_are_refused(make: Callable[[], Any], match: str) -> None:
    """5.7: when they are built."""
    with pytest.raises(JobError, match=match):
        make()


def test_keys_need_a_bound_and_a_whole_stream_needs_none() -> None:
    """5.7, 7.7: a TTL, or `unbounded=True`."""
    rows = rows_of(Job("job"))
    for window in (TupleWindow(count(3)), TupleWindow.tumbling(seconds(3))):
        with pytest.raises(UnboundedState, match="'w'"):
            rows.key_by("k").window("w", window)
    for number, bound in enumerate(({"ttl": idle(hours(1))}, {"ttl": hours(1)}, {"unbounded": True})):
        rows.key_by("k").window(f"w{number}", TupleWindow(count(3), **bound)).aggregate(n=agg.count())
    rows.window("whole", TupleWindow(count(3))).aggregate(n=agg.count())


def test_what_is_computed_must_fit() -> None:
    """Aggregates have names of their own, and a function is one."""
    windows = rows_of(Job("job")).key_by("k").window("w", TupleWindow(count(3), unbounded=True))
    with pytest.raises(JobError, match="at least one aggregate"):
        windows.aggregate()
    with pytest.raises(DuplicateName, match="window_end"):
        windows.aggregate(window_end=agg.count())
    with pytest.raises(JobError, match="needs an aggregate"):
        windows.aggregate(n=3)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="needs a function"):
        windows.apply(3, output="n int")


def test_windows_of_event_time_need_it_and_their_late_rows_a_sink() -> None:
    """5.5, 5.6: and processing time needs none."""
    for time, error in ((Time.PROCESSING, None), (Time.EVENT, JobError)):
        job = Job("job")
        rows_of(job, timed=False).window("w", TupleWindow(count(3), time=time)).aggregate(n=agg.count()).write(
            "out", MemorySink()
        )
        if error is None:
            job.graph()
        else:
            with pytest.raises(error, match="needs event time"):
                job.graph()
    job = Job("job")
    window = TupleWindow(count(3), time=Time.EVENT, late_to="old")
    rows_of(job).window("w", window).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(MissingSink, match="'old'"):
        job.graph()


def test_windows_of_batch_time_have_no_event_time_for_others() -> None:
    """2.1: a window of event time behind them is refused."""
    job = Job("job")
    counted = rows_of(job).window("w", TupleWindow(count(3))).aggregate(n=agg.count())
    counted.window("minutes", Tumbling(seconds(60)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(NoEventTime, match="'w'"):
        job.graph()


def test_explain_says_what_bounds_the_state() -> None:
    """7.7: and how windows are made, and what becomes of late rows."""
    job = Job("job", partitions=2)
    rows = rows_of(job)
    event = TupleWindow(seconds(10), count(5), time=Time.EVENT, lag=seconds(5), ttl=hours(1))
    rows.key_by("k").window("timed", event).aggregate(n=agg.count()).write("out", MemorySink())
    rows.window("whole", TupleWindow.tumbling(count(3))).apply(str, output="n int").write("other", MemorySink())
    text = str(explain_graph(job.graph()))
    assert "window timed: 10 s, every 5 rows, event time" in text
    assert "with a lag of 5 s, late rows dropped and counted; keys forgotten after 1 h without a row" in text
    assert "window whole: 3 rows, tumbling, processing time" in text
    assert "rows forgotten with their windows; str" in text
