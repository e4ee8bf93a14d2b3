"""Look at a table of PostgreSQL and at the memory of its batches: make both, and say what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from penstock.errors import DatabaseDenied, DatabaseNotFound, KeysNotUnique, SinkSchemaMismatch
from penstock.sinks.keys import refuse_missing_keys
from penstock.sinks.postgres.columns import Column, fits, is_nested, postgres_type

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "FINGERPRINT",
    "MEMORY",
    "TableName",
    "TableShape",
    "create",
    "look",
    "refuse_denied",
    "refuse_misfit",
    "refuse_undeletable",
    "refuse_unmakeable",
]

log = structlog.get_logger()

MEMORY = "penstock_batches"
"""The table of ours beside each: the newest batch of an app that a table shows.

A `regclass` follows a table that is renamed, dumped and restored, and is no longer that of one that was dropped.
"""
FINGERPRINT = "fingerprint"
"""Its column for a batch and the fingerprint of its files."""
_LONGEST = 63
_CREATE_LOCK = 0x70656E73  # any number of ours: two jobs that make tables wait for each other
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> '',
       a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT (SELECT array_agg(a.attname::text) FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0 : i.indnkeyatts - 1]))
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_HAS_COLUMN = "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = %s AND attname = %s AND NOT attisdropped)"
_ADDING = "500ms"
"""How long a start waits for the lock of that change. Other drivers wait for this one meanwhile."""
_RULES = """
SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = %(t)s AND contype IN ('c', 'f', 'x'))
    OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %(t)s AND NOT tgisinternal)
    OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = %(t)s)
    OR (SELECT relkind = 'p' OR relrowsecurity FROM pg_class WHERE oid = %(t)s)
    OR (SELECT count(*) FROM pg_index WHERE indrelid = %(t)s AND (indisunique OR indexprs IS NOT NULL)) > %(known)s,
    EXISTS (SELECT FROM pg_constraint WHERE confrelid = %(t)s AND contype = 'f')
"""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table by schema and name; without a schema the session's search path decides."""

    schema: str | None
    name: str

    @classmethod
    def of(cls, text: str) -> TableName:
        """Return the name in `table` or `schema.table`."""
        schema, _, name = text.rpartition(".")
        return cls(schema or None, name)

    def sql(self, name: str | None = None) -> psycopg.sql.Identifier:
        """Return the name in quotes, or that of another table beside it."""
        from psycopg.sql import Identifier

        return Identifier(*([self.schema] if self.schema else []), name or self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """A table that is there."""

    oid: int
    kind: str
    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...]
    judges: bool
    """It has what may refuse, change or drop rows, beside types, NOT NULL and the uniqueness of the keys."""
    referenced: bool
    """Rows of a table have foreign keys to its rows, and may forbid to delete these."""


def look(connection: psycopg.Connection[Any], table: TableName, keys: Sequence[str]) -> TableShape | None:
    """Return the table, None where there is none; a statement of the connection's transaction."""
    oid = _oid(connection, table)
    if oid is None:
        return None
    kind = connection.execute("SELECT relkind::text FROM pg_class WHERE oid = %s", [oid]).fetchone()
    rows = connection.execute(_COLUMNS, [oid]).fetchall()
    columns = (Column(name=n, type=t, not_null=nn, filled=f, computed=c) for n, t, nn, f, c in rows)
    unique = tuple(frozenset(names) for (names,) in connection.execute(_UNIQUE, [oid]) if names)
    rules = connection.execute(_RULES, {"t": oid, "known": unique.count(frozenset(keys)) if keys else 0}).fetchone()
    assert kind is not None
    assert rules is not None
    judges, referenced = map(bool, rules)
    return TableShape(
        oid=oid, kind=kind[0], columns=tuple(columns), unique=unique, judges=judges, referenced=referenced
    )


def refuse_unmakeable(schema: pa.Schema, keys: Sequence[str], where: str) -> None:
    """Raise SinkSchemaMismatch for columns that no table of PostgreSQL has."""
    for field in schema:
        if postgres_type(field.type) is None:
            raise SinkSchemaMismatch(
                f"column {field.name!r} is {field.type}, and PostgreSQL has no such type", where=where
            )
        if len(field.name.encode()) > _LONGEST:
            raise SinkSchemaMismatch(f"the name of column {field.name!r} is longer than {_LONGEST} bytes", where=where)
    refuse_missing_keys(keys, schema, where)
    for key in keys:
        if is_nested(schema.field(key).type):
            raise SinkSchemaMismatch(f"key {key!r} is {schema.field(key).type}, which is written as jsonb", where=where)


