"""What a commit into a Delta table leaves in its log, and that it costs the same after many (decision 49)."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake

from penstock.errors import CheckpointCopied, PenstockError, SinkBehind, SinkForgets, SinkRefused, SinkSchemaMismatch
from penstock.sinks import Delta
from penstock.sinks.base import Publication, Staged
from penstock.sinks.delta.log_entry import entry_name
from penstock.sinks.delta.publisher import DeltaPublisher
from penstock.sinks.staged_files import stage_table

pytestmark = [pytest.mark.integration, pytest.mark.sample(2, of="Delta publishers")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64())])
APP = "uuid/out"


def staged(folder: Path, name: str, k: int) -> Staged:
    """Return a staged file of one row."""
    return Staged(**stage_table(pa.table([[k]], schema=SCHEMA), folder, f"{name}.parquet"))


def publish(publisher: DeltaPublisher, path: Path, batch: int, name: str | None = None) -> None:
    """Publish a row with the number of the batch."""
    file = staged(path, name or f"{batch:012d}", batch)
    publisher.publish(Publication(app=APP, batch=batch, files=(file,), schema=SCHEMA))


def opened(path: Path) -> DeltaPublisher:
    """Return a publisher of a table that is made if it is not there."""
    sink = Delta(path)
    sink.create(SCHEMA, None)
    publisher = sink.open(sink.staging(path / "staged"), None)
    assert isinstance(publisher, DeltaPublisher)
    return publisher


def shown(path: Path) -> list[int]:
    """Return the rows of a table as delta-rs reads them."""
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["k"].to_pylist())


@pytest.mark.spark
def test_spark_reads_what_was_committed(tmp_path: Path, spark: SparkSession) -> None:
    """Rows, files whose names must be quoted, app and batch, and the history; beside what a dead process left."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, path, 0)
    publish(publisher, path, 1, "a b%20c")
    (path / "_delta_log" / f".tmp-{'0' * 32}").write_text("half an ent")
    assert sorted(row.k for row in spark.read.format("delta").load(str(path)).collect()) == shown(path) == [0, 1]
    assert DeltaTable(str(path)).transaction_version(APP) == 1
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert [(row.version, row.operation, row.isBlindAppend, row.operationMetrics) for row in history][:2] == [
        (2, "WRITE", True, {"numFiles": "1"}),
        (1, "WRITE", True, {"numFiles": "1"}),
    ]
    spark.createDataFrame([(7,)], "k long").write.format("delta").mode("append").save(str(path))
    publish(publisher, path, 2)
    assert shown(path) == [0, 1, 2, 7]


def test_who_may_read_the_table_may_read_its_log(tmp_path: Path) -> None:
    """An entry has the mode of any file that the process makes."""
    path = tmp_path / "table"
    publish(opened(path), path, 0)
    plain = tmp_path / "plain"
    plain.touch()
    entry = path / "_delta_log" / entry_name(1)
    assert stat.S_IMODE(entry.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_publisher_looks_at_a_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a table grows, and whoever lists it for each batch takes longer from batch to batch."""
    path = tmp_path / "table"
    looks: list[str] = []
    look = DeltaPublisher._look
    monkeypatch.setattr(DeltaPublisher, "_look", lambda self, *asked: looks.append(asked[0]) or look(self, *asked))
    publisher = opened(path)
    for batch in range(20):
        publish(publisher, path, batch)
    assert looks == [APP]
    assert shown(path) == list(range(20))


@pytest.mark.parametrize("interval", [None, 5])
def test_the_log_is_folded_now_and_then(interval: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the versions that the table says, every hundredth where it says nothing; readers need no older entry then.

    The publisher does not look at its table again because of that.
    """
    path = tmp_path / "table"
    looks, look = list[str](), DeltaPublisher._look
    monkeypatch.setattr(DeltaPublisher, "_look", lambda self, *asked: looks.append(asked[0]) or look(self, *asked))
    if interval is not None:
        properties = {"delta.checkpointInterval": str(interval)}
        DeltaTable.create(str(path), Schema.from_arrow(SCHEMA), configuration=properties)
    publisher = opened(path)
    versions = interval or 100
    for batch in range(2 * versions):
        publish(publisher, path, batch)
        if publisher._folding is not None:
            publisher._folding.wait()
    log = path / "_delta_log"
    folded = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert folded == [versions, 2 * versions]
    newest = json.loads((log / "_last_checkpoint").read_text())["version"]
    assert (newest, looks) == (2 * versions, [APP])
    for version in range(newest):
        (log / entry_name(version)).unlink()
    assert shown(path) == list(range(2 * versions))


def test_a_log_that_cannot_be_folded_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told, and the rows are published."""
    path = tmp_path / "table"
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA), configuration={"delta.checkpointInterval": "2"})
    (path / "_delta_log" / "_last_checkpoint").mkdir()
    publisher = opened(path)
    for batch in range(3):
        publish(publisher, path, batch)
        if publisher._folding is not None:
            publisher._folding.wait()
    assert shown(path) == [0, 1, 2]
    assert "no checkpoint of a table's log" in capsys.readouterr().out


@pytest.mark.fault("F59", "F70")
def test_a_table_that_was_made_again_under_a_stream_takes_no_rows(tmp_path: Path) -> None:
    """SEMANTICS 9.5: batches that the table has shown are gone from it, so the stream stops, and nothing is written."""
    path = tmp_path / "table"
    publisher = opened(path)
    for batch in range(5):
        publish(publisher, path, batch)
    shutil.rmtree(path / "_delta_log")
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA))
    with pytest.raises(SinkBehind, match="shows no batch of this checkpoint as the newest, and had batch 4") as caught:
        publish(publisher, path, 5)
    assert (caught.value.exit_code, caught.value.where) == (78, str(path))
    assert (shown(path), DeltaTable(str(path)).version()) == ([], 0)


@pytest.mark.fault("F59")
def test_a_table_that_was_made_anew_with_other_columns_takes_no_rows(tmp_path: Path) -> None:
    """F42 under a running stream: told as at a start, and nothing is written."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, path, 0)
    shutil.rmtree(path / "_delta_log")
    DeltaTable.create(str(path), Schema.from_arrow(pa.schema([("z", pa.string())])))
    with pytest.raises(SinkSchemaMismatch):
        publish(publisher, path, 1)
    assert DeltaTable(str(path)).version() == 0


@pytest.mark.fault("F59")
@pytest.mark.parametrize("interval", ["0", "abc", "-1"])
def test_an_interval_that_is_none_is_passed_over(tmp_path: Path, interval: str) -> None:
    """A table may say anything in its settings."""
    path = tmp_path / "table"
    properties = {"delta.checkpointInterval": interval}
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA), configuration=properties)
    publisher = opened(path)
    for batch in range(3):
        publish(publisher, path, batch)
    assert shown(path) == [0, 1, 2]


