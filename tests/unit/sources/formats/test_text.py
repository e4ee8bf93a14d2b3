"""Texts are UTF-8 (SEMANTICS 9.3)."""

from __future__ import annotations

from format_contract import decoded_as_if_alone
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.formats.text import Text


def test_a_text_is_a_row_and_no_value_is_a_null() -> None:
    """A record without a value is no error: there is nothing to decode."""
    assert Text().decode(["é".encode(), None, b""], Text().columns()).rows["value"].to_pylist() == ["é", None, ""]


def test_bytes_that_are_no_utf_8_are_an_error() -> None:
    """It says where; the records beside it are as they would be alone."""
    bad = Text().decode([b"a", b"\xff", None], Text().columns())
    assert bad.rows["value"].to_pylist() == ["a", None, None]
    assert bad.errors is not None
    assert bad.errors.to_pylist() == [None, "no UTF-8: invalid start byte at byte 0", None]


@given(st.lists(st.none() | st.binary(max_size=6) | st.text().map(str.encode)))
def test_what_python_takes_for_text_is_a_text(records: list[bytes | None]) -> None:
    """The plain model: `bytes.decode`."""
    decoded_as_if_alone(Text(), records, Text().columns())
    made = Text().decode(records, Text().columns()).rows["value"].to_pylist()
    assert made == [None if record is None else _decoded(record) for record in records]


def _decoded(record: bytes) -> str | None:
    try:
        return record.decode()
    except UnicodeDecodeError:
        return None
