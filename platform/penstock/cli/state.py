"""Run `penstock state`: what a step keeps, as a table."""

from __future__ import annotations

import csv
import json as jsonlib
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.table import Table

from penstock.cli.outcome import outcome, show
from penstock.runtime.inspect.state_reader import chunks
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.runtime.restore.target import parse_start

__all__ = ["parse_condition", "state_command"]

_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(=|!=|<=|>=|<|>)\s*(.*?)\s*")
_TESTS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def state_command(
    job: str,
    step: str,
    *,
    at: str,
    where: list[str],
    limit: int,
    as_csv: bool,
    json: bool,
    project: Path | None,
    debug: bool,
) -> None:
    """Print the rows; all of them as CSV or JSON, a page of them as a table."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        conditions = [parse_condition(text) for text in where]
        try:
            parse_start(f"batch={at}" if at.isdecimal() else at)
        except ValueError as why:
            raise typer.BadParameter(str(why), param_hint="--at") from None
        found = chunks(settings.root, job, step, at=int(at) if at.isdecimal() else at)
        tables = (_filtered(table, conditions) for table in found)
        if as_csv:
            _write_csv(tables)
        elif json:
            for row in _rows(tables):
                print(jsonlib.dumps(row, default=_shown))
        else:
            _print_page(tables, limit)


def parse_condition(text: str) -> tuple[str, str, str]:
    """Read `COLUMN=VALUE`, or with `!=`, `<`, `<=`, `>`, `>=`: the column, the name of the test and the value."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not COLUMN=VALUE", param_hint="--where")
    return found[1], _TESTS[found[2]], found[3]


def _filtered(table: pa.Table, conditions: list[tuple[str, str, str]]) -> pa.Table:
    for column, test, value in conditions:
        if column not in table.column_names:
            there = ", ".join(table.column_names)
            raise typer.BadParameter(f"there is no column {column!r}; there is {there}", param_hint="--where")
        kind = table.schema.field(column).type
        try:
            wanted = pa.scalar(None, kind) if value == "null" else pa.scalar(value).cast(kind)
            if value == "null" and test in ("equal", "not_equal"):
                missing = pc.is_null(table[column])
                mask = missing if test == "equal" else pc.invert(missing)
            else:
                mask = pc.call_function(test, [table[column], wanted])
        except pa.ArrowException as why:
            said = f"{value!r} is no value of column {column!r}, which is {kind}"
            raise typer.BadParameter(said, param_hint="--where") from why
        table = table.filter(mask)
    return table


def _rows(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()


def _write_csv(tables: Iterator[pa.Table]) -> None:
    writer = None
    for row in _rows(tables):
        if writer is None:
            writer = csv.DictWriter(sys.stdout, fieldnames=list(row))
            writer.writeheader()
        writer.writerow({name: _plain(value) for name, value in row.items()})


def _print_page(tables: Iterator[pa.Table], limit: int) -> None:
    rows = _rows(tables)
    page = list(islice(rows, limit))
    if not page:
        print("no rows")
        return
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for name in page[0]:
        shown.add_column(name)
    for row in page:
        shown.add_row(*(_plain(value) for value in row.values()))
    show(shown)
    if next(rows, None) is not None:
        print(f"and more than these {limit}; --limit, --where, --csv or --json show others")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(_shown(value)) if isinstance(value, datetime) else jsonlib.dumps(value, default=_shown)


def _shown(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
