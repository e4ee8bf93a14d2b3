"""Read the state of a job's step as a table: without its code, without Spark, beside a driver that runs.

Segments say what columns they have, and manifests what parts there are and how their rows merge. So what a job keeps
can be read as long as its checkpoint can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotRestore, CheckpointCorrupt, RootMissing, UnknownName
from penstock.operators.aggregates import AGGREGATES, ROWS, AggregatePlan
from penstock.operators.functions.key_index import STATE, readable
from penstock.operators.protocol import LAYOUT, MAIN
from penstock.operators.sessions.session_evolution import reads as reads_sessions
from penstock.operators.sessions.session_layout import SESSIONS, SessionLayout
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.revisions import panes_readable
from penstock.operators.windows.slice_state import PANES, SLICES
from penstock.operators.windows.window_evolution import reads
from penstock.runtime.restore.target import RestoreTarget, parse_start
from penstock.runtime.snapshots.catalog import Snapshot, table_path, verify_snapshot
from penstock.state.full_compaction import live_rows
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef
from penstock.state.parts import PARTS, Merge, Part
from penstock.state.reader import Adapters, StateReader
from penstock.state.row_layout import conform
from penstock.state.section_reader import retain

__all__ = ["chunks", "readers", "with_values"]


def chunks(root: str | Path | CheckpointFolder, job: str, step: str, *, at: int | str = "last") -> Iterator[pa.Table]:
    """Yield what `state_table.read` returns, some MiB at a time, and at least one table.

    A table without rows says what columns there are, if any are known.
    """
    folder = root_of(root) / job
    commit, snapshot = _restored(folder, parse_start(f"batch={at}" if isinstance(at, int) else at))
    if step not in commit.state:
        there = ", ".join(sorted(commit.state)) or "none"
        raise UnknownName(f"batch {commit.batch} has no state of step {step!r}; there is {there}")
    if snapshot is not None:
        version = snapshot.steps[step]
        verify_snapshot(folder, version)
        for name in version.files:
            file = pq.ParquetFile((table_path(folder, step) / name).fetch())
            yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())
        return
    opened = list(readers(folder / "state", step, commit))
    # Partitions that no row has come to since a column was added have not got it.
    schemas = [schema for reader, path in opened for schema in _schema(reader, path)]
    whole = pa.unify_schemas(schemas, promote_options="permissive") if schemas else None
    for reader, path in opened:
        for table in _of_partition(reader, path):
            yield table if whole is None else conform(table, whole)


def _restored(folder: CheckpointFolder, start: RestoreTarget) -> tuple[Commit, Snapshot | None]:
    """Return the Commit that a start would restore, and the data checkpoint that it would read instead of the state."""
    log = job_log(folder)
    if log is None:
        raise RootMissing("there is no checkpoint", where=str(folder))
    point = start.resolve(recover(log, Damage.LIST), folder)
    if point.commit is None:
        raise CannotRestore("no batch is in force, and so there is no state", where=str(folder))
    return point.commit, point.snapshot


def readers(root: CheckpointFolder, step: str, commit: Commit) -> Iterator[tuple[StateReader, CheckpointFolder]]:
    """Yield what reads each partition of a step's state, and the path of its manifest; `root` is the state's folder."""
    for partition, ref in sorted(commit.state[step].items(), key=lambda named: int(named[0])):
        folder = root / step / partition
        manifest = Manifest.read(folder / ref.path, StateRef(ref.path, ref.size, ref.checksum))
        retain(folder, manifest.sizes)  # who reads a job for days would keep all that was merged since
        reader = StateReader(folder, manifest)
        if (part := _of_partials(reader)) is not None:
            read = reads(_layout(reader, folder / ref.path), manifest.facts, manifest.facts.get(LAYOUT))
            reader = StateReader(folder, manifest, Adapters({part: read}, read.generation))
        elif reader.stored(SESSIONS) is not None and AGGREGATES in manifest.facts:
            of_sessions = reads_sessions(_sessions(reader, folder / ref.path), manifest.facts, manifest.facts[LAYOUT])
            reader = StateReader(folder, manifest, Adapters({SESSIONS: of_sessions}, of_sessions.generation))
        yield reader, folder / ref.path


def _schema(reader: StateReader, path: CheckpointFolder) -> list[pa.Schema]:
    """Return the columns that a partition's rows have when they are read; none for a partition without rows."""
    stored = [(part, reader.schema(part.name)) for part in _main_parts(reader, path)]
    return [_readable(reader, path, part)(s.empty_table()).schema for part, s in stored if s is not None]


def _of_partition(reader: StateReader, path: CheckpointFolder) -> Iterator[pa.Table]:
    for part in _main_parts(reader, path):
        shown = _readable(reader, path, part)
        yield from (shown(rows) for rows in live_rows(reader, part.name, {part.name: part}))


def _main_parts(reader: StateReader, path: CheckpointFolder) -> list[Part]:
    """Return the parts whose rows the main table shows, without those that have no rows."""
    combine = None if _of_partials(reader) is None else _layout(reader, path).combine
    described = reader.facts.get(PARTS, _before_parts(reader.manifest)).items()
    shown = [(name, part) for name, part in described if part.get("table") == MAIN and reader.manifest.chain(name)]
    return [Part.read(name, part, combine) for name, part in shown]


def _before_parts(manifest: Manifest) -> Mapping[str, Mapping[str, Any]]:
    """Return what a manifest means that was written when none described its parts."""
    kinds = {SLICES: Merge.COMBINE, STATE: Merge.LATEST}
    return {name: {"merge": kind, "identity": manifest.keys, "table": MAIN} for name, kind in kinds.items()}


def _readable(reader: StateReader, path: CheckpointFolder, part: Part) -> Callable[[pa.Table], pa.Table]:
    if part.name == PANES:
        return panes_readable
    return _layout(reader, path).readable if part.merge is Merge.COMBINE else readable


def _of_partials(reader: StateReader) -> str | None:
    """Return the part that has partials of windows: slices, or where there are early panes the windows themselves."""
    if reader.stored(SLICES) is not None:
        return SLICES
    return PANES if with_values(reader.stored(PANES)) else None


def with_values(of_panes: pa.Schema | None) -> bool:
    """Return whether the part PANES, whose columns these are, has the values of windows, as where panes are early."""
    return of_panes is not None and ROWS in of_panes.names


def _layout(reader: StateReader, path: CheckpointFolder) -> PartialLayout:
    """Return how a partition's partials are kept, as its manifest describes it."""
    part = _of_partials(reader)
    schema = None if part is None else reader.stored(part)
    assert schema is not None
    return PartialLayout(plan=_plan(reader, path), keys=_keys(reader, schema))


def _sessions(reader: StateReader, path: CheckpointFolder) -> SessionLayout:
    """Return how a partition's sessions are kept, as far as their partials and keys go."""
    schema = reader.stored(SESSIONS)
    assert schema is not None
    return SessionLayout(plan=_plan(reader, path), keys=_keys(reader, schema))


def _plan(reader: StateReader, path: CheckpointFolder) -> AggregatePlan:
    try:
        return AggregatePlan.read(reader.facts[AGGREGATES])
    except (KeyError, TypeError, ValueError) as why:
        raise CheckpointCorrupt(
            "its manifest does not say how slices are merged; a batch that changes it, written by this version, does",
            where=str(path),
        ) from why


def _keys(reader: StateReader, schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in reader.manifest.keys])
