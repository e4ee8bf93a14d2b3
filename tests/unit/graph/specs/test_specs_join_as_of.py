"""What a graph knows of an as-of join, and what it refuses (SEMANTICS 7.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from joined_streams import late, source, untimed

from penstock import Job, agg, hours, seconds
from penstock.errors import DuplicateName, JobError, MissingSink, NoEventTime, RevisionsMisread
from penstock.graph.job import Stream
from penstock.graph.specs.join_as_of import AsOfJoin
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling, drop_late

TRADES, QUOTES = "id string, price long, t timestamp", "id string, bid long, u timestamp"


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        (lambda job: job.source("c", MemorySource(QUOTES)), JobError, "join_as_of 'quoted' needs event time"),
        (lambda job: untimed(job, QUOTES), NoEventTime, "map_with_state_arrow 'step'.*does not say"),
        (lambda job: late(job, QUOTES), JobError, "reads a side stream"),
    ],
    ids=["no event time", "an untimed step", "a side stream"],
)
def test_rows_without_a_watermark_of_their_own_are_refused(
    other: Callable[[Job], Stream], error: type[JobError], words: str
) -> None:
    """As either input, at the line of the step."""
    job = Job("quoted")
    trades = source(job, "trades", TRADES)
    trades.join_as_of("quoted", other(job), on=["id"], within=hours(1)).write("out", MemorySink())
    with pytest.raises(error, match=words) as met:
        job.graph()
    assert __file__ in str(met.value.where)


def test_rows_that_nobody_writes_are_refused() -> None:
    """As those of other steps."""
    job = Job("quoted")
    trades, quotes = source(job, "trades", TRADES), source(job, "quotes", QUOTES)
    trades.write("all", MemorySink())
    trades.join_as_of("quoted", quotes, on=["id"], within=hours(1))
    with pytest.raises(MissingSink, match="join_as_of 'quoted'"):
        job.graph()


@pytest.mark.parametrize("panes", ["accumulating", "discarding"])
def test_panes_that_contain_those_before_are_refused(panes: str) -> None:
    """Discarding ones join as rows of their own."""
    job = Job("quoted")
    trades, quotes = source(job, "trades", TRADES), source(job, "quotes", QUOTES)
    spec = getattr(Tumbling(seconds(1)).update_late(within=seconds(5), then=drop_late()), panes)()
    sums = trades.key_by("id").window("w", spec).aggregate(n=agg.count())
    sums.join_as_of("quoted", quotes, on=["id"], within=hours(1)).write("out", MemorySink())
    if panes == "accumulating":
        with pytest.raises(RevisionsMisread):
            job.graph()
    else:
        job.graph()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"how": "right"}, "write 'inner' or 'left'"),
        ({"within": 5}, "no unit"),
        ({"within": seconds(-1)}, "too short"),
        ({"within": None}, "write a duration"),
        ({"on": "id"}, "not a list of columns"),
        ({"on": ["lower(id)"]}, "with_columns"),
        ({"other": "b"}, "another stream"),
        ({"partitions": 0}, "partitions"),
    ],
)
def test_unfit_arguments_are_refused(given: dict[str, Any], words: str) -> None:
    """At once, at the user's line."""
    job = Job("quoted")
    trades, quotes = source(job, "trades", TRADES), source(job, "quotes", QUOTES)
    arguments = {"other": quotes, "on": ["id"], "within": seconds(0), **given}
    with pytest.raises(JobError, match=words) as met:
        trades.join_as_of("quoted", **arguments)
    assert __file__ in str(met.value.where)
    with pytest.raises(JobError, match=r"on=\['id'\]"):
        trades.join_as_of("quoted", quotes.key_by("id"), on=["id"], within=seconds(0))
    with pytest.raises(DuplicateName, match="twice"):
        trades.join_as_of("quoted", quotes, on=["id", "id"], within=seconds(0))


@pytest.mark.parametrize(
    ("how", "words"),
    [("inner", "left rows without one dropped; late rows and null keys of the inputs"), ("left", "emitted with nulls")],
)
def test_explain_says_what_it_does(how: str, words: str) -> None:
    """Keys and bound, when rows are emitted, and what becomes of the others."""
    job = Job("quoted", partitions=2)
    trades, quotes = source(job, "trades", TRADES), source(job, "quotes", QUOTES)
    trades.join_as_of("quoted", quotes, on=["id"], within=hours(1), how=how).write("out", MemorySink())
    texts = [text for section in explain_graph(job.graph()) for entry in section.rows for text in entry]
    text = next(text for text in texts if text.startswith("join_as_of quoted: left rows with the newest right row"))
    assert "by id, 2 state partitions, at most 1 h older" in text
    assert words in text
    spec = next(node.spec for node in job.graph().steps)
    assert isinstance(spec, AsOfJoin)
    assert spec.settings() == {"within": "1 h", "how": how}
