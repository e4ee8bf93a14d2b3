"""A Delta table has one row a key, and each batch once, whoever races, dies or writes beside (SEMANTICS 9.4)."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_tables import APP, Upserts
from deltalake import DeltaTable, write_deltalake
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import (
    EXIT_PERSON,
    SinkAhead,
    SinkBehind,
    SinkConflict,
    SinkError,
    SinkRefused,
    SinkSchemaMismatch,
    SinkValueRefused,
    StorageFull,
    UpsertImpossible,
)
from penstock.sinks.delta import upsert_publisher as module


@pytest.fixture
def table(tmp_path: Path) -> Upserts:
    """Return a table without rows."""
    return Upserts(tmp_path).made()


class Died(BaseException):
    """The end of a driver: nothing that it would have done after it is done."""


# --- what the table shows --------------------------------------------------------------------

ROW = st.tuples(st.integers(0, 6), st.sampled_from(["a", "b c", "ä/%=", None, ""]), st.integers(0, 99))
STEP = st.one_of(
    st.tuples(st.just("batch"), st.lists(ROW, min_size=1, max_size=8)),
    st.tuples(st.just("redo"), st.just([])),
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=3)),
)


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["plain", "partitioned"])
def test_a_table_equals_a_dict_by_keys(partition_by: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Batches from several files, redone by the same run or another, and rows that others append meanwhile."""

    @settings(max_examples=examples(15))
    @given(st.lists(st.tuples(STEP, st.integers(1, 3), st.booleans()), min_size=1, max_size=6))
    def law(plan: list[Any]) -> None:
        table = Upserts(tmp_path_factory.mktemp("upserts"), partition_by=partition_by).made()
        publisher, model, last = table.publisher(), {}, None
        for number, ((kind, rows), files, dies) in enumerate(plan):
            publisher = table.publisher() if dies else publisher
            as_read = [(k, (p or None) if partition_by else p, v) for k, p, v in rows]  # Delta protocol, empty texts
            if kind == "append":
                table.append(*((100 + 10 * number + n, p, v) for n, (_, p, v) in enumerate(rows)))
                model.update({100 + 10 * number + n: (p, v) for n, (_, p, v) in enumerate(as_read)})
            elif kind == "batch":
                last = table.batch(number, *rows, files=files)
                publisher.publish(last)
                model.update({k: (p, v) for k, p, v in as_read})
            elif last is not None:
                publisher.publish(last)
            assert {k: (p, v) for k, p, v in table.shown()} == model
            assert len(table.shown()) == len(model)
        assert table.left() == set()

    law()


def test_a_key_of_several_columns_and_types_is_compared_as_a_whole(tmp_path: Path) -> None:
    """Text, moment and number together; a window's rows are replaced by those of its revision."""
    kinds = pa.schema(
        [("c", pa.string()), ("t", pa.timestamp("us", "UTC")), ("n", pa.decimal128(9, 2)), ("v", pa.int64())]
    )
    table = Upserts(tmp_path, kinds, ["c", "t", "n"]).made()
    publisher = table.publisher()
    publisher.publish(table.batch(0, ("x", 0, 1, 1), ("x", 60, 1, 2), ("y", 0, 1, 3), ("y", 0, 2, 4)))
    publisher.publish(table.batch(1, ("x", 60, 1, 20), ("y", 0, 2, 40), ("x", 0, 2, 5)))
    assert sorted(row[-1] for row in table.shown()) == [1, 3, 5, 20, 40]


def test_a_key_that_moves_to_another_partition_leaves_the_first(tmp_path: Path) -> None:
    """The keys are those of the table, not of a partition."""
    table = Upserts(tmp_path, partition_by=["p"]).made()
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1), (2, "a", 2)))
    publisher.publish(table.batch(1, (1, "b", 3)))
    assert table.shown() == [(1, "b", 3), (2, "a", 2)]
    partitions = pa.table(DeltaTable(str(table.path)).get_add_actions(flatten=True))["partition.p"].to_pylist()
    assert sorted(partitions) == ["a", "b"]


