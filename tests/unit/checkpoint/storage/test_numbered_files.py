"""The last of numbered files is found by asking for few names, whatever was deleted and whatever was known."""

from __future__ import annotations

import math

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.numbered_files import Sequence

STRIDES = [(4,), (3, 12), (2, 8, 32)]


class Asked(MemoryStore):
    """A store that counts how often somebody asks whether a file is there."""

    calls = 0

    def exists(self, path: str) -> bool:
        """Count, and answer."""
        self.calls += 1
        return super().exists(path)


def files(strides: tuple[int, ...], count: int, gone: set[int]) -> Sequence:
    """Return so many files, of which those are deleted that may be."""
    sequence = Sequence(Asked(), "log", strides)
    for number in range(count):
        sequence.store.create(sequence.path(number), b"x")
    for number in gone:
        if sequence.expendable(number, count - 1):
            sequence.store.delete(sequence.path(number))
    return sequence


@pytest.mark.parametrize("strides", STRIDES, ids=str)
@settings(max_examples=examples(60))
@given(st.data())
def test_the_end_is_found_whatever_was_deleted_and_known(strides: tuple[int, ...], data: st.DataObject) -> None:
    """Also from a number that this folder never had: somebody has put an older copy in its place."""
    count = data.draw(st.integers(0, 80))
    gone = data.draw(st.sets(st.integers(0, 80)))
    known = data.draw(st.integers(-1, 120))
    assert files(strides, count, gone).find_tail(known) == count - 1


@pytest.mark.parametrize("moved", [0, 1, 5, 60])
def test_from_a_known_number_the_search_asks_for_how_far_the_end_has_moved(moved: int) -> None:
    """And not for how many files there ever were."""
    sequence = files((16,), 5_000, set(range(5_000)))
    store = sequence.store
    assert isinstance(store, Asked)
    store.calls = 0
    assert sequence.find_tail(4_999 - moved) == 4_999
    assert store.calls <= 6 + 4 * math.log2(moved + 1)