@pytest.mark.remedy("PEN-SNK-005")
@pytest.mark.fault("F59")
def test_a_table_that_forgets_its_batches_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """A batch would be published again once the table has forgotten it; without the property it is taken."""
    path = tmp_path / "table"
    properties = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA), configuration=properties)
    with pytest.raises(SinkForgets, match="interval 7 days") as caught:
        opened(path)
    assert (caught.value.exit_code, caught.value.where) == (78, str(path))
    spark.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")
    opened(path)


@pytest.mark.fault("F59")
def test_a_commit_is_not_forgotten_by_a_table_that_is_told_to_forget_later(tmp_path: Path) -> None:
    """The entry has no date by which it could grow old."""
    path = tmp_path / "table"
    publish(opened(path), path, 0)
    actions = [json.loads(line) for line in (path / "_delta_log" / entry_name(1)).read_text().splitlines()]
    assert [action["txn"] for action in actions if "txn" in action] == [{"appId": APP, "version": 0}]


@pytest.mark.fault("F59")
def test_a_log_that_was_folded_by_others_is_looked_at_again(tmp_path: Path) -> None:
    """Cleaning may take the newest entries away and leave an older one, so that its next name seems free."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, path, 0)
    rows = pa.table([[100]], schema=SCHEMA)
    for _ in range(3):
        write_deltalake(str(path), rows, mode="append")
    DeltaTable(str(path)).create_checkpoint()
    for version in (2, 3):
        (path / "_delta_log" / entry_name(version)).unlink()
    publish(publisher, path, 1)
    assert shown(path) == [0, 1, 100, 100, 100]


@pytest.mark.fault("F27", "F58")
def test_what_the_system_says_of_the_log_is_named(tmp_path: Path) -> None:
    """Also where only the freshness of what is known is looked at."""
    path = tmp_path / "table"
    publisher = opened(path)
    publish(publisher, path, 0)
    asked = Publication(app=APP, batch=1, files=(staged(path, "b", 1),), schema=SCHEMA)
    (path / "_delta_log").rename(path / "away")
    (path / "_delta_log").touch()
    with pytest.raises(PenstockError) as caught:
        publisher.publish(asked)
    assert caught.value.where == str(path)
    (path / "_delta_log").unlink()
    (path / "away").rename(path / "_delta_log")
    publisher.publish(asked)
    assert shown(path) == [0, 1]


@pytest.mark.fault("F59")
def test_publishers_that_take_turns_in_one_table_each_land(tmp_path: Path) -> None:
    """Two sinks into one table: each finds what the other has committed."""
    path = tmp_path / "table"
    publishers = [opened(path), opened(path)]
    for batch in range(6):
        for number, publisher in enumerate(publishers):
            file = staged(path, f"{number}-{batch}", 10 * number + batch)
            publisher.publish(Publication(app=f"uuid/{number}", batch=batch, files=(file,), schema=SCHEMA))
    assert shown(path) == [*range(6), *range(10, 16)]


@pytest.mark.fault("F31")
def test_a_copy_is_found_however_many_versions_follow_its_batch(tmp_path: Path) -> None:
    """A release of held rows may come days after that of a copy of the checkpoint."""
    path = tmp_path / "table"
    first, late = staged(path, "first", 1), staged(path, "late", 2)
    batch = {"app": f"{APP}/held/7", "batch": 7, "schema": SCHEMA}
    opened(path).publish(Publication(**batch, files=(first,), fingerprint=1))
    for version in range(2, 1_200):
        (path / "_delta_log" / entry_name(version)).write_text('{"commitInfo":{"timestamp":1}}\n')
    with pytest.raises(CheckpointCopied):
        opened(path).publish(Publication(**batch, files=(late,), fingerprint=2))
    opened(path).publish(Publication(**batch, files=(first,), fingerprint=1))
    assert shown(path) == [1]


@pytest.mark.spark
def test_a_table_that_becomes_plain_under_a_run_gets_rows_and_not_names(tmp_path: Path, spark: SparkSession) -> None:
    """Where it was not at the start, files lie below the checkpoint, and delta-spark copies them from there."""
    path = tmp_path / "table"
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA), partition_by=["k"])
    sink = Delta(path)
    sink.create(SCHEMA, spark)
    folder = tmp_path / "staged"
    publisher = sink.open(sink.staging(folder), spark)
    assert isinstance(publisher, DeltaPublisher)
    shutil.rmtree(path)
    DeltaTable.create(str(path), Schema.from_arrow(SCHEMA))
    publisher.publish(Publication(app=APP, batch=0, files=(staged(folder, "a", 7),), schema=SCHEMA))
    assert shown(path) == [7]


@pytest.mark.fault("F59")
def test_an_entry_that_was_cleaned_away_is_no_obstacle(tmp_path: Path) -> None:
    """A table that keeps no old entries loses the newest as well once it is folded."""
    path = tmp_path / "table"
    publisher = opened(path)
    for batch in range(3):
        publish(publisher, path, batch)
    DeltaTable(str(path)).create_checkpoint()
    for entry in (path / "_delta_log").glob("*.json"):
        entry.unlink()
    publish(publisher, path, 3)
    assert (shown(path), DeltaTable(str(path)).version()) == ([0, 1, 2, 3], 4)


@pytest.mark.fault("F70")
@pytest.mark.parametrize("running", [False, True])
def test_a_version_that_somebody_else_puts_back_shows_the_batches_it_had(tmp_path: Path, *, running: bool) -> None:
    """9.5: the table still noted the newest batch, so the driver went on and the rows stayed away in silence."""
    path = tmp_path / "table"
    publisher = opened(path)
    for batch in range(3):
        publish(publisher, path, batch)
    DeltaTable(str(path)).restore(2)
    assert (DeltaTable(str(path)).transaction_version(APP), shown(path)) == (2, [0, 1])
    if running:
        with pytest.raises(SinkBehind, match="shows batch 1 of this checkpoint as the newest, and had batch 2"):
            publish(publisher, path, 3)
    write_deltalake(str(path), pa.table({"k": [9]}, schema=SCHEMA), mode="append")
    publisher = opened(path)
    assert publisher.version(APP) == 1
    publish(publisher, path, 2, "again")  # the redo
    publish(publisher, path, 3, "next")
    assert (shown(path), opened(path).version(APP)) == ([0, 1, 2, 3, 9], 3)
    DeltaTable(str(path)).restore(1)
    assert opened(path).version(APP) == 0
    DeltaTable(str(path)).restore(DeltaTable(str(path)).version() - 1)
    assert opened(path).version(APP) == 3, "what was put back is there again"


def test_of_a_version_whose_entries_are_gone_the_table_is_believed(tmp_path: Path) -> None:
    """A log that was cleaned says no more, and a driver must not stop for that."""
    path = tmp_path / "table"
    publisher = opened(path)
    for batch in range(3):
        publish(publisher, path, batch)
    DeltaTable(str(path)).restore(2)
    DeltaTable(str(path)).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / entry_name(version)).unlink()
    assert opened(path).version(APP) == 2


@pytest.mark.fault("F70")
def test_delta_spark_is_not_asked_for_a_batch_that_the_table_notes_and_does_not_show(tmp_path: Path) -> None:
    """It would leave out the rows as published; the table, put back once more, shows them."""
    path = tmp_path / "table"
    for batch in range(2):
        noted = CommitProperties(app_transactions=[Transaction(APP, batch)])
        rows, asks = pa.table({"k": [batch]}, schema=SCHEMA), {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(path), rows, mode="append", configuration=asks, commit_properties=noted)
    DeltaTable(str(path)).restore(0)
    publisher = opened(path)
    assert publisher.version(APP) == 0
    with pytest.raises(SinkRefused, match="notes batch 1 and shows batch 0: RESTORE it"):
        publish(publisher, path, 1)
    DeltaTable(str(path)).restore(1)
    assert (opened(path).version(APP), shown(path)) == (1, [0, 1])