def test_a_data_file_that_is_gone_is_named_and_restoring_the_table_helps(table: Upserts) -> None:
    """Somebody has deleted it: no wait brings it back (9.6). An older version without it is a table that is behind."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    before = set(table.path.glob("*.parquet"))
    publisher.publish(table.batch(1, (2, "b", 2)))
    for lost in set(table.path.glob("*.parquet")) - before:
        lost.rename(lost.with_suffix(".away"))
    batch = table.batch(2, (1, "a", 3), (2, "b", 3))
    for publishing in (publisher, table.publisher()):
        with pytest.raises(SinkRefused, match=r"version 2 of the table has a file that is gone: .*\.parquet"):
            publishing.publish(batch)
    for found in table.path.glob("*.away"):
        found.rename(found.with_suffix(".parquet"))
    table.publisher().publish(batch)
    assert table.shown() == [(1, "a", 3), (2, "b", 3)]


@pytest.mark.fault("F13")
@pytest.mark.parametrize("damage", ["cut", "emptied", "page", "footer"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "started"])
def test_a_data_file_that_is_torn_is_named_and_what_it_says_to_do_helps(
    table: Upserts, damage: str, *, running: bool
) -> None:
    """9.6: no wait mends it, and each start tried again. A copy helps, and so does a version without the file."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    before = set(table.path.glob("*.parquet"))
    lost = table.batch(1, *((n, "b", n) for n in range(2, 200)))
    publisher.publish(lost)
    (torn,) = set(table.path.glob("*.parquet")) - before
    whole = torn.read_bytes()
    torn.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "emptied": b"",
            "page": whole[:4] + b"\xff" * 200 + whole[204:],
            "footer": whole[:-60] + b"\xff" * 52 + whole[-8:],
        }[damage]
    )
    publisher = publisher if running else table.publisher()
    publisher._footers.clear()
    batch = table.batch(2, (1, "a", 3), (2, "b", 3))
    with pytest.raises(
        SinkRefused, match=rf"{torn.name} of the table cannot be read: .*RESTORE .* without it"
    ) as caught:
        publisher.publish(batch)
    assert (caught.value.exit_code, caught.value.where) == (EXIT_PERSON, str(table.path))
    table.append((500, "z", 1))  # so that the next start reads all keys
    with pytest.raises(SinkRefused, match=f"{torn.name} of the table cannot be read"):
        table.sink.check(table.schema)
    DeltaTable(str(table.path)).restore(1)
    publisher = table.publisher()
    assert publisher.version(APP) == 0, "the next start finds what the table lacks"
    publisher.publish(lost)
    publisher.publish(batch)
    assert set(table.shown()) == {(1, "a", 3), (2, "b", 3), *((n, "b", n) for n in range(3, 200))}
    torn.write_bytes(whole)
    DeltaTable(str(table.path)).restore(2)
    table.publisher().publish(batch)
    assert set(table.shown()) == {(1, "a", 3), (2, "b", 3), *((n, "b", n) for n in range(3, 200))}


