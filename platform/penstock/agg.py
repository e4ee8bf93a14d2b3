"""Name the aggregates a window can compute: `from penstock import agg`, then `agg.sum("v * 2")`.

Each takes a Spark SQL expression over the stream's columns.
Nulls are left out, as in Spark; an aggregate over nulls only is null, a count of them 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.graph.aggregates import MOST_ITEMS, Aggregate, AggregateKind, CustomFunctions
from penstock.graph.declarations import checked_function, checked_text
from penstock.graph.source_location import job_error

__all__ = [
    "approx_count_distinct",
    "approx_quantile",
    "collect",
    "count",
    "count_distinct",
    "custom",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "top_k",
    "var_pop",
    "var_samp",
]


def count(expression: str | None = None) -> Aggregate:
    """Count rows, or the rows where the expression is not null; the result is a bigint."""
    return Aggregate(AggregateKind.COUNT, expression)


def sum(expression: str) -> Aggregate:
    """Add up: integers to bigint (overflow raises), decimals exactly, floating numbers to double."""
    return Aggregate(AggregateKind.SUM, expression)


def mean(expression: str) -> Aggregate:
    """Average: double, or a decimal with four more digits for decimals."""
    return Aggregate(AggregateKind.MEAN, expression)


def min(expression: str) -> Aggregate:
    """Take the least value; NaN is greater than every number, as in Spark."""
    return Aggregate(AggregateKind.MIN, expression)


def max(expression: str) -> Aggregate:
    """Take the greatest value; NaN is greater than every number, as in Spark."""
    return Aggregate(AggregateKind.MAX, expression)


def var_pop(expression: str) -> Aggregate:
    """Compute the population variance, a double."""
    return Aggregate(AggregateKind.VAR_POP, expression)


def var_samp(expression: str) -> Aggregate:
    """Compute the sample variance, a double; null for one value."""
    return Aggregate(AggregateKind.VAR_SAMP, expression)


def stddev_pop(expression: str) -> Aggregate:
    """Compute the population standard deviation, a double."""
    return Aggregate(AggregateKind.STDDEV_POP, expression)


def stddev_samp(expression: str) -> Aggregate:
    """Compute the sample standard deviation, a double; null for one value."""
    return Aggregate(AggregateKind.STDDEV_SAMP, expression)


def first(expression: str) -> Aggregate:
    """Take the value of the earliest row by event time, ties by arrival; nulls count as values."""
    return Aggregate(AggregateKind.FIRST, expression)


def last(expression: str) -> Aggregate:
    """Take the value of the latest row by event time, ties by arrival; nulls count as values."""
    return Aggregate(AggregateKind.LAST, expression)


def count_distinct(expression: str) -> Aggregate:
    """Count the different values, exactly; a bigint. The state keeps each value of a window, with its count.

    What it keeps of a key and slice is bounded by `state_row` in [limits] of the configuration, 16 MiB by default. More
    stop the job with StateRowTooLarge: `approx_count_distinct` keeps 8 KiB.
    """
    return Aggregate(AggregateKind.COUNT_DISTINCT, expression)


def approx_count_distinct(expression: str) -> Aggregate:
    """Count the different values, exactly up to 1,024 of them and more within about 3%; a bigint.

    The state keeps a theta sketch of each window, at most 8 KiB, in the bytes that Apache DataSketches writes.
    """
    return Aggregate(AggregateKind.APPROX_COUNT_DISTINCT, expression)


def approx_quantile(expression: str, q: float) -> Aggregate:
    """Take the least number that at least a share of the values does not exceed, within 1% of it; a double.

    The state keeps counts by buckets of 2%. NaN is greater than every number.

    Args:
        expression: The numbers.
        q: The share, from 0 to 1; 0.5 is the median.
    """
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise job_error(f"the share of agg.approx_quantile is {q!r}; it is a number from 0 to 1")
    return Aggregate(AggregateKind.APPROX_QUANTILE, expression, float(q))


def collect(expression: str, *, limit: int) -> Aggregate:
    """Take all values that are not null, in the order of arrival; an array, empty where there are none.

    Args:
        expression: The values, of any type.
        limit: How many values a key may have in one window. More stop the job with AccumulatorTooLarge, and nothing
            is committed. Another limit applies from the next batch on.
    """
    size = _whole(limit, "the limit of agg.collect")
    return Aggregate(AggregateKind.COLLECT, expression, size=size, shown=f"{expression}, limit={size}")


def top_k(expression: str, k: int, *, by: str) -> Aggregate:
    """Take a value of each of the k rows whose `by` is greatest, greatest first; an array of up to k.

    Of rows with equal `by` those that came first are taken. Rows whose `by` is null are left out, and a null value of
    another row is not. NaN is greater than every number, as in Spark.

    Args:
        expression: The values, of any type.
        k: How many rows are taken. Another k makes another aggregate, which begins with rows that come from then on.
        by: What is compared: numbers, text, bytes, booleans, dates or times.
    """
    size = _whole(k, "the k of agg.top_k")
    for written in (expression, by):
        if not isinstance(written, str) or not written.strip():
            raise job_error(f"agg.top_k needs a column or an expression, not {written!r}")
    read = f"named_struct('by', {by}, 'value', {expression})"
    return Aggregate(AggregateKind.TOP_K, read, size=size, shown=f"{expression}, {size}, by={by}")


def custom(
    *,
    zero: Any,
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any],
    result: Callable[[Any], Any],
    subtract: Callable[[Any, Any], Any] | None = None,
    input: str,
    state: str,
    output: str,
) -> Aggregate:
    """Aggregate by functions over plain Python values, called once for each value and once for each merge.

    Rows may be merged in any order and grouping, so `merge` must be associative and commutative, and `zero` neutral.
    Values that are null are left out. An aggregate over nulls only is `result(zero)`. Maps are dicts in values and in
    states. Python is called for each row: prefer another aggregate where there is one. The state knows it by its
    column and `input`.

    Args:
        zero: The state of no values, or a function that returns it. A list or dict is copied each time.
        add: `add(state, value)` returns the state with one value more.
        merge: `merge(a, b)` returns the state of the values of both.
        result: `result(state)` returns the value of the column.
        subtract: `subtract(a, b)` undoes `merge(a, b)` exactly. Sliding windows then subtract what leaves. With
            `penstock run --debug`, and in the Harness, each subtraction is checked. NotAnInverse stops the job.
        input: A column or a Spark SQL expression.
        state: Spark DDL such as "n long, total double". State of one column is that value, of several a dict.
        output: The Spark type of the result, such as "double".
    """
    named = {"add": add, "merge": merge, "result": result, **({} if subtract is None else {"subtract": subtract})}
    for name, fn in named.items():
        checked_function(fn, f"{name}= of agg.custom")
    functions = CustomFunctions(
        zero=zero,
        add=add,
        merge=merge,
        result=result,
        subtract=subtract,
        state=checked_text(state, "state", "agg.custom"),
        output=checked_text(output, "output", "agg.custom"),
    )
    return Aggregate(AggregateKind.CUSTOM, input, custom=functions)


def _whole(size: int, what: str) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MOST_ITEMS:
        raise job_error(f"{what} is {size!r}; it is a whole number from 1 to {MOST_ITEMS:,}")
    return size
