"""Which part of a batch's tasks added no rows: garbage collection, and memory that was spilled (SEMANTICS 8.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rates.pauses import pause_share

AMOUNTS = st.floats(0, 1e15)
LOADS = st.fixed_dictionaries({}, optional=dict.fromkeys(("task_ms", "gc_ms", "spilled_bytes"), AMOUNTS))


@pytest.mark.parametrize(
    ("load", "share"),
    [
        ({}, 0.0),
        ({"gc_ms": 5.0, "spilled_bytes": 10**9}, 0.0),  # the first batch of a run does not know its tasks' time
        ({"task_ms": 0.0, "gc_ms": 0.0, "spilled_bytes": 0}, 0.0),
        ({"task_ms": 1_000.0}, 0.0),
        ({"task_ms": 1_000.0, "gc_ms": 150.0}, 0.15),  # a Commit of before spills were counted
        ({"task_ms": 1_000.0, "gc_ms": 0.0, "spilled_bytes": 50_000_000}, 0.25),
        ({"task_ms": 1_000.0, "gc_ms": 100.0, "spilled_bytes": 50_000_000}, 0.35),
        ({"task_ms": 1_000.0, "gc_ms": 0.0, "spilled_bytes": 10**12}, 1.0),
    ],
)
def test_a_spill_counts_by_its_bytes(load: dict[str, float], share: float) -> None:
    """200 MB a second."""
    assert pause_share(load) == pytest.approx(share)


@given(LOADS, st.sampled_from(["gc_ms", "spilled_bytes"]), AMOUNTS)
def test_it_is_a_part_and_more_of_either_is_no_less(load: dict[str, float], name: str, more: float) -> None:
    """Whatever Commits say."""
    share = pause_share(load)
    assert 0 <= share <= 1
    assert pause_share({**load, name: load.get(name, 0.0) + more}) >= share
