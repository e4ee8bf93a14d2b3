"""Bytes are passed on."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.formats.base import Decoded
from penstock.sources.formats.raw import Raw


@given(st.lists(st.none() | st.binary(max_size=6)))
def test_bytes_come_as_they_are(records: list[bytes | None]) -> None:
    """None of them is wrong, and a record without a value is a null."""
    expected = pa.table({"value": pa.array(records, pa.binary())})
    assert Raw().decode(records, Raw().columns()) == Decoded(expected, None)
