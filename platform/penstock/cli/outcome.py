"""End commands as DESIGN 11 says: an exit code, and for an error what, where and what to do about it."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

from penstock.errors import EXIT_SOFTWARE, PenstockError
from penstock.graph.names import is_name
from penstock.runtime.restore.target import parse_state
from penstock.supervise.commands import ID_RULE, is_id

__all__ = ["command_id", "outcome", "show", "state_tables", "step_names", "terminal"]

_WIDE = 200
"""Columns of a table that goes to a file or a pipe, where nobody's screen bounds it."""


class _Unforeseen(PenstockError):
    """What no one has raised on purpose."""

    remedy = "This is an error in Penstock. Report it with what --debug shows."
    exit_code = EXIT_SOFTWARE


@contextmanager
def outcome(*, debug: bool, tell: Callable[[PenstockError], None] | None = None) -> Iterator[None]:
    """Turn what a command raises into an exit code, with a short message on standard error.

    `tell` is called with an error as well, to say it in another form; one that nobody foresaw has the code PEN-000.
    """
    try:
        yield
    except PenstockError as why:
        if tell is not None:
            tell(why)
        _show(why, debug=debug)
        raise typer.Exit(why.exit_code) from None
    except OSError as why:
        if why.errno == errno.EPIPE:  # whoever read our output has left, as `head` does
            raise
        raise _unexpected(why, debug=debug, tell=tell) from None
    except Exception as why:
        if type(why).__module__.split(".")[0] in ("typer", "click"):
            raise
        raise _unexpected(why, debug=debug, tell=tell) from None


def command_id(text: str | None) -> str | None:
    """Return the id of a command, refused where it is none."""
    if text is not None and not is_id(text):
        raise typer.BadParameter(f"an id is {ID_RULE}", param_hint="--command")
    return text


def step_names(said: Sequence[str]) -> tuple[str, ...]:
    """Return the steps that `--drop` names, refused where one is no name of a step."""
    for text in said:
        if not is_name(text):
            raise typer.BadParameter(f"{text!r} is no name of a step", param_hint="--drop")
    return tuple(said)


def state_tables(said: Sequence[str]) -> dict[str, str]:
    """Return the tables that `--state` gives to steps."""
    try:
        return parse_state(said)
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="--state") from None


def terminal() -> Console:
    """Return the console of standard output: as wide as the screen, or wide where there is none."""
    return Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=_WIDE)


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


def _show(error: PenstockError, *, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    lines = [error.what]
    if error.where:
        lines.append(f"where: {error.where}")
    lines.append(f"do: {error.remedy}")
    _block(error.code, lines)


def _unexpected(why: Exception, *, debug: bool, tell: Callable[[PenstockError], None] | None) -> typer.Exit:
    frame = traceback.extract_tb(why.__traceback__)[-1]
    error = _Unforeseen(f"{type(why).__name__}: {why}", where=f"{frame.filename}:{frame.lineno}")
    error.__cause__ = why  # so that who is told has the traceback
    if tell is not None:
        tell(error)
    _show(error, debug=debug)
    return typer.Exit(error.exit_code)


def _block(title: str, lines: list[str]) -> None:
    if sys.stderr.isatty():
        Console(file=sys.stderr).print(
            Panel(Text("\n".join(lines)), title=title, title_align="left", border_style="red")
        )
    else:
        print(f"{title} {lines[0]}", *(f"  {line}" for line in lines[1:]), sep="\n", file=sys.stderr)
