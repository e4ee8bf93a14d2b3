"""A name for the newest checkpoint, with which it is kept (SEMANTICS 10.2, DESIGN 4)."""

from __future__ import annotations

import pytest
from checkpoint_samples import commit, leave, offsets, own, run_batch

from penstock.checkpoint.log.entries import Release, Save, Takeover, Unsave
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import find_restorable, recover
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import BadName, CannotRestore, CannotSave, Fenced, HolderAlive
from penstock.runtime.driver.savepoint import save_at_rest, unsave_at_rest
from penstock.runtime.driver.settings import Identity

ME = Identity(holder="me", code_version="c")


def anybody(_view: View) -> None:
    """May take over."""


@pytest.fixture
def log() -> Log:
    """Batches 0 to 3, left by a driver that had published batch 3 in one sink."""
    filled = Log(MemoryStore())
    owned = own(filled)
    for batch in range(4):
        owned.append(offsets(batch))
        owned.append(commit(batch))
    leave(owned)
    return filled


def entries(log: Log) -> list:
    return [log.read(slot) for slot in range(log.tail() + 1)]


def test_a_job_at_rest_is_saved_and_left(log: Log) -> None:
    """Takeover first and Release last, as whoever writes a log; what is known to be published stays known."""
    before = recover(log)
    saved = save_at_rest(log, "first", ME, anybody)
    after = recover(log)
    assert [type(entry) for entry in entries(log)[-3:]] == [Takeover, Save, Release]
    assert (saved.commit.batch, after.saves["first"].batch) == (3, 3)
    assert after.last_published_commit is not None
    assert (after.next_batch, after.published, after.last_published_commit.batch) == (4, before.published, 3)
    assert find_restorable(after, saved="first").batch == 3


def test_a_batch_that_was_cut_short_stays_to_be_done(log: Log) -> None:
    """The name is of the newest Commit, and Offsets without one are run again by the next driver."""
    owned = own(log)
    owned.append(offsets(4, owned.epoch, owned.writer))
    save_at_rest(log, "first", ME, anybody)
    after = recover(log)
    assert after.pending is not None
    assert (after.pending.batch, after.saves["first"].batch, after.published) == (4, 3, {})
    owned = own(log)
    owned.append(commit(4, owned.epoch, owned.writer))
    done = recover(log).commit
    assert done is not None
    assert done.batch == 4


@pytest.mark.parametrize("again", [False, True])
def test_a_name_is_given_once(log: Log, *, again: bool) -> None:
    """Whoever asks for it again is told which there are, and the log is left as it was, released."""
    save_at_rest(log, "first", ME, anybody)
    owned = own(log)
    run_batch(owned, 4)
    leave(owned)
    if again:
        save_at_rest(log, "second", ME, anybody)
    with pytest.raises(CannotSave, match=r"saved checkpoint 'first' already; the names in use are \['first'"):
        save_at_rest(log, "first", ME, anybody)
    after = recover(log)
    assert {name: save.batch for name, save in after.saves.items()} == {
        "first": 3,
        **({"second": 4} if again else {}),
    }
    assert isinstance(entries(log)[-1], Release)


def test_nothing_is_no_checkpoint(log: Log) -> None:
    """Neither a log in which nothing was committed, nor what is no name."""
    empty = Log(MemoryStore())
    leave(own(empty))
    with pytest.raises(CannotSave, match="no batch was committed"):
        save_at_rest(empty, "first", ME, anybody)
    with pytest.raises(BadName, match="'../x'") as refused:
        save_at_rest(log, "../x", ME, anybody)
    assert refused.value.where is None  # whoever calls a command has no line of his own there


def test_who_saves_fences_a_driver_that_was_thought_dead(log: Log) -> None:
    """It finds its next slot taken, as by any takeover."""
    sleeper = own(log)
    save_at_rest(log, "first", ME, anybody)
    with pytest.raises(Fenced):
        sleeper.append(offsets(4, sleeper.epoch, sleeper.writer))


@pytest.mark.fault("F13")
def test_behind_an_entry_that_cannot_be_read_nothing_is_saved(log: Log) -> None:
    """A start gives it up; a Save behind it would make it damage that only a restore makes up for."""
    store, tail = log.store, log.tail()
    name = f"log/{tail + 1:012d}"
    store.create(name, b"torn")
    with pytest.raises(CannotSave, match="the log's last entry cannot be read.*start the job first"):
        save_at_rest(log, "first", ME, anybody)
    assert log.tail() == tail + 1
    assert len(recover(log).damaged) == 1


def test_a_driver_that_begins_in_between_is_asked_after_again(log: Log) -> None:
    """Beaten to the slot, one looks who it was, and leaves a driver that lives alone."""
    asked: list[str | None] = []

    def nobody(view: View) -> None:
        asked.append(view.holder)
        if view.holder is not None:
            raise HolderAlive("it lives", holder=view.holder, epoch=view.epoch)
        own(log)  # just now

    with pytest.raises(HolderAlive):
        save_at_rest(log, "first", ME, nobody)
    assert len(asked) == 2
    assert isinstance(entries(log)[-1], Takeover)
    assert recover(log).saves == {}


def test_a_name_is_deleted_at_rest_and_free_again(log: Log) -> None:
    """Nobody can go back to it; what the job goes on from, and what is known of the sinks, stays."""
    before = save_at_rest(log, "first", ME, anybody).commit
    known = recover(log)
    unsave_at_rest(log, "first", ME, anybody)
    after = recover(log)
    assert [type(entry) for entry in entries(log)[-3:]] == [Takeover, Unsave, Release]
    assert (dict(after.saves), after.commit, after.published) == ({}, known.commit, known.published)
    with pytest.raises(CannotRestore, match="'first' was never saved"):
        find_restorable(after, saved="first")
    assert save_at_rest(log, "first", ME, anybody).commit.batch == before.batch
    for name, message in (("other", "there is no saved checkpoint 'other'"), ("../x", "'../x'")):
        with pytest.raises((CannotSave, BadName), match=message):
            unsave_at_rest(log, name, ME, anybody)
    assert list(recover(log).saves) == ["first"]
