"""The store that breaks on purpose: each fault does what it says, and only then."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import AlreadyExists, NotFound, StorageFull, StorageUnavailable


def faulty(fault: Fault, at: int = 1, **other: Any) -> FaultyStore:
    """Return a store with a file `old`, which breaks at a later call."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=at, **other))
    store.inner.create("old", b"0123456789")
    return store


def test_a_call_can_fail_before_it_has_done_anything() -> None:
    """Any call, once, by number."""
    store = faulty(Fault.BEFORE, at=3)
    store.create("a", b"a")
    assert store.exists("a")
    with pytest.raises(StorageUnavailable):
        store.delete("a")
    assert store.read("a") == b"a"
    assert store.list("") == ["a", "old"]
    assert (store.calls, store.fired) == (5, True)


def test_a_call_can_fail_after_it_was_done() -> None:
    """The acknowledgement is lost, of a create and of a delete."""
    store = faulty(Fault.AFTER, lasting=Lasting.FROM_THEN_ON)
    with pytest.raises(StorageUnavailable):
        store.create("a", b"a")
    with pytest.raises(StorageUnavailable):
        store.delete("old")
    with pytest.raises(AlreadyExists):
        store.create("a", b"a")
    assert store.list("") == ["a"]


def test_a_create_can_be_torn() -> None:
    """Half of it stands under the final name."""
    store = faulty(Fault.TORN)
    with pytest.raises(StorageUnavailable):
        store.create("a", b"0123")
    assert store.read("a") == b"01"


def test_a_create_can_vanish() -> None:
    """It is acknowledged; but never where the name is taken."""
    store = faulty(Fault.VANISHED, lasting=Lasting.FROM_THEN_ON)
    store.create("a", b"a")
    with pytest.raises(NotFound):
        store.read("a")
    with pytest.raises(AlreadyExists):
        store.create("old", b"a")


def test_a_create_can_be_delayed_until_a_rival_has_won() -> None:
    """The rival's bytes stand."""
    store = faulty(Fault.DELAYED, at=2)
    store.create("a", b"a")
    with pytest.raises(AlreadyExists):
        store.create("b", b"b")
    assert (store.read("a"), store.read("b")) == (b"a", b"a rival's")


def test_a_disk_can_be_full() -> None:
    """Once, or from then on."""
    once, ever = faulty(Fault.FULL), faulty(Fault.FULL, at=2, lasting=Lasting.FROM_THEN_ON)
    with pytest.raises(StorageFull):
        once.create("a", b"a")
    once.create("a", b"a")
    ever.create("a", b"a")
    for path in ("b", "c"):
        with pytest.raises(StorageFull):
            ever.create(path, b"a")
    assert (once.list(""), ever.list("")) == (["a", "old"], ["a", "old"])


def test_a_listing_can_be_stale() -> None:
    """The newer half is missing, and the rest is there twice."""
    store = faulty(Fault.STALE)
    for path in ("p", "q", "r"):
        store.create(path, b"")
    assert store.list("") == ["old", "old", "p", "p"]
    assert store.list("") == ["old", "p", "q", "r"]


def test_a_failure_can_be_any_error() -> None:
    """The end of the process, too."""
    store = faulty(Fault.BEFORE, error=SystemExit)
    with pytest.raises(SystemExit, match="old"):
        store.read("old")


def test_without_a_plan_calls_are_counted() -> None:
    """So that a sweep knows where to end."""
    store = FaultyStore(MemoryStore())
    store.create("a", b"a")
    store.read("a")
    assert (store.calls, store.fired, store.root) == (2, False, "memory:")
