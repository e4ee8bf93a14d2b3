"""A name for the newest checkpoint, with which it is kept (SEMANTICS 10.2, DESIGN 4)."""

from __future__ import annotations

import pytest
from checkpoint_samples import commit, leave, offsets, own, run_batch

from penstock.checkpoint.entries import Release, Save, Takeover
from penstock.checkpoint.log import Log
from penstock.checkpoint.memory import MemoryStore
from penstock.checkpoint.recovery import find_restorable, recover
from penstock.errors import CannotSave, Fenced, JobError
from penstock.runtime.saving import save_at_rest
from penstock.runtime.settings import Identity

ME = Identity(holder="me", code_version="c")


@pytest.fixture
def log() -> Log:
    """Batches 0 to 3, left by a driver that had published batch 3 in one sink."""
    found = Log(MemoryStore())
    owned = own(found)
    for batch in range(4):
        owned.append(offsets(batch))
        owned.append(commit(batch))
    leave(owned)
    return found


def entries(log: Log) -> list:
    return [log.read(slot) for slot in range(log.tail() + 1)]


def test_a_job_at_rest_is_saved_and_left(log: Log) -> None:
    """Takeover first and Release last, as whoever writes a log; what is known to be published stays known."""
    before = recover(log)
    saved = save_at_rest(log, "first", ME)
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
    save_at_rest(log, "first", ME)
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
    save_at_rest(log, "first", ME)
    owned = own(log)
    run_batch(owned, 4)
    leave(owned)
    if again:
        save_at_rest(log, "second", ME)
    with pytest.raises(CannotSave, match=r"saved checkpoint 'first' already; the names in use are \['first'"):
        save_at_rest(log, "first", ME)
    after = recover(log)
    assert {name: found.batch for name, found in after.saves.items()} == {
        "first": 3,
        **({"second": 4} if again else {}),
    }
    assert isinstance(entries(log)[-1], Release)


def test_nothing_is_no_checkpoint(log: Log) -> None:
    """Neither a log in which nothing was committed, nor what is no name."""
    empty = Log(MemoryStore())
    leave(own(empty))
    with pytest.raises(CannotSave, match="no batch was committed"):
        save_at_rest(empty, "first", ME)
    with pytest.raises(JobError, match="'../x'"):
        save_at_rest(log, "../x", ME)


def test_who_saves_fences_a_driver_that_was_thought_dead(log: Log) -> None:
    """It finds its next slot taken, as by any takeover."""
    sleeper = own(log)
    save_at_rest(log, "first", ME)
    with pytest.raises(Fenced):
        sleeper.append(offsets(4, sleeper.epoch, sleeper.writer))
