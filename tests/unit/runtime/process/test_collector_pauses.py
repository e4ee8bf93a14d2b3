"""Full collections of a driver look only at young objects."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from checkpoint_samples import commit, job

from penstock.checkpoint.log.recovery import recover
from penstock.runtime.process import collector_pauses
from penstock.runtime.process.collector_pauses import ShortPauses


class Node:
    """An object that can be part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.fixture
def pauses() -> Iterator[ShortPauses]:
    """A listener whose frozen objects are given back to the collector afterwards."""
    yield ShortPauses()
    gc.unfreeze()


def cycle() -> Node:
    """Return two objects that hold each other, so that only a collection can free them."""
    node = Node()
    node.other = Node()
    node.other.other = node
    return node


def frozen(thing: object) -> bool:
    """Return whether collections pass over an object."""
    return gc.is_tracked(thing) and not any(thing is other for other in gc.get_objects())


def test_what_a_start_has_made_is_passed_over_by_collections(pauses: ShortPauses) -> None:
    """What comes later is collected as before."""
    recovered, old = recover(job()[1]), cycle()
    assert not frozen(old)
    pauses.on_takeover(recovered)
    assert frozen(old)
    young = cycle()
    gone = weakref.ref(young)
    del young
    gc.collect()
    assert gone() is None


def test_no_garbage_is_frozen(pauses: ShortPauses) -> None:
    """It would never be freed."""
    node = cycle()
    gone = weakref.ref(node)
    gc.disable()
    try:
        del node
        assert gone() is not None
        pauses.on_takeover(recover(job()[1]))
        assert gone() is None
    finally:
        gc.enable()


def test_the_first_batches_freeze_what_they_make_and_later_ones_freeze_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs for months makes objects that must be freed: those are looked at for ever."""
    frozen_after: list[int] = []
    pauses = ShortPauses()
    for batch in range(140):
        monkeypatch.setattr(collector_pauses, "_freeze", partial(frozen_after.append, batch + 1))
        pauses.on_batch_completed(commit(batch))
    assert frozen_after == [1, 2, 4, 8, 16, 32, 64]
