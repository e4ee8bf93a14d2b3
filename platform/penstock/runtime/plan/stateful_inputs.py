"""Make of the rows of a branch what a stateful step takes: the columns Spark computes, and what tasks are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.errors import BadExpression, JobError, UnknownName
from penstock.graph.nodes import FunctionNode, Node, SideNode, SourceNode, StatefulNode, WindowNode
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.windows.time_windows import WindowStep
from penstock.runtime.plan.arrow_path import PlainProjection
from penstock.runtime.plan.expressions import at_site, refuse_functions, refuse_other_times
from penstock.runtime.plan.job_plan import Branch, JobPlan, StepLeaf
from penstock.runtime.plan.projection import KEY, Projection
from penstock.runtime.tasks.columns import refuse_taken
from penstock.runtime.tasks.function_step import FunctionRows, function_work
from penstock.runtime.tasks.routing import late_schema
from penstock.runtime.tasks.specs import FunctionLeafSpec, StepWork, WindowLeafSpec
from penstock.runtime.tasks.staging import Outlet
from penstock.runtime.tasks.window_step import WindowStepWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["End", "StatefulInputs", "check_event_time", "timed_by"]

End = Projection | PlainProjection
"""The end of a branch, where columns are collected: computed by Spark, or in the task that reads them."""

_LATE_COLUMNS = ("_event_time", "_watermark", "_step")


def timed_by(port: Node) -> str | None:
    """Return the expression that says the event time of a step's output, None where its rows have one already."""
    return port.event_time if isinstance(port, FunctionNode) else None


def check_event_time(spark: SparkSession, step: StatefulNode, output: pa.Schema) -> None:
    """Refuse an event time of a vectorised step's output that Spark cannot compute, whether it is read or not."""
    from pyspark.sql.pandas.types import from_arrow_schema

    event_time = timed_by(step)
    if event_time is None:
        return
    with at_site(step.site):
        frame = spark.createDataFrame([], from_arrow_schema(output))
        refuse_other_times(frame, event_time, step.site)
        refuse_functions(frame.selectExpr(event_time), [event_time])


class _Keyed(NamedTuple):
    """The columns by which a branch's rows find the state of their key, and the branch's place among the step's."""

    number: int
    columns: dict[str, str]
    hash_column: str
    rank: int
    ranks: int
    chained: bool


