"""Publish into Delta tables: a commit names files that the tasks wrote into the table's folder.

It is one file in the table's log, made under a name that must be free (decision 49). delta-spark commits instead where
the table asks for more than that (FACTS 3): partitioned tables, table features, constraints and the like.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from penstock.checkpoint.local import create_beside, make_durable, storage_errors
from penstock.errors import (
    JobError,
    PenstockError,
    SinkAhead,
    SinkConflict,
    SinkError,
    SinkForgets,
    SinkSchemaMismatch,
)
from penstock.sinks.base import Publication, Publisher
from penstock.sinks.delta_entries import appended, entry_name
from penstock.sinks.delta_history import ASKS_FOR_MORE, PLAIN_WRITER, Target, find_version, put_back
from penstock.sinks.log_folding import LogFolding

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

__all__ = ["Delta"]

log = structlog.get_logger()

_TRIES = 10
_EVERY = 100
"""As delta-rs has it where a table does not say."""
_FOLDED = "_last_checkpoint"
_FORGETS = "delta.setTransactionRetentionDuration"
_File = tuple[int, int] | None
"""A file of a log by inode and time of change; None where there is none."""
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""What delta-rs says of an error of the system, whatever the class of its own."""
_DRAWN = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")
"""What delta-rs draws between an error and its cause."""


@dataclass(frozen=True)
class Delta:
    """Describe a Delta table; it is made with the stream's columns if it is not there.

    `partition_by` names columns of a new table; such tables are committed by delta-spark, which is slower.
    Where it is given, a table that is there must be partitioned by just these.
    """

    path: str | Path
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse one name where names belong: its letters would be taken for columns."""
        if isinstance(self.partition_by, str):
            raise JobError(f"partition_by is {self.partition_by!r}, and takes names: ({self.partition_by!r},)")

    def staging(self, folder: Path) -> Path:
        """Return the table's own folder, or one below the checkpoint where delta-spark will write the files anew."""
        table = _load(Path(self.path))
        plain = not self.partition_by if table is None else _plain(table)
        return Path(self.path).resolve() if plain else folder

    def prepare(self, schema: pa.Schema, spark: Any) -> None:
        """Make the table, or check that the rows fit the one that is there."""
        self.check(schema)
        if _load(Path(self.path)) is None:
            self._create(schema)

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch where the rows do not fit the table that is there, or that would be made."""
        table = _load(Path(self.path))
        if table is None:
            missing = [name for name in self.partition_by if name not in schema.names]
            if missing:
                raise SinkSchemaMismatch(
                    f"partition_by names {missing[0]!r}, and the stream has {schema.names}", where=str(self.path)
                )
            return
        kept = table.metadata().configuration.get(_FORGETS)
        if kept is not None:
            raise SinkForgets(f"the table forgets after {kept} which batches it has", where=str(self.path))
        found = pa.schema(table.schema().to_arrow())
        if _facts(found) != _facts(_as_delta(schema)):
            raise SinkSchemaMismatch(
                f"the stream has {_said(_as_delta(schema))} and the table has {_said(found)}", where=str(self.path)
            )
        partitions = table.metadata().partition_columns
        if self.partition_by and list(self.partition_by) != partitions:
            raise SinkSchemaMismatch(
                f"partition_by is {list(self.partition_by)} and the table is partitioned by {partitions}",
                where=str(self.path),
            )

    def open(self, staging: Path, spark: Any) -> Publisher:
        """Return the publisher."""
        return DeltaPublisher(self, staging, spark)

    def find_version(self, target: Target) -> int | None:
        """Return the version of the table that is to be put back, None for none; raises CannotTruncate."""
        with _named_errors(self.path):
            return find_version(Path(self.path).resolve(), target)

    def truncated(self, app: str) -> int | None:
        """Return the slot of the newest Restore for which rows of the app were taken back, None for none."""
        from deltalake import DeltaTable

        with _named_errors(self.path):
            if not DeltaTable.is_deltatable(str(self.path)):
                return None
            slot: int | None = DeltaTable(str(self.path)).transaction_version(f"{app}/truncate")
            return slot

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version in force again, as in `delta_history.put_back`."""
        with _named_errors(self.path):
            return put_back(Path(self.path).resolve(), target, version, slot=slot, newest=newest)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Delta table {self.path}"

    def _create(self, schema: pa.Schema) -> None:
        from deltalake import DeltaTable, Schema

        columns = Schema.from_arrow(schema)
        with _named_errors(self.path):
            Path(self.path).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(self.path), columns, mode="ignore", partition_by=list(self.partition_by) or None)
            log_folder = Path(self.path).resolve() / "_delta_log"
            for made in (log_folder / entry_name(0), log_folder, log_folder.parent, log_folder.parent.parent):
                make_durable(made)


