"""SEMANTICS 2.8: a source that is too far ahead of the slowest in event time is not read until that catches up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import PartitionProgress, SourceProgress
from penstock.graph.nodes import SourceNode
from penstock.runtime.driver.admission import Admitted
from penstock.runtime.driver.source_alignment import held_at, ruled, too_far_ahead
from penstock.sources import MemorySource
from penstock.sources.backlog import Waiting


def node(name: str, drift: int | None) -> SourceNode:
    return SourceNode(name=name, source=MemorySource("t timestamp"), order=0, event_time="t", align=drift)


def progress(highest: int | None, *, idle: bool = False, ended: bool = False) -> SourceProgress:
    part = PartitionProgress(highest=highest, seen_at=0, idle=idle)
    return SourceProgress(position={}, partitions={"0": part}, ended=ended)


def ahead(waits: Any = None, **sources: tuple[int | None, SourceProgress]) -> set[str]:
    nodes = [node(name, drift) for name, (drift, _) in sources.items()]
    return set(too_far_ahead(nodes, {name: of for name, (_, of) in sources.items()}, waits))


@pytest.mark.parametrize(
    ("lead", "expected"), [(9, set()), (10, set()), (11, {"a"})], ids=["within", "at the bound", "beyond"]
)
def test_a_source_waits_beyond_its_drift(lead: int, expected: set[str]) -> None:
    """More than d ahead, and not at d."""
    assert ahead(a=(10, progress(100 + lead)), b=(None, progress(100))) == expected


def test_a_source_without_the_setting_never_waits() -> None:
    """The slower one has it: it is not ahead."""
    assert ahead(a=(None, progress(900)), b=(10, progress(100))) == set()


def test_a_source_that_never_had_a_row_is_slower_than_any() -> None:
    """2.1: its watermark is at the beginning of time; a source that has none itself reads on."""
    assert ahead(a=(10, progress(100)), b=(None, progress(None))) == {"a"}
    assert ahead(a=(10, progress(None)), b=(None, progress(None))) == set()


def test_each_slower_source_that_counts_holds_the_one_ahead() -> None:
    """2.8: one beyond the drift is enough; those without event time, and those that no Commit knows yet, are none."""
    near, far = (None, progress(95)), (None, progress(1))
    assert ahead(a=(10, progress(100)), b=near, c=far) == {"a"}
    assert ahead(a=(10, progress(100)), b=far, c=near) == {"a"}
    assert ahead(a=(10, progress(100)), b=near, c=near) == set()
    fast, timeless = node("a", 10), SourceNode(name="b", source=MemorySource("t timestamp"), order=1)
    known = {"a": progress(100), "b": progress(None)}
    assert too_far_ahead([fast, timeless], known) == set()
    assert too_far_ahead([fast, node("b", None)], {"a": progress(100)}) == set()


@pytest.mark.parametrize("slow", [progress(1, idle=True), progress(1, ended=True)], ids=["idle", "ended"])
def test_sources_that_hold_no_watermark_hold_no_source(slow: SourceProgress) -> None:
    """2.4: idle sources and those that have ended do not count."""
    assert ahead(a=(10, progress(100)), b=(None, slow)) == set()


def test_a_run_that_ends_waits_only_for_sources_that_have_rows() -> None:
    """1.5: what was there at the start is read exactly, so a source that is read to its end holds none back."""
    sources = {"a": (10, progress(100)), "b": (None, progress(1))}
    assert ahead(waits=["a", "b"], **sources) == {"a"}
    assert ahead(waits=["a"], **sources) == set()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(-50, 50)), min_size=2, max_size=5),
    st.sets(st.integers(0, 4)),
)
def test_some_source_that_can_catch_up_is_always_read(drawn: list[tuple[int, int | None]], waiting: set[int]) -> None:
    """No deadlock: the slowest of the sources that hold others back is not held itself."""
    sources = {str(number): (drift, progress(mark)) for number, (drift, mark) in enumerate(drawn)}
    rows = {str(number) for number in waiting} & sources.keys()
    assert ahead(**sources) < sources.keys()
    assert not rows or ahead(waits=rows, **sources) & rows < rows


def test_a_source_that_waits_has_no_rows_to_admit_and_says_why() -> None:
    """8, 2.8: the rule that bound it is that of the alignment, beside those of other sources."""
    backlogs = {"a": {"0": Waiting.of_rows(3, 9)}, "b": {"0": Waiting.of_rows(0, 4)}}
    held = held_at(backlogs, {"a"})
    assert (held["a"]["0"].next, held["a"]["0"].latest, held["a"]["0"].rows) == (3, 3, 0)
    assert held["b"] == backlogs["b"]
    admitted = Admitted(ends={"a": {"0": 3}, "b": {"0": 2}}, limits={"bound": {"b": "rows"}})
    assert ruled(admitted, backlogs, {"a"}).limits["bound"] == {"a": "align", "b": "rows"}
    assert ruled(admitted, held, {"a"}).limits == admitted.limits, "nothing of it waits"
