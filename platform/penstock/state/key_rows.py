"""Find all rows of some keys in the sorted rows of blocks, by their hashes, for `StateReader.rows_of`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.state.keys import Ints, equal_keys
from penstock.state.row_layout import Bound
from penstock.state.section_reader import Span

__all__ = ["may_have", "rows_in"]

_MOST_GROUPS = 64
"""Groups of a block that `rows_in` searches one after another. Of a block with more it looks at each row."""


def may_have(hashes: Ints, first: Bound, last: Bound) -> bool:
    """Return whether a block or piece may have rows with these hashes, by group and hash of its first and last row.

    `hashes` are sorted. One of several groups always may, because each group begins with its least hash.
    """
    if first[0] != last[0]:
        return True
    at = int(np.searchsorted(hashes, first[1]))
    return at < len(hashes) and int(hashes[at]) <= last[1]


def rows_in(span: Span, hashes: Ints, names: Sequence[str], keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Find the rows of a span that have one of these keys.

    Args:
        span: where to look, in one block.
        hashes: int64, sorted; those of the keys.
        names: the key columns of the block.
        keys: the same columns of the keys looked for, a row for each hash.

    Returns:
        For each row its number in the block, and the place of its key; rows of a key are in the order of the block.
    """
    block, start, end = span
    groups, stored = block.groups[start:end], block.hashes[start:end]
    cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    if len(cuts) < _MOST_GROUPS and len(cuts) * len(hashes) < len(stored):
        ends = [0, *cuts.tolist(), len(stored)]
        pairs = [_equal(stored[a:z], hashes) for a, z in pairwise(ends)]
        places = np.concatenate([mine for mine, _ in pairs])
        rows = np.concatenate([theirs + a for (_, theirs), a in zip(pairs, ends[:-1], strict=True)])
    else:
        rows, places = _equal(hashes, stored)
    rows = rows + start
    if names and len(rows):
        same = equal_keys([block.rows.column(name) for name in names], rows, keys, places)
        if not same.all():
            rows, places = rows[same], places[same]
    return rows, places


def _equal(values: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Pair each of `wanted` with the equal ones among sorted `values`: their numbers in `wanted`, and in `values`."""
    first = np.searchsorted(values, wanted)
    counts = np.searchsorted(values, wanted, side="right") - first
    mine = np.repeat(np.arange(len(wanted), dtype=np.int64), counts)
    within = np.arange(len(mine), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return mine, np.repeat(first, counts) + within
