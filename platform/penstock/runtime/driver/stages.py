"""List the stages of a batch as values: the runner, `explain` and the crash tests walk the same list (DESIGN 4)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AckSources",
    "CommitBatch",
    "Compute",
    "FixOffsets",
    "Hook",
    "PublishSinks",
    "Purge",
    "Stage",
    "TakeOver",
    "plan_batch",
]


@dataclass(frozen=True, slots=True)
class TakeOver:
    """c0: own the log by a Takeover entry, then publish the last Commit again."""


@dataclass(frozen=True)
class _OfBatch:
    batch: int


class FixOffsets(_OfBatch):
    """c1: say in the log exactly what batch `batch` reads."""


class Compute(_OfBatch):
    """c2: run one Spark job, from source ranges to state segments and staged output files."""


class CommitBatch(_OfBatch):
    """c3: decide the batch in the log."""


@dataclass(frozen=True)
class PublishSinks(_OfBatch):
    """c4: make visible, sink by sink, the files that the Commit names."""

    sinks: tuple[str, ...]


class AckSources(_OfBatch):
    """c5: tell the sources that ask for it how far they were read (idempotent)."""


class Purge(_OfBatch):
    """c6: delete what no kept Commit needs (idempotent)."""


Stage = TakeOver | FixOffsets | Compute | CommitBatch | PublishSinks | AckSources | Purge


@dataclass(frozen=True, slots=True)
class Hook:
    """Name a point between stages: tests crash there, and schedule drivers against each other there."""

    stage: str
    when: str
    """`before`, `after`, or a step inside the stage."""
    batch: int | None = None


def plan_batch(batch: int, sinks: tuple[str, ...], *, fixed: bool = False) -> tuple[Stage, ...]:
    """Return the stages of a batch; one whose offsets are fixed already begins with Compute."""
    stages: tuple[Stage, ...] = (
        FixOffsets(batch),
        Compute(batch),
        CommitBatch(batch),
        PublishSinks(batch, sinks),
        AckSources(batch),
        Purge(batch),
    )
    return stages[1:] if fixed else stages
