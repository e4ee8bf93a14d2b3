"""Describe aggregates: what to compute over the rows of a window, not how."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.graph.source_location import job_error

__all__ = ["EVERY_ROW", "MOST_ITEMS", "Aggregate", "AggregateKind", "CustomFunctions"]

MOST_ITEMS = 1_000_000
"""The greatest limit of what keeps rows of a window one by one."""


class AggregateKind(Enum):
    """Name the aggregates of SEMANTICS 3.3 that are built in."""

    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"
    FIRST = "first"
    LAST = "last"
    COUNT_DISTINCT = "count_distinct"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"
    COLLECT = "collect"
    TOP_K = "top_k"
    CUSTOM = "custom"
    ROWS = "rows"
    """All rows, for a function over windows. No job names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFunctions:
    """The functions of CUSTOM, and the DDL of its state and its result."""

    zero: Any
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    subtract: Callable[[Any, Any], Any] | None
    state: str
    output: str

    def start(self) -> Any:
        """Return the state of no values, a new one each time."""
        return self.zero() if callable(self.zero) else deepcopy(self.zero)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: its kind and the Spark SQL expression it reads, None for count of rows.

    `share` is the one of APPROX_QUANTILE, from 0 to 1. It is no part of what the state keeps.
    `size` is the limit of COLLECT and ROWS, and how many rows TOP_K keeps. `shown` is what `explain` says, where the
    expression is not what the job has written: TOP_K reads a struct of `by` and `value`.
    """

    kind: AggregateKind
    expression: str | None = None
    share: float | None = None
    size: int | None = None
    shown: str | None = None
    custom: CustomFunctions | None = None

    def __str__(self) -> str:
        """Return it as `explain` says it."""
        if self.shown is not None:
            return f"{self.kind.value}({self.shown})"
        share = "" if self.share is None else f", {self.share:g}"
        return f"{self.kind.value}({self.expression or ''}{share})"

    def label(self, name: str) -> str | None:
        """Return what tells its partials from those of others of its kind; the greatest 3 are not those of 5.

        `name` is its column, by which one of functions is known: those have no name that stays.
        """
        if self.kind is AggregateKind.CUSTOM:
            return f"{self.expression}, {name}"
        if self.kind is AggregateKind.ROWS:
            return str(self.kind.value)
        return f"{self.expression}, {self.size}" if self.kind is AggregateKind.TOP_K else self.expression

    def __post_init__(self) -> None:
        counts = self.kind is AggregateKind.COUNT
        if counts and self.expression is None:
            return
        if not isinstance(self.expression, str) or not self.expression.strip():
            needs = "takes nothing, or" if counts else "needs"
            raise job_error(f"agg.{self.kind.value} {needs} a column or an expression, not {self.expression!r}")


EVERY_ROW = Aggregate(AggregateKind.ROWS, "*", size=MOST_ITEMS)
"""Keeps the rows of each key and window, for a function over windows: a struct of all visible columns for each."""
