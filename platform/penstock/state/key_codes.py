"""Number the items of key columns exactly, where a hash does not tell keys apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.state.hashing import normalise
from penstock.state.keys import Ints, canonical

__all__ = ["key_codes"]


def key_codes(column: pa.Array) -> Ints:
    """Return an int64 for each item of a column, the same for equal items; nulls have one of their own.

    NaN equals NaN, and negative zero is zero. Numbers are those of this array alone.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_struct(kind):
        codes: Ints = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        for field in column.flatten():  # null where the struct is
            other = key_codes(field)
            codes = _encoded(pa.array(codes * (int(other.max(initial=0)) + 1) + other))
        return codes
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # The codes of a list's items are a value of bytes.
        offsets = pa.array(np.asarray(column.offsets, dtype=np.int64) * 8)
        items = pa.py_buffer(np.ascontiguousarray(key_codes(column.values)))
        valid = pa.py_buffer(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
        return _encoded(pa.Array.from_buffers(pa.large_binary(), len(column), [valid, offsets.buffers()[1], items]))
    if pa.types.is_nested(kind):
        known: dict[object, int] = {}
        return np.array([known.setdefault(canonical(item), len(known)) for item in column.to_pylist()], dtype=np.int64)
    return _encoded(normalise(column))


def _encoded(column: pa.Array) -> Ints:
    codes: Ints = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes
