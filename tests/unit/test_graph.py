"""Jobs are checked when they are built, and every error names the user's line (issue 3, item 2; F61)."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from penstock import Job, agg, minutes, seconds
from penstock.errors import (
    BadExpression,
    BadName,
    DuplicateName,
    JobError,
    MissingLatePolicy,
    MissingSink,
    PenstockError,
    UnknownName,
)
from penstock.graph.job import Stream
from penstock.graph.policies import OnFail
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Sliding, Tumbling

TUMBLING = Tumbling(seconds(10)).drop_late()


def timed(job: Job, name: str = "orders") -> Stream:
    return job.source(name, MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(1))


def test_an_error_names_the_line_of_the_user() -> None:
    """Each step keeps its file and line; so does what is wrong with it."""
    job = Job("a")
    with pytest.raises(BadName) as caught:
        job.late("../../etc")
    frame = inspect.currentframe()
    assert frame is not None
    assert caught.value.where == f"{__file__}:{frame.f_lineno - 3}"


@pytest.mark.fault("F61")
@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a/b", "..", "a b", "a" * 64, None, 5, "naïve", "a\n"])
def test_names_are_plain(name: object) -> None:
    """DESIGN 3: names match [a-z][a-z0-9_]{0,62}, because state and offsets are stored under them."""
    with pytest.raises(BadName):
        Job(name)  # type: ignore[arg-type]


def test_a_name_is_used_once() -> None:
    """DESIGN 3: a duplicate is refused when the graph is built, with the place of the first."""
    job = Job("a")
    timed(job)
    with pytest.raises(DuplicateName, match="test_graph.py"):
        timed(job)


def wrong_jobs() -> dict[str, tuple[type[PenstockError], Callable[[Job], object]]]:
    keyed = ("k",)
    return {
        "a bare int for a duration": (JobError, lambda _: Tumbling(10)),  # type: ignore[arg-type]
        "a size of zero": (JobError, lambda _: Tumbling(seconds(0))),
        "a slide below zero": (JobError, lambda _: Sliding(seconds(5), every=seconds(-1))),
        "an offset without unit": (JobError, lambda _: Tumbling(seconds(5), offset=3)),
        "half a microsecond": (JobError, lambda _: seconds(0.0000005)),
        "an interval below a millisecond": (JobError, lambda _: Job("b", interval=seconds(0.0001))),
        "no late policy": (MissingLatePolicy, lambda j: timed(j).key_by(*keyed).window("w", Tumbling(seconds(1)))),
        "two late policies": (JobError, lambda _: TUMBLING.late_to("x")),
        "something else as a window": (JobError, lambda j: timed(j).key_by("k").window("w", seconds(5))),  # type: ignore[arg-type]
        "no aggregate": (JobError, lambda j: timed(j).key_by("k").window("w", TUMBLING).aggregate()),
        "something else as an aggregate": (
            JobError,
            lambda j: timed(j).key_by("k").window("w", TUMBLING).aggregate(n="count"),  # type: ignore[arg-type]
        ),
        "an aggregate named as a key": (
            DuplicateName,
            lambda j: timed(j).key_by("k").window("w", TUMBLING).aggregate(k=agg.count()),
        ),
        "an aggregate of nothing": (JobError, lambda _: agg.sum("")),
        "no key": (JobError, lambda j: timed(j).key_by()),
        "an expression as a key": (JobError, lambda j: timed(j).key_by("upper(k)")),
        "a key twice": (DuplicateName, lambda j: timed(j).key_by("k", "k")),
        "an empty filter": (BadExpression, lambda j: timed(j).filter("  ")),
        "a select of nothing": (JobError, lambda j: timed(j).select()),
        "with_columns of nothing": (JobError, lambda j: timed(j).with_columns()),
        "a transform that is no function": (JobError, lambda j: timed(j).transform("t", "df")),  # type: ignore[arg-type]
        "a union with another job": (JobError, lambda j: timed(j).union(timed(Job("b")))),
        "zero partitions": (JobError, lambda _: Job("b", partitions=0)),
        "partitions of a boolean": (JobError, lambda _: Job("b", partitions=True)),
        "event time without its bound": (
            JobError,
            lambda j: j.source("s", MemorySource("t timestamp"), event_time="t"),
        ),
        "idle_after without event time": (
            JobError,
            lambda j: j.source("s", MemorySource("t timestamp"), idle_after=seconds(1)),
        ),
        "a policy as text": (JobError, lambda j: timed(j).check("q", on_fail="warn")),  # type: ignore[arg-type]
        "dropping rows by a table rule": (
            JobError,
            lambda j: timed(j).check("q", on_fail=OnFail.WARN, on_table_fail=OnFail.DROP),
        ),
    }


@pytest.mark.parametrize("case", wrong_jobs())
def test_what_is_wrong_is_refused_when_it_is_written(case: str) -> None:
    """DESIGN 3, "Built": names, windows and policies."""
    expected, build = wrong_jobs()[case]
    with pytest.raises(expected) as caught:
        build(Job("a"))
    assert "test_graph.py" in str(caught.value)


def unfinished_jobs() -> dict[str, tuple[type[PenstockError], Callable[[Job], object]]]:
    def windowed(job: Job, spec: object = TUMBLING) -> Stream:
        return timed(job).key_by("k").window("w", spec).aggregate(n=agg.count())  # type: ignore[arg-type]

    def late_without_sink(job: Job) -> None:
        windowed(job, Tumbling(seconds(1)).late_to("late")).write("out", MemorySink())

    def quarantine_without_sink(job: Job) -> None:
        windowed(job).check("q", on_fail=OnFail.QUARANTINE).write("out", MemorySink())

    def check_without_sink(job: Job) -> None:
        stream = windowed(job)
        stream.write("out", MemorySink())
        stream.check("q", on_fail=OnFail.WARN)

    def window_without_time(job: Job) -> None:
        stream = job.source("s", MemorySource("k string"))
        stream.key_by("k").window("w", TUMBLING).aggregate(n=agg.count()).write("out", MemorySink())

    def unread_window(job: Job) -> None:
        windowed(job)
        timed(job, "other").write("out", MemorySink())

    def unknown_late(job: Job) -> None:
        windowed(job).write("out", MemorySink())
        job.late("nobody").write("late", MemorySink())

    def unknown_quarantine(job: Job) -> None:
        windowed(job).write("out", MemorySink())
        job.quarantine("nobody").write("bad", MemorySink())

    return {
        "no sink": (MissingSink, timed),
        "late rows without a sink": (MissingSink, late_without_sink),
        "a quarantine without a sink": (MissingSink, quarantine_without_sink),
        "a check that guards nothing": (MissingSink, check_without_sink),
        "a window without event time": (JobError, window_without_time),
        "a window nobody reads": (MissingSink, unread_window),
        "late rows of nobody": (UnknownName, unknown_late),
        "a quarantine of nobody": (UnknownName, unknown_quarantine),
    }


@pytest.mark.parametrize("case", unfinished_jobs())
def test_what_is_missing_is_named_when_the_job_is_finished(case: str) -> None:
    """DESIGN 3: the graph is checked as a whole before Spark sees it."""
    expected, build = unfinished_jobs()[case]
    job = Job("a")
    build(job)
    with pytest.raises(expected):
        job.graph()


def test_side_streams_are_found_whatever_the_order() -> None:
    """API: job.late(name) and job.quarantine(name) are streams like any other."""
    job = Job("a")
    job.late("late").filter("k is not null").write("late_out", MemorySink())
    stream = timed(job).key_by("k").window("w", Tumbling(minutes(1)).late_to("late")).aggregate(n=agg.count())
    stream.write("out", MemorySink())
    assert job.late("late")._node is job.late("late")._node
    graph = job.graph()
    (late_sink,) = (s for s in graph.sinks if s.name == "late_out")
    assert [s.name for s in graph.sources_of(late_sink)] == ["orders"]


def test_streams_do_not_change_when_they_are_used() -> None:
    """STYLE 2.1: each method returns a new stream; a branch leaves the other as it was."""
    job = Job("a")
    stream = timed(job)
    stream.filter("k = 'x'").write("one", MemorySink())
    stream.write("two", MemorySink())
    by_name = {s.name: s for s in job.graph().sinks}
    assert type(by_name["one"].parent).__name__ == "FilterNode"
    assert type(by_name["two"].parent).__name__ == "SourceNode"
