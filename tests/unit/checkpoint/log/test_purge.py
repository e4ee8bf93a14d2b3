"""Purging: what goes, what stays, and that nothing notices (decision 58)."""

from __future__ import annotations

import pytest
from checkpoint_samples import leave, offsets, own, run_batch
from faulty_store import Fault, FaultyStore, Lasting, Plan
from structlog.testing import capture_logs

from penstock.checkpoint.log.compaction import EVERY, compact
from penstock.checkpoint.log.entries import Restore, Save
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.purge import Purge
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import StorageUnavailable
from penstock.runtime.driver.retention import Retention

ALL = 1_000
LEFT = [0, 4, 8, 9, 10, 12, 16, *range(18, 25)]
"""What a purge of `long_job` leaves."""


def long_job(store: CheckpointStore) -> tuple[Log, OwnedLog]:
    """Return a log of stride 4 that was released in slot 9 and has Compactions in 19 and 22; batch 6 is the floor."""
    log = Log(store, stride=4)
    owned = own(log)
    for batch in range(4):
        run_batch(owned, batch)
    leave(owned)
    owned = own(log, "w2")
    for batch in range(4, 10):
        run_batch(owned, batch, floor=6)
        if batch in {7, 8}:
            compact(log, owned, every=0)
    return log, owned


def slots(store: CheckpointStore) -> list[int]:
    """Return the slots in use."""
    return [int(path[4:]) for path in store.list("log")]


@pytest.mark.fault("F30")
def test_what_no_compaction_names_goes_and_nothing_else() -> None:
    """Milestones stay, Commits from the floor on and their Takeover, its Release, and all since the last but one."""
    store = MemoryStore()
    log, owned = long_job(store)
    whole = recover(log)
    assert Purge(log).run(owned.compaction, at_most=ALL) == 11
    assert slots(store) == LEFT
    assert recover(log) == whole
    assert [kept.batch for kept in whole.kept] == [6, 7, 8, 9]
    assert Purge(log).run(owned.compaction, at_most=ALL) == 0


@pytest.mark.fault("F30")
def test_of_runs_that_end_by_themselves_no_takeover_stays() -> None:
    """Also where the Release before it is a milestone: each start would read what stays, one more in 4,096 slots."""
    store = MemoryStore()
    log = Log(store, stride=8)
    for number in range(200):
        owned = own(log, f"w{number}")
        run_batch(owned, number, floor=max(0, number - 2))
        compact(log, owned, every=16)
        Purge(log).run(owned.compaction, at_most=ALL)
        leave(owned)
    kept = {slot for slot in slots(store) if slot % 8}
    assert min(kept) > max(kept) - 64
    assert recover(log).next_batch == 200


@pytest.mark.fault("F30")
@pytest.mark.parametrize("compactions", [0, 1])
def test_before_the_second_compaction_nothing_goes(compactions: int) -> None:
    """If the only one could not be read, all that it embeds would be lost."""
    store = MemoryStore()
    log = Log(store, stride=4)
    owned = own(log)
    for batch in range(20):
        run_batch(owned, batch, floor=max(0, batch - 2))
        if batch < compactions:
            compact(log, owned, every=0)
    assert Purge(log).run(owned.compaction, at_most=ALL) == 0


@pytest.mark.fault("F30")
def test_a_call_does_a_bounded_share() -> None:
    """A milestone frees thousands at once, and no batch pays for them all; with a Release goes the Takeover after it."""
    store = MemoryStore()
    log, owned = long_job(store)
    ever = Purge(log)
    deleted = [ever.run(owned.compaction, at_most=3) for _ in range(6)]
    assert sum(deleted) == 11
    assert max(deleted) <= 4
    assert slots(store) == LEFT


@pytest.mark.fault("F30")
def test_processes_begin_at_different_places() -> None:
    """What stays would else stand in the way of each of them."""
    begins = set()
    for more in range(8):
        store = MemoryStore()
        log, owned = long_job(store)
        for batch in range(10, 10 + more):
            run_batch(owned, batch, floor=6)
        before = slots(store)
        Purge(log).run(owned.compaction, at_most=1)
        begins.add((*sorted({*before} - {*slots(store)}),))
    assert len(begins) > 4


@pytest.mark.fault("F30")
@pytest.mark.parametrize("batches", [2, 5])
def test_drivers_that_are_killed_one_after_the_other_leave_their_takeovers_only(batches: int) -> None:
    """Each looks at four entries a batch. Of what they append, what stays for a while is as much as what stays."""
    store = MemoryStore()
    lives = 2_000 // (2 * batches + 1)
    log, number = Log(store, stride=256), 0
    for life in range(lives):
        owned, purge = own(log, f"w{life}"), Purge(log)
        for _ in range(batches):
            run_batch(owned, number, floor=max(0, number - 2))
            compact(log, owned, every=16)
            purge.run(owned.compaction)
            number += 1
    left = slots(store)
    assert len(left) < 2 * lives + 2 * 256
    assert recover(log).next_batch == number


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
                Purge(Log(store, stride=4)).run(owned.compaction, at_most=ALL)
            except StorageUnavailable:
                assert recover(log) == whole
            fired = store.fired
            Purge(log).run(owned.compaction, at_most=ALL)
            assert slots(inner) == LEFT
            run_batch(owned, 10, floor=6)
            assert recover(log).next_batch == 11
        assert at > 5


