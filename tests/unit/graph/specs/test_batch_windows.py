"""Windows of batch time in the graph of a job: intervals, names, and what may read them (SEMANTICS 1.4, 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Duration, Job, agg, millis, seconds
from penstock.errors import BadExpression, DuplicateName, IntervalUnfit, JobError, MissingSink, NoEventTime
from penstock.graph.job import Stream
from penstock.graph.specs.batch_windows import BatchWindowedStream
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import BatchWindow, Tumbling

FOUR = BatchWindow(seconds(4), slide=seconds(2))
Use = Callable[[BatchWindowedStream[Stream]], Stream]


def job_of(window: BatchWindow, interval: Duration | None = None, use: Use = BatchWindowedStream.rows) -> Job:
    """Return a job with a window of batch time."""
    job = Job("windows", interval=interval)
    rows = job.source("rows", MemorySource("k string, v int"))
    use(rows.key_by("k").window("w", window)).write("out", MemorySink())
    return job


def named(*_: Any) -> None:
    """Return nothing."""


@pytest.mark.parametrize(
    ("window", "interval", "match"),
    [
        (FOUR, seconds(3), "the length of window 'w' is 4 s, which is no multiple of the job's interval, 3 s"),
        (BatchWindow(seconds(4), slide=seconds(3)), seconds(2), "the slide of window 'w' is 3 s"),
        (BatchWindow(millis(1500)), seconds(1), "the length of window 'w' is 1500 ms"),
    ],
    ids=["length", "slide", "fraction"],
)
def test_length_and_slide_are_multiples_of_the_interval(window: BatchWindow, interval: Duration, match: str) -> None:
    """4.1: or the graph is refused, with the numbers and the line."""
    with pytest.raises(IntervalUnfit, match=match) as error:
        job_of(window, interval).graph()
    assert "test_batch_windows.py" in str(error.value)


def test_a_job_that_runs_as_fast_as_possible_is_refused(tmp_path: Path) -> None:
    """1.4: without an interval of the job or of the runner there are no ticks."""
    job_of(FOUR).graph()  # the runner may have one
    with pytest.raises(IntervalUnfit, match="as fast as possible"), Harness(job_of(FOUR), tmp_path):
        pass


@pytest.mark.parametrize(
    ("use", "error", "match"),
    [
        (lambda w: w.group(""), BadExpression, "group of window 'w' reads ''"),
        (lambda w: w.count_by_value(None), BadExpression, "count_by_value of window 'w' reads None"),
        (lambda w: w.group("K"), DuplicateName, "column 'k' already"),
        (lambda w: w.count_by_value("count"), DuplicateName, "'count'"),
        (lambda w: w.group("window_end"), DuplicateName, "'window_end'"),
        (lambda w: w.aggregate(), JobError, "name at least one aggregate"),
        (lambda w: w.aggregate(K=agg.count()), DuplicateName, "column 'K' already"),
        (lambda w: w.aggregate(window_end=agg.count()), DuplicateName, "'window_end'"),
        (lambda w: w.aggregate(n=3), JobError, "column 'n' needs an aggregate"),
        (lambda w: w.apply(3, output="n long"), JobError, "window 'w'.* not 3"),
        (lambda w: w.apply(print, output=3), BadExpression, "window 'w'"),
        (lambda w: w.reduce_by_key(3), JobError, "function of two values, not 3"),
        (lambda w: w.reduce_by_key(max, inverse=3), JobError, "function of two values, not 3"),
        (lambda w: w.reduce_by_key(max, keep="abs(v) > 1"), BadExpression, "keep= of window 'w' .* abs is a function"),
    ],
    ids=[
        "empty",
        "no text",
        "key",
        "count",
        "bound",
        "no aggregate",
        "aggregate named as the key",
        "aggregate named as a bound",
        "not an aggregate",
        "not a function",
        "no DDL",
        "no function",
        "no inverse",
        "function in keep",
    ],
)
def test_what_a_window_cannot_be_made_into_is_refused_at_its_line(
    use: Callable[[Any], Any], error: type[JobError], match: str
) -> None:
    """Values are expressions, and columns have names of their own."""
    with pytest.raises(error, match=match):
        job_of(FOUR, use=use)


def test_windows_that_nobody_uses_or_writes_are_refused() -> None:
    """A window says what it is made into, and rows may not vanish."""
    job = Job("windows", interval=seconds(1))
    rows = job.source("rows", MemorySource("k string, v int"))
    rows.write("all", MemorySink())
    windows = rows.window("w", FOUR)
    with pytest.raises(JobError, match=r"window 'w' computes nothing: add \.rows\(\)"):
        job.graph()
    windows.count()
    with pytest.raises(MissingSink, match="window 'w'"):
        job.graph()


def test_no_window_of_event_time_reads_one_of_batch_time() -> None:
    """2.1: a row is in windows long after its event time, so the output has none."""
    job = Job("windows", interval=seconds(1))
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    again = rows.window("w", FOUR).rows()
    again.window("late", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count()).write("out", MemorySink())
    with pytest.raises(NoEventTime, match="window 'w'"):
        job.graph()


def test_a_window_of_batch_time_reads_another() -> None:
    """4: batch time is that of the batch in which rows come, and those of a window come in its batch."""
    job = job_of(FOUR, seconds(1), lambda w: w.count().window("peak", BatchWindow(seconds(8))).group("count"))
    job.graph()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda w: w.rows(), "window w: 4 s of batch time every 2 s, by k in 8 partitions; rows"),
        (lambda w: w.group("v + 1"), "; group of v + 1"),
        (lambda w: w.aggregate(n=agg.count(), most=agg.max("v")), "; n = count(), most = max(v)"),
        (lambda w: w.apply(named, output="n long"), "named"),
        (lambda w: w.reduce_by_key(max), "; reduce_by_key of v"),
        (lambda w: w.reduce_by_key(max, inverse=min), "of v, what leaves by its inverse, keys kept for ever"),
        (lambda w: w.reduce_by_key(max, inverse=min, keep="v > 0"), "by its inverse, keys kept where v > 0"),
    ],
    ids=["rows", "group", "aggregate", "apply", "reduce", "inverse", "keep"],
)
def test_explain_says_what_a_window_is(use: Use, words: str) -> None:
    """DESIGN 3: length, slide, keys, and what is made."""
    job = job_of(FOUR, seconds(1), use)
    job.partitions = 8
    assert words.partition(" in 8")[0] in str(explain_graph(job.graph()))
