"""All that a receiver has kept is read, and what is missing or damaged has a name (F13, F18, F47)."""

from __future__ import annotations

from pathlib import Path

import pytest
from received_blocks import Pushed

from penstock.errors import BlocksGone
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.inventory import Fault, inventory_of, logs_in


@pytest.fixture
def log(tmp_path: Path) -> BlockLog:
    """The blocks of a receiver that was started twice: four in epoch 1 before its seal, three in epoch 2."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    return pushed.log(0)


def faults(log: BlockLog, start: Place | None = BEGINNING) -> list[tuple[Fault, Place]]:
    """Return what is wrong, and where."""
    return [(fault.fault, fault.place) for fault in inventory_of(log, start).faults]


def test_what_is_whole_is_counted(log: BlockLog) -> None:
    """From the place of the oldest batch on; blocks before it wait for a sweep."""
    whole = inventory_of(log, BEGINNING)
    assert (whole.blocks, whole.unneeded, whole.faults) == (7, 0, [])
    assert whole.size == sum(block.size for _, block in log.follow(BEGINNING))
    later = inventory_of(log, Place(1, 3))
    assert (later.blocks, later.unneeded, later.faults) == (4, 3, [])
    assert inventory_of(log, None).blocks == 7
    assert [each.receiver for each in logs_in(log.store)] == ["s-0"]


@pytest.mark.parametrize("start", [Place(1, 2), Place(1, 4), Place(2, 4), Place(2, 7)], ids=str)
def test_the_next_sweep_deletes_what_is_not_needed(log: BlockLog, start: Place) -> None:
    """All of it, also where every block of the newest epoch is read; the last file of an epoch stays."""
    before = len(log.listed())
    assert inventory_of(log, start).unneeded == log.sweep(start) == before - len(log.listed())
    assert {Place(1, 4), Place(2, 6)} <= set(log.listed())


def test_a_receiver_that_never_ran_has_nothing(tmp_path: Path) -> None:
    """And no fault."""
    log = Pushed(tmp_path / "job", receivers=0).log(0)
    assert inventory_of(log, None).blocks == inventory_of(log, BEGINNING).blocks == 0
    assert logs_in(log.store) == []


@pytest.mark.fault("F18")
@pytest.mark.parametrize("place", [Place(1, 0), Place(1, 3), Place(1, 4), Place(2, 5)], ids=str)
def test_a_file_that_is_gone_is_named(log: BlockLog, place: Place) -> None:
    """A block or a seal, with others after it; and no start of a receiver seals its hole."""
    log.store.delete(log.path(place))
    assert faults(log) == [(Fault.MISSING, place)]
    with pytest.raises(BlocksGone, match=f"block {place.number} of epoch {place.epoch} is gone"):
        log.end_epochs(BEGINNING)


@pytest.mark.fault("F13")
@pytest.mark.parametrize("place", [Place(1, 0), Place(1, 3), Place(1, 4), Place(2, 6)], ids=str)
def test_a_flipped_byte_is_named_and_all_else_is_read(log: BlockLog, place: Place) -> None:
    """Anywhere in a block, or in a seal."""
    path = log.path(place)
    data = log.store.read(path)
    for at in range(0, len(data), 41):
        log.store.delete(path)
        log.store.create(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert faults(log) == [(Fault.DAMAGED, place)], f"byte {at}"
    assert path in inventory_of(log, BEGINNING).faults[0].what


def test_a_block_behind_the_end_of_its_epoch_is_named(log: BlockLog) -> None:
    """Nothing writes there; who moves files by hand may."""
    log.store.create(log.path(Place(1, 6)), log.store.read(log.path(Place(1, 0))))
    assert faults(log) == [(Fault.UNREACHED, Place(1, 6))]
