"""Sessions in the graph of a job: their gap, what they need, and how `explain` says them (SEMANTICS 3)."""

from __future__ import annotations

import pytest

from penstock import Job, agg, days, seconds
from penstock.errors import JobError, MissingLatePolicy, MissingSink
from penstock.graph.job import Stream
from penstock.graph.specs.session_windows import Session
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import late_to


def rows(job: Job) -> Stream:
    """Return a source with event time."""
    return job.source(
        "rows", MemorySource("k string, gap int, t timestamp"), event_time="t", max_out_of_order=seconds(0)
    )


@pytest.mark.parametrize("gap", [seconds(0), seconds(-1), 5, " ", None, days(100_000_000)], ids=repr)
def test_a_gap_that_is_none_is_refused(gap):
    """3: a gap has a unit, is above 0, and ends within time: 64 bits of microseconds."""
    with pytest.raises(JobError):
        Session(gap)


@pytest.mark.parametrize(("gap", "shown"), [(seconds(30), "30 s"), ("gap * 2", "gap * 2")], ids=str)
def test_explain_says_what_a_session_is(gap, shown):
    """DESIGN 3: gap, policy and aggregates in words."""
    job = Job("visits")
    rows(job).key_by("k").window("s", Session(gap).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    if isinstance(gap, str):
        job.quarantine("s").write("aside", MemorySink())
    text = str(explain_graph(job.graph()))
    assert f"window s: sessions with a gap of {shown}, by k" in text
    assert "late rows dropped and counted; n = count()" in text


def test_explain_says_how_late_rows_revise_a_session():
    """2.6: within which time, what a revision contains, and that the bounds may move."""
    revised = Session(seconds(1)).update_late(within=seconds(5), then=late_to("rest"))
    for window, panes in (
        (revised, "all rows of the session, whose bounds may move"),
        (revised.discarding(), "the late rows"),
    ):
        job = Job("visits")
        rows(job).key_by("k").window("s", window).aggregate(n=agg.count()).write("out", MemorySink())
        job.late("rest").write("late", MemorySink())
        text = str(explain_graph(job.graph()))
        assert f"revised within 5 s of the end by {panes}, rows that join none to rest; n = count()" in text


def test_a_session_with_one_pane_discards_none():
    """3.2: a pane has the rows since the one before, which are all rows of a session that is emitted once."""
    texts = []
    for window in (Session(seconds(1)).drop_late(), Session(seconds(1)).drop_late().discarding()):
        job = Job("visits")
        rows(job).key_by("k").window("s", window).aggregate(n=agg.count()).write("out", MemorySink())
        texts.append(str(explain_graph(job.graph())))
    assert texts[0] == texts[1]


def test_what_a_session_lacks_is_refused():
    """2.6, 3: it needs a policy, and a sink for rows without a gap; nothing else is a window."""
    job = Job("lacking")
    keyed = rows(job).key_by("k")
    with pytest.raises(MissingLatePolicy):
        keyed.window("s", Session(seconds(1)))
    with pytest.raises(JobError, match="needs a window such as"):
        keyed.window("s", "a session")
    keyed.window("s", Session("gap").drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(MissingSink, match="quarantine"):
        job.graph()
