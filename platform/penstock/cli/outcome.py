"""Begin and end commands as DESIGN 11 says: an exit code, and for an error what, where and what to do about it.

Commands share what this module defines. It imports nothing that costs time before a command runs (decision 100).
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.errors import EXIT_SOFTWARE, PenstockError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from penstock.runtime.process.project import Project

__all__ = ["columns", "outcome", "project_at", "refusing", "show", "shown_moment", "tell", "terminal", "write_json"]

_WIDE = 200
"""Columns of a table that goes to a file or a pipe, where nobody's screen bounds it."""


class _Unforeseen(PenstockError):
    """What no one has raised on purpose."""

    remedy = "This is an error in Penstock. Report it with what --debug shows."
    exit_code = EXIT_SOFTWARE


@contextmanager
def outcome(
    *,
    debug: bool,
    tell: Callable[[PenstockError], None] | None = None,
    json: bool | None = False,
    narrated: bool = False,
) -> Iterator[None]:
    """Configure events, and turn what a command raises into an exit code with a short message on standard error.

    Args:
        debug: Show the traceback of an error as well.
        tell: Called with an error, to say it in another form; one that nobody foresaw has the code PEN-000.
        json: Write events as JSON lines to standard output, not warnings in words to standard error. None configures
            nothing.
        narrated: Write all events in words to standard output.
    """
    if json is not None:
        from penstock.runtime.process.logging import configure_events

        configure_events(json=json, narrated=narrated)
    try:
        yield
    except BrokenPipeError:  # whoever read our output has left, as `head` does
        raise
    except Exception as why:
        if type(why).__module__.split(".")[0] in ("typer", "click"):
            raise
        error = why if isinstance(why, PenstockError) else _unforeseen(why)
        if tell is not None:
            tell(error)
        _show(error, debug=debug)
        raise typer.Exit(error.exit_code) from None


@contextmanager
def refusing(hint: str | None = None) -> Iterator[None]:
    """Turn a ValueError into an error of the command line; `hint` names the option or argument."""
    try:
        yield
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint=hint) from None


def project_at(folder: Path | None) -> Project:
    """Return the project in the folder of `--project`, or the nearest one above the working folder."""
    from penstock.runtime.process.project import find_project

    return find_project(given=folder)


def shown_moment(micros: int | None) -> str:
    """Return a time, in microseconds since 1970, for people."""
    from penstock.checkpoint.log import batch_report

    return batch_report.shown_moment(micros)


def write_json(value: object) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(value))


def tell(value: object, text: str, *, json: bool) -> None:
    """Print the result of a command: a value as one line of JSON for programs, or a text for people."""
    write_json(value) if json else print(text)


def terminal() -> Console:
    """Return the console of standard output: as wide as the screen, or wide where there is none."""
    from rich.console import Console

    return Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=_WIDE)


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """Return a table with these columns; the numbers in those of `right` stand below each other."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in right else "left")
    return table


def show(*parts: RenderableType) -> None:
    """Print for people; where nobody's screen is filled, without the blanks that would fill it."""
    console = terminal()
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    text = captured.get()
    if not sys.stdout.isatty():
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    sys.stdout.write(text)


def _unforeseen(why: Exception) -> PenstockError:
    frame = traceback.extract_tb(why.__traceback__)[-1]
    error = _Unforeseen(f"{type(why).__name__}: {why}", where=f"{frame.filename}:{frame.lineno}")
    error.__cause__ = why  # so that who is told has the traceback
    return error


def _show(error: PenstockError, *, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    lines = [error.what, *([f"where: {error.where}"] if error.where else []), f"do: {error.remedy}"]
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.panel import Panel
        from rich.text import Text

        Console(file=sys.stderr).print(
            Panel(Text("\n".join(lines)), title=error.code, title_align="left", border_style="red")
        )
    else:
        print(f"{error.code} {lines[0]}", *(f"  {line}" for line in lines[1:]), sep="\n", file=sys.stderr)
