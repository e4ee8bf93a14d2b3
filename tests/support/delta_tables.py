"""Publish into a real Delta table, as the driver does, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.sinks import Delta, Mode
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.staged_files import stage_table
from penstock.time.arrival import ARRIVAL

__all__ = ["APP", "SCHEMA", "Upserts", "shown"]

APP = "5f0c9bb4-1111-4222-8333-444455556666/out"
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64())])

Row = Mapping[str, Any]


def shown(path: Path) -> list[Row]:
    """Return the rows of a table as delta-rs reads them, in the order of their keys."""
    rows: list[Row] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: tuple(str(value) for value in row.values()))


class Upserts:
    """A table of `k`, `p` and `v` by the key `k`, and its staging folder; `publisher` is another run's each time."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA, keys: Sequence[str] = ("k",), **more: Any) -> None:
        self.schema = schema
        self.path = folder / "table"
        self.sink = Delta(self.path, mode=Mode.UPSERT, keys=keys, **more)
        self.staging = folder / "staged"
        self._names = 0

    def made(self) -> Upserts:
        """Return itself, after what the driver does at its start."""
        self.sink.create(self.schema, None)
        return self

    def publisher(self) -> Publisher:
        """Return the publisher of another run."""
        return self.sink.open(self.staging, None)

    def rows(self, *rows: Sequence[Any]) -> pa.Table:
        """Return a table of rows."""
        columns = zip(*rows, strict=True) if rows else [[] for _ in self.schema]
        return pa.table([list(column) for column in columns], schema=self.schema)

    def stage(self, rows: pa.Table, places: Sequence[int]) -> Staged:
        """Return a staged file of rows that have these places in the order of arrival."""
        arrivals = pa.array([place.to_bytes(4, "big") for place in places], pa.binary())
        self._names += 1
        name = f"{self._names:06d}.parquet"
        return Staged(**stage_table(rows.append_column(ARRIVAL, arrivals), self.staging, name))

    def batch(self, number: int, *rows: Sequence[Any], files: int = 1, app: str = APP) -> Publication:
        """Return what the driver asks for: rows in their order of arrival, dealt out to files as tasks do."""
        table, parts = self.rows(*rows), range(min(files, max(1, len(rows))))
        dealt = [list(range(part, len(rows), len(parts))) for part in parts]
        staged = [self.stage(table.take(pa.array(places, pa.int64())), places) for places in dealt]
        return Publication(app=app, batch=number, files=staged, schema=self.schema)

    def append(self, *rows: Sequence[Any]) -> None:
        """Append rows as another program does."""
        write_deltalake(str(self.path), self.rows(*rows), mode="append")

    def shown(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table, in the order of their keys."""
        return [tuple(row.values()) for row in shown(self.path)]

    def files(self) -> set[str]:
        """Return the files of the newest version."""
        return set(pa.table(DeltaTable(str(self.path)).get_add_actions())["path"].to_pylist())

    def left(self) -> set[str]:
        """Return the files in the table's folder that no version names."""
        named = {
            action[kind]["path"]
            for entry in (self.path / "_delta_log").glob("*.json")
            for action in map(json.loads, entry.read_text().splitlines())
            for kind in ("add", "remove")
            if kind in action
        }
        return {file.name for file in self.path.glob("*.parquet")} - named
