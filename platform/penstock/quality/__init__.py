"""Compile Great Expectations suites into gates on the stream (SEMANTICS 11, DESIGN 10).

A job needs only `OnFail`; everything else is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.graph.policies import OnFail

if TYPE_CHECKING:
    from penstock.quality.compile import CompiledGate, compile_suite, fails_mask
    from penstock.quality.measure import Partial
    from penstock.quality.policy import Action, Disposition, disposition
    from penstock.quality.predicates import CompiledRule
    from penstock.quality.suite import Rule, Severity, Suite, load_suite
    from penstock.quality.verdict import RuleResult, Status, Verdict

__all__ = [
    "Action",
    "CompiledGate",
    "CompiledRule",
    "Disposition",
    "OnFail",
    "Partial",
    "Rule",
    "RuleResult",
    "Severity",
    "Status",
    "Suite",
    "Verdict",
    "compile_suite",
    "disposition",
    "fails_mask",
    "load_suite",
]

_NAMES = {
    "compile": ("CompiledGate", "compile_suite", "fails_mask"),
    "measure": ("Partial",),
    "policy": ("Action", "Disposition", "disposition"),
    "predicates": ("CompiledRule",),
    "suite": ("Rule", "Severity", "Suite", "load_suite"),
    "verdict": ("RuleResult", "Status", "Verdict"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a name from its module; a job that only names a policy pays for nothing else."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
