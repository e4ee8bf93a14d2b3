"""State what every sink promises (DESIGN 4, SEMANTICS 9.4).

A sink of your own is one module. It has a class that says where rows go, and a class that publishes:

    class Table(CreatingSink):
        deduplicates = True

        def create(self, schema, spark): ...            # make what is missing
        def check(self, schema): ...                    # raise SinkSchemaMismatch, write nothing
        def open(self, staging, spark): return TablePublisher(self, staging)
        def describe(self): return "table orders"

    class TablePublisher(Publisher):
        def publish(self, publication): ...             # the files become visible as (app, batch), once
        def version(self, app): ...                     # the newest batch of the app that is visible

What a sink can do is said by its type, so that nothing is opened to learn it. That is the attributes of `Sink`, and the
bases `SchemaCheckingSink`, `CreatingSink`, `ReadableSink`, `TruncatableSink` and `MaintainedSink`. No method is looked
for by its name. Beside the module there is its name in `sinks/__init__.py`, and a test module.
`penstock.testing.sink_contract` has this contract as tests, which the test module subclasses.

The order of a run, all on the driver, none of it in tasks:

1. The job is written, explained, compared: the attributes, `describe`, `place`. Nothing is read.
2. A driver starts: `staging`, then `check` and `ready`. Nothing is written: somebody else may own the job's log.
3. It owns the log: `create`, then `open`, then `version` of the publisher.
4. In every batch the tasks write files into the staging folder. `refuse_values` is called before the Commit,
   `publish` after it.
5. A start after a crash, and `penstock sinks`, publish the same batch again.

Held rows are published by the same publisher under an app id of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointCopied

__all__ = [
    "FEW",
    "CreatingSink",
    "MaintainedSink",
    "Needed",
    "Origin",
    "Publication",
    "Publisher",
    "ReadableSink",
    "SchemaCheckingSink",
    "Sink",
    "Staged",
    "Target",
    "TaskForm",
    "TruncatableSink",
    "Upkeep",
    "Written",
]


FEW = 2**20
"""Bytes of rows in memory below which a task leaves the rows of a folder to the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskForm:
    """How tasks write the files of a folder, as plain JSON.

    `format` is the name of a format, `partition_by` has the columns that name folders, and `few` is as FEW.
    """

    format: str
    partition_by: Sequence[str] = ()
    few: int = FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The facts of a staged file that is as its target shows it: its format, and its folder below the target."""

    format: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Name one file of rows that a task wrote for a sink; `path` is relative to the sink's staging folder."""

    path: str
    size: int
    rows: int
    checksum: str
    fails: tuple[str, ...] = ()
    """The names of the row rules that every row in the file fails."""
    unit: int | None = None
    """The end of the window whose rows these are, microseconds, where a check judges windows one by one."""
    written: Written | None = None
    """Where the sink has a `task_form`, and the task has written the file by it; otherwise the file has rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The batch that rows come from, for sinks that pass it on; times are microseconds since 1970.

    `job` is the name of the job, and `time` the batch time. `watermark` is the lowest by which the steps upstream of
    the sink have closed. It is None before there is one, without such steps, and for rows that a check had held.
    `epoch` is that of the driver that committed the batch, None for rows that were held.
    """

    job: str
    time: int
    watermark: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A request to a publisher: to make visible the files that Commit `batch` names, under one app id.

    `app` is `<checkpoint uuid>/<sink>`, and never that of another checkpoint or sink. Of one app the batches come in
    rising order, with gaps: a batch without rows for the sink may be left out. A copy of the checkpoint has the same
    app and numbers, but other files: `fingerprint` tells them apart. It is from 1 to 2**31 - 1, or None where nobody
    compares.
    """

    app: str
    batch: int
    files: Sequence[Staged]
    schema: pa.Schema = field(repr=False)
    origin: Origin = Origin(job="", time=0)
    fingerprint: int | None = None

    def refuse_copy(self, shown: int | None, where: str) -> None:
        """Raise CheckpointCopied where the target shows the batch with another fingerprint; None tells nothing.

        A sink asks it before it leaves a batch alone that is visible already.
        """
        if shown is not None and self.fingerprint is not None and shown != self.fingerprint:
            raise self.copied(where)

    def copied(self, where: str) -> CheckpointCopied:
        """Return the error that says that the target shows other rows as the batch."""
        return CheckpointCopied(
            f"batch {self.batch} is there already, with other rows: another driver has published it, which runs a copy "
            "of this checkpoint",
            where=where,
            batch=self.batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The content that a table is to show again: that of `app` when `batch` was committed, at `slot` of the log.

    A `batch` of None is the time before its first.
    """

    app: str
    batch: int | None
    slot: int

    @property
    def truncation(self) -> str:
        """Return the app id of truncations."""
        return f"{self.app}/truncate"

    def has(self, batch: int) -> bool:
        """Return whether a batch of the app was published by then, as far as its number tells."""
        return self.batch is not None and batch <= self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What the log of a job needs of a sink, besides what the sink shows.

    `staged` are the files that Commits name, relative to the staging folder. `targets` are the batches that a restore
    may truncate the sink to.
    """

    staged: frozenset[str] = frozenset()
    targets: Sequence[Target] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What the upkeep of a sink has done: small files `joined` into `made`, and files `deleted` with their `size`.

    `left_alone` is why nothing was done, empty where something could be.
    """

    joined: int = 0
    made: int = 0
    deleted: int = 0
    size: int = 0
    left_alone: str = ""