def refuse_misfit(shape: TableShape, schema: pa.Schema, keys: Sequence[str], where: str) -> None:
    """Raise SinkSchemaMismatch where rows do not fit a table, and KeysNotUnique where it cannot tell keys."""
    if shape.kind not in {"r", "p"}:
        raise SinkSchemaMismatch("it is a view or a foreign table, and rows go into tables", where=where)
    columns = {column.name: column for column in shape.columns}
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            raise SinkSchemaMismatch(
                f"the table has no column {field.name!r} ({postgres_type(field.type)})", where=where
            )
        if column.computed:
            raise SinkSchemaMismatch(
                f"the server computes column {field.name!r} ({column.type}) by itself", where=where
            )
        if not fits(field.type, column.type):
            raise SinkSchemaMismatch(
                f"column {field.name!r} is {column.type} in the table, and {field.type} in the stream, which is "
                f"{postgres_type(field.type)}",
                where=where,
            )
    for column in shape.columns:
        if column.name not in schema.names and column.not_null and not column.filled and not column.computed:
            raise SinkSchemaMismatch(f"the table asks for column {column.name!r} ({column.type})", where=where)
    if keys and frozenset(keys) not in shape.unique:
        raise KeysNotUnique(f"the table has no unique index of {list(keys)}", where=where)


def refuse_denied(
    connection: psycopg.Connection[Any], table: TableName, shape: TableShape | None, keys: Sequence[str], where: str
) -> None:
    """Raise DatabaseDenied where the user lacks what publishing needs, and DatabaseNotFound for a missing schema."""
    schema = table.schema or _one(connection, "SELECT current_schema()")
    if schema is None or not _one(connection, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", schema):
        raise DatabaseNotFound(f"there is no schema {schema or 'on the search path'}", where=where)
    if not _one(connection, "SELECT has_database_privilege(current_database(), 'TEMP')"):
        raise DatabaseDenied("the user may make no temporary tables: GRANT TEMP ON DATABASE", where=where)
    memory = _oid(connection, TableName(table.schema, MEMORY))
    if (shape is None or memory is None) and not _one(connection, "SELECT has_schema_privilege(%s, 'CREATE')", schema):
        raise DatabaseDenied(f"the user may make no tables: GRANT CREATE ON SCHEMA {schema}", where=where)
    needed = ("INSERT", "SELECT", "UPDATE") if keys else ("INSERT",)
    for oid, name, rights in (
        (None if shape is None else shape.oid, table.name, needed),
        (memory, MEMORY, ("SELECT", "INSERT", "UPDATE")),
    ):
        if oid is None:
            continue
        for right in rights:
            _refuse_without(connection, right, oid, name, where)


def refuse_undeletable(connection: psycopg.Connection[Any], table: TableName, shape: TableShape, where: str) -> None:
    """Raise DatabaseDenied where the user may not delete rows."""
    _refuse_without(connection, "DELETE", shape.oid, table.name, where)


def _refuse_without(connection: psycopg.Connection[Any], right: str, oid: int, name: str, where: str) -> None:
    if not _one(connection, "SELECT has_table_privilege(%s::oid, %s)", oid, right):
        raise DatabaseDenied(f"the user lacks a right: GRANT {right} ON {name}", where=where)


def create(connection: psycopg.Connection[Any], table: TableName, schema: pa.Schema, keys: Sequence[str]) -> None:
    """Make the table and the memory of batches where they are missing, in the connection's transaction."""
    from psycopg.sql import SQL, Identifier

    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
    memory = _oid(connection, TableName(table.schema, MEMORY))
    if memory is None:
        connection.execute(
            SQL(
                "CREATE TABLE IF NOT EXISTS {} (target regclass, app text, batch bigint NOT NULL,"
                " published timestamptz NOT NULL DEFAULT now(), {} text, PRIMARY KEY (target, app))"
            ).format(table.sql(MEMORY), Identifier(FINGERPRINT))
        )
    else:
        _add_fingerprints(connection, table, memory)
    if _oid(connection, table) is None:
        columns = [SQL("{} {}").format(Identifier(f.name), SQL(str(postgres_type(f.type)))) for f in schema]
        if keys:
            columns.append(SQL("PRIMARY KEY ({})").format(SQL(", ").join(map(Identifier, keys))))
        connection.execute(SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table.sql(), SQL(", ").join(columns)))


def _add_fingerprints(connection: psycopg.Connection[Any], table: TableName, memory: int) -> None:
    """Add the column to a memory of batches that an earlier version has made, if that is possible at once."""
    from psycopg import errors
    from psycopg.sql import SQL, Identifier

    if _one(connection, _HAS_COLUMN, memory, FINGERPRINT):
        return
    try:
        with connection.transaction():  # who reads or writes the table now may go on for hours: a backup, say
            connection.execute(f"SET LOCAL lock_timeout = '{_ADDING}'")
            add = SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
            connection.execute(add.format(table.sql(MEMORY), Identifier(FINGERPRINT)))
            connection.execute("SET LOCAL lock_timeout TO DEFAULT")
    except (errors.LockNotAvailable, errors.InsufficientPrivilege, errors.WrongObjectType) as why:
        log.warning("sink.fingerprints_missing", table=f"{table.schema}.{MEMORY}", reason=str(why).strip())


def _oid(connection: psycopg.Connection[Any], table: TableName) -> int | None:
    return _one(connection, "SELECT to_regclass(%s)::oid", table.sql().as_string(connection))  # type: ignore[no-any-return]


def _one(connection: psycopg.Connection[Any], query: str, *values: object) -> Any:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
