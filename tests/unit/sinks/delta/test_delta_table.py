"""Delta tables take each batch once, whoever races, retries or shares the table (DESIGN 4, FACTS 3, SEMANTICS 9.4)."""

from __future__ import annotations

import json
import os
import resource
import threading
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock import Job
from penstock.errors import (
    EXIT_PERSON,
    CheckpointCopied,
    CheckpointCorrupt,
    RootUnsafe,
    SinkAhead,
    SinkConflict,
    SinkError,
    SinkRefused,
    SinkSchemaMismatch,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from penstock.sinks import Delta
from penstock.sinks.base import Publication, Staged
from penstock.sinks.delta.publisher import DeltaPublisher
from penstock.sinks.delta.table import refuse_unfit
from penstock.sinks.staged_files import stage_table
from penstock.sources import MemorySource
from penstock.testing import Harness

pytestmark = [pytest.mark.integration, pytest.mark.sample(3, of="Delta tables")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.string())])
APP = "uuid/out"


def stage(folder: Path, name: str, *ks: int | None) -> Staged:
    """Return a staged file of rows."""
    table = pa.table([list(ks), [f"p{(k or 0) % 2}" for k in ks]], schema=SCHEMA)
    return Staged(**stage_table(table, folder, f"{name}.parquet"))


def publication(batch: int, *files: Staged, app: str = APP) -> Publication:
    """Return what the driver asks for."""
    return Publication(app=app, batch=batch, files=files, schema=SCHEMA)


def shown(path: Path) -> list[int]:
    """Return the column k of the table as it is now, sorted."""
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["k"].to_pylist())


