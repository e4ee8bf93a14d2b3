"""Find the tables that data checkpoints write, and what their versions are of (DESIGN 5). No Spark.

Each stateful step has a Delta table, `snapshots/<step>` below the job's checkpoint: its whole state as of a batch.
Beside Delta's own log there is a record for each version that is kept, `_penstock/<version>.json`: the Commit of that
batch, and size and checksum of each file. So a version is all that is needed to go back to it, however much of the
job's log was purged. Steps whose functions can set timers have a second table, `snapshots/<step>.timers`, whose files
stand in the record too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import ValidationError

from penstock.checkpoint import format as fileformat
from penstock.checkpoint.entries import Commit, Record
from penstock.checkpoint.store import corrupt
from penstock.errors import CannotRestore, CheckpointCorrupt, StateMissing
from penstock.graph.names import is_name
from penstock.state.files import NewFile, make_folder, read_file, sync_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "BATCH",
    "EPOCH",
    "PARTITION",
    "RUN",
    "Snapshot",
    "SnapshotVersion",
    "app_id",
    "files_of",
    "find_snapshot",
    "forget_old",
    "is_ours",
    "newest_snapshot",
    "open_table",
    "snapshot_problems",
    "snapshot_steps",
    "snapshots_of",
    "storable",
    "table_path",
    "verify_snapshot",
    "versions",
    "write_record",
]

BATCH, EPOCH, RUN = "penstock.batch", "penstock.epoch", "penstock.run"
"""What the commit of a version says: the batch that it is of, and the epoch and run that made it."""
PARTITION = "_state_partition"
"""The column by which the tables are partitioned: the partition of the state that a key is in."""
_RECORDS, _KIND = "_penstock", "snapshot"
_PIECE = 2**22

Files = dict[str, tuple[int, int]]
"""Size and crc32 of each file, by its path below the table."""


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


def files_of(table: DeltaTable, path: Path) -> Files:
    """Return size and checksum of the files of a table's version; `path` is that of the table."""
    names = pa.table(table.get_add_actions())["path"].to_pylist()
    return {name: _checked(path / name) for name in names}


def write_record(folder: Path, record: SnapshotVersion) -> None:
    """Write the record of a version, durably; behind it, the version can be gone back to."""
    place = table_path(folder, record.step) / _RECORDS
    make_folder(place)
    with NewFile(place, f"{record.version:012d}.json") as file:
        file.write(fileformat.encode(_KIND, record.model_dump(mode="json")))
        file.publish()
    sync_folder(place)


def versions(folder: Path, step: str) -> list[SnapshotVersion]:
    """Return the versions of a step's table that are kept and whose files are there, oldest first."""
    found = (_read(path) for path in _records(folder, step))
    return [one for one in found if isinstance(one, SnapshotVersion) and not _missing(folder, one)]


