"""Write and read the files of a block log: blocks of rows, and the seals that end epochs.

A block is a metadata file of a checkpoint (`checkpoint.storage.format`), a newline, and an Arrow IPC stream::

    {"kind":"block","version":1,…}
    {"receiver":"orders-0","epoch":3,"number":17,"writer":"9f…","rows":1000,"length":52104,"sha256":"…"}
    <52104 bytes>

`length` and `sha256` are those of the stream. A seal is a metadata file of kind `seal` alone, and so is the file of
kind `epoch` that the folder of an epoch begins with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import BlockDamaged, CheckpointCorrupt

__all__ = [
    "MOST_BYTES",
    "Block",
    "Place",
    "Seal",
    "block_file",
    "encoded",
    "epoch_file",
    "parse",
    "rows_in",
    "seal_file",
]

MOST_BYTES = 64 * 2**20
"""Bytes of rows that one block may have: a quarter of what a store reads at once."""
_BLOCK, _SEAL, _EPOCH = "block", "seal", "epoch"
_OPENED = 2
"""The version of a seal from which on the folder of the next epoch was begun before the seal."""
_PLACE = {"receiver": str, "epoch": int, "number": int, "writer": str}
_FIELDS: Mapping[str, Mapping[str, type]] = {
    _BLOCK: {**_PLACE, "rows": int, "length": int, "sha256": str},
    _SEAL: _PLACE,
}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a block log: the epoch of a writer, and the number of a block.

    Numbers continue from epoch to epoch, so a block has the same number for ever, and no other block has it.
    """

    epoch: int
    number: int

    @property
    def next(self) -> Place:
        """The place after the block that is here."""
        return Place(self.epoch, self.number + 1)


@dataclass(frozen=True, slots=True)
class Block:
    """What the head of a block says: who wrote it, how many rows it has, and the bytes of the whole file."""

    writer: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of an epoch.

    Attributes:
        writer: Who sealed it.
        has_next: The folder of the next epoch was there before the seal. Seals of version 1 do not say so.
    """

    writer: str
    has_next: bool = True


def encoded(rows: pa.Table) -> bytes:
    """Return rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def block_file(receiver: str, place: Place, *, writer: str, rows: int, stream: bytes) -> bytes:
    """Return the file of a block; `stream` are its rows, as `encoded` returns them."""
    body = {**_facts(receiver, place, writer), "rows": rows, "length": len(stream)}
    head = fileformat.encode(_BLOCK, {**body, "sha256": hashlib.sha256(stream).hexdigest()})
    return b"%s\n%s" % (head, stream)


def seal_file(receiver: str, place: Place, *, writer: str) -> bytes:
    """Return the file of a seal."""
    return fileformat.encode(_SEAL, _facts(receiver, place, writer))


def epoch_file(receiver: str, epoch: int) -> bytes:
    """Return the file that the folder of an epoch begins with; all writers write the same bytes."""
    return fileformat.encode(_EPOCH, {"receiver": receiver, "epoch": epoch})


def _facts(receiver: str, place: Place, writer: str) -> dict[str, Any]:
    return {"receiver": receiver, "epoch": place.epoch, "number": place.number, "writer": writer}


def parse(data: bytes, *, receiver: str, place: Place, path: str) -> Block | Seal:
    """Return what a file says it is, without a look at the rows; raises BlockDamaged and FormatTooNew."""
    with _named(path):
        kind, body, _ = _head(data, receiver, place, path)
    if kind == _SEAL:
        return Seal(body["writer"], has_next=fileformat.read_header(data, path)["version"] >= _OPENED)
    return Block(body["writer"], body["rows"], len(data))


def rows_in(data: bytes, *, receiver: str, place: Place, path: str) -> pa.Table:
    """Return the rows of a block, all of it checked; raises BlockDamaged and FormatTooNew."""
    with _named(path):
        kind, body, end = _head(data, receiver, place, path)
        if kind != _BLOCK:
            raise corrupt(path, "a seal where a block should be")
        stream = memoryview(data)[end + 1 :]
        if data[end : end + 1] != b"\n" or len(stream) != body["length"]:
            raise corrupt(path, f"{len(stream)} bytes of rows instead of {body['length']}")
        if hashlib.sha256(stream).hexdigest() != body["sha256"]:
            raise corrupt(path, "the checksum of the rows does not match")
        table = pa.ipc.open_stream(pa.py_buffer(stream)).read_all()
        if table.num_rows != body["rows"]:
            raise corrupt(path, f"{table.num_rows} rows instead of {body['rows']}")
        return table


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise what is wrong with a file as that of a block: no restore to a batch leads past it."""
    try:
        yield
    except CheckpointCorrupt as why:
        raise BlockDamaged(why.what, where=path, path=path, reason=why.what) from why


def _head(data: bytes, receiver: str, place: Place, path: str) -> tuple[str, dict[str, Any], int]:
    """Return kind and body of the metadata at the beginning of a file, and where it ends."""
    header = fileformat.read_header(data, path)
    end = data.index(b"\n") + 1 + header["length"]
    kind, body = fileformat.decode(data[:end], path=path)
    fields = _FIELDS.get(kind)
    if fields is None:
        raise corrupt(path, f"a {kind} file where a block or a seal should be")
    if {name: type(value) for name, value in body.items()} != fields:
        raise corrupt(path, f"not the fields of a {kind}")
    if (body["receiver"], body["epoch"], body["number"]) != (receiver, place.epoch, place.number):
        raise corrupt(path, "the file of another place")
    return kind, body, end
