"""Encode rows, partials and receipts for their way between the Python stages of a batch.

Between stages Spark carries few rows with a binary payload each, instead of many rows with many columns. So the
crossing between the JVM and Python costs per payload, and not per row (decision 0002).
Only the rows that Spark has to evaluate next travel as columns, beside the payloads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import AccountingBroken

__all__ = [
    "BATCH_BYTES",
    "ENVELOPE",
    "RECEIPT",
    "Carrier",
    "Emitter",
    "Item",
    "cut",
    "ran",
    "receipt",
    "receipts_of",
    "split_carriers",
]

RECEIPT = "receipt"
ENVELOPE = pa.schema([("_pid", pa.int32()), ("_port", pa.string()), ("_order", pa.int64()), ("_payload", pa.binary())])

_RAN = "ran"
_MOST_BYTES = 64 << 20
"""About how many bytes of rows are in one payload at most."""
BATCH_BYTES = 256 << 20
"""About how many bytes of rows are in one record batch at most: an array of Arrow ends at 2 GiB (F75)."""


class Carrier(NamedTuple):
    """A payload on its way: the partition it goes to, its port, its place in the order, and its bytes."""

    pid: int
    port: str
    order: int
    payload: pa.Buffer

    def table(self) -> pa.Table:
        """Return the rows of the payload, without a copy."""
        return pa.ipc.open_stream(self.payload).read_all()


@dataclass(frozen=True, slots=True)
class Item:
    """One thing a stage passes on: rows of a port for a partition, or a receipt as JSON bytes."""

    port: str
    body: pa.Table | bytes
    pid: int | None = None


def receipt(kind: str, **fields: Any) -> Item:
    """Return a receipt: what a task did, for the Commit (DESIGN 4)."""
    return Item(RECEIPT, json.dumps({"kind": kind, **fields}).encode())


def ran(run: str) -> Item:
    """Return the receipt that says in which attempt at a batch a task ran."""
    return receipt(_RAN, run=run)


def receipts_of(rows: Iterable[tuple[str, bytes]], run: str) -> Iterator[dict[str, Any]]:
    """Yield the receipts that are the result of a batch's job, but for those of `ran`.

    Raises AccountingBroken for rows that no stage took, and for what a task of another attempt than `run` has sent.
    """
    for port, payload in rows:
        if port != RECEIPT:
            raise AccountingBroken(f"rows for {port!r} came to the driver: no stage of the batch has taken them")
        said = json.loads(payload)
        if said["kind"] != _RAN:
            yield said
        elif said["run"] != run:
            raise AccountingBroken(f"the batch, of run {run}, has read what a task of run {said['run']} had sent")


@dataclass(frozen=True)
class Emitter:
    """Turn items into record batches of a stage's output schema.

    `stage` and `branch` order the payloads of different stages, and of the branches that Spark may run in one task.
    `home` is the number of partitions of the next shuffle.
    `lane` is what the next hop reads as columns, `columns` those columns.
    """

    stage: int
    branch: int = 0
    home: int = 1
    lane: str | None = None
    columns: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """Return the output schema: the carrier columns, then those of the hop."""
        return pa.schema([*ENVELOPE, *(self.columns or ())])

    def emit(self, items: Iterable[Item], partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the items of one task; payloads are numbered so that their order is the same in every run."""
        return self._batches(self._pieces(items, partition))

    def forward(self, carriers: Iterable[Carrier]) -> Iterator[pa.RecordBatch]:
        """Yield carriers of an earlier stage; those of the hop's own lane become columns."""
        return self._batches(carrier.table() if carrier.port == self.lane else carrier for carrier in carriers)

    def _pieces(self, items: Iterable[Item], partition: int) -> Iterator[Carrier | pa.Table]:
        number = (self.stage << 52) | (self.branch << 44) | (partition << 32)
        for item in items:
            if item.port == self.lane:
                yield item.body
                continue
            pid = partition % self.home if item.pid is None else item.pid
            for payload in _payloads(item.body):
                yield Carrier(pid, item.port, number, payload)
                number += 1

    def _batches(self, pieces: Iterable[Carrier | pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield tables as columns, and carriers some together."""
        waiting: list[Carrier] = []
        size = 0
        for piece in pieces:
            if not isinstance(piece, Carrier):
                yield from self._as_columns(piece)
                continue
            waiting.append(piece)
            size += piece.payload.size
            if size >= BATCH_BYTES:
                yield self._as_carriers(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._as_carriers(waiting)

    def _as_carriers(self, rows: list[Carrier]) -> pa.RecordBatch:
        pids, ports, orders, payloads = zip(*rows, strict=True)
        heads = [pa.array(c, f.type) for c, f in zip((pids, ports, orders), list(ENVELOPE)[:-1], strict=True)]
        nulls = [pa.nulls(len(rows), f.type) for f in self.columns or ()]
        return pa.record_batch([*heads, _joined(payloads), *nulls], schema=self.schema)

    def _as_columns(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        assert self.columns is not None
        for batch in table.select(self.columns.names).cast(self.columns).combine_chunks().to_batches():
            nulls = [pa.nulls(batch.num_rows, f.type) for f in ENVELOPE]
            yield pa.record_batch([*nulls, *batch.columns], schema=self.schema)


def split_carriers(batches: Iterable[pa.RecordBatch]) -> tuple[list[Carrier], list[pa.RecordBatch]]:
    """Return the carriers, in their order, and the rows that came as columns.

    No payload is copied: together they may have more bytes than one array of Arrow holds.
    """
    carriers: list[Carrier] = []
    rows = []
    for batch in batches:
        payloads = batch.column("_payload")
        carried = pc.is_valid(payloads)
        if carried.false_count:
            rows.append(batch.filter(pc.invert(carried)).drop_columns(ENVELOPE.names))
        places = pc.indices_nonzero(carried).to_pylist()
        heads = (batch.column(name).to_pylist() for name in ENVELOPE.names[:-1])
        pids, ports, orders = heads
        carriers.extend(Carrier(pids[at], ports[at], orders[at], payloads[at].as_buffer()) for at in places)
    return sorted(carriers, key=lambda carrier: carrier.order), rows


def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of a task as tables of about BATCH_BYTES at most; batches without rows make one table too."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rows = max(1, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, max(1, batch.num_rows), rows):
            part = batch.slice(start, rows)
            if waiting and size + part.nbytes > BATCH_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
            waiting.append(part)
            size += part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _joined(payloads: Sequence[pa.Buffer]) -> pa.Array:
    """Return payloads as an array, with one copy of their bytes.

    `pa.array` takes buffers as memoryviews only, and never frees one (Arrow 26): a worker would keep all it sends.
    """
    ends = pa.array(accumulate((payload.size for payload in payloads), initial=0), pa.int32())
    return pa.Array.from_buffers(
        pa.binary(), len(payloads), [None, ends.buffers()[1], pa.py_buffer(b"".join(payloads))]
    )


def _payloads(body: pa.Table | bytes) -> Iterator[pa.Buffer]:
    if isinstance(body, bytes):
        yield pa.py_buffer(body)
        return
    rows = max(1, _MOST_BYTES * max(1, body.num_rows) // max(1, body.nbytes))
    for start in range(0, body.num_rows, rows):
        buffer = pa.BufferOutputStream()
        part = body.slice(start, rows)
        with pa.ipc.new_stream(buffer, part.schema) as writer:
            writer.write_table(part.combine_chunks())
        yield buffer.getvalue()
