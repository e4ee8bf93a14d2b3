"""Every operator is found from its spec, also where several share a base."""

from __future__ import annotations

import sys

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