def snapshot_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the versions of all steps that are not as they were written, `STEP@VERSION`, and what is wrong."""
    for step in snapshot_steps(folder):
        for path in _records(folder, step):
            found = _read(path)
            name = f"{step}@{int(path.stem)}"
            if not isinstance(found, SnapshotVersion):
                yield name, found.what
                continue
            try:
                verify_snapshot(folder, found)
            except CheckpointCorrupt as why:
                if path.exists():  # else it was let go meanwhile
                    yield name, f"{why.what} ({why.where})"


def verify_snapshot(folder: Path, found: SnapshotVersion) -> None:
    """Read all files of a version; raises CheckpointCorrupt for the first that is not as it was written."""
    for path, size, checksum in _named(folder, found):
        try:
            known = _checked(path)
        except FileNotFoundError:
            raise corrupt(str(path), "a file of the snapshot is gone") from None
        if known != (size, checksum):
            raise corrupt(str(path), "a file of the snapshot is not as it was written")


def _named(folder: Path, found: SnapshotVersion) -> Iterator[tuple[Path, int, int]]:
    for table, files in (("", found.files), ("timers", found.timer_files)):
        for name, (size, checksum) in files.items():
            yield table_path(folder, found.step, table) / name, size, checksum


def _missing(folder: Path, found: SnapshotVersion) -> bool:
    return any(not path.is_file() or path.stat().st_size != size for path, size, _ in _named(folder, found))


def _checked(path: Path) -> tuple[int, int]:
    size = checksum = 0
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            size, checksum = size + len(data), zlib.crc32(data, checksum)
    return size, checksum


def _records(folder: Path, step: str) -> list[Path]:
    found = (table_path(folder, step) / _RECORDS).glob("*.json")
    return sorted(path for path in found if path.stem.isdecimal())


def _read(path: Path) -> SnapshotVersion | CheckpointCorrupt:
    try:
        _, body = fileformat.decode(read_file(path), kind=_KIND, path=str(path))
        return SnapshotVersion.model_validate_json(json.dumps(body))  # JSON has no tuples
    except StateMissing:
        return corrupt(str(path), "its record is gone")
    except CheckpointCorrupt as why:
        return why
    except ValidationError as why:
        return corrupt(str(path), f"not the fields of a snapshot: {why.errors()[0]['loc']}")


def snapshot_steps(folder: Path) -> list[str]:
    """Return the steps that have a table of snapshots."""
    root = folder / "snapshots"
    return sorted(path.name for path in root.iterdir() if is_name(path.name)) if root.is_dir() else []


def newest_snapshot(folder: Path) -> Commit | None:
    """Return the Commit that the newest data checkpoint is of, None where there is none."""
    found = snapshots_of(folder)
    return next(iter(found[-1].values())).commit if found else None


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


def is_ours(table: DeltaTable | None) -> bool:
    """Return whether the newest commit of a table is a data checkpoint, or what was cleared away behind one."""
    return table is not None and BATCH in table.history(1)[0]


def forget_old(folder: Path, steps: Collection[str], keep: int) -> None:
    """Let go of all but the newest `keep` data checkpoints of these steps: records first, then files they alone had.

    One that was cut short, so that not all of its steps have it, is not counted; it goes as well.
    """
    # In the order they were made: behind a restore, batches of before it have greater ids.
    counted = sorted(snapshots_of(folder), key=lambda steps: max(found.version for found in steps.values()))[-keep:]
    for step in steps:
        _forget(folder, step, {found[step].version for found in counted if step in found})


def _forget(folder: Path, step: str, wanted: set[int]) -> None:
    from deltalake import CommitProperties

    places = _records(folder, step)
    old = [path for path in places if int(path.stem) not in wanted]
    if not old:
        return
    for path in old:
        path.unlink(missing_ok=True)
    kept = [one for path in places if path not in old and isinstance(one := _read(path), SnapshotVersion)]
    for table, numbers in (("", [one.version for one in kept]), ("timers", [one.timers for one in kept])):
        path, versions_kept = table_path(folder, step, table), [number for number in numbers if number is not None]
        found = open_table(path)
        if found is not None:
            found.vacuum(
                retention_hours=0,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,  # files too that a writer which was killed has left
                keep_versions=versions_kept,
                commit_properties=CommitProperties(custom_metadata={BATCH: "-1"}),
            )
            _forget_log(path, versions_kept)


def _forget_log(path: Path, kept: list[int]) -> None:
    """Delete what Delta's log of a table has from before the versions that are kept, oldest first.

    Delta itself lets entries go by their age alone, of which a short interval makes thousands in the meantime.
    The log is summed up each time, so that the oldest version kept can be read without what came before it.
    """
    from deltalake import DeltaTable

    DeltaTable(path).create_checkpoint()
    files = sorted(file for file in (path / "_delta_log").iterdir() if file.name.split(".")[0].isdecimal())
    summed_up = [_number(file) for file in files if file.name.endswith(".checkpoint.parquet")]
    first = max((number for number in summed_up if number <= min(kept, default=-1)), default=0)
    for file in files:
        if _number(file) < first:
            file.unlink(missing_ok=True)


def _number(file: Path) -> int:
    return int(file.name.split(".")[0])


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