def actions(path: Path) -> list[dict[str, Any]]:
    """Return the actions of the newest commit of a table."""
    newest = max((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def prepared(path: Path, spark: Any = None, **arguments: Any) -> Delta:
    """Return a sink whose table has been made or found fit."""
    sink = Delta(path, **arguments)
    sink.create(SCHEMA, spark)
    return sink


def opened(sink: Delta, folder: Path, spark: Any = None) -> DeltaPublisher:
    """Return the publisher of another run."""
    publisher = sink.open(sink.staging(folder), spark)
    assert isinstance(publisher, DeltaPublisher)
    return publisher


# --- races -----------------------------------------------------------------------------------


@pytest.mark.fault("F58", "F08")
def test_of_publishers_that_race_for_one_batch_exactly_one_lands(tmp_path: Path) -> None:
    """F58: a failed commit is no evidence; the table is read again and asked, and the batch is there once."""
    sink = prepared(tmp_path / "table")
    racers = [opened(sink, tmp_path / "staged") for _ in range(2)]
    for racer in racers:
        racer.version(APP)
    for batch in range(25):
        # Each racer has a file of its own, as two drivers that ran the batch would.
        files = [stage(tmp_path / "table", f"{batch}-{n}", batch) for n in range(2)]
        barrier = threading.Barrier(2)
        errors: list[BaseException] = []

        def race(racer: DeltaPublisher, asked: Publication, barrier: threading.Barrier, errors: list[Any]) -> None:
            barrier.wait()
            try:
                racer.publish(asked)
            except BaseException as error:  # noqa: BLE001 - shown by the assertion
                errors.append(error)

        threads = [
            threading.Thread(target=race, args=(racer, publication(batch, file), barrier, errors))
            for racer, file in zip(racers, files, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert shown(tmp_path / "table") == list(range(batch + 1))
    table = DeltaTable(str(tmp_path / "table"))
    assert table.version() == 25, "one commit a batch, after the one that made the table"
    assert table.transaction_version(APP) == 24


@pytest.mark.fault("F58")
def test_a_stale_handle_does_not_publish_twice(tmp_path: Path) -> None:
    """F58: the handle shows no version, the table has it: the conflict is read back as done."""
    sink = prepared(tmp_path / "table")
    stale, other = (opened(sink, tmp_path / "staged") for _ in range(2))
    assert stale.version(APP) is None
    other.publish(publication(0, stage(tmp_path / "table", "a", 1)))
    stale.publish(publication(0, stage(tmp_path / "table", "b", 2)))
    assert shown(tmp_path / "table") == [1]


@pytest.mark.fault("F31", "F08")
def test_a_stale_handle_does_not_set_the_version_back(tmp_path: Path) -> None:
    """F31, FACTS 3: a later batch landed behind the handle's back; nothing is appended and both numbers are told."""
    sink = prepared(tmp_path / "table")
    stale, other = (opened(sink, tmp_path / "staged") for _ in range(2))
    assert stale.version(APP) is None
    other.publish(publication(5, stage(tmp_path / "table", "a", 5)))
    with pytest.raises(SinkAhead) as caught:
        stale.publish(publication(4, stage(tmp_path / "table", "b", 4)))
    assert caught.value.fields == {"seen": 5, "batch": 4}
    assert shown(tmp_path / "table") == [5]
    assert DeltaTable(str(tmp_path / "table")).transaction_version(APP) == 5


@pytest.mark.fault("F59")
@pytest.mark.parametrize("how", ["append", "same app elsewhere", "overwrite"])
def test_a_commit_of_another_writer_is_no_obstacle(how: str, tmp_path: Path) -> None:
    """F59: a concurrent append or maintenance costs a retry at most, and the batch lands once."""
    path = tmp_path / "table"
    publisher = opened(prepared(path), tmp_path / "staged")
    publisher.publish(publication(0, stage(path, "a", 1)))
    rows = pa.table([[100], ["x"]], schema=SCHEMA)
    transaction = Transaction("another/app" if how == "append" else APP + "/held", 9)
    mode = "overwrite" if how == "overwrite" else "append"
    write_deltalake(str(path), rows, mode=mode, commit_properties=CommitProperties(app_transactions=[transaction]))
    publisher.publish(publication(1, stage(path, "b", 2)))
    assert shown(path) == ([2, 100] if how == "overwrite" else [1, 2, 100])
    assert publisher.version(APP) == 1


@pytest.mark.fault("F58")
def test_a_commit_that_landed_and_was_reported_failed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F58: the acknowledgement is lost; the batch is read back and not appended again."""
    publisher = opened(prepared(tmp_path / "table"), tmp_path / "staged")
    commit = DeltaPublisher._commit
    tries = []

    def lossy(self: DeltaPublisher, table: DeltaTable, asked: Publication) -> None:
        tries.append(asked.batch)
        commit(self, table, asked)
        raise CommitFailedError("the answer was lost")

    monkeypatch.setattr(DeltaPublisher, "_commit", lossy)
    publisher.publish(publication(0, stage(tmp_path / "table", "a", 1)))
    assert tries == [0]
    assert shown(tmp_path / "table") == [1]


@pytest.mark.remedy("PEN-SNK-002")
@pytest.mark.fault("F58")
def test_a_table_that_never_takes_the_commit_ends_in_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SinkConflict: bounded tries, exit 75, and nothing is shown; once nobody is first, a start publishes it."""
    publisher = opened(prepared(tmp_path / "table"), tmp_path / "staged")

    def refused(self: DeltaPublisher, table: DeltaTable, asked: Publication) -> None:
        raise CommitFailedError("somebody else was first")

    asked = publication(3, stage(tmp_path / "table", "a", 1))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaPublisher, "_commit", refused)
        with pytest.raises(SinkConflict, match="batch 3") as caught:
            publisher.publish(asked)
    assert caught.value.exit_code == 75
    assert shown(tmp_path / "table") == []
    opened(prepared(tmp_path / "table"), tmp_path / "staged").publish(asked)
    assert shown(tmp_path / "table") == [1]


# --- what the system says --------------------------------------------------------------------


@pytest.mark.fault("F27")
def test_a_table_without_room_is_told_and_takes_the_batch_later(tmp_path: Path) -> None:
    """F27: for a table that is made, and for a commit; a publisher that is asked again publishes once."""
    path = tmp_path / "table"
    publisher = opened(prepared(path), tmp_path / "staged")
    asked = publication(0, stage(path, "a", 1))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageFull, match="File too large") as caught:
            publisher.publish(asked)
        with pytest.raises(StorageFull):
            prepared(tmp_path / "other")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (caught.value.where, caught.value.exit_code, shown(path)) == (str(path), 75, [])
    publisher.publish(asked)
    assert shown(path) == [1]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"k": pa.int64()}, "the table lacks p string: "),
        ({"k": pa.int64(), "p": pa.string(), "q": pa.int32()}, "only the table has q int32: "),
        ({"k": pa.string(), "q": pa.int32()}, "the table lacks p string; only the table has q int32; in the table k is string and not int64: "),
        ({"p": pa.string(), "k": pa.int64()}, "the table has the columns in another order: "),
    ],
)  # fmt: skip
def test_the_columns_that_differ_are_named_first(columns: dict[str, pa.DataType], words: str, tmp_path: Path) -> None:
    """F70: the columns of both follow, of which there may be dozens."""
    table = DeltaTable.create(tmp_path / "table", Schema.from_arrow(pa.schema(columns.items())))
    with pytest.raises(SinkSchemaMismatch) as refused:
        refuse_unfit(table, SCHEMA, partition_by=(), where="table")
    assert refused.value.what.startswith(words)
    assert "the stream has k int64, p string and the table has " in refused.value.what


