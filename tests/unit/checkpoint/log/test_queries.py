"""The newest batches that a form offers: few files are read, and nothing is judged."""

from __future__ import annotations

import pytest
from checkpoint_samples import leave, own, purge, run_batch, saved_as

from penstock.checkpoint.log.compaction import compact
from penstock.checkpoint.log.entries import Unsave
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.queries import newest_commits, newest_saves
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore


class Counting(MemoryStore):
    """A store that counts what is read."""

    reads = 0

    def read(self, path: str) -> bytes:
        """Count, and read."""
        self.reads += 1
        return super().read(path)


def batches(log: Log, most: int = 20) -> list[int]:
    """Return what is offered."""
    return [commit.batch for commit in newest_commits(log, most)]


def test_the_newest_come_first_and_no_more_than_asked_for() -> None:
    """With the times of their Commits."""
    log = Log(MemoryStore())
    assert batches(log) == []
    owned = own(log)
    commits = [run_batch(owned, batch) for batch in range(5)]
    leave(owned)
    assert batches(log, 3) == [4, 3, 2]
    assert [newest.time for newest in newest_commits(log, 9)] == [commit.time for commit in reversed(commits)]


@pytest.mark.parametrize("floor", [0, 3, 7])
def test_what_is_offered_can_be_restored(floor: int) -> None:
    """The same that `recover` finds, also where older ones are purged."""
    log = Log(MemoryStore())
    owned = own(log)
    for batch in range(8):
        run_batch(owned, batch, floor=min(batch, floor))
    purge(log, owned)
    assert batches(log) == [kept.batch for kept in reversed(recover(log).kept)] == list(range(7, floor - 1, -1))


def test_a_form_costs_what_it_shows() -> None:
    """However long the log is."""
    store = Counting()
    log = Log(store)
    owned = own(log)
    for batch in range(200):
        run_batch(owned, batch)
    store.reads = 0
    assert len(batches(log, 5)) == 5
    assert store.reads <= 11


def test_what_cannot_be_read_is_left_out() -> None:
    """A form with less is better than none; whoever picks is told the rest."""
    store = MemoryStore()
    log = Log(store)
    owned = own(log)
    for batch in range(3):
        run_batch(owned, batch)
    path = log.path(log.find_tail())
    store.delete(path)
    store.create(path, b"no entry")
    assert batches(log) == [1, 0]


@pytest.mark.parametrize("compacted", [None, 2, 4])
def test_saved_checkpoints_are_those_that_recover_finds(compacted: int | None) -> None:
    """The newest first; one that was deleted, also before a Compaction, is none. Few files are read."""
    store = Counting()
    log = Log(store)
    assert newest_saves(log) == {}
    owned = own(log)
    for batch in range(6):
        commit = run_batch(owned, batch)
        if batch % 2 == 0:
            owned.append(saved_as(f"b{batch}", commit))
        if batch == 3:
            owned.append(Unsave(epoch=1, writer="w1", name="b2"))
        if batch == compacted:
            compact(log, owned, every=0)
    saves = newest_saves(log)
    assert list(saves) == ["b4", "b0"]
    assert {name: save.batch for name, save in saves.items()} == recover(log).saves.batches == {"b0": 0, "b4": 4}
    for batch in range(6, 20):
        run_batch(owned, batch)
    store.reads = 0
    assert newest_saves(log) == saves
    assert store.reads <= (3 if compacted is None else 50)
