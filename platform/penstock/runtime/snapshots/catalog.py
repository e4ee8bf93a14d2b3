"""Find the tables of data checkpoints, and the batches of their versions (DESIGN 5). No Spark.

Each stateful step has a Delta table, `snapshots/<step>` below the job's checkpoint: its whole state as of a batch.
Beside Delta's own log there is a record for each kept version, `_penstock/<version>.json`. It has the Commit of that
batch, and the size and checksum of each file. So a version can be restored without the job's log, however much of that
was purged. Steps whose functions can set timers have a second table, `snapshots/<step>.timers`, whose files are in the
record too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

import pyarrow as pa
from pydantic import ValidationError

from penstock.checkpoint.log.entries import Commit, Record
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CannotRestore, CheckpointCorrupt, StateMissing
from penstock.graph.names import is_name
from penstock.operators.protocol import TIMERS
from penstock.runtime.snapshots.delta_table import Files, checked, forget_files, log_problem

__all__ = [
    "PARTITION",
    "Snapshot",
    "SnapshotVersion",
    "find_snapshot",
    "forget_old",
    "snapshot_problems",
    "snapshot_steps",
    "snapshots_of",
    "storable",
    "table_path",
    "unreadable_tables",
    "verify_snapshot",
    "versions",
    "write_record",
]

PARTITION = "_state_partition"
"""The column by which the tables are partitioned: the partition of the state that a key is in."""
_RECORDS, _KIND = "_penstock", "snapshot"


class SnapshotVersion(Record):
    """One version of a step's table: its batch is that of the Commit. `timers` is the version of that table.

    `layout` and `keys` say what the step kept then, in words and by name.
    """

    step: str
    layout: str
    keys: list[str]
    version: int
    rows: int
    files: Files
    timers: int | None
    timer_files: Files
    commit: Commit

    @property
    def tables(self) -> dict[str, tuple[int, Files]]:
        """Return the version and the files of the step's table, and of its timers' where it has one."""
        timers = {} if self.timers is None else {TIMERS: (self.timers, self.timer_files)}
        return {"": (self.version, self.files), **timers}


def table_path(folder: CheckpointFolder, step: str, table: str = "") -> CheckpointFolder:
    """Return the folder of a step's table below the job's checkpoint folder."""
    return folder / "snapshots" / (f"{step}.{table}" if table else step)


def write_record(folder: CheckpointFolder, record: SnapshotVersion) -> None:
    """Write the record of a version, durably; from then on the version can be restored."""
    place = table_path(folder, record.step) / _RECORDS / f"{record.version:012d}.json"
    place.parent.make()
    place.create(fileformat.encode(_KIND, record.model_dump(mode="json")))


def versions(folder: CheckpointFolder, step: str) -> list[SnapshotVersion]:
    """Return the versions of a step's table that are kept and whose files are there, oldest first."""
    return [record for record in _readable(_records(folder, step)) if not _missing(folder, record)]


def _readable(paths: Iterable[CheckpointFolder]) -> list[SnapshotVersion]:
    return [record for path in paths if isinstance(record := _read(path), SnapshotVersion)]


def snapshot_problems(folder: CheckpointFolder) -> Iterator[tuple[str, str]]:
    """Yield the versions of all steps that are not as they were written, `STEP@VERSION`, and what is wrong."""
    for step in snapshot_steps(folder):
        for path in _records(folder, step):
            record = _read(path)
            name = f"{step}@{_version(path)}"
            if not isinstance(record, SnapshotVersion):
                yield name, record.what
                continue
            try:
                verify_snapshot(folder, record)
            except CheckpointCorrupt as why:
                if path.size() is not None:  # else it was deleted meanwhile
                    yield name, f"{why.what} ({why.where})"


def unreadable_tables(folder: CheckpointFolder) -> Iterator[tuple[CheckpointFolder, str]]:
    """Yield tables of snapshots whose own log does not show every version that is kept, and what is wrong."""
    for step in snapshot_steps(folder):
        kept = versions(folder, step)
        for table in ("", TIMERS):
            path = table_path(folder, step, table)
            shown = dict(record.tables[table] for record in kept if table in record.tables)
            for number in sorted(shown):
                why = log_problem(path, number, shown[number])
                if why is not None:
                    yield path, f"the table {path} cannot be read as of version {number}: {why}"
                    break


def verify_snapshot(folder: CheckpointFolder, record: SnapshotVersion) -> None:
    """Read all files of a version; raises CheckpointCorrupt for the first that is not as it was written."""
    for path, size, checksum in _named(folder, record):
        try:
            known = checked(path)
        except (FileNotFoundError, StateMissing):
            raise corrupt(str(path), "a file of the snapshot is gone") from None
        if known != (size, checksum) and not (path.fetch_anew() and checked(path) == (size, checksum)):
            raise corrupt(str(path), "a file of the snapshot is not as it was written")


