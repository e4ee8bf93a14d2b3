"""Publish batches into a real PostgreSQL server: once, whatever dies, and never by an old driver over a newer one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from postgres_writing import APP, Writing

from penstock.errors import (
    CheckpointCopied,
    SinkAhead,
    SinkBehind,
    SinkBusy,
    SinkRefused,
    SinkSchemaMismatch,
    SinkUnavailable,
    SinkValueRefused,
)
from penstock.sinks import Mode
from penstock.sinks.postgres import publisher as module

pytestmark = pytest.mark.integration
NUMBERS = pa.schema([("k", pa.int64())])
PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def writing(postgres: Any, tmp_path: Path) -> Writing:
    """Return a table of numbers."""
    made = Writing(tmp_path, postgres)
    made.sink.create(NUMBERS, None)
    return made


def killed(do: Callable[[], object]) -> None:
    """Do this in a process of its own, which must die."""
    child = os.fork()
    if child == 0:
        try:
            do()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def dying(connection: Any, when: str) -> Any:
    """Return a connection whose process dies at a step."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    commit, execute = connection.commit, connection.execute

    def committing() -> None:
        if when == "before the commit":
            die()
        commit()
        die()

    def executing(query: Any, *values: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None)
        if (when == "after COPY" and text.startswith("INSERT") and "penstock_stage" in text) or (
            when == "before COPY" and text.startswith("CREATE TEMP")
        ):
            die()
        return execute(query, *values)

    connection.commit, connection.execute = committing, executing
    return connection


