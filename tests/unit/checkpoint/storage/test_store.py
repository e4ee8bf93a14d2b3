"""Creating a file when answers get lost: whose file is it?"""

from __future__ import annotations

import pytest
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import create_or_read
from penstock.errors import AlreadyExists, CommitUnknown, StorageFull


@pytest.mark.fault("F23")
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("at", [1, 2])
def test_our_own_file_counts_as_success(fault: Fault, at: int) -> None:
    """However the answer got lost, once."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=at))
    assert create_or_read(store, "a", b"mine") == b"mine"
    assert store.inner.list("") == ["a"]


@pytest.mark.fault("F23")
def test_answers_that_are_all_lost_are_made_up_for_by_reading() -> None:
    """Every create works and none is acknowledged."""
    store = FaultyStore(MemoryStore(), Plan(Fault.AFTER, at=1, lasting=Lasting.FROM_THEN_ON))
    assert create_or_read(store, "a", b"mine") == b"mine"


@pytest.mark.fault("F23")
@pytest.mark.parametrize("fault", [None, Fault.BEFORE, Fault.DELAYED])
def test_anothers_file_is_returned(fault: Fault | None) -> None:
    """The caller compares: a rival's bytes are never taken for ours."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=1) if fault else None)
    if fault is not Fault.DELAYED:
        store.inner.create("a", b"a rival's")
    assert create_or_read(store, "a", b"mine") == b"a rival's"


@pytest.mark.fault("F23")
def test_what_stays_open_is_unknown() -> None:
    """Three tries, then an error of its own, with the cause."""
    store = FaultyStore(MemoryStore(), Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON))
    with pytest.raises(CommitUnknown) as caught:
        create_or_read(store, "a", b"mine")
    assert caught.value.__cause__ is not None


@pytest.mark.fault("F27")
def test_a_full_disk_is_certain_unless_an_earlier_try_is_open() -> None:
    """The first try may still arrive after the second was refused."""
    store = FaultyStore(MemoryStore(), Plan(Fault.FULL, at=1))
    with pytest.raises(StorageFull):
        create_or_read(store, "a", b"mine")

    class FullAfterSilence(FaultyStore):
        def create(self, path: str, data: bytes) -> None:
            if self.fired:
                raise StorageFull("full", where=path)
            super().create(path, data)

    with pytest.raises(CommitUnknown):
        create_or_read(FullAfterSilence(MemoryStore(), Plan(Fault.BEFORE, at=1)), "a", b"mine")


def test_a_file_that_is_purged_while_it_is_settled_is_written() -> None:
    """Taken when created, gone when read: then the name is free."""

    class Purged(MemoryStore):
        def create(self, path: str, data: bytes) -> None:
            try:
                super().create(path, data)
            except AlreadyExists:
                self.delete(path)
                raise

    store = Purged()
    store.create("a", b"old")
    assert create_or_read(store, "a", b"mine") == b"mine"
