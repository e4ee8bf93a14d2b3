"""Name the aggregates a window can compute: `from penstock import agg`, then `agg.sum("v * 2")`.

Each takes a Spark SQL expression over the stream's columns.
Nulls are left out, as in Spark; an aggregate over nulls only is null, a count of them 0.
"""

from __future__ import annotations

from penstock.graph.aggregates import Aggregate, AggregateKind

__all__ = [
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev_pop",
    "stddev_samp",
    "sum",
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
