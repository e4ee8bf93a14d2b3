"""Where a job stands, read from every log that a driver or a crash can leave; damage is in `test_log_damage`."""

from __future__ import annotations

import pytest
from checkpoint_samples import batches, commit, job, leave, offsets, overwrite, own, purge, restored, run_batch

from penstock.checkpoint.log.entries import Save, to_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import find_restorable, recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotRestore, CheckpointCorrupt


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
    commits = [*recover(log).kept]
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
        assert (list(recovered.saves.readable()), list(recovered.saves.lost())) == (["b"], ["a"])
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
