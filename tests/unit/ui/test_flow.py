"""The page of a job shows its steps, where it stands in its sources, and what its sinks show."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_samples import make_project
from ui_site import NOW, Site

from penstock import Job, agg, minutes, seconds
from penstock.checkpoint.log.entries import PartitionProgress, SourceProgress, StagedFile
from penstock.sinks import Delta
from penstock.sources import MemorySource
from penstock.ui.flow import flow_of
from penstock.windows import Tumbling

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
SOURCE = SourceProgress(
    position={"row": 1_234_567, "file": "a.csv"},
    partitions={
        "0": PartitionProgress(highest=NOW, seen_at=NOW, idle=False),
        "1": PartitionProgress(highest=None, seen_at=None, idle=True),
    },
    ended=False,
)


def steps(*reads):
    return [{"kind": "filter", "name": f"s{place}", "reads": list(inputs)} for place, inputs in enumerate(reads)]


@given(reads=st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30), turned=st.booleans())
def test_each_step_stands_below_all_that_it_reads(reads, turned):
    """In whatever order the job names them; no box lies on another one, and all lie in the picture."""
    made = [sorted({p for p in inputs if p < place}) for place, inputs in enumerate(reads)]
    if turned:
        made = [[len(made) - 1 - p for p in inputs] for inputs in reversed(made)]
    flow = flow_of(steps(*made))
    wide, high = flow.box
    for place, inputs in enumerate(made):
        for above in inputs:
            assert flow.nodes[above].y + high < flow.nodes[place].y
    corners = sorted((node.y, node.x) for node in flow.nodes)
    assert all(below != y or after >= x + wide for (y, x), (below, after) in pairwise(corners))
    assert all(0 <= n.x <= flow.width - wide and 0 <= n.y <= flow.height - high for n in flow.nodes)
    assert len(flow.lines) == sum(len(inputs) for inputs in made)


@pytest.mark.parametrize(
    "graph",
    [None, [], "x", [1], [{}], [{"reads": 1}], steps([1], [0]), steps([0]), steps(*([],) * 201)],
    ids=["none", "empty", "text", "number", "bare", "no list", "a circle", "itself", "too many"],
)
def test_what_cannot_be_drawn_is_left_out(graph):
    """The page shows the rest."""
    assert flow_of(graph) is None


def test_odd_places_and_names_are_drawn_as_far_as_they_go():
    """A newer version may know other kinds."""
    flow = flow_of(
        [{"kind": "source", "name": "x" * 80, "reads": [7, -1, "a"]}, {"kind": "withcolumns", "name": "", "reads": [0]}]
    )
    assert (len(flow.nodes[0].shown), flow.nodes[1].name, len(flow.lines)) == (20, "columns", 1)


def test_a_driver_tells_the_steps_of_its_job():
    """With what feeds a side stream as what that reads."""
    job = Job("orders", partitions=2)
    orders = job.source("orders", MemorySource("t timestamp, v bigint"), event_time="t", max_out_of_order=seconds(5))
    windows = orders.filter("v > 0").key_by("v").window("minutely", Tumbling(minutes(1)).late_to("late"))
    windows.aggregate(n=agg.count()).write("totals", Delta("totals"))
    job.late("late").write("late_rows", Delta("late"))
    shape = job.graph().shape()
    named = {step["name"]: step for step in shape}
    assert [shape[p]["name"] for p in named["totals"]["reads"]] == ["minutely"]
    assert [shape[p]["name"] for p in named["late"]["reads"]] == ["minutely"]
    assert [shape[p]["name"] for p in named["late_rows"]["reads"]] == ["late"]
    assert (named["orders"]["kind"], named["orders"]["reads"]) == ("source", [])
    assert {node.name for node in flow_of(shape).nodes} >= {"orders", "minutely", "totals", "late", "late_rows"}


def test_the_page_shows_steps_offsets_and_sinks(tmp_path):
    """From the log and the driver's record."""
    site = Site(make_project(tmp_path / "project", rows=10))
    site.batches(3, sources={"orders": SOURCE}, staged={"totals": [FILE]}, published={"totals": 1})
    shape = [
        {"kind": "source", "name": "orders", "reads": []},
        {"kind": "window", "name": "minutely", "reads": [0]},
        {"kind": "sink", "name": "totals", "reads": [1]},
    ]
    site.says(left={"orders": 2_500}, sinks={"totals": "Delta table /data/totals, append"}, graph=shape)
    text = site.text("/jobs/orders")
    assert "Sources, steps and sinks" in text
    assert "orders row 1,234,567, file a.csv 2,500 rows 2023-11-14 22:13:20Z 2, 1 idle" in text
    assert "totals batch 1 5 Delta table /data/totals, append" in text
    page = site.get("/jobs/orders").text
    assert 'aria-label="minutely reads orders; totals reads minutely"' in page
    assert page.count('class="way"') == 2


def test_a_job_without_a_record_shows_its_sources_all_the_same(tmp_path):
    """As after a move of the checkpoint: the log alone tells."""
    site = Site(make_project(tmp_path / "project", rows=10))
    site.batches(1, sources={"orders": SOURCE.model_copy(update={"ended": True})})
    text = site.text("/jobs/orders")
    assert "orders row 1,234,567, file a.csv ended" in text
