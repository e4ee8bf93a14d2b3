"""Read segments by memory map, and check every byte that is read once a process.

Maps stay open between batches: a worker that comes back to a partition finds them mapped, parsed and checked.
Who opens what a Commit names lets the other files of the folder go (`retain`). A file that changed on disk is mapped
and checked again.

A copy of a file on HDFS fetches bytes when they are first read: a checksum that does not match means that they are not
here yet.
"""

from __future__ import annotations

import json
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder, corrupt
from penstock.errors import FormatTooNew
from penstock.state.keys import Ints
from penstock.state.references import Piece
from penstock.state.row_layout import DELETED, Bound, group_hash, position
from penstock.state.segment_writer import FACTS, FORMAT_VERSION, GENERATION

__all__ = ["Block", "Section", "Span", "forget", "open_section", "retain"]

MOST_FILES = 16_384
"""Files that stay mapped in a process. Linux allows 65,530 maps, and a partition has some ten files."""


@dataclass(frozen=True, slots=True)
class Block:
    """A record batch of a section, checked, and views of its columns `_group`, `_hash` and `_deleted`.

    `generation` is that of its columns, as in `Adapters`.
    """

    rows: pa.RecordBatch
    groups: Ints
    hashes: Ints
    deleted: pa.Array | None
    generation: int


class Span(NamedTuple):
    """Some rows of a block: from `start` up to `end`."""

    block: Block
    start: int
    end: int


class Section:
    """A section that is mapped and whose schema and block list are checked.

    `firsts` and `lasts` are group and hash of the first and last row of each block, `starts` the number of rows before
    each block and, last, in all.
    """

    def __init__(
        self, path: CheckpointFolder, data: pa.Buffer, piece: Piece, bring: Callable[[int, int], bool]
    ) -> None:
        self._path = path
        self._data = data
        self._bring = bring
        if not self._is_whole(piece.checksum, (0, piece.head), (data.size - piece.tail, piece.tail)):
            raise corrupt(path, f"the checksum of schema and footer at byte {piece.offset} does not match")
        try:
            self._reader = pa.ipc.open_file(data)
            facts = json.loads(self._reader.schema.metadata[FACTS])
            self._check_version(facts)
            self.generation: int = facts.get(GENERATION, 0)
            rows, self._sizes, self._checksums, *ends = zip(*facts["blocks"], strict=True)
            self.firsts: list[Bound] = list(zip(*ends[:2], strict=True))
            self.lasts: list[Bound] = list(zip(*ends[2:], strict=True))
            self.starts: list[int] = list(accumulate(rows, initial=0))
            self._offsets = list(accumulate(self._sizes, initial=piece.head))
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise corrupt(path, f"not the section that Penstock writes: {error}") from error
        if (self._offsets[-1], self.starts[-1]) != (data.size - piece.tail, piece.rows):
            raise corrupt(path, f"the block list at byte {piece.offset} does not fit the manifest")
        self.schema = self._reader.schema.remove_metadata()
        self._blocks: list[Block | None] = [None] * len(self._sizes)

    def block(self, number: int) -> Block:
        """Return a block; its checksum is checked on the first call."""
        known = self._blocks[number]
        if known is not None:
            return known
        offset = self._offsets[number]
        if not self._is_whole(self._checksums[number], (offset, self._sizes[number])):
            raise corrupt(self._path, f"the checksum of the block at byte {offset} of a section does not match")
        try:
            rows = self._reader.get_batch(number)
            deleted = rows.column(DELETED) if DELETED in self.schema.names else None
            block = Block(rows, *group_hash(rows), deleted, self.generation)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise corrupt(self._path, f"not the block that Penstock writes: {error}") from error
        self._blocks[number] = block
        return block

    def position(self, bound: Bound) -> int:
        """Return how many rows of the section stand before a bound; at most one block is touched."""
        number = bisect_left(self.lasts, bound)
        if number == len(self.lasts) or self.firsts[number] >= bound:
            return self.starts[number]
        block = self.block(number)
        return self.starts[number] + position(block.groups, block.hashes, bound)

    def bound_at(self, row: int) -> Bound:
        """Return group and hash of a row."""
        number = bisect_right(self.starts, row) - 1
        block, at = self.block(number), row - self.starts[number]
        return int(block.groups[at]), int(block.hashes[at])

    def _is_whole(self, checksum: int, *places: tuple[int, int]) -> bool:
        """Return whether the bytes at these places, offset and size, are those that were written; bring them if not."""

        def computed() -> int:
            value = 0
            for offset, size in places:
                value = zlib.crc32(self._data.slice(offset, size), value)
            return value

        return computed() == checksum or (all(self._bring(*place) for place in places) and computed() == checksum)

    def _check_version(self, facts: dict[str, Any]) -> None:
        version = facts["version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            problem = f"segment format {version}; this Penstock reads up to {FORMAT_VERSION}"
            raise FormatTooNew(
                problem, where=str(self._path), path=str(self._path), found=version, known=FORMAT_VERSION
            )


class _OpenFile:
    """A mapped file and its sections by offset."""

    def __init__(self, path: CheckpointFolder, size: int) -> None:
        self.path = path
        self.mapped = path.map(size)
        self._sections: dict[Piece, Section] = {}

    def section(self, piece: Piece) -> Section:
        section = self._sections.get(piece)
        if section is None:
            if piece.offset + piece.size > self.mapped.data.size:
                raise corrupt(self.path, f"a section ends at byte {piece.offset + piece.size}, after the file")

            def bring(offset: int, size: int) -> bool:
                return self.mapped.bring(piece.offset + offset, size)

            section = Section(self.path, self.mapped.data.slice(piece.offset, piece.size), piece, bring)
            self._sections[piece] = section
        return section


_lock = threading.Lock()
_open: dict[CheckpointFolder, dict[str, _OpenFile]] = {}
_mapped = 0
_dice = Random(0)  # noqa: S311 - no secret hangs on it


def open_section(folder: CheckpointFolder, piece: Piece, size: int) -> Section:
    """Return a section of a file in this folder; `size` is that of the file.

    Raises `StateMissing`, and `CheckpointCorrupt` for what is not as it was written.
    """
    with _lock:
        known = _open.get(folder, {}).get(piece.file)
    if known is None or known.mapped.signature != known.path.signature():
        known = _OpenFile(folder / piece.file, size)
        with _lock:
            files = _open.setdefault(folder, {})
            _count(piece.file not in files)
            files[piece.file] = known
            _make_room(folder)
    return known.section(piece)


def _make_room(folder: CheckpointFolder) -> None:
    """Let maps of other folders go while there are too many, of folders drawn by lot.

    A worker goes through its partitions in turn. If the one that was used longest ago went, and there were one too
    many, each would be gone when its turn came.
    """
    while _mapped > MOST_FILES and len(_open) > 1:
        others = [known for known in _open if known != folder]
        for drawn in _dice.sample(others, max(1, len(others) // 16)):
            _count(-len(_open.pop(drawn)))


def _count(more: int) -> None:
    global _mapped  # noqa: PLW0603 - as many as `_open` holds; to count them takes long where folders are thousands
    _mapped += more


def retain(folder: CheckpointFolder, sizes: Mapping[str, int]) -> None:
    """Let maps of files in this folder go that a manifest does not name, so that deleted files free their space."""
    with _lock:
        files = _open.get(folder)
        if files:
            for name in files.keys() - sizes.keys():
                del files[name]
                _count(-1)
    folder.let_go(sizes.keys())


def forget() -> None:
    """Close all maps; the next reads map and check their files again."""
    with _lock:
        _open.clear()
        _count(-_mapped)
