"""Read the parts of a suite, each refused by name and place when it is not what it must be.

Bounds are read as GX 1.24.1 reads them, which turns every number into a float before it compares (`Comparable` is
float, date or datetime). So a bound beyond 2**53 is rounded there, and here too.
Text that is neither a date nor a timestamp is refused by GX and here; text that is a number is refused here only.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import SuiteError, SuiteMalformed
from penstock.quality.json_text import Node

__all__ = [
    "Bound",
    "bound_of",
    "check_ignored",
    "flag_of",
    "kind_of",
    "mostly_of",
    "nearest",
    "object_of",
    "parse_moment",
    "refuse_unknown",
    "required",
    "text_of",
    "value_set_of",
]

Bound = float | dt.date | dt.datetime

_WANTED = "must be a number, a date like 2013-01-31, or a timestamp like 2013-01-31T10:00:00"

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
# What GX called these keys before version 1.
_FORMER = {"expectation_type": "type", "expectation_suite_name": "name", "evaluation_parameters": "suite_parameters"}


def object_of(node: Node, name: str) -> dict[str, Node]:
    """Return the members of an object."""
    if not isinstance(node.value, dict):
        raise SuiteMalformed(f"{name} is {node.kind} and must be an object", where=node.where)
    return node.members


def required(members: Mapping[str, Node], key: str, name: str, parent: Node) -> Node:
    """Return a member that must be there."""
    if key not in members:
        raise SuiteMalformed(f"{name} has no {key!r}", where=parent.where)
    return members[key]


def refuse_unknown(
    members: Mapping[str, Node], known: Iterable[str], noun: str, holder: str, error: type[SuiteError]
) -> None:
    """Refuse the first key that is not known, with the nearest one that is."""
    names = tuple(known)
    for key, node in members.items():
        if key not in names:
            raise error(f"{holder}: {noun} {key!r} is unknown{nearest(key, names)}", where=node.where)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the words that help with a wrong name: the nearest known one, or all of them."""
    names = list(known)
    former = _FORMER.get(name)
    close = [former] if former in names else difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; there is {', '.join(names)}"


def check_ignored(members: Mapping[str, Node], **types: tuple[type, ...]) -> None:
    """Check the types of keys that change no verdict; null is the same as absent."""
    for key, allowed in types.items():
        node = members.get(key)
        if node is not None and node.value is not None and not isinstance(node.value, allowed):
            raise SuiteMalformed(f"{key} is {node.kind}", where=node.where)


def mostly_of(node: Node | None) -> float:
    """Return the share of rows that must hold, 0 to 1; 1 where it is not given."""
    if node is None:
        return 1.0
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SuiteMalformed(f"mostly is {value!r} and must be a number from 0 to 1", where=node.where)
    return float(value)


def text_of(kwargs: Mapping[str, Node], key: str, rule: str, parent: Node) -> str:
    """Return an argument that must be text and not empty."""
    node = required(kwargs, key, rule, parent)
    if not isinstance(node.value, str) or not node.value:
        raise SuiteMalformed(f"{rule}: {key} is {node.kind} and must be text that is not empty", where=node.where)
    return node.value


def flag_of(kwargs: Mapping[str, Node], key: str) -> bool:
    """Return an argument that is true or false; false where it is not given."""
    node = kwargs.get(key)
    if node is None:
        return False
    if not isinstance(node.value, bool):
        raise SuiteMalformed(f"{key} is {node.kind} and must be true or false", where=node.where)
    return node.value


def bound_of(kwargs: Mapping[str, Node], key: str, expectation: str) -> Bound | None:
    """Return a bound: None, a float, a date, or a timestamp with or without zone.

    That of a row count is a whole number, where GX would cut the fraction off.
    """
    node = kwargs.get(key)
    if node is None or node.value is None:
        return None
    value = node.value
    if expectation == "expect_table_row_count_to_be_between":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value % 1:
            raise SuiteMalformed(f"{key} is {value!r} and must be a whole number", where=node.where)
        return int(value)
    if isinstance(value, str):
        moment = parse_moment(value)
        if moment is not None:
            return moment
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SuiteMalformed(f"{key} is {node.kind} ({value!r}) and {_WANTED}", where=node.where)
    try:
        number = float(value)
    except OverflowError:
        raise SuiteMalformed(f"{key} is beyond what a double holds", where=node.where) from None
    if math.isnan(number):
        raise SuiteMalformed(f"{key} is NaN, which compares with nothing", where=node.where)
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


def value_set_of(kwargs: Mapping[str, Node], rule: str, parent: Node) -> tuple[Any, ...]:
    """Return the values of a set in their order; null stays None."""
    node = required(kwargs, "value_set", rule, parent)
    if not isinstance(node.value, list):
        raise SuiteMalformed(f"{rule}: value_set is {node.kind} and must be a list", where=node.where)
    for item in node.items:
        if isinstance(item.value, dict | list):
            raise SuiteMalformed(f"{rule}: value_set holds {item.kind}", where=item.where)
    return tuple(item.value for item in node.items)
