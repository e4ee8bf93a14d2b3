"""Compute batches on Spark: one frame, analysed once, one job a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.log.entries import Commit, ManifestRef
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import (
    CheckpointCorrupt,
    GateError,
    PenstockError,
    ReadOtherwise,
    StateMissing,
)
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import TransformNode
from penstock.operators.schema_evolution import Evolution
from penstock.quality.measure import Partial
from penstock.quality.verdict import Status, Verdict
from penstock.runtime.driver.next_batch import spans_of
from penstock.runtime.driver.table_versions import FILES, RecordedTables, recorded_tables
from penstock.runtime.plan.branch_frame import at_site
from penstock.runtime.plan.frame_builder import BuiltJob, FrameBuilder
from penstock.runtime.plan.functions import TransformCalls
from penstock.runtime.plan.job_plan import JobPlan, plan_job
from penstock.runtime.plan.source_rows import BatchFrame, BatchReader
from penstock.runtime.restore.compatibility import Finding, Stored, compare, described, refuse
from penstock.runtime.spark.errors import error_of
from penstock.runtime.spark.expression_turns import ExpressionTurns
from penstock.runtime.spark.physical_plans import PhysicalPlans
from penstock.runtime.spark.state_loader import initial_frame, loading_frame, manifests, refuse_unfit, rewritten_tables
from penstock.runtime.spark.static_tables import StaticTables
from penstock.runtime.spark.task_time import TaskTime
from penstock.runtime.tasks.batch_context import PROPERTY, BatchContext, told
from penstock.runtime.tasks.gates import UNIT
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.plain_columns import LeftToSpark
from penstock.runtime.tasks.transport import receipts_of
from penstock.sinks.base import SchemaCheckingSink
from penstock.sinks.staged_publisher import StagedPublisher
from penstock.sources.base import CheckpointedReader, FrameReader, SourceReader, Span, SplitReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.driver.engine import StepRewrite
    from penstock.runtime.driver.requeues import RequeueService

__all__ = ["SparkEngine"]

_FEW = 100_000
"""Rows of a source that one task reads as fast as several: it takes 0.2 s for them, and each task more a few ms."""
_MOST_TASKS = 16
"""Beyond that, a batch of few more rows than `_FEW` would have tasks that are over before they have begun."""


class SparkEngine:
    """Read, compute and publish with a Spark session. `folder` is the job's checkpoint."""

    def __init__(
        self, graph: JobGraph, spark: SparkSession, *, folder: CheckpointFolder, suites: Mapping[str, Any]
    ) -> None:
        self.graph = graph
        self.state_folder = folder / "state"
        staged = folder / "staged"
        self._told = staged / "_told"  # no sink has such a name
        self.spark = spark
        self.plan: JobPlan = plan_job(graph)
        self.readers: dict[str, SourceReader] = {}
        for source in graph.sources:
            with at_site(source.site):
                reader = self.readers[source.name] = source.source.open(spark)
            reader.known_as(graph.name, source.name)
            if isinstance(reader, CheckpointedReader):
                reader.keep_in(folder, source.name)
        self._suites = suites
        recorded = recorded_tables(folder) if graph.static_joins else RecordedTables()
        self._tables = StaticTables(graph.static_joins, folder / FILES[0] / FILES[1], recorded)
        frames = any(isinstance(reader, FrameReader) for reader in self.readers.values())
        self._plans_each = frames or any(isinstance(node, TransformNode) for node in graph.functions)
        self._calls = TransformCalls()
        self._many: int | None = None
        self._turns = ExpressionTurns(able=spark.conf.get("spark.sql.ansi.enabled") == "true")
        self.built: BuiltJob = self._built({})
        self._built_for = {(self._turns.in_tasks, 1): self.built}
        self.described = described(graph, suites, self._tables.columns)
        self._initial: list[DataFrame] = []
        self._sinks = {
            node.name: StagedPublisher(
                node.name, node.sink, staged / node.name, spark, self.built.sink_schemas[node.name]
            )
            for node in graph.sinks
        }
        self._prepared = False
        self._recovered: Recovered | None = None
        self._task_time = TaskTime(spark.sparkContext)
        self._plans = PhysicalPlans(spark, each=self._plans_each)
        self.requeues: RequeueService | None = None
        """What takes in requests to send quarantined rows again; None where nobody can ask."""

    @property
    def folders(self) -> list[CheckpointFolder]:
        """Return the folders that tasks write in: the job's checkpoint, and the tables that take files of their own."""
        staged = self.state_folder.parent / "staged"
        tables = [sink.staging for sink in self._sinks.values() if sink.staging != staged / sink.name]
        return [self.state_folder.parent, *dict.fromkeys(tables)]

    def prepare(self) -> None:
        """Make what sinks lack, and open them; asked for when the log is owned."""
        if self._recovered is not None and not self._prepared:
            self._tables.sweep(self._recovered)
        for name, sink in self._sinks.items() if not self._prepared else ():
            sink.create(self.built.sink_schemas[name])
            sink.open()
        self._prepared = True

    def accept(self, recovered: Recovered, drop: Collection[str] = ()) -> None:
        """Raise the error of the first finding of `compare` that forbids the restart."""
        refuse(self.compare(recovered, drop))
        self._recovered = recovered

    def compare(self, recovered: Recovered, drop: Collection[str] = ()) -> list[Finding]:
        """Compare the job's steps, sources and sinks with the state of the log from which it resumes (F51).

        Writes nothing. Where there is no state yet, raises BadExpression for initial state that does not fit.
        """
        if recovered.commit is None:
            self._initial = list(self._initial_frames())
        state = recovered.commit.state if recovered.commit else {}
        stored = {step: self._stored(step, state[step]) for step in state if step in self.built.steps}
        unfit = {}
        for node in self.graph.sinks:
            try:
                if isinstance(node.sink, SchemaCheckingSink):
                    node.sink.check(self.built.sink_schemas[node.name])
                    node.sink.ready(self.spark)
            except PenstockError as why:
                unfit[node.name] = why
        unread = dict(self._unread(recovered))
        return compare(self.graph, recovered, stored, drop=drop, unfit=unfit, unread=unread, described=self.described)

    def _unread(self, recovered: Recovered) -> Iterator[tuple[str, PenstockError]]:
        """Yield the sources that cannot be read on from where they stand, each with its error (SEMANTICS 9.1)."""
        fixed = spans_of(recovered.pending) if recovered.pending is not None else {}
        known = recovered.commit.sources if recovered.commit is not None else {}
        for name, reader in self.readers.items():
            try:
                if (span := fixed.get(name)) is not None:
                    reader.verify(span)
                if name in known and not known[name].ended:
                    reader.backlog(known[name].position)
            except PenstockError as why:
                yield name, why
            except KeyError as why:  # each kind of source has members of its own in its positions
                said = f"source {name!r} was of another kind up to the job's position, which has no {why}"
                yield name, ReadOtherwise(said)

    def _stored(self, step: str, refs: Mapping[str, ManifestRef]) -> Stored:
        work, evolution = self.built.steps[step], Evolution()
        try:
            for partition, ref in refs.items():
                state = PartitionState.open(self.state_folder, step, int(partition), ref.model_dump(), work=work)
                evolution += work.evolution(state)
        except (CheckpointCorrupt, StateMissing) as why:
            return why
        return evolution

    def _initial_frames(self) -> Iterator[DataFrame]:
        for node in self.graph.steps:
            if node.spec.initial is not None:
                yield initial_frame(node, self.built.steps[node.name], self.spark, self.state_folder)

    def source(self, name: str) -> SourceReader:
        """Return the reader of a source."""
        return self.readers[name]

    def sink(self, name: str) -> StagedPublisher:
        """Return the publisher of a sink."""
        return self._sinks[name]

    def requeue(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Return the quarantined rows, by source, that a batch sends through again."""
        return {} if self.requeues is None else self.requeues.plan(commit, batch)

    def tables(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Return the version of each table that a batch joins."""
        return self._tables.versions(commit, batch)

    def table_files(self, versions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
        """Return where tasks find the rows of versions."""
        return self._tables.files(versions)

    def forget_tables(self, commit: Commit) -> None:
        """Remove the files of versions that no batch from this Commit on joins."""
        self._tables.forget(commit.tables)

    # --- computing ---------------------------------------------------------------------------

    def compute(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Run the one Spark job of a batch and return its receipts; the first loads the initial state before."""
        receipts = self._receipts(facts)
        spent = self._task_time.since_last()
        return receipts if spent is None else [*receipts, {"kind": "load", **spent}]

    def _receipts(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        if facts.begins is None or not self._initial:
            return self._computed(facts)
        # As if each key's last row had come at the job's zero time, when no watermark had been seen.
        before = replace(facts, time=facts.begins, close=dict.fromkeys(facts.close))
        loaded = [receipt for frame in self._initial for receipt in self._collect(frame, before)]
        return [*loaded, *self._computed(replace(facts, manifests=manifests(loaded)))]

    def _computed(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Run the job of a batch; where a task finds no value for an expression, Spark computes the batch."""
        try:
            receipts = self._collect(self._frame_of(facts), facts)
        except LeftToSpark:
            self._turns.left()
            receipts = self._collect(self._frame_of(facts), facts)
        self._turns.done()
        return receipts

    def _frame_of(self, facts: BatchContext) -> DataFrame:
        """Return the frame that a batch runs: the same for all batches in which tasks compute, or Spark (FACTS 5).

        Batches of many rows have another one, with more tasks. It is another one for each batch where Spark reads a
        source, or a transform wants to see each batch.
        """
        if self._plans_each:
            self._calls.facts = facts
            self.built = self._built(facts.spans)
        else:
            key = self._turns.in_tasks, self._tasks(facts.spans)
            if key not in self._built_for:
                self._built_for[key] = self._built(facts.spans)
            self.built = self._built_for[key]
        return self.built.frame

    def _tasks(self, spans: Mapping[str, Span | None]) -> int:
        """Return how many tasks read each source that leaves it to us (decision 243)."""
        counts = [
            reader.about_rows(span)
            for name, reader in self.readers.items()
            if isinstance(reader, SplitReader) and reader.splits is None and (span := spans.get(name)) is not None
        ]
        if max(counts, default=0) <= _FEW:
            return 1
        if self._many is None:  # fixed then: each other number would be another plan, in the middle of a stream
            self._many = min(_MOST_TASKS, self.spark.sparkContext.defaultParallelism)
        return self._many

    def _built(self, spans: Mapping[str, Span | None]) -> BuiltJob:
        readers = self._readers_of(spans)
        tables = self._tables.schemas
        builder = FrameBuilder(
            self.plan,
            self.spark,
            readers,
            self._suites,
            self._calls,
            tables=tables,
            in_arrow=self._turns.in_tasks,
            tasks=self._tasks(spans),
        )
        built = builder.build()
        # Somebody may have changed a file since: a run judges all its batches alike.
        self._suites = {**self._suites, **builder.loaded}
        return built

    def _readers_of(self, spans: Mapping[str, Span | None]) -> dict[str, BatchReader]:
        """Return the readers of the job's sources in a batch; without a span a source gives no rows."""
        readers: dict[str, BatchReader] = {}
        for name, reader in self.readers.items():
            if isinstance(reader, SplitReader):
                readers[name] = reader
                continue
            assert isinstance(reader, FrameReader), f"source {name!r} is read neither by tasks nor by Spark"
            span = spans.get(name)
            frame = None if span is None else reader.frame(span, self.spark)
            readers[name] = BatchFrame(reader.schema, frame, reader.partition_names)
        return readers

    def rewrite(self, rewrite: StepRewrite, commit: Commit, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Rewrite a step's state, in as many partitions as the job says, and return the receipts."""
        return self._collect(self.plan_rewrite(rewrite, commit), facts)

    def plan_rewrite(self, rewrite: StepRewrite, commit: Commit) -> DataFrame:
        """Return the frame that rewrites a step's state; raises where the step does not accept the old state."""
        node = next(step for step in self.graph.steps if step.name == rewrite.step)
        work = self.built.steps[rewrite.step]
        refuse_unfit(rewrite, work, commit, self.state_folder)
        label = f"the state of step {node.name!r} that is to be gone on from"
        with at_site(node.site):
            tables = rewritten_tables(rewrite, work, commit, self.spark, self.state_folder.parent)
            older = rewrite.table is None
            return loading_frame(node, work, tables, folder=self.state_folder, what=label, older=older)

    def _collect(self, frame: DataFrame, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        context = self.spark.sparkContext
        with told(facts, self._told) as text:
            context.setLocalProperty(PROPERTY, text)
            context.setJobDescription(f"{self.graph.name} batch {facts.batch}")
            try:
                self.built.homes.settle()
                self.built.caches.keep()
                rows = self._plans.collect(frame)
            except Exception as why:
                if LeftToSpark.__name__ in str(why):
                    raise LeftToSpark from why
                raise error_of(why, facts.batch, self.graph) from why
            finally:
                with suppress(Exception):  # of a Java process that has died, which the error in hand names
                    self.built.caches.release()
                context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type] # None removes it
        return list(receipts_of(rows, facts.run))

    def cancel(self) -> None:
        """End a computation that runs."""
        self.spark.sparkContext.cancelAllJobs()

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Return the verdict on each unit of a check; a gate that raises closes (SEMANTICS 11.8).

        A batch without rows has the verdict EMPTY where batches are judged, and no closed window none (11.1).
        """
        try:
            units = self.built.gates[check].decide_units(Partial.from_json(p) for p in partials)
        except PenstockError:
            raise
        except Exception as why:
            raise GateError(f"the gate of check {check!r} raised {type(why).__name__}: {why}") from why
        if not units and self.built.judged[check] is None:
            return [(None, Verdict(status=Status.EMPTY, rows=0))]
        return [(unit.get(UNIT), verdict) for unit, verdict in units]
