"""Publish into Delta tables so that rows replace those of their keys (decision 126).

A commit is one file in the table's log, created exclusively, as in `publisher`. It says what to remove and what to
add, and which batch that is. The first of several writers wins. The others read the table again and merge once more. So
a merge is always into the version directly before its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local import make_durable
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import SinkAhead, SinkBehind, SinkConflict, SinkRefused
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.delta.data_files import TableFiles, target_size
from penstock.sinks.delta.log_end import LogEnd, create_entry, load_with_end
from penstock.sinks.delta.log_entry import find_commit, fingerprint_of, make_entries_durable, merged
from penstock.sinks.delta.merge import last_of_keys, merge
from penstock.sinks.delta.periodic_folding import PeriodicFolding, folding_interval
from penstock.sinks.delta.rewritable import refuse_lost_keys, refuse_unmergeable
from penstock.sinks.delta.table import batch_shown, load, named_errors, refuse_unfit, refuse_values
from penstock.sinks.delta.unique_keys import is_known_unique, repeated_key
from penstock.sinks.keys import refuse_null_keys
from penstock.sinks.staged_files import read_staged

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["UpsertPublisher"]

_TRIES = 10  # of a merge that another program's commit overtakes


class UpsertPublisher(Publisher):
    """Merge staged rows into a table under (app, batch); exactly one of several racing publishers lands."""

    def __init__(
        self,
        path: str | Path,
        keys: Sequence[str],
        partition_by: Sequence[str],
        staging: CheckpointFolder,
        spark: Any,
    ) -> None:
        self.path = path
        self.keys = tuple(keys)
        self.partition_by = partition_by
        self.staging = staging
        self.spark = spark
        self._path = LocalFolder(path).resolve()
        self._seen: dict[str, int] = {}
        self._looked = False
        self._footers: dict[str, Any] = {}
        self._folding = PeriodicFolding(self._path, str(path))

    def publish(self, publication: Publication) -> None:
        """Merge the rows; if the table has the batch already, do nothing.

        A failed commit is never taken as proof of anything: the table is read again and asked.
        """
        if not publication.files:
            return
        rows = last_of_keys(read_staged(self.staging, publication.files), self.keys)
        for attempt in range(_TRIES):
            with named_errors(self.path):
                found = load_with_end(self._path)
                if found is None:
                    raise SinkBehind("the table is gone", where=str(self.path))
                table, end = found
                if self._has(table, publication) or self._commit(table, end, publication, rows):
                    self._seen[publication.app] = publication.batch
                    return
            time.sleep(random.uniform(0, 0.04) * (attempt + 1))  # noqa: S311 - so that racers part
        raise SinkConflict(f"batch {publication.batch} lost {_TRIES} races", where=str(self.path))

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for rows without a key, and for rows that the table does not take."""
        if not files:
            return
        rows = read_staged(self.staging, files)
        refuse_null_keys(self.keys, rows, str(self.path))
        table = load(self._path)
        if table is not None:
            refuse_lost_keys(rows, self.keys, table.metadata().partition_columns, str(self.path))
            paths = [(self.staging / file.path).fetch() for file in files]
            refuse_values(table, paths, self.spark, where=str(self.path))

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app in the table as it is now."""
        with named_errors(self.path):
            table = load(self._path)
            seen = None if table is None else batch_shown(table, self._path, app)
        if seen is None:
            self._seen.pop(app, None)
        else:
            self._seen[app] = seen
        return seen

    def _has(self, table: DeltaTable, publication: Publication) -> bool:
        """Return whether the table has the batch, durably; raises where it has a later one, or has lost one."""
        seen = batch_shown(table, self._path, publication.app)
        known = self._seen.get(publication.app)
        if known is not None and (seen is None or seen < known):
            shows = "no batch" if seen is None else f"batch {seen}"
            raise SinkBehind(
                f"the table shows {shows} of this checkpoint as the newest, and had batch {known}",
                where=str(self.path),
                shown=-1 if seen is None else seen,
                missing=[known],
            )
        if seen is not None and seen > publication.batch:
            raise SinkAhead(
                f"the table has batch {seen} of this checkpoint and is asked to take {publication.batch}",
                where=str(self.path),
                seen=seen,
                batch=publication.batch,
            )
        if seen != publication.batch:
            return False
        version = find_commit(self._path, table.version(), publication.app, publication.batch)
        publication.refuse_copy(fingerprint_of(self._path, version), str(self.path))
        make_entries_durable(self._path, [])  # who linked the entry may have died before its name was durable
        return True

    def _commit(self, table: DeltaTable, end: LogEnd, publication: Publication, rows: pa.Table) -> bool:
        """Merge into the version that was read, and commit directly after it; False where another commit came first."""
        refuse_unfit(table, rows.schema, partition_by=self.partition_by, where=str(self.path))
        refuse_unmergeable(table, self.keys, str(self.path))
        files = TableFiles(table, self._path, self._footers)
        unique = is_known_unique(self._path, files.version, self.keys)
        prefix = f"{publication.batch:012d}-upsert"
        try:
            if not unique and not self._looked:  # of a table that others write to, the next start looks
                unique = repeated_key(files, self.keys) is None
            rewrite = merge(files, rows, self.keys, self._path, prefix, target_size(table))
        except FileNotFoundError as why:
            self._refuse_gone(files.version, why)
            return False
        self._looked = True
        make_durable(self._path)  # the names of the new files, before an entry has them
        entry = merged(
            publication,
            rewrite.actions(now := int(time.time() * 1000)),
            keys=self.keys if unique else (),
            read=files.version,
            now=now,
        )
        if not create_entry(end, files.version + 1, entry):
            rewrite.discard(self._path)
            return False
        self._folding.after(files.version + 1, folding_interval(table))
        return True

    def _refuse_gone(self, version: int, why: FileNotFoundError) -> None:
        """Raise SinkRefused for a data file that is gone, unless another version without it has come since."""
        newest = load(self._path)
        if newest is not None and newest.version() == version:
            lost = str(why).splitlines()[0]
            raise SinkRefused(f"version {version} of the table has a file that is gone: {lost}", where=str(self.path))
