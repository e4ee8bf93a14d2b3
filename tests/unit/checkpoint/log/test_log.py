"""The log: finding its tail, appending once, losing acknowledgements, losing the log."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_samples import job, leave, offsets, overwrite, own, run_batch, takeover
from faulty_store import Fault, FaultyStore, Lasting, Plan
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log import log as log_module
from penstock.checkpoint.log.entries import END_OF_TIME, Place, Void, to_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.log.takeover import UNKNOWN_HOLDER, claim, confirm, survey
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import (
    CheckpointCorrupt,
    EntryRefused,
    Fenced,
    LogGap,
    NotFound,
    SlotTaken,
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


def faulty_log(fault: Fault, at: int, **plan: Any) -> tuple[Log, FaultyStore]:
    """Return a log whose store breaks as planned."""
    store = FaultyStore(MemoryStore(), Plan(fault, at=at, **plan))
    return Log(store), store


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
    surveyed = [(view.tail, view.epoch, view.holder, view.released, view.next_epoch) for view in seen]
    assert surveyed == [
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


def test_an_owner_reads_its_entries_again_and_parses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Compaction looks at all entries since the last one, between two batches: parsing them took 150 ms."""
    store, log, owned = job(batches=20)
    parsed: list[str] = []
    parse = log_module.from_bytes
    monkeypatch.setattr(log_module, "from_bytes", lambda data, path: parsed.append(path) or parse(data, path))
    of_owner = recover(log)
    assert parsed == []
    assert of_owner == recover(Log(store))
    assert len(set(parsed)) == owned.next_slot
    parsed.clear()
    overwrite(store, log.path(5), to_bytes(log.read(5))[:-2])
    with pytest.raises(CheckpointCorrupt):
        log.read(5)
    store.delete(log.path(6))
    with pytest.raises(NotFound):
        log.read(6)


def test_what_an_owner_remembers_of_large_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of a job with thousands of partitions have megabytes each: 256 of them would fill the driver."""
    store, log, owned = job(batches=20)
    newest = owned.next_slot - 1
    sizes = [len(store.read(log.path(slot))) for slot in range(newest + 1)]
    monkeypatch.setattr(log_module, "_BYTES", sum(sizes[-3:]))
    again = Log(MemoryStore())
    for slot in range(newest + 1):
        again.append_at(slot, log.read(slot))
    parsed: list[str] = []
    parse = log_module.from_bytes
    monkeypatch.setattr(log_module, "from_bytes", lambda data, path: parsed.append(path) or parse(data, path))
    assert [again.read(slot) for slot in range(newest + 1)] == [log.read(slot) for slot in range(newest + 1)]
    assert parsed == [again.path(slot) for slot in range(newest - 2)]
