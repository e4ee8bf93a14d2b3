"""Side streams: each kind says of itself all that the graph, the plan and `explain` need (decision 90)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from penstock import Job, hours, seconds
from penstock.errors import JobError, UnknownName
from penstock.graph.nodes import LateNode, QuarantineNode, SideNode, SnapshotNode
from penstock.graph.specs.deduplicate import Deduplicate
from penstock.graph.steps import StepNode
from penstock.runtime.inspect.explain import explain_graph
from penstock.runtime.plan.job_plan import port_name
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


@dataclass(frozen=True, eq=False, kw_only=True)
class Echo(SideNode):
    """A kind that no module of Penstock has heard of."""

    kind: ClassVar[str] = "echo"
    title: ClassVar[str] = "echo of {name}"
    unknown: ClassVar[str] = "nothing echoes in {name}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Echoing(Deduplicate):
    """A step with such a stream."""

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        return {"echo": (Echo, step)}


def job_with(side: SideNode) -> Job:
    """A job with a step `once` whose output is written, and so is a side stream."""
    job = Job("orders")
    orders = job.source("orders", MemorySource("id long, at timestamp"), event_time="at", max_out_of_order=seconds(5))
    step = orders._step("once", Echoing(within=1), 1, keys=("id",))
    step.write("first", MemorySink())
    job._side(side).write("side", MemorySink())
    return job


def test_a_kind_that_nobody_has_heard_of_is_planned_and_explained():
    """It is filled by the step that names it, travels under its word, and is told in its words."""
    graph = job_with(Echo(name="once")).graph()
    (side,) = [node for node in graph.nodes if isinstance(node, Echo)]
    assert graph.feeders(side) == tuple(node for node in graph.nodes if isinstance(node, StepNode))
    assert port_name(side) == "echo:once"
    assert "echo of once" in str(explain_graph(graph))


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (Echo(name="x"), "nothing echoes in 'x'; there is \\['once'\\]"),
        (LateNode(name="x"), "no step sends late rows to 'x'; there is \\[\\]"),
        (QuarantineNode(name="x"), "'x' is no check, source or state function; there is \\['orders'\\]"),
        (SnapshotNode(name="x"), "'x' is no step with snapshots; there is \\[\\]"),
    ],
)
def test_a_stream_that_nothing_fills_is_named_with_those_that_there_are(side, message):
    """In the words of its kind."""
    with pytest.raises(UnknownName, match=message):
        job_with(side).graph()


def test_a_step_that_drops_late_rows_reads_no_stream_that_is_late():
    """Rows in quarantine may be behind every watermark: it would drop them all."""
    job = job_with(Echo(name="once"))
    job.quarantine("orders").deduplicate("again", by=["id"], within=hours(1)).write("twice", MemorySink())
    with pytest.raises(
        JobError, match="deduplicate 'again' reads a side stream, whose rows are late for every watermark"
    ):
        job.graph()