def _said(text: str) -> str:
    # The form of delta-rs.
    return (
        f"Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n   \x1b[31m↳\x1b[0m {text}\n"
    )


REFUSALS: list[tuple[str, Exception, type[Exception], str]] = [
    ("denied", OSError(_said("Permission denied (os error 13)")), StorageDenied, "Permission denied"),
    ("read only", DeltaError("Log: Read-only file system (os error 30)"), StorageDenied, "Read-only file system"),
    ("full", OSError(_said("No space left on device (os error 28)")), StorageFull, "No space left"),
    ("broken", OSError(_said("Input/output error (os error 5)")), StorageUnavailable, "Input/output error"),
    ("gone", DeltaError("No such file or directory (os error 2)"), StorageUnavailable, "No such file"),
    ("by Python", PermissionError(13, "Permission denied"), StorageDenied, "Permission denied"),
    ("else", DeltaError("Kernel error: bad\n   0: <unknown>\n"), SinkError, "Kernel error: bad"),
    ("else, by the system", OSError(_said("it is odd")), SinkError, "Unable to copy data to file: it is odd"),
]


@pytest.mark.remedy("PEN-SNK-000", "PEN-CKP-008")
@pytest.mark.fault("F58")
@pytest.mark.parametrize("outcome", ["landed", "lost"])
@pytest.mark.parametrize(("why", "error", "message"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_a_commit_whose_answer_is_an_error_is_told_and_asked_for_at_the_next_start(
    why: Exception, error: type[Exception], message: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F58: by what the system said; whether the commit landed is read back, by this publisher as by another."""
    path = tmp_path / "table"
    sink = prepared(path)
    publisher = opened(sink, tmp_path / "staged")
    commit = DeltaPublisher._commit

    def failing(self: DeltaPublisher, view: Any, asked: Publication) -> None:
        if outcome == "landed":
            commit(self, view, asked)
        raise why

    asked = publication(0, stage(path, "a", 1))
    monkeypatch.setattr(DeltaPublisher, "_commit", failing)
    with pytest.raises(error, match=message) as caught:
        publisher.publish(asked)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert caught.value.where == str(path)
    monkeypatch.undo()
    assert publisher.version(APP) == (0 if outcome == "landed" else None)
    opened(sink, tmp_path / "staged").publish(asked)
    publisher.publish(asked)
    assert shown(path) == [1]


def test_a_folder_that_may_not_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StorageDenied, with the table."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(os, "mkdir", refused)
    with pytest.raises(StorageDenied, match="Permission denied") as caught:
        prepared(tmp_path / "table")
    assert caught.value.where == str(tmp_path / "table")


def test_a_table_that_cannot_be_read_is_told_wherever_it_is_asked(tmp_path: Path) -> None:
    """At the start and at a commit: a file in place of the table, a log that is no log."""
    path = tmp_path / "table"
    sink = prepared(path)
    publisher = opened(sink, tmp_path / "staged")
    assert publisher.version(APP) is None
    (path / "_delta_log" / f"{1:020}.json").write_text("no log")
    asked = publication(0, stage(tmp_path / "staged", "a", 1))
    for call in (lambda: prepared(path), lambda: publisher.version(APP), lambda: publisher.publish(asked)):
        with pytest.raises(SinkError, match="(?i)json") as caught:
            call()
        assert caught.value.where == str(path)
    (tmp_path / "file").touch()
    with pytest.raises(RootUnsafe, match="a file is where"):
        prepared(tmp_path / "file")


@pytest.mark.fault("F13")
def test_an_emptied_entry_beside_its_summary_is_named_and_what_it_says_to_do_helps(tmp_path: Path) -> None:
    """9.5: the summary of Delta-Spark says that the table has the batch, and its rows are gone; then it is published."""
    path = tmp_path / "table"
    sink = prepared(path)
    first, second = (publication(n, stage(path, str(n), n)) for n in range(2))
    for asked in (first, second):
        opened(sink, tmp_path / "staged").publish(asked)
    logged = path / "_delta_log"
    begun = [json.loads(line) for line in (logged / f"{0:020d}.json").read_text().splitlines()]
    summary = {
        "tableSizeBytes": sum(file.size for asked in (first, second) for file in asked.files),
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [{"appId": APP, "version": 1}],
        **{name: action[name] for action in begun for name in ("metadata", "protocol") if name in action},
        "metadata": next(action["metaData"] for action in begun if "metaData" in action),
    }
    (logged / f"{2:020d}.crc").write_text(json.dumps(summary))
    (logged / f"{2:020d}.json").write_bytes(b"")
    assert (DeltaTable(str(path)).transaction_version(APP), shown(path)) == (1, [0])
    for call in (lambda: prepared(path), lambda: opened(sink, tmp_path / "staged").version(APP)):
        with pytest.raises(SinkRefused, match="00002.json of the table's log is torn or empty.*later versions out of"):
            call()
    for damaged in logged.glob(f"{2:020d}.*"):
        damaged.unlink()
    publisher = opened(sink, tmp_path / "staged")
    assert publisher.version(APP) == 0
    publisher.publish(second)
    assert shown(path) == [0, 1]


@pytest.mark.fault("F13")
@pytest.mark.parametrize("version", [2, 3], ids=["in the middle", "the newest"])
@pytest.mark.parametrize("keeps", [0, 0.5, 0.98], ids=lambda keeps: f"{keeps:.0%}")
def test_a_torn_entry_is_named_for_good_and_what_it_says_to_do_helps(
    tmp_path: Path, keeps: float, version: int
) -> None:
    """9.5: each start tried again for ever, or found the batches of an emptied entry without their rows."""
    path = tmp_path / "table"
    sink = prepared(path)
    asked = [publication(n, stage(path, str(n), n)) for n in range(3)]
    publisher = opened(sink, tmp_path / "staged")
    for each in asked:
        publisher.publish(each)
    logged = path / "_delta_log"
    entry = logged / f"{version:020d}.json"
    whole = entry.read_bytes()
    entry.unlink()
    entry.write_bytes(whole[: int(len(whole) * keeps)])
    for call in (lambda: prepared(path), lambda: opened(sink, tmp_path / "staged").version(APP)):
        with pytest.raises(SinkRefused, match=f"{entry.name} of the table's log is torn or empty") as caught:
            call()
        assert caught.value.exit_code == EXIT_PERSON
    for later in range(version, 4):
        for file in logged.glob(f"{later:020d}.*"):
            file.unlink()
    publisher = opened(sink, tmp_path / "staged")
    assert publisher.version(APP) == version - 2
    for each in asked[version - 1 :]:
        publisher.publish(each)
    assert shown(path) == [0, 1, 2]


@pytest.mark.fault("F59")
def test_a_batch_whose_files_a_vacuum_took_before_it_was_published_is_not_committed(tmp_path: Path) -> None:
    """The table can still be read, and the error is that of a start that finds them gone."""
    path = tmp_path / "table"
    sink = prepared(path)
    publisher = opened(sink, tmp_path / "staged")
    publisher.publish(publication(0, stage(path, "a", 1)))
    asked = publication(1, stage(path, "b", 2))
    DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    for publishing in (publisher, opened(sink, tmp_path / "staged")):
        with pytest.raises(CheckpointCorrupt, match=r"the staged file is gone.*b\.parquet"):
            publishing.publish(asked)
    assert (shown(path), publisher.version(APP)) == ([1], 0)


# --- the table -------------------------------------------------------------------------------


def test_the_table_is_made_with_the_columns_of_the_stream(tmp_path: Path) -> None:
    """Delta: made at the start, once, empty; a second start finds it fit."""
    path = tmp_path / "below" / "table"
    for _ in range(2):
        prepared(path)
    table = DeltaTable(str(path))
    assert pa.schema(table.schema().to_arrow()).names == SCHEMA.names
    assert (table.version(), shown(path)) == (0, [])


OTHERS = [
    ("a type", [("k", pa.int32()), ("p", pa.string())]),
    ("a name", [("k", pa.int64()), ("q", pa.string())]),
    ("one more", [("k", pa.int64()), ("p", pa.string()), ("x", pa.int64())]),
    ("one less", [("k", pa.int64())]),
]


@pytest.mark.fault("F42")
@pytest.mark.parametrize("columns", [o[1] for o in OTHERS], ids=[o[0] for o in OTHERS])
def test_a_table_with_other_columns_is_refused(columns: list[Any], tmp_path: Path) -> None:
    """F42: before anything is written, with both sides named."""
    path = tmp_path / "table"
    path.mkdir()
    DeltaTable.create(str(path), Schema.from_arrow(pa.schema(columns)))
    with pytest.raises(SinkSchemaMismatch, match="the stream has k int64, p string and the table has k ") as caught:
        prepared(path)
    assert (caught.value.where, caught.value.exit_code) == (str(path), 78)
    assert DeltaTable(str(path)).version() == 0


@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    ("there", "asked"), [((), ("p",)), (("p",), ("k",)), (("k", "p"), ("p", "k"))], ids=["none", "another", "order"]
)
def test_a_table_with_other_partitions_is_refused(
    there: tuple[str, ...], asked: tuple[str, ...], tmp_path: Path
) -> None:
    """F42: with both sides named; a sink that asks for none takes the table as it is."""
    path = tmp_path / "table"
    prepared(path, partition_by=there)
    with pytest.raises(SinkSchemaMismatch, match="partition_by") as caught:
        prepared(path, partition_by=asked)
    assert (caught.value.where, caught.value.exit_code) == (str(path), 78)
    assert str(list(asked)) in str(caught.value)
    assert str(list(there)) in str(caught.value)
    prepared(path, partition_by=there)
    prepared(path)
    assert DeltaTable(str(path)).version() == 0


def test_a_table_that_is_gone_is_told(tmp_path: Path) -> None:
    """SinkError, which a retry may help: the files are staged and the Commit names them."""
    with pytest.raises(SinkError, match="gone"):
        Delta(tmp_path / "table").open(tmp_path, None).publish(publication(0, stage(tmp_path, "a", 1)))
    assert Delta(tmp_path / "table").open(tmp_path, None).version(APP) is None


def test_files_are_staged_in_the_folder_of_a_plain_table_and_named_as_they_are(tmp_path: Path) -> None:
    """DESIGN 4: the tasks write where the table is, so publishing moves no byte."""
    path = tmp_path / "table"
    sink = prepared(path)
    assert sink.staging(tmp_path / "staged") == path.resolve()
    opened(sink, tmp_path / "staged").publish(publication(0, stage(path, "a", 1, 2)))
    (added,) = (a["add"] for a in actions(path) if "add" in a)
    assert (added["path"], json.loads(added["stats"])) == ("a.parquet", {"numRecords": 2})


SCALARS = {
    "b": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f32": (pa.float32(), [1.5, float("inf")]),
    "f64": (pa.float64(), [1e-300, float("-inf")]),
    "m": (pa.decimal128(38, 18), [Decimal("0.000000000000000001"), Decimal(-1)]),
    "s": (pa.string(), ["", "ü😀"]),
    "y": (pa.binary(), [b"", b"\x00\xff"]),
    "d": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "t": (pa.timestamp("us", tz="UTC"), [datetime(1969, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 1, 2, 3, 4, UTC)]),
    "a": (pa.list_(pa.int64()), [[], [1, None]]),
    "r": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": None, "y": "z"}]),
}


@pytest.mark.fault("F43")
def test_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    """F43: the ends of each type, and nulls, through staging, commit and a reader of its own."""
    schema = pa.schema([(name, kind) for name, (kind, _) in SCALARS.items()])
    table = pa.table([[*values, None] for _, values in SCALARS.values()], schema=schema)
    sink = Delta(tmp_path / "table")
    sink.create(schema, None)
    sink.create(schema, None)
    file = Staged(**stage_table(table, sink.staging(tmp_path / "staged"), "a.parquet"))
    asked = Publication(app=APP, batch=0, files=[file], schema=schema)
    sink.open(sink.staging(tmp_path / "staged"), None).publish(asked)
    stored = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert stored.to_pylist() == table.to_pylist()


# --- tables that delta-spark commits ---------------------------------------------------------


def _demanding(kind: str, path: Path, spark: SparkSession) -> Delta:
    if kind == "partitioned":
        return prepared(path, spark, partition_by=("p",))
    if kind == "not null":
        spark.sql(f"CREATE TABLE delta.`{path}` (k BIGINT NOT NULL, p STRING) USING delta")
        return prepared(path, spark)
    prepared(path, spark)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT positive CHECK (k >= 0)")
    return prepared(path, spark)


@pytest.mark.parametrize("kind", ["partitioned", "constrained", "not null"])
def test_a_table_that_asks_for_more_is_committed_by_delta_spark(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    """FACTS 3: with txnAppId and txnVersion, once; its files are staged below the checkpoint, not in the table."""
    path, staged = tmp_path / "table", tmp_path / "staged"
    sink = _demanding(kind, path, spark)
    assert sink.staging(staged) == staged
    publisher = opened(sink, staged, spark)
    asked = replace(publication(3, stage(staged, "a", 1, 2), stage(staged, "b", 3)), fingerprint=7)
    publisher.publish(asked)
    txn = [a["txn"] for a in actions(path) if "txn" in a]
    assert [(t["appId"], t["version"]) for t in txn] == [(APP, 3)]
    publisher.publish(asked)
    opened(sink, staged, spark).publish(asked)
    assert shown(path) == [1, 2, 3]
    assert publisher.version(APP) == 3
    with pytest.raises(SinkAhead):
        publisher.publish(publication(2, stage(staged, "c", 9)))
    copied = replace(publication(3, stage(staged, "e", 9)), fingerprint=8)
    with pytest.raises(CheckpointCopied):
        publisher.publish(copied)
    with pytest.raises(CheckpointCopied):  # the other was faster since, and delta-spark passes over the batch
        publisher._commit(publisher._view(copied, reload=True), copied)
    if kind == "partitioned":
        assert {p.name for p in path.glob("p=*")} == {"p=p0", "p=p1"}
    else:
        wrong, message = (-1, "CHECK constraint positive") if kind == "constrained" else (None, "NOT NULL constraint")
        with pytest.raises(SinkSchemaMismatch, match=message) as caught:
            publisher.publish(publication(4, stage(staged, "d", wrong)))
        assert caught.value.exit_code == 78, "no retry makes the row fit"
        assert shown(path) == [1, 2, 3]


def test_a_batch_committed_by_one_writer_is_honoured_by_the_other(tmp_path: Path, spark: SparkSession) -> None:
    """FACTS 3: delta-rs and delta-spark read each other's transactions, so a table may change hands."""
    path = tmp_path / "table"
    publisher = opened(prepared(path), path, spark)
    publisher.publish(publication(0, stage(path, "a", 1)))
    publisher._commit_by_spark(publication(0, stage(path, "again", 1)))
    assert shown(path) == [1], "delta-spark skips a version that delta-rs committed"
    publisher._commit_by_spark(publication(1, stage(path, "b", 2)))
    opened(prepared(path), path, spark).publish(publication(1, stage(path, "c", 2)))
    assert shown(path) == [1, 2], "delta-rs skips a version that delta-spark committed"


# --- two sinks -------------------------------------------------------------------------------


@pytest.mark.fault("F55")
def test_when_the_second_sink_fails_the_restart_publishes_only_the_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F55: no atomicity across sinks; each is brought up to the Commit by its own version."""
    job = Job("both", partitions=1)
    numbers = job.source("numbers", MemorySource("k long"))
    numbers.write("first", Delta(tmp_path / "first"))
    numbers.write("second", Delta(tmp_path / "second"))
    commit = DeltaPublisher._commit

    def failing(self: DeltaPublisher, table: DeltaTable, asked: Publication) -> None:
        if str(self.path).endswith("second"):
            raise SinkError("the second table is away", where=str(self.path))
        commit(self, table, asked)

    with Harness(job, tmp_path / "checkpoints") as h:
        h.batch({"numbers": [{"k": 1}]})
        monkeypatch.setattr(DeltaPublisher, "_commit", failing)
        with pytest.raises(SinkError, match="away"):
            h.batch({"numbers": [{"k": 2}]})
        assert (shown(tmp_path / "first"), shown(tmp_path / "second")) == ([1, 2], [1])
        monkeypatch.undo()
        h.restart()
        h.batch({"numbers": [{"k": 3}]})
        assert (shown(tmp_path / "first"), shown(tmp_path / "second")) == ([1, 2, 3], [1, 2, 3])
        assert DeltaTable(str(tmp_path / "first")).version() == 3, "the batch was not committed to it again"
