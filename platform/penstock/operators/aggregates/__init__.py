"""Aggregate rows by group: partials that merge in any order, and the results Spark would give (SEMANTICS 3.3)."""

from penstock.operators.aggregates.cells import ORDER, Partials, Rows
from penstock.operators.aggregates.plan import AGGREGATES, ROWS, AggregatePlan, BoundAggregate

__all__ = ["AGGREGATES", "ORDER", "ROWS", "AggregatePlan", "BoundAggregate", "Partials", "Rows"]
