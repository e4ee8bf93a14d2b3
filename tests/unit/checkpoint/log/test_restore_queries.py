"""A command that is tried again restores nothing twice (DESIGN 11)."""

from __future__ import annotations

import pytest
from checkpoint_samples import leave, own, run_batch

from penstock.checkpoint.log.entries import Restore
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.storage.memory import MemoryStore


def restored(log: Log, command: str | None, *, batch: int = 0) -> None:
    """Go back to a batch, as a command does."""
    owned = own(log, command=command)
    owned.append(
        Restore(
            epoch=owned.epoch,
            writer=owned.writer,
            command=command,
            batch=batch,
            source="batch",
            saved=None,
            partitions=None,
        )
    )
    leave(owned)


def ran(log: Log, first: int, batches: int = 2, **other: str) -> None:
    """Run some batches and leave."""
    owned = own(log, **other)
    for batch in range(first, first + batches):
        run_batch(owned, batch)
    leave(owned)


@pytest.mark.parametrize("later", [0, 1, 5])
def test_a_restore_is_found_however_long_ago_it_was(later: int) -> None:
    """Behind the runs of other drivers since, each with a Takeover of its own."""
    log = Log(MemoryStore())
    ran(log, 0)
    restored(log, "dag/run/task")
    for number in range(later):
        ran(log, 2 + 2 * number, command="another")
    restore_slot = find_restore_by_command(log, "dag/run/task")
    assert restore_slot is not None
    entry = log.read(restore_slot)
    assert isinstance(entry, Restore)
    assert entry.command == "dag/run/task"
    assert find_restore_by_command(log, "dag/run/other") is None


def test_a_takeover_alone_is_no_answer() -> None:
    """The command was killed before it restored, or was only a run: the next try restores."""
    log = Log(MemoryStore())
    ran(log, 0)
    own(log, command="killed")
    ran(log, 2, command="ran")
    assert find_restore_by_command(log, "killed") is None
    assert find_restore_by_command(log, "ran") is None
    restored(log, "killed")
    assert find_restore_by_command(log, "killed") is not None


def test_a_new_job_has_answered_nothing() -> None:
    """There is no Takeover to ask."""
    assert find_restore_by_command(Log(MemoryStore()), "any") is None


@pytest.mark.fault("F69")
@pytest.mark.parametrize("slot", [6, 9])
def test_a_restore_is_found_past_a_takeover_that_cannot_be_read(slot: int) -> None:
    """Its own, or one of a driver since."""
    store = MemoryStore()
    log = Log(store)
    ran(log, 0)
    restored(log, "dag/run/task")
    ran(log, 2)
    ran(log, 4)
    assert log.read(slot).kind == "takeover"
    store.delete(log.path(slot))
    store.create(log.path(slot), b"")
    restore_slot = find_restore_by_command(log, "dag/run/task")
    assert restore_slot is not None
    entry = log.read(restore_slot)
    assert isinstance(entry, Restore)
    assert entry.batch == 0
