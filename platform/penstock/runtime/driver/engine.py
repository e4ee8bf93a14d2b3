"""State what the driver loop needs of the world: sources, one computation, sinks.

`runtime.spark.engine.SparkEngine` is the real one; the fencing tests run the same loop over a fake (FAULTS 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.checkpoint.log.entries import Commit, StagedFile
from penstock.checkpoint.log.recovery import Recovered
from penstock.graph.graph import JobGraph
from penstock.quality.verdict import Verdict
from penstock.runtime.snapshots.catalog import SnapshotVersion
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.sinks.delta.restore import Target
from penstock.sources.base import Position, ReadLimit, Span

__all__ = ["Engine", "StepRewrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRewrite:
    """Say what a step's state is written from: a table of the user's, a snapshot, or else what the Commit names."""

    step: str
    table: str | None = None
    snapshot: SnapshotVersion | None = None


class Engine(Protocol):
    """Read, compute and publish for the driver loop; holds no truth of its own."""

    graph: JobGraph

    def accept(self, recovered: Recovered, drop: Collection[str] = ()) -> None:
        """Raise StepsChanged or PartitionsChanged when the job cannot go on from the log; `drop` as in `compare`."""

    def prepare(self) -> None:
        """Check the sinks against the rows they will get, and open them; idempotent. The first thing that writes."""

    def latest(self, source: str, after: Position | None, limit: ReadLimit) -> Position:
        """Return how far a batch may read a source."""

    def newest(self, source: str, after: Position | None) -> Position:
        """Return how far a source can be read now, whatever the limits."""

    def clamp(self, source: str, position: Position, target: Position) -> Position:
        """Return the earlier of two positions of a source, partition by partition."""

    def backlog(self, source: str, position: Position | None) -> Mapping[str, int]:
        """Return the rows that wait behind a position, for every partition that the source has now."""

    def span(self, source: str, start: Position | None, end: Position) -> Span:
        """Return what the tasks read between two positions."""

    def span_rows(self, source: str, span: Span) -> int | None:
        """Return how many rows a span has, None where only reading tells."""

    def partitions(self, source: str, span: Span) -> tuple[str, ...]:
        """Return the names of a source's partitions by index."""

    def verify(self, source: str, span: Span) -> None:
        """Raise SourceChanged when a span that was fixed would give other rows now."""

    def ended(self, source: str, position: Position | None) -> bool:
        """Return whether a source is read to its end for good."""

    def ack(self, source: str, position: Position) -> None:
        """Tell a source that wants to know how far it was read; idempotent."""

    def staging(self) -> Mapping[str, str]:
        """Return each sink's staging folder."""

    def compute(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Run the one Spark job of a batch and return its receipts."""

    def rewrite(self, rewrite: StepRewrite, commit: Commit, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Write a step's state anew, in as many partitions as the job says, and return the receipts."""

    def closes_at_end(self, source: str) -> bool:
        """Return whether the end of a bounded source closes all windows."""

    def guarded_sinks(self, check: str) -> tuple[str, ...]:
        """Return the sinks that a check guards, without those of its quarantine."""

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Return the verdict on each unit of a check from what its tasks measured."""

    def verify_staged(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Raise CheckpointCorrupt where staged files are not what a Commit says."""

    def refuse_values(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Raise SinkValueRefused for rows that a sink does not take, before they are committed."""

    def keep_held(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Put files of a batch that a gate holds where nothing but the checkpoint's own sweep removes them."""

    def publish(self, sink: str, app: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make staged files visible under (app, batch). Raises SinkAhead."""

    def version(self, sink: str, app: str) -> int | None:
        """Return the newest batch of the app that a sink shows, None where it cannot be told."""

    def dedupes(self, sink: str) -> bool:
        """Return whether a sink tells which batches it shows, and takes none twice."""

    def place(self, sink: str) -> str | None:
        """Return where the rows of a sink go, None where that has no name."""

    def put_back(self, sink: str, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version of a sink's table in force again, once for the Restore in `slot`; False where it was done.

        Raises CannotTruncate.
        """

    def cancel(self) -> None:
        """End a computation that runs; safe from a signal handler's thread."""
