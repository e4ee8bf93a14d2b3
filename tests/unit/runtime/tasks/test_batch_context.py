"""What the tasks of a batch are told of state: each of its own partition (decision 75)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import ComputeFailed
from penstock.runtime.tasks.batch_context import BatchContext, told
from penstock.time.clock import END_OF_TIME

Refs = Mapping[str, Mapping[str, Mapping[str, Any]]]


def ref(step: str, partition: int, batch: int = 41) -> dict[str, Any]:
    """Return a reference as a Commit has it."""
    return {"path": f"{batch:012d}-7-0123456789ab-{partition}.manifest", "size": 1_234, "checksum": step * 8}


def facts(manifests: Refs, bases: Refs | None = None) -> BatchContext:
    """Return what a batch is, with this state."""
    return BatchContext(
        batch=42,
        time=0,
        epoch=7,
        run="0123456789ab",
        spans={},
        late={},
        close={},
        manifests=manifests,
        bases=bases or {},
        state_folder="state",
        staging={},
    )


def read(text: str) -> BatchContext:
    """Return the facts as a task reads them."""
    return BatchContext(**json.loads(text))


def bytes_told(partitions: int, folder: Path) -> int:
    """Return the bytes that one task is told, of two steps with so many partitions."""
    state = {step: {str(p): ref(step, p) for p in range(partitions)} for step in ("first", "other")}
    with told(facts(state), folder) as text:
        return len(text) + read(text).refs_length


def test_a_step_knows_the_zero_time_from_which_batches_count() -> None:
    """It is among the facts that a task gives its steps, so that ends of windows are multiples from there (1.1)."""
    told_facts = replace(facts({}), zero=3_000_000, late={"s": None}, close={"s": None})
    assert read(told_facts.to_json()).of_step("s").zero == 3_000_000


def test_a_step_knows_the_interval_and_the_batch_before() -> None:
    """SEMANTICS 1.3, 4.1: windows of batch time fire for each multiple since then; None in the first batch."""
    first = replace(facts({}), late={"s": None}, close={"s": None})
    later = replace(first, interval=1_000_000, before=4_000_000, debug=True)
    known = [read(told_facts.to_json()).of_step("s") for told_facts in (first, later)]
    assert [(of.interval, of.before, of.debug) for of in known] == [(None, None, False), (1_000_000, 4_000_000, True)]


def test_what_a_task_is_told_does_not_grow_with_the_partitions(tmp_path: Path) -> None:
    """Beyond the few whose references all go to every task, it is as much for 64 partitions as for 4,096."""
    few, *many = (bytes_told(partitions, tmp_path) for partitions in (8, 64, 512, 4_096))
    assert max(many) - min(many) < 20, many  # numbers have more digits
    assert max(many) <= few
    assert not list(tmp_path.iterdir())


step_refs = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.integers(0, 300).map(str), st.integers(0, 10**12).map(lambda n: ref("x", n)), max_size=40),
)


@given(manifests=step_refs, bases=step_refs)
def test_each_task_is_told_the_state_of_its_partition(manifests: Refs, bases: Refs) -> None:
    """All of it, and as often as it asks: a task may be tried again. Steps have other numbers of partitions."""
    with TemporaryDirectory() as folder, told(facts(manifests, bases), LocalFolder(folder)) as text:
        for _ in range(2):
            for partition in (*map(str, range(42)), "300", "301", "4095"):
                refs = read(text).refs_of(int(partition))
                for step in ("a", "b", "c"):
                    mine = [refs.get(step, {}).get(partition) for refs in (manifests, bases)]
                    assert refs.get(step, [None, None]) == mine


def test_a_task_that_outlives_its_batch_is_told_so(tmp_path: Path) -> None:
    """It fails as a task that may be tried again; of no state it is never told by mistake."""
    with told(facts({"w": {str(p): ref("w", p) for p in range(99)}}), tmp_path) as text:
        late = read(text)
    with pytest.raises(ComputeFailed, match="gone"):
        late.refs_of(3)


def test_a_step_knows_by_which_watermarks_its_output_is_judged() -> None:
    """The highest and the lowest of those behind it; one whose other source has ended judges nothing (2.1)."""
    marks = {"s": 5, "near": 10, "far": 100, "ended": END_OF_TIME, "new": None}
    context = replace(facts({}), late=marks, close={"s": 7})
    judged = [
        context.of_step("s", behind=behind) for behind in (["near", "far", "ended"], ["far", "new"], ["ended"], [])
    ]
    assert [(each.judged, each.judged_least) for each in judged] == [(100, 10), (100, None), (None, None), (None, None)]
