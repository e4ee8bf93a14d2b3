"""A table whose files may not be replaced is named before the first batch, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_tables import Upserts
from deltalake import DeltaTable, Schema, write_deltalake

from penstock.errors import SinkSchemaMismatch, UpsertImpossible
from penstock.sinks import Delta, Mode

SETTINGS = [
    pytest.param({"delta.appendOnly": "true"}, "only takes appends", id="append only"),
    pytest.param({"delta.enableChangeDataFeed": "true"}, "a change data feed", id="change data feed"),
    pytest.param({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7", "delta.enableDeletionVectors": "true"}, "deletion vectors", id="deletion vectors"),
]  # fmt: skip


@pytest.mark.remedy("PEN-SNK-024")
@pytest.mark.parametrize(("settings", "message"), SETTINGS)
def test_a_table_that_asks_for_more_is_refused(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    """UpsertImpossible, at the start; an append takes some of them, and a table without it is taken."""
    table = Upserts(tmp_path)
    table.path.mkdir()
    DeltaTable.create(str(table.path), Schema.from_arrow(table.schema), configuration=settings)
    with pytest.raises(UpsertImpossible, match=message) as caught:
        table.made()
    assert (caught.value.where, caught.value.exit_code) == (str(table.path), 78)
    Delta(table.path).check(table.schema)
    Upserts(tmp_path / "another").made()


def test_not_null_is_nothing_that_forbids_it(tmp_path: Path) -> None:
    """Keys are often NOT NULL; rows are compared with that before their batch is committed."""
    table = Upserts(tmp_path)
    columns = pa.schema([column.with_nullable(column.name != "k") for column in table.schema])
    write_deltalake(str(table.path), table.rows((1, "a", 1)).cast(columns))
    table.made().publisher().publish(table.batch(0, (1, "a", 2)))
    assert table.shown() == [(1, "a", 2)]


COLUMNS = [
    pytest.param({"keys": ["x"]}, "keys names 'x'", id="no such column"),
    pytest.param({"keys": ["f"]}, "key 'f' is double, and keys are compared exactly", id="a float"),
    pytest.param({"keys": ["l"]}, "key 'l' is list", id="a list"),
    pytest.param({"keys": ["k"], "partition_by": ["f"]}, "partition_by names 'f', which is double", id="a partition"),
]


@pytest.mark.parametrize(("named", "message"), COLUMNS)
def test_columns_that_cannot_be_keys_are_refused(named: dict[str, Any], message: str, tmp_path: Path) -> None:
    """SinkSchemaMismatch, and no table is made."""
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(SinkSchemaMismatch, match=message):
        Delta(tmp_path / "table", mode=Mode.UPSERT, **named).create(schema, None)
    assert not (tmp_path / "table").exists()


def test_moments_without_a_zone_are_merged(tmp_path: Path) -> None:
    """Delta has a feature for them, which asks nothing of who replaces files."""
    table = Upserts(tmp_path, pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])).made()
    for number in range(2):
        table.publisher().publish(table.batch(number, (1, number), (2 + number, 5)))
    assert [row[0] for row in table.shown()] == [1, 2, 3]
