"""What a global window takes, and which are refused when the graph is built (SEMANTICS 6, 7.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Job, agg, count, hours, seconds
from penstock.errors import DuplicateName, JobError, MissingSink, UnboundedWindow
from penstock.evictors import KeepDelta, KeepLast, KeepNewest
from penstock.graph.job import Stream
from penstock.graph.steps import StepNode
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import event_time, idle
from penstock.triggers import AfterAny, AfterCount, AfterDelta, AfterEach, AfterEventTime, AtEnd, Every, Never, Purging
from penstock.windows import GlobalWindow

EACH = Every(count(3))


def stream(*, event: bool = False) -> tuple[Job, Stream]:
    """Return a job and its source."""
    job = Job("counted", partitions=2)
    timed: dict[str, Any] = {"event_time": "t", "max_out_of_order": seconds(0)} if event else {}
    return job, job.source("rows", MemorySource("k string, v double, t timestamp"), **timed)


def windowed(window: GlobalWindow) -> Any:
    """Return the windows of a job."""
    return stream()[1].key_by("k").window("w", window)


def nothing(key: object, view: object) -> None:
    """Return no rows."""


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(GlobalWindow().trigger(EACH), id="rows stay after a firing"),
        pytest.param(GlobalWindow().trigger(EACH).evict(KeepDelta("v", 1)), id="KeepDelta bounds nothing"),
    ],
)
@pytest.mark.remedy("PEN-JOB-028")
def test_rows_that_nothing_bounds_are_refused(window: GlobalWindow) -> None:
    """7.7: what the remedy names is accepted: Purging, KeepLast, a ttl, and unbounded=True."""
    with pytest.raises(UnboundedWindow) as refused:
        windowed(window).apply(nothing, output="n long")
    assert __file__ in str(refused.value)
    windowed(GlobalWindow().trigger(Purging(EACH))).apply(nothing, output="n long")
    windowed(GlobalWindow().trigger(EACH).evict(KeepLast(3))).apply(nothing, output="n long")
    windowed(GlobalWindow(ttl=hours(1)).trigger(EACH)).apply(nothing, output="n long")
    windowed(GlobalWindow(unbounded=True).trigger(EACH)).apply(nothing, output="n long")


def test_aggregates_without_an_evictor_need_no_bound() -> None:
    """7.7: their state is one row of partials a key, which explain says; with an evictor the rows are there again."""
    for trigger, stays in ((EACH, "for ever"), (Purging(EACH), "until the window is purged")):
        node = windowed(GlobalWindow().trigger(trigger)).aggregate(n=agg.count())._node
        assert isinstance(node, StepNode)
        assert f"one row of partials a key, kept {stays};" in node.spec.words(node, "by k")
    with pytest.raises(UnboundedWindow):
        windowed(GlobalWindow().trigger(EACH).evict(KeepDelta("v", 1))).aggregate(n=agg.count())


@pytest.mark.parametrize("trigger", [Never(), AtEnd(), Purging(Never()), AfterEach(AtEnd(), EACH)], ids=str)
@pytest.mark.remedy("PEN-JOB-028")
def test_a_trigger_that_never_fires_is_refused(trigger: Any) -> None:
    """AtEnd does not fire while rows come: a ttl bounds the state, unbounded=True means it, and so does a firing part.

    Neither Purging nor an evictor helps where nothing fires, and the remedy says so.
    """
    for window in (GlobalWindow(), GlobalWindow().evict(KeepLast(3))):
        with pytest.raises(UnboundedWindow, match="never fires") as refused:
            windowed(window.trigger(trigger))
        assert "With a trigger that fires" in str(refused.value)
    for window in (GlobalWindow(unbounded=True), GlobalWindow(ttl=hours(1))):
        windowed(window.trigger(trigger)).aggregate(n=agg.count())
        windowed(window.trigger(trigger)).apply(nothing, output="k string")
    windowed(GlobalWindow().trigger(Purging(AfterAny(trigger, EACH)))).apply(nothing, output="k string")


def test_a_ttl_is_a_duration_or_idle() -> None:
    """As with windows of rows and with state functions; a deadline of event time is none."""
    assert GlobalWindow(ttl=idle(hours(1))) == GlobalWindow(ttl=hours(1))
    with pytest.raises(JobError, match=r"ttl= of GlobalWindow is a time without rows: write idle"):
        GlobalWindow(ttl=event_time())


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: windowed(GlobalWindow()), id="no trigger"),
        pytest.param(lambda: GlobalWindow(ttl=5), id="an int as a ttl"),
        pytest.param(lambda: GlobalWindow(ttl=seconds(0)), id="a ttl of 0"),
        pytest.param(lambda: GlobalWindow().trigger(EACH).trigger(EACH), id="two triggers"),
        pytest.param(lambda: GlobalWindow().evict(KeepLast(1)).evict(KeepLast(1)), id="two evictors"),
        pytest.param(lambda: GlobalWindow().trigger(3), id="a number as a trigger"),
        pytest.param(lambda: GlobalWindow().evict(EACH), id="a trigger as an evictor"),
        pytest.param(lambda: windowed(GlobalWindow().trigger(EACH)).aggregate(), id="no aggregate"),
        pytest.param(lambda: windowed(GlobalWindow().trigger(EACH)).aggregate(n=3), id="a number as an aggregate"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_users_line(wrong: Callable[[], object]) -> None:
    """When the job is built, not when it starts."""
    with pytest.raises(JobError) as refused:
        wrong()
    assert __file__ in str(refused.value)


def test_an_aggregate_may_not_have_the_name_of_a_key() -> None:
    """`window_start` is free: a global window has no bounds."""
    with pytest.raises(DuplicateName):
        windowed(GlobalWindow().trigger(EACH)).aggregate(k=agg.count())
    windowed(GlobalWindow().trigger(EACH)).aggregate(window_start=agg.count())


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(GlobalWindow().trigger(AfterEventTime(seconds(1))), id="a trigger"),
        pytest.param(GlobalWindow().trigger(EACH).evict(KeepNewest(seconds(1))), id="an evictor"),
    ],
)
def test_event_time_is_needed_where_it_is_used(window: GlobalWindow) -> None:
    """A stream without event time may be counted."""
    job, rows = stream()
    rows.key_by("k").window("w", window).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(JobError, match="event time"):
        job.graph()
    job, rows = stream()
    rows.key_by("k").window("w", GlobalWindow().trigger(EACH)).aggregate(n=agg.count()).write("out", MemorySink())
    job.graph()


def test_late_rows_need_a_sink() -> None:
    """Those that come after the trigger has finished, where they are named."""
    job, rows = stream()
    window = GlobalWindow().trigger(AfterCount(3)).late_to("after")
    rows.key_by("k").window("w", window).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(MissingSink, match="after"):
        job.graph()
    job.late("after").write("late", MemorySink())
    job.graph()


def test_explain_says_when_it_fires_and_what_bounds_it() -> None:
    """The trigger, the evictor, the keys, and what is kept."""
    job, rows = stream(event=True)
    keyed = rows.key_by("k")
    bounded = GlobalWindow().trigger(Every(seconds(5))).evict(KeepLast(3))
    keyed.window("a", bounded).apply(nothing, output="n long").write("one", MemorySink())
    keyed.window("b", GlobalWindow(ttl=hours(1)).trigger(AfterDelta("v", 2))).aggregate(n=agg.count()).write(
        "two", MemorySink()
    )
    text = "\n".join(text for part in explain_graph(job.graph()) for row in part.rows for text in row)
    assert "window a: global, Every(5 s), KeepLast(3), by k" in text
    assert "rows kept until they are purged or evicted; nothing" in text
    assert "window b: global, AfterDelta('v', 2), by k" in text
    assert "forgotten after 1 h without a row; n = count()" in text
