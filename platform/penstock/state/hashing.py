"""Hash key columns as Spark's `xxhash64` does, so that rows that Spark never saw find the state of their keys.

XXH64 by Yann Collet, with seed 42. The seed of each further column is the hash of those before it, and a null leaves
that hash as it is (Spark's HashExpression). State outlives plans, so not a bit may differ from Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.keys import Ints, places_in_range

__all__ = ["can_hash", "content_hashes", "hash_columns", "normalise"]

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(42)
_STRIPE, _WORD, _HALF = 32, 8, 4
"""Bytes that a step takes at once."""
_SAMPLE, _MOSTLY = 8, 0.9
"""What part of a column of texts is a sample, and the share of distinct items in it that is too high to use them.

Arrow numbers texts in a fifth of the time that hashing them takes.
"""
_ALL = 1 << 30  # more elements than an array has, so that printing leaves none out


def can_hash(kind: pa.DataType) -> bool:
    """Return whether columns of this type are hashed here; decimals and nested types are Spark's alone."""
    return _is_text(kind) or _size(kind) is not None


def normalise(column: pa.Array) -> pa.Array:
    """Return a column with one NaN and one zero, as `expressions.normalised` has Spark do (DESIGN 6).

    A column that is not of floats is returned as it is.
    """
    if not pa.types.is_floating(column.type):
        return column
    # -0.0 + 0.0 is 0.0, and a NaN has but one form after this.
    whole = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(whole), pa.scalar(float("nan"), column.type), whole)


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return the hash of each of so many rows, int64; without a column all rows have 42.

    Columns are of types that `can_hash` takes, floats are normalised. Raises TypeError for another type.
    """
    if columns and (repeated := _repeated(columns[0])) is not None:
        places, distinct = repeated
        hashes = hash_columns([distinct], len(distinct)).view(np.uint64)[places]
        columns = columns[1:]
    else:
        hashes = np.full(rows, _SEED, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        for column in columns:
            hashed = _hashed(column, hashes)
            known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else True
            hashes = hashed if known is True else np.where(known, hashed, hashes)
    return hashes.view(np.int64)


def _repeated(column: pa.Array) -> tuple[Ints, pa.Array] | None:
    """Return the distinct values of a column, and the place of each item among them, where that saves time.

    Only the first column of a key: the others are hashed with a seed for each row.
    """
    if (ranged := places_in_range(column, len(column) // 2)) is not None:
        places, least, width = ranged
        return places, pa.array(np.arange(width) + np.int64(least)).cast(column.type)
    if not _is_text(column.type):
        return None
    sample = column.slice(0, len(column) // _SAMPLE)
    if pc.count_distinct(sample, mode="all").as_py() >= _MOSTLY * len(sample):
        return None
    coded = column.dictionary_encode(null_encoding="encode")
    return coded.indices.to_numpy(), coded.dictionary


def content_hashes(columns: Sequence[pa.ChunkedArray], rows: int) -> Ints:
    """Return a hash of the values of each row, the same wherever the row is made."""
    return hash_columns([_hashable(column) for column in columns], rows)


def _hashable(column: pa.ChunkedArray) -> pa.Array:
    array = normalise(column.combine_chunks())
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if can_hash(array.type):
        return array
    # As Arrow prints it: Python has no object for some values that Arrow holds.
    limits = {"window": _ALL, "container_window": _ALL, "element_size_limit": _ALL}
    return pa.array([array.slice(row, 1).to_string(**limits) for row in range(len(array))], pa.string())


def _hashed(column: pa.Array, seeds: Words) -> Words:
    if _is_text(column.type):
        return _of_bytes(column, seeds)
    size = _size(column.type)
    if size is None:
        raise TypeError(f"{column.type} is hashed by Spark alone")
    whole = pa.int64() if size == _WORD else pa.int32()
    if pa.types.is_temporal(column.type):
        column = column.view(whole)
    if column.null_count:
        column = column.fill_null(column.type.to_pandas_dtype()(0))
    values = column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        values = values.view(whole.to_pandas_dtype())
    return _of_long(values, seeds) if size == _WORD else _of_int(values, seeds)


def _size(kind: pa.DataType) -> int | None:
    """Return how many bytes of a value of this type are hashed: what is shorter than an int is hashed as one."""
    types = pa.types
    if types.is_int64(kind) or types.is_float64(kind) or (types.is_timestamp(kind) and kind.unit == "us"):
        return _WORD
    small = types.is_boolean(kind) or types.is_int8(kind) or types.is_int16(kind) or types.is_int32(kind)
    return _HALF if small or types.is_float32(kind) or types.is_date32(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _of_long(values: Ints, seeds: Words) -> Words:
    start = seeds + _P5 + np.uint64(_WORD)
    return _mixed(_with_word(start, values.astype(np.int64, copy=False).view(np.uint64)))


def _of_int(values: npt.NDArray[np.integer], seeds: Words) -> Words:
    start = seeds + _P5 + np.uint64(_HALF)
    return _mixed(_with_half(start, values.astype(np.int32).view(np.uint32).astype(np.uint64)))


def _of_bytes(column: pa.Array, seeds: Words) -> Words:
    """Hash texts of any length side by side: each turn takes the next word of all that have one left."""
    if not len(column):
        return seeds
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = ends[0], ends[-1]  # the array may be a small part of a buffer that holds a whole file
    at, lengths = ends[:-1] - first, np.diff(ends)
    text = np.zeros(last - first + _WORD, np.uint8)  # the last word of all may be looked at beyond its end
    if data is not None:
        text[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    hashes = seeds + _P5 + lengths.astype(np.uint64)
    left = lengths.copy()
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long] = _striped(text, at, left, long, seeds[long]) + lengths[long].astype(np.uint64)
    while len(rows := np.flatnonzero(left >= _WORD)):
        hashes[rows] = _with_word(hashes[rows], _words(text, at[rows]))
        at[rows] += _WORD
        left[rows] -= _WORD
    rows = np.flatnonzero(left >= _HALF)
    hashes[rows] = _with_half(hashes[rows], _words(text, at[rows]) & np.uint64(0xFFFFFFFF))
    at[rows] += _HALF
    left[rows] -= _HALF
    while len(rows := np.flatnonzero(left > 0)):
        hashes[rows] = _rotated(hashes[rows] ^ (text[at[rows]].astype(np.uint64) * _P5), 11) * _P1
        at[rows] += 1
        left[rows] -= 1
    return _mixed(hashes)


def _striped(text: Bytes, at: Ints, left: Ints, rows: npt.NDArray[np.intp], seeds: Words) -> Words:
    """Return the hashes of these rows' whole stripes of 32 bytes; `at` and `left` move past the stripes."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    going = np.arange(len(rows))
    while len(going):
        for number, lane in enumerate(lanes):
            word = _words(text, at[rows[going]] + _WORD * number)
            lane[going] = _rotated(lane[going] + word * _P2, 31) * _P1
        at[rows[going]] += _STRIPE
        left[rows[going]] -= _STRIPE
        going = going[left[rows[going]] >= _STRIPE]
    first, second, third, fourth = lanes
    mixed = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    for lane in lanes:
        mixed = (mixed ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return mixed


def _words(text: Bytes, at: Ints) -> Words:
    """Return the eight bytes that begin at each place, the first as the lowest."""
    every = np.lib.stride_tricks.sliding_window_view(text, _WORD)
    return np.ascontiguousarray(every[at]).view("<u8").ravel()


def _with_word(hashes: Words, words: Words) -> Words:
    mixed = words * _P2
    _rotate(mixed, 31)
    mixed *= _P1
    mixed ^= hashes
    _rotate(mixed, 27)
    mixed *= _P1
    mixed += _P4
    return mixed


def _with_half(hashes: Words, halves: Words) -> Words:
    mixed = halves * _P1
    mixed ^= hashes
    _rotate(mixed, 23)
    mixed *= _P2
    mixed += _P3
    return mixed


def _rotate(words: Words, bits: int) -> None:
    """Rotate words where they are: new arrays for each operation take four times as long as what they compute."""
    low = words >> np.uint64(64 - bits)
    words <<= np.uint64(bits)
    words |= low


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(hashes: Words) -> Words:
    """Mix hashes where they are, and return them."""
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes
