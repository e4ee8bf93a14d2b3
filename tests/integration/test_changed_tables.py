"""A table that somebody changes between two batches is looked at before the next commit (F70, F42, SEMANTICS 9.4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from penstock.errors import SinkBehind, SinkError, SinkForgets, SinkSchemaMismatch
from penstock.sinks import Delta
from penstock.sinks.base import Publication, Staged
from penstock.sinks.delta.log_entry import entry_name
from penstock.sinks.delta.publisher import DeltaPublisher
from penstock.sinks.staged_files import stage_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault("F70"), pytest.mark.sample(2, of="changed tables")]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
APP = "uuid/out"


def opened(path: Path, spark: Any = None, **arguments: Any) -> DeltaPublisher:
    """Return a publisher of a table that is made if it is not there."""
    sink = Delta(path, **arguments)
    sink.create(SCHEMA, spark)
    publisher = sink.open(sink.staging(path.parent / "staged"), spark)
    assert isinstance(publisher, DeltaPublisher)
    return publisher


def publish(publisher: DeltaPublisher, batch: int) -> None:
    """Publish one row."""
    rows = pa.table([[batch], [batch]], schema=SCHEMA)
    file = Staged(**stage_table(rows, publisher.staging, f"{batch:012d}.parquet"))
    publisher.publish(Publication(app=APP, batch=batch, files=(file,), schema=SCHEMA))


def overwrite(path: Path, schema: pa.Schema) -> None:
    """Give a table other columns, as a person does with `overwriteSchema`."""
    write_deltalake(str(path), pa.table([[], []], schema=schema), mode="overwrite", schema_mode="overwrite")


def renamed(path: Path) -> None:
    """Give column v another name: rows without it would be read as null."""
    overwrite(path, pa.schema([("k", pa.int64()), ("w", pa.int64())]))


def nested(path: Path) -> None:
    """Make column v a struct: one file with a number in its place makes the whole table unreadable."""
    overwrite(path, pa.schema([("k", pa.int64()), ("v", pa.struct([("a", pa.int64())]))]))


def wider(path: Path) -> None:
    """Add a column."""
    added = pa.field("more", pa.string())
    write_deltalake(str(path), pa.table([[], [], []], schema=SCHEMA.append(added)), mode="append", schema_mode="merge")


def forgetful(path: Path) -> None:
    """Have the table forget which batches it has."""
    DeltaTable(str(path)).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})


CHANGES: list[tuple[Callable[[Path], None], type[SinkError]]] = [
    (renamed, SinkSchemaMismatch),
    (nested, SinkSchemaMismatch),
    (wider, SinkSchemaMismatch),
    (forgetful, SinkForgets),
]


@pytest.mark.parametrize(("change", "error"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_table_that_is_changed_between_two_batches_takes_no_rows(
    tmp_path: Path, change: Callable[[Path], None], error: type[SinkError]
) -> None:
    """F70: told before the commit, whoever has written the version and however short a time ago."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, 0)
    change(path)
    version = DeltaTable(str(path)).version()
    with pytest.raises(error) as caught:
        publish(publisher, 1)
    assert (caught.value.exit_code, caught.value.where) == (78, str(path))
    assert DeltaTable(str(path)).version() == version


@pytest.mark.parametrize(("change", "error"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_table_that_is_changed_while_a_driver_starts_takes_no_rows(
    tmp_path: Path, change: Callable[[Path], None], error: type[SinkError]
) -> None:
    """F70: to ask which batches it shows is no look at its columns."""
    path = tmp_path / "table"
    publisher = opened(path)
    change(path)
    publisher.version(APP)
    version = DeltaTable(str(path)).version()
    with pytest.raises(error):
        publish(publisher, 0)
    assert DeltaTable(str(path)).version() == version


@pytest.mark.remedy("PEN-SNK-003")
@pytest.mark.parametrize("change", [renamed, nested, wider], ids=lambda change: change.__name__)
def test_what_the_error_says_works(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """F70: with its columns back, the table takes the batch that it was refused, at the next start."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, 0)
    before = DeltaTable(str(path)).version()
    change(path)
    with pytest.raises(SinkSchemaMismatch, match="RESTORE"):
        publish(publisher, 1)
    DeltaTable(str(path)).restore(before)
    again = opened(path)
    again.version(APP)
    rows = pa.table([[1], [1]], schema=SCHEMA)
    file = Staged(**stage_table(rows, again.staging, "again.parquet"))
    again.publish(Publication(app=APP, batch=1, files=(file,), schema=SCHEMA))
    assert sorted(DeltaTable(str(path)).to_pyarrow_table()["v"].to_pylist()) == [0, 1]


@pytest.mark.spark
@pytest.mark.parametrize("change", [renamed, wider], ids=lambda change: change.__name__)
def test_a_table_that_delta_spark_commits_to_is_looked_at_as_well(
    tmp_path: Path, spark: SparkSession, change: Callable[[Path], None]
) -> None:
    """F70: delta-spark itself would take rows without a column, and have them read as null."""
    path = tmp_path / "table"
    publisher = opened(path, spark, partition_by=("k",))
    publish(publisher, 0)
    if change is wider:
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more string)")
    else:
        rows = spark.createDataFrame([], "k long, w long").write.format("delta").mode("overwrite")
        rows.option("overwriteSchema", "true").partitionBy("k").save(str(path))
    version = DeltaTable(str(path)).version()
    with pytest.raises(SinkSchemaMismatch):
        publish(publisher, 1)
    assert DeltaTable(str(path)).version() == version


def test_of_two_jobs_that_make_one_table_the_slower_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F70: the other's columns are the table's, whoever looked first."""
    path = tmp_path / "table"
    create = DeltaTable.create
    other = Schema.from_arrow(pa.schema([("z", pa.string())]))

    def late(*args: Any, **kwargs: Any) -> Any:
        create(str(path), other)
        return create(*args, **kwargs)

    monkeypatch.setattr(DeltaTable, "create", late)
    with pytest.raises(SinkSchemaMismatch, match="the table has z string"):
        Delta(path).create(SCHEMA, None)


def test_an_entry_that_is_written_over_stops_the_stream(tmp_path: Path) -> None:
    """SEMANTICS 9.5: who commits beside the stream on a file system without exclusive rename may take a batch away."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, 0)
    publish(publisher, 1)
    entry = path / "_delta_log" / entry_name(2)
    lines = [line for line in entry.read_text().splitlines() if '"add"' not in line and '"txn"' not in line]
    entry.unlink()
    entry.write_text("\n".join(lines) + "\n")
    with pytest.raises(SinkBehind, match="shows batch 0 of this checkpoint as the newest, and had batch 1"):
        publish(publisher, 2)
    assert DeltaTable(str(path)).version() == 2