@dataclass(frozen=True, slots=True)
class _View:
    """What is known of a table at its newest version: the newest batch of an app, and what a commit has to know."""

    app: str
    seen: int | None
    version: int
    entry: _File
    """Which file the version's entry in the log is; None where there is none any more."""
    folded: _File
    """Which file says where the log was folded: cleaning it may take entries away that came later than `version`."""
    plain: bool
    every: int
    """Versions from one checkpoint of the table's log to the next."""


class DeltaPublisher:
    """Commit staged files under (app, batch); exactly one of several racing publishers lands."""

    idempotent = True

    def __init__(self, sink: Delta, staging: Path, spark: Any) -> None:
        self.sink = sink
        self.staging = staging
        self.spark = spark
        self._path = Path(sink.path).resolve()
        self._log = self._path / "_delta_log"
        self._known: _View | None = None
        self._folding: LogFolding | None = None

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
                    where=str(self.sink.path),
                    seen=view.seen,
                    batch=publication.batch,
                )
            with _named_errors(self.sink.path):
                if view.seen == publication.batch:
                    make_durable(self._log)  # whoever made the entry may have died before it was
                    return
                try:
                    self._commit(view, publication)
                except CommitFailedError:
                    time.sleep(random.uniform(0, 0.04) * (attempt + 1))  # noqa: S311 - so that racers part
                    continue
            self._fold_log()
            return
        raise SinkConflict(f"batch {publication.batch} lost {_TRIES} races", where=str(self.sink.path))

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app in the table as it is now."""
        with _named_errors(self.sink.path):
            self._known = self._look(app)
            return None if self._known is None else self._known.seen

    def _view(self, publication: Publication, *, reload: bool) -> _View:
        """Return what is known of the table; what the last commit left, if nobody has committed since."""
        with _named_errors(self.sink.path):
            known = self._known
            if known is not None and known.app == publication.app and not reload and self._is_newest(known):
                return known
            found = self._look(publication.app)
            if found is None:
                raise SinkError("the table is gone", where=str(self.sink.path))
            if known is not None and self._entry(known.version) != known.entry:
                # Another table may stand there now, or an entry have been written over.
                self.sink.check(publication.schema)
                if known.app == found.app and _before(found.seen, known.seen):
                    log.warning("sink.set_back", table=str(self.sink.path), had=known.seen, has=found.seen)
            self._known = found
            return found

    def _is_newest(self, view: _View) -> bool:
        is_there = view.entry is not None and self._entry(view.version) == view.entry
        return is_there and self._entry(view.version + 1) is None and _file(self._log / _FOLDED) == view.folded

    def _look(self, app: str) -> _View | None:
        """Load the table, and return what it shows; None where there is none."""
        folded = _file(self._log / _FOLDED)  # before all else: if the log is folded meanwhile, the view is not new
        table = _load(self._path)
        if table is None:
            return None
        version = table.version()
        said = str(table.metadata().configuration.get("delta.checkpointInterval", ""))
        every = int(said) if said.isdecimal() and int(said) else _EVERY
        seen = table.transaction_version(app)
        return _View(app, seen, version, self._entry(version), folded, _plain(table), every)

    def _entry(self, version: int) -> _File:
        return _file(self._log / entry_name(version))

    def _commit(self, view: _View, publication: Publication) -> None:
        # Files lie where the table was found to want them at the start; delta-spark copies those that lie elsewhere.
        if not view.plain or self.staging != self._path:
            self._commit_by_spark(publication)
            return
        from deltalake.exceptions import CommitFailedError

        version = view.version + 1
        # Nobody has committed since the view if the name is free, so there is nothing the commit could conflict with.
        if not create_beside(self._log, entry_name(version), appended(publication, int(time.time() * 1000))):
            raise CommitFailedError(f"version {version} was taken")
        self._known = replace(view, seen=publication.batch, version=version, entry=self._entry(version))

    def _fold_log(self) -> None:
        """Have the table's log folded now and then; where that fails it is told, and tried again later."""
        known = self._known
        if self._folding is not None and self._folding.why is not None:
            log.warning("no checkpoint of a table's log", table=str(self.sink.path), why=self._folding.why)
            self._folding = None
        due = known is not None and known.plain and known.version % known.every == 0  # delta-spark folds by itself
        if due and (self._folding is None or not self._folding.runs()):
            self._folding = LogFolding(self._path)

    def _commit_by_spark(self, publication: Publication) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        paths = [str(self.staging / f.path) for f in publication.files]
        try:
            writer = self.spark.read.parquet(*paths).write.format("delta").mode("append")
            writer.option("txnAppId", publication.app).option("txnVersion", publication.batch).save(str(self._path))
        except (Py4JJavaError, PySparkException) as why:
            raise _refusal(str(why), publication.batch, str(self.sink.path)) from why