@pytest.mark.fault("F29")
def test_a_stale_listing_only_delays_a_purge() -> None:
    """What it leaves out goes when the next milestone is reached."""
    inner = MemoryStore()
    _, owned = long_job(inner)
    store = FaultyStore(inner, Plan(Fault.STALE, at=1, lasting=Lasting.ONCE))
    ever = Purge(Log(store, stride=4))
    newest = owned.compaction
    first = ever.run(newest, at_most=ALL)
    assert first < 11
    for batch in range(10, 14):
        run_batch(owned, batch, floor=6)
    ever.log.find_tail()
    assert first + ever.run(newest, at_most=ALL) == 11


@pytest.mark.parametrize("slot", [19, 22])
def test_damage_stops_a_purge(slot: int) -> None:
    """Where one of the two Compactions cannot be read the log is not made smaller."""
    store = MemoryStore()
    log, owned = long_job(store)
    store.delete(log.path(slot))
    store.create(log.path(slot), b"")
    assert Purge(log).run(owned.compaction, at_most=ALL) == 0


def test_a_damaged_entry_is_never_deleted() -> None:
    """Nobody knows what it was."""
    store = MemoryStore()
    log, owned = long_job(store)
    store.delete(log.path(5))
    store.create(log.path(5), b"")
    assert Purge(log).run(owned.compaction, at_most=ALL) == 10
    assert store.exists(log.path(5))


@pytest.mark.parametrize("saved", [False, True])
def test_a_restore_that_truncates_stays_while_a_name_stands_before_it(*, saved: bool) -> None:
    """It says that rows of what was saved are in their tables no more (SEMANTICS 10.1)."""
    store = MemoryStore()
    log = Log(store, stride=4)
    owned = own(log)
    done = run_batch(owned, 0)
    if saved:
        owned.append(Save(epoch=1, writer="w1", name="early", commit=done))
    run_batch(owned, 1)
    fields = {"batch": None, "source": "empty", "saved": None, "partitions": None, "truncate": {"out": 1}}
    restore = owned.append(Restore.model_validate({"epoch": 1, "writer": "w1", **fields}))
    for batch in range(2, 20):
        run_batch(owned, batch, floor=0 if owned.compaction is None else batch - 1)
        compact(log, owned, every=6)
    assert Purge(log).run(owned.compaction, at_most=ALL) > 10
    assert restore.place is not None
    assert restore.place.slot % 4
    assert store.exists(log.path(restore.place.slot)) == saved


def test_purging_every_batch_costs_next_to_nothing() -> None:
    """Most batches ask the store nothing, and the rest little: the whole log stays short."""
    inner = MemoryStore()
    store = FaultyStore(inner)
    log = Log(store, stride=64)
    owned = own(log)
    ever = Purge(log)
    spent = []
    for batch in range(500):
        run_batch(owned, batch, floor=max(0, batch - 4))
        before = store.calls
        compact(log, owned, every=32)
        ever.run(owned.compaction, at_most=16)
        spent.append(store.calls - before)
    assert sum(1 for calls in spent if calls == 0) > 200
    assert max(spent) < 100
    assert sum(spent) < 8 * 500
    assert len(inner.list("log")) < 64 * 3
    assert [kept.batch for kept in recover(log).kept] == [495, 496, 497, 498, 499]
    leave(owned)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_newest_compactions_are_read_once(lost: int) -> None:
    """Also where there is only one, or where one cannot be read: not by each batch until there is another."""
    store = MemoryStore()
    log, owned = long_job(store)
    newest = owned.compaction
    assert newest is not None
    for slot in (newest, 19)[:lost]:
        store.delete(log.path(slot))
        store.create(log.path(slot), b"")
    watched = FaultyStore(store)
    ever = Purge(Log(watched, stride=4))
    ever.run(newest, at_most=ALL)
    before = watched.calls
    for _ in range(8):
        ever.run(newest)
    assert watched.calls == before


def test_a_short_log_is_never_listed() -> None:
    """Before the first milestone there is nothing to purge."""
    store = FaultyStore(MemoryStore(), Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON))
    log = Log(store.inner)
    owned = own(log)
    run_batch(owned, 0)
    owned.append(offsets(1))
    watched = Log(store)
    watched.seen = log.seen
    assert Purge(watched).run(None) == 0
    assert not store.fired


@pytest.mark.fault("F13")
def test_a_log_with_damage_is_not_read_again_for_each_batch(tmp_path):
    """A Compaction stays due; whether it can be made is asked once in so many slots, and told once."""
    reads = []

    class Seen(MemoryStore):
        def read(self, path):
            reads.append(path)
            return super().read(path)

    log = Log(Seen(), stride=8)
    owned, janitor, asked = own(log), Retention(tmp_path, keep=2), []
    for batch in range(5):
        run_batch(owned, batch)
    log.store.delete(log.path(6))
    with capture_logs() as events:
        for batch in range(5, 5 + 2 * EVERY):
            run_batch(owned, batch)
            reads.clear()
            janitor.compact(owned)
            asked.append(bool(reads))
    assert sum(asked) == 4, "of 128 batches, which are 256 slots"
    assert [event["event"] for event in events] == ["janitor.not_compacted"]
