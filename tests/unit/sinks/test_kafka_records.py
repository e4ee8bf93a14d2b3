"""Rows become records in pieces, in their order, and with the sizes that they will have."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import RecordTooLarge, SinkValueRefused
from penstock.sinks import Json, Raw, kafka_records
from penstock.sinks.kafka_records import OVERHEAD, RowLayout


def layout(**more: Any) -> RowLayout:
    return RowLayout(**{"key": None, "value": Json(), "partition": None, "tombstone": None, **more})


@pytest.mark.fault("F75")
@pytest.mark.parametrize(("rows_a_piece", "bytes_a_piece"), [(3, 1 << 20), (100, 40)], ids=["by rows", "by bytes"])
def test_rows_are_encoded_in_pieces(monkeypatch: pytest.MonkeyPatch, rows_a_piece: int, bytes_a_piece: int) -> None:
    """No text of Arrow has more than 2 GiB; the order is that of the rows."""
    monkeypatch.setattr(kafka_records, "_ROWS_A_PIECE", rows_a_piece)
    monkeypatch.setattr(kafka_records, "_BYTES_A_PIECE", bytes_a_piece)
    pieces = list(layout(key="k").records(pa.table({"k": range(10)})))
    assert len(pieces) > 1
    records = [record for piece in pieces for record in piece]
    assert [(key, json.loads(value or b"")["k"], at) for key, value, at in records] == [
        (b"%d" % k, k, None) for k in range(10)
    ]


@pytest.mark.fault("F41")
def test_a_record_is_as_large_as_key_value_and_headers() -> None:
    """And what a batch of one record has beside them."""
    (piece,) = layout(key="k", value=Raw("v")).records(pa.table({"k": ["abc", None], "v": [b"x" * 10, b"y"]}))
    piece.refuse_larger(OVERHEAD + 5 + 13, 5, "t")
    with pytest.raises(RecordTooLarge, match="t"):
        piece.refuse_larger(OVERHEAD + 5 + 12, 5, "t")


@pytest.mark.parametrize("partitions", [[0, 3], [-1], [1 << 40]], ids=["too high", "below zero", "no int"])
def test_a_partition_that_is_not_there_is_a_row_s_fault(partitions: list[int]) -> None:
    """Null is for none in particular."""
    rows = pa.table({"k": [1] * len(partitions), "p": pa.array(partitions, pa.int64())})
    with pytest.raises(SinkValueRefused, match="partition"):
        [piece.refuse_partitions(3, "t") for piece in layout(partition="p").records(rows)]
    (fits,) = layout(partition="p").records(pa.table({"k": [1, 2], "p": pa.array([2, None], pa.int64())}))
    fits.refuse_partitions(3, "t")
    assert [partition for *_, partition in fits] == [2, None]


def test_no_rows_are_no_records() -> None:
    """A staged file has rows, and a table of none is no error."""
    assert list(layout().records(pa.table({"k": pa.array([], pa.int64())}))) == []
