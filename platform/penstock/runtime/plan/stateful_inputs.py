"""Make of the rows of a branch what a stateful step takes: the columns that Spark computes, and the facts of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from penstock.errors import BadExpression, JobError, KeyTypesDiffer, UnknownName
from penstock.graph.graph import JobGraph
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.nodes import Node, SideNode, SourceNode
from penstock.graph.revision_readers import needs_retractions
from penstock.graph.steps import MAIN_OUTLET, StepNode
from penstock.operators.protocol import BoundSide, MapSide, RowsOfBranch, Step, StepContext
from penstock.operators.registry import operator_of
from penstock.runtime.plan.arrow_path import PlainProjection
from penstock.runtime.plan.branch_frame import at_site, refuse_functions, refuse_other_times
from penstock.runtime.plan.job_plan import Branch, JobPlan, StepLeaf
from penstock.runtime.plan.projection import KEY, Projection
from penstock.runtime.tasks.columns import refuse_taken
from penstock.runtime.tasks.specs import StateSpec, StepLeafSpec
from penstock.runtime.tasks.staging import Outlet
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["End", "StatefulInputs", "check_event_time", "timed_by"]

_OF_STATE = frozenset({GROUP, HASH, EXPIRES, DELETED, "_state_partition"})
"""The columns that rows of every state have beside keys, in segments and in the tables of data checkpoints."""
End = Projection | PlainProjection
"""The end of a branch, where columns are collected: computed by Spark, or in the task that reads them."""


def timed_by(port: Node) -> str | None:
    """Return the expression that says the event time of a step's output, None where its rows have one already."""
    return port.spec.timed_by if isinstance(port, StepNode) else None


def check_event_time(spark: SparkSession, step: StepNode, output: pa.Schema) -> None:
    """Refuse an event time of a step's output that Spark cannot compute, whether it is read or not."""
    from pyspark.sql.pandas.types import from_arrow_schema

    event_time = timed_by(step)
    if event_time is None:
        return
    with at_site(step.site):
        frame = spark.createDataFrame([], from_arrow_schema(output))
        refuse_other_times(frame, event_time, step.site)
        refuse_functions(frame.selectExpr(event_time), [event_time])


