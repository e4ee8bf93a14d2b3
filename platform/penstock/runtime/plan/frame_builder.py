"""Build one DataFrame for all batches of a job from its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.config.values import is_local
from penstock.errors import BadExpression, JobError, SuiteError
from penstock.graph.cache import CacheNode
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import (
    CheckNode,
    Node,
    SideNode,
    SinkNode,
    SourceNode,
    TransformNode,
    UnionNode,
)
from penstock.graph.policies import OnFail
from penstock.graph.revision_readers import deletes_retracted
from penstock.graph.steps import MAIN_OUTLET, StepNode, Unit
from penstock.operators.protocol import TIME, Step
from penstock.quality.compile import CompiledGate, compile_suite
from penstock.quality.suite import Suite, load_suite
from penstock.runtime.plan.arrow_path import ArrowBranch, PlainProjection, plain_rows
from penstock.runtime.plan.branch_frame import BranchFrame, at_site
from penstock.runtime.plan.forks import SideBySide
from penstock.runtime.plan.functions import Caches, TransformCalls, map_batches
from penstock.runtime.plan.job_plan import Branch, Fork, Hop, JobPlan, Leaf, Shuffle, StepLeaf, port_name
from penstock.runtime.plan.partition_placement import PartitionPlacement
from penstock.runtime.plan.projection import Projection, map_in_arrow
from penstock.runtime.plan.source_rows import BatchReader, SourceRows
from penstock.runtime.plan.stateful_inputs import End, StatefulInputs, check_event_time, timed_by
from penstock.runtime.plan.static_joins import join_static
from penstock.runtime.tasks.columns import PREFIX, refuse_taken
from penstock.runtime.tasks.functions import hop_task, ingest_task, state_task
from penstock.runtime.tasks.gates import RULES
from penstock.runtime.tasks.routing import quarantine_schema
from penstock.runtime.tasks.specs import ROW_STATUS, RouteSpec, SinkLeafSpec, SourceSpec, StateSpec, StepLeafSpec
from penstock.runtime.tasks.staging import Outlet
from penstock.runtime.tasks.transport import ENVELOPE, Emitter
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW
from penstock.time.arrival import ARRIVAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BuiltJob", "FrameBuilder"]

Start = TypeVar("Start", BranchFrame, ArrowBranch)

_HOP_HIDDEN = pa.schema([(TIME, pa.int64()), (ARRIVAL, pa.binary())])


@dataclass(kw_only=True)
class BuiltJob:
    """The frame that every batch runs, and the results of its analysis."""

    frame: DataFrame = field(init=False)
    homes: PartitionPlacement
    """Where state partitions come back to; settled before a batch."""
    sink_schemas: dict[str, pa.Schema] = field(default_factory=dict)
    gates: dict[str, CompiledGate] = field(default_factory=dict)
    judged: dict[str, Node | None] = field(default_factory=dict)
    """For each check the window step whose windows it judges one by one, None where it judges batches (11.1)."""
    steps: dict[str, Step] = field(default_factory=dict)
    """For each stateful step what its state partitions run."""
    caches: Caches = field(default_factory=Caches)


def _in_order(sinks: tuple[SinkNode, ...]) -> tuple[str, ...]:
    return tuple(node.name for node in sinks if node.sink.in_order)


class FrameBuilder:
    """Build the frame of a job once; `suites` maps each check to a path or a dict.

    `calls` applies transforms; who builds the frame again for each batch hands in the same one.
    `tables` has the columns of each joined table, by the name of the step. With `in_arrow` tasks compute the simple
    expressions of the job, otherwise Spark does. `tasks` read each source that leaves their number to the engine.
    """

    def __init__(
        self,
        plan: JobPlan,
        spark: SparkSession,
        readers: Mapping[str, BatchReader],
        suites: Mapping[str, Any],
        calls: TransformCalls | None = None,
        *,
        tables: Mapping[str, pa.Schema] | None = None,
        in_arrow: bool = False,
        tasks: int = 1,
    ) -> None:
        self.plan = plan
        self.spark = spark
        self.readers = readers
        self.suites = suites
        self.loaded: dict[str, Suite] = {}
        """The suites that were loaded, by check: another plan of the same run judges by them."""
        self.calls = calls or TransformCalls()
        self.tables = tables or {}
        self.in_arrow = in_arrow
        shared = [name for name, forks in Counter(f.source.name for f in plan.ingest).items() if forks > 1]
        self.rows = SourceRows(spark, readers, shared, tasks=tasks)
        self.ports: dict[str, pa.Schema] = {}
        self.counted: set[str] = set()
        self.unions: dict[int, dict[str, str]] = {}
        self.leaves = StatefulInputs(plan, self._outlet)
        master = spark.sparkContext.master
        assert master is not None
        self.built = BuiltJob(homes=PartitionPlacement(spark, apart=not is_local(master)))

    def build(self) -> BuiltJob:
        """Analyse the whole job and return its frame.

        Raises BadExpression, UnknownName and SuiteError at the user's line.
        """
        routed = [self._routed(fork) for fork in self.plan.ingest]
        frames = [self._ingest(number, fork, *routed[number]) for number, fork in enumerate(self.plan.ingest)]
        frame = reduce(lambda a, b: a.unionAll(b), frames)
        for number, stage in enumerate(self.plan.stages, 1):
            frame = self._hop(frame, stage, number) if isinstance(stage, Hop) else self._shuffle(frame, stage, number)
        self.built.frame = frame
        return self.built

    # --- stages ------------------------------------------------------------------------------

    def _routed(self, fork: Fork) -> tuple[SideBySide | End, tuple[RouteSpec, ...]]:
        """Return the columns that the branches of a fork read, and what the Python stage does with them."""
        node = fork.source
        columns = self.readers[node.name].schema
        with at_site(node.site):
            refuse_taken(columns.names)
        self.ports.setdefault(port_name(node), columns)
        aside = self.plan.graph.quarantine_stream(node.name) is not None
        plain = [
            plain_rows(b, columns, aside=b.accounts and aside, computing=self.in_arrow, stem=len(fork.stem))
            for b in fork.branches
        ]
        if plain[0] is not None and all(start is not None for start in plain):
            return self._routed_plainly(self._follow(plain[0], fork.stem), fork)
        begun = self.rows.frame(node)
        begun.place = self.leaves.place(node)
        start = self._follow(begun, fork.stem)
        if len(fork.branches) == 1:
            only = Projection(self._ended(start, fork.branches[0]))
            return only, (self._project(only, fork.branches[0], ()),)
        side, specs = SideBySide(start), []
        for branch in fork.branches:
            end = Projection(self._ended(self._follow(side.begin(), branch.chain[len(fork.stem) :]), branch))
            spec = self._project(end, branch, ())
            specs.append(replace(spec, columns=side.end(end)))
        return side, tuple(specs)

    def _routed_plainly(self, start: ArrowBranch, fork: Fork) -> tuple[End, tuple[RouteSpec, ...]]:
        end, specs = PlainProjection(start), []
        for branch in fork.branches:
            end = end.beside(self._ended(self._follow(start, branch.chain[len(fork.stem) :]), branch))
            specs.append(self._project(end, branch, ()))
        return end, tuple(specs)

    def _ingest(self, number: int, fork: Fork, end: SideBySide | End, specs: tuple[RouteSpec, ...]) -> DataFrame:
        """Return what a fork of a source sends to the later stages."""
        emitter = self._emitter(0, number)
        task = ingest_task(specs, emitter)
        if isinstance(end, PlainProjection):
            frame, rows = self.rows.read(fork.source, end.chain.columns)
            columns = end.columns
            return map_in_arrow(frame, lambda batches: task(columns.of(rows(batches))), emitter.schema)
        return map_in_arrow(end.frame(), task, emitter.schema)

    def _hop(self, frame: DataFrame, stage: Hop, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        visible = tuple(self.ports[port_name(stage.branch.port)].names)
        frame = frame.withColumn(ROW_STATUS, F.when(F.col("_payload").isNull(), F.lit(0)).otherwise(F.lit(-9)))
        event_time = timed_by(stage.branch.port)
        if event_time is not None:
            frame = frame.withColumn(TIME, F.expr(f"CASE WHEN {ROW_STATUS} = 0 THEN unix_micros({event_time}) END"))
        hidden = (TIME, ROW_STATUS, ARRIVAL, *ENVELOPE.names)
        start = BranchFrame(frame, visible, hidden)
        start.place = self.leaves.place(stage.branch.port)
        chain = self._ended(self._follow(start, stage.branch.chain), stage.branch)
        end = Projection(chain)
        spec = self._project(end, stage.branch, tuple(ENVELOPE.names))
        emitter = self._emitter(number)
        return map_in_arrow(end.frame(), hop_task(spec, emitter), emitter.schema)

    def _shuffle(self, frame: DataFrame, stage: Shuffle, number: int) -> DataFrame:
        specs = tuple(self._state_spec(step) for step in stage.steps)
        emitter = self._emitter(number)
        return map_in_arrow(self.built.homes.bring(frame, stage.partitions), state_task(specs, emitter), emitter.schema)

    def _state_spec(self, step: StepNode) -> StateSpec:
        spec = self.leaves.state(step)
        self.built.steps[step.name] = spec.work
        check_event_time(self.spark, step, spec.work.outlets[MAIN_OUTLET])
        return spec

    def _follow(self, start: Start, chain: tuple[Node, ...]) -> Start:
        """Apply steps of a branch, and compare the columns wherever it meets another."""
        current = start
        for node in chain:
            self._meet(node.parents[0], current)
            current = self._step(current, node) if isinstance(current, BranchFrame) else current.followed(node)
        return current

    def _step(self, current: BranchFrame, node: Node) -> BranchFrame:
        match node:
            case TransformNode():
                return self.calls.apply(current, node)
            case MapBatchesNode():
                return map_batches(current, node)
            case StaticJoinNode():
                return join_static(current, node, self.tables[node.name])
            case CacheNode():
                return self.built.caches.shared(current, node) if self.plan.kept(node) else current
        return current.followed(node)

    def _ended(self, current: Start, branch: Branch) -> Start:
        """Return the rows at the end of a branch, whose columns are compared with those of others that end there."""
        for leaf in branch.leaves:
            if isinstance(leaf, StepLeaf):
                self._meet(leaf.step.inputs[leaf.side], current)
                continue
            for end in (leaf.check,) if leaf.check is not None else leaf.sinks:
                self._meet(end.parent, current)
        return current

    def _meet(self, union: Node, current: BranchFrame | ArrowBranch) -> None:
        if not isinstance(union, UnionNode):
            return
        types = current.types()
        columns = {name: types[name].simpleString() for name in current.visible}
        known = self.unions.setdefault(id(union), columns)
        if list(known.items()) != list(columns.items()):
            both = " and ".join(", ".join(f"{name} {kind}" for name, kind in side.items()) for side in (known, columns))
            raise BadExpression(f"the streams of a union have other columns: {both}", where=str(union.site))

    def _emitter(self, number: int, branch: int = 0) -> Emitter:
        """Return the emitter that turns the items of a branch of stage `number` into rows for the next stage."""
        rest = self.plan.stages[number:]
        shuffle = next((s for s in rest if isinstance(s, Shuffle)), None)
        home = shuffle.partitions if shuffle is not None else 1
        if not rest or not isinstance(rest[0], Hop):
            return Emitter(stage=number, branch=branch, home=home)
        rows = self.ports[port_name(rest[0].branch.port)]
        columns = pa.schema([*rows, *_HOP_HIDDEN])
        return Emitter(stage=number, branch=branch, home=home, lane=rest[0].lane, columns=columns)

    # --- the end of a branch -----------------------------------------------------------------

    def _project(self, end: End, branch: Branch, carriers: tuple[str, ...]) -> RouteSpec:
        """Collect the columns that the leaves of a branch read; return what the Python stage does with them."""
        placed = (PARTITION, POSITION) if isinstance(branch.port, SourceNode) else (ARRIVAL,)
        if isinstance(end.chain, BranchFrame) and ARRIVAL in end.chain.hidden:
            placed = tuple(dict.fromkeys((*placed, ARRIVAL)))
        end.hide(TIME, ROW_STATUS, *placed, *carriers)
        leaves = tuple(self._leaf(leaf, end, branch) for leaf in branch.leaves)
        source = None
        if branch.accounts:
            assert isinstance(branch.port, SourceNode)
            stream = self.plan.graph.quarantine_stream(branch.port.name)
            names = self.readers[branch.port.name].partition_names
            place = self.leaves.place(branch.port)
            quarantine = self._outlet(stream, quarantine_schema(names), branch.port)
            source = SourceSpec(name=branch.port.name, place=place, quarantine=quarantine, names=names)
            if source.quarantine.used:  # otherwise they would cross into Python with every row, to be read by nobody
                end.hide(ERROR, RAW)
        filters = tuple(None if name in self.counted else name for name in end.chain.filters)
        self.counted.update(end.chain.filters)
        port, event_time = branch.port, timed_by(branch.port)
        behind = (port.name, event_time) if isinstance(port, StepNode) and event_time is not None else None
        return RouteSpec(source=source, filters=filters, leaves=leaves, made=end.chain.made, timed_by=behind)

    def _leaf(self, leaf: Leaf, end: End, branch: Branch) -> StepLeafSpec | SinkLeafSpec:
        if isinstance(leaf, StepLeaf):
            with at_site(leaf.step.site):
                return self.leaves.leaf(leaf, end, branch)
        end.keep_visible()
        with at_site(leaf.sinks[0].site):
            schema = end.schema(end.chain.visible)
        for sink in leaf.sinks:
            self._register(sink, schema)
        if leaf.check is None:
            sinks, order = tuple(s.name for s in leaf.sinks), self.leaves.place(branch.port)
            return SinkLeafSpec(sinks=sinks, visible=end.chain.visible, order=order, ordered=_in_order(leaf.sinks))
        assert isinstance(end, Projection)  # a check reads expressions
        with at_site(leaf.check.site):
            return self._checked_leaf(leaf.check, leaf.sinks, end, branch, schema)

    def _checked_leaf(
        self, check: CheckNode, sinks: tuple[SinkNode, ...], end: Projection, branch: Branch, schema: pa.Schema
    ) -> SinkLeafSpec:
        from pyspark.sql import functions as F

        port = branch.port
        unit = port if isinstance(port, StepNode) and port.spec.unit is Unit.WINDOW else None
        if self.built.judged.setdefault(check.name, unit) is not unit:
            raise JobError(
                f"check {check.name!r} would judge windows of several steps, or windows and other rows, as one unit; "
                "check each stream for itself",
                where=str(check.site),
            )
        types = {name: kind.simpleString() for name, kind in end.chain.types().items()}
        suite = load_suite(self.suites[check.name], where=str(check.site))
        self.loaded[check.name] = suite
        gate = compile_suite(suite, types)
        self._probe(gate)
        number = len(self.built.gates)
        judged = {name: end.add(f"{PREFIX}g{number}{name}", F.expr(sql)) for name, sql in gate.row_columns()}
        self.built.gates[check.name] = gate
        quarantine = None
        if check.on_fail is OnFail.QUARANTINE:
            taken = next((name for name in schema.names if name.lower() in (RULES, "_batch")), None)
            if taken is not None:
                raise JobError(f"column {taken!r} has the name of one that check {check.name!r} adds in quarantine")
            columns = pa.schema([*schema, pa.field(RULES, pa.list_(pa.string())), pa.field("_batch", pa.int64())])
            quarantine = self._outlet(self.plan.graph.quarantine_stream(check.name), columns, check)
            if quarantine.lanes:
                raise BadExpression(
                    f"the quarantine of check {check.name!r} is written as it is: which rows are in it is known only "
                    "when the whole unit was seen",
                    where=str(check.site),
                )
        return SinkLeafSpec(
            sinks=tuple(s.name for s in sinks),
            visible=end.chain.visible,
            order=self.leaves.place(branch.port),
            ordered=(*_in_order(sinks), *(quarantine.ordered if quarantine is not None else ())),
            check=check.name,
            gate=gate,
            judged=judged,
            by_window=unit is not None,
            separate=check.on_fail in (OnFail.DROP, OnFail.QUARANTINE),
            quarantine=quarantine,
            deleting=tuple(s.name for s in sinks if deletes_retracted(s)),
        )

    def _probe(self, gate: CompiledGate) -> None:
        """Let Spark evaluate once what only it can judge of a suite, before a batch does (SEMANTICS 11.2)."""
        for rule, where, sql in gate.probes():
            try:
                self.spark.range(1).selectExpr(sql).collect()
            except Exception as why:
                problem = next((line for line in str(why).splitlines() if line.strip()), type(why).__name__)
                raise SuiteError(f"Spark cannot compute {rule}: {problem}", where=where) from why

    def _outlet(self, port: StepNode | SideNode | None, schema: pa.Schema, feeder: Node) -> Outlet:
        """Return where rows that `feeder` emits go; a side stream that the job does not use is None."""
        if port is None:
            return Outlet(sinks=(), lanes=(), schema=schema, place=self.leaves.place(feeder))
        name = port_name(port)
        known = self.ports.setdefault(name, schema)
        if known != schema:
            raise BadExpression(
                f"the rows of {name} have other columns at another step: {known.names} and {schema.names}",
                where=str(port.site),
            )
        sinks = self.plan.direct.get(name, ())
        for sink in sinks:
            self._register(sink, schema)
        return Outlet(
            sinks=tuple(s.name for s in sinks),
            lanes=self.plan.lanes(name),
            schema=schema,
            place=self.leaves.place(port),
            ordered=_in_order(sinks),
        )

    def _register(self, sink: SinkNode, schema: pa.Schema) -> None:
        known = self.built.sink_schemas.setdefault(sink.name, schema)
        if known != schema:
            met = sink.parent if isinstance(sink.parent, UnionNode) else sink
            raise BadExpression(
                f"the streams written to {sink.name!r} have other columns: {known.names} and {schema.names}",
                where=str(met.site),
            )