class Publisher(Protocol):
    """Make the files of Commits visible. One lives on the driver from `Sink.open` to the end of the run.

    One thread calls it. It may keep connections, and what it knows of the target, between batches.
    """

    def publish(self, publication: Publication) -> None:
        """Make the files visible as one batch: all of them, or none.

        The driver calls it once a batch, after the Commit is durable. It calls it again for the same batch after a
        crash, and after an error of which nobody knows whether the batch went through. A sink that deduplicates leaves
        a batch alone that is visible already; another shows it again. Without files nothing is done, and no version is
        noted.
        It returns when the rows are durable where they went. It must not change, move or delete staged files that
        other batches may need, and must not wait without end: the next batch waits for it.
        After any other error of its own than SinkBusy the publisher is not used again: the next start opens another,
        which asks the target.

        Raises SinkBusy where the target cannot take the batch yet. The driver waits, and publishes it with the same
        publisher. Raises SinkUnavailable where the target does not answer, which pauses the stream.
        Raises SinkAhead when a later batch of this app is visible and this one is not, and SinkBehind when batches are
        gone that it has seen. It raises other errors of the SNK group for what the target refuses. Anything else
        becomes SinkRefused.
        """

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that is visible, None where there is none or the target cannot say.

        The driver asks it at a start, before the first batch. It asks the target, not what was remembered.
        """

    def refuse_values(self, files: Sequence[Staged]) -> None:
        """Raise SinkValueRefused for rows that the target would not take.

        The driver asks it once a batch and before the Commit, so that no batch is committed that can never be
        published. By default all rows are taken. It writes nothing.
        """
        return


class Sink(Protocol):
    """Describe where rows go. Subclass it, or one of the bases below, and say what the sink can do."""

    deduplicates: bool = False
    """A batch that is published twice is visible once, and `version` tells which batches are visible.

    The guarantee of a path is derived from it: exactly once with, at least once without.
    """
    condition: str = ""
    """Who sees each batch once, where that is not everybody, for `explain`: "readers with …"."""
    deduplicated_by: str = ""
    """What takes each batch once where the sink does not deduplicate, for `explain`: "functions that …"."""
    in_order: bool = False
    """The files hold the place of each row in order of arrival, and `read_staged` returns rows in that order."""
    keys: Sequence[str] = ()
    """The columns by which a row replaces an older one; none where rows are only added."""
    retracts: bool = False
    """A row whose `_pane` is RETRACTED deletes the row of its keys, where there are keys."""

    def task_form(self) -> TaskForm | None:
        """Return how tasks write the files of the target themselves; None where all rows are staged as rows."""
        return None

    def staging(self, folder: CheckpointFolder) -> CheckpointFolder:
        """Return where the tasks put this sink's files: `folder`, its own below the checkpoint, by default.

        The driver asks it at its start, before it owns the log. It makes no folder: the tasks do.
        """
        return folder

    def place(self) -> str | None:
        """Return where the rows go, the same for as long as it is the same table; None by default.

        It tells a sink that was moved from one that has lost rows (SEMANTICS 9.5).
        """
        return None

    def open(self, staging: CheckpointFolder, spark: Any) -> Publisher:
        """Return a publisher that finds its files in `staging`.

        The driver calls it once a run, when it owns the log and has called `create`, and again after rows were taken
        back. Commands that publish for a job at rest call it as well. `spark` is the session, or what opens one when it
        is used. It reads and writes nothing by itself.
        """

    def describe(self) -> str:
        """Return one line for `penstock explain`."""


class SchemaCheckingSink(Sink):
    """A sink whose target knows which rows fit."""

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch where rows of this schema do not fit the target that is there, or would be made.

        Called at each start, and by `penstock diff`, before anything is written. Reads at most, and writes nothing.
        """

    def ready(self, spark: Any) -> None:
        """Raise where the session lacks what publishing will need, a jar say; called after `check`. Writes nothing."""


class CreatingSink(SchemaCheckingSink):
    """A sink that makes its target where there is none."""

    @abstractmethod
    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Make the target where it is missing; leave one that is there, and check it again.

        Called once a run, when the driver owns the log, and before rows are published again for a job at rest. Two
        jobs may do it at the same time. Durable on return.

        Raises what `check` raises, before anything is written.
        """


class ReadableSink(Sink):
    """A sink that gives back what it shows, so that quarantined rows can be sent through again."""

    @abstractmethod
    def read_batches(self, batches: range, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the published rows whose column `_batch` is in a range, in any order; none where nothing was.

        `columns` are those to read, None for all. Called on the driver between batches. Raises SinkError by name for a
        target that cannot be read.
        """


class TruncatableSink(Sink):
    """A sink that can take back what it has published (SEMANTICS 10.1)."""

    @abstractmethod
    def find_version(self, target: Target) -> int | None:
        """Return the version of the target that is to be in force again; None where it is, or there is nothing.

        Called by a restore with `--truncate-sinks` and by its dry run, before the Restore is written. Writes nothing.
        Raises CannotTruncate where that version cannot be put back, or somebody else's rows would go with it.
        """

    @abstractmethod
    def truncated(self, app: str) -> int | None:
        """Return the slot of the newest Restore for which rows of the app were taken back; None for none."""

    @abstractmethod
    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Put a version in force again, once for the Restore in `slot`; False where that was done before.

        The owner of the log calls it at its start, after the Restore, and again if it died before a Commit followed.
        The publisher is opened again afterwards. `newest` is the highest batch that the log knew when it was read.
        Raises CannotTruncate where the target has a later batch, or somebody else has written to it since.
        """


class MaintainedSink(Sink):
    """A sink whose target is kept small: small files are joined, and files that nothing needs are deleted."""

    @abstractmethod
    def maintain(self, needed: Needed, *, now: float) -> Upkeep:
        """Do what is due, beside a job that may run; `now` in seconds since 1970.

        A command calls it for a log without damage. Readers see the same rows before and after. Who reads the target as
        a stream gets no row again. It leaves what another program overtakes to the next time.
        """
