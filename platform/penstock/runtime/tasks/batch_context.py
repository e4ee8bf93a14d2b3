"""Carry the facts of a batch to its tasks, as one local property, so that one plan serves every batch (FACTS 5).

With a literal that varies by batch, Spark would analyse, optimise and compile the plan for each batch.

Spark gives a property to every task, so data that grows with the state partitions would be sent once for each of them.
Many references to state are therefore in a file, of which each task reads those of its own partition (decision 75).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import folder_at
from penstock.errors import ComputeFailed, PenstockError, StateMissing
from penstock.operators.protocol import StepFacts
from penstock.time.clock import END_OF_TIME

__all__ = ["PROPERTY", "BatchContext", "current_batch", "told"]

PROPERTY = "penstock.batch"

_MOST_TOLD = 4_096
"""Bytes of references to state that go to every task. More of them go into a file, which takes time on HDFS."""

Refs = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Manifests, by step and partition."""


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Everything a task needs to know about its batch. Times are microseconds; plain JSON throughout."""

    batch: int
    time: int
    epoch: int
    run: str
    """A random id of this attempt at the batch; every file a task writes carries it (F04)."""
    spans: Mapping[str, Any]
    """For each source the span to read, or None."""
    late: Mapping[str, int | None]
    """For each step the watermark that judges its rows; None is the beginning of time."""
    close: Mapping[str, int | None]
    """For each step the watermark by which it closes."""
    manifests: Refs
    """For each step and partition the manifest of the state before this batch."""
    state_folder: str
    staging: Mapping[str, str]
    """For each sink the folder in which tasks stage its output files."""
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For each sink whose files tasks write themselves the `TaskForm`."""
    requeued: Mapping[str, Any] = field(default_factory=dict)
    """For each source the file of quarantined rows that go through again in this batch."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """For each join with a table the file that has its rows."""
    zero: int = 0
    """The job's zero time (SEMANTICS 1.1)."""
    interval: int | None = None
    """Microseconds between the ticks of the batch, None for as fast as possible."""
    before: int | None = None
    """The time of the batch whose state is in force, None where none is."""
    debug: bool = False
    """Whether steps check what users' functions promise."""
    begins: int | None = None
    """The zero time where no state is in force yet, None where one is."""
    reached: Mapping[str, int | None] = field(default_factory=dict)
    """For each step the event time of what no single row has caused; None where none is known yet."""
    row_cap: int | None = None
    """The most bytes that one row of state may have."""
    behind: int | None = None
    """The batch whose state is being folded: runs up to it are left alone (`state.compaction_planner`)."""
    bases: Refs = field(default_factory=dict)
    """For each step and partition the manifest of a fold that takes its place in this batch."""
    refs_file: str | None = None
    """The file that has the manifests and bases, where those here are left out: records of one length, by partition."""
    refs_length: int = 0
    """The bytes of such a record."""
    apart: bool = False
    """Whether rows behind checks are staged apart by unit and failed rules: a person said to drop what stopped it."""

    def of_step(self, step: str, *, behind: Collection[str] = (), read: Collection[str] = ()) -> StepFacts:
        """Return the facts of a step; `behind` are the downstream steps, `read` its outlets that anybody reads."""
        # A step whose other sources have ended takes every row for late, whatever its event time.
        judging = [mark for name in behind if (mark := self.late[name]) != END_OF_TIME]
        return StepFacts(
            batch=self.batch,
            time=self.time,
            watermark=self.close[step],
            late=self.late[step],
            judged=max((mark for mark in judging if mark is not None), default=None),
            judged_least=None if None in judging else min((mark for mark in judging if mark is not None), default=None),
            reached=self.reached.get(step),
            epoch=self.epoch,
            zero=self.zero,
            interval=self.interval,
            before=self.before,
            debug=self.debug,
            read=frozenset(read),
        )

    def to_json(self) -> str:
        """Return the facts as text for a local property."""
        return json.dumps(asdict(self))

    def refs_of(self, partition: int) -> dict[str, list[Mapping[str, Any] | None]]:
        """Return, by step, the manifest and the base of one partition; steps of which it has neither are left out.

        In a task. Raises ComputeFailed where the file is gone: the batch is over, or somebody has removed it.
        """
        if self.refs_file is None:
            return _of_partition(self, str(partition))
        file = folder_at(self.refs_file)
        try:
            path = file.fetch()
            with path.open("rb", buffering=0) as opened:
                record = os.pread(opened.fileno(), self.refs_length, partition * self.refs_length)
        except (StateMissing, FileNotFoundError) as why:
            raise ComputeFailed("the file is gone that tells the tasks of their state", where=str(file)) from why
        file.parent.let_go([file.name])  # those of the batches before
        refs: dict[str, list[Mapping[str, Any] | None]] = json.loads(record) if record else {}
        return refs


@contextmanager
def told(facts: BatchContext, folder: CheckpointFolder) -> Iterator[str]:
    """Yield the facts of a batch for its tasks, as a text of bounded length, whatever the number of partitions.

    Inside the block `folder` may have a file beside it; one that a crash leaves is swept with what batches stage.
    """
    known = {partition for refs in (*facts.manifests.values(), *facts.bases.values()) for partition in refs}
    records = [json.dumps(_of_partition(facts, str(n))).encode() for n in range(max(map(int, known), default=-1) + 1)]
    if sum(map(len, records)) <= _MOST_TOLD:
        yield facts.to_json()
        return
    path = folder / f"{facts.batch:012d}-{facts.epoch}-{facts.run}.refs"
    length = max(map(len, records))
    path.create_fleeting(b"".join(record.ljust(length) for record in records))
    try:
        yield replace(facts, manifests={}, bases={}, refs_file=path.address, refs_length=length).to_json()
    finally:
        with suppress(PenstockError, OSError):  # what is left is swept
            path.remove()


def _of_partition(facts: BatchContext, partition: str) -> dict[str, list[Mapping[str, Any] | None]]:
    steps = {
        step: [refs.get(step, {}).get(partition) for refs in (facts.manifests, facts.bases)]
        for step in {**facts.manifests, **facts.bases}
    }
    return {step: refs for step, refs in steps.items() if any(refs)}


_newest: tuple[str, BatchContext] | None = None


def current_batch() -> BatchContext:
    """Return the facts of the batch whose task is running."""
    from pyspark import TaskContext

    global _newest  # noqa: PLW0603 - a worker's tasks of one batch parse its facts once
    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context is not None else None
    if text is None:
        raise RuntimeError("a Penstock task runs outside a batch")
    if _newest is None or _newest[0] != text:
        _newest = (text, BatchContext(**json.loads(text)))
    return _newest[1]
