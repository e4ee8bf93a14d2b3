"""Print rows, for a first look. At least once: a batch that is published again is printed again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.sinks.base import Publication, read_staged

__all__ = ["Console"]


@dataclass(frozen=True)
class Console:
    """Describe a sink that prints up to `rows` rows of each batch to standard output."""

    in_order: ClassVar[bool] = True

    rows: int = 20

    def staging(self, folder: Path) -> Path:
        """Return the folder below the checkpoint."""
        return folder

    def prepare(self, schema: pa.Schema, spark: Any) -> None:
        """Accept any schema."""

    def open(self, staging: Path, spark: Any) -> ConsolePublisher:
        """Return the publisher."""
        return ConsolePublisher(self, staging)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return "console"


@dataclass(frozen=True)
class ConsolePublisher:
    """Print staged rows."""

    sink: Console
    staging: Path
    idempotent: bool = False

    def publish(self, publication: Publication) -> None:
        """Print the rows as a table, and say how many were left out."""
        if not publication.files:
            return
        from rich.console import Console as Terminal
        from rich.table import Table

        rows = read_staged(self.staging, publication.files)
        table = Table(*rows.column_names)
        for row in rows.slice(0, self.sink.rows).to_pylist():
            table.add_row(*(str(v) for v in row.values()))
        terminal = Terminal(file=sys.stdout)
        terminal.print(f"batch {publication.batch}")
        terminal.print(table)
        if rows.num_rows > self.sink.rows:
            terminal.print(f"… and {rows.num_rows - self.sink.rows:,} more rows")

    def version(self, app: str) -> int | None:
        """Return None: what was printed cannot be told."""
        return None
