"""Publish into a table of PostgreSQL: one transaction has the rows of a batch and the number of the batch.

The order of one publication::

    lock the table                             nobody drops or changes it; other writers are not held up
    lock the app's row in penstock_batches     other publishers of the app wait, and see what this one has done
    its batch                                  is this one or a later one: done, or SinkAhead
    COPY into a temporary table                nobody else sees it
    [DELETE]                                   the rows of keys that are taken back there
    INSERT ... [ON CONFLICT DO UPDATE]         the others, from there
    the batch into the row                     in the same transaction
    COMMIT                                     all is visible together, or nothing

An error at any point is no evidence of anything. The next publisher asks the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead, SinkBehind, SinkRefused, SinkValueRefused
from penstock.graph.policies import Pane
from penstock.graph.windows import PANE
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.keys import refuse_null_keys, without_retracted
from penstock.sinks.postgres.columns import staged_type
from penstock.sinks.postgres.server import connect, named_errors
from penstock.sinks.postgres.tables import (
    FINGERPRINT,
    MEMORY,
    TableName,
    TableShape,
    look,
    refuse_misfit,
    refuse_undeletable,
)
from penstock.sinks.postgres.values import copied, refuse_unfit
from penstock.sinks.staged_files import read_staged

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

__all__ = ["PostgresPublisher"]

_STAGE, _ORDER = "penstock_stage", "penstock_order"
_BY = "a trigger or a rule of it does"


class PostgresPublisher(Publisher):
    """Write staged rows into a table under (app, batch); `keys` are those that rows replace others by."""

    def __init__(self, dsn: str, table: TableName, keys: Sequence[str], where: str, staging: CheckpointFolder) -> None:
        self._dsn = dsn
        self._table = table
        self._keys = tuple(keys)
        self._where = where
        self._staging = staging
        self._connection: psycopg.Connection[Any] | None = None
        self._known: dict[str, int] = {}

    def publish(self, publication: Publication) -> None:
        """Write the rows in one transaction; if the table shows the batch already, do nothing."""
        if not publication.files:
            return
        rows = read_staged(self._staging, publication.files)
        with _ended_on_error(self), named_errors(self._where):
            connection = self._connected()
            shape = self._kept_shape(rows.schema)
            noted = self._locked(shape, publication.app)
            seen = int(noted["batch"])
            self._refuse_behind(publication.app, seen)
            if seen > publication.batch:
                raise SinkAhead(
                    f"the table has batch {seen} of this checkpoint and is asked to take {publication.batch}",
                    where=self._where,
                    seen=seen,
                    batch=publication.batch,
                )
            if seen == publication.batch:
                publication.refuse_copy(_fingerprint(noted), self._where)
            else:
                self._insert(rows, shape)
                self._remember(shape, publication, with_fingerprint=FINGERPRINT in noted)
            connection.commit()
        self._known[publication.app] = publication.batch

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that the table shows."""
        from psycopg.sql import SQL

        with _ended_on_error(self), named_errors(self._where):
            connection = self._connected()
            shape = look(connection, self._table, self._keys)
            if shape is None:
                connection.rollback()
                return None
            query = SQL("SELECT batch FROM {} WHERE target = %s::oid AND app = %s").format(self._table.sql(MEMORY))
            row = connection.execute(query, [shape.oid, app]).fetchone()
            connection.rollback()
        if row is None:
            return None
        self._known[app] = row[0]
        return int(row[0])

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for values that the table cannot hold; it is asked where it has rules of its own."""
        if not files:
            return
        rows = read_staged(self._staging, files)
        with _ended_on_error(self), named_errors(self._where):
            shape = self._shape(rows.schema)
            columns = {column.name: column for column in shape.columns}
            refuse_null_keys(self._keys, rows, self._where)
            deletes = self._takes_back(rows)
            if deletes:
                refuse_undeletable(self._connected(), self._table, shape, self._where)
            for name in rows.column_names:
                refuse_unfit(name, rows[name], columns[name])
            if shape.judges or (deletes and shape.referenced):
                self._try(rows, shape)
            self._connected().rollback()

    def close(self) -> None:
        """End the connection; what is not committed is gone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        """End the connection: psycopg warns of one that is left open."""
        self.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection

    def _shape(self, schema: pa.Schema) -> TableShape:
        """Return the table as it is now: somebody may have changed it since the last batch."""
        shape = look(self._connected(), self._table, self._keys)
        if shape is None:
            raise SinkBehind("the table is gone", where=self._where)
        refuse_misfit(shape, schema, self._keys, self._where)
        return shape

    def _kept_shape(self, schema: pa.Schema) -> TableShape:
        """Return the table as it is until the transaction ends: a table in its place would get rows and no batch."""
        from psycopg.sql import SQL

        self._shape(schema)
        self._connected().execute(SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(self._table.sql()))
        return self._shape(schema)

    def _locked(self, shape: TableShape, app: str) -> Mapping[str, Any]:
        """Return the row of the newest batch, -1 for none, which is ours until the transaction ends.

        It has no column of fingerprints where an earlier version has made the table, and its owner was not here since.
        """
        from psycopg.sql import SQL

        memory, connection = self._table.sql(MEMORY), self._connected()
        connection.execute(
            SQL("INSERT INTO {} (target, app, batch) VALUES (%s::oid, %s, -1) ON CONFLICT DO NOTHING").format(memory),
            [shape.oid, app],
        )
        row = connection.execute(
            SQL("SELECT to_jsonb(m) FROM {} AS m WHERE target = %s::oid AND app = %s FOR UPDATE").format(memory),
            [shape.oid, app],
        ).fetchone()
        assert row is not None
        noted: Mapping[str, Any] = row[0]
        return noted

    def _refuse_behind(self, app: str, seen: int) -> None:
        known = self._known.get(app, -1)
        if seen < known:
            raise SinkBehind(
                f"the table shows {'no batch' if seen < 0 else f'batch {seen}'} of this checkpoint as the newest, and "
                f"had batch {known}",
                where=self._where,
                shown=seen,
                missing=[known],
            )

    def _remember(self, shape: TableShape, publication: Publication, *, with_fingerprint: bool) -> None:
        from psycopg.sql import SQL, Identifier

        batch, number = publication.batch, publication.fingerprint
        # With its batch: earlier versions, to which a job may be rolled back, write a batch and leave this as it is.
        said = [None if number is None else f"{batch} {number}"] if with_fingerprint else []
        column = SQL(", {} = %s").format(Identifier(FINGERPRINT)) if said else SQL("")
        self._connected().execute(
            SQL("UPDATE {} SET batch = %s, published = now(){} WHERE target = %s::oid AND app = %s").format(
                self._table.sql(MEMORY), column
            ),
            [batch, *said, shape.oid, publication.app],
        )
        # Rows are to be durable on return, also where a database is set to tell so earlier.
        self._connected().execute(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def _try(self, rows: pa.Table, shape: TableShape) -> None:
        """Insert rows in a transaction that is rolled back; the server's rules speak."""
        try:
            with named_errors(self._where):
                self._insert(rows, shape)
                self._connected().execute("SET CONSTRAINTS ALL IMMEDIATE")
        except SinkRefused as why:
            raise SinkValueRefused(why.what, where=self._where) from why

    def _insert(self, rows: pa.Table, shape: TableShape) -> None:
        """Copy the rows to the server, and insert them from there, in the order of their arrival.

        With keys the last row of each counts. One that is taken back deletes the row of its key, and is not inserted.
        """
        from psycopg.sql import SQL, Identifier

        connection = self._connected()
        names = [Identifier(name) for name in rows.column_names]
        # A cast to a length cuts a text; the INSERT refuses one that is too long.
        types = {c.name: c.type if c.length is None else "character varying" for c in shape.columns}
        staged = [SQL("{} {}").format(Identifier(f.name), SQL(staged_type(f.type))) for f in rows.schema]
        connection.execute(
            SQL("CREATE TEMP TABLE {} ({}, {} bigint GENERATED ALWAYS AS IDENTITY) ON COMMIT DROP").format(
                Identifier(_STAGE), SQL(", ").join(staged), Identifier(_ORDER)
            )
        )
        listed, stage = SQL(", ").join(names), Identifier("pg_temp", _STAGE)
        with connection.cursor().copy(SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(stage, listed)) as copy:
            for piece in copied(rows):
                copy.write(piece)
        cast = SQL(", ").join(
            SQL("{}::{} AS {}").format(Identifier(name), SQL(types[name]), Identifier(name))
            for name in rows.column_names
        )
        if not self._keys:
            insert = SQL("INSERT INTO {} ({}) SELECT {} FROM {} ORDER BY {}")
            written = connection.execute(insert.format(self._table.sql(), listed, cast, stage, Identifier(_ORDER)))
            self._refuse_kept_out(rows.num_rows - _inserted(written), rows.num_rows)
            return
        keys = SQL(", ").join(map(Identifier, self._keys))
        newest = SQL("SELECT DISTINCT ON ({}) {} FROM (SELECT {}, {} FROM {}) AS s ORDER BY {}, {} DESC").format(
            keys, listed, cast, Identifier(_ORDER), stage, keys, Identifier(_ORDER)
        )
        if self._takes_back(rows):
            gone = SQL("n.{} = {}").format(Identifier(PANE), Pane.RETRACTED.value)
            self._delete(SQL("SELECT n.* FROM ({}) AS n WHERE {}").format(newest, gone), shape)
            newest = SQL("SELECT {} FROM ({}) AS n WHERE ({}) IS NOT TRUE").format(listed, newest, gone)
        self._upsert(newest, rows.column_names, shape)

    def _delete(self, gone: Composed, shape: TableShape) -> None:
        """Delete the rows that have the keys of others."""
        from psycopg.sql import SQL

        there = SQL("{} AS t USING ({}) AS n WHERE {}").format(self._table.sql(), gone, _same(self._keys))
        self._connected().execute(SQL("DELETE FROM {}").format(there))
        if shape.judges:
            stays = SQL("SELECT count(*) FROM {} AS t, ({}) AS n WHERE {}")
            count = self._count(stays.format(self._table.sql(), gone, _same(self._keys)))
            if count:
                what = "1 row that is" if count == 1 else f"{count} rows that are"
                raise SinkRefused(f"the table keeps {what} taken back: {_BY}", where=self._where)

    def _upsert(self, newest: Composed, columns: Sequence[str], shape: TableShape) -> None:
        """Insert rows, or replace those that have their keys."""
        from psycopg.sql import SQL, Identifier

        others = [name for name in columns if name not in self._keys]
        sets = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in others)
        change = SQL("UPDATE SET {}").format(sets) if others else SQL("NOTHING")
        listed, keys = (SQL(", ").join(map(Identifier, names)) for names in (columns, self._keys))
        insert = SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}")
        written = _inserted(self._connected().execute(insert.format(self._table.sql(), listed, newest, keys, change)))
        if not shape.judges:  # nothing could keep rows out, and the count of those that are due costs a sort
            return
        due = self._count(SQL("SELECT count(*) FROM ({}) AS n").format(newest))
        if written < due:  # or a trigger leaves rows as they are that would not change
            alike = [SQL("t.{0}::text IS NOT DISTINCT FROM n.{0}::text").format(Identifier(name)) for name in others]
            same = SQL(" AND ").join([_same(self._keys), *alike])
            query = SQL("SELECT count(*) FROM ({}) AS n WHERE NOT EXISTS (SELECT FROM {} AS t WHERE {})")
            self._refuse_kept_out(self._count(query.format(newest, self._table.sql(), same)), due)

    def _count(self, query: Composed) -> int:
        row = self._connected().execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def _refuse_kept_out(self, missing: int, due: int) -> None:
        """Raise SinkRefused where a table has fewer rows than it got: the server counts them, and calls it no error."""
        if missing:
            raise SinkRefused(f"the table keeps {missing} of {due} rows out: {_BY}", where=self._where)

    def _takes_back(self, rows: pa.Table) -> bool:
        """Return whether rows delete others by their keys."""
        return bool(self._keys) and without_retracted(rows).num_rows < rows.num_rows


def _fingerprint(noted: Mapping[str, Any]) -> int | None:
    """Return the fingerprint of the batch in a row, None where it has none, or has that of an earlier batch."""
    batch, _, number = str(noted.get(FINGERPRINT)).partition(" ")
    return int(number) if batch == str(noted["batch"]) else None


def _inserted(done: psycopg.Cursor[Any]) -> int:
    """Return how many rows an INSERT wrote; `rowcount` is of the rows that a rule of the table answers, if one does."""
    return int(str(done.statusmessage).rpartition(" ")[2])


def _same(keys: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL(" AND ").join(SQL("t.{0} = n.{0}").format(Identifier(key)) for key in keys)


class _ended_on_error:  # noqa: N801 - a context, read as a phrase
    """End the connection of a publisher where the block raises: its transaction, and its lock, end with it."""

    def __init__(self, publisher: PostgresPublisher) -> None:
        self._publisher = publisher

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End it, unless all went well."""
        if error is not None:
            self._publisher.close()
