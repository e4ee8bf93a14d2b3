"""Purging: what goes, what stays, and that nothing notices."""

from __future__ import annotations

import pytest
from checkpoint_samples import leave, offsets, own, run_batch, void

from penstock.checkpoint.faulty import Fault, FaultyStore, Lasting, Plan
from penstock.checkpoint.log import Log, OwnedLog
from penstock.checkpoint.memory import MemoryStore
from penstock.checkpoint.purge import Purge, purge
from penstock.checkpoint.recovery import recover
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import EntryRefused, StorageUnavailable


def long_job(store: CheckpointStore, batches: int = 10, floor: int = 6) -> tuple[Log, OwnedLog]:
    """Return a log of stride 4 with a second Takeover in slot 9; its Commits from batch 4 on state the floor."""
    log = Log(store, stride=4)
    owned = own(log)
    for batch in range(4):
        run_batch(owned, batch)
    owned = own(log, "w2")
    for batch in range(4, batches):
        run_batch(owned, batch, floor=floor)
    return log, owned


def slots(store: CheckpointStore) -> list[int]:
    """Return the slots in use."""
    return [int(path[4:]) for path in store.list("log")]


@pytest.mark.fault("F30")
def test_offsets_and_commits_below_the_floor_go_and_nothing_else() -> None:
    """Takeovers (0, 9), milestones (4, 8, 12), the floor's batch and above (14…), and all after milestone 20 stay."""
    store = MemoryStore()
    log, _ = long_job(store)
    whole = recover(log)
    assert purge(log, 6, keep=2) == 9
    assert slots(store) == [0, 4, 8, 9, 12, *range(14, 22)]
    assert recover(log) == whole
    assert purge(log, 6, keep=2) == 0


@pytest.mark.fault("F30")
@pytest.mark.parametrize(
    ("floor", "keep", "lowest"),
    [(99, 2, 14), (6, 2, 14), (5, 2, 13), (6, 5, 13), (6, 7, 7), (6, 99, 1), (0, 1, 1)],
    ids=str,
)
def test_neither_the_floor_in_the_log_nor_the_commits_to_keep_are_passed(floor: int, keep: int, lowest: int) -> None:
    """Whatever is asked for; `lowest` is the first slot left but for Takeovers and milestones."""
    store = MemoryStore()
    log, _ = long_job(store)
    purge(log, floor, keep=keep)
    assert min(slot for slot in slots(store) if slot not in {0, 4, 8, 9, 12}) == lowest


def test_at_least_one_commit_is_kept() -> None:
    """A job without any has nothing to go on from."""
    with pytest.raises(EntryRefused):
        Purge(Log(MemoryStore()), keep=0)


@pytest.mark.fault("F30")
def test_an_id_without_a_commit_may_be_the_floor() -> None:
    """Batch 5 was given up; with floor 5 the Commit of batch 4 stays, for recovery reads back to it."""
    store = MemoryStore()
    log, owned = long_job(store, batches=5)
    store.create(log.path(owned.next_slot), b"")
    owned = own(log, "w3")
    owned.append(void(recover(log).damaged[0], owned))
    for batch in range(6, 12):
        run_batch(owned, batch, floor=5)
    whole = recover(log)
    assert purge(log, 5, keep=1) > 0
    assert recover(log) == whole
    assert [kept.batch for kept in whole.kept] == [6, 7, 8, 9, 10, 11]


@pytest.mark.fault("F30")
def test_a_call_does_a_bounded_share_oldest_first() -> None:
    """A milestone frees thousands of entries at once; no batch pays for them all."""
    store = MemoryStore()
    log, _ = long_job(store)
    ever = Purge(log, keep=2)
    left = []
    for _ in range(5):
        ever.run(6, at_most=3)
        left.append([slot for slot in slots(store) if slot < 14])
    assert left == [
        [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        [0, 4, 8, 9, 10, 11, 12, 13],
        [0, 4, 8, 9, 12, 13],
        [0, 4, 8, 9, 12],
        [0, 4, 8, 9, 12],
    ]


@pytest.mark.fault("F30")
def test_a_crash_at_any_call_of_a_purge_is_harmless() -> None:
    """Before or after each of its store calls; a later purge finishes the work."""
    for fault in (Fault.BEFORE, Fault.AFTER):
        at, fired = 0, True
        while fired:
            at += 1
            inner = MemoryStore()
            log, owned = long_job(inner)
            whole = recover(log)
            store = FaultyStore(inner, Plan(fault, at=at))
            try:
                purge(Log(store, stride=4), 6, keep=2)
            except StorageUnavailable:
                assert recover(log) == whole
            fired = store.fired
            purge(log, 6, keep=2)
            assert slots(inner) == [0, 4, 8, 9, 12, *range(14, 22)]
            run_batch(owned, 10, floor=6)
            assert recover(log).next_batch == 11
        assert at > 5


@pytest.mark.fault("F29")
def test_a_stale_listing_only_delays_a_purge() -> None:
    """What it leaves out goes when the next milestone is reached."""
    inner = MemoryStore()
    _, owned = long_job(inner)
    store = FaultyStore(inner, Plan(Fault.STALE, at=1, lasting=Lasting.ONCE))
    ever = Purge(Log(store, stride=4), keep=2)
    first = ever.run(6)
    assert 0 < first < 9
    for batch in range(10, 14):
        run_batch(owned, batch, floor=6)
    ever.log.find_tail()
    assert first + ever.run(6) == 9


def test_damage_stops_a_purge() -> None:
    """A log with damage among the Commits to keep is not made smaller; a damaged entry is never deleted."""
    store = MemoryStore()
    log, _ = long_job(store)
    store.delete(log.path(19))
    store.create(log.path(19), b"")
    assert purge(log, 6, keep=3) == 0

    store = MemoryStore()
    log, _ = long_job(store)
    store.delete(log.path(5))
    store.create(log.path(5), b"")
    assert purge(log, 6, keep=2) == 8
    assert store.exists(log.path(5))


def test_purging_every_batch_costs_next_to_nothing() -> None:
    """Most batches ask the store nothing, and the rest little: the whole log stays short."""
    inner = MemoryStore()
    store = FaultyStore(inner)
    log = Log(store, stride=64)
    owned = own(log)
    ever = Purge(log, keep=5)
    spent = []
    for batch in range(500):
        run_batch(owned, batch, floor=max(0, batch - 4))
        before = store.calls
        ever.run(max(0, batch - 4), at_most=16)
        spent.append(store.calls - before)
    assert sum(1 for calls in spent if calls == 0) > 200
    assert max(spent) < 70
    assert len(inner.list("log")) < 64 * 3
    assert [kept.batch for kept in recover(log).kept] == [495, 496, 497, 498, 499]
    leave(owned)


def test_a_short_log_is_never_listed() -> None:
    """Before the first milestone there is nothing to purge."""
    store = FaultyStore(MemoryStore(), Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON))
    log = Log(store.inner)
    owned = own(log)
    run_batch(owned, 0)
    owned.append(offsets(1))
    watched = Log(store)
    watched.seen = log.seen
    assert purge(watched, 0, keep=1) == 0
    assert not store.fired
