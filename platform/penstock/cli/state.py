"""`penstock state JOB STEP`: show what a step keeps, as a table."""

from __future__ import annotations

import csv
import json as jsonlib
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder, checkpoint_at
from penstock.cli.outcome import columns, outcome, project_at, show

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["commands", "parse_condition"]

commands = typer.Typer(rich_markup_mode=None)
_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(=|!=|<=|>=|<|>)\s*(.*?)\s*")
_TESTS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@commands.command()
def state(
    job: JobName,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The stateful step.", show_default=False)],
    *,
    at: Annotated[
        str, typer.Option(metavar="N|saved=NAME|snapshot=V", help="The kept batch, savepoint or data checkpoint.")
    ] = "last",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Filter rows, also by !=, <, <=, >, >=; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum of rows shown.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write all rows as CSV.")] = False,
    json: Json = False,
    project: ProjectFolder = None,
    debug: Debug = False,
) -> None:
    """Show the state of a step.

    Its rows are keys, state columns and expiry, or the slices of windows.

    The command reads the checkpoint alone, without the job's code. The job may run at the same time.

    \b
    Examples:
      penstock state visits sessions --where user=ann
      penstock state visits sessions --at 120 --csv > then.csv
      penstock state flights hourly --where 'slice_start>=2013-01-31T00:00:00Z'
    """  # noqa: D301 - click knows the character, not the two
    from penstock.runtime.inspect.state_reader import chunks

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        conditions = [parse_condition(text) for text in where or ()]
        checkpoint_at(at)  # refuses what is none
        stored = chunks(settings.root, job, step, at=int(at) if at.isdecimal() else at)
        tables = (_filtered(table, conditions) for table in stored)
        if as_csv:
            _write_csv(tables)
        elif json:
            for row in _rows(tables):
                print(jsonlib.dumps(row, default=_shown))
        else:
            _print_page(tables, limit)


def parse_condition(text: str) -> tuple[str, str, str]:
    """Read `COLUMN=VALUE`, or with `!=`, `<`, `<=`, `>`, `>=`: the column, the name of the test and the value."""
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise typer.BadParameter(f"{text!r} is not COLUMN=VALUE", param_hint="--where")
    return parts[1], _TESTS[parts[2]], parts[3]


def _filtered(table: pa.Table, conditions: list[tuple[str, str, str]]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

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
            what = f"{value!r} is no value of column {column!r}, which is {kind}"
            raise typer.BadParameter(what, param_hint="--where") from why
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
    table = columns(*page[0])
    for row in page:
        table.add_row(*(_plain(value) for value in row.values()))
    show(table)
    if next(rows, None) is not None:
        print(f"and more than these {limit}; --limit, --where, --csv or --json show others")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(_shown(value)) if isinstance(value, datetime | Decimal) else jsonlib.dumps(value, default=_shown)


def _shown(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
