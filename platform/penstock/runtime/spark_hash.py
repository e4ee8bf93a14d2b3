"""Compute Spark's `xxhash64` of key columns with numpy, bit for bit, so that plain keys need no trip through Spark.

The hash is XXH64 (Yann Collet, https://xxhash.com) as Spark's XXH64.java has it: the seed of a column is the hash of
those before it, 42 at first; a null leaves it as it is; numbers of up to 32 bits are hashed as 4 bytes, others as 8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["SEED", "can_hash", "spark_hash"]

SEED = 42
"""The hash of no columns."""

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE, _WORD, _HALF = 32, 8, 4


def can_hash(kind: pa.DataType) -> bool:
    """Return whether columns of this type are hashed here: integers, booleans, dates, timestamps, text and bytes."""
    return _is_short(kind) or _is_long(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)


def spark_hash(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return `xxhash64(columns…)` of each row, int64; columns of types that `can_hash` refuses raise TypeError."""
    hashes: Words = np.full(rows, SEED, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            hashed = _hashed(column, hashes)
            if column.null_count:
                hashed = np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, hashes)
            hashes = hashed
    signed: Ints = hashes.view(np.int64)
    return signed


def _hashed(column: pa.Array, seeds: Words) -> Words:
    kind = column.type
    if _is_short(kind):
        return _of_int(_numbers(column, pa.int32()), seeds)
    if _is_long(kind):
        return _of_long(_numbers(column, pa.int64()), seeds)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(column, seeds)
    raise TypeError(f"the hash of a {kind} is left to Spark")


def _is_short(kind: pa.DataType) -> bool:
    small = pa.types.is_signed_integer(kind) and kind.bit_width <= 32  # noqa: PLR2004 - an int of Java
    return bool(small or pa.types.is_boolean(kind) or pa.types.is_date32(kind))


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"))


def _numbers(column: pa.Array, kind: pa.DataType) -> Words:
    """Return the items as 64-bit words, those of 32 bits without their sign; the item of a null is anything."""
    numbers = column.cast(kind)
    if numbers.null_count:
        numbers = numbers.fill_null(0)
    words: Words = numbers.to_numpy().view(f"u{kind.bit_width // 8}").astype(np.uint64, copy=False)
    return words


def _rotated(words: Words, left: int) -> Words:
    rotated: Words = (words << np.uint64(left)) | (words >> np.uint64(64 - left))
    return rotated


def _mixed(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    mixed: Words = hashes ^ (hashes >> np.uint64(32))
    return mixed


def _with_half(hashes: Words, halves: Words) -> Words:
    return _rotated(hashes ^ (halves * _P1), 23) * _P2 + _P3


def _with_word(hashes: Words, words: Words) -> Words:
    return _rotated(hashes ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _of_int(halves: Words, seeds: Words) -> Words:
    return _mixed(_with_half(seeds + _P5 + np.uint64(_HALF), halves))


def _of_long(words: Words, seeds: Words) -> Words:
    return _mixed(_with_word(seeds + _P5 + np.uint64(_WORD), words))


def _of_bytes(column: pa.Array, seeds: Words) -> Words:
    """Hash items of equal length together: each byte of them is one step of numpy."""
    _, offset_buffer, data_buffer = column.buffers()
    if offset_buffer is None:
        return _of_block(np.empty((len(column), 0), dtype=np.uint8), seeds)
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashes = np.empty(len(column), dtype=np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        block = data[starts[rows][:, None] + np.arange(length)]
        hashes[rows] = _of_block(block, seeds[rows])
    return hashes


def _of_block(block: Bytes, seeds: Words) -> Words:
    """Hash rows of bytes; `block` has one row of them for each seed."""
    length = block.shape[1]
    whole = length - length % _WORD
    words = np.ascontiguousarray(block[:, :whole]).view("<u8").astype(np.uint64, copy=False)
    striped = length // _STRIPE * (_STRIPE // _WORD)
    hashes = _of_stripes(words[:, :striped], seeds) if striped else seeds + _P5
    hashes = hashes + np.uint64(length)
    for place in range(striped, words.shape[1]):
        hashes = _with_word(hashes, words[:, place])
    at = whole
    if length - at >= _HALF:
        halves = np.ascontiguousarray(block[:, at : at + _HALF]).view("<u4")[:, 0].astype(np.uint64)
        hashes, at = _with_half(hashes, halves), at + _HALF
    for place in range(at, length):
        hashes = _rotated(hashes ^ (block[:, place].astype(np.uint64) * _P5), 11) * _P1
    return _mixed(hashes)


def _of_stripes(words: Words, seeds: Words) -> Words:
    """Hash stripes of four words, each word in a lane of its own, then join the lanes."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    for place in range(words.shape[1]):
        lane = place % len(lanes)
        lanes[lane] = _rotated(lanes[lane] + words[:, place] * _P2, 31) * _P1
    hashes = sum((_rotated(lane, left) for lane, left in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        hashes = (hashes ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashes
