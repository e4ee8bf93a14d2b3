"""Publish batches into a table of a real PostgreSQL server, as the driver does, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sinks import Postgres
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.staged_files import stage_table
from penstock.time.arrival import ARRIVAL

__all__ = ["APP", "Writing"]

APP = "5f0c9bb4-1111-4222-8333-444455556666/out"


class Writing:
    """A sink and its staging folder; `publisher` is another run's each time."""

    def __init__(self, folder: Path, postgres: Any, table: str | None = None, **more: Any) -> None:
        self.postgres = postgres
        self.table = table or postgres.new_name()
        self.sink = Postgres(more.pop("dsn", postgres.dsn()), self.table, **more)
        self.staging = folder / "staged"
        self._names = 0

    def publisher(self) -> Publisher:
        """Return the publisher of another run."""
        return self.sink.open(self.staging, None)

    def stage(self, rows: pa.Table, *, ordered: bool = False) -> Staged:
        """Return a staged file; with `ordered` its rows have their place in the order of arrival."""
        if ordered:
            places = pa.array([n.to_bytes(4, "big") for n in range(rows.num_rows)], pa.binary())
            rows = rows.append_column(ARRIVAL, places)
        self._names += 1
        return Staged(**stage_table(rows, self.staging, f"{self._names:06d}.parquet"))

    def of(self, batch: int, *files: Staged, app: str = APP) -> Publication:
        """Return what the driver asks for."""
        return Publication(app=app, batch=batch, files=files, schema=pa.schema([]))

    def numbers(self, batch: int, *numbers: int) -> Publication:
        """Return a publication of rows with a number."""
        return self.of(batch, self.stage(pa.table({"k": pa.array(numbers, pa.int64())})))

    def publish(self, batch: int, rows: pa.Table) -> None:
        """Make the table and publish rows in the order in which they are, as a run of its own."""
        file = self.stage(rows, ordered=True)
        self.sink.create(rows.schema, None)
        publisher = self.publisher()
        publisher.refuse_values([file])
        publisher.publish(self.of(batch, file))

    def rows(self, columns: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        """Return what the table shows."""
        query = f"SELECT {columns} FROM {self.table} ORDER BY {order}"  # noqa: S608 - names of ours
        shown: list[tuple[Any, ...]] = self.postgres.ask(query)
        return shown
