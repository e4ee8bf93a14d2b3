"""List the aggregates that one cell computes: a new one is its module and a line here (decision 204)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates import extremes, tallies, theta
from penstock.operators.aggregates.one_cell import OneCell

__all__ = ["ONE_CELL"]

ONE_CELL: Mapping[AggregateKind, OneCell] = {
    AggregateKind.MIN: extremes.LEAST,
    AggregateKind.MAX: extremes.GREATEST,
    AggregateKind.COUNT_DISTINCT: tallies.DIFFERENT,
    AggregateKind.APPROX_COUNT_DISTINCT: theta.ABOUT_DIFFERENT,
}
