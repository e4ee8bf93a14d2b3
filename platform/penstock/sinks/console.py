"""Print rows, for a first look. At least once: a batch that is published again is printed again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sinks.base import Publication, Publisher, Sink
from penstock.sinks.staged_files import read_staged

__all__ = ["Console"]


@dataclass(frozen=True)
class Console(Sink):
    """Describe a sink that prints up to `rows` rows of each batch to standard output."""

    in_order = True

    rows: int = 20

    def __post_init__(self) -> None:
        """Refuse a number of rows that is none."""
        refuse_other_types(self)
        if self.rows < 1:
            raise ConfigError(f"rows is {self.rows}, and a table shows one at least")

    def open(self, staging: CheckpointFolder, spark: Any) -> ConsolePublisher:
        """Return the publisher."""
        return ConsolePublisher(self, staging)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return "console"


@dataclass(frozen=True)
class ConsolePublisher(Publisher):
    """Print staged rows."""

    sink: Console
    staging: CheckpointFolder

    def publish(self, publication: Publication) -> None:
        """Print the rows as a table, and say how many were left out."""
        if not publication.files:
            return
        from rich.console import Console as Terminal
        from rich.table import Table

        rows = read_staged(self.staging, publication.files)
        table = Table(*rows.column_names)
        shown = rows.slice(0, self.sink.rows)
        for row in zip(*(map(_text, column) for column in shown.columns), strict=True):
            table.add_row(*row)
        terminal = Terminal(file=sys.stdout)
        terminal.print(f"batch {publication.batch}")
        terminal.print(table)
        if rows.num_rows > self.sink.rows:
            terminal.print(f"… and {rows.num_rows - self.sink.rows:,} more rows")

    def version(self, app: str) -> int | None:
        """Return None: a console does not know what it has printed."""
        return None


def _text(value: pa.Scalar[Any]) -> str:
    """Return a value as text, also one that no Python object can hold (F74)."""
    try:
        return str(value.as_py())
    except (OverflowError, ValueError):
        # Arrow's own text, of the one value between brackets.
        return str(pa.array([value], value.type).to_string(skip_new_lines=True))[1:-1]
