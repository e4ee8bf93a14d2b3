"""Keep the state of a step's partitions in sorted, immutable segment files (DESIGN 5 and 6; docs/state-segments.md).

For state functions there is what a job needs of it: `idle`, `event_time`, `OnError`, and the `State` that a function is
handed. `read` gives the state of any job as a table, without its code.
"""

from importlib import import_module
from typing import Any

from penstock.graph.policies import OnError
from penstock.graph.timeouts import BATCH, EVENT, Timeout, event_time, idle
from penstock.state.key_state import FiredTimer, State

__all__ = ["BATCH", "EVENT", "FiredTimer", "OnError", "State", "Timeout", "event_time", "idle"]


def __getattr__(name: str) -> Any:
    """Find `read`, which users look for here; its module is in `runtime`, because it reads whole jobs."""
    if name == "read":
        return getattr(import_module("penstock.runtime.inspect.state_reader"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