def _before(seen: int | None, other: int | None) -> bool:
    """Return whether a table that shows one batch as its newest has lost some to when it showed the other."""
    return other is not None and (seen is None or seen < other)


def _file(path: Path) -> _File:
    """Return which file stands at a path, None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _refusal(text: str, batch: int, where: str) -> Exception:
    """Return what delta-spark's refusal means: a race that may be run again, rows that do not fit, or else."""
    from deltalake.exceptions import CommitFailedError

    said = next((line.partition("[DELTA_")[2] for line in text.splitlines() if "[DELTA_" in line), "")
    if said.startswith("CONCURRENT") or "ConcurrentModification" in text:
        return CommitFailedError(said)
    told = f"batch {batch} was not taken: " + (f"[DELTA_{said}" if said else text.strip().splitlines()[0])
    fits = not said.startswith(("VIOLATE_CONSTRAINT", "NOT_NULL_CONSTRAINT"))
    return (SinkError if fits else SinkSchemaMismatch)(told, where=where)


@contextmanager
def _named_errors(path: str | Path) -> Iterator[None]:
    """Turn what the system and delta-rs say of a table into errors of a store, or else into SinkError.

    None of them says that a commit did not land: its answer may have been lost.
    """
    from deltalake.exceptions import DeltaError

    with storage_errors(str(path)):
        try:
            yield
        except PenstockError:
            raise
        except (OSError, DeltaError) as why:
            number = _SYSTEM_ERROR.search(str(why))
            if number is not None:
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from why
            if isinstance(why, OSError) and why.errno is not None:
                raise
            said = _DRAWN.sub(": ", str(why).strip()).splitlines()[0]
            raise SinkError(f"delta-rs failed: {said}", where=str(path)) from why


def _as_delta(schema: pa.Schema) -> pa.Schema:
    """Return the schema as a table would give it back, where the items of a list have another name."""
    from deltalake import Schema

    return pa.schema(Schema.from_arrow(schema).to_arrow())


def _load(path: Path) -> DeltaTable | None:
    from deltalake import DeltaTable

    with _named_errors(path):
        return DeltaTable(str(path)) if DeltaTable.is_deltatable(str(path)) else None


def _plain(table: DeltaTable) -> bool:
    """Return whether an append of files is all that a commit to the table takes."""
    protocol = table.protocol()
    metadata = table.metadata()
    settings = metadata.configuration
    return (
        protocol.min_writer_version <= PLAIN_WRITER
        and not metadata.partition_columns
        and not any(_asks(field) for field in table.schema().fields)
        and not any(
            name.startswith(ASKS_FOR_MORE) and value not in ("none", "false") for name, value in settings.items()
        )
    )


def _asks(field: Field) -> bool:
    """Return whether a column, or one inside it, wants its values looked at before they are taken."""
    return not field.nullable or "delta.invariants" in field.metadata or _asks_inside(field.type)


def _asks_inside(kind: Any) -> bool:
    inside = (getattr(kind, name, None) for name in ("element_type", "key_type", "value_type"))
    return any(_asks(field) for field in getattr(kind, "fields", ())) or any(
        _asks_inside(one) for one in inside if one is not None
    )


def _facts(schema: pa.Schema) -> list[tuple[str, str]]:
    return [
        (f.name, str(f.type).replace("large_", "").replace("string_view", "string").replace("binary_view", "binary"))
        for f in schema
    ]


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _facts(schema))
