"""Check in the debug mode of a run what functions of users promise; a run of the Harness is in it, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import isclose, isnan
from typing import Any

__all__ = ["alike", "debugging", "is_debugging"]

_DEBUGGING = ContextVar("penstock_debugging", default=False)
_CLOSE = 1e-6
"""The share by which floats may differ that were added and subtracted in another order (SEMANTICS 3.3)."""


@contextmanager
def debugging(*, on: bool) -> Iterator[None]:
    """Put the code inside the block into debug mode, or take it out."""
    before = _DEBUGGING.get()
    _DEBUGGING.set(on)
    try:
        yield
    finally:
        _DEBUGGING.set(before)  # not by a token: a task that is given up ends in another context


def is_debugging() -> bool:
    """Return whether the code runs in debug mode."""
    return _DEBUGGING.get()


def alike(value: Any, other: Any) -> bool:
    """Return whether two values are equal, but for what floats lose; also inside of lists and dicts."""
    match value, other:
        case float(), float():
            return isclose(value, other, rel_tol=_CLOSE, abs_tol=_CLOSE) or (isnan(value) and isnan(other))
        case Mapping(), Mapping():
            return value.keys() == other.keys() and all(alike(value[name], other[name]) for name in value)
        case (str() | bytes(), _) | (_, str() | bytes()):
            return bool(value == other)
        case Sequence(), Sequence():
            return len(value) == len(other) and all(map(alike, value, other))
    return bool(value == other)