@pytest.mark.fault("F01", "F54", "F58")
@pytest.mark.parametrize("when", ["before COPY", "after COPY", "before the commit", "after the commit"])
def test_a_batch_is_there_once_whatever_step_kills_its_driver(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """SIGKILL at each step; the next driver asks the table and publishes what is missing."""
    writing.publisher().publish(writing.numbers(0, 0))
    batch = writing.numbers(1, 1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(module, "connect", lambda dsn: dying(psycopg.connect(dsn), when))
        killed(lambda: writing.publisher().publish(batch))
    publisher = writing.publisher()
    assert publisher.version(APP) == (1 if when == "after the commit" else 0)
    publisher.publish(batch)
    assert writing.rows() == [(0,), (1,), (2,)]


@pytest.mark.fault("F58")
@pytest.mark.remedy("PEN-SNK-009")
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_connection_that_is_lost_in_commit_is_asked_about_later(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    """Nobody knows whether it went through: the stream pauses, and the next publisher asks."""

    def losing(dsn: str) -> Any:
        connection = psycopg.connect(dsn)
        commit = connection.commit

        def lost() -> None:
            if done:
                commit()
            writing.postgres.ask("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
            connection.execute("SELECT 1")

        connection.commit = lost  # type: ignore[method-assign]
        return connection

    batch = writing.numbers(0, 1)
    with monkeypatch.context() as patched:
        patched.setattr(module, "connect", losing)
        with pytest.raises(SinkUnavailable):
            writing.publisher().publish(batch)
    publisher = writing.publisher()
    assert publisher.version(APP) == (0 if done else None)
    publisher.publish(batch)
    assert writing.rows() == [(1,)]


@pytest.mark.fault("F31")
def test_two_publishers_of_one_batch_show_it_once(writing: Writing) -> None:
    """A driver that was fenced and the one that came after it, at the same time."""
    batches = [writing.numbers(n, n) for n in range(10)]
    ahead: list[int] = []

    def publish() -> None:
        for batch in batches:
            try:
                writing.publisher().publish(batch)
            except SinkAhead:
                ahead.append(batch.batch)

    racers = [threading.Thread(target=publish) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert writing.rows() == [(n,) for n in range(10)]
    assert writing.publisher().version(APP) == 9


@pytest.mark.fault("F56")
def test_a_lock_that_somebody_keeps_is_a_busy_sink(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same publisher publishes the batch when the lock is gone."""
    publisher = writing.publisher()
    publisher.publish(writing.numbers(0, 0))
    assert isinstance(publisher, module.PostgresPublisher)
    publisher._connected().execute("SET lock_timeout = '50ms'")
    publisher._connected().commit()
    with psycopg.connect(writing.postgres.dsn()) as other:
        other.execute("SELECT * FROM penstock_batches FOR UPDATE")
        with pytest.raises(SinkBusy) as caught:
            publisher.publish(writing.numbers(1, 1))
    assert caught.value.retry_after == 1.0
    publisher.publish(writing.numbers(1, 1))
    assert writing.rows() == [(0,), (1,)]


def test_a_table_that_was_dropped_and_made_again_is_behind(writing: Writing) -> None:
    """SEMANTICS 9.5: the memory is of the table, and not of its name; a renamed table keeps it."""
    publisher = writing.publisher()
    publisher.publish(writing.numbers(3, 0))
    writing.postgres.ask(f"ALTER TABLE {writing.table} RENAME TO {writing.table}_x")
    writing.postgres.ask(f"ALTER TABLE {writing.table}_x RENAME TO {writing.table}")
    publisher.publish(writing.numbers(4, 1))
    writing.postgres.ask(f"DROP TABLE {writing.table}")
    writing.sink.create(NUMBERS, None)
    with pytest.raises(SinkBehind) as caught:
        publisher.publish(writing.numbers(5, 1))
    assert (caught.value.shown, caught.value.missing) == (-1, [4])
    assert (writing.publisher().version(APP), writing.rows()) == (None, [])


@pytest.mark.fault("F70")
@pytest.mark.parametrize("step", ["_locked", "_insert", "_remember"])
def test_a_table_is_not_replaced_while_a_batch_is_written(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """9.5: the rows went into the new table and the batch to the old one, so a redo would have doubled them."""
    publisher = writing.publisher()
    publisher.publish(writing.numbers(0, 0))
    taken = getattr(module.PostgresPublisher, step)
    refused: list[str] = []

    def replacing(*asked: Any, **options: Any) -> Any:
        with psycopg.connect(writing.postgres.dsn(), autocommit=True) as other:
            other.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(f"DROP TABLE {writing.table}")
            refused.append(step)
        return taken(*asked, **options)

    monkeypatch.setattr(module.PostgresPublisher, step, replacing)
    publisher.publish(writing.numbers(1, 1))
    assert (refused, writing.rows()) == ([step], [(0,), (1,)])


@pytest.mark.fault("F31")
def test_fingerprints_begin_when_the_memory_of_an_earlier_version_is_free(
    postgres: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Decision 240: a backup that reads it stops no start, and what an earlier version writes in between is no copy."""
    schema = postgres.new_name()
    memory, writing = f"{schema}.penstock_batches", Writing(tmp_path, postgres, f"{schema}.numbers")

    def publish(batch: int, number: int, fingerprint: int) -> None:
        writing.sink.create(NUMBERS, None)
        writing.publisher().publish(replace(writing.numbers(batch, number), fingerprint=fingerprint))

    with psycopg.connect(postgres.dsn(), autocommit=True) as other:
        other.execute(f"CREATE SCHEMA {schema}")
        publish(0, 0, 1)
        other.execute(f"ALTER TABLE {memory} DROP COLUMN fingerprint")
        with psycopg.connect(postgres.dsn()) as backup:
            backup.execute(f"SELECT FROM {memory}")
            publish(1, 1, 1)
            assert "sink.fingerprints_missing" in capsys.readouterr().out
        publish(1, 9, 2)
        publish(2, 2, 1)
        assert "sink.fingerprints_missing" not in capsys.readouterr().out
        with pytest.raises(CheckpointCopied):
            publish(2, 9, 2)
        other.execute(f"INSERT INTO {schema}.numbers VALUES (3)")  # noqa: S608 - a name of ours
        other.execute(f"UPDATE {memory} SET batch = 3")  # noqa: S608 - a name of ours
        publish(3, 9, 2)
    assert writing.rows() == [(0,), (1,), (2,), (3,)]


@pytest.mark.fault("F70")
def test_a_table_that_was_changed_since_is_told(writing: Writing) -> None:
    """Each batch looks at the columns anew."""
    publisher = writing.publisher()
    publisher.publish(writing.numbers(0, 0))
    writing.postgres.ask(f"ALTER TABLE {writing.table} ALTER k TYPE text")
    with pytest.raises(SinkSchemaMismatch, match=r"'k' is text .* int64"):
        publisher.publish(writing.numbers(1, 1))
    assert writing.rows() == [("0",)]


def test_a_text_that_a_column_has_become_too_short_for_is_not_cut(postgres: Any, tmp_path: Path) -> None:
    """9.6: somebody has shortened the column since the batch was committed; the server refuses the value."""
    writing = Writing(tmp_path, postgres)
    postgres.ask(f"CREATE TABLE {writing.table} (k bigint, v varchar(8))")
    writing.publish(0, pa.table({"k": [1], "v": ["abc"]}, schema=PAIRS))
    file, publisher = writing.stage(pa.table({"k": [2], "v": ["abcdefgh"]}, schema=PAIRS)), writing.publisher()
    publisher.refuse_values([file])
    postgres.ask(f"ALTER TABLE {writing.table} ALTER v TYPE varchar(4)")
    with pytest.raises(SinkRefused, match=r"too long for type character varying\(4\)"):
        publisher.publish(writing.of(1, file))
    assert writing.rows() == [(1, "abc")]
    postgres.ask(f"ALTER TABLE {writing.table} ALTER v TYPE varchar")
    publisher.publish(writing.of(1, file))
    assert writing.rows() == [(1, "abc"), (2, "abcdefgh")]


def test_an_upsert_keeps_what_arrived_last(postgres: Any, tmp_path: Path) -> None:
    """Within a batch by arrival, across batches by their order."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k"])
    rows = [(1, "a"), (2, "b"), (1, "c"), (3, "d"), (1, "e")]
    writing.publish(0, pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], PAIRS))
    assert writing.rows() == [(1, "e"), (2, "b"), (3, "d")]
    writing.publish(1, pa.table({"k": [2, 4], "v": [None, "f"]}, PAIRS))
    assert writing.rows() == [(1, "e"), (2, None), (3, "d"), (4, "f")]


def test_a_key_that_is_null_is_refused(postgres: Any, tmp_path: Path) -> None:
    """Null equals nothing, so such a row would be added again each time."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k"])
    postgres.ask(f"CREATE TABLE {writing.table} (k bigint UNIQUE, v text)")
    with pytest.raises(SinkValueRefused, match="'k' is null"):
        writing.publish(0, pa.table({"k": [None, 1], "v": ["a", "b"]}, PAIRS))
    assert writing.rows() == []


def panes(*rows: tuple[int, int, str]) -> pa.Table:
    """Return rows of a key with a window end and a pane."""
    schema = pa.schema([("k", pa.int64()), ("e", pa.int64()), ("_pane", pa.string())])
    return pa.Table.from_pylist([{"k": k, "e": e, "_pane": pane} for k, e, pane in rows], schema)


def test_a_row_that_is_taken_back_deletes_the_row_of_its_keys(postgres: Any, tmp_path: Path) -> None:
    """2.6: the last row of a key counts, also where one that is taken back and its successor have the same key."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k", "e"])
    writing.publish(0, panes((1, 10, "EARLY"), (1, 20, "EARLY"), (2, 10, "EARLY"), (3, 10, "EARLY")))
    writing.publish(
        1,
        panes(
            (1, 10, "RETRACTED"), (1, 15, "EARLY"), (2, 10, "RETRACTED"), (2, 10, "ON_TIME"),
            (4, 10, "EARLY"), (4, 10, "RETRACTED"), (5, 10, "RETRACTED"),
        ),
    )  # fmt: skip
    kept = [(1, 15, "EARLY"), (1, 20, "EARLY"), (2, 10, "ON_TIME"), (3, 10, "EARLY")]
    assert writing.rows(order="1, 2") == kept
    other = Writing(tmp_path / "other", postgres, writing.table, mode=Mode.UPSERT, keys=["k", "e"])
    other.publish(2, panes((3, 10, "RETRACTED")))
    assert writing.rows(order="1, 2") == kept[:-1], "a batch may take back rows only"


def test_a_sink_that_appends_keeps_what_is_taken_back(postgres: Any, tmp_path: Path) -> None:
    """2.6: without keys a row that is taken back is a row of its own, as for every reader that appends."""
    writing = Writing(tmp_path, postgres)
    writing.publish(0, panes((1, 10, "EARLY"), (1, 10, "RETRACTED")))
    assert writing.rows("_pane") == [("EARLY",), ("RETRACTED",)]


@pytest.mark.parametrize("deferred", ["", " DEFERRABLE INITIALLY DEFERRED"], ids=["at once", "deferred"])
def test_a_row_that_others_refer_to_is_not_taken_back(postgres: Any, tmp_path: Path, deferred: str) -> None:
    """9.6: the server refuses to delete it, before the Commit: after it the batch could only be skipped."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k", "e"])
    writing.publish(0, panes((1, 10, "EARLY"), (2, 10, "EARLY")))
    others = postgres.new_name()
    postgres.ask(f"CREATE TABLE {others} (k bigint, e bigint, FOREIGN KEY (k, e) REFERENCES {writing.table}{deferred})")
    postgres.ask(f"INSERT INTO {others} VALUES (1, 10)")  # noqa: S608 - names of ours
    writing.publish(1, panes((2, 10, "RETRACTED"), (1, 10, "LATE")))
    with pytest.raises(SinkValueRefused, match="foreign key"):
        writing.publish(2, panes((1, 10, "RETRACTED"), (1, 15, "LATE")))
    assert writing.rows() == [(1, 10, "LATE")]


@pytest.mark.fault("F01", "F58")
@pytest.mark.parametrize("when", ["after COPY", "before the commit", "after the commit"])
def test_rows_are_deleted_with_the_batch_or_not_at_all(
    postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """2.6: the deletion is in the transaction of the batch: readers see neither, or both."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k", "e"])
    writing.publish(0, panes((1, 10, "EARLY")))
    batch = writing.of(1, writing.stage(panes((1, 10, "RETRACTED"), (1, 15, "EARLY")), ordered=True))
    with monkeypatch.context() as patched:
        patched.setattr(module, "connect", lambda dsn: dying(psycopg.connect(dsn), when))
        killed(lambda: writing.publisher().publish(batch))
    assert writing.rows() == [(1, 15, "EARLY") if when == "after the commit" else (1, 10, "EARLY")]
    writing.publisher().publish(batch)
    assert writing.rows() == [(1, 15, "EARLY")]


# --- tables that keep rows out ---------------------------------------------------------------

DROPS = "BEGIN IF {row}.k < 0 THEN RETURN NULL; END IF; RETURN {row}; END"


def triggered(writing: Writing, when: str, body: str) -> str:
    """Have a table run a function of PL/pgSQL for each row, and return what ends that."""
    name = writing.postgres.new_name()
    writing.postgres.ask(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    writing.postgres.ask(f"CREATE TRIGGER {name} {when} ON {writing.table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    return f"DROP TRIGGER {name} ON {writing.table}"


def ruled(writing: Writing, event: str) -> str:
    """Have a rule of a table do nothing instead, and return what ends that."""
    row = "OLD" if event == "DELETE" else "NEW"
    writing.postgres.ask(f"CREATE RULE drops AS ON {event} TO {writing.table} WHERE {row}.k < 0 DO INSTEAD NOTHING")
    return f"DROP RULE drops ON {writing.table}"


@pytest.mark.parametrize("by", ["trigger", "rule"])
def test_a_table_that_keeps_rows_out_takes_no_batch(writing: Writing, by: str) -> None:
    """9.5, 9.6: the rows were gone in silence; it is told before the Commit, and after it where it came later."""
    writing.publisher().publish(writing.numbers(0, -7, 0))
    file, publisher = writing.stage(pa.table({"k": pa.array([-1, 1, -2], pa.int64())})), writing.publisher()
    publisher.refuse_values([file])
    drops = DROPS.format(row="NEW")
    ended = triggered(writing, "BEFORE INSERT", drops) if by == "trigger" else ruled(writing, "INSERT")
    with pytest.raises(SinkValueRefused, match="keeps 2 of 3 rows out: a trigger or a rule"):
        publisher.refuse_values([file])
    with pytest.raises(SinkRefused, match="keeps 2 of 3 rows out: a trigger or a rule") as caught:
        publisher.publish(writing.of(1, file))
    assert (caught.value.code, writing.publisher().version(APP)) == ("PEN-SNK-007", 0)
    writing.publisher().publish(writing.numbers(1, 5))
    assert writing.rows() == [(-7,), (0,), (5,)], "none is kept out of another batch"
    writing.postgres.ask(ended)
    publisher = writing.publisher()
    publisher.publish(writing.of(2, file))
    assert (writing.rows(), publisher.version(APP)) == ([(-7,), (-2,), (-1,), (0,), (1,), (5,)], 2)


def test_rows_that_a_rule_answers_are_not_taken_for_rows_of_the_table(writing: Writing) -> None:
    """9.5: psycopg counts the answer; as many rows as the batch has passed for the batch, and none was there."""
    publisher, batch = writing.publisher(), writing.numbers(0, 1, 2)
    writing.postgres.ask(f"CREATE RULE answers AS ON INSERT TO {writing.table} DO INSTEAD SELECT NEW.k")
    with pytest.raises(SinkValueRefused, match="keeps 2 of 2 rows out"):
        publisher.refuse_values(batch.files)
    with pytest.raises(SinkRefused, match="keeps 2 of 2 rows out"):
        publisher.publish(batch)
    writing.postgres.ask(f"DROP RULE answers ON {writing.table}")
    writing.postgres.ask(f"CREATE RULE answers AS ON INSERT TO {writing.table} DO ALSO SELECT generate_series(1, 3)")
    publisher.refuse_values(batch.files)
    publisher.publish(batch)
    assert writing.rows() == [(1,), (2,)]


@pytest.mark.parametrize("columns", [["k"], ["k", "v"]], ids=["keys alone", "with values"])
def test_an_upsert_that_a_trigger_keeps_out_is_refused(postgres: Any, tmp_path: Path, columns: list[str]) -> None:
    """9.5: of keys that repeat in a batch, and rows that are there, as many count as the table is to have."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k"])
    values = {"k": [-1, 1, 1, 2], "v": ["a", "b", "c", "d"]}
    rows = pa.table(values, schema=PAIRS).select(columns)
    writing.publish(0, rows)
    triggered(writing, "BEFORE INSERT OR UPDATE", DROPS.format(row="NEW"))
    publisher, asked = writing.publisher(), pa.table({"k": [3, -1, -5], "v": ["x", "a", "y"]}, PAIRS).select(columns)
    with pytest.raises(SinkRefused, match="keeps 1 of 3 rows out"):
        publisher.publish(writing.of(1, writing.stage(asked, ordered=True)))
    assert writing.rows("k") == [(-1,), (1,), (2,)]
    writing.publish(1, rows)
    writing.publish(2, asked.slice(0, 1))
    assert writing.rows("k") == [(-1,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    "trigger",
    [
        pytest.param("EXECUTE FUNCTION suppress_redundant_updates_trigger()", id="leaves out what changes nothing"),
        pytest.param("BEGIN NEW.v := upper(NEW.v); RETURN NEW; END", id="changes values"),
    ],
)
def test_a_trigger_that_leaves_each_row_there_is_no_obstacle(postgres: Any, tmp_path: Path, trigger: str) -> None:
    """PostgreSQL counts no row that an update leaves as it is, and that one is there."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k"])
    rows = pa.table({"k": [1, 2, 2], "v": ["A", "B", None]}, PAIRS)
    writing.publish(0, rows)
    if trigger.startswith("BEGIN"):
        triggered(writing, "BEFORE INSERT OR UPDATE", trigger)
    else:
        postgres.ask(f"CREATE TRIGGER same BEFORE UPDATE ON {writing.table} FOR EACH ROW {trigger}")
    writing.publish(1, rows)
    writing.publish(2, pa.table({"k": [2, 3], "v": ["C", "D"]}, PAIRS))
    assert writing.rows() == [(1, "A"), (2, "C"), (3, "D")]


@pytest.mark.parametrize("by", ["trigger", "rule"])
def test_a_row_that_is_taken_back_and_stays_is_refused(postgres: Any, tmp_path: Path, by: str) -> None:
    """2.6: a table that deletes nothing would show the old session beside the one that replaces it."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k", "e"])
    writing.publish(0, panes((-1, 10, "EARLY"), (2, 10, "EARLY")))
    if by == "trigger":
        triggered(writing, "BEFORE DELETE", DROPS.format(row="OLD"))
    else:
        ruled(writing, "DELETE")
    with pytest.raises(SinkValueRefused, match="keeps 1 row that is taken back"):
        writing.publish(1, panes((-1, 10, "RETRACTED"), (-1, 15, "EARLY"), (2, 10, "RETRACTED")))
    assert writing.rows(order="1, 2") == [(-1, 10, "EARLY"), (2, 10, "EARLY")]
    writing.publish(1, panes((2, 10, "RETRACTED"), (3, 10, "RETRACTED")))
    assert writing.rows() == [(-1, 10, "EARLY")]
