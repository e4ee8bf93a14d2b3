"""Say which part of a batch went into collecting garbage and into spilling, which add no rows (SEMANTICS 8.4). Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["pause_share"]

_SPILLED_BYTES_A_MS = 200_000.0
"""How much memory a task spills to disk in a millisecond, and reads again: Spark tells bytes, and no time.

Measured with shuffles, aggregations and joins as 180,000 to 320,000, on a local disk (decision 245).
"""


def pause_share(load: Mapping[str, float]) -> float:
    """Return the part of the tasks' time that collecting garbage and spilling took, from 0 to 1.

    Args:
        load: What the Commit of a batch says of its tasks: `task_ms`, `gc_ms` and `spilled_bytes`. What is not known is
            not there. Without `task_ms` the part is 0.
    """
    tasks = load.get("task_ms", 0.0)
    paused = load.get("gc_ms", 0.0) + load.get("spilled_bytes", 0.0) / _SPILLED_BYTES_A_MS
    return min(1.0, paused / tasks) if tasks > 0 else 0.0
