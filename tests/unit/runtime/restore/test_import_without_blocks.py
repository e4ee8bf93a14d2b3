"""An import has no blocks of receivers, and misses none: they begin where the exported batch ended (10.2, F47)."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_samples import commit

from penstock.checkpoint.log.entries import SourceProgress
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.receivers.block_log import BlockChain, BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.inventory import inventory_of
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.export import EXPORT, Export, import_checkpoint


@pytest.mark.fault("F18", "F47")
def test_an_import_continues_the_numbers_of_blocks(tmp_path: Path) -> None:
    """It would stop with blocks that are gone, or number others as those that the exported job has read."""
    positions = {
        "pushed": {"receivers": {"0": [3, 17], "1": [0, 0]}},
        "orders": {"topics": {"orders": {"offsets": {"0": 5}}}},
    }
    sources = {
        name: SourceProgress(position=position, partitions={}, ended=False) for name, position in positions.items()
    }
    batch = commit(4, 1, "w").model_copy(update={"sources": sources, "state": {}})
    export = Export(job="orders", uuid="u", exported=7, partitions={}, commit=batch)
    there = LocalFolder(tmp_path / "export")
    there.make()
    (there / EXPORT).create(fileformat.encode("export", export.model_dump(mode="json")))
    folder = LocalFolder(tmp_path / "checkpoints" / "orders")
    import_checkpoint(there, folder, identity=Identity(holder="tests"), now=9)
    reached = {"pushed-0": Place(3, 17), "pushed-1": Place(0, 0)}
    for name, place in reached.items():
        log = BlockLog(folder.store(), name)
        assert BlockChain.opened(log, place).blocks == []
        assert inventory_of(log, place).faults == []
        assert log.end_epochs(log.first()) == Place(place.epoch + 1, place.number)
