"""Number the groups of rows by (group, key), where a 64-bit hash finds a key and the key columns decide.

Equal keys have equal hashes; two keys that share a hash are two groups.
Null is a key of its own, and NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.key_codes import key_codes
from penstock.state.keys import Bools, Ints, equal_at, equal_keys, places_in_range

__all__ = ["Grouping", "ascending", "group_rows", "group_runs"]

_GOLDEN = np.int64(-7046029254386353131)  # 2**64 / the golden ratio, odd: multiplying by it loses nothing


_SMALL, _PLACES_A_ROW = 1 << 16, 16
"""A table that is filled in no time: a state partition has some keys of a range, and not every one."""
_SOON = 4
"""Rows for each place among which most places turn up; to look for the missing ones later takes half the time."""
_LOOKED_AT = 64
"""About how many rows tell whether there are many groups."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Number groups in the order of (group, hash).

    `ids`: the group of each row, int64.
    `first`: for each group the index of its first row, int64.
    """

    ids: Ints
    first: Ints

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return len(self.first)


def group_rows(keys: Sequence[pa.Array], hashes: Ints, groups: Ints | None = None) -> Grouping:
    """Number the groups of rows by `groups` (all one where None), hash and key columns.

    Keys of one column of whole numbers in a small range are found in a table of that range. For others one hash table
    over 64 bits finds the groups, and every row is compared with the first of its group. Where that shows a collision,
    the keys of that group are numbered exactly, which is slower.
    """
    if groups is not None and len(groups) and (groups == groups[0]).all():
        groups = None  # as of a batch whose rows are in one slice
    if len(keys) == 1 and (places := _places(keys[0], groups)) is not None:
        return _by_place(*places, hashes, groups)
    mixed = hashes if groups is None else hashes ^ (groups * _GOLDEN)
    coded = pa.array(mixed).dictionary_encode()
    ids = coded.indices.to_numpy().astype(np.int64)
    first = _first_rows(ids, len(coded.dictionary))
    unlike = _unlike(keys, groups, first, ids)
    if unlike is not None:
        ids = _told_apart(keys, hashes, groups, ids, unlike)
        first = _first_rows(ids, int(ids.max()) + 1)
    order = _order(first, hashes, groups)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Grouping(rank[ids], first[order])


def ascending(hashes: Ints, groups: Ints | None = None) -> bool:
    """Return whether rows are sorted by group, then hash, and no two of them have both alike."""
    more = hashes[1:] > hashes[:-1]
    if groups is not None:
        more = (groups[1:] > groups[:-1]) | ((groups[1:] == groups[:-1]) & more)
    return bool(more.all())


def _order(first: Ints, hashes: Ints, groups: Ints | None) -> npt.NDArray[np.intp]:
    # Tables of the state are sorted: a look costs a tenth of sorting them again.
    if ascending(hashes[first], None if groups is None else groups[first]):
        return np.arange(len(first))
    return np.argsort(hashes[first]) if groups is None else np.lexsort((hashes[first], groups[first]))


def _places(key: pa.Array, groups: Ints | None) -> tuple[Ints, int] | None:
    """Return the place of each row in a table of (group, key), and its length; None where it would be a long one."""
    longest = max(len(key) // 2, min(_PLACES_A_ROW * len(key), _SMALL))
    ranged = places_in_range(key, longest)
    if ranged is None or groups is None:
        return None if ranged is None else (ranged[0], ranged[2])
    places, _, width = ranged
    # Many groups are seen in a few rows; then the rows need not be numbered by group.
    if len(np.unique(groups[:: 1 + len(groups) // _LOOKED_AT])) * width > longest:
        return None
    coded = pa.array(groups).dictionary_encode()
    length = len(coded.dictionary) * width
    return (coded.indices.to_numpy() * np.int64(width) + places, length) if length <= longest else None


def _by_place(places: Ints, length: int, hashes: Ints, groups: Ints | None) -> Grouping:
    first_at = _first_at(places, length)
    first = np.sort(first_at[first_at >= 0])  # in the order of rows, which may be sorted by hash
    first = first[_order(first, hashes, groups)]
    rank = np.empty(length, dtype=np.int64)
    rank[places[first]] = np.arange(len(first))
    return Grouping(rank[places], first)


def _first_at(places: Ints, length: int) -> Ints:
    """Return the index of the first row at each place, -1 for a place without rows."""
    first_at = np.full(length, -1, dtype=np.int64)
    soon = min(_SOON * length, len(places))
    first_at[places[:soon][::-1]] = np.arange(soon - 1, -1, -1)  # of several the last that is assigned stays
    used = np.zeros(length, dtype=np.bool_)
    used[places[soon:]] = True
    missed = used & (first_at < 0)
    if missed.any():
        rows = soon + np.flatnonzero(missed[places[soon:]])
        first_at[places[rows][::-1]] = rows[::-1]
    return first_at


def group_runs(keys: Sequence[pa.Array], hashes: Ints, lengths: Sequence[int]) -> Grouping:
    """Number the groups of rows that stand in runs, each with ascending hashes and no key twice, as `group_rows` does.

    Runs of few rows are searched for in a long first one, which costs less than a hash table of all. Where two keys
    share a hash, that table finds the groups.
    """
    ends = np.cumsum(lengths)
    runs = np.split(hashes, ends[:-1])
    nested = any(pa.types.is_nested(key.type) for key in keys)  # which `equal_keys` makes Python objects of
    if nested or not all(bool(np.all(run[1:] > run[:-1])) for run in runs):
        return group_rows(keys, hashes)
    distinct = runs[0]
    for run in runs[1:]:
        if not _among(run, distinct):
            distinct = np.union1d(distinct, run)
    ids = np.concatenate([np.searchsorted(distinct, run) for run in runs]).astype(np.int64, copy=False)
    first = _first_rows(ids, len(distinct))
    later = np.arange(lengths[0], len(hashes))  # the rows of the first run are the first of their groups
    if not equal_keys(keys, later, keys, first[ids[later]]).all():
        return group_rows(keys, hashes)
    return Grouping(ids, first)


def _among(some: Ints, distinct: Ints) -> bool:
    """Return whether all of some numbers are among others, which ascend."""
    if not len(distinct):
        return not len(some)
    places = np.minimum(np.searchsorted(distinct, some), len(distinct) - 1)
    return bool(np.array_equal(distinct[places], some))


def _first_rows(ids: Ints, groups: int) -> Ints:
    first = np.full(groups, len(ids), dtype=np.int64)
    np.minimum.at(first, ids, np.arange(len(ids)))
    return first


def _unlike(keys: Sequence[pa.Array], groups: Ints | None, first: Ints, ids: Ints) -> Bools | None:
    """Return which rows have not the group or the keys of the first row of their group; None for none."""
    if len(first) == len(ids):
        return None
    # Those of one number and one group have one hash.
    differences = [] if groups is None else [groups[first][ids] != groups]
    differences += [_differ(key, key.take(pa.array(first)), ids) for key in keys]
    if not differences:
        return None
    unlike: Bools = np.logical_or.reduce(differences)
    return unlike if unlike.any() else None


def _told_apart(keys: Sequence[pa.Array], hashes: Ints, groups: Ints | None, ids: Ints, unlike: Bools) -> Ints:
    """Return the ids, with the groups that hold several keys in parts of which each holds one."""
    shared = np.zeros(int(ids.max()) + 1, dtype=np.bool_)
    shared[ids[unlike]] = True
    rows = np.flatnonzero(shared[ids])
    taken = [key.take(pa.array(rows)) for key in keys]
    parted = ids.copy()
    parted[rows] = len(shared) + _exact_ids(taken, hashes[rows], None if groups is None else groups[rows])
    kept = np.bincount(parted) > 0
    return (np.cumsum(kept) - 1)[parted]


def _differ(column: pa.Array, heads: pa.Array, ids: Ints) -> Bools:
    """Return which items differ from the item of `heads` at their id; nulls are equal, and NaN is."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_nested(column.type):  # by codes, because `equal_at` would make a Python object of each
        codes = key_codes(column)
        other_codes: Bools = codes[_first_rows(ids, len(heads))][ids] != codes
        return other_codes
    return ~equal_at(column, None, heads, ids)


def _exact_ids(keys: Sequence[pa.Array], hashes: Ints, groups: Ints | None) -> Ints:
    """Number the distinct (group, hash, keys) without trusting the hash."""
    parts = [hashes, *(key_codes(key) for key in keys)]
    if groups is not None:
        parts.append(groups)
    ids = np.zeros(len(hashes), dtype=np.int64)
    for part in parts:
        _, codes = np.unique(part, return_inverse=True)
        _, ids = np.unique(ids * (int(codes.max()) + 1) + codes, return_inverse=True)
    return ids.astype(np.int64, copy=False)
