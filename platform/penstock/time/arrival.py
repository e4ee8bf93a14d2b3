"""Write the place of a row in the order of arrival as bytes that compare as the rows do (SEMANTICS 1.6).

A key begins with the cause of the row. That is a row of a source (its place in the graph, partition, position), or the
time of the batch (the depth of the step, time, key hash). Rows that the time causes sort after all input rows of the
step. Each step on the way appends bytes that distinguish the rows it makes of one input row. So an emitted row sorts
where its input row sorts, whatever partition or task made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ARRIVAL",
    "BY_CALL",
    "BY_TIME",
    "PARTITION",
    "POSITION",
    "Stand",
    "arrival_order",
    "arrival_ranks",
    "described",
    "of_source",
    "split",
    "timed",
]

Ints = npt.NDArray[np.int64]

PARTITION = "_penstock_partition"
"""int32: the index of the source partition a row was read from."""
POSITION = "_penstock_position"
"""int64: the row's place in its source partition. With PARTITION it orders the rows of a source totally."""
ARRIVAL = "_penstock_arrival"
"""binary: the place of a row in the order of arrival, in streams that a step has emitted."""

BY_TIME, BY_CALL = -1, -2

_FROM_SOURCE = 0
_COPY, _EMITTED = 0, 1
"""Tags of the appended bytes: a row sorts before the rows that a step makes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """The causes of the rows that a step emits, in the order in which it returned them; int64 each.

    `rows`: the index of the batch's row that caused it, BY_TIME where the time of the batch did, and BY_CALL where a
    call with many rows did.
    `times` and `hashes`: for the last two the time that was due (microseconds, or NONE) and the hash of the key.
    """

    rows: Ints
    times: Ints
    hashes: Ints

    @classmethod
    def joined(cls, stands: Sequence[Stand]) -> Stand:
        """Return the causes of the rows of several calls, one call after another."""
        parts = {
            name: np.concatenate([getattr(stand, name) for stand in stands]) for name in ("rows", "times", "hashes")
        }
        return cls(**parts)

    def arrivals(
        self, batch_keys: Callable[[], pa.Array] | None, *, depth: int, place: int, before: int = 0
    ) -> pa.Array:
        """Return the arrival keys of the emitted rows.

        Args:
            batch_keys: Returns the keys of the batch's rows; None where time causes all.
            depth: The step's depth, counted in stateful steps.
            place: The stream's place among all of the graph.
            before: How many rows the step has emitted already.

        Returns:
            binary: bytes that sort as the rows arrive.
        """
        level = 2 * depth + np.where(self.rows == BY_CALL, 0, 1)  # level 1 is that of sources
        keys = _bytes(len(self.rows), (level, 1), (self.times, 8), (self.hashes, 8), (place, 2))
        if (self.rows >= 0).any():
            assert batch_keys is not None  # a caller that names rows of the batch has their keys
            of_rows = batch_keys().take(pa.array(self.rows, mask=self.rows < 0))
            keys = pc.if_else(pa.array(self.rows >= 0), of_rows, keys)
        number = np.arange(before, before + len(keys))
        return _joined(keys, _bytes(len(keys), (_EMITTED, 1), (place, 2), (number, 4)))


def of_source(place: int | Ints, partitions: Ints, positions: Ints) -> pa.Array:
    """Return the keys of rows of a source: its place in the graph, partition and position."""
    return _bytes(len(positions), (_FROM_SOURCE, 1), (place, 2), (partitions, 8), (positions, 8))


def timed(keys: pa.Array, times: Ints) -> pa.Array:
    """Return the keys of rows of calls with many rows, with event times that are known only after the step."""
    if not len(keys):
        return keys
    made = np.frombuffer(b"".join(keys.to_pylist()), dtype=np.uint8).reshape(len(keys), -1).copy()
    made[:, 1:9] = _as_bytes(times)
    return _binary(made)


def split(keys: pa.Array, number: int | Ints) -> pa.Array:
    """Return the keys of copies of rows that take way `number`; copies of lower ways sort first."""
    return _joined(keys, _bytes(len(keys), (_COPY, 1), (number, 2)))


def described(key: bytes) -> str:
    """Return in words which row of a source has caused a row."""
    if key[0] != _FROM_SOURCE:
        return "a row that the time of the batch has caused"
    partition, position = (int.from_bytes(key[at : at + 8], "big") - (1 << 63) for at in (3, 11))
    return f"the row at position {position} of source partition {partition}"


def arrival_order(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the indices that sort rows by their keys; rows of equal keys stay as they are."""
    return pc.sort_indices(keys)


def arrival_ranks(keys: pa.Array | pa.ChunkedArray) -> Ints:
    """Return for each key its place among the distinct ones."""
    ranks: Ints = pc.rank(keys, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _bytes(rows: int, *parts: tuple[int | Ints, int]) -> pa.Array:
    """Return numbers of so many bytes each, side by side, so that the bytes compare as the numbers do."""
    width = sum(size for _, size in parts)
    made = np.empty((rows, width), dtype=np.uint8)
    at = 0
    for number, size in parts:
        if isinstance(number, int):
            made[:, at : at + size] = np.frombuffer(number.to_bytes(size, "big"), dtype=np.uint8)
        elif size == 8:  # noqa: PLR2004 - those may be below zero
            made[:, at : at + size] = _as_bytes(number)
        else:
            made[:, at : at + size] = number.astype(f">u{size}").view(np.uint8).reshape(rows, size)
        at += size
    return _binary(made)


def _as_bytes(numbers: Ints) -> npt.NDArray[np.uint8]:
    turned = np.asarray(numbers, dtype=np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    return turned.astype(">u8").view(np.uint8).reshape(len(numbers), 8)


def _binary(made: npt.NDArray[np.uint8]) -> pa.Array:
    rows, width = made.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(made)])


def _joined(keys: pa.Array, more: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(keys, more, b"")
