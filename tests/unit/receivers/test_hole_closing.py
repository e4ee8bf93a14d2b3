"""A chain of blocks is made whole where some are lost for good, and all others are read (F13, F18, F47)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import BlocksGone, CheckpointCorrupt, EpochSealed
from penstock.receivers.block_log import BEGINNING, BlockChain, BlockLog, BlockWriter
from penstock.receivers.blocks import Place, encoded
from penstock.receivers.hole_closing import close_holes, lost_epoch
from penstock.receivers.inventory import inventory_of

ROWS = encoded(pa.table({"k": [1]}))


def filled(blocks: list[int]) -> BlockLog:
    """Return the blocks of a receiver that was started as often as the list is long, with so many in each epoch."""
    log = BlockLog(MemoryStore(), "orders-0")
    for count in blocks:
        writer = BlockWriter(log, log.end_epochs(BEGINNING))
        for _ in range(count):
            writer.write(ROWS, 1)
    return log


def damage(log: BlockLog, place: Place, how: str) -> None:
    """Lose a file, or the half of it."""
    data = log.store.read(log.path(place))
    log.store.delete(log.path(place))
    if how == "damaged":
        log.store.create(log.path(place), data[: len(data) // 2])


def chain(log: BlockLog) -> list[tuple[int, int]]:
    """Return number and rows of each block that a job reads which begins with nothing."""
    return [(place.number, block.rows) for place, block in BlockChain.opened(log, log.first()).blocks]


@pytest.mark.fault("F13", "F18")
@pytest.mark.parametrize("how", ["missing", "damaged"])
@pytest.mark.parametrize(
    ("lost", "passed_over"),
    [
        ([(1, 1)], 1),
        ([(1, 1), (1, 2), (2, 5)], 3),
        ([(1, 4)], 0),
        ([(2, 4), (2, 5), (2, 6), (2, 7)], 3),
    ],
    ids=["a block", "blocks of two epochs", "a seal", "a whole epoch"],
)
def test_a_job_that_begins_with_nothing_comes_past_what_is_lost(
    lost: list[tuple[int, int]], passed_over: int, how: str
) -> None:
    """Each other block keeps its number, and the next start of a receiver continues after the last one."""
    log = filled([4, 3, 2])
    for epoch, number in lost:
        damage(log, Place(epoch, number), how)
    with pytest.raises((BlocksGone, CheckpointCorrupt)):
        BlockChain.opened(log, log.first())
    assert close_holes(log) == passed_over
    blocks = [number for epoch, number in lost if number not in {4, 7} or (epoch, number) == (2, 4)]
    assert chain(log) == [(number, 0 if number in blocks else 1) for number in range(9)]
    assert inventory_of(log, BEGINNING).faults == []
    assert close_holes(log) == 0
    assert log.end_epochs(BEGINNING) == Place(4, 9)


@pytest.mark.fault("F18", "F47")
def test_a_writer_of_long_ago_acknowledges_nothing_in_a_hole_that_was_closed() -> None:
    """Its next number was lost with the seal of its epoch."""
    log = filled([2])
    late = BlockWriter(log, Place(1, 2))
    BlockWriter(log, log.end_epochs(BEGINNING)).write(ROWS, 1)
    damage(log, Place(1, 2), "missing")
    close_holes(log)
    with pytest.raises(EpochSealed):
        late.write(ROWS, 1)
    assert chain(log) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.fault("F13")
def test_the_newest_block_may_be_the_damaged_one() -> None:
    """Its number is given to no other block, and a writer that still runs goes on after it."""
    log = filled([3])
    damage(log, Place(1, 2), "damaged")
    assert close_holes(log) == 1
    BlockWriter(log, Place(1, 3)).write(ROWS, 1)
    assert chain(log) == [(0, 1), (1, 1), (2, 0), (3, 1)]


def test_blocks_that_a_sweep_took_are_no_hole() -> None:
    """Nor is a damaged seal from before them in the way: nobody reads it any more."""
    log = filled([4, 3])
    log.sweep(Place(2, 5))
    assert close_holes(log) == 0
    damage(log, Place(1, 4), "damaged")
    assert (inventory_of(log, None).faults, close_holes(log)) == ([], 0)
    assert chain(log) == [(5, 1), (6, 1)]


@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize(
    ("epochs", "known", "passed_over", "again", "numbers"),
    [
        ((1,), BEGINNING, 4, None, [4, 5, 6, 7, 8]),
        ((0, 1), BEGINNING, 4, None, [4, 5, 6, 7, 8]),
        ((3,), BEGINNING, 0, 3, [0, 1, 2, 3, 4, 5, 6]),
        ((3,), Place(3, 8), 1, 3, [0, 1, 2, 3, 4, 5, 6]),
        ((2, 3), Place(3, 8), 4, None, [0, 1, 2, 3]),
        ((0, 1, 2, 3), Place(3, 8), 8, None, []),
    ],
    ids=["oldest", "two oldest", "newest", "newest that was read", "two newest that were read", "all that was read"],
)
def test_whole_epochs_that_are_lost_are_passed_over(
    epochs: tuple[int, ...], known: Place, passed_over: int, again: int | None, numbers: list[int]
) -> None:
    """Of the first and the last ones as well; no number is given twice, and the next start continues after them."""
    log = filled([4, 3, 2])
    for path in log.store.list("blocks/orders-0"):
        if int(path.split("/")[2]) in epochs:
            log.store.delete(path)
    assert close_holes(log, known) == passed_over
    assert lost_epoch(log) == again
    assert (close_holes(log, known), lost_epoch(log)) == (0, None)
    assert [number for number, rows in chain(log) if rows] == numbers
    writer = BlockWriter(log, log.end_epochs(log.first()))
    assert writer.place.number == max(9 if 3 not in epochs else 7, known.number)
    writer.write(ROWS, 1)
    assert chain(log)[-1] == (writer.place.number - 1, 1)
    assert inventory_of(log, None).faults == []


@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize("blocks", [[3], [0, 3]])
def test_numbers_of_the_only_epoch_with_blocks_are_given_once(blocks: list[int]) -> None:
    """Only its folder was lost, so no later seal had its numbers, and the next start gave them again."""
    log, known = filled(blocks), Place(len(blocks), 2)
    for path in log.store.list(f"blocks/orders-0/{known.epoch:06}"):
        log.store.delete(path)
    assert close_holes(log, known) == 2
    lost_epoch(log)
    assert close_holes(log, known) == 0
    writer = BlockWriter(log, log.end_epochs(log.first()))
    assert writer.place == Place(known.epoch + 1, 2)
    writer.write(ROWS, 1)
    assert chain(log) == [(1, 0), (2, 1)]
    assert [place.number for place, _ in BlockChain.opened(log, known).blocks] == [2]


@pytest.mark.fault("F13", "F47")
def test_an_epoch_that_batches_have_read_up_to_is_given_to_no_other_writer() -> None:
    """The seal before it was damaged and last, and taken for a block: two writers would have had one epoch."""
    log = filled([1, 0])
    damage(log, Place(1, 1), "damaged")
    assert close_holes(log, Place(2, 1)) == 1
    assert log.end_epochs(log.first()) == Place(3, 2)


@pytest.mark.fault("F13", "F18")
def test_a_damaged_seal_before_the_newest_epoch_stops_no_beginning() -> None:
    """Nobody knows then whether its folder was there: `--from empty` raised the error that names it as the remedy."""
    log = filled([2])
    damage(log, BEGINNING, "damaged")
    log.store.delete("blocks/orders-0/000001/opened")
    assert (close_holes(log), lost_epoch(log), lost_epoch(log)) == (0, 1, None)
    assert chain(log) == [(0, 1), (1, 1)]


@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize("overwrites", [True, False])
@pytest.mark.parametrize("starts", [1, 2])
def test_blocks_that_are_put_back_too_late_stop_no_other_beginning(starts: int, *, overwrites: bool) -> None:
    """Numbers are there twice then, and `--from empty` was refused as well, for ever; fsck names what nobody reads."""
    log = filled([4, 3, 2])
    copy = {path: log.store.read(path) for path in log.store.list("blocks/orders-0")}
    for path in copy:
        log.store.delete(path)
    assert close_holes(log, Place(3, 7)) == 7
    for _ in range(starts):
        writer = BlockWriter(log, log.end_epochs(log.first()))
        writer.write(ROWS, 1)
    for path, data in copy.items():
        if overwrites and log.store.exists(path):
            log.store.delete(path)
        if not log.store.exists(path):
            log.store.create(path, data)
    assert close_holes(log) == (starts if overwrites else 0)
    read = [number for number, _ in chain(log)]
    assert read == sorted({*read}), "each number once"
    assert [*range(7)] == read[:7]
    assert close_holes(log) == 0
    again = BlockWriter(log, log.end_epochs(log.first()))
    again.write(ROWS, 1)
    assert chain(log)[-1] == (again.place.number - 1, 1)


@settings(max_examples=examples(20), deadline=None)
@given(
    blocks=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    harm=st.lists(st.sampled_from(["whole", "missing", "damaged"]), min_size=20, max_size=20),
)
def test_whatever_is_lost_each_whole_block_is_read(blocks: list[int], harm: list[str]) -> None:
    """Up to the newest one; what is passed over is counted, and a second time there is nothing to do."""
    log = filled([*blocks, 1])
    seals = {Place(epoch, sum(blocks[:epoch])) for epoch in range(len(blocks) + 1)}
    *harmed, newest = zip(log.listed(), harm, strict=False)
    for place, how in harmed:
        if how != "whole":
            damage(log, place, how)
    first = log.first()
    passed_over = close_holes(log)
    read = chain(log)
    lost_first = read[0][0] - first.number  # whole epochs before any that has a block
    whole = [place.number for place, how in harmed if how == "whole" and place not in seals]
    assert [number for number, rows in read if rows] == [*whole, newest[0].number]
    assert sum(not rows for _, rows in read) + lost_first == passed_over
    assert [number for number, _ in read] == [*range(read[0][0], newest[0].number + 1)]
    assert close_holes(log) == 0