class StatefulInputs:
    """Make the leaves of stateful steps, and of what they have in common each step.

    `outlet` says where the rows of a port inside the job go, which have these columns; None is a side stream that the
    job does not use.
    """

    def __init__(self, plan: JobPlan, outlet: Callable[[StepNode | SideNode | None, pa.Schema, Node], Outlet]) -> None:
        self.plan = plan
        self._outlet = outlet
        self._ways: dict[str, int] = {}
        self._sides: dict[tuple[str, int], MapSide] = {}
        self._keys: dict[str, pa.Schema] = {}

    def leaf(self, leaf: StepLeaf, end: End, branch: Branch) -> StepLeafSpec:
        """Return how the rows of a branch become what the step takes."""
        step, side = leaf.step, leaf.side
        columns = self._key_columns(step, side, end)
        number = sum(self._ways.values())
        keys = [end.add_key(f"{KEY}{number}_{key}", key) for key in columns]
        hashed = end.add_hash(f"_penstock_h{number}", keys)
        leading = [(reader, b) for b in self.plan.branches() for reader in b.leaves if _leads_to(reader, step)]
        # A row that comes several ways comes to the first input first, in whatever order the branches were planned.
        leading.sort(key=lambda way: way[0].side)
        way = next(place for place, (reader, _) in enumerate(leading) if reader is leaf)
        self._ways[step.name] = self._ways.get(step.name, 0) + 1
        reads = step.spec.reads(side)
        types = {sql: end.type_of(sql) for sql in reads.expressions}
        key_types = self._key_types(step, end.schema(columns))
        bound = BoundSide(
            name=step.name,
            side=side,
            keys=key_types,
            columns=columns,
            visible=end.schema(end.chain.visible) if reads.rows else None,
            inputs=types,
            chained=any(_has_bytes(b) for _, b in leading),
            ways=len(leading),
        )
        map_side = operator_of(step.spec).bind_side(step.spec, bound)
        other = self._sides.setdefault((step.name, side), map_side).differs(map_side)
        if other is not None:
            raise BadExpression(f"the streams that step {step.name!r} reads have {other}", where=str(step.site))
        names = {sql: f"_penstock_a{number}_{place}" for place, sql in enumerate(reads.expressions)}
        inputs = end.add_inputs(names)  # also of none: Spark then refuses here what cannot be a key
        if reads.rows:
            end.keep_visible()
        return StepLeafSpec(
            step=step.name,
            side=side,
            map_side=map_side,
            counted_as=step.counted_as,
            partitions=step.partitions,
            rows=RowsOfBranch(
                table=pa.table({}),
                visible=end.chain.visible,
                keys=dict(zip(key_types.names, keys, strict=True)),
                inputs=inputs,
                hash_column=hashed,
                place=self.place(branch.port),
                way=way,
                ways=len(leading),
            ),
            place=self.place(step),
            outlets=self._outlets(step, map_side.outlets),
        )

    def state(self, step: StepNode) -> StateSpec:
        """Return what the state partitions of a step run, once all its leaves were made."""
        graph = self.plan.graph
        with at_site(step.site):
            work = self._bound(step)
            self._check_outlets(step, work)
            _refuse_taken_keys(step, work)
            refuse_taken(work.outlets[MAIN_OUTLET].names)
        return StateSpec(
            step=step.name,
            sides=len(step.inputs),
            partitions=step.partitions,
            depth=self._depths[id(step)],
            behind=tuple(n.name for n in graph.steps if n is not step and step in set(graph.upstream(n))),
            counted_as=step.counted_as,
            work=work,
            outlets=self._outlets(step, work.outlets),
        )

    def place(self, port: Node) -> int:
        """Return the place of a port in arrival order: sources in graph order, then what the job makes (1.6)."""
        ports = [*self.plan.graph.sources, *(n for n in self.plan.graph.nodes if not isinstance(n, SourceNode))]
        return next(place for place, node in enumerate(ports) if node is port)

    def _bound(self, step: StepNode) -> Step:
        graph = self.plan.graph
        event = all(source.event_time is not None for source in graph.sources_of(step))
        leaves = [leaf for branch in self.plan.branches() if branch.port is step for leaf in branch.leaves]
        context = StepContext(
            name=step.name,
            event=event and graph.untimed_above(step) is None,
            timed=any(isinstance(leaf, StepLeaf) for leaf in leaves),
            retracts=needs_retractions(step, graph.nodes),
        )
        sides = [self._sides[step.name, side] for side in range(len(step.inputs))]
        return operator_of(step.spec).bind(step.spec, sides, context)

    def _check_outlets(self, step: StepNode, work: Step) -> None:
        """Raise JobError where an operator fills other outlets than its spec names: their rows would go nowhere."""
        before = {outlet for side in range(len(step.inputs)) for outlet in self._sides[step.name, side].outlets}
        named = {MAIN_OUTLET, *step.spec.side_streams(step.name)}
        if not before <= step.spec.before_shuffle or before | {*work.outlets} != named:
            raise JobError(
                f"operator {step.spec.kind!r} fills {sorted(before)} before the shuffle and {sorted(work.outlets)} "
                f"after it; its spec names {sorted(named)}, before the shuffle {sorted(step.spec.before_shuffle)}"
            )

    def _outlets(self, step: StepNode, schemas: Mapping[str, pa.Schema]) -> dict[str, Outlet]:
        graph: JobGraph = self.plan.graph
        ports = {outlet: step if outlet == MAIN_OUTLET else graph.side_of(step, outlet) for outlet in schemas}
        return {outlet: self._outlet(ports[outlet], schema, step) for outlet, schema in schemas.items()}

    @cached_property
    def _depths(self) -> dict[int, int]:
        depths: dict[int, int] = {}
        for step in self.plan.graph.steps:  # each after the steps that it reads from
            above = {id(node) for node in self.plan.graph.upstream(step)}
            depths[id(step)] = 1 + max((depth for known, depth in depths.items() if known in above), default=0)
        return depths

    def _key_columns(self, step: StepNode, side: int, end: End) -> tuple[str, ...]:
        types, columns = end.chain.types(), step.keys[side]
        missing = next((key for key in columns if key not in types), None)
        if missing is not None:
            raise UnknownName(
                f"step {step.name!r} is keyed by {missing!r}; the stream has {list(types)}", where=str(step.site)
            )
        return columns

    def _key_types(self, step: StepNode, keys: pa.Schema) -> pa.Schema:
        """Return the key columns under the names of the first input; those of one key have one type in all inputs."""
        named = pa.schema([field.with_name(name) for field, name in zip(keys, step.keys[0], strict=True)])
        if len(step.inputs) > 1 and self._keys.setdefault(step.name, named) != named:
            known = (", ".join(f"{field.name} {field.type}" for field in of) for of in (self._keys[step.name], named))
            raise KeyTypesDiffer(
                f"the keys of the streams that step {step.name!r} reads have other types: {' and '.join(known)}",
                where=str(step.site),
            )
        return named


def _has_bytes(branch: Branch) -> bool:
    """Return whether bytes give the order of a branch's rows."""
    return not isinstance(branch.port, SourceNode) or any(isinstance(node, StaticJoinNode) for node in branch.chain)


def _refuse_taken_keys(step: StepNode, work: Step) -> None:
    """Raise JobError for a key column with the name of another column of the state."""
    for key in step.keys[0]:
        if key.lower() in _OF_STATE or any(table.names.count(key) > 1 for table in work.tables.values()):
            raise JobError(
                f"a key column of step {step.name!r} has the name {key!r}, which Penstock uses for itself; rename it"
            )


def _leads_to(leaf: object, step: StepNode) -> TypeGuard[StepLeaf]:
    return isinstance(leaf, StepLeaf) and leaf.step is step
