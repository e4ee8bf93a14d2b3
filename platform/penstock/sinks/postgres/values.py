"""Write the columns of Arrow as PostgreSQL's binary COPY, and name the rows that have none.

A column becomes an array of bytes, a value as the server sends it. The arrays are then woven into rows: both by numpy,
without a Python object for a value. Only nested values are written one by one, as JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SinkValueRefused
from penstock.sinks.postgres.columns import Column, is_nested

__all__ = ["END", "START", "copied", "refuse_unfit"]

START = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
END = struct.pack(">h", -1)
_ROWS = 20_000
"""Rows that are written at a time: some megabytes."""
_EPOCH_DAYS = 10_957  # from 1970 to 2000, where PostgreSQL begins to count
_EPOCH = _EPOCH_DAYS * 86_400_000_000
_FIRST_DAY = -2_451_545 + _EPOCH_DAYS  # 4714-11-24 BC
_LAST_DAY = 2_145_031_948 + _EPOCH_DAYS  # 5874897-12-31
_FIRST_INSTANT = _FIRST_DAY * 86_400_000_000
_JSON = msgspec.json.Encoder(decimal_format="number")


def copied(rows: pa.Table) -> Iterator[bytes]:
    """Yield pieces of a binary COPY of the rows, in their order."""
    yield START
    for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS):
        yield _woven([_wire(column) for column in batch.columns], batch.num_rows)
    yield END


def refuse_unfit(name: str, values: pa.ChunkedArray, column: Column) -> None:
    """Raise SinkValueRefused for a value that the column cannot hold; its type fits."""
    why = _unfit(values)
    if why is None and column.not_null and values.null_count:
        why = "null, in a column that is NOT NULL"
    if why is None and column.length is not None and (pc.max(pc.utf8_length(values)).as_py() or 0) > column.length:
        why = f"a text of more than {column.length} characters"
    if why is not None:
        raise SinkValueRefused(f"column {name!r} of type {column.type} cannot hold {why}", where=name)


def _unfit(values: Any) -> str | None:
    """Return which value no column of PostgreSQL holds."""
    type_ = values.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "a text with the character NUL" if pc.any(pc.match_substring(values, "\0")).as_py() else None
    low = high = None
    if pa.types.is_date32(type_):
        low, high = _FIRST_DAY, _LAST_DAY
    elif pa.types.is_timestamp(type_):
        scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[type_.unit]
        low, high = _FIRST_INSTANT // scale, (2**63 - 1) // scale
    elif is_nested(type_):
        return _unfit_json(values)
    if low is None:
        return None
    numbers = pc.min_max(values.cast(pa.int32() if pa.types.is_date32(type_) else pa.int64()))
    least, most = numbers["min"].as_py(), numbers["max"].as_py()
    return None if least is None or (least >= low and most <= high) else "a time out of PostgreSQL's range"


def _unfit_json(values: pa.ChunkedArray) -> str | None:
    """Return which value has no JSON."""
    try:
        for value in values:
            why = _no_json(value.as_py(maps_as_pydicts="strict"))
            if why is not None:
                return why
    except (OverflowError, ValueError):
        return "a time after the year 9999, as JSON"
    except KeyError:
        return "a map that has a key twice, as JSON"
    return None


def _no_json(value: Any) -> str | None:
    if isinstance(value, str):
        return "a text with the character NUL" if "\0" in value else None
    if isinstance(value, float):
        return None if np.isfinite(value) else "NaN or infinity, as JSON"
    if isinstance(value, dict):
        return next(filter(None, map(_no_json, (*value.keys(), *value.values()))), None)
    if isinstance(value, list):
        return next(filter(None, map(_no_json, value)), None)
    return None


def _wire(values: pa.Array) -> pa.Array:
    """Return each value as bytes: an array of large or fixed-size binary."""
    type_ = values.type
    if is_nested(type_):
        texts = [None if v is None else _JSON.encode(v) for v in (x.as_py(maps_as_pydicts="strict") for x in values)]
        return pa.array(texts, pa.large_binary())
    if pa.types.is_decimal(type_):
        values = values.cast(pa.string())
        type_ = values.type
    if pa.types.is_string(type_):
        values = values.cast(pa.large_string())
    if not pa.types.is_primitive(type_):
        return values.cast(pa.large_binary())
    numbers = _numbers(values)
    width = numbers.dtype.itemsize
    data = pa.py_buffer(numbers.astype(numbers.dtype.newbyteorder(">")).tobytes())
    valid = None if not values.null_count else pa.py_buffer(np.packbits(_valid(values), bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(width), len(values), [valid, data])


def _numbers(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return what a value of fixed width is on the wire, as a number; anything for null."""
    type_, numbers = values.type, values
    if pa.types.is_timestamp(type_):
        numbers = values.cast(pa.timestamp("us", tz=type_.tz)).cast(pa.int64())
    elif pa.types.is_date32(type_):
        numbers = values.cast(pa.int32())
    elif pa.types.is_boolean(type_):
        numbers = values.cast(pa.int8())
    elif pa.types.is_int8(type_):
        numbers = values.cast(pa.int16())  # PostgreSQL has no number of one byte
    epoch = _EPOCH if pa.types.is_timestamp(type_) else _EPOCH_DAYS if pa.types.is_date32(type_) else 0
    made: np.ndarray[Any, Any] = pc.fill_null(numbers, pa.scalar(epoch, numbers.type)).to_numpy(zero_copy_only=False)
    return made - made.dtype.type(epoch) if epoch else made  # minus nothing, -0.0 would be 0.0


def _valid(values: pa.Array) -> np.ndarray[Any, Any]:
    valid: np.ndarray[Any, Any] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _woven(columns: list[pa.Array], rows: int) -> bytes:
    """Return rows of a binary COPY: the number of columns, then length and bytes of each value, -1 for null."""
    lengths = np.zeros((rows, len(columns)), dtype=np.int64)
    for i, column in enumerate(columns):
        lengths[:, i] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum((lengths + 4).sum(axis=1) + 2)
    out = np.zeros(int(ends[-1]) if rows else 0, dtype=np.uint8)
    at = np.concatenate([[0], ends[:-1]]) if rows else ends
    out[at[:, None] + np.arange(2)] = _bytes(np.full(rows, len(columns), dtype=">i2"), 2)
    at = at + 2
    for i, column in enumerate(columns):
        length = lengths[:, i]
        said = np.where(_valid(column), length, -1)
        out[at[:, None] + np.arange(4)] = _bytes(said.astype(">i4"), 4)
        at = at + 4
        data = _data(column)
        begins = np.cumsum(length) - length
        out[np.repeat(at - begins, length) + np.arange(len(data))] = data
        at = at + length
    return out.tobytes()


def _data(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the bytes of all values, one after another."""
    column = column.drop_null()
    *_, data = column.buffers()
    if data is None or not len(column):
        return np.zeros(0, dtype=np.uint8)
    values, first, past = np.frombuffer(data, dtype=np.uint8), column.offset, column.offset + len(column)
    if pa.types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        return values[first * width : past * width]
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)
    return values[offsets[first] : offsets[past]]


def _bytes(numbers: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    return numbers.view(np.uint8).reshape(-1, width)
