"""Which batches a restore has undone is known from one Commit to the next (decision 179)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.driver.superseded import are_superseded, superseded_before


@given(st.lists(st.integers(-1, 20), max_size=15))
def test_a_commit_knows_the_batches_that_it_does_not_follow_from(restores: list[int]) -> None:
    """10.1: against a model that keeps the line of each batch as a set; -1 restores nothing, others a batch."""
    commits, lines, newest = dict[int, Any](), dict[int, set[int]](), -1
    for batch, back_to in enumerate([*restores, 20]):
        before = commits.get(newest)
        ranges = superseded_before(batch, before)
        lines[batch] = {batch, *lines.get(newest, set())}
        commits[batch] = SimpleNamespace(batch=batch, superseded=ranges)
        gone = are_superseded(np.arange(batch + 3), ranges)
        assert {i for i in range(batch) if gone[i]} == set(range(batch)) - lines[batch]
        assert not gone[batch:].any()
        newest = min(batch, back_to)
