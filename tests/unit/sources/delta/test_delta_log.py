"""The log of a real table says the same to the source as to Spark: snapshots, checkpoints and the change data feed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_reading import Written, append, k_of, numbers, read_all, reader_of
from deltalake import DeltaTable as Table

from penstock.errors import SourceGap, SourceNotFound, TableUnreadable
from penstock.sources import DeltaTable, version
from penstock.sources.delta.log import DeltaLog
from penstock.sources.file.systems import LocalFiles
from tools.hdfs_server import HdfsServer

COLUMNS = "k long, at timestamp, p string, tags array<struct<n: int, t: string>>, m map<string, int>"


def log_of(path: Path) -> DeltaLog:
    return DeltaLog(LocalFiles(str(path)))


def without_entries(path: Path, *versions: int) -> None:
    for each in versions:
        (path / "_delta_log" / f"{each:020}.json").unlink()


@pytest.mark.slow
@pytest.mark.sample(seconds=60)
def test_a_table_of_spark_is_read_as_spark_reads_it(tmp_path: Path, spark: Any) -> None:
    """Partitioned, with old times, nested columns, a feed, a checkpoint at each second version, and a compaction."""

    def run(statement: str) -> Any:
        return spark.sql(statement.replace("TABLE_", f"delta.`{tmp_path}/t`"))

    settings = "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '2'"
    run(f"CREATE TABLE TABLE_ ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({settings})")
    run(
        "INSERT INTO TABLE_ VALUES (0, timestamp'1500-01-01 00:00:00', 'a b', array(struct(1, 'x'), null), map('y', 1))"
    )
    run(
        "INSERT INTO TABLE_ VALUES (1, null, null, null, null), (2, timestamp'2026-11-25 08:30:01', 'ü%', array(), map())"
    )
    run("UPDATE TABLE_ SET k = 3 WHERE k = 1")
    run("DELETE FROM TABLE_ WHERE p = 'ü%'")
    run("OPTIMIZE TABLE_")
    rows = run("SELECT * FROM TABLE_").toArrow()
    reader = reader_of(tmp_path / "t")
    assert reader.schema == rows.schema
    assert sorted(read_all(reader)[0], key=str) == sorted(rows.to_pylist(), key=str)
    changes = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).format("delta")
    expected = changes.load(f"{tmp_path}/t").drop("_commit_timestamp").toArrow().to_pylist()
    found, _ = read_all(reader_of(tmp_path / "t", changes=True, start=version(0)))
    assert all(row.pop("_commit_timestamp") is not None for row in found)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {row["_change_type"] for row in found} == {"insert", "update_preimage", "update_postimage", "delete"}
    newest = log_of(tmp_path / "t").versions().newest
    without_entries(tmp_path / "t", *range(newest - newest % 2))
    assert sorted(read_all(reader_of(tmp_path / "t"))[0], key=str) == sorted(rows.to_pylist(), key=str)


def test_a_change_feed_of_delta_rs_is_read_too(tmp_path: Path) -> None:
    """Files of changes where there are some, and else what was added and removed."""
    append(tmp_path, numbers(0, 4), configuration={"delta.enableChangeDataFeed": "true"})
    table = Table(str(tmp_path))
    table.update(updates={"k": "k + 10"}, predicate="k = 1")
    table.delete("k = 2")
    expected = pa.table(table.load_cdf(0)).drop_columns(["_commit_timestamp"]).to_pylist()
    found, _ = read_all(reader_of(tmp_path, changes=True, start=version(0)))
    shown = [{name: row[name] for name in expected[0]} for row in found]
    assert sorted(shown, key=str) == sorted(expected, key=str)


def test_a_log_without_its_first_entries_is_read_by_its_checkpoint(tmp_path: Path) -> None:
    """In one file or in several; older versions are gone by then."""
    written = Written(tmp_path)
    first = written.file(0)
    written.commit(first, written.file(1))
    written.commit(written.removed(first), written.file(2))
    Table(str(tmp_path)).create_checkpoint()
    without_entries(tmp_path, 0, 1, 2)
    written.commit(written.file(3))
    log = log_of(tmp_path)
    assert (log.versions().entries, list(log.versions().checkpoints)) == ((3,), [2])
    assert sorted(k_of(read_all(reader_of(tmp_path))[0])) == [1, 2, 3]
    with pytest.raises(SourceGap, match="as of version 1 is wanted"):
        log.snapshot(1)
    assert log.table(1) is None
    one = tmp_path / "_delta_log" / f"{2:020}.checkpoint.parquet"
    whole = pq.read_table(one)
    for part in (1, 2):
        name = f"{2:020}.checkpoint.{part:010}.{2:010}.parquet"
        pq.write_table(whole.slice(0, 2) if part == 1 else whole.slice(2), one.with_name(name))
    one.unlink()
    assert sorted(k_of(read_all(reader_of(tmp_path))[0])) == [1, 2, 3]
    one.with_name(f"{2:020}.checkpoint.{1:010}.{2:010}.parquet").unlink()
    assert log.versions().checkpoints == {}, "a part is no checkpoint"
    with pytest.raises(TableUnreadable, match="no description of the table"):
        reader_of(tmp_path)


def test_a_broken_log_is_named(tmp_path: Path) -> None:
    """An entry that is no JSON, a checkpoint that is no Parquet, and a folder without entries."""
    written = Written(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{")
    with pytest.raises(TableUnreadable, match="version 1 has an entry that is no JSON"):
        reader_of(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    (tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet").write_bytes(b"x")
    with pytest.raises(TableUnreadable, match="checkpoint .* cannot be read"):
        log_of(tmp_path).snapshot(written.version)
    with pytest.raises(SourceNotFound):
        log_of(tmp_path / "elsewhere").versions()


def test_metadata_is_that_of_the_version(tmp_path: Path) -> None:
    """The newest that is no later, in an entry or a checkpoint."""
    written = Written(tmp_path, owner="a")
    written.commit(written.file(0))
    written.commit(written.metadata("k long", owner="b"))
    Table(str(tmp_path)).create_checkpoint()
    log = log_of(tmp_path)
    owners = [log.table(each).metadata["configuration"]["owner"] for each in (0, 1, 2)]  # type: ignore[union-attr]
    assert owners == ["a", "a", "b"]
    without_entries(tmp_path, 0, 1, 2)
    table = log.table(2)
    assert table is not None
    assert (table.metadata["configuration"], table.partition_columns, table.has_change_feed) == (
        {"owner": "b"},
        (),
        False,
    )


@pytest.mark.fault("F13")
@pytest.mark.parametrize("left", ["", "\n", "[]", "5", '{"add": 5}'], ids=["empty", "blank", "list", "number", "add"])
def test_an_entry_that_is_damaged_is_no_version_without_rows(tmp_path: Path, left: str) -> None:
    """Else its rows would be passed over, and never read when the entry is put back."""
    written = Written(tmp_path)
    written.commit(written.file(0))
    written.commit(written.file(1))
    reader = reader_of(tmp_path, start=version(0))
    entry = tmp_path / "_delta_log" / f"{1:020}.json"
    whole = entry.read_text()
    entry.write_text(left)
    with pytest.raises(TableUnreadable, match="version 1 has an entry that is damaged"):
        read_all(reader)
    entry.write_text(whole)
    assert k_of(read_all(reader_of(tmp_path, start=version(0)))[0]) == [0, 1]


@pytest.mark.integration
def test_a_table_on_hdfs_is_read_by_its_url(hdfs: HdfsServer, tmp_path: Path) -> None:
    """Its checkpoint, entries and files, and what is committed while it is followed."""
    written = Written(tmp_path)
    written.commit(written.file(0, 1))
    Table(str(tmp_path)).create_checkpoint()
    without_entries(tmp_path, 0)
    written.commit(written.file(2, stats=False))
    url, client = hdfs.url(secrets.token_hex(8)), hdfs.client()
    place = "/" + url.split("/", 3)[3]

    def upload() -> None:
        for file in sorted(tmp_path.rglob("*.*")):
            client.write(f"{place}/{file.relative_to(tmp_path)}", file.read_bytes(), overwrite=True)

    upload()
    reader = DeltaTable(url).open(None)
    rows, at = read_all(reader)
    assert sorted(k_of(rows)) == [0, 1, 2]
    written.commit(written.file(3))
    upload()
    assert k_of(read_all(reader, at)[0]) == [3]
