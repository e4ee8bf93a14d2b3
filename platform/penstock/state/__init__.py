"""Keep the state of a step's partitions in sorted, immutable segment files (DESIGN 5 and 6; docs/state-segments.md).

For state functions there is what a job needs of it: `idle`, `event_time`, `OnError`, and the `State` that a function is
handed. `read` gives the state of any job as a table, without its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.graph.policies import OnError
from penstock.graph.timeouts import BATCH, EVENT, Timeout, event_time, idle
from penstock.state.key_state import FiredTimer, State

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH", "EVENT", "FiredTimer", "OnError", "State", "Timeout", "event_time", "idle", "read"]

# It reads whole jobs, which stand above this folder: `penstock/__init__.py`, which stands above both, sets it.
read: Callable[..., pa.Table]