class StatefulInputs:
    """Make the leaves of stateful steps, and of what they have in common each step's work.

    `side` says where the rows of a side stream with these columns go.
    """

    def __init__(self, plan: JobPlan, side: Callable[[SideNode | None, pa.Schema, Node], Outlet]) -> None:
        self.plan = plan
        self._side = side
        self._inputs: dict[str, int] = {}
        self._aggregates_of: dict[str, tuple[AggregatePlan, pa.Schema]] = {}
        self._rows_of: dict[str, FunctionRows] = {}

    def leaf(self, step: StatefulNode, end: End, branch: Branch) -> WindowLeafSpec | FunctionLeafSpec:
        """Return how the rows of a branch become what the step takes."""
        if isinstance(step, WindowNode):
            return self._window_leaf(step, end, branch)
        return self._function_leaf(step, end, branch)

    def work(self, step: StatefulNode) -> StepWork:
        """Return what the state partitions of a step run, once all its leaves were made."""
        with at_site(step.site):
            if isinstance(step, FunctionNode):
                graph = self.plan.graph
                event = all(source.event_time is not None for source in graph.sources_of(step))
                event = event and graph.untimed_above(step) is None
                behind = tuple(n.name for n in graph.steps if n is not step and step in set(graph.upstream(n)))
                leaves = [leaf for branch in self.plan.branches() if branch.port is step for leaf in branch.leaves]
                timed = any(isinstance(leaf, StepLeaf) for leaf in leaves)
                return function_work(step, self._rows_of[step.name], event=event, behind=behind, timed=timed)
            assert isinstance(step, WindowNode)
            plan, keys = self._aggregates_of[step.name]
            spec = WindowStep(window=step.spec, plan=plan, keys=keys)
            _ = spec.layout  # refuses names that the state takes for itself
            return WindowStepWork(step.name, spec)

    def depth(self, step: StatefulNode) -> int:
        """Return how many steps with state, this one included, stand on the longest way to here."""
        return self._depths[id(step)]

    @cached_property
    def _depths(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for step in self.plan.graph.steps:  # which stands behind all that it reads from
            above = {id(node) for node in self.plan.graph.upstream(step)}
            found[id(step)] = 1 + max((depth for known, depth in found.items() if known in above), default=0)
        return found

    def place(self, port: Node) -> int:
        """Return the place of a port in arrival order: sources in graph order, then what the job makes (1.6)."""
        ports = [*self.plan.graph.sources, *(n for n in self.plan.graph.nodes if not isinstance(n, SourceNode))]
        return next(place for place, node in enumerate(ports) if node is port)

    def _keyed(self, step: StatefulNode, end: End) -> _Keyed:
        """Add the columns by which rows find the state of their key."""
        types = end.chain.types()
        missing = next((k for k in step.keys if k not in types), None)
        if missing is not None:
            raise UnknownName(
                f"step {step.name!r} is keyed by {missing!r}; the stream has {list(types)}", where=str(step.site)
            )
        number = sum(self._inputs.values())
        keys = {k: end.add_key(f"{KEY}{number}_{k}", k) for k in step.keys}
        hashed = end.add_hash(f"_penstock_h{number}", list(keys.values()))
        rank = self._inputs.get(step.name, 0)
        self._inputs[step.name] = rank + 1
        leaves = [(b.port, leaf) for b in self.plan.branches() for leaf in b.leaves]
        ports = [port for port, leaf in leaves if isinstance(leaf, StepLeaf) and leaf.step is step]
        chained = any(not isinstance(port, SourceNode) for port in ports)
        return _Keyed(number, keys, hashed, rank, len(ports), chained)

    def _function_leaf(self, step: StatefulNode, end: End, branch: Branch) -> FunctionLeafSpec:
        assert isinstance(step, FunctionNode)
        keyed = self._keyed(step, end)
        end.keep_visible()
        rows = FunctionRows(
            visible=end.schema(end.chain.visible),
            keys=end.schema(step.keys),
            chained=keyed.chained,
            ranks=keyed.ranks,
        )
        if self._rows_of.setdefault(step.name, rows) != rows:
            raise BadExpression(f"the streams that step {step.name!r} reads have other columns", where=str(step.site))
        return FunctionLeafSpec(
            step=step.name,
            partitions=step.partitions,
            order=self.place(branch.port),
            rank=keyed.rank,
            ranks=keyed.ranks,
            chained=keyed.chained,
            keys=keyed.columns,
            hash_column=keyed.hash_column,
            visible=end.chain.visible,
        )

    def _window_leaf(self, window: WindowNode, end: End, branch: Branch) -> WindowLeafSpec:
        keyed = self._keyed(window, end)
        number, keys = keyed.number, keyed.columns
        plan, _ = self._aggregates(window, end)
        expressions = {name: a.expression for name, a in window.aggregates.items() if a.expression is not None}
        columns = {sql: f"_penstock_a{number}_{i}" for i, sql in enumerate(dict.fromkeys(expressions.values()))}
        read = end.add_inputs(columns)
        inputs = {name: read[sql] for name, sql in expressions.items()}
        late = self.plan.graph.late_stream(window)
        refuse_taken(window.aggregates)
        if late is not None:
            taken = next((n for n in end.chain.visible if n.lower() in _LATE_COLUMNS), None)
            if taken is not None:
                raise JobError(f"column {taken!r} has the name of one that late rows get; rename it, or drop_late()")
            end.keep_visible()
        return WindowLeafSpec(
            step=window.name,
            window=window.spec,
            plan=plan,
            partitions=window.partitions,
            order=self.place(branch.port),
            rank=keyed.rank,
            ranks=keyed.ranks,
            place=self.place(window),
            chained=keyed.chained,
            keys=keys,
            inputs=inputs,
            hash_column=keyed.hash_column,
            visible=end.chain.visible,
            late=None if late is None else self._side(late, late_schema(end.schema(end.chain.visible)), window),
        )

    def _aggregates(self, window: WindowNode, end: End) -> tuple[AggregatePlan, pa.Schema]:
        types = {
            name: None if a.expression is None else end.type_of(a.expression) for name, a in window.aggregates.items()
        }
        plan = AggregatePlan.build(window.aggregates, types)
        schema = end.schema(window.keys)
        known = self._aggregates_of.setdefault(window.name, (plan, schema))
        if known[1] != schema or known[0].fields != plan.fields:
            raise BadExpression(
                f"the streams that window {window.name!r} reads have other types", where=str(window.site)
            )
        return known
