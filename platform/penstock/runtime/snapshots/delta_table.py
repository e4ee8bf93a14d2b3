"""Let delta-rs commit to the table of a data checkpoint, and delete files that it no longer needs (DESIGN 5).

A table on HDFS is written through a local copy of its log, in which delta-rs commits. The new files are then carried to
HDFS, data first, then the log's entries. Each is created exclusively, so that of two drivers one writes a version.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local import make_durable
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.new_file import state_errors
from penstock.errors import Fenced

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "BATCH",
    "EPOCH",
    "RUN",
    "Files",
    "checked",
    "files_of",
    "forget_files",
    "is_ours",
    "log_problem",
    "names_in",
    "open_table",
    "refuse_newer",
    "working_copy",
]

BATCH, EPOCH, RUN = "penstock.batch", "penstock.epoch", "penstock.run"
"""What the commit of a version says: the batch that it is of, and the epoch and run that made it."""
Files = dict[str, tuple[int, int]]
"""Size and crc32 of each file, by its path below the table."""
_LOG = "_delta_log"
_PIECE = 2**22
_GRACE = 3_600.0
"""Seconds for which a file that no version names may still be that of a commit to come."""


@contextmanager
def working_copy(path: CheckpointFolder) -> Iterator[LocalFolder]:
    """Yield the folder to write to a table in: the table's own, or of one on HDFS one with a copy of its log.

    After the block the new files of a copy are carried to HDFS. Raises AlreadyExists where another driver has written
    the version; then nothing of it is in the table.
    """
    if not isinstance(path, HdfsFolder):
        own = LocalFolder(path.here)
        before = set(_written(own))
        yield own
        made_here = [own / made for made in set(_written(own)) - before]
        # delta-rs syncs nothing, and the next Commit names the version (F73).
        for made in (*made_here, *sorted({file.parent for file in made_here}), own, own.parent):
            make_durable(made)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-table-") as place:
        copy = LocalFolder(place)
        for entry in (path / _LOG).files():
            (copy / _LOG).mkdir(exist_ok=True)
            (copy / _LOG / entry.name).write_bytes(entry.read())
        before = set(_written(copy))
        yield copy
        # A summary of the log comes after the entry that it sums up: until then it is another's to write.
        fresh = set(_written(copy)) - before
        for name in sorted(fresh, key=lambda written: (written.parts[0] == _LOG, _is_summary(written), written)):
            (path / str(name)).carry(copy / name)


def _written(copy: Path) -> Iterator[Path]:
    """Yield the files in a working copy but the one that is changed in place: it only saves a listing."""
    files = (Path(place, name) for place, _, names in os.walk(copy) for name in names)
    return (
        file.relative_to(copy) for file in files if file.name != "_last_checkpoint" and not file.name.startswith(".")
    )


def _is_summary(file: Path | CheckpointFolder) -> bool:
    return file.name.endswith(".checkpoint.parquet")


def open_table(path: Path) -> DeltaTable | None:
    """Return the table in a folder of this machine, None where there is none yet."""
    from deltalake import DeltaTable

    return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None


def log_problem(path: CheckpointFolder, version: int, files: Files) -> str | None:
    """Return why a table cannot be read as of a version, which has these files; None where it can.

    An empty entry of the log is one without actions to Delta, so files that were replaced would show again.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with working_copy(path) as copy:
            table = DeltaTable(copy, version=version)
            newest, shown = table.version(), names_in(table)
    except (DeltaError, OSError) as why:
        return (str(why) or type(why).__name__).splitlines()[0]
    if newest != version:
        return f"its log ends at version {newest}"
    return None if shown == files.keys() else "its log shows other files than the snapshot has"


def names_in(table: DeltaTable) -> set[str]:
    """Return the names of the files that a version of a table has."""
    return set(pa.table(table.get_add_actions())["path"].to_pylist())


def is_ours(table: DeltaTable | None) -> bool:
    """Return whether the newest commit of a table is a data checkpoint, or the clean-up after one."""
    return table is not None and BATCH in table.history(1)[0]


def refuse_newer(table: DeltaTable | None, epoch: int, step: str) -> None:
    """Raise Fenced where a driver of a later epoch has written the table."""
    newest = next((commit for commit in table.history(5) if EPOCH in commit), None) if table is not None else None
    if newest is not None and int(newest[EPOCH]) > epoch:
        raise Fenced(f"a driver of epoch {newest[EPOCH]} has written the table of step {step!r}")


def files_of(
    table: DeltaTable, copy: LocalFolder, path: CheckpointFolder, known: Mapping[str, tuple[int, int]]
) -> Files:
    """Return size and checksum of the files of a version of the table at `path`, of which `copy` is the working copy.

    `known` are those of an older version.
    """
    names = names_in(table)
    fresh: dict[str, CheckpointFolder] = {
        name: copy / name if (copy / name).is_file() else path / name for name in names if name not in known
    }
    return {name: known[name] if name in known else checked(fresh[name]) for name in names}


def checked(path: CheckpointFolder) -> tuple[int, int]:
    """Return size and crc32 of a file; raises StateMissing where there is none."""
    size = checksum = 0
    with state_errors(str(path)), path.fetch().open("rb") as file:
        while data := file.read(_PIECE):
            size, checksum = size + len(data), zlib.crc32(data, checksum)
    return size, checksum


def forget_files(
    path: CheckpointFolder, kept: Mapping[int, Files], gone: Collection[str], *, epoch: int, step: str
) -> None:
    """Delete the files of a table that neither its newest version needs nor one of those kept, and the log before them.

    `kept` has the files of each version, `gone` names those of deleted versions. On HDFS, other files that no version
    names stay for an hour: another driver may be about to commit them.
    Raises Fenced where a driver that took over has written the table.
    """
    from deltalake import CommitProperties, DeltaTable

    # Listed before the table is read: files that are committed after that are not in the list.
    listed = path.files(before=time.time() - _GRACE) if isinstance(path, HdfsFolder) else []
    with working_copy(path) as copy:
        table = open_table(copy)
        if table is None:
            return
        refuse_newer(table, epoch, step)
        if isinstance(path, HdfsFolder):
            named = names_in(table).union(*kept.values())
            data = {file.relative_to(path).as_posix() for file in listed if file.name.endswith(".parquet")}
            deleted = {name for name in {*data, *gone} - named if not name.startswith(_LOG)}
            path.remove_files([path / name for name in sorted(deleted)])
        else:
            table.vacuum(
                retention_hours=0,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,  # files too that a writer which was killed has left
                keep_versions=list(kept),
                commit_properties=CommitProperties(custom_metadata={BATCH: "-1"}),
            )
        DeltaTable(copy).create_checkpoint()
    _forget_log(path, kept)


def _forget_log(path: CheckpointFolder, kept: Collection[int]) -> None:
    """Delete what Delta's log of a table has from before the versions that are kept, oldest first.

    Delta itself lets entries go by their age alone, of which a short interval makes thousands in the meantime.
    The log is summed up each time, so that the oldest version kept can be read without what came before it.
    """
    files = [file for file in (path / _LOG).files() if file.name.split(".")[0].isdecimal()]
    summed_up = [_number(file) for file in files if _is_summary(file)]
    first = max((number for number in summed_up if number <= min(kept, default=-1)), default=0)
    path.remove_files([file for file in files if _number(file) < first])


def _number(file: CheckpointFolder) -> int:
    return int(file.name.split(".")[0])
