"""Jobs are checked when they are built, and every error names the user's line (issue 3, item 2; F61)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock import Count, Duration, Job, agg, count, minutes, seconds
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
from penstock.graph.nodes import CheckNode, UnionNode
from penstock.graph.policies import OnEnd, OnFail
from penstock.sinks import Delta, MemorySink
from penstock.sinks.base import Sink
from penstock.sources import MemorySource
from penstock.sources.base import Source
from penstock.windows import Cumulative, LatenessRule, Sliding, Tumbling

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
    with pytest.raises(DuplicateName, match="test_job.py"):
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
        **{
            f"max_out_of_order={bound!r}": (JobError, bounded("max_out_of_order", bound))
            for bound in (0, False, 5, "5 s")
        },
        **{f"idle_after={bound!r}": (JobError, bounded("idle_after", bound)) for bound in (0, False, 5)},
        **{f"max_future={bound!r}": (JobError, bounded("max_future", bound)) for bound in (0, False, 5)},
        "a bound without event time": (JobError, lambda j: j.source("s", MemorySource("v int"), max_out_of_order=0)),  # type: ignore[arg-type]
        "an interval of zero": (JobError, lambda _: Job("b", interval=0)),  # type: ignore[arg-type]
        "an interval of False": (JobError, lambda _: Job("b", interval=False)),  # type: ignore[arg-type]
        "a cumulative size between two steps": (JobError, lambda _: Cumulative(seconds(5), step=seconds(2))),
        "a slide of zero": (JobError, lambda _: Sliding(seconds(5), every=0)),  # type: ignore[arg-type]
        "zero partitions of a window": (JobError, lambda j: timed(j).window("w", TUMBLING, partitions=0)),
        "partitions of False for a window": (JobError, lambda j: timed(j).window("w", TUMBLING, partitions=False)),
        **{
            f"lateness_rule({rule!r})": (JobError, ruled(rule))
            for rule in ("watermark", None, OnFail.WARN, LatenessRule)
        },
        **{
            f"agg.count({what!r})": (JobError, aggregated(what))
            for what in (5, 0, "", "  ", True, False, count(5), b"v")
        },
        **{f"count({rows!r})": (JobError, counted(rows)) for rows in (-1, 0, "x", True, False, None, 1.0, 2.5)},
        "a Count of nothing": (JobError, lambda _: Count(0)),
        "a Duration of a half": (JobError, lambda _: Duration(0.5)),  # type: ignore[arg-type]
        "a Duration of True": (JobError, lambda _: Duration(micros=True)),
        **{f"a source that is {case}": (JobError, sourced(what)) for case, what in no_ends().items()},
        **{f"a sink that is {case}": (JobError, written(what)) for case, what in no_ends().items()},
        "a sink as a source": (JobError, sourced(MemorySink())),
        "a source as a sink": (JobError, written(MemorySource("v int"))),
    }


def no_ends() -> dict[str, object]:
    """Return what may be taken for a source or a sink, and is neither."""
    return {
        "a text": "not a source",
        "a path": Path("orders.csv"),
        "rows": [{"v": 1}],
        "nothing": None,
        "a number": 5,
        "a function": lambda spark: None,
        "the class of sources": MemorySource,
        "the class of sinks": MemorySink,
        "a module": inspect,
        "a stream": timed(Job("b")),
    }


def bounded(setting: str, bound: object) -> Callable[[Job], object]:
    given = {"max_out_of_order": seconds(1), setting: bound}
    return lambda job: job.source("s", MemorySource("t timestamp"), event_time="t", **given)  # type: ignore[arg-type]


def ruled(rule: object) -> Callable[[Job], object]:
    return lambda _: TUMBLING.lateness_rule(rule)  # type: ignore[arg-type]


def aggregated(what: object) -> Callable[[Job], object]:
    return lambda _: agg.count(what)  # type: ignore[arg-type]


def counted(rows: object) -> Callable[[Job], object]:
    return lambda _: count(rows)  # type: ignore[arg-type]


def sourced(source: object) -> Callable[[Job], object]:
    return lambda job: job.source("s", source)


def written(sink: object) -> Callable[[Job], object]:
    return lambda job: timed(job).write("out", sink)


@pytest.mark.parametrize("case", wrong_jobs())
def test_what_is_wrong_is_refused_when_it_is_written(case: str) -> None:
    """DESIGN 3, "Built": names, windows and policies."""
    expected, build = wrong_jobs()[case]
    with pytest.raises(expected) as caught:
        build(Job("a"))
    assert "test_job.py" in str(caught.value)


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


def test_a_window_that_computes_nothing_is_refused_at_its_line() -> None:
    """DESIGN 3, "Built": what a job says and does not use is no silent loss, even where nothing else is missing."""
    job = Job("a")
    stream = timed(job)
    stream.write("out", MemorySink())
    job.graph()
    stream.key_by("k").window("idle", TUMBLING)
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno - 3
    with pytest.raises(JobError, match=r"'idle'.*\.aggregate\(") as caught:
        job.graph()
    assert caught.value.where == f"{__file__}:{line}"


def test_a_window_whose_aggregates_were_refused_may_be_written_again() -> None:
    """The error was shown where it was made; whoever builds a job in a notebook goes on from there."""
    job = Job("a")
    keyed = timed(job).key_by("k")
    with pytest.raises(DuplicateName):
        keyed.window("w", TUMBLING).aggregate(k=agg.count())
    keyed.window("w", TUMBLING).aggregate(n=agg.count()).write("out", MemorySink())
    assert [w.name for w in job.graph().steps] == ["w"]


def test_what_is_no_source_and_no_sink_is_told_where_to_find_them() -> None:
    """API, "Sources and sinks": the message names the module, and the class that was given in place of one of its objects."""
    job = Job("a")
    with pytest.raises(JobError, match=r"'orders'.*penstock\.sources.*'orders\.csv'"):
        job.source("orders", "orders.csv")
    with pytest.raises(JobError, match=r"'out'.*penstock\.sinks.*the class MemorySink"):
        timed(job).write("out", MemorySink)
    with pytest.raises(JobError, match=r"is a sink"):
        job.source("s", MemorySink())


def test_own_sources_and_sinks_subclass_the_bases(tmp_path: Path) -> None:
    """sources/base.py and sinks/base.py: what a source or sink does not say is inherited; nothing is asked by name."""

    class Ticks(Source):
        def open(self, spark):
            return None

    class Log(Sink):
        def open(self, staging, spark):
            return None

        def describe(self):
            return "a log"

    job = Job("a")
    stream = job.source("ticks", Ticks())
    job.source("stand_in", object()).write("nowhere", object())  # nothing to be seen: for graphs that never run
    stream.write("log", Log())
    stream.write("table", Delta(tmp_path / "table"))
    assert [s.name for s in job.graph().sinks] == ["nowhere", "log", "table"]
    assert (Ticks().live, Ticks().on_end, Log().deduplicates, Log().place()) == (True, OnEnd.KEEP_OPEN, False, None)
    with pytest.raises(JobError, match=r"subclass of penstock\.sources\.base\.Source, not an object of type Opener"):
        job.source("opens", type("Opener", (), {"open": lambda self, spark: None})())
    with pytest.raises(JobError, match=r"subclass of penstock\.sinks\.base\.Sink, not an object of type Opener"):
        stream.write("opened", type("Opener", (), {"open": lambda self, staging, spark: None})())


def test_a_stream_united_with_itself_is_read_twice() -> None:
    """As in Spark: each row comes once from either side."""
    job = Job("a")
    stream = timed(job)
    stream.union(stream).write("out", MemorySink())
    graph = job.graph()
    (source,) = graph.sources
    assert [type(child) for child in graph.children(source)] == [UnionNode, UnionNode]
    (union,) = {id(child): child for child in graph.children(source)}.values()
    assert [getattr(child, "name", None) for child in graph.children(union)] == ["out"]


def test_unions_of_paths_that_share_steps_are_read_once_for_each_path() -> None:
    """A row that comes by two ways is there twice; the order is that of the graph."""
    job = Job("a")
    stream = timed(job)
    filtered = stream.filter("k = 'x'")
    both = filtered.union(stream)
    both.union(filtered).union(both).write("out", MemorySink())
    graph = job.graph()
    by_type = [type(child).__name__ for child in graph.children(graph.sources[0])]
    assert by_type == ["FilterNode", "UnionNode"]
    first, second, third = (n for n in graph.nodes if isinstance(n, UnionNode))
    assert graph.children(filtered._node) == (first, second)
    assert graph.children(first) == (second, third)
    assert graph.children(second) == (third,)


def test_a_graph_of_many_unions_is_checked_in_no_time() -> None:
    """Each step is looked at once, however many ways lead through it."""
    job = Job("a")
    stream = timed(job).key_by("k").window("w", TUMBLING).aggregate(n=agg.count())
    for _ in range(60):
        stream = stream.union(stream)
    timed(job, "other").write("out", MemorySink())
    with pytest.raises(MissingSink, match="'w'"):
        job.graph()


def test_a_check_puts_rows_in_quarantine_unless_it_is_told_otherwise() -> None:
    """API: `check(name, ..., on_fail=OnFail.QUARANTINE)`; decision 6: what table rules do follows from it."""
    job = Job("a")
    timed(job).check("q").write("out", MemorySink())
    with pytest.raises(MissingSink, match=r"job\.quarantine\('q'\)"):
        job.graph()
    job.quarantine("q").write("bad", MemorySink())
    (check,) = (n for n in job.graph().nodes if isinstance(n, CheckNode))
    assert check.on_fail is OnFail.QUARANTINE
    assert check.on_table_fail is None


@pytest.mark.parametrize("name", penstock.__all__)
def test_what_the_package_offers_is_there(name: str) -> None:
    """API: `Duration` and `Count` are types of their own, beside what makes them."""
    assert getattr(penstock, name) is not None
    assert {"Count", "Duration"} <= set(penstock.__all__)


def test_a_count_of_an_expression_leaves_out_nulls_and_other_counts_are_of_rows() -> None:
    """SEMANTICS 3.3: row counts and non-null counts."""
    assert agg.count().expression is None
    assert agg.count("v").expression == "v"
    assert count(5) == Count(5)


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
