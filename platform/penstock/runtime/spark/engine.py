"""Compute batches on Spark: one frame, analysed once, one job a batch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.checkpoint.log.entries import Commit, ManifestRef, StagedFile
from penstock.checkpoint.log.recovery import Recovered
from penstock.errors import (
    CannotTruncate,
    CheckpointCorrupt,
    ComputeFailed,
    EngineGone,
    GateError,
    PenstockError,
    SinkRefused,
    StateMissing,
    UserFunctionError,
)
from penstock.graph.graph import JobGraph
from penstock.graph.policies import OnEnd
from penstock.operators.schema_evolution import Evolution
from penstock.quality.held.files import keep_held
from penstock.quality.partials import Partial
from penstock.quality.verdict import Status, Verdict
from penstock.runtime.driver.next_batch import spans_of
from penstock.runtime.plan.expressions import at_site
from penstock.runtime.plan.frame_builder import BuiltJob, build_job
from penstock.runtime.plan.job_plan import JobPlan, plan_job
from penstock.runtime.restore.compatibility import Finding, Stored, compare, refuse
from penstock.runtime.restore.job_fingerprint import described
from penstock.runtime.spark.errors import data_exception, java_failure, of_the_engine, site_of
from penstock.runtime.spark.state_loader import initial_frame, loading_frame, manifests, refuse_unfit, rewritten_tables
from penstock.runtime.tasks.batch_context import PROPERTY, BatchContext, told
from penstock.runtime.tasks.gates import UNIT
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.transport import receipts_of
from penstock.sinks.base import Publication, Publisher, Staged, place_of
from penstock.sinks.delta.restore import Target
from penstock.sinks.staged_files import verify_staged
from penstock.sources.base import Position, ReadLimit, SourceReader, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.driver.engine import StepRewrite

__all__ = ["SparkEngine"]


class SparkEngine:
    """Read, compute and publish with a Spark session. `folder` is the job's checkpoint."""

    def __init__(self, graph: JobGraph, spark: SparkSession, *, folder: Path, suites: Mapping[str, Any]) -> None:
        self.graph = graph
        self.state_folder = folder / "state"
        staged = folder / "staged"
        self._told = staged / "_told"  # no sink has such a name
        self.spark = spark
        self.plan: JobPlan = plan_job(graph)
        self.readers: dict[str, SourceReader] = {}
        for source in graph.sources:
            with at_site(source.site):
                self.readers[source.name] = source.source.open(spark)
        self.built: BuiltJob = build_job(self.plan, spark, self.readers, suites)
        self.described = described(graph, suites)
        self._staging: dict[str, Path] = {}
        self._publishers: dict[str, Publisher] = {}
        self._own_folder: dict[str, bool] = {}
        self._initial: list[DataFrame] = []
        for node in graph.sinks:
            folder = node.sink.staging(staged / node.name)
            self._own_folder[node.name] = folder == staged / node.name
            self._staging[node.name] = folder

    @property
    def folders(self) -> list[Path]:
        """Return the folders that tasks write in: the job's checkpoint, and the tables that take files of their own."""
        tables = [self._staging[name] for name, own in self._own_folder.items() if not own]
        return [self.state_folder.parent, *dict.fromkeys(tables)]

    def prepare(self) -> None:
        """Check the sinks against the rows they will get, and open them; asked for when the log is owned."""
        for node in self.graph.sinks if not self._publishers else ():
            node.sink.prepare(self.built.sink_schemas[node.name], self.spark)
            self._publishers[node.name] = node.sink.open(self._staging[node.name], self.spark)

    def accept(self, recovered: Recovered, drop: Collection[str] = ()) -> None:
        """Raise what the first finding of `compare` says that forbids going on."""
        refuse(self.compare(recovered, drop))

    def compare(self, recovered: Recovered, drop: Collection[str] = ()) -> list[Finding]:
        """Return what becomes of the job's steps, sources and sinks when it goes on from the state of the log (F51).

        Where there is no state yet, what it is to begin with is looked at, and BadExpression raised. Writes nothing.
        """
        if recovered.commit is None:
            self._initial = list(self._initial_frames())
        state = recovered.commit.state if recovered.commit else {}
        stored = {step: self._stored(step, state[step]) for step in state if step in self.built.steps}
        unfit = {}
        for node in self.graph.sinks:
            try:
                getattr(node.sink, "check", lambda _: None)(self.built.sink_schemas[node.name])
                getattr(node.sink, "ready", lambda _: None)(self.spark)
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
                    reader.newest(known[name].position)
            except PenstockError as why:
                yield name, why

    def _stored(self, step: str, refs: Mapping[str, ManifestRef]) -> Stored:
        work, found = self.built.steps[step], Evolution()
        try:
            for partition, ref in refs.items():
                state = PartitionState.open(self.state_folder, step, int(partition), ref.model_dump(), work=work)
                found += work.evolution(state)
        except (CheckpointCorrupt, StateMissing) as why:
            return why
        return found

    def _initial_frames(self) -> Iterator[DataFrame]:
        for node in self.graph.functions:
            if node.initial is not None:
                yield initial_frame(node, self.built.steps[node.name], self.spark, str(self.state_folder))

    # --- sources -----------------------------------------------------------------------------

    def latest(self, source: str, after: Position | None, limit: ReadLimit) -> Position:
        """Return how far a batch may read a source."""
        return self.readers[source].latest(after, limit)

    def newest(self, source: str, after: Position | None) -> Position:
        """Return how far a source can be read now, whatever the limits."""
        return self.readers[source].newest(after)

    def clamp(self, source: str, position: Position, target: Position) -> Position:
        """Return the earlier of two positions of a source, partition by partition."""
        return self.readers[source].clamp(position, target)

    def backlog(self, source: str, position: Position | None) -> Mapping[str, int]:
        """Return the rows that wait behind a position, for every partition that the source has now."""
        return self.readers[source].backlog(position)

    def span(self, source: str, start: Position | None, end: Position) -> Span:
        """Return what the tasks read between two positions."""
        return self.readers[source].span(start, end)

    def span_rows(self, source: str, span: Span) -> int | None:
        """Return how many rows a span has, None where only reading tells."""
        return self.readers[source].rows(span)

    def partitions(self, source: str, span: Span) -> tuple[str, ...]:
        """Return the names of a source's partitions by index."""
        return self.readers[source].partitions(span)

    def verify(self, source: str, span: Span) -> None:
        """Raise SourceChanged when a span that was fixed would give other rows now."""
        self.readers[source].verify(span)

    def ended(self, source: str, position: Position | None) -> bool:
        """Return whether a source is read to its end for good."""
        return self.readers[source].ended(position)

    def closes_at_end(self, source: str) -> bool:
        """Return whether the end of a bounded source closes all windows."""
        node = next(s for s in self.graph.sources if s.name == source)
        return getattr(node.source, "on_end", OnEnd.KEEP_OPEN) is OnEnd.CLOSE

    def ack(self, source: str, position: Position) -> None:
        """Tell a source that wants to know how far it was read."""
        ack = getattr(self.readers[source], "ack", None)
        if ack is not None:
            ack(position)

    # --- computing ---------------------------------------------------------------------------

    def compute(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Run the one Spark job of a batch and return its receipts; the first loads the initial state before."""
        if facts.begins is None or not self._initial:
            return self._collect(self.built.frame, facts)
        # As if each key's last row had come at the job's zero time, when no watermark had been seen.
        before = replace(facts, time=facts.begins, close=dict.fromkeys(facts.close))
        loaded = [said for frame in self._initial for said in self._collect(frame, before)]
        return [*loaded, *self._collect(self.built.frame, replace(facts, manifests=manifests(loaded)))]

    def rewrite(self, rewrite: StepRewrite, commit: Commit, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Write a step's state anew, in as many partitions as the job says, and return the receipts."""
        return self._collect(self.plan_rewrite(rewrite, commit), facts)

    def plan_rewrite(self, rewrite: StepRewrite, commit: Commit) -> DataFrame:
        """Return the work that writes a step's state anew; raises where the step does not take what is there."""
        node = next(step for step in self.graph.steps if step.name == rewrite.step)
        work = self.built.steps[rewrite.step]
        refuse_unfit(rewrite, work, commit, self.state_folder)
        what = f"the state of step {node.name!r} that is to be gone on from"
        state, partitions = str(self.state_folder), node.partitions
        with at_site(node.site):
            tables = rewritten_tables(rewrite, work, commit, self.spark, self.state_folder.parent)
            return loading_frame(
                node.name, work, tables, folder=state, partitions=partitions, what=what, older=rewrite.table is None
            )

    def _collect(self, frame: DataFrame, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        context = self.spark.sparkContext
        with told(facts, self._told) as text:
            context.setLocalProperty(PROPERTY, text)
            context.setJobDescription(f"{self.graph.name} batch {facts.batch}")
            try:
                self.built.homes.settle()
                # A select makes a new physical plan: running the same one again would reuse the shuffle files of the
                # batch before (FACTS 5: 41 of 60 batches were stale).
                rows = frame.select("_port", "_payload").collect()
            except Exception as why:
                raise _explained(why, facts.batch, self.graph) from why
            finally:
                context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type] # None removes it
        return list(receipts_of((row[0], bytes(row[1])) for row in rows))

    def cancel(self) -> None:
        """End a computation that runs."""
        self.spark.sparkContext.cancelAllJobs()

    # --- gates and sinks ---------------------------------------------------------------------

    def guarded_sinks(self, check: str) -> tuple[str, ...]:
        """Return the sinks that a check guards."""
        node = next(c for c in self.graph.checks if c.name == check)
        return tuple(s.name for s in self.graph.sinks if s.parent is node)

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Return the verdict on each unit of a check; a gate that raises closes (SEMANTICS 11.8).

        A batch without rows has the verdict EMPTY where batches are judged, and no closed window none (11.1).
        """
        try:
            found = self.built.gates[check].decide_units(Partial.from_json(p) for p in partials)
        except PenstockError:
            raise
        except Exception as why:
            raise GateError(f"the gate of check {check!r} raised {type(why).__name__}: {why}") from why
        if not found and self.built.judged[check] is None:
            return [(None, Verdict(status=Status.EMPTY, rows=0))]
        return [(unit.get(UNIT), verdict) for unit, verdict in found]

    def staging(self) -> Mapping[str, str]:
        """Return each sink's staging folder."""
        return {name: str(folder) for name, folder in self._staging.items()}

    def verify_staged(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Raise CheckpointCorrupt where staged files are not what a Commit says."""
        verify_staged(self._staging[sink], files)

    def refuse_values(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Raise SinkValueRefused for rows that a sink's table does not take."""
        getattr(self._publishers[sink], "refuse_values", lambda _: None)(files)

    def keep_held(self, sink: str, files: Sequence[StagedFile]) -> None:
        """Put files of a batch that a gate holds below the checkpoint."""
        keep_held(self._staging[sink], self.state_folder.parent / "staged" / sink, files)

    def publish(self, sink: str, app: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make staged files visible under (app, batch)."""
        named = [
            Staged(path=f.path, size=f.size, rows=f.rows, checksum=f.checksum, fails=tuple(f.fails)) for f in files
        ]
        asked = Publication(app=app, batch=batch, files=named, schema=self.built.sink_schemas[sink])
        try:
            self._publishers[sink].publish(asked)
        except (PenstockError, ConnectionError):  # the second is of a JVM that is gone
            raise
        except Exception as why:
            raise SinkRefused(f"sink {sink!r} cannot take batch {batch}: {type(why).__name__}: {why}") from why

    def version(self, sink: str, app: str) -> int | None:
        """Return the newest batch of the app that a sink shows."""
        return self._publishers[sink].version(app)

    def dedupes(self, sink: str) -> bool:
        """Return whether a sink tells which batches it shows, and takes none twice."""
        return self._publishers[sink].idempotent

    def place(self, sink: str) -> str | None:
        """Return where the rows of a sink go, None where that has no name."""
        return place_of(next(node.sink for node in self.graph.sinks if node.name == sink))

    def put_back(self, sink: str, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version of a sink's table in force again, and open it anew: what was loaded of it is old."""
        node = next(s for s in self.graph.sinks if s.name == sink)
        if not hasattr(node.sink, "put_back"):
            raise CannotTruncate(f"sink {sink!r} is another than it was, and takes nothing back", sink=sink)
        done: bool = node.sink.put_back(target, version, slot=slot, newest=newest)
        self._publishers[sink] = node.sink.open(self._staging[sink], self.spark)
        return done


_OURS = re.compile(r"penstock\.errors\.(?:\w+\.)?(\w+): (?:PEN-[A-Z]+-\d+ )?(.*)")


def _explained(why: Exception, batch: int, graph: JobGraph) -> PenstockError:
    """Turn what Spark raised into the error that a task raised, the user's, or a failure of the engine."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    text = str(why)
    if isinstance(why, Py4JNetworkError | ConnectionError) or "Java side" in text or "Answer from Java" in text:
        return EngineGone(f"batch {batch}: the Java process of Spark is gone")
    found = _OURS.findall(text)
    if found:
        name, said = found[-1]
        kind = getattr(errors, name, ComputeFailed)
        # What is to be done is said once, by the error that is made of it.
        return kind(f"batch {batch}: {said.strip().removesuffix(kind.remedy).rstrip(' .')}")
    kind_name = type(why).__name__
    if kind_name == "PythonException":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = next(
            (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Warning)?: ", line)), lines[-1]
        )
        frames = [line for line in lines if line.startswith("File ")]
        place = [line for line in frames if "/pyspark/" not in line]
        if of_the_engine([line.split('"')[1] for line in frames]):
            return ComputeFailed(f"batch {batch}: {last}", where=place[-1] if place else None)
        return UserFunctionError(f"batch {batch}: {last}", where=place[-1] if place else None)
    said_of_value = data_exception(text)
    if said_of_value is not None:
        return UserFunctionError(f"batch {batch}: {said_of_value}", where=site_of(text, graph))
    if isinstance(why, Py4JError) or hasattr(why, "getCondition") or "spark" in type(why).__module__:
        return ComputeFailed(f"batch {batch}: {java_failure(text or kind_name)}")
    raise why
