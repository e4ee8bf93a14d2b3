"""Every operator is found from its spec, also where several share a base."""

from __future__ import annotations

import sys
from itertools import chain

from penstock.graph.specs.state_functions import StateFunction
from penstock.graph.steps import StepNode, StepSpec
from penstock.operators.registry import import_operators, operator_of


class Shared(StepSpec):
    """What several operators say alike; it is none itself."""


class Below(Shared):
    """An operator of the tests, whose module is theirs."""

    operator = __name__
    kind = "below"

    def words(self, node: StepNode, keys: str) -> str:
        return keys


def test_every_operator_is_imported_and_a_shared_base_is_none() -> None:
    """Workers are forked from a process that has done so."""
    import_operators()
    assert operator_of(Below) is sys.modules[__name__]
    assert StateFunction.operator in sys.modules


IN_NO_SUM = {
    "IntervalJoin": {"pairs"},  # a row may be in many
    "AsOfJoin": {"matched", "unmatched"},  # of rows that arrived in earlier batches
    "TimeWindows": {"partly_late"},  # a part of the counted ones
    "TupleWindows": {"fired", "expired"},  # windows, and rows of earlier batches
    "GlobalWindows": {"fired", "expired", "evicted"},
}
"""Counts that no sum has, because they are not of the rows that a batch brings."""


def test_a_count_is_in_a_sum_or_said_to_be_in_none() -> None:
    """2.10: a count in no sum is checked by nobody, so rows that only it has would be lost unseen."""

    def specs(of: type[StepSpec]) -> set[type[StepSpec]]:
        return {of, *chain.from_iterable(specs(below) for below in of.__subclasses__())}

    import_operators()
    found = {
        spec.__name__: set(spec.counts) - {*spec.sums, *chain(*spec.sums.values())}
        for spec in specs(StepSpec)
        if spec.__module__.startswith("penstock.") and hasattr(spec, "sums")
    }
    assert {name: counts for name, counts in found.items() if counts} == IN_NO_SUM