def _named(folder: CheckpointFolder, record: SnapshotVersion) -> Iterator[tuple[CheckpointFolder, int, int]]:
    for table, (_, files) in record.tables.items():
        for name, (size, checksum) in files.items():
            yield table_path(folder, record.step, table) / name, size, checksum


def _missing(folder: CheckpointFolder, record: SnapshotVersion) -> bool:
    return any(path.size() != size for path, size, _ in _named(folder, record))


def _records(folder: CheckpointFolder, step: str) -> list[CheckpointFolder]:
    named = ((path, PurePath(path.name)) for path in (table_path(folder, step) / _RECORDS).files())
    return [
        path for path, name in named if name.stem.isdecimal() and name.suffix == ".json"
    ]  # an editor's copy is none


def _version(path: CheckpointFolder) -> int:
    return int(PurePath(path.name).stem)


def _read(path: CheckpointFolder) -> SnapshotVersion | CheckpointCorrupt:
    try:
        _, body = fileformat.decode(path.read(), kind=_KIND, path=str(path))
        return SnapshotVersion.model_validate_json(json.dumps(body))  # JSON has no tuples
    except StateMissing:
        return corrupt(str(path), "its record is gone")
    except CheckpointCorrupt as why:
        return why
    except ValidationError as why:
        return corrupt(str(path), f"not the fields of a snapshot: {why.errors()[0]['loc']}")


def snapshot_steps(folder: CheckpointFolder) -> list[str]:
    """Return the steps that have a table of snapshots."""
    root = folder / "snapshots"
    names = {path.relative_to(root).parts[0] for path in root.files()}
    return sorted(name for name in names if is_name(name))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A data checkpoint: its Commit, and the version of each step's table."""

    commit: Commit
    steps: Mapping[str, SnapshotVersion]

    @property
    def names(self) -> list[str]:
        """Return how a person names it, by each of its steps."""
        return [f"{step}@{record.version}" for step, record in self.steps.items()]


def snapshots_of(folder: CheckpointFolder) -> list[Snapshot]:
    """Return the data checkpoints that can be restored, oldest first: those that every step's table has."""
    by_batch: dict[tuple[int, str], dict[str, SnapshotVersion]] = {}
    for step in snapshot_steps(folder):
        for version in versions(folder, step):
            by_batch.setdefault((version.commit.batch, version.commit.writer), {})[step] = version
    snapshots = (Snapshot(next(iter(steps.values())).commit, steps) for steps in by_batch.values())
    return sorted(filter(_is_whole, snapshots), key=lambda snapshot: snapshot.commit.batch)


def _is_whole(snapshot: Snapshot) -> bool:
    return all(record.commit.state.keys() <= snapshot.steps.keys() for record in snapshot.steps.values())


def find_snapshot(folder: CheckpointFolder, name: str) -> Snapshot:
    """Return the data checkpoint with a version, `VERSION` or `STEP@VERSION`, of its steps' tables.

    Raises CannotRestore, with what there is, where none has it, or where those of several batches do.
    """
    step, _, version = name.rpartition("@")
    kept = snapshots_of(folder)
    matching = [
        snapshot
        for snapshot in kept
        if any(record.version == int(version) and step in ("", record.step) for record in snapshot.steps.values())
    ]
    if len(matching) == 1:
        return matching[0]
    listed = "; ".join(f"batch {snapshot.commit.batch}: {', '.join(snapshot.names)}" for snapshot in kept)
    problem = "is of several batches; name the step, as in snapshot=STEP@VERSION" if matching else "is not kept"
    raise CannotRestore(f"snapshot {name} {problem}; there is {listed or 'none'}", where=str(folder / "snapshots"))


def forget_old(folder: CheckpointFolder, steps: Collection[str], keep: int, *, epoch: int) -> None:
    """Delete all but the newest `keep` data checkpoints of these steps: records first, then files they alone had.

    An interrupted one, which not all of its steps have, is not counted and deleted too.
    """
    # Sorted by version, the order of their making: after a restore, the batches before it have greater ids.
    newest_last = sorted(snapshots_of(folder), key=lambda snapshot: max(r.version for r in snapshot.steps.values()))
    counted = newest_last[-keep:]
    for step in steps:
        wanted = {snapshot.steps[step].version for snapshot in counted if step in snapshot.steps}
        places = _records(folder, step)
        old = [path for path in places if _version(path) not in wanted]
        if not old:
            continue
        deleted = _readable(old)
        folder.remove_files(old)  # before their files: a crash must leave no record without its files
        kept = _readable(path for path in places if path not in old)
        for table in ("", TIMERS):
            files = dict(version.tables[table] for version in kept if table in version.tables)
            gone = {name for version in deleted if table in version.tables for name in version.tables[table][1]}
            forget_files(table_path(folder, step, table), files, gone, epoch=epoch, step=step)


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the columns as a Delta table can have them: intervals as microseconds, wherever they stand."""
    return pa.schema([f.with_type(_storable(f.type)) for f in schema])


def _storable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_storable(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_storable(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_storable(kind.key_type), kind.item_field.with_type(_storable(kind.item_type)))
    return kind
