"""Read the bounds of a rule as Great Expectations reads them: numbers become floats, ISO text dates or timestamps.

GX 1.24.1 turns every numeric bound into a float before it compares (`Comparable` is float, date or datetime),
so a bound beyond 2**53 is rounded there, and here too.
Text that is neither a date nor a timestamp is refused by GX and here; text that is a number is refused here only.
"""

from __future__ import annotations

import datetime as dt
import math
import re

from penstock.errors import SuiteMalformed
from penstock.quality.json_text import Node

__all__ = ["Bound", "kind_of", "parse_bound", "parse_moment"]

Bound = float | dt.date | dt.datetime

_WANTED = "must be a number, a date like 2013-01-31, or a timestamp like 2013-01-31T10:00:00"

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")


def parse_bound(node: Node, name: str) -> Bound | None:
    """Return one bound: None, a float, a date, or a timestamp with or without zone."""
    value = node.value
    if value is None:
        return None
    if isinstance(value, str):
        moment = parse_moment(value)
        if moment is not None:
            return moment
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SuiteMalformed(f"{name} is {node.kind} ({value!r}) and {_WANTED}", where=node.where)
    try:
        number = float(value)
    except OverflowError:
        raise SuiteMalformed(f"{name} is beyond what a double holds", where=node.where) from None
    if math.isnan(number):
        raise SuiteMalformed(f"{name} is NaN, which nothing can be compared with", where=node.where)
    return number


def parse_moment(text: str) -> dt.date | dt.datetime | None:
    """Return the date or timestamp that ISO text says, None for any other text."""
    try:
        if _DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
        if _TIMESTAMP.fullmatch(text):
            return dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None


def kind_of(bound: Bound) -> str:
    """Return in words which values compare with a bound."""
    if isinstance(bound, dt.datetime):
        return "a timestamp with a zone" if bound.tzinfo else "a timestamp without a zone"
    return "a date" if isinstance(bound, dt.date) else "a number"
