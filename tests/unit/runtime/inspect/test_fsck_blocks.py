"""`penstock fsck` says of each block of a receiver that is not whole what it means for the job (F13, F18, F47)."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from received_blocks import Pushed

from penstock.errors import BlockDamaged
from penstock.receivers.block_log import BlockLog
from penstock.receivers.blocks import Place
from penstock.runtime.inspect.fsck_blocks import VerifiedBlocks, verify_blocks


def commit(batch: int, at: tuple[int, int] | None) -> Any:
    """Return a Commit of a batch that reads on from a place."""
    position = {"receivers": {} if at is None else {"0": [*at]}}
    return SimpleNamespace(batch=batch, sources={"s": SimpleNamespace(position=position)})


def recovered(*commits: Any, saved: Any = None, **more: Any) -> Any:
    """Return what a log says that keeps these Commits, the last one in force."""
    lost = more.pop("lost", {})
    saves = SimpleNamespace(readable=lambda: {} if saved is None else {"mine": saved}, lost=lambda: lost)
    whole = {"pending": None, "problems": [], "damaged": ()}
    force = commits[-1] if commits else None
    return SimpleNamespace(kept=[*commits], saves=saves, commit=force, **{**whole, **more})


def without(batch: int) -> Any:
    """Return a Commit of a batch whose job has no source `s`."""
    return SimpleNamespace(batch=batch, sources={})


@pytest.fixture
def log(tmp_path: Path) -> BlockLog:
    """Blocks 0 to 3 in epoch 1, and 4 to 6 in epoch 2."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    return pushed.log(0)


def verified(log: BlockLog, before: Any, after: Any = None) -> VerifiedBlocks:
    """Verify the blocks; `after` is what the log says by then."""
    return verify_blocks(log.store, before, again=lambda: before if after is None else after)


KEPT = recovered(commit(7, (1, 1)), commit(8, (1, 2)), commit(9, (2, 5)))


def test_whole_blocks_are_counted_from_the_oldest_batch_on(log: BlockLog) -> None:
    """A saved batch is one; and a batch without a place needs all that is there."""
    result = verified(log, KEPT)
    assert (result.blocks, result.unneeded, result.problems) == (6, 1, ())
    assert result.size > 1_000
    assert verified(log, recovered(commit(9, (2, 5)))).blocks == 2
    assert verified(log, recovered(commit(9, (2, 5)), saved=commit(3, (1, 0)))).blocks == 7
    assert verified(log, recovered(commit(9, None))).blocks == 7
    assert verified(log, recovered()).blocks == 7


@pytest.mark.fault("F13", "F18")
@pytest.mark.parametrize(
    ("place", "means"),
    [
        (Place(2, 6), "the job stops before the rows of this block"),
        (Place(1, 3), "batches 7, 8 cannot be restored; the job continues"),
        (Place(1, 1), "batch 7 cannot be restored; the job continues"),
    ],
    ids=["not read yet", "of two kept batches", "of one"],
)
def test_a_damaged_block_stops_the_job_or_takes_a_way_back(log: BlockLog, place: Place, means: str) -> None:
    """By who reads it."""
    path = log.path(place)
    data = log.store.read(path)
    log.store.delete(path)
    log.store.create(path, data[:-1])
    ((what, meaning),) = verified(log, KEPT).problems
    assert path in what
    assert meaning.startswith(means)


@pytest.mark.fault("F18")
def test_a_missing_block_is_named_unless_a_sweep_took_it(log: BlockLog) -> None:
    """The job runs meanwhile, and its oldest kept batch is another one by then."""
    log.store.delete(log.path(Place(1, 1)))
    ((what, _),) = verified(log, KEPT).problems
    assert "block 1 of epoch 1 of s-0 is gone" in what
    assert verified(log, KEPT, recovered(commit(8, (1, 2)), commit(9, (2, 5)))).problems == ()


def test_a_block_that_no_reader_reaches_is_named(log: BlockLog) -> None:
    """Its rows were acknowledged."""
    log.store.create(log.path(Place(1, 6)), log.store.read(log.path(Place(1, 0))))
    ((_, meaning),) = verified(log, KEPT).problems
    assert meaning.startswith("no batch reads its rows")


