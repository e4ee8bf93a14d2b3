"""Publish into Delta tables: a commit names files that the tasks wrote into the table's folder.

A commit is one file in the table's log, created exclusively (decision 49). Where the table asks for more (FACTS
3), delta-spark commits: partitioned tables, table features, constraints and the like.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import SinkAhead, SinkBehind, SinkConflict, SinkError, SinkRefused, SinkSchemaMismatch
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.delta.log_end import LogEnd, create_entry, load_with_end
from penstock.sinks.delta.log_entry import (
    appended,
    find_commit,
    fingerprint_of,
    make_entries_durable,
    user_metadata,
)
from penstock.sinks.delta.periodic_folding import PeriodicFolding, folding_interval
from penstock.sinks.delta.table import batch_shown, is_plain, load, named_errors, refuse_unfit, refuse_values

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["DeltaPublisher"]

_TRIES = 10  # of a commit that another program's commit overtakes


@dataclass(frozen=True, slots=True)
class _View:
    """A table at its newest version: the newest batch of an app, and the facts that a commit needs."""

    app: str
    seen: int | None
    table_id: str
    end: LogEnd
    plain: bool
    every: int
    """Versions from one checkpoint of the table's log to the next."""
    fits: bool
    """Whether the rows were found to fit: to ask for the newest batch alone does not tell."""


