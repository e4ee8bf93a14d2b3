"""Find the module that runs an operator, from its spec (decision 90)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast

import penstock.graph.keyed  # noqa: F401 - which imports the spec of every operator
from penstock.graph.steps import StepSpec
from penstock.operators.protocol import Operator

__all__ = ["import_operators", "operator_of"]


def operator_of(spec: StepSpec | type[StepSpec]) -> Operator:
    """Return the operator of a spec, which is imported now."""
    return cast("Operator", import_module(spec.operator))


def import_operators() -> None:
    """Import every operator whose spec was imported, as processes do from which workers are forked."""
    for spec in _subclasses(StepSpec):
        if "operator" in vars(spec):  # a base that several operators share has none
            operator_of(spec)


def _subclasses(spec: Any) -> Iterator[type[StepSpec]]:
    for below in spec.__subclasses__():
        yield below
        yield from _subclasses(below)
