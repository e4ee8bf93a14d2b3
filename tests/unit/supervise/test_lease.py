"""Who supervises a control root: one holds the lease, the others stand by and find out that it is gone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from faulty_store import Fault, FaultyStore, Plan
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CommitUnknown, PenstockError, StorageUnavailable
from penstock.supervise.records import LeaseWatch

FOLDER = "_control/streams/flights"
PATIENCE = 10.0


def path(number, folder=FOLDER):
    return f"{folder}/{number:012d}"


def damage(store, number, folder=FOLDER):
    store.delete(path(number, folder))
    store.create(path(number, folder), b"torn")


LEASE = "_control/supervisor/lease"


def watch(store, writer="a"):
    return LeaseWatch(store, writer=writer, place=f"host:{writer}", patience=PATIENCE)


def test_the_first_supervises_at_once_and_keeps_the_lease():
    """It waits for nobody, however its clock stands; each sign of life is the next record."""
    store = MemoryStore()
    first = watch(store)
    assert first.holder() is None
    assert first.number() == -1
    assert [first.hold(wall=second, monotonic=1e6 + second) for second in range(250)] == [True] * 250
    assert first.number() == 249
    holder = watch(store, "b").holder()
    assert (holder.writer, holder.place, holder.at, holder.left) == ("a", "host:a", 249, False)
    assert len(store.list(LEASE)) < 180


def test_a_standby_takes_over_after_its_patience_without_movement():
    """By its own clock alone: how the wall clocks stand does not matter."""
    store = MemoryStore()
    watch(store).hold(wall=10**18, monotonic=0.0)
    standby = watch(store, "b")
    assert [standby.hold(wall=0, monotonic=500 + seconds) for seconds in (0.0, 5.0, 9.99, 10.0, 11.0)] == [
        False, False, False, True, True,
    ]  # fmt: skip
    assert standby.holder().writer == "b"


def test_each_sign_of_life_makes_the_standby_wait_again():
    """Though the first was long ago."""
    store = MemoryStore()
    holder, standby = watch(store), watch(store, "b")
    for second in range(0, 90, 9):
        assert holder.hold(wall=0, monotonic=float(second))
        assert not standby.hold(wall=0, monotonic=float(second))
    assert not standby.hold(wall=0, monotonic=90.0)
    assert standby.hold(wall=0, monotonic=91.0)


@pytest.mark.fault("F08")
def test_a_holder_whose_next_number_was_taken_has_lost_the_lease():
    """It learns it at its next call, writes over nothing, and stands by as any other."""
    store = MemoryStore()
    paused, other = watch(store), watch(store, "b")
    paused.hold(wall=0, monotonic=0.0)
    other.hold(wall=0, monotonic=0.0)
    assert other.hold(wall=0, monotonic=10.0)
    taken = store.read(path(1, LEASE))
    assert paused.hold(wall=0, monotonic=10.0) is False
    assert store.list(LEASE) == [path(0, LEASE), path(1, LEASE)]
    assert store.read(path(1, LEASE)) == taken
    assert paused.hold(wall=0, monotonic=11.0) is False
    assert other.hold(wall=0, monotonic=12.0) is True
    assert paused.hold(wall=0, monotonic=20.9) is False
    assert paused.hold(wall=0, monotonic=30.9) is True
    assert other.hold(wall=0, monotonic=31.0) is False


@pytest.mark.fault("F08")
def test_a_holder_that_slept_until_its_number_was_pruned_has_lost_the_lease():
    """Its next number is free again, and yet it is not the next."""
    store = MemoryStore()
    paused, other = watch(store), watch(store, "b")
    for _ in range(11):
        paused.hold(wall=0, monotonic=0.0)
    other.hold(wall=0, monotonic=0.0)
    for _ in range(300):
        assert other.hold(wall=0, monotonic=10.0)
    assert not store.exists(path(11, LEASE))
    assert paused.hold(wall=0, monotonic=10.0) is False
    assert (other.holder().writer, other.hold(wall=0, monotonic=11.0)) == ("b", True)


def test_who_leaves_hands_over_at_once():
    """A standby does not wait for it; who left may come back."""
    store = MemoryStore()
    holder, standby = watch(store), watch(store, "b")
    holder.hold(wall=0, monotonic=0.0)
    assert standby.hold(wall=0, monotonic=0.0) is False
    holder.leave(wall=7)
    assert (standby.holder().left, standby.holder().at) == (True, 7)
    assert standby.hold(wall=0, monotonic=0.1) is True
    assert holder.hold(wall=0, monotonic=0.2) is False
    standby.leave(wall=8)
    assert holder.hold(wall=0, monotonic=0.3) is True


def test_who_does_not_hold_the_lease_has_nothing_to_leave():
    """Neither a standby nor one that never looked writes anything."""
    store = MemoryStore()
    watch(store, "c").leave(wall=0)
    assert store.list("") == []
    watch(store).hold(wall=0, monotonic=0.0)
    standby = watch(store, "b")
    standby.hold(wall=0, monotonic=0.0)
    standby.leave(wall=0)
    assert standby.number() == 0


def test_who_lost_the_lease_without_knowing_leaves_it_alone():
    """The new holder's record stands."""
    store = MemoryStore()
    paused, other = watch(store), watch(store, "b")
    paused.hold(wall=0, monotonic=0.0)
    other.hold(wall=0, monotonic=0.0)
    other.hold(wall=0, monotonic=10.0)
    paused.leave(wall=0)
    assert (other.holder().writer, other.holder().left, other.number()) == ("b", False, 1)
    assert other.hold(wall=0, monotonic=11.0)


