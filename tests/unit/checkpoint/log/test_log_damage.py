"""What recovery makes of a log with torn, missing, foreign and misplaced entries."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import (
    batches,
    commit,
    job,
    leave,
    offsets,
    overwrite,
    own,
    restore_entry,
    restored,
    run_batch,
    takeover,
    void,
)

from penstock.checkpoint.log.entries import Entry, Place, Save, to_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CheckpointCorrupt, FormatTooNew, LogGap

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


def folder_at(path: Path) -> None:
    """Put a folder in the place of a file, or where none is."""
    path.unlink(missing_ok=True)
    path.mkdir()


@pytest.mark.fault("F13")
@pytest.mark.parametrize("harm", [folder_at, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_in_the_next_slot_is_damage_that_the_next_driver_gives_up(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """Nobody takes the slot for a free one, which no driver could ever fill."""
    log = Log(LocalStore(tmp_path))
    owned = own(log)
    run_batch(owned, 0)
    leave(owned)
    slot = log.find_tail() + 1
    harm(tmp_path / log.path(slot))
    assert [lost.path for lost in recover(log).damaged] == [log.path(slot)]
    owned = own(log, "w2")
    owned.append(void(recover(log).damaged[0], owned))
    run_batch(owned, recover(log).next_batch)
    recovered = recover(log)
    assert (recovered.damaged, recovered.problems) == ((), ())


@pytest.mark.fault("F13")
def test_a_folder_in_place_of_an_entry_is_damage_like_any_other(tmp_path: Path) -> None:
    """The error names the slot, and what is listed for a restore has the batches before it."""
    log = Log(LocalStore(tmp_path))
    owned = own(log)
    commits = [run_batch(owned, batch) for batch in range(3)]
    leave(owned)
    path = log.path(commits[-1].placed.slot)
    folder_at(tmp_path / path)
    with pytest.raises(CheckpointCorrupt, match=f"not a plain file.*{path}"):
        recover(log)
    assert batches(recover(log, Damage.LIST)) == [0, 1]


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
    assert (recovered.next_batch, list(recovered.saves.lost())) == (2 + later, ["n"] * later)


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
