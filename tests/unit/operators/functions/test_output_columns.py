"""What users' functions return as columns of the declared types."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from penstock.operators.functions.output_columns import checker, made_column, typed_column


@pytest.mark.parametrize("make", [typed_column, made_column])
def test_a_view_of_bytes_is_let_go_of_once_its_column_is_made(make):
    """Arrow keeps a memoryview that it is given for ever; a Python worker makes columns for days."""
    given = bytearray(b"some bytes")
    field = pa.field("b", pa.binary())
    checker(pa.schema([field]), "f")({"b": memoryview(given)}, "a key")
    assert make([memoryview(given), None, b"x"], field, "f").to_pylist() == [b"some bytes", None, b"x"]
    gc.collect()
    given.append(1)  # BufferError while something looks at it