def test_of_those_that_stand_by_one_takes_over():
    """The others wait their patience again."""
    store = MemoryStore()
    watch(store).hold(wall=0, monotonic=0.0)
    standbys = [watch(store, writer) for writer in "bcd"]
    assert [standby.hold(wall=0, monotonic=0.0) for standby in standbys] == [False] * 3
    start = threading.Barrier(3)

    def hold(standby):
        start.wait()
        return standby.hold(wall=0, monotonic=10.0)

    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(hold, standbys))
    assert sorted(won) == [False, False, True]
    assert [standby.hold(wall=0, monotonic=19.0) for standby in standbys] == won


@pytest.mark.fault("F23")
def test_a_sign_of_life_whose_acknowledgement_was_lost_keeps_the_lease():
    """It is the holder's own."""
    store = FaultyStore(MemoryStore(), Plan(Fault.AFTER, at=2))
    holder = watch(store)
    assert [holder.hold(wall=0, monotonic=float(second)) for second in range(4)] == [True] * 4
    assert store.fired


@pytest.mark.fault("F23")
def test_a_holder_that_storage_did_not_answer_goes_on_when_it_does():
    """At whichever call it fails: nobody took the lease meanwhile, and what the holder wrote itself is no rival's."""
    at, fired = 0, True
    while fired:
        at += 1
        store, answers = FaultyStore(MemoryStore()), []
        holder = watch(store)
        assert holder.hold(wall=0, monotonic=0.0)
        store.plan, store.calls = Plan(Fault.BEFORE, at=at), 0
        for second in range(1, 4):
            with suppress(StorageUnavailable, CommitUnknown):
                answers.append(holder.hold(wall=0, monotonic=float(second)))
        fired = store.fired
        assert set(answers) == {True}, f"call {at}"
    assert at > 3


@pytest.mark.fault("F13")
def test_a_damaged_lease_is_passed_over():
    """The one before it says who holds it, and it still takes its time to run out."""
    store = MemoryStore()
    holder, standby = watch(store), watch(store, "b")
    for second in range(2):
        holder.hold(wall=second, monotonic=0.0)
    damage(store, 1, LEASE)
    assert standby.holder().at == 0
    assert standby.hold(wall=0, monotonic=0.0) is False
    assert standby.hold(wall=0, monotonic=10.0) is True
    assert standby.number() == 2


@pytest.mark.fault("F21")
def test_a_lease_that_is_whole_and_says_something_else_is_an_error_with_a_code():
    """A later Penstock's, perhaps: the supervisor tells it as it tells trouble with storage."""
    store = MemoryStore()
    Records(store, "supervisor", "lease").put({"writer": "a", "place": "h:1", "at": 0, "later": 1})
    with pytest.raises(PenstockError):
        watch(store).hold(wall=0, monotonic=0.0)


MOVES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["hold", "hold", "hold", "leave"]), st.integers(0, 15)),
    max_size=60,
)


@given(moves=MOVES, skew=st.integers(-1000, 1000))
def test_two_believe_to_hold_it_only_until_the_next_hold_of_one(moves, skew):
    """Whatever their turns and clocks: who is told yes has written the newest record, and the other is told no then."""
    store, now = MemoryStore(), 0
    watches = {writer: watch(store, writer) for writer in "ab"}
    believes = dict.fromkeys("ab", False)
    seen = {}
    for writer, move, passed in moves:
        now += passed
        mine, other = watches[writer], "ab".replace(writer, "")
        before, held = mine.holder(), believes[writer]
        if move == "leave":
            mine.leave(wall=now)
            believes[writer] = False
            continue
        number = mine.number()
        if not held and seen.get(writer, (None, 0))[0] != number:
            seen[writer] = (number, now)
        believes[writer] = mine.hold(wall=now, monotonic=float(now + (skew if writer == "b" else 0)))
        if believes[writer]:
            assert (mine.holder().writer, mine.number()) == (writer, number + 1)
            if before is not None and before.writer == other and not before.left:
                assert now - seen[writer][1] >= PATIENCE
        else:
            assert mine.number() == number
            assert mine.holder() == before
            assert before.writer == other or not held
    if all(believes.values()):
        assert sum(mine.hold(wall=now, monotonic=float(now)) for mine in watches.values()) == 1
