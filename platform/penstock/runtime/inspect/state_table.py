"""Return the state of a job's step as one table: `penstock.state.read`.

Every process that uses Penstock imports this module, so what costs time is imported by the call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.checkpoint.storage.folder import CheckpointFolder

__all__ = ["read"]


def read(
    root: str | Path | CheckpointFolder,
    job: str,
    step: str,
    *,
    at: int | str = "last",
    where: pc.Expression | None = None,
) -> pa.Table:
    """Return what a step keeps: keys, state columns and `_expires`, or of windows keys, partials and `slice_start`.

    `root` is the folder of all checkpoints, or its URL where that is on HDFS. `at` is a batch that is kept, or what
    `--from` takes: `last`, `batch=N`, `saved=NAME`, `snapshot=VERSION`. `where` keeps the rows for which a pyarrow
    expression is true; no more than those and some MiB of the others are in memory at once.
    Raises RootMissing, CannotRestore for what is not kept, UnknownName for a step without state, and what reading a
    damaged checkpoint raises.
    """
    import pyarrow as pa

    from penstock.runtime.inspect.state_reader import chunks

    tables = [table if where is None else table.filter(where) for table in chunks(root, job, step, at=at)]
    if not tables:
        return pa.table({})
    return pa.concat_tables(tables, promote_options="default")
