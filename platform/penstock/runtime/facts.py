"""Carry what a batch is to its tasks, as one local property, so that one plan serves every batch (FACTS 5).

A literal that varies with the batch would make Spark analyse, optimise and compile the plan anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["PROPERTY", "BatchFacts", "current_facts"]

PROPERTY = "penstock.batch"


@dataclass(frozen=True, kw_only=True)
class BatchFacts:
    """Hold everything a task needs to know about its batch. Times are microseconds; plain JSON throughout."""

    batch: int
    time: int
    epoch: int
    run: str
    """A random id of this attempt at the batch; every file a task writes carries it (F04)."""
    spans: Mapping[str, Any]
    """For each source the span to read, or None."""
    late: Mapping[str, int | None]
    """For each window step the watermark that judges its rows; None is the beginning of time."""
    close: Mapping[str, int | None]
    """For each window step the watermark that closes its windows."""
    manifests: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """For each step and partition the manifest of the state before this batch."""
    state_folder: str
    staging: Mapping[str, str]
    """For each sink the folder that its output files are staged in."""
    begins: int | None = None
    """The job's zero time where no state is in force yet, None where one is."""
    reached: Mapping[str, int | None] = field(default_factory=dict)
    """For each step with a function the event time of what no single row has caused; None where none is known yet."""
    row_cap: int | None = None
    """The most bytes that one row of state may have."""
    behind: int | None = None
    """The batch whose state is being folded: runs up to it are left alone (`state.plan_compaction`)."""
    bases: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """For each step and partition the manifest of a fold that takes its place in this batch."""
    apart: bool = False
    """Whether rows behind checks are staged apart by unit and failed rules: a person said to drop what stopped it."""

    def to_json(self) -> str:
        """Return the facts as text for a local property."""
        return json.dumps(asdict(self))


_newest: tuple[str, BatchFacts] | None = None


def current_facts() -> BatchFacts:
    """Return the facts of the batch whose task is running."""
    from pyspark import TaskContext

    global _newest  # noqa: PLW0603 - a worker's tasks of one batch parse its facts once
    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context is not None else None
    if text is None:
        raise RuntimeError("a Penstock task runs outside a batch")
    if _newest is None or _newest[0] != text:
        _newest = (text, BatchFacts(**json.loads(text)))
    return _newest[1]