def test_a_file_that_another_version_has_replaced_meanwhile_is_not_missed(
    table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody joins files and vacuums between a look at the table and the merge, which is then tried again."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    merge, tries = module.merge, []

    def late(files: Any, *more: Any) -> Any:
        tries.append(files.version)
        if len(tries) == 1:
            other = DeltaTable(str(table.path))
            write_deltalake(other, other.to_pyarrow_table(), mode="overwrite")
            other = DeltaTable(str(table.path))
            other.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return merge(files, *more)

    monkeypatch.setattr(module, "merge", late)
    publisher._footers.clear()
    publisher.publish(table.batch(1, (1, "a", 2)))
    assert (table.shown(), len(tries)) == ([(1, "a", 2)], 2)


def test_an_older_row_of_a_batch_does_not_win(table: Upserts) -> None:
    """The order of arrival decides, and not that of files or of rows in them."""
    early, late = table.rows((1, "a", 1)), table.rows((1, "a", 2))
    files = [table.stage(late, [7]), table.stage(early, [3])]
    batch = table.batch(0)
    table.publisher().publish(type(batch)(app=APP, batch=0, files=files, schema=table.schema))
    assert table.shown() == [(1, "a", 2)]


@pytest.mark.spark
def test_spark_reads_what_was_merged_into_files_of_its_own(tmp_path: Path, spark: Any) -> None:
    """Partitions with odd names, moments as Spark writes them, NOT NULL and CHECK; and its history."""
    path = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{path}` (k BIGINT NOT NULL, p STRING, t TIMESTAMP) USING delta PARTITIONED BY (p)")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (k < 100)")
    moment = "TIMESTAMP '2026-01-01 00:00:00.123456'"
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a b', {moment}), (2, 'ä/%=', {moment}), (3, NULL, {moment})")  # noqa: S608 - ours
    schema = pa.schema([("k", pa.int64()), ("p", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    table = Upserts(tmp_path, schema).made()
    batch = table.batch(0, (2, "a b", 7), (3, "c", None), (4, None, 7))
    publisher = table.sink.open(table.staging, spark)
    publisher.refuse_values(batch.files)
    publisher.publish(batch)
    rows = spark.sql(f"SELECT k, p, unix_micros(t) FROM delta.`{path}` ORDER BY k").collect()  # noqa: S608 - ours
    assert [tuple(row) for row in rows] == [(1, "a b", 1767225600123456), (2, "a b", 7), (3, "c", None), (4, None, 7)]
    assert spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]["operation"] == "MERGE"
    with pytest.raises(SinkValueRefused, match="small"):
        publisher.refuse_values(table.batch(1, (100, "a", 7)).files)


# --- races and crashes -----------------------------------------------------------------------


@pytest.mark.fault("F58", "F08")
def test_of_publishers_that_race_for_one_batch_exactly_one_lands(table: Upserts) -> None:
    """Two drivers that ran the batch; the loser reads the table and leaves no file."""
    racers = [table.publisher() for _ in range(2)]
    for number in range(5):
        batches = [table.batch(number, (number % 2, "a", number), (10 + number, "b", number)) for _ in racers]
        barrier, errors = threading.Barrier(2), list[BaseException]()

        def race(racer: Any, batch: Any, barrier: threading.Barrier, errors: list[BaseException]) -> None:
            barrier.wait()
            try:
                racer.publish(batch)
            except BaseException as error:  # noqa: BLE001 - shown by the assertion
                errors.append(error)

        threads = [
            threading.Thread(target=race, args=(racer, batch, barrier, errors))
            for racer, batch in zip(racers, batches, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (errors, DeltaTable(str(table.path)).version()) == ([], number + 1)
    assert table.shown() == [(0, "a", 4), (1, "a", 3), *((10 + n, "b", n) for n in range(5))]
    assert table.left() == set()


@pytest.mark.fault("F59")
@pytest.mark.parametrize("what", ["appends another key", "appends the key", "rewrites the files", "deletes rows"])
def test_who_commits_while_rows_are_merged_is_merged_into(
    what: str, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F59: the merge is made anew from the table as it is then; nothing is doubled and nothing lost."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1), (2, "a", 2), (3, "a", 3)))
    publisher.publish(table.batch(1, (4, "a", 4)))
    create = module.create_entry
    tries: list[int] = []

    def overtaken(*entry: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            other = DeltaTable(str(table.path))
            if what == "appends another key":
                table.append((9, "z", 9))
            elif what == "appends the key":
                table.append((5, "z", 0))
            elif what == "rewrites the files":
                other.optimize.compact()
            else:
                other.delete("k = 3")
        return create(*entry)

    monkeypatch.setattr(module, "create_entry", overtaken)
    publisher.publish(table.batch(2, (1, "b", 10), (5, "b", 5)))
    rows = {(1, "b", 10), (2, "a", 2), (3, "a", 3), (4, "a", 4), (5, "b", 5)}
    rows = rows | {(9, "z", 9)} if what == "appends another key" else rows
    assert table.shown() == sorted(rows - ({(3, "a", 3)} if what == "deletes rows" else set()))
    assert (len(tries), table.left()) == (2, set())


@pytest.mark.fault("F58")
def test_a_table_that_never_takes_the_merge_ends_in_a_conflict(table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    """SinkConflict after bounded tries, without files that nobody names; a later start publishes the batch."""
    batch = table.batch(0, (1, "a", 1))
    with monkeypatch.context() as patched:
        patched.setattr(module, "create_entry", lambda *_: False)
        with pytest.raises(SinkConflict, match="batch 0"):
            table.publisher().publish(batch)
    assert (table.shown(), table.left()) == ([], set())
    table.publisher().publish(batch)
    assert table.shown() == [(1, "a", 1)]


@pytest.mark.fault("F01", "F58")
@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_a_batch_is_there_once_at_whatever_step_its_driver_dies(
    when: str, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next driver asks the table and publishes what is missing; files that no commit names are nobody's."""
    table.publisher().publish(table.batch(0, (1, "a", 1), (2, "a", 2)))
    batch = table.batch(1, (1, "b", 3), (3, "b", 3))
    create = module.create_entry

    def dying(*entry: Any) -> bool:
        if when == "after the commit":
            create(*entry)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(module, "create_entry", dying)
        with pytest.raises(Died):
            table.publisher().publish(batch)
    assert bool(table.left()) is (when == "before the commit")
    for _ in range(2):
        table.publisher().publish(batch)
        assert table.shown() == [(1, "b", 3), (2, "a", 2), (3, "b", 3)]
    assert DeltaTable(str(table.path)).version() == 2


@pytest.mark.fault("F31", "F08")
def test_an_old_driver_publishes_nothing_over_a_newer_one(table: Upserts) -> None:
    """F08: it was opened first, and a driver that took over has published later batches since."""
    old = table.publisher()
    late = table.batch(1, (1, "old", 1))
    table.publisher().publish(table.batch(2, (1, "new", 2)))
    with pytest.raises(SinkAhead) as caught:
        old.publish(late)
    assert (caught.value.fields, table.shown()) == ({"seen": 2, "batch": 1}, [(1, "new", 2)])


def test_a_table_that_was_made_again_under_a_stream_takes_no_rows(table: Upserts) -> None:
    """SEMANTICS 9.5: it no longer shows what it had."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    write_deltalake(str(table.path), table.rows(), mode="overwrite")  # the log, and what it knows, stays
    publisher.publish(table.batch(1, (1, "a", 2)))
    for entry in (table.path / "_delta_log").iterdir():
        entry.unlink()
    table.sink.create(table.schema, None)
    with pytest.raises(SinkBehind, match="had batch 1"):
        publisher.publish(table.batch(2, (2, "a", 2)))
    assert table.shown() == []


def test_a_table_that_is_gone_is_told(table: Upserts) -> None:
    """SinkError, and no table is made in its place."""
    publisher = table.publisher()
    (table.path / "_delta_log").rename(table.path / "_away")
    with pytest.raises(SinkError, match="the table is gone"):
        publisher.publish(table.batch(0, (1, "a", 1)))


@pytest.mark.fault("F27")
def test_a_table_without_room_takes_the_batch_later(table: Upserts) -> None:
    """F27: nothing is shown, no half file stays, and a publisher that is asked again publishes once."""
    publisher, batch = table.publisher(), table.batch(0, (1, "a", 1))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageFull):
            publisher.publish(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (table.shown(), table.left()) == ([], set())
    publisher.publish(batch)
    assert table.shown() == [(1, "a", 1)]


# --- what is refused -------------------------------------------------------------------------


def test_a_row_without_a_key_is_refused_before_the_commit(tmp_path: Path) -> None:
    """SinkValueRefused: null, and what a partitioned table reads as null."""
    table = Upserts(tmp_path, keys=["k", "p"], partition_by=["p"]).made()
    for row, message in (((None, "a", 1), "key 'k' is null"), ((1, "", 1), "key 'p' is an empty text")):
        with pytest.raises(SinkValueRefused, match=message):
            table.publisher().refuse_values(table.batch(0, row).files)
    table.publisher().refuse_values(table.batch(0, (1, "a", None)).files)


@pytest.mark.fault("F70")
def test_a_table_that_was_changed_under_a_stream_is_told(table: Upserts) -> None:
    """F70: other columns, and a feature that forbids to replace its files."""
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    DeltaTable(str(table.path)).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(UpsertImpossible, match="appendOnly"):
        publisher.publish(table.batch(1, (2, "a", 2)))
    DeltaTable(str(table.path)).alter.set_table_properties({"delta.appendOnly": "false"})
    other = pa.table({"k": [1], "w": ["x"]})
    write_deltalake(str(table.path), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SinkSchemaMismatch, match="the table has k int64, w string"):
        publisher.publish(table.batch(1, (2, "a", 2)))
    assert table.left() == set()


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us")], ids=["plain", "a feature for moments"])
def test_the_log_is_folded_now_and_then(kind: pa.DataType, tmp_path: Path) -> None:
    """Decision 49: as for rows that are added; also where the table has a feature that an upsert takes."""
    table = Upserts(tmp_path, pa.schema([("k", pa.int64()), ("v", kind)])).made()
    DeltaTable(str(table.path)).alter.set_table_properties({"delta.checkpointInterval": "3"})
    publisher = table.publisher()
    assert isinstance(publisher, module.UpsertPublisher)
    for number in range(4):
        publisher.publish(table.batch(number, (number % 2, number)))
    publisher._folding.wait()
    assert list((table.path / "_delta_log").glob("*.checkpoint.parquet"))
    assert [row[0] for row in table.shown()] == [0, 1]


@pytest.mark.fault("F70")
def test_a_version_that_somebody_else_puts_back_is_noticed(table: Upserts) -> None:
    """9.5: the table notes the newest batch still, and its rows are gone."""
    publisher = table.publisher()
    for number in range(3):
        publisher.publish(table.batch(number, (number, "p", number)))
    DeltaTable(str(table.path)).restore(2)
    with pytest.raises(SinkBehind, match="shows batch 1 of this checkpoint as the newest, and had batch 2"):
        publisher.publish(table.batch(3, (3, "p", 3)))
    again = table.publisher()
    assert again.version(APP) == 1
    again.publish(table.batch(2, (2, "p", 2)))
    assert [row[0] for row in table.shown()] == [0, 1, 2]
