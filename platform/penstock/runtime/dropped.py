"""Refuse to go on where the job no longer has a source or a sink that its log still needs (F51)."""

from __future__ import annotations

from penstock.checkpoint.recovery import Recovered
from penstock.errors import StepsChanged
from penstock.graph.graph import JobGraph

__all__ = ["refuse_dropped"]


def refuse_dropped(graph: JobGraph, recovered: Recovered) -> None:
    """Raise StepsChanged for a source whose position, or a sink whose rows, would be lost without a word.

    A sink may go once its last rows are known to be published, which the Release of a driver that left says.
    """
    sources = [source.name for source in graph.sources]
    for name in recovered.commit.sources if recovered.commit is not None else ():
        if name not in sources:
            raise StepsChanged(
                f"the checkpoint has read source {name!r} up to a position, and the job has only {', '.join(sources)}; "
                "under another name a source is read from its beginning"
            )
    last = recovered.last_published_commit
    if last is None:
        return
    sinks = {sink.name for sink in graph.sinks}
    for name, files in last.staged.items():
        if files and name not in sinks and recovered.published.get(name, -1) < last.batch:
            rows = sum(file.rows for file in files)
            raise StepsChanged(
                f"batch {last.batch} has {rows:,} rows for sink {name!r}, which may not have been published, and the "
                "job has no such sink any more; start it once as it was and stop it"
            )
