"""Describe aggregates: what to compute over the rows of a window, not how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.graph.source_location import job_error

__all__ = ["Aggregate", "AggregateKind"]


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


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: its kind and the Spark SQL expression it reads, None for count of rows.

    `share` is the one of APPROX_QUANTILE, from 0 to 1. It is no part of what the state keeps.
    """

    kind: AggregateKind
    expression: str | None = None
    share: float | None = None

    def __str__(self) -> str:
        """Return it as `explain` says it."""
        share = "" if self.share is None else f", {self.share:g}"
        return f"{self.kind.value}({self.expression or ''}{share})"

    def __post_init__(self) -> None:
        counts = self.kind is AggregateKind.COUNT
        if counts and self.expression is None:
            return
        if not isinstance(self.expression, str) or not self.expression.strip():
            needs = "takes nothing, or" if counts else "needs"
            raise job_error(f"agg.{self.kind.value} {needs} a column or an expression, not {self.expression!r}")
