"""Find the rows of a table that match rows of a stream by their keys. Pure.

The table is searched by the hash of its keys, and the keys themselves decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.columns import column_array
from penstock.operators.interval_pairs import pieces, row_bytes
from penstock.state.hashing import content_hashes, normalise
from penstock.state.keys import Bools, Ints, equal_keys

__all__ = ["StaticIndex", "fingerprint", "ordered"]

_MOST_PAIRS, _MOST_BYTES = 65_536, 32 << 20
"""What one piece of the matches has at most; the matches of one row may be more."""


def ordered(table: pa.Table) -> pa.Table:
    """Return the rows of a table in an order that follows from their values; nested columns have none."""
    names = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    if not names or not table.num_rows:
        return table.combine_chunks()
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in names])).combine_chunks()


def fingerprint(table: pa.Table) -> str:
    """Return a text that is the same for the same columns and rows, in whatever order the rows are."""
    hashed = hashlib.sha256(", ".join(f"{field.name} {field.type}" for field in table.schema).encode())
    hashed.update(np.sort(content_hashes(table.columns, table.num_rows)).tobytes())
    return hashed.hexdigest()[:32]


class StaticIndex:
    """The rows of a table by their keys. Rows with a null key match nothing."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self.table = table
        self._keys = [normalise(column_array(table, name)) for name in keys]
        hashes = content_hashes([pa.chunked_array([key]) for key in self._keys], table.num_rows)
        rows = np.flatnonzero(_present(self._keys, table.num_rows))
        order = np.argsort(hashes[rows], kind="stable")
        self._rows, self._hashes = rows[order], hashes[rows][order]
        self._bytes = np.append(row_bytes(table), 0)  # -1, for no row, is the last

    def matches(self, keys: Sequence[pa.Array], own: Ints, *, outer: bool) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of rows of a stream and rows of the table with equal keys, by pieces.

        Args:
            keys: The key columns of the rows, of the types that the table's have.
            own: The bytes of each row.
            outer: Whether a row without a match is paired with -1.

        Returns:
            Indices of rows, ascending, and of rows of the table, ascending for each row.
        """
        n = len(own)
        if not n:
            return
        keys = [normalise(key) for key in keys]
        hashes = content_hashes([pa.chunked_array([key]) for key in keys], n)
        first = np.searchsorted(self._hashes, hashes)
        counts = np.where(_present(keys, n), np.searchsorted(self._hashes, hashes, side="right") - first, 0)
        number = np.cumsum(np.maximum(counts, 1)) // _MOST_PAIRS
        for rows in np.split(np.arange(n), np.flatnonzero(number[1:] != number[:-1]) + 1):
            mine = np.repeat(rows, counts[rows])
            starts = np.cumsum(counts[rows]) - counts[rows]
            theirs = self._rows[np.repeat(first[rows] - starts, counts[rows]) + np.arange(len(mine))]
            equal = equal_keys(keys, mine, self._keys, theirs)
            mine, theirs = mine[equal], theirs[equal]
            if outer:
                alone = np.setdiff1d(rows, mine)
                mine, theirs = np.concatenate([mine, alone]), np.concatenate([theirs, np.full(len(alone), -1)])
                order = np.argsort(mine, kind="stable")
                mine, theirs = mine[order], theirs[order]
            if len(mine):
                yield from pieces(mine, theirs, own, self._bytes, _MOST_BYTES)


def _present(keys: Sequence[pa.Array], rows: int) -> Bools:
    """Return which rows have no null among their keys."""
    present: Bools = np.ones(rows, dtype=np.bool_)
    for key in keys:
        present &= key.is_valid().to_numpy(zero_copy_only=False)
    return present
