"""Describe a job in words: its steps, the one Spark job of a batch, its stages, and what each path promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.toml_reader import shown_path
from penstock.graph.cache import CacheNode
from penstock.graph.durations import Duration
from penstock.graph.graph import JobGraph
from penstock.graph.join_arguments import JoinKind
from penstock.graph.join_static import StaticJoinNode
from penstock.graph.map_batches import MapBatchesNode
from penstock.graph.nodes import (
    CheckNode,
    FilterNode,
    Node,
    SelectNode,
    SideNode,
    SinkNode,
    SourceNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from penstock.graph.revision_readers import use_of_revisions
from penstock.graph.steps import StepNode
from penstock.runtime.driver.stages import Stage
from penstock.runtime.plan.job_plan import Branch, Hop, JobPlan, Leaf, Shuffle, StepLeaf, plan_job, port_name

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.operators.protocol import Step

__all__ = ["Section", "explain_analysis", "explain_graph", "guarantees"]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the description: a title, and rows of two columns."""

    title: str
    rows: tuple[tuple[str, str], ...]


def explain_graph(graph: JobGraph) -> list[Section]:
    """Return the sections that need no Spark: steps, plan, stages, guarantees."""
    plan = plan_job(graph)
    return [
        Section(
            "Steps", tuple((f"{shown_path(Path(n.site.file))}:{n.site.line}", _whole(n, plan)) for n in graph.nodes)
        ),
        Section("One Spark job for each batch", tuple(_plan(plan))),
        Section("Stages of a batch", tuple(stage.value for stage in Stage)),
        Section("Guarantees", tuple(guarantees(graph))),
    ]


