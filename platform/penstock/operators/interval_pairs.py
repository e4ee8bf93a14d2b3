"""Find the pairs of rows with equal keys whose times differ by what two bounds allow. Pure.

Times are int64 microseconds, and so are bounds. Keys are numbers, 0 and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.keys import Bools, Ints

__all__ = [
    "Moments",
    "newest",
    "number_in_key",
    "numbered",
    "pairs_within",
    "pieces",
    "row_bytes",
    "shifted",
    "slice_start",
    "slice_starts",
]

_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Moments:
    """Rows by number of their key, time, and place in the order of arrival; -1 is earlier than the batch."""

    ids: Ints
    times: Ints
    places: Ints


def pairs_within(
    rows: Moments, others: Moments, order: Ints, bounds: tuple[int, int], most: int
) -> Iterator[tuple[Ints, Ints]]:
    """Yield the pairs of rows and the others that arrived before them, by pieces.

    Args:
        rows: The rows that arrived later, at least one.
        others: The rows that they may match.
        order: Indices that sort `others` by key, then time.
        bounds: The least and the greatest time of the other row minus that of the row, both inclusive.
        most: How many candidates a piece has at most.

    Returns:
        Indices of rows and of others, in the order of `rows`, then of `order`.
    """
    earliest, latest = bounds
    # Key and time as one number, so that one search finds the first and the last match of each row.
    times = np.unique(others.times)
    stride = len(times) + 1
    sought = others.ids[order] * stride + np.searchsorted(times, others.times[order])
    low = rows.ids * stride + np.searchsorted(times, shifted(rows.times, earliest))
    high = rows.ids * stride + np.searchsorted(times, shifted(rows.times, latest), side="right")
    first, last = np.searchsorted(sought, low), np.searchsorted(sought, high)
    ends = np.cumsum(last - first)
    for start in range(0, int(ends[-1]), most):
        numbers = np.arange(start, min(start + most, int(ends[-1])), dtype=np.int64)
        mine = np.searchsorted(ends, numbers, side="right")
        theirs = order[last[mine] - (ends[mine] - numbers)]
        earlier = others.places[theirs] < rows.places[mine]
        if earlier.any():
            yield mine[earlier], theirs[earlier]


def pieces(mine: Ints, theirs: Ints, own: Ints, other: Ints, most: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs in order, by pieces of about so many bytes: one pair more at most.

    Args:
        mine: Indices of rows.
        theirs: Indices of the others.
        own: The bytes of each row.
        other: The bytes of each of the others.
        most: The bytes of a piece.
    """
    piece = np.cumsum(own[mine] + other[theirs]) // most
    cuts = np.flatnonzero(piece[1:] != piece[:-1]) + 1
    yield from zip(np.split(mine, cuts), np.split(theirs, cuts), strict=True)


def row_bytes(table: pa.Table) -> Ints:
    """Return the bytes of each row: of text and binary columns its own, of others the mean."""
    sizes = np.ones(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        elif table.num_rows:
            sizes += column.nbytes // table.num_rows
    return sizes


def number_in_key(ids: Ints) -> Ints:
    """Return the number of each row among those of its key."""
    order = np.argsort(ids, kind="stable")
    numbers = np.empty(len(ids), dtype=np.int64)
    numbers[order] = np.arange(len(ids)) - np.searchsorted(ids[order], ids[order])
    return numbers


def shifted(times: Ints, by: int) -> Ints:
    """Return times that are so many microseconds later, none of them beyond the ends of time."""
    inside = np.minimum(times, _MOST - by) if by > 0 else np.maximum(times, _LEAST - by)
    return inside + by


def slice_starts(times: Ints, width: int) -> Ints:
    """Return the start of each time's slice, which has this width in microseconds."""
    return np.maximum(times, _LEAST + width) // width * width


def slice_start(time: int, width: int) -> int:
    """Return the same for one time, which may be beyond the ends of time."""
    return min(max(time, _LEAST + width), _MOST - 1) // width * width


def numbered(*columns: Ints) -> Ints:
    """Return a number for each row, the same for rows that are equal in all columns; from 0, without gaps."""
    order = np.lexsort(columns)
    changes = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        changes[1:] |= column[order][1:] != column[order][:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(changes)
    return numbers


def newest(ids: Ints, batches: Ints, numbers: Ints) -> Bools:
    """Return which rows are the last of their key, batch and number, of those that stand there in order."""
    codes = numbered(ids, batches, numbers)
    order = np.argsort(codes, kind="stable")
    last = np.ones(len(codes), dtype=np.bool_)
    last[:-1] = codes[order][1:] != codes[order][:-1]
    kept = np.empty(len(codes), dtype=np.bool_)
    kept[order] = last
    return kept
