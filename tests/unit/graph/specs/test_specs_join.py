"""What a graph knows of a join, and what it refuses (SEMANTICS 7.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from joined_streams import late, source, untimed

from penstock import Job, agg, days, micros, minutes, seconds
from penstock.errors import DuplicateName, JobError, JoinUnbounded, MissingSink, NoEventTime, RevisionsMisread
from penstock.graph.job import Stream
from penstock.graph.specs.join import IntervalJoin
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling, drop_late

LEFT, RIGHT = "id string, x long, t timestamp", "id string, y long, u timestamp"


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        (lambda job: job.source("c", MemorySource(RIGHT)), JobError, "join 'pairs' needs event time"),
        (lambda job: untimed(job, LEFT), NoEventTime, "map_with_state_arrow 'step'.*does not say"),
        (lambda job: late(job, LEFT), JobError, "reads a side stream"),
    ],
    ids=["no event time", "an untimed step", "a side stream"],
)
def test_rows_without_a_watermark_of_their_own_are_refused(
    other: Callable[[Job], Stream], error: type[JobError], words: str
) -> None:
    """As either input, at the line of the step."""
    job = Job("joined")
    a = source(job, "a", LEFT)
    a.join("pairs", other(job), on=["id"], within=(seconds(0), seconds(1))).write("out", MemorySink())
    with pytest.raises(error, match=words) as met:
        job.graph()
    assert __file__ in str(met.value.where)


def test_pairs_that_nobody_writes_are_refused() -> None:
    """As rows of other steps."""
    job = Job("joined")
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    a.write("all", MemorySink())
    a.join("pairs", b, on=["id"], within=(seconds(0), seconds(1)))
    with pytest.raises(MissingSink, match="join 'pairs'"):
        job.graph()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"how": "outer"}, "'inner', 'left', 'right', 'full'"),
        ({"how": "left", "within": (seconds(0), days(30_000_000))}, "beyond the end of time"),
        ({"within": None}, "has no within="),
        ({"within": seconds(5)}, "two durations"),
        ({"within": (-5, 5)}, "no unit"),
        ({"within": (seconds(5), seconds(-5))}, "the lesser first"),
        ({"on": "id"}, "not a list of columns"),
        ({"on": ["lower(id)"]}, "with_columns"),
        ({"other": "b"}, "another stream"),
        ({"partitions": 0}, "partitions"),
    ],
)
def test_unfit_arguments_are_refused(given: dict[str, Any], words: str) -> None:
    """At once, at the user's line."""
    job = Job("joined")
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    arguments = {"other": b, "on": ["id"], "within": (minutes(-1), micros(0)), **given}
    with pytest.raises(JobError, match=words) as met:
        a.join("pairs", **arguments)
    assert __file__ in str(met.value.where)
    with pytest.raises(JobError, match=r"on=\['id'\]"):
        a.join("pairs", b.key_by("id"), on=["id"], within=(seconds(0), seconds(1)))
    with pytest.raises(DuplicateName, match="twice"):
        a.join("pairs", b, on=["id", "id"], within=(seconds(0), seconds(1)))


def test_explain_says_what_it_does() -> None:
    """Keys and bounds, and what becomes of the other rows."""
    job = Job("joined", partitions=2)
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    a.join("pairs", b, on=["id"], within=(seconds(-60), seconds(90))).write("out", MemorySink())
    texts = {text for section in explain_graph(job.graph()) for entry in section.rows for text in entry}
    words = "join pairs: pairs of both inputs, by id, 2 state partitions, right - left from -1 min to 90 s; late rows"
    assert any(text.startswith(words) for text in texts)
    spec = next(node.spec for node in job.graph().steps)
    assert isinstance(spec, IntervalJoin)
    assert spec.settings() == {"within": "-1 min to 90 s"}


@pytest.mark.remedy("PEN-JOB-024")
def test_a_join_without_bounds_is_refused_and_gets_them() -> None:
    """7.6, 7.7: the state of a join is bounded by time, so its bounds have no default."""
    job = Job("joined")
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    with pytest.raises(JoinUnbounded, match="join 'pairs' has no within=") as met:
        a.join("pairs", b, on=["id"])
    assert __file__ in str(met.value.where)
    a.join("pairs", b, on=["id"], within=(minutes(-5), minutes(5))).write("out", MemorySink())
    assert [step.name for step in job.graph().steps] == ["pairs"]


@pytest.mark.parametrize(
    ("how", "waits"),
    [
        ("left", "a left row without a match once the watermark is beyond its event time + 90 s; late rows and null"),
        (
            "right",
            "a right row without a match once the watermark is beyond its event time + 1 min; late rows and null",
        ),
        ("full", "its event time + 90 s, a right row without a match once the watermark is beyond its event time + 1"),
    ],
)
def test_explain_says_when_outer_rows_come(how: str, waits: str) -> None:
    """How long they wait after their own event time, and which rows are dropped."""
    job = Job("joined", partitions=2)
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    a.join("pairs", b, on=["id"], within=(seconds(-60), seconds(90)), how=how).write("out", MemorySink())
    texts = [text for section in explain_graph(job.graph()) for entry in section.rows for text in entry]
    assert sum(waits in text for text in texts) == 1
    spec = next(node.spec for node in job.graph().steps)
    assert spec.settings() == {"how": how, "within": "-1 min to 90 s"}


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("panes", ["discarding", "accumulating"])
def test_revisions_join_as_rows_of_their_own(how: str, panes: str) -> None:
    """2.6: an outer join takes a discarding pane for a row, also without a match, and refuses accumulating ones."""
    job = Job("joined", partitions=1)
    a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
    window = getattr(Tumbling(seconds(10)).update_late(within=seconds(60), then=drop_late()), panes)()
    sums = a.key_by("id").window("sums", window).aggregate(total=agg.sum("x"))
    sums.join("pairs", b, on=["id"], within=(seconds(0), seconds(5)), how=how).write("out", MemorySink())
    if panes == "accumulating":
        with pytest.raises(RevisionsMisread):
            job.graph()
        return
    texts = [text for section in explain_graph(job.graph()) for row in section.rows for text in row]
    assert any(
        "early panes join as rows of their own, and revisions after the closing are late" in text for text in texts
    )
