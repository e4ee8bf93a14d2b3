"""The log: finding its tail, appending once, losing acknowledgements, losing the log."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_samples import commit, leave, offsets, own, run_batch, takeover
from faulty_store import Fault, FaultyStore, Lasting, Plan
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import END_OF_TIME, Place, Release, Save, Void, to_bytes
from penstock.checkpoint.log.log import Log, OwnedLog, ReadBack
from penstock.checkpoint.log.takeover import UNKNOWN_HOLDER, claim, confirm, survey
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import (
    CheckpointCorrupt,
    CommitUnknown,
    EntryRefused,
    Fenced,
    FormatTooNew,
    LogGap,
    NotFound,
    SlotTaken,
    StorageFull,
)


class Counting(MemoryStore):
    """A store that counts how often existence is asked, and lists nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def exists(self, path: str) -> bool:
        self.asked += 1
        return super().exists(path)

    def list(self, prefix: str) -> list[str]:
        return []


def filled(store: MemoryStore, log: Log, slots: Any) -> None:
    """Put some bytes into slots."""
    for slot in slots:
        store._files[log.path(slot)] = b""


@given(
    tail=st.integers(-1, 400),
    stride=st.sampled_from([2, 4, 16, 64]),
    purged=st.sets(st.integers(0, 400)),
)
@pytest.mark.fault("F29")
def test_the_tail_is_found_by_existence_alone(tail: int, stride: int, purged: set[int]) -> None:
    """Whatever was purged between the milestones before the newest, and with a listing that shows nothing."""
    store = Counting()
    log = Log(store, stride=stride)
    gone = {slot for slot in purged if log.slots.expendable(slot, tail)}
    filled(store, log, set(range(tail + 1)) - gone)
    assert log.find_tail() == log.tail() == tail
    assert log.seen == tail