class DeltaPublisher(Publisher):
    """Commit staged files under (app, batch); exactly one of several racing publishers lands."""

    def __init__(self, path: str | Path, partition_by: Sequence[str], staging: CheckpointFolder, spark: Any) -> None:
        self.path = path
        self.partition_by = partition_by
        self.staging = staging
        self.spark = spark
        self._path = LocalFolder(path).resolve()
        self._known: _View | None = None
        self._folding = PeriodicFolding(self._path, str(path))

    def publish(self, publication: Publication) -> None:
        """Commit the files; if the table has the batch already, do nothing.

        A failed commit is never taken as proof of anything: the table is read again and asked (FACTS 3).
        After any error but a lost race the next start asks, since nothing here could mend the cause.
        """
        if not publication.files:
            return
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_TRIES):
            view = self._view(publication, reload=attempt > 0)
            if view.seen is not None and view.seen > publication.batch:
                view = self._view(publication, reload=True)
                raise SinkAhead(
                    f"the table has batch {view.seen} of this checkpoint and is asked to take {publication.batch}",
                    where=str(self.path),
                    seen=view.seen,
                    batch=publication.batch,
                )
            with named_errors(self.path):
                if view.seen == publication.batch:
                    self._make_durable(view, publication)  # its writer may have died before it was
                    return
                try:
                    self._commit(view, publication)
                except CommitFailedError:
                    time.sleep(random.uniform(0, 0.04) * (attempt + 1))  # noqa: S311 - so that racers part
                    continue
            self._fold_log()
            return
        raise SinkConflict(f"batch {publication.batch} lost {_TRIES} races", where=str(self.path))

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for rows that the table does not take; asked before they are committed."""
        if self.staging == self._path and (self._known is None or self._known.plain):
            return  # a table that looks at values is not plain
        table = load(self._path)
        if table is not None:
            paths = [(self.staging / file.path).fetch() for file in files]
            refuse_values(table, paths, self.spark, where=str(self.path))

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app in the table as it is now."""
        with named_errors(self.path):
            self._known = self._look(app)
            return None if self._known is None else self._known.seen

    def _view(self, publication: Publication, *, reload: bool) -> _View:
        """Return what is known of the table; what the last commit left, if nobody has committed since."""
        with named_errors(self.path):
            known = self._known
            if (
                known is not None
                and known.app == publication.app
                and not reload
                and known.fits
                and known.end.is_newest()
            ):
                return known
            # Another program has written the table: other columns, a rule, or over what this app had (F70).
            view = self._look(publication.app, publication.schema)
            if view is None:
                raise SinkBehind("the table is gone", where=str(self.path))
            shown = -1 if view.seen is None else view.seen
            if known is not None and known.app == view.app and known.seen is not None and shown < known.seen:
                shows = "no batch" if view.seen is None else f"batch {view.seen}"
                raise SinkBehind(
                    f"the table shows {shows} of this checkpoint as the newest, and had batch {known.seen}",
                    where=str(self.path),
                    shown=shown,
                    missing=[known.seen],
                )
            self._known = view
            return view

    def _look(self, app: str, schema: pa.Schema | None = None) -> _View | None:
        """Load the table, and return what it shows; None where there is none.

        With the `schema` of rows to commit, raises where they do not fit. A commit directly after the returned version
        then fits as well.
        """
        found = load_with_end(self._path)
        if found is None:
            return None
        table, end = found
        if schema is not None:
            refuse_unfit(table, schema, partition_by=self.partition_by, where=str(self.path))
        seen = batch_shown(table, self._path, app)
        table_id, every = str(table.metadata().id), folding_interval(table)
        return _View(app, seen, table_id, end, is_plain(table), every, fits=schema is not None)

    def _commit(self, view: _View, publication: Publication) -> None:
        from deltalake.exceptions import CommitFailedError

        # Files lie where the table was found to want them at the start; delta-spark copies those that lie elsewhere.
        if not view.plain or self.staging != self._path:
            self._refuse_noted(publication)
            if not view.end.stands():
                raise CommitFailedError("the log is another one")
            self._commit_by_spark(publication)
            table = load(self._path)
            newest = view.end.version if table is None else table.version()
            make_entries_durable(self._path, range(view.end.version + 1, newest + 1))
            self._refuse_replaced(view, table, publication)
            # delta-spark passes over a batch that another driver has committed since the view.
            version = find_commit(self._path, newest, publication.app, publication.batch)
            publication.refuse_copy(fingerprint_of(self._path, version), str(self.path))
            return
        for file in publication.files:
            # VACUUM with a short retention takes what no version names yet; an entry that names it ends all reads.
            if (self.staging / file.path).size() != file.size:
                raise corrupt(str(self.staging / file.path), "the staged file is gone, or is not whole")
        version = view.end.version + 1
        # Nobody has committed since the view if the name is free: the table is as the view has it, and the rows fit.
        if not create_entry(view.end, version, appended(publication, int(time.time() * 1000))):
            raise CommitFailedError(f"version {version} was taken, or the log is another one")
        self._known = replace(view, seen=publication.batch, end=view.end.after())

    def _make_durable(self, view: _View, publication: Publication) -> None:
        version = find_commit(self._path, view.end.version, publication.app, publication.batch)
        publication.refuse_copy(fingerprint_of(self._path, version), str(self.path))
        others = not view.plain or self.staging != self._path  # an entry of ours was durable before it had its name
        make_entries_durable(self._path, [version] if others and version is not None else [])

    def _fold_log(self) -> None:
        if self._known is not None and self._known.plain:  # delta-spark folds by itself
            self._folding.after(self._known.end.version, self._known.every)

    def _refuse_noted(self, publication: Publication) -> None:
        """Raise SinkRefused where delta-spark would take rows for those that somebody else's RESTORE took away."""
        table = load(self._path)
        noted = None if table is None else table.transaction_version(publication.app)
        if table is None or noted is None or noted < publication.batch:
            return
        shown = batch_shown(table, self._path, publication.app)
        if shown != noted:
            raise SinkRefused(
                f"the table notes batch {noted} and shows {'none' if shown is None else f'batch {shown}'}: RESTORE it "
                "to a version that shows both",
                where=str(self.path),
            )

    def _refuse_replaced(self, view: _View, table: DeltaTable | None, publication: Publication) -> None:
        """Raise SinkRefused where delta-spark has written into another table than that of the view.

        It shows this batch as its newest, so no later start could tell that it lacks those before.
        """
        if view.seen is not None and (table is None or str(table.metadata().id) != view.table_id):
            raise SinkRefused(
                f"the table was replaced while it took batch {publication.batch}, and the one before had batch "
                f"{view.seen}. Move the new one away: the next start makes one, and finds what it lacks",
                where=str(self.path),
            )

    def _commit_by_spark(self, publication: Publication) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        paths = [str((self.staging / f.path).fetch()) for f in publication.files]
        try:
            writer = self.spark.read.parquet(*paths).write.format("delta").mode("append")
            if (said := user_metadata(publication)) is not None:
                writer.option("userMetadata", said)
            writer.option("txnAppId", publication.app).option("txnVersion", publication.batch).save(str(self._path))
        except (Py4JJavaError, PySparkException) as why:
            raise _refusal(str(why), publication.batch, str(self.path)) from why


def _refusal(text: str, batch: int, where: str) -> Exception:
    """Return what delta-spark's refusal means: a race that may be run again, rows that do not fit, or else."""
    from deltalake.exceptions import CommitFailedError

    reason = next((line.partition("[DELTA_")[2] for line in text.splitlines() if "[DELTA_" in line), "")
    if reason.startswith("CONCURRENT") or "ConcurrentModification" in text:
        return CommitFailedError(reason)
    message = f"batch {batch} was not taken: " + (f"[DELTA_{reason}" if reason else text.strip().splitlines()[0])
    fits = not reason.startswith(("VIOLATE_CONSTRAINT", "NOT_NULL_CONSTRAINT"))
    return (SinkError if fits else SinkSchemaMismatch)(message, where=where)
