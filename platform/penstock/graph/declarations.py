"""Check what a step with a function of the user's declares: the function itself, and texts such as DDL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import BadExpression
from penstock.graph.source_location import job_error

__all__ = ["checked_function", "checked_text", "function_name"]


def checked_text(text: object, argument: str, step: str) -> str:
    """Return a text of Spark's, DDL or an expression, or refuse what is none with the user's line.

    Text that Spark cannot parse is refused when the job starts.

    Args:
        text: What the user gave.
        argument: The argument, such as "output".
        step: The step's kind and name.

    Raises:
        BadExpression: `text` is no text, or an empty one.
    """
    if not isinstance(text, str) or not text.strip():
        raise job_error(f"{argument}= of {step} is {text!r}, not a text", BadExpression)
    return text


def checked_function(fn: object, step: str) -> Callable[..., Any]:
    """Return a function, or an object that can be called, or refuse with the user's line what is none."""
    if not callable(fn):
        raise job_error(f"{step} needs a function, not {fn!r}")
    return fn


def function_name(fn: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of an object, for `explain`."""
    return getattr(fn, "__qualname__", type(fn).__name__)
