"""What every sink promises the driver loop (sinks/base.py; SEMANTICS 9.4).

The suites are those of penstock.testing.sink_contract; here every sink of Penstock runs those for what it can do.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kafka_topics import records_in
from pyarrow.dataset import dataset
from system_errors import OF_WRITES, name_of
from written_files import stage_by_form, staged_of

from penstock.errors import CheckpointCopied, SinkConflict, StorageUnavailable
from penstock.sinks import (
    Console,
    Delivery,
    Delta,
    Json,
    JsonLines,
    Kafka,
    MemorySink,
    Mode,
    NewTopic,
    Parquet,
    Postgres,
)
from penstock.sinks.base import Publication, Staged, Target
from penstock.sinks.files.folders import output_folder
from penstock.sinks.staged_files import stage_table
from penstock.testing.sink_contract import (
    APP,
    SCHEMA,
    CreatingContract,
    DeduplicatingContract,
    ReadableContract,
    RepeatingContract,
    SinkContract,
    TruncatableContract,
    World,
)


def memory_world(folder: Path) -> World:
    """Return rows in the process."""
    sink = MemorySink()
    return World(sink, folder, lambda: [row["k"] for row in sink.rows()])


def delta_world(folder: Path, **more: Any) -> World:
    """Return a Delta table, committed by delta-rs."""
    path = str(folder / "table")
    return World(
        Delta(path, **more),
        folder,
        lambda: DeltaTable(path).to_pyarrow_table()["k"].to_pylist() if DeltaTable.is_deltatable(path) else [],
    )


class CopyContract(SinkContract):
    """The suite for sinks that tell a batch from that of a driver with a copy of the checkpoint."""

    @pytest.mark.remedy("PEN-SNK-025")
    @pytest.mark.fault("F31")
    def test_a_batch_that_a_copy_has_published_is_no_batch_of_ours(self, made: World) -> None:
        """Publication.refuse_copy: its rows stay, ours are not taken for shown, and a redo of its own is a redo."""

        def batch(number: int, k: int, fingerprint: int | None) -> Publication:
            return replace(made.publication(number, made.stage(k)), fingerprint=fingerprint)

        ours, copy = made.publisher(), made.publisher()
        ours.publish(batch(6, 6, 1))
        theirs = batch(7, 7, 2**31 - 1)
        copy.publish(theirs)
        # A publisher that somebody has fenced is told that first, and another one is asked at the next start.
        with pytest.raises(SinkConflict if isinstance(made.sink, Kafka) else CheckpointCopied):
            ours.publish(batch(7, 8, 2))
        with pytest.raises(CheckpointCopied, match="batch 7 is there already") as caught:
            made.publisher().publish(batch(7, 8, 2))
        assert (caught.value.exit_code, caught.value.fields) == (78, {"batch": 7})
        made.publisher().publish(theirs)
        made.publisher().publish(batch(7, 9, None))
        made.publisher().publish(batch(8, 8, 1))
        with pytest.raises(CheckpointCopied):
            made.publisher().publish(batch(8, 9, 2))
        made.publisher().publish(batch(9, 9, None))
        made.publisher().publish(batch(9, 10, 3))  # earlier versions have noted none, and may be there again
        assert made.shown() == [6, 7, 8, 9]


class TestMemorySink(CopyContract, DeduplicatingContract, ReadableContract):
    """Rows in the process."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return memory_world

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return memory_world(tmp_path)


class TestDelta(CopyContract, CreatingContract, ReadableContract, TruncatableContract):
    """A Delta table, committed by delta-rs."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return delta_world

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return delta_world(tmp_path)


def parquet_world(folder: Path) -> World:
    """Return a folder of Parquet files, whose manifest and whose listing have the same rows."""
    sink = Parquet(folder / "out")

    def shown() -> list[int]:
        named = [k for file in sink.files() for k in pq.read_table(file.path)["k"].to_pylist()]
        if not (folder / "out").is_dir():
            return named
        listed = dataset(folder / "out", schema=pa.schema([("k", pa.int64())]), format="parquet").to_table()
        assert Counter(named) == Counter(listed["k"].to_pylist())
        return named

    return World(sink, folder, shown)


class TaskWorld(World):
    """A folder whose staged files are those that tasks with many rows write."""

    def stage(self, *ks: int) -> Staged:
        """Return the file of a task."""
        self.names += 1
        rows = pa.table({"k": list(ks)}, schema=SCHEMA)
        (file,) = stage_by_form(rows, replace(self.sink.task_form(), few=0), self.staging, f"{self.names:04d}")
        return staged_of(file)


def by_tasks(world: World) -> World:
    """Return a world whose tasks leave no row to the driver."""
    return TaskWorld(world.sink, world.folder, world.show)


class OwnRowsContract(TruncatableContract):
    """The suite for sinks that take their own rows back, whatever others have written since."""

    def test_rows_of_others_are_never_taken_back(self, made: World) -> None:
        """TruncatableSink: they stay, and forbid nothing."""
        self.publish(made, 0, 1)
        target = Target(app=APP, batch=0, slot=3)
        made.publisher().publish(made.publication(5, made.stage(9), app="other/s"))
        version = made.sink.find_version(target)
        assert made.sink.put_back(target, version, slot=20, newest=1)
        assert sorted(made.shown()) == [0, 9]


class TestParquet(CopyContract, CreatingContract, OwnRowsContract):
    """A folder of Parquet files."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return parquet_world

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return parquet_world(tmp_path)


