"""Find keys by their sorted hashes in the sorted rows of runs, newest run first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from penstock.state.keys import Bools, Ints, equal_keys
from penstock.state.row_layout import DELETED, GROUP, HASH, Bound, conform, start_of_group
from penstock.state.section_reader import Span

__all__ = ["Found", "look_up", "state_columns"]

_MOST = 2**63 - 1


class Found:
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

    def take(self, span: Span, places: Ints, at: Ints) -> None:
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


def look_up(lookup: Found, spans: Iterable[Span]) -> None:
    """Look for all pending keys in a run, and leave those pending that it has no row of."""
    hashes, pending = lookup.hashes[lookup.pending], lookup.pending
    resolved = np.zeros(len(pending), dtype=np.bool_)
    at = 0
    for span in spans:
        stored = span.block.hashes[span.start : span.end]
        at += int(np.searchsorted(hashes[at:], stored[0]))
        until = at + int(np.searchsorted(hashes[at:], stored[-1], side="right"))
        if until > at:
            hits, rows = _matches(lookup, span, pending[at:until], hashes[at:until])
            resolved[at:until][hits] = True
            lookup.take(span, pending[at:until][hits], rows)
        at = until
    if resolved.any():
        lookup.pending = pending[~resolved]


def _matches(lookup: Found, span: Span, places: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Return which of the keys at `places` the span has a row of, and the numbers of those rows in the block."""
    stored = span.block.hashes[span.start : span.end]
    first = np.searchsorted(stored, wanted)
    hits = np.flatnonzero(stored[np.minimum(first, len(stored) - 1)] == wanted)
    if not lookup.names or not len(hits):
        return hits, first[hits] + span.start
    columns = [span.block.rows.column(name) for name in lookup.names]
    rows = first[hits] + span.start
    same = equal_keys(columns, rows, lookup.keys, places[hits])
    if same.all():
        return hits, rows
    kept_hits, kept_rows = [hits[same]], [rows[same]]
    others, rows = hits[~same], rows[~same] + 1
    while len(others):  # rows of the same hash and another key: rare, and then few
        more = rows < span.end
        others, rows = others[more], rows[more]
        more = span.block.hashes[rows] == wanted[others]
        others, rows = others[more], rows[more]
        same = equal_keys(columns, rows, lookup.keys, places[others])
        kept_hits.append(others[same])
        kept_rows.append(rows[same])
        others, rows = others[~same], rows[~same] + 1
    return np.concatenate(kept_hits), np.concatenate(kept_rows)
