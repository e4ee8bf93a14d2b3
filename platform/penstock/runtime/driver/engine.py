"""State what the driver loop needs of the world: sources, one computation, sinks.

`runtime.spark.engine.SparkEngine` is the real one; the fencing tests run the same loop over a fake (FAULTS 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.checkpoint.log.entries import Commit, StagedFile
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.graph.graph import JobGraph
from penstock.quality.verdict import Verdict
from penstock.runtime.snapshots.catalog import SnapshotVersion
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.sinks.base import Origin, Target
from penstock.sources.base import SourceReader

__all__ = ["Engine", "SinkPublisher", "StepRewrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRewrite:
    """Say what a step's state is written from: a table of the user's, a snapshot, or else what the Commit names."""

    step: str
    table: str | None = None
    snapshot: SnapshotVersion | None = None


class SinkPublisher(Protocol):
    """Publish to one sink; `sinks.staged_publisher.StagedPublisher` is the real one.

    But for `staging`, `deduplicates` and `place` nothing may be asked before `Engine.prepare`.
    """

    @property
    def staging(self) -> CheckpointFolder:
        """Return the folder that the tasks write this sink's files in."""

    @property
    def deduplicates(self) -> bool:
        """Return whether the sink tells which batches it shows, and takes none twice."""

    @property
    def place(self) -> str | None:
        """Return where the rows go, None where that has no name."""

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that the sink shows, None where it cannot say."""

    def verify(self, files: Sequence[StagedFile]) -> None:
        """Raise CheckpointCorrupt where staged files are not what a Commit says."""

    def refuse_values(self, files: Sequence[StagedFile]) -> None:
        """Raise SinkValueRefused for rows that the sink does not take, before they are committed."""

    def publish(self, app: str, batch: int, files: Sequence[StagedFile], origin: Origin) -> None:
        """Make staged files visible under (app, batch). Raises SinkAhead."""

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version of the sink's table in force again, once for the Restore in `slot`; False where it was done.

        Raises CannotTruncate.
        """


class Engine(Protocol):
    """Read, compute and publish for the driver loop; holds no truth of its own.

    Its sources can be asked from the beginning, its sinks when `prepare` has opened them.
    """

    graph: JobGraph

    def accept(self, recovered: Recovered, drop: Collection[str] = ()) -> None:
        """Raise StepsChanged or PartitionsChanged when the job cannot resume from the log; `drop` as in `compare`."""

    def prepare(self) -> None:
        """Make what sinks lack, and open them; idempotent. The first thing that writes."""

    def source(self, name: str) -> SourceReader:
        """Return the reader of a source."""

    def sink(self, name: str) -> SinkPublisher:
        """Return the publisher of a sink."""

    def requeue(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Return the quarantined rows, by source, that a batch sends through again, as its Offsets have it.

        Asked before each batch; `commit` is the one before it. What is returned is durable.
        """

    def tables(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Return the version of each table that a batch joins, by the name of the step, as its Offsets have it.

        Asked before each batch; `commit` is the one before it.
        """

    def table_files(self, versions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
        """Return where the tasks of a batch find the rows of such versions; raises TableVersionGone."""

    def forget_tables(self, commit: Commit) -> None:
        """Remove what only tasks of batches before this Commit needed of such versions."""

    def compute(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Run the one Spark job of a batch and return its receipts."""

    def rewrite(self, rewrite: StepRewrite, commit: Commit, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Write a step's state again, in as many partitions as the job says, and return the receipts."""

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Return the verdict on each unit of a check from what its tasks measured."""

    def cancel(self) -> None:
        """End a computation that runs; safe from a signal handler's thread."""
