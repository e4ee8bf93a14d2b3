"""The checkpoint from which a test restarts a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import JobError
from penstock.graph.source_location import user_site
from penstock.runtime.restore.target import RestoreTarget

__all__ = ["start_from"]


def start_from(
    batch: int | None,
    saved: str | None,
    snapshot: str | None,
    *,
    empty: bool,
    partitions: int | None,
    state: Mapping[str, str | Path],
    truncate: bool,
) -> RestoreTarget:
    """Return where to start; raises JobError where that is said twice or not at all."""
    places = [place for place in (batch, saved, snapshot) if place is not None]
    if len(places) + empty > 1 or not (places or partitions is not None or state or empty):
        where = str(user_site())
        raise JobError('say what to restore: batch=N, saved="name", snapshot="N", or empty=True', where=where)
    start = RestoreTarget(restore=bool(places) or empty, batch=batch, saved=saved, snapshot=snapshot)
    tables = {step: str(table) for step, table in state.items()}
    return start.having(partitions=partitions, state=tables, truncate=truncate)
