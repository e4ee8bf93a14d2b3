"""Describe a table of PostgreSQL as a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sinks.base import CreatingSink, Publisher
from penstock.sinks.keys import Mode, checked_keys, how_written
from penstock.sinks.postgres.publisher import PostgresPublisher
from penstock.sinks.postgres.server import connect, named_errors, place_of
from penstock.sinks.postgres.tables import (
    TableName,
    create,
    look,
    refuse_denied,
    refuse_misfit,
    refuse_unmakeable,
)

__all__ = ["Postgres"]


@dataclass(frozen=True)
class Postgres(CreatingSink):
    """Describe a table of PostgreSQL; it is made with the stream's columns if it is not there.

    Args:
        dsn: How to connect, as libpq reads it: `postgresql://user:password@host:5432/database`. Nothing shows it.
        table: The table, as `orders` or `schema.orders`.
        mode: `Mode.APPEND` inserts each row. `Mode.UPSERT` replaces the row that has the same keys; of rows of one
            batch the one that arrived last stays.
        keys: The columns of the key, for `Mode.UPSERT`.

    Raises:
        ConfigError: Keys and mode do not go together, or the table has no name.
    """

    deduplicates = True
    in_order = True
    retracts = True

    dsn: str = field(repr=False)
    table: str
    mode: Mode = field(default=Mode.APPEND, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what says two things."""
        refuse_other_types(self)
        if not self._name.name:
            raise ConfigError("a Postgres sink needs the name of a table")
        object.__setattr__(self, "keys", checked_keys(self.mode, self.keys, self.table))

    def check(self, schema: pa.Schema) -> None:
        """Raise what rows, table, user or server lack for publishing; an error of its own for each."""
        refuse_unmakeable(schema, self.keys, self.table)
        with connect(self.dsn) as connection, named_errors(self.place()):
            shape = look(connection, self._name, self.keys)
            if shape is not None:
                refuse_misfit(shape, schema, self.keys, self.place())
            refuse_denied(connection, self._name, shape, self.keys, self.place())

    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Make the table and the memory of batches where they are missing, or check that the rows fit."""
        self.check(schema)
        with named_errors(self.place()), connect(self.dsn) as connection:
            create(connection, self._name, schema, self.keys)
        self.check(schema)  # another program may have been faster, and its columns are the table's then (F70)

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return the publisher."""
        return PostgresPublisher(self.dsn, self._name, self.keys, self.place(), staging)

    def place(self) -> str:
        """Return server, database and table."""
        return f"{place_of(self.dsn)}/{self.table}"

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"PostgreSQL table {self.table}, {how_written(self.keys)}, a transaction for each batch"

    @property
    def _name(self) -> TableName:
        return TableName.of(self.table)
