"""Data files are named, written and read as the log of their table has them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import Upserts
from deltalake import DeltaTable, write_deltalake

from penstock.sinks.delta.data_files import FileWriter, TableFiles, partition_text, target_size

VALUES = [
    pytest.param(7, pa.int32(), "7", id="number"),
    pytest.param(True, pa.bool_(), "true", id="boolean"),
    pytest.param(Decimal("1.50"), pa.decimal128(9, 2), "1.50", id="decimal"),
    pytest.param(date(2026, 1, 2), pa.date32(), "2026-01-02", id="date"),
    pytest.param(datetime(1, 1, 2, 3, tzinfo=UTC), pa.timestamp("us", "UTC"), "0001-01-02 03:00:00", id="moment"),
    pytest.param(datetime(2026, 1, 2, 0, 0, 0, 5, tzinfo=UTC), pa.timestamp("us", "UTC"), "2026-01-02 00:00:00.000005", id="microsecond"),
    pytest.param("a b/%=", pa.string(), "a b/%=", id="text"),
    pytest.param("", pa.string(), None, id="empty"),
    pytest.param(None, pa.string(), None, id="null"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "text"), VALUES)
def test_a_partition_has_the_text_that_delta_rs_writes_and_reads(
    value: Any, kind: pa.DataType, text: str | None, tmp_path: Path
) -> None:
    """`partition_text` of each type; rows come back with the value, from the files that delta-rs wrote."""
    assert partition_text(value, kind) == text
    rows = pa.table([[1], [value]], schema=pa.schema([("k", pa.int64()), ("p", kind)]))
    write_deltalake(str(tmp_path), rows, partition_by=["p"])
    files = TableFiles(DeltaTable(str(tmp_path)), tmp_path)
    assert [file.partition for file in files.all] == [{"p": text}]
    ((_, fragment),) = files.where()
    assert next(files.batches(fragment)).to_pylist() == [{"k": 1, "p": value or None}]


def test_footers_are_read_once_for_as_long_as_the_table_has_the_file(tmp_path: Path) -> None:
    """A publisher keeps them from batch to batch, and lets go of those of files that were removed."""
    table, footers = Upserts(tmp_path).made(), dict[str, Any]()
    publisher = table.publisher()
    for number in range(3):
        publisher.publish(table.batch(number, (1, "a", number)))
        files = TableFiles(DeltaTable(str(table.path)), table.path, footers)
        assert len(list(files.where())) == 1
        assert set(footers) == table.files()


def test_a_column_gets_a_dictionary_where_its_values_repeat(tmp_path: Path) -> None:
    """Most of the time of a write goes into dictionaries that are given up."""
    rows = pa.table({"k": list(range(100)), "p": ["a", "b"] * 50, "l": [[1]] * 100})
    with FileWriter(tmp_path, "new", rows.schema, partition={}, target=2**20) as writer:
        writer.write(rows)
    (file,) = writer.files
    group = pq.read_metadata(tmp_path / file.place).row_group(0)
    encodings = {group.column(n).path_in_schema: group.column(n).has_dictionary_page for n in range(2)}
    assert (encodings, file.rows) == ({"k": False, "p": True}, 100)


def test_what_was_written_is_deleted_after_an_error(tmp_path: Path) -> None:
    """Whole files, and the one that was begun."""
    rows = pa.table({"k": [1]})
    writer = FileWriter(tmp_path, "new", rows.schema, partition={}, target=1)

    def write(part: pa.Table) -> None:
        with writer:
            writer.write(rows)
            writer.write(part)

    with pytest.raises(KeyError):
        write(pa.table({"other": [1]}))
    assert (len(writer.files), list(tmp_path.iterdir())) == (1, [])


@pytest.mark.parametrize(
    ("setting", "size"),
    [(None, 2**26), ("1048576", 2**20), ("32mb", 2**25), ("1 GB", 2**30), ("much", 2**26), ("0", 2**26)],
)
def test_a_table_says_how_large_its_files_are(setting: str | None, size: int, tmp_path: Path) -> None:
    """`delta.targetFileSize`; what is no size counts as nothing."""
    write_deltalake(str(tmp_path), pa.table({"k": [1]}))
    if setting is not None:
        DeltaTable(str(tmp_path)).alter.set_table_properties(
            {"delta.targetFileSize": setting}, raise_if_not_exists=False
        )
    assert target_size(DeltaTable(str(tmp_path))) == size
