"""Delete the files of a Delta table that nothing needs: no reader, no Commit, and no restore.

A file goes if all of this holds:

- the newest version does not name it, and no version did within the table's own retention
  (`delta.deletedFileRetentionDuration`, a week by default);
- it is older than a day, so that it is of no batch that runs now;
- no Commit names it as staged, since a batch may wait for its publication;
- it is in no version that a restore of the job may put in force again;
- it was in a version once, or is not named as tasks name what they stage, or it is older than 90 days. Another job that
  writes to the table may have committed it, and publishes it when it starts again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from penstock.sinks.base import Needed
from penstock.sinks.delta.restore import shown_version
from penstock.sinks.delta.table import load

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["vacuum"]

_DAY = 86_400.0
_OTHERS = 90 * _DAY
"""How long a stream may be down that shares the table with the one whose upkeep runs."""
_STAGED = re.compile(r"\d{12}-\d+-[0-9a-f]{12}-.+\.parquet")
"""The names that `runtime.tasks.staging.TaskFiles` gives: batch, epoch and run first."""


def vacuum(path: Path, needed: Needed, *, now: float) -> tuple[int, int]:
    """Delete what nothing needs, and return how many files and bytes went; `now` in seconds since 1970.

    `needed.staged` are relative to the table's folder where files are staged there.
    """
    table = load(path)
    if table is None:
        return 0, 0
    # What is committed from here on is younger than a day, or staged.
    unnamed = table.vacuum(dry_run=True, enforce_retention_duration=False, full=True)
    removed = set(table.vacuum(dry_run=True, enforce_retention_duration=False, full=False))
    spared = {*needed.staged, *_of_restores(table, path, needed)}
    deleted = size = 0
    for name in unnamed:
        file = path / name
        if not name.endswith(".parquet") or name in spared:
            continue
        try:
            status = file.stat()
        except FileNotFoundError:  # another program deletes too
            continue
        least = _OTHERS if name not in removed and _STAGED.fullmatch(name) else _DAY
        if status.st_mtime < now - least:
            file.unlink(missing_ok=True)
            deleted, size = deleted + 1, size + status.st_size
    return deleted, size


def _of_restores(table: DeltaTable, path: Path, needed: Needed) -> Iterator[str]:
    """Yield the files of the versions that restores may put in force again; a version without a log is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    newest = table.version()
    versions = {shown_version(path, newest, target) for target in needed.targets} - {None, newest}
    for version in sorted(version for version in versions if version is not None):
        try:
            then = DeltaTable(str(path), version=version)
        except DeltaError:
            continue
        yield from map(unquote, pa.table(then.get_add_actions())["path"].to_pylist())
