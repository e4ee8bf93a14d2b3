"""Read the parts of a suite, each refused by name and place when it is not what it must be."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import SuiteError, SuiteMalformed
from penstock.quality.bounds import Bound, parse_bound
from penstock.quality.json_text import Node

__all__ = [
    "bound_of",
    "check_ignored",
    "flag_of",
    "mostly_of",
    "nearest",
    "object_of",
    "refuse_unknown",
    "required",
    "text_of",
    "value_set_of",
]


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
    """Return a bound; that of a row count is a whole number, where GX would cut the fraction off."""
    node = kwargs.get(key)
    if node is None:
        return None
    if expectation != "expect_table_row_count_to_be_between" or node.value is None:
        return parse_bound(node, key)
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SuiteMalformed(f"{key} is {value!r} and must be a whole number", where=node.where)
    if value != int(value):
        raise SuiteMalformed(f"{key} is {value!r} and must be a whole number", where=node.where)
    return int(value)


def value_set_of(kwargs: Mapping[str, Node], rule: str, parent: Node) -> tuple[Any, ...]:
    """Return the values of a set in their order; null stays None."""
    node = required(kwargs, "value_set", rule, parent)
    if not isinstance(node.value, list):
        raise SuiteMalformed(f"{rule}: value_set is {node.kind} and must be a list", where=node.where)
    for item in node.items:
        if isinstance(item.value, dict | list):
            raise SuiteMalformed(f"{rule}: value_set holds {item.kind}", where=item.where)
    return tuple(item.value for item in node.items)
