"""Compile Great Expectations suites into gates on the stream (SEMANTICS 11, DESIGN 10).

A job needs only `OnFail`; everything else is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.graph.policies import OnFail

if TYPE_CHECKING:
    from penstock.quality.compile import compile_suite, fails_mask
    from penstock.quality.policy import Action, disposition
    from penstock.quality.suite import load_suite

__all__ = ["Action", "OnFail", "compile_suite", "disposition", "fails_mask", "load_suite"]

_HOME = {
    "Action": "policy",
    "compile_suite": "compile",
    "disposition": "policy",
    "fails_mask": "compile",
    "load_suite": "suite",
}


def __getattr__(name: str) -> object:
    """Load a name from its module; a job that only names a policy pays for nothing else."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
