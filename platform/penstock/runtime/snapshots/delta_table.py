"""Write the Delta tables of data checkpoints, and let go of what they do not need any more (DESIGN 5). No Spark.

A table on HDFS is written through a copy of its log: delta-rs commits there, and what it has written is then carried
over, data first, then the log's entries, each by exclusive create, so that of two drivers one writes a version.
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

from penstock.checkpoint.storage.filesystem import carry, files_before, files_below, have_file, read_whole, remove_files
from penstock.checkpoint.storage.hdfs_cache import is_on_hdfs
from penstock.checkpoint.storage.local import make_durable
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
def working_copy(path: Path) -> Iterator[Path]:
    """Yield the folder to write to a table in: the table's own, or of one on HDFS one with a copy of its log.

    Behind the block what was written to a copy is carried to HDFS. Raises AlreadyExists where another driver has
    written the version; then nothing of it is in the table.
    """
    if not is_on_hdfs(path):
        before = set(_written(path))
        yield path
        made_here = [path / made for made in set(_written(path)) - before]
        # delta-rs syncs nothing, and the next Commit names the version (F73).
        for made in (*made_here, *sorted({file.parent for file in made_here}), path, path.parent):
            make_durable(made)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-table-") as place:
        copy = Path(place)
        for entry in files_below(path / _LOG):
            (copy / _LOG).mkdir(exist_ok=True)
            (copy / _LOG / entry.name).write_bytes(read_whole(entry))
        before = set(_written(copy))
        yield copy
        # A summary of the log comes behind the entry that it sums up: until then it is another's to write.
        for made in sorted(set(_written(copy)) - before, key=lambda one: (one.parts[0] == _LOG, _is_summary(one), one)):
            carry(copy / made, path / made)


def _written(copy: Path) -> Iterator[Path]:
    """Yield the files in a working copy but the one that is changed in place: it only saves a listing."""
    found = (Path(place, name) for place, _, names in os.walk(copy) for name in names)
    return (one.relative_to(copy) for one in found if one.name != "_last_checkpoint" and not one.name.startswith("."))


def _is_summary(file: Path) -> bool:
    return file.name.endswith(".checkpoint.parquet")


def open_table(path: Path) -> DeltaTable | None:
    """Return the table in a folder of this machine, None where there is none yet."""
    from deltalake import DeltaTable

    return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None


def log_problem(path: Path, version: int) -> str | None:
    """Return why a table cannot be read as of a version, None where it can."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with working_copy(path) as copy:
            found: int = DeltaTable(copy, version=version).version()
    except (DeltaError, OSError) as why:
        return (str(why) or type(why).__name__).splitlines()[0]
    return None if found == version else f"its log ends at version {found}"


def is_ours(table: DeltaTable | None) -> bool:
    """Return whether the newest commit of a table is a data checkpoint, or what was cleared away behind one."""
    return table is not None and BATCH in table.history(1)[0]


def refuse_newer(table: DeltaTable | None, epoch: int, step: str) -> None:
    """Raise Fenced where a driver that took over has written the table: what is told here is of the past."""
    newest = next((said for said in table.history(5) if EPOCH in said), None) if table is not None else None
    if newest is not None and int(newest[EPOCH]) > epoch:
        raise Fenced(f"a driver of epoch {newest[EPOCH]} has written the table of step {step!r}")


def files_of(table: DeltaTable, copy: Path, path: Path, known: Mapping[str, tuple[int, int]]) -> Files:
    """Return size and checksum of the files of a version of the table at `path`, of which `copy` is the working copy.

    `known` are those of an older version.
    """
    names = pa.table(table.get_add_actions())["path"].to_pylist()
    fresh = {name: copy / name if (copy / name).is_file() else path / name for name in names if name not in known}
    return {name: known[name] if name in known else checked(fresh[name]) for name in names}


def checked(path: Path) -> tuple[int, int]:
    """Return size and crc32 of a file; raises StateMissing where there is none."""
    size = checksum = 0
    with have_file(path).open("rb") as file:
        while data := file.read(_PIECE):
            size, checksum = size + len(data), zlib.crc32(data, checksum)
    return size, checksum


def forget_files(path: Path, kept: Mapping[int, Files], gone: Collection[str], *, epoch: int, step: str) -> None:
    """Delete the files of a table that neither its newest version needs nor one of those kept, and the log before them.

    `kept` has the files of each version, `gone` names those of versions that are let go of. On HDFS, others that no
    version names stay for an hour: another driver may be about to commit them.
    Raises Fenced where a driver that took over has written the table.
    """
    from deltalake import CommitProperties

    # Listed before the table is looked at: what is committed after that is not in the list.
    there = files_before(path, time.time() - _GRACE) if is_on_hdfs(path) else []
    with working_copy(path) as copy:
        table = open_table(copy)
        if table is None:
            return
        refuse_newer(table, epoch, step)
        if is_on_hdfs(path):
            named = set(pa.table(table.get_add_actions())["path"].to_pylist()).union(*kept.values())
            data = {file.relative_to(path).as_posix() for file in there if file.suffix == ".parquet"}
            let_go = {name for name in {*data, *gone} - named if not name.startswith(_LOG)}
            remove_files([path / name for name in sorted(let_go)])
        else:
            table.vacuum(
                retention_hours=0,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,  # files too that a writer which was killed has left
                keep_versions=list(kept),
                commit_properties=CommitProperties(custom_metadata={BATCH: "-1"}),
            )
        _sum_up(copy)
    _forget_log(path, kept)


def _sum_up(copy: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(copy).create_checkpoint()


def _forget_log(path: Path, kept: Collection[int]) -> None:
    """Delete what Delta's log of a table has from before the versions that are kept, oldest first.

    Delta itself lets entries go by their age alone, of which a short interval makes thousands in the meantime.
    The log is summed up each time, so that the oldest version kept can be read without what came before it.
    """
    files = [file for file in files_below(path / _LOG) if file.name.split(".")[0].isdecimal()]
    summed_up = [_number(file) for file in files if _is_summary(file)]
    first = max((number for number in summed_up if number <= min(kept, default=-1)), default=0)
    remove_files([file for file in files if _number(file) < first])


def _number(file: Path) -> int:
    return int(file.name.split(".")[0])
