"""Evaluate predicates and other expressions over Arrow tables as Spark does in ANSI mode.

Null is unknown, and NaN above all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadExpression, UserFunctionError
from penstock.graph.predicates import Call, Chain, Column, Literal, Predicate
from penstock.state.keys import Bools

__all__ = ["UNFIT", "TablePredicate", "value_of"]

UNFIT = (
    pa.ArrowInvalid,
    pa.ArrowCapacityError,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    KeyError,
    TypeError,
)
"""What `value_of` raises where it cannot compute a value: missing, of another type, beyond its type, or by zero."""
_MOST_BYTES = (1 << 31) - 1
"""The bytes of a column of texts, whose places are 32-bit numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePredicate:
    """A predicate over rows with these columns; `what` names it in errors."""

    predicate: Predicate
    what: str

    def check(self, columns: pa.Schema) -> None:
        """Raise BadExpression where columns are missing, or of types that do not go together."""
        try:
            kind = value_of(self.predicate, columns.empty_table()).type
        except UNFIT as why:
            raise BadExpression(f"{self.what} does not fit the columns {', '.join(columns.names)}: {why}") from None
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise BadExpression(f"{self.what} gives a {kind}, and a predicate is true or false")

    def holds(self, rows: pa.Table) -> Bools:
        """Return where the predicate is true: null is not.

        Raises UserFunctionError where it cannot be computed, as for a sum beyond its type.
        """
        try:
            value = value_of(self.predicate, rows)
        except UNFIT as why:
            raise UserFunctionError(f"{self.what} cannot be computed: {why}") from why
        whole = pa.array(np.zeros(rows.num_rows, dtype=np.bool_)) if pa.types.is_null(value.type) else value
        true: Bools = pc.fill_null(whole, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow takes it by place
        return true


def value_of(node: Predicate, rows: pa.Table) -> pa.Array:
    """Return the value of an expression for each row; raises one of UNFIT where one of them has none."""
    match node:
        case Literal(value):
            # Arrow repeats a text beyond that as well, and its places are wrong then.
            if isinstance(value, str) and len(value.encode()) * rows.num_rows > _MOST_BYTES:
                raise pa.ArrowCapacityError(f"a text of {len(value):,} letters for {rows.num_rows:,} rows")
            return pa.repeat(_scalar(value), rows.num_rows)
        case Column(path):
            return _column(rows, path)
        case Call(name, of):
            return _called(name, [value_of(part, rows) for part in of])
        case Chain(signs, of):
            value = value_of(of[0], rows)
            for sign, part in zip(signs, of[1:], strict=True):
                value = _computed(sign, value, value_of(part, rows))
            return value
    raise TypeError(node)


def _scalar(value: Any) -> pa.Scalar:
    """Return a constant of the type that Spark gives it: the narrowest of INT and BIGINT for whole numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return pa.scalar(value, pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64())
    return pa.scalar(value)


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.Array:
    """Return a column, or a field of a struct; Spark does not tell upper case from lower."""
    name = next((known for known in rows.column_names if known.lower() == path[0].lower()), None)
    if name is None:
        raise KeyError(f"there is no column {path[0]!r}")
    value = rows[name].combine_chunks()
    for part in path[1:]:
        names = [field.name for field in value.type] if pa.types.is_struct(value.type) else []
        field = next((known for known in names if known.lower() == part.lower()), None)
        if field is None:
            raise KeyError(f"there is no field {part!r} in {value.type}")
        value = pc.struct_field(value, field)
    return value


def _called(name: str, of: list[pa.Array]) -> pa.Array:
    match name:
        case "and":
            return pc.and_kleene(*(_truth(value) for value in of))
        case "or":
            return pc.or_kleene(*(_truth(value) for value in of))
        case "not":
            return pc.invert(_truth(of[0]))
        case "is_null":
            return of[0].is_null()
        case "negative" | "positive":
            return pc.negate_checked(of[0]) if name == "negative" else _number(name, of[0])
        case "unix_micros" | "unix_millis" | "unix_seconds":
            return _since_epoch(name, of[0])
        case "=" | "!=" | "<" | "<=" | ">" | ">=":
            return _compared(name, *of)
        case _:
            return _computed(name, *of)


def _truth(value: pa.Array) -> pa.Array:
    if pa.types.is_null(value.type):
        return value.cast(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise TypeError(f"a {value.type} is neither true nor false")
    return value


def _compared(name: str, a: pa.Array, b: pa.Array) -> pa.Array:
    """Compare two columns; NaN equals NaN, and is above every other number."""
    if pa.types.is_null(a.type) or pa.types.is_null(b.type):
        return pa.nulls(len(a), pa.bool_())
    kinds = [_family(value.type) for value in (a, b)]
    if kinds[0] != kinds[1]:
        raise TypeError(f"{a.type} and {b.type} are not compared")
    if name in (">", "<="):  # a > b is b < a, and a <= b its opposite
        less = _less(b, a)
        return less if name == ">" else pc.invert(less)
    if name in ("<", ">="):
        less = _less(a, b)
        return less if name == "<" else pc.invert(less)
    equal = pc.equal(a, b)
    if pa.types.is_floating(a.type) and pa.types.is_floating(b.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    return equal if name == "=" else pc.invert(equal)


def _less(a: pa.Array, b: pa.Array) -> pa.Array:
    less = pc.less(a, b)
    if pa.types.is_floating(b.type):
        below = pc.invert(pc.is_nan(a)) if pa.types.is_floating(a.type) else a.is_valid()
        less = pc.or_(less, pc.and_(pc.is_nan(b), below))
    return less


def _computed(name: str, a: pa.Array, b: pa.Array) -> pa.Array:
    a, b = (_number(name, value) for value in (a, b))
    floating = pa.types.is_floating(a.type) or pa.types.is_floating(b.type)
    if name == "div":
        if floating:
            raise TypeError("div is for integers")
        a, b = a.cast(pa.int64()), b.cast(pa.int64())
    if name == "/" or (name == "%" and floating):
        a, b = a.cast(pa.float64(), safe=False), b.cast(pa.float64(), safe=False)
    if name not in ("/", "%", "div"):
        return _SIGNS[name](a, b)
    # Null by zero is null.
    if pc.any(pc.and_(pc.equal(b, pa.scalar(0, b.type)), a.is_valid())).as_py():
        raise pa.ArrowInvalid("division by zero")
    if name != "%":
        return pc.divide_checked(a, b)
    # Of the sign of the dividend, as in Java, and 0 for the least number by -1.
    known = pc.and_(a.is_valid(), b.is_valid())
    left, right = (pc.if_else(known, value, pa.scalar(1, value.type)).to_numpy() for value in (a, b))
    with np.errstate(invalid="ignore"):  # infinity by a number is no number, in Java as well
        return pa.array(np.fmod(left, right), mask=~known.to_numpy(zero_copy_only=False))


def _number(name: str, value: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(value.type) or pa.types.is_floating(value.type)):
        raise TypeError(f"{name} is for integers and doubles, not for {value.type}")
    return value


def _since_epoch(name: str, times: pa.Array) -> pa.Array:
    if not (pa.types.is_timestamp(times.type) and times.type.unit == "us"):
        raise TypeError(f"{name} is for timestamps, not for {times.type}")
    micros = times.cast(pa.int64())
    if name == "unix_micros":
        return micros
    # A moment before 1970 is in the second that has begun.
    whole = np.floor_divide(micros.fill_null(0).to_numpy(), 1_000 if name == "unix_millis" else 1_000_000)
    return pa.array(whole, mask=micros.is_null().to_numpy(zero_copy_only=False))


_SIGNS: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def _family(kind: pa.DataType) -> str:
    """Return the word for types that compare with each other."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "text" if pa.types.is_string(kind) else str(kind)
