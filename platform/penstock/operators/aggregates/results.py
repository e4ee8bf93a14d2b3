"""Turn merged partials into the results that Spark would give for the same rows, in the same types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import BadExpression, IntegerOverflow
from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates.cells import DIGITS, Column, Doubles
from penstock.operators.aggregates.extremes import has_order
from penstock.operators.aggregates.items import BY, VALUE, all_nullable
from penstock.operators.aggregates.kinds import ONE_CELL
from penstock.operators.aggregates.wide import Wide
from penstock.state.keys import Bools, Ints

__all__ = ["mean_of_decimals", "result_type", "sum_of_decimals", "sum_of_integers", "variance"]

_INNER_SCALE = 39
_SAFE_SCALE = 16
_SPREAD = {
    AggregateKind.VAR_POP: (0, False),
    AggregateKind.VAR_SAMP: (1, False),
    AggregateKind.STDDEV_POP: (0, True),
    AggregateKind.STDDEV_SAMP: (1, True),
}


def result_type(kind: AggregateKind, given: pa.DataType | None, *, what: str) -> pa.DataType:
    """Return the type Spark gives an aggregate over an input of type `given`.

    `what` names the aggregate in a BadExpression, raised where the input has no such aggregate.
    """
    if kind is AggregateKind.COUNT:
        return pa.int64()
    if given is None:
        raise BadExpression(f"{what} has no input")
    if (of := ONE_CELL.get(kind)) is not None:
        if not of.accepts(given):
            raise BadExpression(f"{what} reads {given}, {of.refused}")
        return given if of.result is None else of.result
    of_values = _type_of_values(kind, given)
    if of_values is None:
        return _type_of_numbers(kind, given, what)
    if kind is AggregateKind.TOP_K and not has_order(compared := given.field(BY).type):
        raise BadExpression(f"{what} compares {compared}, whose values have no order here")
    return of_values


def _type_of_values(kind: AggregateKind, given: pa.DataType) -> pa.DataType | None:
    """Return the type of what is found among values, None for what is computed from numbers."""
    match kind:
        case AggregateKind.FIRST | AggregateKind.LAST:
            return given
        case AggregateKind.COLLECT | AggregateKind.ROWS:
            return pa.list_(all_nullable(given))
        case AggregateKind.TOP_K:
            return pa.list_(all_nullable(given.field(VALUE).type))
    return None


def _type_of_numbers(kind: AggregateKind, given: pa.DataType, what: str) -> pa.DataType:
    if not (pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal128(given)):
        raise BadExpression(f"{what} reads {given}, which is not a number")
    if pa.types.is_decimal128(given) and kind in (AggregateKind.SUM, AggregateKind.MEAN):
        precision, scale = given.precision, given.scale
        if kind is AggregateKind.SUM:
            return pa.decimal128(min(DIGITS, precision + 10), scale)
        return pa.decimal128(min(DIGITS, precision + 4), min(DIGITS, scale + 4))
    if kind is AggregateKind.SUM and pa.types.is_integer(given):
        return pa.int64()
    return pa.float64()


def sum_of_integers(count: Column, low: Column, carry: Column, *, what: str) -> pa.Array:
    """Return sums as bigints, null where no value was added; IntegerOverflow where one does not fit."""
    if np.any(carry):
        raise IntegerOverflow(f"{what} over a window does not fit into a bigint")
    return pa.array(low, mask=_none(count))


def sum_of_decimals(count: Column, total: pa.Array, kind: pa.Decimal128Type, *, what: str) -> pa.Array:
    """Return sums in the result's precision; IntegerOverflow where one has more digits."""
    numbers = Wide.from_decimals(total)
    if numbers.reaches(10**kind.precision).any():
        raise IntegerOverflow(f"{what} over a window has more than {kind.precision} digits")
    return numbers.to_decimals(kind, count > 0)


def mean_of_decimals(count: Ints, total: pa.Array, kind: pa.Decimal128Type, *, what: str) -> pa.Array:
    """Divide decimal sums by counts, half up, in the result's scale; IntegerOverflow where the digits do not suffice.

    Spark first rounds to 39 decimal places; so does the exact way here.
    The fast way rounds once, where that gives the same: a quotient that is not a tie is then too far from one.
    """
    shift = 10 ** (kind.scale - total.type.scale)
    numbers = Wide.from_decimals(total)
    divisor = np.maximum(count, 1)
    largest = max(-int(numbers.low.min()), int(numbers.low.max())) if len(count) else 0
    if numbers.high is None and total.type.scale <= _SAFE_SCALE and largest * shift < 2**61 > int(divisor.max()):
        size = np.abs(numbers.low) * shift
        quotient = (2 * size + divisor) // (2 * divisor)
        means = Wide(np.where(numbers.low < 0, -quotient, quotient))
    else:
        scale = 10 ** (_INNER_SCALE - total.type.scale)
        exact = [
            _half_up(_half_up(number * scale, int(n)), 10 ** (_INNER_SCALE - kind.scale))
            for number, n in zip(numbers.to_list(), divisor, strict=True)
        ]
        if any(abs(number) >= 10**DIGITS for number in exact):
            raise IntegerOverflow(f"{what} over a window has more than {kind.precision} digits")
        low = np.array([number & (2**64 - 1) for number in exact], dtype=np.uint64).view(np.int64)
        means = Wide(low, np.array([number >> 64 for number in exact], dtype=np.int64))
    if means.reaches(10**kind.precision).any():
        raise IntegerOverflow(f"{what} over a window has more than {kind.precision} digits")
    return means.to_decimals(kind, count > 0)


def mean_of_doubles(count: Ints, total: Doubles) -> pa.Array:
    """Divide sums by counts, null where there is no value."""
    return pa.array(total / np.maximum(count, 1), mask=_none(count))


def sum_of_doubles(count: Ints, total: Doubles) -> pa.Array:
    """Return sums, null where no value was added."""
    return pa.array(total, mask=_none(count))


def variance(kind: AggregateKind, count: Ints, squares: Doubles) -> pa.Array:
    """Return a variance or standard deviation, null where there are too few values for it."""
    less, root = _SPREAD[kind]
    spread = squares / np.maximum(count - less, 1)
    return pa.array(np.sqrt(spread) if root else spread, mask=count <= less)


def _none(count: Column) -> Bools | None:
    none: Bools = count == 0
    return none if none.any() else None


def _half_up(number: int, divisor: int) -> int:
    quotient = (2 * abs(number) + divisor) // (2 * divisor)
    return -quotient if number < 0 else quotient
