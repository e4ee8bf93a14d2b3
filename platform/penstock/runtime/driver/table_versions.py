"""Record in the Offsets of a batch which versions of tables it joins, and decide when a newer one is due."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import PenstockError
from penstock.graph.join_static import OnNewVersion, Refresh
from penstock.graph.schedules import EveryBatches

__all__ = ["FILES", "TABLES", "RecordedTables", "Version", "file_name", "looks", "recorded_tables", "tables_of"]

TABLES = "tables"
FILES = ("staged", "_tables")  # no sink has such a name
"""The folder below the checkpoint that has the files of versions."""
"""The setting of a batch that has the version of each table that it joins, by the name of the step."""
Version = Mapping[str, Any]
"""A version as the Offsets have it: the table's `id`, `version` and `fingerprint`, and the batch that took it up.

`id` and `version` are those of Delta: "" and None of a function's rows. `taken` is the batch. `columns` names what the
batch joins; older drivers have not written them.
"""


@dataclass(frozen=True, slots=True)
class RecordedTables:
    """The versions of tables that a log names, by the names of the steps.

    `fixed` has those of a batch that runs again, `committed` those of the last Commit, and `batch` is the next one.
    """

    fixed: Mapping[str, Version] = field(default_factory=dict)
    committed: Mapping[str, Version] = field(default_factory=dict)
    batch: int = 0

    def kept(self, step: str, refresh: Refresh) -> Version | None:
        """Return the version of the last Commit, where the next batch of the step uses it too."""
        known = self.committed.get(step)
        return None if known is None or looks(refresh, known, self.batch) else known


def file_name(step: str, version: Mapping[str, Any]) -> str:
    """Return the name of the file that has the rows of a version."""
    return f"{step}-{version['fingerprint']}.arrow"


def tables_of(offsets: Offsets) -> dict[str, dict[str, Any]]:
    """Return the version of each table that a batch joins, by the name of the step."""
    return cast("dict[str, dict[str, Any]]", offsets.settings.get(TABLES, {}))


def recorded_tables(folder: CheckpointFolder) -> RecordedTables:
    """Return the versions of tables that the next batch continues with; `folder` is the job's checkpoint.

    A log that cannot be read is no error here: a start reads it again, and reports what is wrong with it.
    """
    with suppress(PenstockError):
        log = job_log(folder, identified=False)
        if log is not None:
            recovered = recover(log, Damage.LIST)
            return RecordedTables(
                fixed={} if recovered.pending is None else tables_of(recovered.pending),
                committed={} if recovered.commit is None else recovered.commit.tables,
                batch=recovered.next_batch,
            )
    return RecordedTables()


def looks(refresh: Refresh, known: Version, batch: int) -> bool:
    """Return whether a batch takes the newest version, where the one before it used a known one."""
    match refresh:
        case EveryBatches(batches=batches):
            return batch - int(known["taken"]) >= batches
        case OnNewVersion():
            return True
        case None:
            return False
