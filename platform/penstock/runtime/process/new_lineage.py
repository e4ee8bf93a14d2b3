"""Refuse to begin a checkpoint where the job had one: a volume may not be mounted, or a part may be gone (F17, F19)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.log.metadata import refuse_part
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import FormerCheckpoint, RootMissing
from penstock.graph.graph import JobGraph
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.sinks import Delta
from penstock.sinks.delta.log_entry import former_writer

__all__ = ["refuse_to_begin"]


def refuse_to_begin(folder: CheckpointFolder, graph: JobGraph, *, new_lineage: bool) -> None:
    """Raise where a job that has no log must not begin with nothing; writes nothing.

    Raises CheckpointPartial where other parts of a checkpoint are there. Raises FormerCheckpoint where the root
    remembers a batch of the job or a table shows batches of its sink, unless `new_lineage` says that it is meant. With
    a new uuid all rows would come a second time.
    """
    with suppress(RootMissing):
        refuse_part(folder.store(make=False))
    if new_lineage:
        return
    last = None
    with suppress(RootMissing):
        last = StatusRecords(control_store(folder.parent, make=False), folder.name).newest()
    if last is not None and (last.body.get("last") or last.body.get("next_batch")):
        raise FormerCheckpoint(f"{folder.name} has had a checkpoint in this root, and it is gone", where=str(folder))
    for node in graph.sinks:
        known = former_writer(Path(node.sink.path), node.name) if isinstance(node.sink, Delta) else None
        if known is not None:
            raise FormerCheckpoint(
                f"there is no checkpoint, and the table of sink {node.name!r} has batches of the checkpoint {known}",
                where=str(folder),
                uuid=known,
            )
