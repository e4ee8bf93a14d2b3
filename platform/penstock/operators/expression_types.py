"""Say which expressions of SQL a task computes as Spark does, and the type of their values (decision 177).

What is not certain is left to Spark: types that it would change, and numbers that a task would compare otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import isfinite

import pyarrow as pa

from penstock.graph.predicates import Call, Chain, Column, Literal, Predicate

__all__ = ["expression_type"]

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DOUBLE, _TRUTH, _TEXT, _TIME = pa.float64(), pa.bool_(), pa.string(), pa.timestamp("us", tz="UTC")
_KINDS = frozenset({*_INTEGERS, _DOUBLE, _TRUTH, _TEXT, _TIME})
_FRACTION = pa.decimal128(1)
"""Stands for a literal such as 0.5, which is a decimal to Spark, and beside a double a double."""
_LONG = 1 << 63
_MOST_PARTS = 400
_MOST_LEVELS = 50
"""Python can send no tree of 300 levels to a task."""
_SETTING = re.compile(r"\$\{|'")
"""What Spark reads as its settings say: a variable, which it replaces within texts as well, and two quotes."""


def expression_type(node: Predicate, columns: pa.Schema, names: Collection[str]) -> pa.DataType | None:
    """Return the type of an expression over columns, None where a task does not compute it, or not surely as Spark.

    `names` are those of the columns that are names to SQL as well, and nothing else.
    """
    kind = _type_of(node, columns, names) if _is_small(node) else None
    return None if kind == _FRACTION else kind


def _is_small(node: Predicate) -> bool:
    """Return whether an expression is short and flat: Spark finds a value in a long IN by its hash."""
    waiting, seen = [(node, 1)], 0
    while waiting:
        part, level = waiting.pop()
        seen += 1
        if seen > _MOST_PARTS or level > _MOST_LEVELS:
            return False
        if isinstance(part, Call | Chain):
            waiting.extend((below, level + 1) for below in part.of)
    return True


def _type_of(node: Predicate, columns: pa.Schema, names: Collection[str]) -> pa.DataType | None:
    match node:
        case Literal(value):
            return _of_literal(value)
        case Column(path=(name,)) if name in names and columns.field(name).type in _KINDS:
            return columns.field(name).type
        case Call("is_null", (Column(),) as of):
            return None if expression_type(of[0], columns, names) is None else _TRUTH
        case Call(name, of):
            kinds = [_type_of(part, columns, names) for part in of]
            return None if None in kinds else _of_call(name, [kind for kind in kinds if kind is not None])
        case Chain(signs, of):
            kind = _type_of(of[0], columns, names)
            for sign, part in zip(signs, of[1:], strict=True):
                right = _type_of(part, columns, names)
                kind = None if kind is None or right is None else _of_call(sign, [kind, right])
            return kind
    return None


def _of_literal(value: object) -> pa.DataType | None:
    match value:
        case bool():
            return _TRUTH
        case int() if -_LONG < value < _LONG:
            return pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64()
        case float() if isfinite(value):
            return _FRACTION
        case str() if not _SETTING.search(value):
            return _TEXT
    return None


def _of_call(name: str, kinds: list[pa.DataType]) -> pa.DataType | None:
    integers, doubles = (all(kind in which for kind in kinds) for which in (_INTEGERS, (_DOUBLE, _FRACTION)))
    doubles = doubles and _DOUBLE in kinds
    match name:
        case "and" | "or" | "not":
            return _TRUTH if set(kinds) == {_TRUTH} else None
        case "unix_micros" | "unix_millis" | "unix_seconds":
            return pa.int64() if kinds == [_TIME] else None
        case "negative" | "positive" | "+" | "-" | "*" | "%":
            return max(kinds, key=_INTEGERS.index) if integers else _DOUBLE if doubles else None
        case "/":
            return _DOUBLE if integers or doubles else None
        case "div":
            return pa.int64() if integers else None
    # What is left are comparisons.
    return _TRUTH if integers or doubles or kinds in ([_TEXT] * 2, [_TIME] * 2) else None