def explain_analysis(steps: Mapping[str, Step], schemas: Mapping[str, pa.Schema]) -> list[Section]:
    """Return what only Spark's analysis tells: how windows are made, and the columns that sinks get."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, step in steps.items():
        for title, text in step.explained.items():
            sections.setdefault(title, []).append((name, text))
    columns = tuple((sink, ", ".join(f"{f.name} {f.type}" for f in schema)) for sink, schema in schemas.items())
    return [
        *(Section(title, tuple(rows)) for title, rows in sections.items()),
        Section("Columns of the sinks", columns),
    ]


def guarantees(graph: JobGraph) -> Iterator[tuple[str, str]]:
    """Yield each path from a source to a sink, and in words how often a row reaches the sink, and why.

    Sources give the same rows for the same range, or fail, and a committed batch is never computed a second time. So
    the guarantee depends on whether the sink recognises a batch that it has.
    """
    for node in graph.sinks:
        kind = type(node.sink).__name__
        if node.sink.deduplicates:
            whom = f" for {node.sink.condition}" if node.sink.condition else ""
            promise = f"exactly once{whom}: {kind} shows each batch once, however often it is published"
        else:
            repeated = "so a crash while publishing repeats it"
            promise = f"at least once: {kind} cannot tell whether it has a batch already, {repeated}"
            promise += f"; exactly once for {node.sink.deduplicated_by}" if node.sink.deduplicated_by else ""
        for source in graph.sources_of(node):
            of_rows = "" if source.source.acknowledged is None else f", {source.source.acknowledged}"
            yield f"{source.name} -> {node.name}", f"{promise}{of_rows}"


def _whole(node: Node, plan: JobPlan) -> str:
    revisions = use_of_revisions(node)
    return _step(node, plan) if revisions is None else f"{_step(node, plan)}; {revisions}"


def _step(node: Node, plan: JobPlan) -> str:
    match node:
        case CacheNode(level=level):
            nothing = "" if plan.kept(node) else "; nothing to keep, because one pass computes all that follows"
            return f"cache in {level.value}{nothing}"
        case SourceNode():
            return _source(node)
        case StepNode():
            return node.spec.words(node, _keys(node))
        case FilterNode() | SelectNode() | WithColumnsNode() | TransformNode() | MapBatchesNode() | UnionNode():
            return _change(node)
        case StaticJoinNode(name=name):
            fate = "dropped" if node.how is JoinKind.INNER else "kept with nulls"
            by = ", ".join(node.keys)
            return (
                f"join_static {name}: rows of table {node.table_words}, by {by}, rows without a match {fate}; "
                f"{node.refresh_words}"
            )
        case SideNode(name=name):
            return node.title.format(name=name)
        case CheckNode(name=name, on_fail=on_fail):
            return f"check {name}: on failure {on_fail.value}"
        case SinkNode(name=name, sink=sink):
            return f"sink {name}: {sink.describe()}"
    raise TypeError(f"{type(node).__name__} is no step that explain knows")


def _source(node: SourceNode) -> str:
    text = f"source {node.name}: {node.source.describe()}"
    if node.event_time is not None:
        text += f", event time {node.event_time}, at most {Duration(node.max_out_of_order)} out of order"
    return text


def _change(
    node: FilterNode | SelectNode | WithColumnsNode | TransformNode | MapBatchesNode | UnionNode,
) -> str:
    match node:
        case FilterNode(predicate=predicate, name=name):
            return f"filter {name}: {predicate}"
        case SelectNode(expressions=expressions):
            return f"select {', '.join(expressions)}"
        case WithColumnsNode(columns=columns):
            return f"with columns {', '.join(f'{n} = {sql}' for n, sql in columns.items())}"
        case TransformNode(name=name, fn=fn, per_batch=per_batch):
            each = "; called and planned in every batch" if per_batch else ""
            return f"transform {name}: {_function(fn)}{each}"
        case MapBatchesNode(name=name, fn=fn, output=output, same_rows=same_rows):
            rows = "a row for each row" if same_rows else "rows without event time"
            return f"map_batches {name}: {_function(fn)}, returns {output}, {rows}"
        case UnionNode(left=left, right=right):
            return f"union of {_name_of(left)} and {_name_of(right)}"


def _function(fn: object) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__name__))


def _keys(node: StepNode) -> str:
    by = " and ".join(dict.fromkeys(", ".join(keys) for keys in node.keys))
    return f"{f'by {by}' if by else 'no key'}, {_counted(node.partitions, 'state partition')}"


def _plan(plan: JobPlan) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for source in plan.graph.sources:
        branches = [branch for fork in plan.ingest if fork.source is source for branch in fork.branches]
        rows += [("fork" if number else "read", _branch(branch)) for number, branch in enumerate(branches)]
    for stage in plan.stages:
        match stage:
            case Hop(branch=branch):
                rows.append(("hop", _branch(branch)))
            case Shuffle(steps=steps):
                names = ", ".join(step.name for step in steps)
                rows.append(("shuffle", f"{_counted(stage.partitions, 'task')}, state of {names}"))
    direct = [(port, ", ".join(s.name for s in sinks)) for port, sinks in plan.direct.items() if sinks]
    return rows + [("stage", f"{port} as it is for {sinks}") for port, sinks in direct]


def _branch(branch: Branch) -> str:
    steps = [port_name(branch.port), *(_name_of(n) for n in branch.chain)]
    ends = ", ".join(_leaf(leaf) for leaf in branch.leaves) or "rows counted"
    return f"{' -> '.join(steps)} -> {ends}"


def _leaf(leaf: Leaf) -> str:
    if isinstance(leaf, StepLeaf):
        return f"{leaf.step.spec.sent} of {leaf.step.name}"
    guard = f"check {leaf.check.name}, then " if leaf.check is not None else ""
    return f"{guard}files of {', '.join(s.name for s in leaf.sinks)}"


def _name_of(node: Node) -> str:
    name = getattr(node, "name", None)
    words = {SelectNode: "select", WithColumnsNode: "with columns", UnionNode: "union", CacheNode: "cache"}
    return str(name) if name is not None else words[type(node)]


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
