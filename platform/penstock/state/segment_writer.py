"""Write segments: the files that hold the rows which one batch changed in one partition.

A segment file is one *section* after another, each at a multiple of 64 bytes and each a whole Arrow IPC file.
A section holds rows of one *part* of the state, cut into *blocks* (record batches) at bounds of (`_group`, `_hash`).
A segment of one part is thus a plain Arrow file; of several, `Piece.offset` and `Piece.size` say where each lies.

Every byte of a section is under a checksum (crc32, which zlib computes at several GB/s).
Each block has its own, checked when the block is first touched; the section's schema metadata has them.
The bytes before and after the blocks (schema, block list, footer) have one, checked when the section is opened. It is
in the `Piece`, and so in the manifest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.new_file import NewFile
from penstock.state.group_ranges import steps_of
from penstock.state.keys import Ints
from penstock.state.references import Piece, SegmentRef, file_name, is_part_name, is_segment_name
from penstock.state.row_layout import bucket_starts, group_hash, sort_rows

__all__ = [
    "BLOCK_BYTES",
    "FACTS",
    "FILE_BYTES",
    "FORMAT_VERSION",
    "GENERATION",
    "Section",
    "SegmentWriter",
]

FORMAT_VERSION = 1
FACTS = b"penstock"
"""The key of the schema metadata under which a section says what it is, as JSON."""
GENERATION = "generation"
"""What a section says of itself where its columns mean something else than at the beginning; no word where they do."""
BLOCK_BYTES = 16 * 2**20  # the unit of a checksum: a lookup checks the blocks it touches, and no others
FILE_BYTES = 64 * 2**20
_ALIGNMENT = 64  # as Arrow wants its buffers, which are mapped where they lie


@dataclass(slots=True)
class SegmentWriter:
    """Write a segment part by part, holding one section in memory at a time.

    Leaving the context without `publish` removes what was written.
    """

    folder: CheckpointFolder
    name: str
    step: str = field(kw_only=True)
    partition: int = field(kw_only=True)
    batch: int = field(kw_only=True)
    generation: int = field(default=0, kw_only=True)
    _files: list[NewFile] = field(default_factory=list, init=False)
    _parts: dict[str, tuple[Piece, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not is_segment_name(self.name):
            raise ValueError(f"{self.name!r} is no name of a segment")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.discard()

    def add(self, part: str, table: pa.Table) -> tuple[Piece, ...]:
        """Write the rows of a part, in any order, with columns as `sort_rows` allows; a part is added once."""
        return self.add_sections(part, self.encode(part, table))

    def encode(self, part: str, table: pa.Table) -> Iterator[Section]:
        """Yield the sections of a part's rows, to be written by `add_sections`."""
        if not is_part_name(part):
            raise ValueError(f"{part!r} is no name of a part")
        facts = {
            "version": FORMAT_VERSION,
            "step": self.step,
            "partition": self.partition,
            "batch": self.batch,
            "part": part,
            **({GENERATION: self.generation} if self.generation else {}),
        }
        yield from _sections(sort_rows(table), facts)

    def add_sections(self, part: str, sections: Iterable[Section]) -> tuple[Piece, ...]:
        """Write sections of a part, in order of their rows, and return where they are."""
        if part in self._parts:
            raise ValueError(f"part {part!r} is in the segment already")
        pieces = tuple(self._place(section) for section in sections)
        if pieces:
            self._parts[part] = pieces
        return pieces

    def publish(self) -> SegmentRef:
        """Sync the files and give them their names; durable after the folder's `sync`."""
        for file in self._files:
            file.sync()
        for file in self._files:
            file.publish()
        return SegmentRef(
            name=self.name,
            batch=self.batch,
            files={file.name: file.size for file in self._files},
            parts=dict(self._parts),
        )

    def _place(self, section: Section) -> Piece:
        file = self._files[-1] if self._files else None
        if file is None or file.size + section.piece.size > FILE_BYTES:
            if file is not None:
                file.sync()
            self.folder.make()
            file = self.folder.new_file(file_name(self.name, len(self._files)))
            self._files.append(file)
        if gap := -file.size % _ALIGNMENT:
            file.write(bytes(gap))
        piece = replace(section.piece, file=file.name, offset=file.size)
        file.write(section.data)
        return piece


@dataclass(frozen=True, slots=True)
class Section:
    """The bytes of a section that is not in a file yet."""

    data: pa.Buffer
    piece: Piece


def _sections(table: pa.Table, facts: dict[str, Any]) -> Iterator[Section]:
    """Cut sorted rows into sections of at most `FILE_BYTES` or so, and those into blocks."""
    if not table.num_rows:
        return
    groups, hashes = group_hash(table)
    batch = table.to_batches()[0]
    cuts = _cuts(groups, hashes, max(1, BLOCK_BYTES * table.num_rows // max(1, table.nbytes)))
    blocks = list(pairwise(cuts))
    at_once = max(1, FILE_BYTES // BLOCK_BYTES - 1)
    for first in range(0, len(blocks), at_once):
        yield _section(batch, groups, hashes, blocks[first : first + at_once], facts)


def _cuts(groups: Ints, hashes: Ints, rows: int) -> list[int]:
    """Return where blocks of about `rows` rows begin, and the end; rows of one group and hash stay together."""
    total = len(groups)
    if total <= rows:
        return [0, total]
    starts = np.flatnonzero(bucket_starts(groups, hashes))
    wanted = np.arange(rows, total, rows)
    nearest = starts[np.searchsorted(starts, wanted, side="right") - 1]
    return [0, *(int(cut) for cut in np.unique(nearest) if cut), total]


def _section(
    batch: pa.RecordBatch, groups: Ints, hashes: Ints, blocks: list[tuple[int, int]], facts: dict[str, Any]
) -> Section:
    cuts = [batch.slice(start, end - start) for start, end in blocks]
    listed = []
    for (start, end), cut in zip(blocks, cuts, strict=True):
        message = cut.serialize()
        ends = (int(groups[start]), int(hashes[start]), int(groups[end - 1]), int(hashes[end - 1]))
        listed.append((end - start, message.size, zlib.crc32(message), *ends))
    text = json.dumps({**facts, "rows": blocks[-1][1] - blocks[0][0], "blocks": listed}, separators=(",", ":"))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema.with_metadata({FACTS: text})) as writer:
        writer.write_batch(cuts[0])
        head = sink.tell() - listed[0][1]  # the schema is written with the first batch
        for cut in cuts[1:]:
            writer.write_batch(cut)
        blocks_end = sink.tell()
    data = sink.getvalue()
    if blocks_end - head != sum(block[1] for block in listed):
        raise AssertionError("pyarrow writes a record batch in a file unlike one alone")
    start, end = blocks[0][0], blocks[-1][1]
    piece = Piece(
        file="",
        offset=0,
        size=data.size,
        head=head,
        tail=data.size - blocks_end,
        checksum=zlib.crc32(data.slice(blocks_end), zlib.crc32(data.slice(0, head))),
        rows=end - start,
        first=listed[0][3:5],
        last=listed[-1][5:7],
        groups=steps_of(groups[start:end]),
    )
    return Section(data, piece)