class TestParquetOfTasks(CopyContract, CreatingContract, OwnRowsContract):
    """A folder of Parquet files that tasks have written."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return lambda folder: by_tasks(parquet_world(folder))

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return by_tasks(parquet_world(tmp_path))


def json_lines_world(folder: Path) -> World:
    """Return a folder of JSON lines, whose manifest names all of its files."""
    sink = JsonLines(folder / "out")

    def shown() -> list[int]:
        paths = sorted(file.path for file in sink.files())
        assert paths == sorted(map(str, (folder / "out").glob("*.jsonl")))
        return [json.loads(line)["k"] for path in paths for line in Path(path).read_text().splitlines()]

    return World(sink, folder, shown)


class TestJsonLines(CopyContract, CreatingContract, OwnRowsContract):
    """A folder of files with a JSON object a line."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return json_lines_world

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return json_lines_world(tmp_path)


class TestJsonLinesOfTasks(CopyContract, CreatingContract, OwnRowsContract):
    """A folder of files with a JSON object a line that tasks have written."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return lambda folder: by_tasks(json_lines_world(folder))

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return by_tasks(json_lines_world(tmp_path))


def hdfs_world(url: str, folder: Path) -> World:
    """Return a folder of JSON lines on HDFS."""
    sink = JsonLines(url)
    output = output_folder(url)

    def shown() -> list[int]:
        names = [file.path.removeprefix(f"{url}/") for file in sink.files()]
        assert sorted(names) == [name for name in output.names("") if not name.startswith("_")]
        return [json.loads(line)["k"] for name in names for line in (output.read(name) or b"").splitlines()]

    return World(sink, folder, shown)


@pytest.mark.integration
@pytest.mark.sample(3, of="files of sinks on HDFS")
class TestJsonLinesOnHdfs(CopyContract, CreatingContract, OwnRowsContract):
    """A folder on HDFS."""

    @pytest.fixture
    def another(self, hdfs: Any) -> Callable[[Path], World]:
        return lambda folder: hdfs_world(hdfs.url(secrets.token_hex(8)), folder)

    @pytest.fixture
    def world(self, hdfs: Any, tmp_path: Path) -> World:
        return hdfs_world(hdfs.url(secrets.token_hex(8)), tmp_path)


@pytest.mark.integration
@pytest.mark.sample(3, of="files of sinks on HDFS")
class TestJsonLinesOfTasksOnHdfs(CopyContract, CreatingContract, OwnRowsContract):
    """A folder on HDFS with files that tasks have written."""

    @pytest.fixture
    def another(self, hdfs: Any) -> Callable[[Path], World]:
        return lambda folder: by_tasks(hdfs_world(hdfs.url(secrets.token_hex(8)), folder))

    @pytest.fixture
    def world(self, hdfs: Any, tmp_path: Path) -> World:
        return by_tasks(hdfs_world(hdfs.url(secrets.token_hex(8)), tmp_path))


class TestDeltaUpsert(CopyContract, CreatingContract, TruncatableContract):
    """A Delta table in which rows replace those of their keys."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return lambda folder: delta_world(folder, mode=Mode.UPSERT, keys=["k"])

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return delta_world(tmp_path, mode=Mode.UPSERT, keys=["k"])


def kafka_world(kafka: Any, folder: Path, delivery: Delivery = Delivery.EXACTLY_ONCE) -> World:
    """Return a topic of one partition for each number that the suite writes, by their column."""
    topic = kafka.new_name()
    sink = Kafka(
        topic, servers=kafka.address, value=Encoded(), partition="k", delivery=delivery,
        new_topic=NewTopic(partitions=16),
    )  # fmt: skip
    return World(sink, folder, lambda: [record.partition for record in records_in(kafka.address, topic)])


class Encoded(Json):
    """JSON of no columns: the partition of a record is all that the suite writes."""

    def encode(self, rows: pa.Table) -> pa.Array:
        return pa.repeat(pa.scalar("{}"), rows.num_rows)


