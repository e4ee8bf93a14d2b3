"""A record of CSV is good or bad by itself, whatever bytes it has (SEMANTICS 9.3, F40)."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.csv_records import csv_parts


def rows_of(data: bytes) -> list[tuple[Any, ...]]:
    """Return the values of each record, or its error and text."""
    rows = []
    for table, *said in csv_parts(pa.BufferReader(data), TEXTS, [""]):
        errors, raw = ([None] * table.num_rows if each is None else each.to_pylist() for each in said)
        for row, error, text in zip(table.to_pylist(), errors, raw, strict=True):
            rows.append(tuple(row.values()) if error is None else (error, text))
    return rows


TEXTS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def test_a_record_of_csv_that_is_no_text_is_a_bad_record() -> None:
    """SEMANTICS 9.3: a single byte lost the records around it, up to 16 MiB of them, or the whole file.

    Each record keeps its number, beside those with too many fields, and the quarantine shows the bytes.
    """
    data = b"k,v\n1,x\n2,\xff\xfe\n3,y,3\n\xe4,z\n5,\xc3\xa9\n"
    half = " (the text is not the whole record)"
    assert rows_of(data) == [
         (1, "x"),
        (f"record 2 of the file: column 'v' is no UTF-8: invalid start byte at byte 0{half}",
            r'{"k": "2", "v": "\\xff\\xfe"}'),
        ("record 3 of the file: 3 fields where the header has 2", "3,y,3"),
        (f"record 4 of the file: column 'k' is no UTF-8: unexpected end of data at byte 0{half}",
            r'{"k": "\\xe4", "v": "z"}'),
        (5, "é"),
    ]  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(
    records=st.lists(
        st.sampled_from([b"7,abc", b"8,\xc3\xa9", b"9,\xc3", b"\xff,a", b"x,b", b"1,2,3", b",d", b"4,"]), max_size=60
    ),
    most=st.sampled_from([64, 128, 1 << 20]),
)
def test_whatever_bytes_csv_has_each_record_is_good_or_bad_by_itself(records: list[bytes], most: int) -> None:
    """SEMANTICS 9.3: wherever the pieces end in which Arrow reads the file."""
    good = {b"7,abc": (7, "abc"), b"8,\xc3\xa9": (8, "é"), b"4,": (4, None)}
    with mock.patch("penstock.sources.csv_records._BLOCK", most):
        read = rows_of(b"k,v\n" + b"".join(record + b"\n" for record in records))
    assert len(read) == len(records)
    for number, record in enumerate(records):
        if record in good:
            assert read[number] == good[record]
        else:
            assert str(read[number][0]).startswith(f"record {number + 1} of the file")
