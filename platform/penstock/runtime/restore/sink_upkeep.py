"""Maintain the targets of a job's sinks, and spare what its log needs of them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checkpoint.log.recovery import Recovered
from penstock.graph.graph import JobGraph
from penstock.sinks.base import MaintainedSink, Needed, Target, Upkeep

__all__ = ["maintain_sinks", "needed_of"]


def maintain_sinks(graph: JobGraph, recovered: Recovered, uuid: str, *, now: float) -> Iterator[tuple[str, Upkeep]]:
    """Maintain each sink that can be, and yield its name and what was done; `now` in seconds since 1970.

    `recovered` was read a moment ago: what is committed later is younger than anything that is deleted.
    """
    for node in graph.sinks:
        if isinstance(node.sink, MaintainedSink):
            yield node.name, node.sink.maintain(needed_of(node.name, recovered, uuid), now=now)


def needed_of(sink: str, recovered: Recovered, uuid: str) -> Needed:
    """Return what kept, saved and held Commits need of a sink."""
    kept = [*recovered.kept, *recovered.saves.readable().values()]
    if recovered.commit is not None:
        kept.append(recovered.commit)
    if recovered.last_published_commit is not None:
        kept.append(recovered.last_published_commit)
    commits = [*kept, *(recovered.held[batch] for batch in recovered.held)]
    files = [file.path for commit in commits for of in (commit.staged, commit.held) for file in of.get(sink, ())]
    app = f"{uuid}/{sink}"
    slots = {commit.place.slot: commit.batch for commit in kept if commit.place is not None}
    targets = tuple(Target(app=app, batch=batch, slot=slot) for slot, batch in sorted(slots.items()))
    return Needed(staged=frozenset(files), targets=targets)
