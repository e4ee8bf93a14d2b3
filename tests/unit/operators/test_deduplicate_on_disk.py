"""`deduplicate` equals its definition over partitions, tasks, cuts, restarts, crashes and rescales (SEMANTICS 7.6)."""

from __future__ import annotations

import random
from tempfile import TemporaryDirectory

import pytest
from deduplicate_disk import DeduplicateDisk, DeduplicateModel
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-12, 6)), max_size=5)
BATCHES = st.lists(
    st.tuples(st.lists(ROWS, max_size=3), st.sampled_from([None, 0, 1, 4, 30]), st.sampled_from([0, 0, 0, 1, 2, 8])),
    min_size=1,
    max_size=9,
)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    batches=BATCHES,
    within=st.sampled_from([1, 5, 40]),
    partitions=st.sampled_from([1, 2, 8]),
    hashes=st.sampled_from([1, 1000]),
    chained=st.booleans(),
)
def test_the_first_rows_are_those_of_the_definition(
    batches: list[tuple[list[list[tuple[str | None, int]]], int | None, int]],
    within: int,
    partitions: int,
    hashes: int,
    *,
    chained: bool,
) -> None:
    """7.6, 1.6, 2.10: the first row in arrival order, late and old rows counted; a chained step is judged later."""
    model, number, before, mark = DeduplicateModel(within), 0, None, None
    with TemporaryDirectory() as root:
        disk = DeduplicateDisk(within, root, partitions=partitions, hashes=hashes)
        disk.crashes = random.Random(len(batches))
        for tasks, moved, rescaled in batches:
            fed = []
            for task in tasks:
                rows = [{"k": key, "t": (mark or 0) + by, "n": number + at} for at, (key, by) in enumerate(task)]
                number += len(rows)
                fed.append(rows)
            late = before if chained else mark
            made = disk.batch(fed, late=late, close=mark)
            assert made == model.batch([row for rows in fed for row in rows], late=late)
            if rescaled:
                disk.rescale(rescaled, mark)
            before, mark = mark, mark if moved is None else (mark or 0) + moved
        assert (disk.counts["rows"], disk.counts["late"]) == (number, model.late)
        assert disk.counts["rows"] == disk.counts["late"] + disk.counts["emitted"] + disk.counts["duplicates"]
