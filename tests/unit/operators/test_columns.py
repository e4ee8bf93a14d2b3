"""Columns of tables as operators read them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.columns import column_array, integers


def test_a_column_is_one_array_whatever_its_chunks() -> None:
    """Of one chunk it is that chunk, and integers share its memory."""
    whole = pa.table({"n": pa.chunked_array([pa.array([1, 2, 3])])})
    parts = pa.table({"n": pa.chunked_array([[1], [2, 3]])})
    for table in (whole, parts):
        assert column_array(table, "n").equals(pa.array([1, 2, 3]))
        assert integers(table, "n").tolist() == [1, 2, 3]
    assert np.shares_memory(integers(whole, "n"), whole["n"].chunk(0).to_numpy())
    assert len(integers(parts.slice(0, 0), "n")) == 0