@pytest.mark.integration
@pytest.mark.usefixtures("topic")  # creates topics, which are unknown at first
@pytest.mark.sample(8, of="exactly once into Kafka")
class TestKafka(CopyContract, CreatingContract, DeduplicatingContract):
    """A topic, written in transactions."""

    @pytest.fixture
    def another(self, kafka: Any) -> Callable[[Path], World]:
        return lambda folder: kafka_world(kafka, folder)

    @pytest.fixture
    def world(self, kafka: Any, tmp_path: Path) -> World:
        return kafka_world(kafka, tmp_path)


@pytest.mark.integration
@pytest.mark.usefixtures("topic")
@pytest.mark.sample(6, of="at least once into Kafka")
class TestKafkaAtLeastOnce(CreatingContract, RepeatingContract):
    """A topic, written without transactions."""

    @pytest.fixture
    def world(self, kafka: Any, tmp_path: Path) -> World:
        return kafka_world(kafka, tmp_path, Delivery.AT_LEAST_ONCE)


def postgres_world(postgres: Any, folder: Path, **more: Any) -> World:
    """Return a table of PostgreSQL with the numbers that the suite writes."""
    table = postgres.new_name()

    def shown() -> list[int]:
        there = postgres.ask("SELECT to_regclass(%s) IS NOT NULL", table)[0][0]
        return [k for (k,) in postgres.ask(f"SELECT k FROM {table}")] if there else []  # noqa: S608 - a name of ours

    return World(Postgres(postgres.dsn(), table, **more), folder, shown)


@pytest.mark.integration
@pytest.mark.sample(8, of="appends to PostgreSQL")
class TestPostgres(CopyContract, CreatingContract, DeduplicatingContract):
    """A table of PostgreSQL that each row is added to."""

    @pytest.fixture
    def another(self, postgres: Any) -> Callable[[Path], World]:
        return lambda folder: postgres_world(postgres, folder)

    @pytest.fixture
    def world(self, postgres: Any, tmp_path: Path) -> World:
        return postgres_world(postgres, tmp_path)


@pytest.mark.integration
@pytest.mark.sample(8, of="upserts into PostgreSQL")
class TestPostgresUpsert(CopyContract, CreatingContract, DeduplicatingContract):
    """A table of PostgreSQL in which rows replace those of their keys."""

    @pytest.fixture
    def another(self, postgres: Any) -> Callable[[Path], World]:
        return lambda folder: postgres_world(postgres, folder, mode=Mode.UPSERT, keys=["k"])

    @pytest.fixture
    def world(self, postgres: Any, tmp_path: Path) -> World:
        return postgres_world(postgres, tmp_path, mode=Mode.UPSERT, keys=["k"])


class TestConsole(RepeatingContract):
    """Rows on the terminal."""

    @pytest.fixture
    def world(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> World:
        printed: list[str] = []

        def shown() -> list[int]:
            printed.append(capsys.readouterr().out)
            cells = (line.strip("│ ").strip() for line in "".join(printed).splitlines())
            return [int(cell) for cell in cells if cell.isdecimal()]

        return World(Console(), tmp_path, shown)


def test_the_console_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEMANTICS 9.4: at least once; what was printed cannot be told."""
    world = World(Console(rows=2), tmp_path, list)
    publisher = world.publisher()
    for _ in range(2):
        publisher.publish(world.publication(0, world.stage(11, 12, 13)))
    publisher.publish(world.publication(1))
    printed = capsys.readouterr().out
    assert printed.count("batch 0") == printed.count("11") == printed.count("1 more rows") == 2
    assert "13" not in printed


# --- files that are staged -------------------------------------------------------------------


@pytest.mark.fault("F27")
@pytest.mark.parametrize(("number", "error"), [*OF_WRITES, (errno.ENOENT, StorageUnavailable)], ids=name_of)
def test_a_file_that_cannot_be_staged_is_told_by_its_cause(
    number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stage_table`: only a full disk is called full, since a retry helps there; no part keeps the name."""

    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(error, match=r"a\.parquet"):
        stage_table(pa.table({"k": [1]}), tmp_path / "staged", "a.parquet")
    assert list((tmp_path / "staged").iterdir()) == []


def test_a_file_that_stands_in_the_way_is_left(tmp_path: Path) -> None:
    """`stage_table`: somebody else's rows may be in it, and be named by a Commit."""
    stage_table(pa.table({"k": [1]}), tmp_path, "a.parquet")
    before = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(StorageUnavailable, match="File exists"):
        stage_table(pa.table({"k": [2]}), tmp_path, "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == before
