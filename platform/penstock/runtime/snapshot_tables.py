"""Find the tables that data checkpoints write, and what their versions are of (DESIGN 5). No Spark.

Each stateful step has a Delta table, `snapshots/<step>` below the job's checkpoint: its whole state as of a batch.
The commit of a version carries the Commit of that batch, so a version is all that is needed to go back to it, however
much of the log was purged. Steps whose functions can set timers have a second table, `snapshots/<step>.timers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.checkpoint.entries import Commit, from_text
from penstock.errors import CannotRestore
from penstock.graph.names import is_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "BATCH",
    "COMMIT",
    "PARTITION",
    "TIMERS_AT",
    "Snapshot",
    "SnapshotVersion",
    "app_id",
    "find_snapshot",
    "forget_old",
    "is_ours",
    "open_table",
    "snapshot_steps",
    "snapshots_of",
    "storable",
    "table_path",
    "versions",
]

BATCH, COMMIT, TIMERS_AT = "penstock.batch", "penstock.commit", "penstock.timers"
"""What the commit of a version says: the batch and the Commit that it is of, and the version of the table of timers."""
PARTITION = "_state_partition"
"""The column by which the tables are partitioned: the partition of the state that a key is in."""


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """Hold one version of a step's table: its batch is that of the Commit. `timers` is the version of that table."""

    step: str
    version: int
    commit: Commit
    timers: int | None


def table_path(folder: Path, step: str, table: str = "") -> Path:
    """Return where a table of a step stands below the job's checkpoint folder."""
    return folder / "snapshots" / (f"{step}.{table}" if table else step)


def app_id(uuid: str, step: str, table: str = "") -> str:
    """Return the app id under which the batches of a checkpoint are written to a table."""
    return f"{uuid}/snapshots/{step}.{table}" if table else f"{uuid}/snapshots/{step}"


def open_table(path: Path) -> DeltaTable | None:
    """Return the table, None where there is none yet."""
    from deltalake import DeltaTable

    return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None


def versions(folder: Path, step: str) -> list[SnapshotVersion]:
    """Return the versions of a step's table that can be read, oldest first."""
    table = open_table(table_path(folder, step))
    return [] if table is None else list(_readable(table, step))


def snapshot_steps(folder: Path) -> list[str]:
    """Return the steps that have a table of snapshots."""
    root = folder / "snapshots"
    return sorted(path.name for path in root.iterdir() if is_name(path.name)) if root.is_dir() else []


def snapshots_of(folder: Path) -> list[dict[str, SnapshotVersion]]:
    """Return the data checkpoints that can be gone back to, oldest first: those that every step's table has."""
    by_batch: dict[tuple[int, str], dict[str, SnapshotVersion]] = {}
    for step in snapshot_steps(folder):
        for found in versions(folder, step):
            by_batch.setdefault((found.commit.batch, found.commit.writer), {})[step] = found
    whole = [steps for steps in by_batch.values() if all(set(one.commit.state) <= set(steps) for one in steps.values())]
    return sorted(whole, key=lambda steps: next(iter(steps.values())).commit.batch)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold a data checkpoint: the Commit that it is of, and the version of each step's table."""

    commit: Commit
    steps: Mapping[str, SnapshotVersion]


def find_snapshot(folder: Path, name: str) -> Snapshot:
    """Return the data checkpoint with a version, `VERSION` or `STEP@VERSION`, of its steps' tables.

    Raises CannotRestore, with what there is, where none has it, or where those of several batches do.
    """
    step, _, version = name.rpartition("@")
    kept = snapshots_of(folder)
    found = [
        steps
        for steps in kept
        if any(one.version == int(version) and (not step or one.step == step) for one in steps.values())
    ]
    if len(found) == 1:
        return Snapshot(next(iter(found[0].values())).commit, found[0])
    there = "; ".join(
        f"batch {next(iter(steps.values())).commit.batch}: "
        + ", ".join(f"{s}@{one.version}" for s, one in steps.items())
        for steps in kept
    )
    said = "is of several batches; name the step, as in snapshot=STEP@VERSION" if found else "is not kept"
    raise CannotRestore(f"snapshot {name} {said}; there is {there or 'none'}", where=str(folder / "snapshots"))


def _readable(table: DeltaTable, step: str) -> Iterator[SnapshotVersion]:
    from deltalake import DeltaTable

    for said in sorted(table.history(), key=lambda entry: entry["version"]):
        if COMMIT not in said:
            continue  # Penstock's own vacuum, or somebody who edited the table
        version = int(said["version"])
        files = DeltaTable(table.table_uri, version=version).file_uris()
        if all(Path(uri.removeprefix("file://")).is_file() for uri in files):
            timers = json.loads(said.get(TIMERS_AT, "null"))
            yield SnapshotVersion(step, version, from_text(said[COMMIT]), timers)


def is_ours(table: DeltaTable | None) -> bool:
    """Return whether the newest commit of a table is a data checkpoint, or what was cleared away behind one."""
    return table is not None and BATCH in table.history(1)[0]


def forget_old(table: DeltaTable, keep: int) -> None:
    """Delete the files that none of the newest `keep` data checkpoints has."""
    from deltalake import CommitProperties

    made = sorted(
        int(entry["version"]) for entry in table.history() if BATCH in entry and "VACUUM" not in entry["operation"]
    )
    if len(made) > keep:
        table.vacuum(
            retention_hours=0,
            dry_run=False,
            enforce_retention_duration=False,
            keep_versions=made[-keep:],
            commit_properties=CommitProperties(custom_metadata={BATCH: "-1"}),
        )


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the columns as a Delta table can have them: intervals as microseconds."""
    return pa.schema([f.with_type(pa.int64()) if pa.types.is_duration(f.type) else f for f in schema])
