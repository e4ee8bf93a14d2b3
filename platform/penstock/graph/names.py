"""Check names of steps, under which state, offsets and receipts are stored (F61), and names of key columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.errors import BadName, DuplicateName
from penstock.graph.source_location import job_error

__all__ = ["checked_columns", "checked_name", "column_names", "is_name"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def is_name(text: str) -> bool:
    """Return whether a text may be a name."""
    return _NAME.fullmatch(text) is not None


def checked_name(name: object, what: str) -> str:
    """Return the name, or refuse it with the user's line."""
    if not isinstance(name, str) or not is_name(name):
        raise job_error(f"{what} is named {name!r}", BadName)
    return name


def checked_columns(columns: object, argument: str, step: str) -> tuple[str, ...]:
    """Return the names of key columns that an argument of a step lists, or refuse them with the user's line.

    Args:
        columns: What the user gave: a list of names, at least one, each once.
        argument: The argument, such as "by=".
        step: The step's kind and name.

    Raises:
        JobError: `columns` is no list of names of columns.
        DuplicateName: It names a column twice.
    """
    what = f"{argument} of {step}"
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise job_error(f"{what} is {columns!r}, not a list of columns; write {argument}['id']")
    return column_names(columns, what)


def column_names(columns: Sequence[object], what: str) -> tuple[str, ...]:
    """Return names of columns, or refuse with the user's line what is none, and one that is there twice."""
    names = []
    for column in columns:
        if not isinstance(column, str) or not column.isidentifier():
            raise job_error(f"{what} takes names of columns, not {column!r}; compute it with with_columns first")
        names.append(str.__str__(column))  # of a member of an Enum of texts the text, which str() does not give
    if len(set(names)) < len(names):
        raise job_error(f"{what} names a column twice", DuplicateName)
    return tuple(names)
