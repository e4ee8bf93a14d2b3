"""Compute the state partition of a key, and compare keys.

Hashes are made elsewhere (`xxhash64` of the normalised key columns, signed 64 bits); here they are only compared.
Equal hashes do not make equal keys, so every lookup by hash compares the key columns as well.
Nulls equal nulls and NaN equals NaN, as in Spark's grouping (SEMANTICS 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WrongPartition

__all__ = ["Bools", "Ints", "canonical", "check_partition", "equal_at", "equal_keys", "partition_of", "places_in_range"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NAN = ("NaN",)


def partition_of(hashes: Ints, partitions: int) -> Ints:
    """Return the state partition of each hash: Spark's `pmod(hash, partitions)`, never negative."""
    return np.mod(hashes, np.int64(partitions))


def check_partition(hashes: Ints, partition: int, partitions: int, *, step: str) -> None:
    """Raise `WrongPartition` unless every hash belongs to this partition."""
    wrong = int(np.count_nonzero(partition_of(hashes, partitions) != partition))
    if wrong:
        problem = (
            f"{wrong} of {len(hashes)} rows of step {step!r} are not those of partition {partition} of {partitions}"
        )
        raise WrongPartition(problem, step=step, partition=partition, rows=wrong)


def places_in_range(column: pa.Array, longest: int) -> tuple[Ints, int, int] | None:
    """Return the place of each item of a column in a range of whole numbers that holds all, its least, and its length.

    None for another type, for nulls, and for a range of more than `longest` numbers.
    """
    if not pa.types.is_signed_integer(column.type) or column.null_count or not len(column):
        return None
    least, most = (limit.as_py() for limit in pc.min_max(column).values())
    if most - least >= longest:
        return None
    numbers = column.to_numpy().astype(np.int64, copy=False)
    if 0 <= least <= most - least and most < longest:  # numbers from about 0 are their own places: nothing is copied
        return numbers, 0, most + 1
    return numbers - np.int64(least), least, most - least + 1


def equal_keys(left: Sequence[pa.Array], at: Ints, right: Sequence[pa.Array], where: Ints) -> Bools:
    """Compare key columns pairwise: row `at[i]` of the left with row `where[i]` of the right.

    Both sides have the same columns in the same order; without columns every pair is equal.
    Raises TypeError where types differ.
    """
    same = np.ones(len(at), dtype=np.bool_)
    for mine, theirs in zip(left, right, strict=True):
        same &= equal_at(mine, at, theirs, where)
    return same


def equal_at(left: pa.Array, at: Ints | None, right: pa.Array, where: Ints) -> Bools:
    """Compare row `at[i]` of one array with row `where[i]` of another of the same type; `at` None is every row."""
    if left.type != right.type:
        raise TypeError(f"a key column is {left.type} in the state and {right.type} in the batch")
    dtype = _fixed_width(left.type)
    if dtype is None:
        return _equal_values(left if at is None else left.take(pa.array(at)), right.take(pa.array(where)))
    mine, theirs = _numbers(left, dtype), _numbers(right, dtype)[where]
    mine = mine if at is None else mine[at]
    same: Bools = mine == theirs
    if dtype.kind == "f":
        same |= np.isnan(mine) & np.isnan(theirs)
    if left.null_count or right.null_count:
        valid, also = _valid(left), _valid(right)[where]
        valid = valid if at is None else valid[at]
        same = (same & valid & also) | ~(valid | also)
    return same


def canonical(value: Any) -> Any:
    """Turn a Python value of a key column into one that can be hashed and equals what is the same key."""
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    if isinstance(value, Mapping):
        return tuple((name, canonical(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    return value


def _fixed_width(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the numpy type to compare a column by without a copy: integers, floats, dates and times."""
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and kind.bit_width in {32, 64}):
        return np.dtype(f"i{kind.bit_width // 8}")
    return None


def _numbers(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    values = array.buffers()[1]
    if values is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(values, dtype=dtype)[array.offset : array.offset + len(array)]


def _valid(array: pa.Array) -> Bools:
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _equal_values(left: pa.Array, right: pa.Array) -> Bools:
    same: Bools
    if pa.types.is_nested(left.type) or pa.types.is_null(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        same = np.fromiter((canonical(value) == canonical(other) for value, other in pairs), np.bool_, len(left))
        return same
    same = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's signature
    if left.null_count and right.null_count:
        same = same | ~(_valid(left) | _valid(right))
    return same
