"""Describe a function of the user's over the rows of a window, and the argument that it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.graph.declarations import checked_function, checked_text, function_name

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

__all__ = ["WindowFunction", "WindowView", "window_function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowView:
    """The window that a function gets: its bounds and its rows.

    Tables have the visible columns of the stream, and rows in the order of arrival.

    Attributes:
        start: The start of the window, an aware datetime in UTC; None where the length is a count.
        end: The end of the window, likewise.
        current: The rows of the window.
        new: Those rows that the window evaluated just before did not have; None in windows of other kinds.
        expired: The rows that have left since the window evaluated just before; None in windows of other kinds.
    """

    start: datetime | None
    end: datetime | None
    current: pa.Table
    new: pa.Table | None = None
    expired: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A function `fn(key, view)` over the rows of each window, and the Spark DDL of the rows that it returns."""

    fn: Callable[..., Any]
    output: str

    def __str__(self) -> str:
        """Return the function's name, for `explain`."""
        return function_name(self.fn)


def window_function(fn: object, output: object, step: str) -> WindowFunction:
    """Return the arguments of `apply`, or refuse them with the user's line; `step` is the kind and name of the step.

    Raises:
        JobError: `fn` is no function.
        BadExpression: `output` is no text. Text that is no DDL is refused when the job starts.
    """
    return WindowFunction(checked_function(fn, step), checked_text(output, "output", step))
