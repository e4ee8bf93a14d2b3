"""The owner of the log: it alone appends, and is fenced where another driver has taken over (DESIGN 3, 4)."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_samples import commit, leave, offsets, own, run_batch, takeover
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock.checkpoint.log.entries import Place, Release, Save
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.storage.format import LATER_KINDS
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import (
    CheckpointCorrupt,
    CommitUnknown,
    EntryRefused,
    Fenced,
    FormatTooNew,
    StorageFull,
)


def faulty_log(fault: Fault, at: int, **plan: Any) -> tuple[Log, FaultyStore]:
    """Return a log whose store breaks as planned."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=at, **plan))
    return Log(store), store


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

    store.create(log.path(1), forged(b"{}", version=LATER_KINDS["takeover"] + 1, kind="takeover"))
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
    places = [run_batch(owned, 1).place, survey(log).next_place.saves, log.read(5).place]
    assert places == [
        Place(slot=7, takeover=5, saves={"before": 3}),
        {"before": 3},
        Place(slot=5, takeover=0, saves={"before": 3}),
    ]
