"""Tasks read blocks as they were stored, by the columns that the job has now (SEMANTICS 9.3, F14, F42)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from received_blocks import SCHEMA, Pushed, write
from source_reading import end_of_batch

from penstock.errors import BadRecordFound, CheckpointCorrupt
from penstock.graph.policies import BadRecord
from penstock.receivers.blocks import Place
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW
from penstock.sources.received import Encode
from penstock.sources.received_tasks import StoredRows, blocks_of
from penstock.testing.source_contract import read


def stored(tmp_path: Path, rows: list[dict], **settings: object) -> pa.Table:
    """Return what tasks read of one block."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    write(pushed.writers[0], rows)
    reader = pushed.reader(**settings)
    return read(reader, reader.span(None, end_of_batch(reader, None)))


def test_bad_records_keep_their_place_and_text(tmp_path: Path) -> None:
    """They go to quarantine with the batch."""
    table = stored(tmp_path, [{"k": 1}, {"k": "x"}, {"k": 3}])
    assert table["k"].to_pylist() == [1, None, 3]
    assert table[POSITION].to_pylist() == [0, 1, 2]
    assert table[RAW].to_pylist() == [None, '{"k": "x"}', None]
    assert table[ERROR].null_count == 2


def test_a_bad_record_fails_the_batch_where_the_job_says_so(tmp_path: Path) -> None:
    """The error names the block."""
    with pytest.raises(BadRecordFound, match="does not fit") as raised:
        stored(tmp_path, [{"k": "x"}], on_bad_record=BadRecord.FAIL)
    assert raised.value.where == "blocks/s-0/000001/000000000000"


@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        (pa.schema([("k", pa.int64()), ("new", pa.string())]), [{"k": 1, "new": None}, {"k": 300, "new": None}]),
        (pa.schema([("new", pa.float64())]), [{"new": None}, {"new": None}]),
        (pa.schema([("k", pa.string())]), [{"k": "1"}, {"k": "300"}]),
        (pa.schema([("k", pa.int8())]), [{"k": 1}, {"k": None}]),
        (pa.schema([pa.field("k", pa.int64(), nullable=False)]), [{"k": 1}, {"k": 300}]),
    ],
    ids=["a new column", "another column", "a wider type", "a narrower type", "not null"],
)
def test_blocks_of_older_code_are_read_by_the_columns_of_now(schema: pa.Schema, rows: list[dict]) -> None:
    """Code may change while blocks wait; a value that does not fit any more is a bad record."""
    fitted, errors, raw = StoredRows(schema).fitted(Encode(SCHEMA)([{"k": 1}, {"k": 300}]))
    assert fitted.to_pylist() == rows
    assert fitted.schema == schema
    assert (errors is not None) is (schema.types == [pa.int8()])
    assert (raw is not None) is (errors is not None)


def test_a_record_that_was_bad_stays_so_by_other_columns() -> None:
    """With the first reason and its text."""
    schema = pa.schema([pa.field("k", pa.string(), nullable=False)])
    fitted, errors, raw = StoredRows(schema).fitted(Encode(SCHEMA)([{"k": 1}, {"k": "x"}]))
    assert fitted["k"].to_pylist() == ["1", None]
    assert errors is not None
    assert "does not fit" in errors.to_pylist()[1]
    assert raw is not None
    assert raw.to_pylist()[1] == '{"k": "x"}'


@pytest.mark.fault("F14")
def test_a_damaged_block_fails_the_batch(tmp_path: Path) -> None:
    """It is named, and its rows are not passed over."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(2)
    reader = pushed.reader()
    span = reader.span(None, end_of_batch(reader, None))
    log = pushed.log(0)
    path = log.path(Place(1, 0))
    data = bytearray(log.store.read(path))
    data[-40] ^= 1
    log.store.delete(path)
    log.store.create(path, bytes(data))
    with pytest.raises(CheckpointCorrupt):
        read(reader, span)


def test_partitions_are_the_receivers_in_order(tmp_path: Path) -> None:
    """Their blocks, one after the other."""
    pushed = Pushed(tmp_path / "job")
    pushed.add(8)
    reader = pushed.reader(splits=3)
    span = reader.span(None, end_of_batch(reader, None))
    assert [(index, name) for index, name, _ in blocks_of(span)] == [(0, "0"), (0, "0"), (1, "1"), (1, "1")]
    assert set(read(reader, span, 3)[PARTITION].to_pylist()) == {0, 1}
    assert reader.partitions(span) == ("0", "1")
