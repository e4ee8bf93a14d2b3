"""Read the state of a job's step as a table: without its code, without Spark, beside a driver that runs.

Segments say what columns they have, and manifests how slices are merged; so what a job keeps can be read as long as
its checkpoint can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.recovery import Damage, recover
from penstock.errors import CannotRestore, CheckpointCorrupt, RootMissing, UnknownName
from penstock.operators.aggregates import AGGREGATES, AggregatePlan
from penstock.operators.key_ledger import STATE, readable
from penstock.operators.partial_tables import GROUP, HASH, PartialTables
from penstock.operators.window_strategies import SLICES
from penstock.runtime.restoring import StartFrom, parse_start
from penstock.runtime.roots import job_log
from penstock.runtime.snapshot_tables import PARTITION, find_snapshot, table_path
from penstock.state import LATEST, Combine, Manifest, StateReader, live_rows
from penstock.state import ManifestRef as StateRef

__all__ = ["chunks", "read", "stored_steps"]


def read(
    root: str | Path, job: str, step: str, *, at: int | str = "last", where: pc.Expression | None = None
) -> pa.Table:
    """Return what a step keeps: keys, state columns and `_expires`; of windows keys, partials and `slice_start`.

    `root` is the folder of all checkpoints. `at` is a batch that is kept, or what `--from` takes: `last`, `batch=N`,
    `saved=NAME`, `snapshot=VERSION`. `where` keeps the rows for which a pyarrow expression is true; no more than those
    and some MiB of the others are in memory at once.
    Raises RootMissing, CannotRestore for what is not kept, UnknownName for a step without state, and what reading a
    damaged checkpoint raises.
    """
    found = [table if where is None else table.filter(where) for table in chunks(root, job, step, at=at)]
    if not found:
        return pa.table({})
    return pa.concat_tables(found, promote_options="default")


def chunks(root: str | Path, job: str, step: str, *, at: int | str = "last") -> Iterator[pa.Table]:
    """Yield the same, some MiB at a time; at least one table, which says what columns there are, if any are known."""
    folder = Path(root) / job
    start = parse_start(f"batch={at}" if isinstance(at, int) else at)
    commit = _commit(folder, start)
    _refuse_unknown(commit, step)
    if start.snapshot is not None:
        version = find_snapshot(folder, start.snapshot).steps[step].version
        yield from _of_snapshot(table_path(folder, step), version)
    else:
        yield from _of_segments(folder / "state", step, commit)


def stored_steps(root: str | Path, job: str) -> list[str]:
    """Return the steps that have state behind the newest batch."""
    return sorted(_commit(Path(root) / job, StartFrom()).state)


def _commit(folder: Path, start: StartFrom) -> Commit:
    log = job_log(folder)
    if log is None:
        raise RootMissing("there is no checkpoint", where=str(folder))
    recovered = recover(log, Damage.LIST)
    commit = start.commit(recovered, folder) if start.goes_back else None if start.restore else recovered.commit
    if commit is None:
        raise CannotRestore("no batch is in force, and so there is no state", where=str(folder))
    return commit


def _refuse_unknown(commit: Commit, step: str) -> None:
    if step not in commit.state:
        there = ", ".join(sorted(commit.state)) or "none"
        raise UnknownName(f"batch {commit.batch} has no state of step {step!r}; there is {there}")


def _of_snapshot(path: Path, version: int) -> Iterator[pa.Table]:
    from deltalake import DeltaTable

    rows = DeltaTable(path, version=version).to_pyarrow_dataset().to_batches()
    yield from (pa.table(batch).drop_columns([PARTITION]) for batch in rows)


def _of_segments(root: Path, step: str, commit: Commit) -> Iterator[pa.Table]:
    for partition, ref in sorted(commit.state[step].items(), key=lambda named: int(named[0])):
        folder = root / step / partition
        manifest = Manifest.read(folder / ref.path, StateRef(ref.path, ref.size, ref.checksum))
        yield from _of_partition(StateReader(folder, manifest), folder / ref.path)


def _of_partition(reader: StateReader, path: Path) -> Iterator[pa.Table]:
    schema = reader.schema(SLICES)
    if schema is None:
        merge: Mapping[str, Combine | None] = {STATE: LATEST}
        yield from (readable(rows) for rows in live_rows(reader, STATE, merge))
        return
    try:
        plan = AggregatePlan.read(reader.facts[AGGREGATES])
    except (KeyError, TypeError, ValueError) as why:
        raise CheckpointCorrupt(
            "its manifest does not say how slices are merged; a batch that changes it, written by this version, does",
            where=str(path),
        ) from why
    partials = {field.name for field in plan.fields}
    keys = pa.schema([field for field in schema if field.name not in partials | {GROUP, HASH}])
    layout = PartialTables(plan=plan, keys=keys)
    yield from (layout.readable(rows) for rows in live_rows(reader, SLICES, {SLICES: layout.combine}))