@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize("epochs", [["000002"], ["000000", "000001", "000002"]], ids=["the newest", "all"])
def test_folders_that_are_gone_are_named(log: BlockLog, epochs: list[str]) -> None:
    """Also those of a receiver that has no file left, which only a position knows."""
    for path in log.store.list("blocks"):
        if path.split("/")[2] in epochs:
            log.store.delete(path)
    *_, (what, meaning) = verified(log, recovered(commit(9, (2, 5)))).problems
    assert what.startswith("the folder of epoch 2 of s-0 is gone")
    assert meaning.startswith("the job stops before the rows of this block")


@pytest.mark.fault("F13", "F18")
def test_a_damaged_seal_before_a_folder_that_is_gone_is_named(log: BlockLog) -> None:
    """It ended fsck with the error of one file, and nothing else was said; the job stops there as well."""
    for path in log.store.list("blocks"):
        if path.split("/")[2] == "000002":
            log.store.delete(path)
    seal = log.path(Place(1, 4))
    data = log.store.read(seal)
    log.store.delete(seal)
    log.store.create(seal, data[:-9])
    kept = recovered(commit(9, (2, 5)))
    ((what, meaning),) = verified(log, kept).problems
    assert what.startswith("epoch 2 of s-0 has no folder, and the seal before it is damaged")
    assert meaning.startswith("the job stops before the rows of this block")
    with pytest.raises(BlockDamaged):
        log.refuse_hole(Place(2, 5))


def test_blocks_of_a_dropped_source_are_named_once_no_batch_needs_them(log: BlockLog) -> None:
    """Nothing else deletes them: a driver does not know a dropped source from one that no batch has read yet."""
    (left,) = verified(log, recovered(without(9))).left
    assert (left.source, left.folder, left.blocks) == ("s", "blocks/s-0", 7)
    assert left.size > 1_000
    assert verified(log, recovered(without(9))).blocks == 0


@pytest.mark.parametrize(
    "needing",
    [
        recovered(commit(8, (1, 2)), without(9)),
        recovered(commit(8, None), without(9)),
        recovered(without(9), saved=commit(3, (1, 0))),
        recovered(without(9), pending=SimpleNamespace(ranges={"s": {}})),
        recovered(without(9), lost={"other": "cannot be read"}),
        recovered(without(9), problems=["a gap"]),
        recovered(without(9), damaged=("an entry",)),
        recovered(),
    ],
    ids=["kept", "kept, before its first block", "saved", "begun", "lost save", "gap", "damaged end", "no batch yet"],
)
def test_blocks_that_a_batch_may_need_are_not_said_to_be_left(log: BlockLog, needing: Any) -> None:
    """A restore reads them, a batch that was begun, or the first batch."""
    result = verified(log, needing)
    assert (result.blocks, result.left) == (7, ())


def test_a_first_batch_that_came_meanwhile_has_the_source(log: BlockLog) -> None:
    """A source that is new has blocks before it has a Commit."""
    assert verified(log, recovered(without(9)), recovered(without(9), commit(10, (2, 5)))).left == ()


@pytest.mark.fault("F18")
def test_a_hole_in_blocks_that_are_left_stops_no_job_that_has_dropped_the_source(log: BlockLog) -> None:
    """It was said to stop the job."""
    log.store.delete(log.path(Place(1, 1)))
    ((what, means),) = verified(log, recovered(without(9))).problems
    assert "block 1 of epoch 1 of s-0 is gone" in what
    assert means.startswith("if the job has source 's', it stops before the rows of this block")


def test_a_source_whose_folder_was_deleted_as_told_begins_anew(tmp_path: Path) -> None:
    """The remedy: fsck misses nothing then, and a source of that name is read from its beginning."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    log = pushed.log(0)
    (left,) = verified(log, recovered(without(9))).left
    shutil.rmtree(tmp_path / "job" / left.folder)
    assert verified(log, recovered(without(9))) == VerifiedBlocks()
    pushed.writers = [pushed.started(0)]
    pushed.add(2)
    assert pushed.reader().backlog(None)["0"].rows == 2
