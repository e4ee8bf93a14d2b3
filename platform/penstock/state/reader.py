"""Read the state of one partition as a manifest says it is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import StateMissing
from penstock.state.group_ranges import distinct, groups_in, joined
from penstock.state.keys import Bools, Ints
from penstock.state.lookup import Lookup, may_have, rows_in, state_columns
from penstock.state.manifest import Manifest, Run
from penstock.state.parts import Merge, Part
from penstock.state.references import Piece
from penstock.state.row_layout import DELETED, Bound, conform, group_hash, position, start_of_group
from penstock.state.section_reader import Section, Span, open_section

__all__ = ["Adapters", "StateReader"]


class Adapters(NamedTuple):
    """Hold, by part, what makes of stored rows of a generation those that the step's code has now.

    `generation` numbers what the code writes: it grows whenever columns come to mean something else. Segments carry it.
    """

    parts: Mapping[str, Callable[[pa.Table, int], pa.Table]] = MappingProxyType({})
    generation: int = 0


NO_ADAPTERS = Adapters()


class StateReader:
    """The state of one partition after a batch, read by memory map.

    A read takes memory for the rows it returns, never for all that the state holds.
    Whatever is scanned is as `adapt` makes it.
    All methods raise `StateMissing` for a file that is gone and `CheckpointCorrupt` for one that is not as written.
    """

    def __init__(self, folder: CheckpointFolder, manifest: Manifest, adapt: Adapters = NO_ADAPTERS) -> None:
        self.folder = folder
        self.manifest = manifest
        self.adapt = adapt

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the operator's facts."""
        return self.manifest.facts

    def schema(self, part: str) -> pa.Schema | None:
        """Return the columns of a part, as its newest rows have them; None for a part without rows."""
        chain = self.manifest.chain(part)
        if not chain:
            return None
        newest, adapt = self._section(chain[-1].pieces[-1]), self.adapt.parts.get(part)
        return newest.schema if adapt is None else adapt(newest.schema.empty_table(), newest.generation).schema

    def stored(self, part: str) -> pa.Schema | None:
        """Return the columns that the newest rows of a part were written with; None for a part without rows."""
        chain = self.manifest.chain(part)
        return self._section(chain[-1].pieces[-1]).schema if chain else None

    def lookup(
        self, part: str, hashes: Ints, keys: pa.Table, *, schema: pa.Schema | None = None
    ) -> tuple[Bools, pa.Table]:
        """Find the newest row of each key, in a part where a newer row of a key hides the older and `_group` is 0.

        A key whose newest row is a tombstone is not found. Different keys may have one hash.

        Args:
            part: The part's name.
            hashes: int64, sorted: the hash of each key.
            keys: A row for each hash, with the key columns of the part, of the same types; there may be none.
            schema: The columns to return; None for those of the part without keys, group, hash and tombstone mark.

        Returns:
            Which keys were found, and a table with one row for each key: nulls where it was not found.
        """
        if schema is None:
            stored = self.schema(part)
            schema = pa.schema([]) if stored is None else state_columns(stored, keys.column_names)
        lookup = Lookup(hashes, keys, schema)
        for run in reversed(self.manifest.chain(part)):
            if not len(lookup.pending):
                break
            low, high = lookup.bounds()
            lookup.search(self.spans(part, run, low, high))
        return lookup.result()

    def rows_of(
        self,
        part: Part,
        hashes: Ints,
        keys: pa.Table,
        groups: tuple[int | None, int | None] = (None, None),
        schema: pa.Schema | None = None,
    ) -> tuple[Ints, pa.Table]:
        """Return the rows of some keys in a range of groups: all that were appended, or the newest of each group.

        Blocks are touched that may have such rows by group and hash of their first and last row, and no others.

        Args:
            part: the part, of kind APPEND or LATEST.
            hashes: int64, sorted; those of the keys.
            keys: a row for each hash, with the identity of the part, of the same types. No key is there twice.
            groups: the least group, and the least one above the range. None where there is no such bound.
            schema: the columns to return; None for all that are stored.

        Returns:
            The place of each row's key in `keys`, ascending, and the rows: of one key by group, and of one group in
            the order in which they were appended. Rows below the floor are left out, and of a part of kind LATEST those
            that a newer row or a tombstone hides.

        Raises:
            ValueError: for a part of another kind.
        """
        if part.merge is Merge.COMBINE:
            raise ValueError(f"part {part.name!r} merges by {part.merge}: its rows are found by lookup or scan")
        low, high = (None if bound is None else start_of_group(bound) for bound in groups)
        columns = [keys.column(name).combine_chunks() for name in part.identity]
        stored, adapt = self.schema(part.name), self.adapt.parts.get(part.name)
        tables: list[pa.Table] = []
        places: list[Ints] = []
        for run in self.manifest.chain(part.name):
            for span in self.spans(part.name, run, low, high, hashes):
                rows, mine = rows_in(span, hashes, part.identity, columns)
                if len(rows):
                    taken = pa.Table.from_batches([span.block.rows.take(pa.array(rows))])
                    taken = taken if adapt is None else adapt(taken, span.block.generation)
                    assert stored is not None
                    tables.append(conform(taken, stored))
                    places.append(mine)
        if not tables:
            empty = pa.schema([]) if stored is None else stored
            return joined(()), (empty if schema is None else schema).empty_table()
        rows, place = pa.concat_tables(tables).combine_chunks(), np.concatenate(places)
        group = group_hash(rows)[0]
        order = np.lexsort((group, place))  # stable: runs are oldest first
        if part.merge is Merge.LATEST:
            order = order[_newest(place[order], group[order])]
            if DELETED in rows.column_names:
                gone = rows.column(DELETED).fill_null(False).to_numpy()  # noqa: FBT003 - Arrow takes it by place
                order = order[~gone[order]]
        rows = rows.take(pa.array(order))
        return place[order], rows if schema is None else conform(rows, schema)

    def scan(
        self, part: str, group_from: int | None = None, group_to: int | None = None, schema: pa.Schema | None = None
    ) -> list[pa.Table]:
        """Return the rows with group_from <= `_group` < group_to, a table for each run that has some, oldest first.

        Each table is sorted by (`_group`, `_hash`) and refers to the mapped file: nothing is copied, unless `schema`
        asks for other columns than are stored.
        Rows below the part's floor are left out; tombstones are not.
        """
        low = None if group_from is None else start_of_group(group_from)
        high = None if group_to is None else start_of_group(group_to)
        tables = (self.rows(part, run, low, high, schema) for run in self.manifest.chain(part))
        return [table for table in tables if table is not None]

    def groups(self, part: str) -> Ints:
        """Return the distinct groups that have rows, ascending; tombstones count as rows."""
        groups = []
        for run in self.manifest.chain(part):
            least = self._least(part, run, None)
            for piece in run.pieces:
                if piece.groups is not None and (least is None or piece.first >= least):
                    groups.append(groups_in(piece.groups))
                else:
                    groups.extend(distinct(b.groups[a:z]) for b, a, z in self._spans_of(piece, least, None))
        return np.unique(joined(groups))

    def first_group(self, part: str, at_least: int | None = None) -> int | None:
        """Return the least group, not below `at_least`, that has rows; None where none has. Tombstones count.

        The manifest knows it of most pieces, so that their files stay closed.
        """
        low = None if at_least is None else start_of_group(at_least)
        groups = (self._first_group_of(part, run, low) for run in self.manifest.chain(part))
        return min((group for group in groups if group is not None), default=None)

    def _first_group_of(self, part: str, run: Run, low: Bound | None) -> int | None:
        least = self._least(part, run, low)
        for piece in run.pieces:
            if least is None or piece.first >= least:
                return piece.first[0]
            if piece.last < least:
                continue
            if piece.groups is not None:
                groups = groups_in(piece.groups)
                group = int(groups[np.searchsorted(groups, least[0])])
                if start_of_group(group) >= least:  # else only the rows say whether some of it are left
                    return group
            span = next(self._spans_of(piece, least, None), None)
            if span is not None:
                return int(span.block.groups[span.start])
        return None

    def rows(
        self, part: str, run: Run, low: Bound | None, high: Bound | None, schema: pa.Schema | None = None
    ) -> pa.Table | None:
        """Return the live rows of a run with low <= (group, hash) < high, without a copy; None where there are none."""
        spans = list(self.spans(part, run, low, high))
        batches = [block.rows.slice(start, end - start) for block, start, end in spans]
        if not batches:
            return None
        if part in self.adapt.parts:
            adapt, each = self.adapt.parts[part], zip(batches, spans, strict=True)
            tables = [adapt(pa.Table.from_batches([rows]), span.block.generation) for rows, span in each]
            whole = pa.concat_tables(tables)
        elif all(batch.schema.equals(batches[0].schema) for batch in batches[1:]):
            whole = pa.Table.from_batches(batches)
        else:  # a merge over several batches that continued after a change of schema
            newest = self.schema(part) if schema is None else schema
            assert newest is not None
            whole = pa.concat_tables([conform(pa.Table.from_batches([batch]), newest) for batch in batches])
        return whole if schema is None else conform(whole, schema)

    def count(self, part: str, run: Run, high: Bound) -> int:
        """Return how many live rows of a run stand before a bound, without reading those between."""
        total = 0
        for piece, start in self._live_pieces(part, run):
            if piece.first >= high:
                break
            end = piece.rows if piece.last < high else self._section(piece).position(high)
            total += max(0, end - start)
        return total

    def bound_at(self, part: str, run: Run, rows: int) -> Bound:
        """Return group and hash of the live row that has so many live rows before it, or else of the last row."""
        for piece, start in self._live_pieces(part, run):
            if rows < piece.rows - start:
                return self._section(piece).bound_at(start + rows)
            rows -= piece.rows - start
        return run.pieces[-1].last

    def _live_pieces(self, part: str, run: Run) -> Iterator[tuple[Piece, int]]:
        """Yield the pieces of a run that have live rows, each with the number of dead ones before them."""
        least = self._least(part, run, None)
        for piece in run.pieces:
            if least is None or piece.last >= least:
                yield piece, 0 if least is None or piece.first >= least else self._section(piece).position(least)

    def spans(
        self, part: str, run: Run, low: Bound | None, high: Bound | None, hashes: Ints | None = None
    ) -> Iterator[Span]:
        """Yield where the live rows of a run with low <= (group, hash) < high are, in order.

        With `hashes`, sorted, pieces and blocks that cannot have rows with one of them are left untouched.
        """
        least = self._least(part, run, low)
        pieces = run.pieces
        first = 0 if least is None else bisect_left(pieces, least, key=lambda piece: piece.last)
        for piece in pieces[first:]:
            if high is not None and piece.first >= high:
                return
            if hashes is None or may_have(hashes, piece.first, piece.last):
                yield from self._spans_of(piece, least, high, hashes)

    def verify(self) -> int:
        """Read every block of every file and return the bytes; raises for the first one that is damaged or missing."""
        for chain in self.manifest.chains.values():
            for run in chain:
                for piece in run.pieces:
                    for _ in self._spans_of(piece, None, None):
                        pass
        return self.manifest.size

    def _least(self, part: str, run: Run, low: Bound | None) -> Bound | None:
        floor = self.manifest.floors.get(part)
        bounds = [run.low, low, None if floor is None else start_of_group(floor)]
        return max((bound for bound in bounds if bound is not None), default=None)

    def _spans_of(
        self, piece: Piece, low: Bound | None, high: Bound | None, hashes: Ints | None = None
    ) -> Iterator[Span]:
        section = self._section(piece)
        first = 0 if low is None else bisect_left(section.lasts, low)
        for number in range(first, len(section.firsts)):
            if high is not None and section.firsts[number] >= high:
                return
            if hashes is not None and not may_have(hashes, section.firsts[number], section.lasts[number]):
                continue
            block = section.block(number)
            start, end = 0, len(block.hashes)
            if low is not None and section.firsts[number] < low:
                start = position(block.groups, block.hashes, low)
            if high is not None and section.lasts[number] >= high:
                end = position(block.groups, block.hashes, high)
            if start < end:
                yield Span(block, start, end)

    def _section(self, piece: Piece) -> Section:
        try:
            return open_section(self.folder, piece, self.manifest.sizes[piece.file])
        except StateMissing as error:
            batch = self.manifest.batch
            problem = f"{error.what}, which the manifest of batch {batch} names"
            raise StateMissing(problem, where=error.where, path=error.where, batch=batch) from error


def _newest(places: Ints, groups: Ints) -> Bools:
    """Return which rows, sorted by key and group, have no newer one of their key and group after them."""
    last: Bools = np.ones(len(places), dtype=np.bool_)
    last[:-1] = (places[1:] != places[:-1]) | (groups[1:] != groups[:-1])
    return last
