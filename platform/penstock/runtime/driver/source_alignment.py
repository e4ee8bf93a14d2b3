"""Find the sources that are too far ahead in event time to be read further: pure functions (SEMANTICS 2.8).

Times are microseconds, None is the beginning of time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from pydantic import JsonValue

from penstock.checkpoint.log.entries import Commit, SourceProgress
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import SourceNode
from penstock.graph.policies import OnEnd
from penstock.runtime.driver.admission import Admitted, Backlogs, Bound
from penstock.runtime.driver.watermarks import source_watermark
from penstock.sources.backlog import Waiting, clamp
from penstock.sources.base import WATERMARK

__all__ = ["ahead_of", "held_at", "ruled", "too_far_ahead", "watermark_of"]


def watermark_of(node: SourceNode, progress: SourceProgress, *, drained: bool = False) -> tuple[int | None, bool]:
    """Return the watermark of a source after a Commit with this progress, and whether it counts."""
    said = progress.position.get(WATERMARK)
    return source_watermark(
        progress.partitions,
        max_out_of_order=node.max_out_of_order,
        closes_at_end=drained or node.source.on_end is OnEnd.CLOSE,
        said=None if said is None else int(cast("int", said)),
        ended=progress.ended,
    )


def ahead_of(graph: JobGraph, commit: Commit | None, within: Backlogs | None) -> frozenset[str]:
    """Return the sources that wait for slower ones; `within` is what a run that ends somewhere still has to read."""
    if commit is None or all(node.align is None for node in graph.sources):
        return frozenset()
    waits = None if within is None else [n for n, of in within.items() if any(w.next < w.latest for w in of.values())]
    return too_far_ahead(graph.sources, commit.sources, waits)


def too_far_ahead(
    nodes: Collection[SourceNode], sources: Mapping[str, SourceProgress], waits: Collection[str] | None = None
) -> frozenset[str]:
    """Return the sources that the next batch must not read, because the slowest other one is too far behind.

    `sources` are those of the Commit in force. Only sources with event time that count hold others back. With `waits`,
    in a run with a fixed end, only those that still have rows to read do: others never catch up.
    """
    marks = {
        node.name: watermark_of(node, sources[node.name])
        for node in nodes
        if node.event_time is not None and node.name in sources and not sources[node.name].ended
    }
    ahead = set()
    for node in nodes:
        mark = marks.get(node.name, (None, False))[0]
        others = [
            other
            for name, (other, counts) in marks.items()
            if name != node.name and counts and (waits is None or name in waits)
        ]
        if node.align is None or mark is None or not others:
            continue
        if any(other is None or mark - other > node.align for other in others):
            ahead.add(node.name)
    return frozenset(ahead)


def held_at(backlogs: Backlogs, ahead: Collection[str]) -> dict[str, Mapping[str, Waiting]]:
    """Return what waits, without the rows of sources that are too far ahead."""
    return {
        name: clamp(backlog, {p: waiting.next for p, waiting in backlog.items()}) if name in ahead else backlog
        for name, backlog in backlogs.items()
    }


def ruled(admitted: Admitted, backlogs: Backlogs, ahead: Collection[str]) -> Admitted:
    """Return what was admitted, with this rule for the sources whose rows it holds back."""
    held = {name: Bound.ALIGN.value for name in sorted(ahead) if any(w.rows for w in backlogs.get(name, {}).values())}
    if not held or admitted.paused:
        return admitted
    bound = admitted.limits.get("bound")
    rules: dict[str, JsonValue] = {**(bound if isinstance(bound, dict) else {}), **held}
    return replace(admitted, limits={**admitted.limits, "bound": rules})
