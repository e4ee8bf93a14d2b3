"""What windows of event time compute is checked where the job is built, and `explain` says it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Job, agg, minutes, seconds
from penstock.errors import BadExpression, JobError, RevisionsMisread
from penstock.graph.steps import StepNode
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Cumulative, Session, Tumbling, WindowView, drop_late


class Table(MemorySink):
    """A sink that replaces rows by keys."""

    keys = ("k",)


def longest(key: Any, view: WindowView) -> None:
    """Return nothing."""


def keyed(job: Job) -> Any:
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    return rows.key_by("k")


def step_of(job: Job, name: str) -> StepNode:
    return next(node for node in job.graph().steps if node.name == name)


@pytest.mark.parametrize(
    "window",
    [
        Tumbling(seconds(1)).drop_late(),
        Cumulative(seconds(4), step=seconds(1)).drop_late(),
        Session(seconds(1)).drop_late(),
    ],
    ids=["tumbling", "cumulative", "session"],
)
def test_a_function_gets_whole_rows_and_explain_names_it(window: Any) -> None:
    """The bound of its state is said too; the columns of the output are the function's own."""
    job = Job("job", partitions=1)
    keyed(job).window("w", window).apply(longest, output="n long").write("out", MemorySink())
    step = step_of(job, "w")
    assert step.spec.reads(0).rows
    assert step.spec.reads(0).expressions == ()
    assert step.spec.window_columns == frozenset()
    assert step.spec.words(step, "by k").endswith(
        "apply longest, state of all rows, at most 1,000,000 of a key and window"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((None, "n long"), JobError, "window 'w' needs a function, not None"),
        ((longest, None), BadExpression, "output= of window 'w' is None, not a text"),
    ],
    ids=["no function", "no output"],
)
def test_a_function_or_an_output_that_is_none_is_refused(arguments: Any, error: type[JobError], match: str) -> None:
    """At the user's line; the window counts as used, so nothing else is said."""
    job = Job("job", partitions=1)
    fn, output = arguments
    windows = keyed(job).window("w", Tumbling(seconds(1)).drop_late())
    with pytest.raises(error, match=match + ".*test_specs_time_windows.py:"):
        windows.apply(fn, output=output)
    windows.refuse_unused()


def test_a_sink_may_replace_revised_rows_by_columns_of_the_function() -> None:
    """2.6: which of them tell windows apart only the function knows; those of aggregates are known."""
    window = Tumbling(seconds(1)).update_late(within=minutes(1), then=drop_late())
    job = Job("job", partitions=1)
    keyed(job).window("w", window).apply(longest, output="k string, n long").write("out", Table())
    job.graph()
    job = Job("job", partitions=1)
    keyed(job).window("w", window).aggregate(n=agg.count()).write("out", Table())
    with pytest.raises(RevisionsMisread, match="add 'window_end' to its keys"):
        job.graph()
