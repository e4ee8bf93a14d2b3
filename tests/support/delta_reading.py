"""Delta tables to read, written by delta-rs or line by line, and the reader of them without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from source_reading import end_of_batch

from penstock.sources import DeltaTable
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import Position
from penstock.sources.delta.reader import DeltaReader
from penstock.testing.source_contract import read

__all__ = ["ID", "Written", "append", "cut", "k_of", "numbers", "read_all", "reader_of"]

ID = "11111111-2222-3333-4444-555555555555"


def numbers(first: int, count: int, **more: Sequence[Any]) -> pa.Table:
    """Return rows with k from a number on."""
    return pa.table({"k": pa.array(range(first, first + count), pa.int64()), **more})


def append(path: Path, rows: pa.Table, **more: Any) -> None:
    """Append rows to a table, which is made with the first ones."""
    write_deltalake(str(path), rows, mode="append", **more)


def reader_of(path: Path, **more: Any) -> DeltaReader:
    """Return the reader of a table."""
    return DeltaTable(path, **more).open(None)


def read_all(
    reader: DeltaReader, start: Position | None = None, limit: int | None = None
) -> tuple[list[dict[str, Any]], Position | None]:
    """Return the rows of all batches until nothing is new, and the position after them."""
    rows: list[dict[str, Any]] = []
    while (end := end_of_batch(reader, start, ReadLimit(rows=limit))) != start:
        span = reader.span(start, end)
        reader.verify(span)
        batch = read(reader, span)
        assert reader.rows(span) == batch.num_rows
        rows += batch.select(reader.schema.names).to_pylist()
        start = json.loads(json.dumps(end))
    return rows, start


def k_of(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Return the numbers of rows, in their order."""
    return [row["k"] for row in rows]


def cut(values: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Return values in so many parts, some of them empty."""
    return [values[len(values) * i // parts : len(values) * (i + 1) // parts] for i in range(parts)]


class Written:
    """A table whose log a test writes line by line."""

    def __init__(self, path: Path, *, columns: str = "k long", ident: str = ID, **settings: str) -> None:
        self.path, self.version = path, -1
        (path / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.commit(self.protocol(), self.metadata(columns, ident, **settings))

    def commit(self, *actions: dict[str, Any]) -> int:
        """Write the next version."""
        self.version += 1
        lines = [{"commitInfo": {"timestamp": 1_700_000_000_000 + self.version}}, *actions]
        entry = self.path / "_delta_log" / f"{self.version:020}.json"
        entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.version

    def file(self, *values: int, stats: bool = True, name: str = "", **more: Any) -> dict[str, Any]:
        """Write a file with these numbers, and return the action that adds it."""
        path = name or f"part-{self.version + 1}-{len(list(self.path.glob('*.parquet')))}.parquet"
        pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), self.path / path, row_group_size=3)
        body = {"path": path, "partitionValues": {}, "size": (self.path / path).stat().st_size, "modificationTime": 0}
        kept = {"stats": json.dumps({"numRecords": len(values)})} if stats else {}
        return {"add": {**body, "dataChange": True, **kept, **more}}

    @staticmethod
    def removed(add: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return the action that removes a file."""
        return {"remove": {"path": add["add"]["path"], "dataChange": True, "size": add["add"]["size"], **more}}

    @staticmethod
    def protocol(version: int = 1, *features: str) -> dict[str, Any]:
        """Return the action that says what readers must know."""
        named = {"readerFeatures": list(features)} if features else {}
        return {"protocol": {"minReaderVersion": version, "minWriterVersion": 2, **named}}

    @staticmethod
    def metadata(columns: str, ident: str = ID, **settings: str) -> dict[str, Any]:
        """Return the action that says which table it is, and what it holds."""
        fields = [dict(zip(("name", "type"), each.split(), strict=True)) for each in columns.split(", ")]
        schema = {"type": "struct", "fields": [{**field, "nullable": True, "metadata": {}} for field in fields]}
        facts = {"id": ident, "schemaString": json.dumps(schema), "partitionColumns": []}
        return {"metaData": {**facts, "format": {"provider": "parquet", "options": {}}, "configuration": settings}}
