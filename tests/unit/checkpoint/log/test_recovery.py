"""Where a job stands, read from every log that a driver, a crash or damage can leave."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from checkpoint_samples import commit, leave, offsets, own, purge, run_batch, takeover, void

from penstock.checkpoint.log.entries import Entry, Place, Restore, Save, to_bytes
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, find_restorable, recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotRestore, CheckpointCorrupt, FormatTooNew, LogGap


def restore_entry(owned: OwnedLog, **fields: Any) -> Restore:
    """Return a Restore; to a batch unless told otherwise."""
    asked: dict[str, Any] = {"batch": None, "source": "batch", "saved": None, "partitions": None}
    return Restore(epoch=owned.epoch, writer=owned.writer, **asked | fields)


def restored(log: Log, writer: str = "cli", **fields: Any) -> None:
    """Do what `penstock restore` does."""
    owned = own(log, writer)
    owned.append(restore_entry(owned, **fields))
    leave(owned)


def job(batches: int = 3, stride: int = 4_096) -> tuple[MemoryStore, Log, OwnedLog]:
    """Return a log with some batches."""
    store = MemoryStore()
    log = Log(store, stride=stride)
    owned = own(log)
    for batch in range(batches):
        run_batch(owned, batch)
    return store, log, owned


def overwrite(store: MemoryStore, path: str, data: bytes) -> None:
    """Damage a file."""
    store.delete(path)
    store.create(path, data)


def batches(recovered: Recovered) -> list[int]:
    """Return the batches that can be restored."""
    return [kept.batch for kept in recovered.kept]


def test_an_empty_log_is_a_new_job() -> None:
    """No Takeover, no Commit, batch 0 next."""
    recovered = recover(Log(MemoryStore()))
    assert (recovered.tail, recovered.last_takeover, recovered.commit, recovered.pending, recovered.next_batch) == (
        -1,
        None,
        None,
        None,
        0,
    )


def test_offsets_without_commit_are_pending_and_a_commit_decides() -> None:
    """After each entry of two batches, as a crash may leave it."""
    _, log, owned = job(0)
    seen = []
    for entry in (offsets(0), commit(0), offsets(1), commit(1)):
        owned.append(entry)
        recovered = recover(log)
        published = recovered.last_published_commit
        assert published == recovered.commit
        seen.append(
            (
                recovered.commit and recovered.commit.batch,
                recovered.pending and recovered.pending.batch,
                recovered.next_batch,
            )
        )
    assert seen == [(None, 0, 0), (0, None, 1), (0, 1, 1), (1, None, 2)]


def test_a_pending_batch_outlives_takeovers_and_is_finished_by_another_driver() -> None:
    """Its Offsets are those of the dead driver, its Commit that of the living."""
    _, log, owned = job(1)
    first = owned.append(offsets(1, time=77))
    own(log, "w2")
    third = own(log, "w3")
    assert recover(log).pending == first
    third.append(commit(1, third.epoch, "w3"))
    recovered = recover(log)
    assert (recovered.commit and recovered.commit.writer, recovered.pending, batches(recovered)) == ("w3", None, [0, 1])


def test_the_takeover_that_wrote_the_commit_is_told_apart_from_the_last() -> None:
    """A driver that came with other partitions and died at once has not changed what is in force."""
    _, log, _ = job(1)
    own(log, "w2", partitions={"hourly": 99}, code_version="def")
    recovered = recover(log)
    assert recovered.last_takeover
    assert recovered.committed_by
    assert (recovered.last_takeover.code_version, recovered.committed_by.code_version) == ("def", "abc")
    assert recovered.partitions == {"hourly": 8}


# --- damage ----------------------------------------------------------------------------------

HEADERS_ONLY = {"header whole": lambda data: data[: data.index(b"\n") + 5]}
TORN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half a header": lambda data: data[:20],
    "garbage": lambda data: bytes(reversed(data)),
}


@pytest.mark.fault("F13")
@pytest.mark.parametrize("tear", (TORN | HEADERS_ONLY).values(), ids=(TORN | HEADERS_ONLY).keys())
def test_torn_offsets_at_the_end_are_given_up_with_their_id(tear: Callable[[bytes], bytes]) -> None:
    """No Commit can have followed, so batch 3 was never visible; a Void says so, and batch 4 is next."""
    store, log, owned = job(3)
    path = log.path(owned.next_slot)
    owned.append(offsets(3))
    overwrite(store, path, tear(store.read(path)))
    owned = own(log, "w2")
    recovered = recover(log)
    assert [(lost.slot, lost.path, lost.batch) for lost in recovered.damaged] == [(7, path, 3)]
    assert (recovered.commit and recovered.commit.batch, recovered.pending, recovered.next_batch) == (2, None, 4)
    owned.append(void(recovered.damaged[0], owned))
    run_batch(owned, 4)
    recovered = recover(log)
    assert (recovered.damaged, batches(recovered), recovered.next_batch) == ((), [0, 1, 2, 4], 5)


@pytest.mark.fault("F13")
@pytest.mark.parametrize("between", [0, 1, 2], ids=lambda number: f"{number} takeovers before it")
@pytest.mark.parametrize("tear", (TORN | HEADERS_ONLY).values(), ids=(TORN | HEADERS_ONLY).keys())
def test_what_may_have_been_a_commit_is_never_given_up(tear: Callable[[bytes], bytes], between: int) -> None:
    """With Offsets pending the torn entry may have been their Commit, and its batch published.

    Also when a Takeover stands between them.
    """
    store, log, owned = job(3)
    owned.append(offsets(3))
    for number in range(between):
        owned = own(log, f"w{number}")
    path = log.path(owned.next_slot)
    owned.append(commit(3, owned.epoch, owned.writer))
    overwrite(store, path, tear(store.read(path)))
    for _ in range(2):
        with pytest.raises(CheckpointCorrupt, match=path):
            recover(log)
        own(log, "next")


@pytest.mark.fault("F13")
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("kind", ["takeover", "release"])
def test_a_torn_entry_whose_header_shows_that_it_decided_nothing_is_given_up(kind: str, *, pending: bool) -> None:
    """A torn Takeover of a rival does not block a batch that is pending."""
    store, log, owned = job(1)
    if pending:
        owned.append(offsets(1))
    path = log.path(owned.next_slot)
    own(log, "w2") if kind == "takeover" else leave(owned)
    overwrite(store, path, store.read(path)[:-1])
    owned = own(log, "w3")
    assert owned.epoch == 3
    recovered = recover(log)
    assert [lost.batch for lost in recovered.damaged] == [None]
    assert (recovered.next_batch, recovered.pending is not None) == (1, pending)
    owned.append(void(recovered.damaged[0], owned))
    if not pending:
        owned.append(offsets(1, owned.epoch, "w3"))
    owned.append(commit(1, owned.epoch, "w3"))
    assert batches(recover(log)) == [0, 1]


@pytest.mark.fault("F13")
@pytest.mark.fault("F68")
@pytest.mark.parametrize("part", [slice(None, -1), slice(1, None)], ids=["header whole", "body whole"])
def test_a_damaged_restore_is_never_given_up_whichever_part_can_be_read(part: slice) -> None:
    """Somebody was told that it was done; more damage to it makes nobody less careful."""
    store, log, owned = job(2)
    path = log.path(owned.next_slot)
    owned.append(restore_entry(owned, batch=0))
    overwrite(store, path, store.read(path)[part])
    with pytest.raises(CheckpointCorrupt, match="it was a restore entry"):
        recover(log)


@pytest.mark.fault("F68")
@pytest.mark.parametrize("part", [slice(None, -1), slice(1, None)], ids=["header whole", "body whole"])
@pytest.mark.parametrize("later", [0, 1], ids=["at the end", "in the middle"])
def test_a_damaged_save_does_not_stop_the_stream(part: slice, later: int) -> None:
    """The name is lost, and nothing that the stream is made of."""
    store, log, owned = job(2)
    path = log.path(owned.next_slot)
    done = recover(log).commit
    assert done
    owned.append(Save(epoch=1, writer="w1", name="n", commit=done))
    if later:
        run_batch(owned, 2)
    overwrite(store, path, store.read(path)[part])
    recovered = recover(log)
    assert [lost.kind for lost in recovered.damaged] == ["save"] * (1 - later)
    assert (recovered.next_batch, list(recovered.lost_saves)) == (2 + later, ["n"] * later)


@pytest.mark.fault("F68")
@pytest.mark.parametrize("fresh", [True, False])
def test_what_may_have_been_a_restore_is_never_given_up(*, fresh: bool) -> None:
    """Right behind a Takeover one may stand, and behind a batch of the same driver never."""
    store, log, owned = job(1)
    if fresh:
        owned = own(log, "w2")
    store.create(log.path(owned.next_slot), b"")
    if not fresh:
        assert [lost.batch for lost in recover(log).damaged] == [1]
        return
    with pytest.raises(CheckpointCorrupt, match="it may be a Restore"):
        recover(log)
    again = own(log, "w3")
    with pytest.raises(CheckpointCorrupt, match="it may be a Restore"):
        recover(log)
    again.append(restore_entry(again, batch=0))
    assert recover(log).next_batch == 2


@pytest.mark.fault("F68")
def test_the_file_of_another_slot_tells_nothing_of_what_stood_in_its_own() -> None:
    """Its header is whole, and of another entry."""
    store, log, owned = job(1)
    owned.append(offsets(1))
    path = log.path(owned.next_slot)
    owned.append(commit(1))
    overwrite(store, path, store.read(log.path(0)))
    with pytest.raises(CheckpointCorrupt, match="it may be the Commit of batch 1"):
        recover(log)


@pytest.mark.fault("F13")
def test_several_torn_entries_at_the_end_are_all_given_up() -> None:
    """A driver may die while it writes the Void as well."""
    store, log, _ = job(1)
    store.create(log.path(3), b"")
    owned = own(log, "w2")
    owned.append(void(recover(log).damaged[0], owned))
    overwrite(store, log.path(5), store.read(log.path(5))[:-1])
    owned = own(log, "w3")
    recovered = recover(log)
    assert [(lost.slot, lost.batch) for lost in recovered.damaged] == [(3, 1), (5, None)]
    assert recovered.next_batch == 2
    for lost in recovered.damaged:
        owned.append(void(lost, owned))
    run_batch(owned, 2)
    assert recover(log).next_batch == 3


@pytest.mark.fault("F13")
def test_an_entry_that_was_given_up_stays_so_when_it_can_be_read_again() -> None:
    """A file put back from a backup after its Void changes nothing."""
    store, log, owned = job(1)
    path = log.path(owned.next_slot)
    whole = to_bytes(owned.append(offsets(1)))
    overwrite(store, path, b"")
    owned = own(log, "w2")
    owned.append(void(recover(log).damaged[0], owned))
    before = recover(log)
    overwrite(store, path, whole)
    assert recover(log) == before


@pytest.mark.fault("F13")
def test_damage_before_the_end_is_an_error_until_a_restore_makes_up_for_it() -> None:
    """Nothing is skipped in silence, and the remedy that the error names works."""
    store, log, _ = job(5)
    overwrite(store, log.path(7), b"damaged")  # Offsets 3
    with pytest.raises(CheckpointCorrupt, match=log.path(7)):
        recover(log)
    listed = recover(log, Damage.LIST)
    assert [error.where for error in listed.problems] == [log.path(7), log.path(8)]
    restored(log, batch=2)
    recovered = recover(log)
    assert (recovered.commit and recovered.commit.batch, recovered.next_batch, recovered.problems) == (2, 5, ())
    run_batch(own(log, "w2"), 5)
    assert batches(recover(log)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.fault("F13")
def test_a_damaged_newest_commit_can_be_restored_over_and_its_id_is_not_used_again() -> None:
    """Its batch may be in the sinks under its id."""
    store, log, _ = job(5)
    overwrite(store, log.path(10), b"damaged")
    restored(log, batch=3)
    recovered = recover(log)
    assert (recovered.commit and recovered.commit.batch, recovered.pending, batches(recovered)) == (
        3,
        None,
        [0, 1, 2, 3],
    )
    assert recovered.next_batch == 5
    run_batch(own(log, "w2"), recovered.next_batch)
    assert recover(log).problems == ()


@pytest.mark.fault("F13")
def test_a_restore_that_fixes_the_partitions_makes_up_for_a_lost_takeover() -> None:
    """Only the Takeover knew them; so the Restore has to say them anew."""
    store, log, _ = job(3)
    overwrite(store, log.path(0), b"damaged")
    restored(log, batch=1)
    with pytest.raises(CheckpointCorrupt, match=log.path(0)):
        recover(log)
    restored(log, batch=1, partitions={"hourly": 8})
    recovered = recover(log)
    assert (recovered.commit and recovered.commit.batch, recovered.committed_by, recovered.partitions) == (
        1,
        None,
        {"hourly": 8},
    )


@pytest.mark.fault("F16")
@pytest.mark.parametrize("missing", [0, 1, 2, 3, 4, 5], ids=str)
def test_a_gap_that_the_search_takes_for_the_end_is_listed_too(missing: int) -> None:
    """Who only shows the log would show a shorter one, and nothing amiss."""
    store, log, _ = job()
    store.delete(log.path(missing))
    with pytest.raises(LogGap) as caught:
        recover(log)
    first = recover(Log(store, stride=4_096), Damage.LIST).problems[0]
    assert isinstance(first, LogGap)
    assert first.fields["missing"] == caught.value.fields["missing"] == [missing]


@pytest.mark.fault("F16")
@pytest.mark.parametrize("missing", [[7], [3, 4], [1], [9]], ids=str)
def test_a_gap_above_the_floor_is_named(missing: list[int]) -> None:
    """The job stops, and what is there stays there."""
    store, log, _ = job(5)
    for slot in missing:
        store.delete(log.path(slot))
    before = dict(store._files)
    with pytest.raises(LogGap) as caught:
        recover(log)
    assert caught.value.fields["missing"] == missing
    assert store._files == before


@pytest.mark.fault("F20")
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([commit(2)], "a Commit of batch 2 without its Offsets"),
        ([offsets(2), commit(3)], "a Commit of batch 3 without its Offsets"),
        ([offsets(2), commit(2), commit(2)], "a Commit of batch 2 without its Offsets"),
        ([offsets(3)], "Offsets of batch 3 after batch 1"),
        ([offsets(1)], "Offsets of batch 1 after batch 1"),
        ([offsets(2), offsets(3)], "Offsets of batch 3 while batch 2 has no Commit"),
        ([offsets(2), offsets(2)], "Offsets of batch 2 while batch 2 has no Commit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_batches_out_of_order_are_damage(entries: list[Entry], reason: str) -> None:
    """Offsets and Commits alternate, and ids count up by one."""
    _, log, owned = job(2)
    for entry in entries:
        owned.append(entry)
    with pytest.raises(CheckpointCorrupt, match=reason):
        recover(log)


@pytest.mark.fault("F07", "F20")
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (offsets(2, epoch=7, writer="w7"), "epoch 7 while epoch 1 held the log"),
        (offsets(2, epoch=1, writer="w7"), "epoch 1 while epoch 1 held the log"),
        (takeover(1, "w2"), "epoch 1 takes over after epoch 1"),
    ],
    ids=["another epoch", "another writer", "an epoch twice"],
)
def test_an_entry_of_who_did_not_hold_the_log_is_damage(entry: Entry, reason: str) -> None:
    """If fencing ever failed, recovery would not hide it."""
    _, log, owned = job(2)
    log.append_at(owned.next_slot, entry.model_copy(update={"place": Place(slot=owned.next_slot, takeover=0)}))
    with pytest.raises(CheckpointCorrupt, match=reason):
        recover(log)


@pytest.mark.fault("F20")
def test_an_entry_after_the_release_is_damage() -> None:
    """Who left holds nothing."""
    _, log, owned = job(1)
    leave(owned)
    log.append_at(4, offsets(1, place=Place(slot=4, takeover=0)))
    with pytest.raises(CheckpointCorrupt, match="after the log was released"):
        recover(log)


@pytest.mark.fault("F21")
@pytest.mark.parametrize("damage", list(Damage))
def test_an_entry_of_a_later_format_stops_every_reader(damage: Damage) -> None:
    """Both versions are named and nothing is written."""
    from test_format import forged

    store, log, _ = job(2)
    overwrite(store, log.path(3), forged(b"{}", version=3, kind="offsets"))
    before = dict(store._files)
    with pytest.raises(FormatTooNew, match="version 3"):
        recover(log, damage)
    assert store._files == before


@pytest.mark.slow
@pytest.mark.fault("F13", "F16")
def test_every_byte_of_a_small_log_flipped_is_noticed() -> None:
    """Recovery answers with a named error, or lists the entry as damaged; never with anything else.

    The last entry is a Release, so nothing that was decided may be given up.
    """
    store, log, owned = job(2)
    leave(owned)
    rng = random.Random(1)
    truth = recover(log)
    for path in store.list(""):
        whole = store.read(path)
        for at in range(len(whole)):
            overwrite(store, path, whole[:at] + bytes([whole[at] ^ rng.randrange(1, 256)]) + whole[at + 1 :])
            recovered = recover(log, Damage.LIST)
            assert path in {error.where for error in recovered.problems} | {lost.path for lost in recovered.damaged}
            assert recovered.problems or (path, recovered.commit, recovered.pending) == (
                log.path(5),
                truth.commit,
                None,
            )
        overwrite(store, path, whole)
    assert recover(log) == truth


# --- restore and save ------------------------------------------------------------------------


def test_a_restore_brings_a_batch_back_and_uses_no_id_twice() -> None:
    """State of batch 1, next id 5, nothing published again; the pending batch is abandoned."""
    _, log, owned = job(4)
    owned.append(offsets(4))
    leave(owned)
    restored(log, batch=1)
    recovered = recover(log)
    assert recovered.commit
    assert (recovered.commit.batch, recovered.pending, recovered.next_batch, recovered.last_published_commit) == (
        1,
        None,
        5,
        None,
    )
    owned = own(log, "w2")
    run_batch(owned, 5)
    recovered = recover(log)
    assert recovered.commit
    assert recovered.last_published_commit
    assert (recovered.commit.batch, recovered.last_published_commit.batch, recovered.next_batch) == (5, 5, 6)
    assert (batches(recovered), [entry.batch for entry in recovered.restores]) == ([0, 1, 2, 3, 5], [1])


def test_a_restore_is_undone_by_a_restore_to_a_batch_before_it() -> None:
    """Batches that a Restore went back behind are still kept."""
    _, log, _ = job(4)
    restored(log, batch=1)
    restored(log, batch=3)
    recovered = recover(log)
    assert (recovered.commit and recovered.commit.batch, recovered.next_batch) == (3, 4)


def test_a_restore_to_empty_leaves_no_commit() -> None:
    """State and positions are none; ids go on."""
    _, log, _ = job(3)
    restored(log, source="empty")
    recovered = recover(log)
    assert (recovered.commit, recovered.partitions, recovered.next_batch, batches(recovered)) == (
        None,
        None,
        3,
        [0, 1, 2],
    )


def test_a_restore_fixes_partitions_and_otherwise_keeps_those_of_its_batch() -> None:
    """Until a Commit is written under a Takeover that has them."""
    _, log, _ = job(2)
    second = own(log, "w2", partitions={"hourly": 4})
    run_batch(second, 2)
    seen = [recover(log).partitions]
    restored(log, batch=1)
    seen.append(recover(log).partitions)
    restored(log, batch=1, partitions={"hourly": 2})
    seen.append(recover(log).partitions)
    run_batch(own(log, "w3", partitions={"hourly": 2}), 3)
    seen.append(recover(log).partitions)
    assert seen == [{"hourly": 4}, {"hourly": 8}, {"hourly": 2}, {"hourly": 2}]


def test_a_saved_checkpoint_outlives_every_purge() -> None:
    """It is found, and restored, when its batch has long gone from the log."""
    store, log, owned = job(2, stride=4)
    done = recover(log).commit
    assert done
    owned.append(Save(epoch=1, writer="w1", name="before", commit=done))
    for batch in range(2, 40):
        run_batch(owned, batch, floor=batch)
        purge(log, owned, compact_every=6)
    leave(owned)
    assert not store.exists(log.path(2))
    recovered = recover(log)
    assert (recovered.saves, batches(recovered)) == ({"before": done}, [39])
    assert find_restorable(recovered, saved="before") == done
    restored(log, source="saved", saved="before")
    recovered = recover(log)
    assert (recovered.commit, recovered.next_batch, recovered.partitions) == (done, 40, {"hourly": 8})


def test_the_newest_save_of_a_name_counts() -> None:
    """A name can be given again; a Restore goes by what the name meant then."""
    _, log, owned = job(2)
    commits = [kept.commit for kept in recover(log).kept]
    for done in commits:
        owned.append(Save(epoch=1, writer="w1", name="n", commit=done))
    leave(owned)
    restored(log, source="saved", saved="n")
    owned = own(log, "w2")
    owned.append(Save(epoch=owned.epoch, writer="w2", name="n", commit=commits[0]))
    recovered = recover(log)
    assert (recovered.commit, recovered.saves) == (commits[1], {"n": commits[0]})


@pytest.mark.fault("F13")
def test_a_save_that_cannot_be_read_is_told_and_the_others_stay() -> None:
    """The stream goes on; to restore it is refused with the reason; a Restore to it that is in force stops the job."""
    store, log, owned = job(1, stride=4)
    done = recover(log).commit
    assert done
    for name in ("a", "b"):
        owned.append(Save(epoch=1, writer="w1", name=name, commit=done))
    for batch in range(1, 20):
        run_batch(owned, batch, floor=batch)
        purge(log, owned, compact_every=6)
    leave(owned)
    whole = store.read(log.path(3))
    for broken in (b"", to_bytes(done)):
        overwrite(store, log.path(3), broken)
        recovered = recover(log)
        assert (list(recovered.saves.readable()), list(recovered.lost_saves)) == (["b"], ["a"])
        with pytest.raises(CannotRestore, match="cannot be read"):
            find_restorable(recovered, saved="a")
    overwrite(store, log.path(3), whole)
    restored(log, source="saved", saved="a")
    store.delete(log.path(3))
    with pytest.raises(CheckpointCorrupt, match=log.path(3)):
        recover(log)


@pytest.mark.fault("F30")
def test_a_restore_below_the_floor_is_refused_with_what_is_there() -> None:
    """By number, by name, and for a batch that never was."""
    _, log, owned = job(3, stride=4)
    for batch in range(3, 12):
        run_batch(owned, batch, floor=batch - 2)
    recovered = recover(log)
    assert [find_restorable(recovered, batch=batch).batch for batch in (9, 10, 11)] == [9, 10, 11]
    for asked in ({"batch": 8}, {"batch": 12}, {"batch": -1}, {"saved": "n"}):
        with pytest.raises(CannotRestore, match="batches 9 to 11") as caught:
            find_restorable(recovered, **asked)  # type: ignore[arg-type]
        assert caught.value.fields["batches"] == [9, 10, 11]
    with pytest.raises(CannotRestore, match="no batch"):
        find_restorable(recover(Log(MemoryStore())), batch=0)


@pytest.mark.parametrize("fields", [{"batch": 99}, {"source": "saved", "saved": "n"}], ids=str)
def test_a_restore_to_what_is_not_there_is_damage(fields: dict[str, Any]) -> None:
    """The command checks; a log that says otherwise is wrong."""
    _, log, _ = job(2)
    restored(log, **fields)
    with pytest.raises(CheckpointCorrupt, match="a Restore to"):
        recover(log)
    assert recover(log, Damage.LIST).commit is None


def test_an_entry_that_names_no_takeover_is_damage() -> None:
    """Its owner and partitions could not be told."""
    log = Log(MemoryStore())
    log.append_at(0, offsets(0))
    with pytest.raises(CheckpointCorrupt, match="names no Takeover"):
        recover(log)
