"""Find the rows of some keys in the sorted rows of blocks, by their hashes, for `StateReader.lookup` and `rows_of`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.state.keys import Bools, Ints, equal_keys
from penstock.state.row_layout import DELETED, GROUP, HASH, Bound, conform, start_of_group
from penstock.state.section_reader import Span

__all__ = ["Lookup", "may_have", "rows_in", "state_columns"]

_MOST = 2**63 - 1
_NO_CUTS = np.empty(0, dtype=np.int64)
_MOST_GROUPS = 64
"""Groups of a block that `rows_in` searches one after another. Of a block with more it looks at each row."""


class Lookup:
    """A batch's keys, which of them are still looked for, and the rows found so far.

    `schema` has the columns to be returned.
    `pending` are the places, ascending, of keys that no run so far had a row of.
    """

    def __init__(self, hashes: Ints, keys: pa.Table, schema: pa.Schema) -> None:
        if len(hashes) != keys.num_rows and keys.num_columns:
            raise ValueError(f"{len(hashes)} hashes for {keys.num_rows} keys")
        if np.any(hashes[1:] < hashes[:-1]):
            raise ValueError("the hashes are not sorted")
        self.hashes = hashes
        self.names = keys.column_names
        self.keys = [column.combine_chunks() for column in keys.itercolumns()]
        self.schema = schema
        self.pending: Ints = np.arange(len(hashes), dtype=np.int64)
        self._rows: list[pa.RecordBatch] = []
        self._places: list[Ints] = []

    def bounds(self) -> tuple[Bound, Bound]:
        """Return bounds around the pending keys, whose rows are in group 0."""
        first, last = int(self.hashes[self.pending[0]]), int(self.hashes[self.pending[-1]])
        return (0, first), (0, last + 1) if last < _MOST else start_of_group(1)

    def search(self, spans: Iterable[Span]) -> None:
        """Look for all pending keys in a run, and leave those pending that it has no row of."""
        hashes, pending = self.hashes[self.pending], self.pending
        resolved = np.zeros(len(self.hashes), dtype=np.bool_)
        at = 0
        for span in spans:
            stored = span.block.hashes[span.start : span.end]
            at += int(np.searchsorted(hashes[at:], stored[0]))
            until = at + int(np.searchsorted(hashes[at:], stored[-1], side="right"))
            if until > at:
                rows, places = rows_in(span, hashes[at:until], self.names, self.keys, pending[at:until])
                resolved[places] = True
                self._take(span, rows, places)
            at = until
        self.pending = pending[~resolved[pending]]

    def _take(self, span: Span, at: Ints, places: Ints) -> None:
        """Take row `at[i]` of a block for key `places[i]`; where that is a tombstone, the key is not there."""
        if span.block.deleted is not None:
            live = ~span.block.deleted.take(pa.array(at)).to_numpy(zero_copy_only=False)
            places, at = places[live], at[live]
        if len(places):
            rows = span.block.rows
            self._rows.append(rows.select([n for n in self.schema.names if n in rows.schema.names]).take(pa.array(at)))
            self._places.append(places)

    def result(self) -> tuple[Bools, pa.Table]:
        """Return which keys were found, and a row with the columns of the schema for each key."""
        total, schema = len(self.hashes), self.schema
        order = np.full(total, -1, dtype=np.int64)
        at = 0
        for places in self._places:
            order[places] = np.arange(at, at + len(places))
            at += len(places)
        held: Bools = order >= 0
        if not at:
            return held, pa.table([pa.nulls(total, field.type) for field in schema], schema=schema)
        tables = [conform(pa.Table.from_batches([rows]), schema) for rows in self._rows]
        rows = pa.concat_tables(tables).combine_chunks()
        return held, rows.take(pa.array(order) if at == total else pa.array(order, mask=~held))


def state_columns(stored: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Return the columns that are state: neither keys, nor group, hash and tombstone mark."""
    left_out = {GROUP, HASH, DELETED, *keys}
    return pa.schema([field for field in stored if field.name not in left_out])


def may_have(hashes: Ints, first: Bound, last: Bound) -> bool:
    """Return whether a block or piece may have rows with these hashes, by group and hash of its first and last row.

    `hashes` are sorted. One of several groups always may, because each group begins with its least hash.
    """
    if first[0] != last[0]:
        return True
    at = int(np.searchsorted(hashes, first[1]))
    return at < len(hashes) and int(hashes[at]) <= last[1]


def rows_in(
    span: Span, hashes: Ints, names: Sequence[str], keys: Sequence[pa.Array], places: Ints | None = None
) -> tuple[Ints, Ints]:
    """Find the rows of a span that have one of these keys.

    Args:
        span: where to look, in one block.
        hashes: int64, sorted; those of the keys.
        names: the key columns of the block.
        keys: the same columns of the keys looked for.
        places: the row in `keys` of each hash; None where each hash has a row.

    Returns:
        For each row its number in the block, and the place of its key; rows of a key are in the order of the block.
    """
    block, start, end = span
    groups, stored = block.groups[start:end], block.hashes[start:end]
    cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1 if groups[0] != groups[-1] else _NO_CUTS
    if not len(cuts) or not len(hashes):
        mine, rows = _equal(stored, hashes)
    elif len(cuts) < _MOST_GROUPS and len(cuts) * len(hashes) < len(stored):
        ends = [0, *cuts.tolist(), len(stored)]
        pairs = [_equal(stored[a:z], hashes) for a, z in pairwise(ends)]
        mine = np.concatenate([mine for mine, _ in pairs])
        rows = np.concatenate([theirs + a for (_, theirs), a in zip(pairs, ends[:-1], strict=True)])
    else:
        rows, mine = _equal(hashes, stored)
    rows, mine = rows + start, mine if places is None else places[mine]
    if names and len(rows):
        same = equal_keys([block.rows.column(name) for name in names], rows, keys, mine)
        if not same.all():
            rows, mine = rows[same], mine[same]
    return rows, mine


def _equal(values: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Pair each of `wanted` with the equal ones among sorted `values`: their numbers in `wanted`, and in `values`."""
    first, last = np.searchsorted(values, wanted), len(values) - 1
    hits = np.flatnonzero(values[np.minimum(first, last)] == wanted)
    first = first[hits]
    if not ((first < last) & (values[np.minimum(first + 1, last)] == wanted[hits])).any():
        return hits, first  # as mostly: no second search for the ends
    counts = np.searchsorted(values, wanted[hits], side="right") - first
    within = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(hits, counts), np.repeat(first, counts) + within