def test_milestones_and_what_follows_the_newest_are_never_expendable() -> None:
    """The rule of DESIGN 4, with its number."""
    slots = Log(MemoryStore()).slots
    assert [slots.expendable(slot, 9_000) for slot in (0, 1, 4_095, 4_096, 8_191, 8_192, 8_193)] == [
        False,
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert not any(slots.expendable(slot, 4_095) for slot in range(4_096))


def test_a_long_log_is_searched_in_few_questions() -> None:
    """Five million entries, most of them purged: some forty questions."""
    store = Counting()
    log = Log(store)
    filled(store, log, range(0, 5_000_001, 4_096))
    filled(store, log, range(5_000_000 - 5_000_000 % 4_096, 5_000_001))
    assert log.find_tail() == 5_000_000
    assert store.asked < 45


@pytest.mark.fault("F16")
@pytest.mark.parametrize("missing", [[0], [4], [8], [0, 4], [16], [16, 18], [4, 17, 18]], ids=str)
def test_entries_that_are_missing_are_named_before_anything_is_written(missing: list[int]) -> None:
    """The search alone takes a hole for the end, and a claim there would hide the loss."""
    store = MemoryStore()
    log = Log(store, stride=4)
    owned = own(log)
    for batch in range(9):
        run_batch(owned, batch)
    owned.append(offsets(9))
    for slot in missing:
        store.delete(log.path(slot))
    assert Log(store, stride=4).find_tail() < 19
    with pytest.raises(LogGap) as caught:
        survey(Log(store, stride=4))
    assert caught.value.fields["missing"] == missing
    assert log.path(missing[0]) in str(caught.value)


@pytest.mark.fault("F29")
def test_a_stale_listing_neither_hides_the_tail_nor_invents_a_gap() -> None:
    """Old names, names twice and names of purged entries change nothing."""
    store = FaultyStore(MemoryStore(), Plan(Fault.STALE, at=1, lasting=Lasting.FROM_THEN_ON))
    log = Log(store, stride=4)
    owned = own(log)
    for batch in range(6):
        run_batch(owned, batch)
        assert log.tail() == 2 * batch + 2
    assert store.fired


def test_a_log_that_grows_while_it_is_looked_at_is_no_gap() -> None:
    """The listing may show more than the search found a moment before."""
    store = MemoryStore()
    log = Log(store, stride=4)
    owned = own(log)
    batches = iter(range(100))

    class Growing(MemoryStore):
        def list(self, prefix: str) -> list[str]:
            for _ in range(5):
                run_batch(owned, next(batches))
            return super().list(prefix)

    growing = Growing()
    growing._files = store._files
    assert Log(growing, stride=4).tail() == 10


def test_entries_are_read_back_to_the_first_that_is_gone() -> None:
    """History ends where purging has been."""
    store = MemoryStore()
    log = Log(store)
    owned = own(log)
    run_batch(owned, 0)
    run_batch(owned, 1)
    assert [(slot, entry.kind) for slot, entry in log.entries_back(3)] == [
        (3, "offsets"),
        (2, "commit"),
        (1, "offsets"),
        (0, "takeover"),
    ]
    store.delete(log.path(1))
    assert [slot for slot, _ in log.entries_back(4)] == [4, 3, 2]
    with pytest.raises(NotFound):
        log.read(1)


@pytest.mark.fault("F13")
def test_history_passes_over_what_was_given_up() -> None:
    """And stops at damage that was not."""
    store = MemoryStore()
    log = Log(store)
    run_batch(own(log), 0)
    store.create(log.path(3), b"")
    owned = own(log, "w2")
    with pytest.raises(CheckpointCorrupt):
        list(log.entries_back(4))
    owned.append(Void(epoch=owned.epoch, writer="w2", slot=3, reason="torn", batch=1))
    assert [slot for slot, _ in log.entries_back(5)] == [5, 4, 2, 1, 0]


@pytest.mark.fault("F13")
def test_an_entry_copied_to_another_slot_is_damage() -> None:
    """A whole file under a name that is not its own."""
    store = MemoryStore()
    log = Log(store)
    own(log)
    store.create(log.path(1), store.read(log.path(0)))
    with pytest.raises(CheckpointCorrupt, match="another slot"):
        log.read(1)
    with pytest.raises(EntryRefused):
        log.append_at(2, takeover(place=Place(slot=1)))


def test_a_taken_slot_shows_who_holds_it() -> None:
    """The loser of a race gets the winner's entry."""
    log = Log(MemoryStore())
    log.append_at(0, takeover(writer="winner"))
    with pytest.raises(SlotTaken) as caught:
        log.append_at(0, takeover(writer="loser"))
    assert caught.value.fields["holder"] == log.read(0)
    assert log.read(0).writer == "winner"


def faulty_log(fault: Fault, at: int, read_back: ReadBack = ReadBack.SKIP, **plan: Any) -> tuple[Log, FaultyStore]:
    """Return a log whose store breaks as planned."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=at, **plan))
    return Log(store, read_back=read_back), store


@pytest.mark.fault("F23")
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_lost_acknowledgement_is_settled_by_reading(at: int) -> None:
    """The name is taken, but by ourselves: each append counts once."""
    log, store = faulty_log(Fault.AFTER, at)
    owned = own(log)
    run_batch(owned, 0)
    run_batch(owned, 1)
    assert store.fired
    assert [entry.kind for _, entry in log.entries_back(log.find_tail())] == [
        "commit",
        "offsets",
        "commit",
        "offsets",
        "takeover",
    ]


@pytest.mark.fault("F23")
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_an_outcome_that_stays_open_is_unknown_and_keeps_its_slot(fault: Fault) -> None:
    """No other entry may be tried for the slot, because the first may still arrive; the same one may."""
    log, store = faulty_log(fault, at=10**6)
    owned = own(log)
    plan = Plan(fault, at=1, lasting=Lasting.FROM_THEN_ON)
    store.plan, store.calls = plan, 0
    entry = offsets(0)
    if fault is Fault.BEFORE:
        with pytest.raises(CommitUnknown) as caught:
            owned.append(entry)
        assert caught.value.exit_code == 75
        store.plan = None
        for other in (offsets(0, time=5), Release(epoch=1, writer="w1", reason="give up")):
            with pytest.raises(CommitUnknown, match="offsets"):
                owned.append(other)
        owned.append(entry)
    else:
        owned.append(entry)  # settled by reading, though no create is ever acknowledged
    store.plan = None
    leave(owned)
    assert [entry.kind for _, entry in log.entries_back(2)] == ["release", "offsets", "takeover"]


@pytest.mark.fault("F27")
def test_after_disk_full_any_entry_may_follow() -> None:
    """Disk full means: not written. Unless an earlier try is still on its way."""
    log, store = faulty_log(Fault.FULL, at=2)
    owned = own(log)
    with pytest.raises(StorageFull):
        owned.append(offsets(0))
    leave(owned)
    assert log.read(1).kind == "release"

    class FullOnRetry(FaultyStore):
        def create(self, path: str, data: bytes) -> None:
            if self.fired:
                raise StorageFull("full", where=path)
            super().create(path, data)

    store = FullOnRetry(MemoryStore(), Plan(Fault.BEFORE, at=10**6))
    owned = own(Log(store))
    store.plan, store.calls = Plan(Fault.BEFORE, at=1), 0
    with pytest.raises(CommitUnknown):
        owned.append(offsets(0))


@pytest.mark.fault("F24")
def test_a_create_that_was_acknowledged_but_is_absent_is_repeated() -> None:
    """Read back where asked; else CommitUnknown when it never appears."""
    log, store = faulty_log(Fault.VANISHED, at=2, read_back=ReadBack.VERIFY)
    owned = own(log)
    run_batch(owned, 0)
    assert store.fired
    assert log.read(1).kind == "offsets"
    store.plan, store.calls = Plan(Fault.VANISHED, at=1, lasting=Lasting.FROM_THEN_ON), 0
    with pytest.raises(CommitUnknown):
        owned.append(offsets(1))


@pytest.mark.fault("F07", "F08")
def test_the_owner_of_a_taken_log_is_fenced_for_good() -> None:
    """It learns both epochs and the holder, whatever it was about to write, and asks the store no more."""
    log = Log(MemoryStore())
    first, second = own(log, "w1"), None
    run_batch(first, 0)
    second = own(log, "w2")
    for entry in (offsets(1), commit(1), Release(epoch=1, writer="w1", reason="r")):
        with pytest.raises(Fenced, match="host-w2") as caught:
            first.append(entry)
        error = caught.value
        assert (error.fields["epoch_mine"], error.fields["epoch_seen"], error.fields["holder"]) == (1, 2, "host-w2")
        assert error.exit_code == 77
    run_batch(second, 1)
    assert second.next_slot == 6


def test_anything_but_a_takeover_in_the_owners_slot_is_damage() -> None:
    """Nobody else may write there, so the log is not what it should be."""
    store = MemoryStore()
    log = Log(store)
    owned = own(log)
    log.append_at(1, offsets(0, epoch=9, writer="w9"))
    with pytest.raises(CheckpointCorrupt, match="epoch 9"):
        owned.append(offsets(0))

    store.create(log.path(2), b"torn")
    owned = OwnedLog(log, takeover(place=Place(slot=1)))
    for _ in range(2):
        with pytest.raises(CheckpointCorrupt):
            owned.append(offsets(0))


@pytest.mark.fault("F21")
def test_a_later_penstock_takes_over_from_an_earlier_one() -> None:
    """The earlier one is fenced; a third of the earlier version refuses to begin and writes nothing."""
    store = MemoryStore()
    log = Log(store)
    owned = own(log)
    from test_format import forged

    store.create(log.path(1), forged(b"{}", version=3, kind="takeover"))
    with pytest.raises(Fenced, match="later Penstock"):
        owned.append(offsets(0))
    before = dict(store._files)
    with pytest.raises(FormatTooNew):
        survey(log)
    assert store._files == before


@pytest.mark.parametrize(
    "entry",
    [offsets(0, epoch=2), offsets(0, writer="w2"), takeover(), Save(epoch=1, writer="w1", name="n", commit=commit(0))],
    ids=["epoch", "writer", "takeover", "save of a commit that is in no log"],
)
def test_the_owner_writes_as_itself_only(entry: Any) -> None:
    """What would break the log is refused before it is written."""
    log = Log(MemoryStore())
    owned = own(log)
    with pytest.raises(EntryRefused):
        owned.append(entry)
    assert log.find_tail() == 0


def test_after_release_nothing_is_written() -> None:
    """Who has left takes over again, like everyone else."""
    log = Log(MemoryStore())
    owned = own(log)
    leave(owned)
    with pytest.raises(EntryRefused, match="released"):
        owned.append(offsets(0))
    assert survey(log).released


def test_entries_point_at_their_takeover_and_at_the_saves() -> None:
    """So that both are found in a log of any length."""
    log = Log(MemoryStore())
    owned = own(log)
    done = run_batch(owned, 0)
    owned.append(Save(epoch=1, writer="w1", name="before", commit=done))
    leave(owned)
    owned = own(log, "w2")
    places = [run_batch(owned, 1).place, survey(log).saves, log.read(5).place]
    assert places == [
        Place(slot=7, takeover=5, saves={"before": 3}),
        {"before": 3},
        Place(slot=5, takeover=0, saves={"before": 3}),
    ]


def test_a_view_tells_who_holds_the_log() -> None:
    """Empty, held, released, taken again."""
    log = Log(MemoryStore())
    seen = [survey(log)]
    owned = own(log, generation=4)
    seen.append(survey(log))
    run_batch(owned, 0)
    seen.append(survey(log))
    leave(owned)
    seen.append(survey(log))
    own(log, "w2")
    seen.append(survey(log))
    told = [(view.tail, view.epoch, view.holder, view.released, view.next_epoch) for view in seen]
    assert told == [
        (-1, 0, None, False, 1),
        (0, 1, "host-w1", False, 2),
        (2, 1, "host-w1", False, 2),
        (3, 1, None, True, 2),
        (4, 2, "host-w2", False, 3),
    ]
    assert [view.takeover.generation if view.takeover else None for view in seen] == [None, 4, 4, 4, 1]


@pytest.mark.fault("F13")
def test_entries_at_the_end_that_cannot_be_read_may_be_takeovers() -> None:
    """The next epoch is above any they may have had, the holder is unknown, and the log is not taken as released."""
    store = MemoryStore()
    log = Log(store)
    leave(own(log))
    store.create(log.path(2), b"")
    store.create(log.path(3), to_bytes(takeover())[:50])
    view = survey(log)
    assert (view.tail, view.epoch, view.damaged, view.released) == (3, 3, 2, False)
    assert own(log, "w2").epoch == 4

    store = MemoryStore()
    log = Log(store)
    store.create(log.path(0), b"")
    assert (survey(log).holder, survey(log).next_epoch) == (UNKNOWN_HOLDER, 2)


def test_a_claim_carries_the_next_epoch() -> None:
    """Two Takeovers never share one."""
    log = Log(MemoryStore())
    own(log)
    with pytest.raises(EntryRefused, match="must carry 2"):
        claim(log, survey(log), takeover(epoch=1, writer="w2"))


@pytest.mark.parametrize("rival", ["entry", "torn"])
def test_a_claim_that_is_beaten_says_so(rival: str) -> None:
    """By an entry, or by one that cannot be read; the next survey sees either."""
    store = MemoryStore()
    log = Log(store)
    view = survey(log)
    if rival == "entry":
        own(log, "w1")
    else:
        store.create(log.path(0), b"torn")
    assert claim(log, view, takeover(writer="w2")) is None
    assert own(log, "w2").epoch == 2


def test_a_claim_that_is_overtaken_before_it_is_confirmed_is_fenced() -> None:
    """By another Takeover, which may be released already."""
    log = Log(MemoryStore())
    slot = claim(log, survey(log), takeover(writer="w1"))
    assert slot == 0
    second = own(log, "w2")
    with pytest.raises(Fenced, match="host-w2"):
        confirm(log, slot)
    leave(second)
    with pytest.raises(Fenced, match="nobody"):
        confirm(log, slot)


def test_end_of_time_is_the_last_microsecond_of_64_bits() -> None:
    """As other engines have it."""
    assert END_OF_TIME == 2**63 - 1
