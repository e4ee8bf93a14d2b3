"""Describe what a job's code says and its state does not show, so that a diff can tell what has changed of it (F51)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.graph.durations import Duration
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import CheckNode, FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from penstock.graph.steps import StepNode

__all__ = ["Described", "changes_of", "described"]

Described = Mapping[str, Mapping[str, str]]
"""For each source, filter, select, check and step, as `kind name`, its settings in words."""


def described(graph: JobGraph, suites: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the settings of a job; `suites` maps each check to a path or a dict. Kept in the Takeover of a driver."""
    described_steps: dict[str, dict[str, str]] = {}
    numbers: dict[str, int] = {}
    for node in graph.nodes:
        for kind, settings in _settings(node, suites):
            name = getattr(node, "name", None)
            if name is None:
                name = numbers[kind] = numbers.get(kind, 0) + 1
            described_steps[f"{kind} {name}"] = settings
    return described_steps


def changes_of(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return in words how settings differ."""
    return tuple(
        f"{name} was {before.get(name, 'none')} and is {now.get(name, 'none')}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    )


def _settings(node: Node, suites: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    match node:
        case SourceNode():
            bounds = ((n, getattr(node, n)) for n in ("max_out_of_order", "idle_after", "max_future"))
            texts = {name: str(Duration(micros)) for name, micros in bounds if micros is not None}
            yield "source", {"event_time": node.event_time, **texts} if node.event_time is not None else {}
        case FilterNode(predicate=predicate):
            yield "filter", {"predicate": predicate}
        case SelectNode(expressions=expressions):
            yield "select", {"columns": ", ".join(expressions)}
        case WithColumnsNode(columns=columns):
            yield "with_columns", {"columns": ", ".join(f"{name} = {sql}" for name, sql in columns.items())}
        case StepNode(spec=spec):
            settings = spec.settings()
            if settings is not None:
                yield "step", dict(settings)
        case CheckNode(name=name):
            table = (node.on_table_fail or node.on_fail).value
            yield "check", {"on_fail": node.on_fail.value, "on_table_fail": table, "suite": _digest(suites.get(name))}


def _digest(suite: Any) -> str:
    """Return what tells one suite from another: a few characters of the digest of what it says."""
    content = json.loads(Path(suite).read_text()) if isinstance(suite, str | Path) else suite
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
