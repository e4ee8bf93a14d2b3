"""List the stages of a batch as values: the runner, `explain` and the crash tests walk the same list (DESIGN 4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["BATCH", "Hook", "Stage"]


class Stage(Enum):
    """The stages of a driver in their order: the name of each, and what it does."""

    TAKE_OVER = "TakeOver", "c0: own the log by a Takeover entry, then publish the last Commit again"
    FIX_OFFSETS = "FixOffsets", "c1: say in the log exactly what batch `batch` reads"
    COMPUTE = "Compute", "c2: run one Spark job, from source ranges to state segments and staged output files"
    COMMIT_BATCH = "CommitBatch", "c3: decide the batch in the log"
    PUBLISH_SINKS = "PublishSinks", "c4: make visible, sink by sink, the files that the Commit names"
    ACK_SOURCES = "AckSources", "c5: tell the sources that ask for it how far they were read (idempotent)"
    PURGE = "Purge", "c6: delete what no kept Commit needs (idempotent)"


BATCH = tuple(Stage)[1:]
"""The stages of a batch; one whose offsets are fixed already begins with the second."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Name a point between stages: tests crash there, and schedule drivers against each other there."""

    stage: str
    when: str
    """`before`, `after`, or a step inside the stage."""
    batch: int | None = None
