"""What a table, its user and its schema must have is named before the first batch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_writing import Writing

from penstock.errors import (
    DatabaseDenied,
    DatabaseNotFound,
    KeysNotUnique,
    SinkSchemaMismatch,
)
from penstock.sinks import Mode, Postgres
from tools.postgres_server import PASSWORD

PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.mark.integration
@pytest.mark.remedy("PEN-SNK-016")
def test_a_schema_that_is_not_there_is_named_until_it_is_created(postgres: Any) -> None:
    """Before the first batch."""
    name = postgres.new_name()
    sink = Postgres(postgres.dsn(), f"{name}.t")
    with pytest.raises(DatabaseNotFound, match=name):
        sink.check(PAIRS)
    postgres.ask(f"CREATE SCHEMA {name}")
    sink.create(PAIRS, None)


@pytest.mark.integration
@pytest.mark.remedy("PEN-SNK-017")
def test_a_right_that_is_missing_is_named_until_it_is_granted(postgres: Any, tmp_path: Path) -> None:
    """CREATE for a new table; INSERT, and for an upsert more, for one that is there."""
    user = postgres.new_name()
    postgres.ask(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
    named = {"dsn": postgres.dsn(user=user), "mode": Mode.UPSERT, "keys": ["k"]}
    with pytest.raises(DatabaseDenied, match="GRANT CREATE ON SCHEMA public"):
        Writing(tmp_path, postgres, **named).sink.create(PAIRS, None)
    table = postgres.new_name()
    writing = Writing(tmp_path, postgres, table, **named)
    Postgres(postgres.dsn(), table, mode=Mode.UPSERT, keys=["k"]).create(PAIRS, None)
    for right, name in (("INSERT", table), ("SELECT", table), ("UPDATE", table)):
        with pytest.raises(DatabaseDenied, match=f"GRANT {right} ON {name}"):
            writing.sink.check(PAIRS)
        postgres.ask(f"GRANT {right} ON {name} TO {user}")
    with pytest.raises(DatabaseDenied, match="penstock_batches"):
        writing.sink.check(PAIRS)
    postgres.ask(f"GRANT SELECT, INSERT, UPDATE ON penstock_batches TO {user}")
    writing.publish(0, pa.table({"k": [1], "v": ["a"]}, PAIRS))
    assert writing.rows() == [(1, "a")]


@pytest.mark.integration
@pytest.mark.remedy("PEN-SNK-017")
def test_a_user_who_may_not_delete_is_told_before_the_commit(postgres: Any, tmp_path: Path) -> None:
    """2.6: rows that take others back need DELETE; a batch without such rows does not."""
    schema = pa.schema([("k", pa.int64()), ("_pane", pa.string())])
    user, table = postgres.new_name(), postgres.new_name()
    named: dict[str, Any] = {"mode": Mode.UPSERT, "keys": ["k"]}
    Postgres(postgres.dsn(), table, **named).create(schema, None)
    postgres.ask(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")
    postgres.ask(f"GRANT SELECT, INSERT, UPDATE ON penstock_batches, {table} TO {user}")
    writing = Writing(tmp_path, postgres, table, dsn=postgres.dsn(user=user), **named)
    writing.publish(0, pa.table({"k": [1, 2], "_pane": ["EARLY", "EARLY"]}, schema))
    batch = pa.table({"k": [1], "_pane": ["RETRACTED"]}, schema)
    with pytest.raises(DatabaseDenied, match=f"GRANT DELETE ON {table}"):
        writing.publish(1, batch)
    postgres.ask(f"GRANT DELETE ON {table} TO {user}")
    writing.publish(1, batch)
    assert writing.rows() == [(2, "EARLY")]


@pytest.mark.integration
def test_two_jobs_may_make_a_table_at_the_same_time(postgres: Any) -> None:
    """CreatingSink.create."""
    for _ in range(5):
        sink, errors = Postgres(postgres.dsn(), postgres.new_name()), []

        def make(sink: Postgres = sink, errors: list[Exception] = errors) -> None:
            try:
                sink.create(PAIRS, None)
            except Exception as why:  # noqa: BLE001 - the test says which
                errors.append(why)

        makers = [threading.Thread(target=make) for _ in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert errors == []


@pytest.mark.integration
@pytest.mark.remedy("PEN-SNK-018")
def test_a_table_without_a_unique_index_of_the_keys_is_refused(postgres: Any, tmp_path: Path) -> None:
    """A partial one, and one of other columns, do not count; a plain one does."""
    writing = Writing(tmp_path, postgres, mode=Mode.UPSERT, keys=["k"])
    postgres.ask(f"CREATE TABLE {writing.table} (k bigint, v text, UNIQUE (k, v))")
    postgres.ask(f"CREATE UNIQUE INDEX ON {writing.table} (k) WHERE v IS NOT NULL")
    with pytest.raises(KeysNotUnique, match="'k'"):
        writing.sink.create(PAIRS, None)
    postgres.ask(f"CREATE UNIQUE INDEX ON {writing.table} (k)")
    writing.sink.create(PAIRS, None)


@pytest.mark.integration
@pytest.mark.fault("F70")
@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ("k integer, v text", r"'k' is integer in the table, and int64"),
        ("k bigint", r"no column 'v'"),
        ("k bigint, v text, w text NOT NULL", r"asks for column 'w'"),
        ("k bigint, v text GENERATED ALWAYS AS ('x') STORED", r"computes column 'v'"),
    ],
)
def test_columns_that_do_not_fit_are_named_with_both_types(postgres: Any, columns: str, match: str) -> None:
    """SinkSchemaMismatch, before anything is written."""
    table = postgres.new_name()
    postgres.ask(f"CREATE TABLE {table} ({columns})")
    with pytest.raises(SinkSchemaMismatch, match=match):
        Postgres(postgres.dsn(), table).check(PAIRS)
