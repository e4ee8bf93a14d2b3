"""Say how rows, partials and receipts travel between the Python stages of a batch.

Between stages Spark carries few rows with a binary payload each, instead of many rows with many columns:
the crossing between the JVM and Python is paid per payload (decision 0002).
Only the rows that Spark has to evaluate next travel as columns, beside the payloads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["CARRIER", "CARRIER_DDL", "RECEIPT", "Emitter", "Item", "receipt", "receipts_of", "split_carriers"]

RECEIPT = "receipt"
CARRIER = pa.schema([("_pid", pa.int32()), ("_port", pa.string()), ("_order", pa.int64()), ("_payload", pa.binary())])
CARRIER_DDL = "_pid int, _port string, _order long, _payload binary"

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """Hold one thing a stage passes on: rows of a port for a partition, or a receipt as JSON bytes."""

    port: str
    body: pa.Table | bytes
    pid: int | None = None


def receipt(kind: str, **said: Any) -> Item:
    """Return a receipt: what a task did, for the Commit (DESIGN 4)."""
    return Item(RECEIPT, json.dumps({"kind": kind, **said}).encode())


def receipts_of(rows: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, Any]]:
    """Yield the receipts among the rows of a job's result."""
    for port, payload in rows:
        if port == RECEIPT:
            yield json.loads(payload)


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
        return pa.schema([*CARRIER, *(self.columns or ())])

    def emit(self, items: Iterable[Item], partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the items of one task; payloads are numbered so that their order is the same in every run."""
        carried: list[tuple[int, str, int, bytes]] = []
        number = (self.stage << 52) | (self.branch << 44) | (partition << 32)
        for item in items:
            if item.port == self.lane:
                assert isinstance(item.body, pa.Table)
                yield from self._as_columns(item.body)
                continue
            pid = partition % self.home if item.pid is None else item.pid
            for payload in _payloads(item.body):
                carried.append((pid, item.port, number, payload))
                number += 1
        if carried:
            yield self._as_carriers(carried)

    def forward(self, carriers: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield carriers of an earlier stage; those of the hop's own lane become columns."""
        for batch in carriers.select(CARRIER.names).to_batches():
            if self.lane is None:
                yield self._with_nulls(batch)
                continue
            kept = []
            for pid, port, order, payload in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if port == self.lane:
                    yield from self._as_columns(pa.ipc.open_stream(payload).read_all())
                else:
                    kept.append((pid, port, order, payload))
            if kept:
                yield self._as_carriers(kept)

    def _as_carriers(self, rows: list[tuple[int, str, int, bytes]]) -> pa.RecordBatch:
        columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), CARRIER, strict=True)]
        return self._with_nulls(pa.record_batch(columns, schema=CARRIER))

    def _with_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.columns is None:
            return batch
        nulls = [pa.nulls(batch.num_rows, f.type) for f in self.columns]
        return pa.record_batch([*batch.columns, *nulls], schema=self.schema)

    def _as_columns(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        assert self.columns is not None
        for batch in table.select(self.columns.names).cast(self.columns).combine_chunks().to_batches():
            nulls = [pa.nulls(batch.num_rows, f.type) for f in CARRIER]
            yield pa.record_batch([*nulls, *batch.columns], schema=self.schema)


def split_carriers(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the carriers, in their order, and the rows that came as columns."""
    import pyarrow.compute as pc

    carried = pc.is_valid(table["_payload"])
    carriers = table.filter(carried).select(CARRIER.names).sort_by("_order")
    return carriers, table.filter(pc.invert(carried)).drop_columns(CARRIER.names)


def _payloads(body: pa.Table | bytes) -> Iterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    rows = max(1, _MOST_BYTES * max(1, body.num_rows) // max(1, body.nbytes))
    for start in range(0, body.num_rows, rows):
        buffer = pa.BufferOutputStream()
        part = body.slice(start, rows)
        with pa.ipc.new_stream(buffer, part.schema) as writer:
            writer.write_table(part.combine_chunks())
        yield buffer.getvalue().to_pybytes()
