"""Blocks as a receiver of tests would have written them, and the reader of a source that follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import millis
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.policies import BadRecord
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING, BlockLog, BlockWriter
from penstock.receivers.blocks import encoded
from penstock.receivers.process import ReceiverOrder
from penstock.sources.received import Encode, Receiving, ReceivingReader
from penstock.sources.received_tasks import RowsOfBlock, StoredRows

__all__ = ["SCHEMA", "Pushed", "order_at", "write"]

SCHEMA = pa.schema([("k", pa.int64())])


def write(writer: BlockWriter, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    """Write a block of rows as a receiver encodes them."""
    table = Encode(schema)(rows)
    writer.write(encoded(table), table.num_rows)


def order_at(folder: Path, receiver: Receiver) -> ReceiverOrder:
    """Return an order to receive into a new epoch of a folder."""
    there = LocalFolder(folder)
    place = BlockLog(there.store(), "s-0").end_epochs(BEGINNING)
    return ReceiverOrder(
        receiver=receiver, index=0, receivers=1, encode=Encode(SCHEMA), checkpoint=there.address, log="s-0",
        place=place, interval=0.01, most=1_000, rate=None,
    )  # fmt: skip


class Pushed:
    """A checkpoint with receivers, whose blocks have so many rows each."""

    def __init__(self, folder: Path, receivers: int = 2, *, a_block: int = 2) -> None:
        self.a_block = a_block
        self.folder = LocalFolder(folder)
        self.folder.store()
        self.receivers = receivers
        self.count = 0
        self.turn = 0
        self.writers = [self.started(index) for index in range(receivers)]

    def log(self, index: int) -> BlockLog:
        """Return the blocks of a receiver."""
        return BlockLog(self.folder.store(), f"s-{index}")

    def started(self, index: int) -> BlockWriter:
        """Start a receiver in a new epoch."""
        return BlockWriter(self.log(index), self.log(index).end_epochs(BEGINNING))

    def add(self, rows: int) -> None:
        """Add rows, k going on: receivers take turns, and each starts again now and then."""
        for first in range(self.count, self.count + rows, self.a_block):
            self.turn += 1
            index = self.turn % self.receivers
            if self.turn % 5 == 0:
                self.writers[index] = self.started(index)
            last = min(first + self.a_block, self.count + rows)
            write(self.writers[index], [{"k": k} for k in range(first, last)])
        self.count += rows

    def reader(self, **settings: Any) -> ReceivingReader:
        """Return a reader of the source."""
        schema: pa.Schema = settings.pop("schema", SCHEMA)
        form: RowsOfBlock = settings.pop("form", StoredRows(schema))
        receiving = Receiving(
            Receiver(),
            receivers=settings.pop("receivers", self.receivers),
            encode=Encode(schema),
            interval=millis(1).seconds,
            most=1_000,
            replication=2,
        )
        known = {"on_bad_record": BadRecord.QUARANTINE, "splits": 1, **settings}
        reader = ReceivingReader(schema, receiving, form, **known)
        reader.keep_in(self.folder, "s")
        return reader
