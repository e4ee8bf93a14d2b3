"""Publish what Commits name to one sink of a job: the one way, for the driver, for commands, and for held batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotTruncate, PenstockError, SinkRefused
from penstock.sinks.base import (
    CreatingSink,
    Origin,
    Publication,
    Publisher,
    Sink,
    Staged,
    Target,
    TruncatableSink,
    Written,
)
from penstock.sinks.files.task_form import FOLDER, FORMAT
from penstock.sinks.staged_files import schema_of, verify_staged

if TYPE_CHECKING:
    from penstock.checkpoint.log.entries import StagedFile

__all__ = ["StagedPublisher", "fingerprint_of"]


class StagedPublisher:
    """One sink for as long as somebody publishes to it.

    `folder` is the sink's own below the checkpoint; the tasks may write elsewhere, as `staging` says.
    `schema` is that of the rows; without it the staged files tell. `spark` is as in `Sink.open`.
    """

    def __init__(
        self, name: str, sink: Sink, folder: CheckpointFolder, spark: Any, schema: pa.Schema | None = None
    ) -> None:
        self.name = name
        self.staging = root_of(sink.staging(folder))  # also where a sink answers with a plain path
        self._sink = sink
        self._spark = spark
        self._schema = schema
        self._publisher: Publisher | None = None

    @property
    def deduplicates(self) -> bool:
        """Whether the sink tells which batches it shows, and takes none twice."""
        return self._sink.deduplicates

    @property
    def place(self) -> str | None:
        """Where the rows go, None where that has no name."""
        return self._sink.place()

    def create(self, schema: pa.Schema) -> None:
        """Make the sink's target where it is missing; raises SinkSchemaMismatch before anything is written."""
        if isinstance(self._sink, CreatingSink):
            self._sink.create(schema, self._spark)

    def open(self) -> StagedPublisher:
        """Open the sink unless it is; nothing below works before."""
        if self._publisher is None:
            self._publisher = self._sink.open(self.staging, self._spark)
        return self

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that the sink shows, None where it cannot say."""
        return self._opened().version(app)

    def verify(self, files: Sequence[StagedFile]) -> None:
        """Raise CheckpointCorrupt where staged files are not what a Commit says."""
        verify_staged(self.staging, files)

    def refuse_values(self, files: Sequence[StagedFile]) -> None:
        """Raise SinkValueRefused for rows that the sink does not take, before they are committed."""
        self._opened().refuse_values([_staged(file) for file in files])

    def publish(self, app: str, batch: int, files: Sequence[StagedFile], origin: Origin) -> None:
        """Publish the batch of a Commit, as `show` does.

        Raises what the sink raises by name, and SinkRefused for all else but a connection that broke.
        """
        try:
            self.show(app, batch, files, origin, fingerprint=fingerprint_of(files))
        except (PenstockError, ConnectionError):  # the second is of a JVM that is gone
            raise
        except Exception as why:
            raise SinkRefused(f"sink {self.name!r} cannot take batch {batch}: {type(why).__name__}, {why}") from why

    def show(self, app: str, batch: int, files: Sequence[StagedFile], origin: Origin, *, fingerprint: int) -> None:
        """Make staged files visible under (app, batch), as `Publisher.publish` says; nothing without files.

        `fingerprint` is that of all files that the Commit names.

        Raises whatever the sink raises.
        """
        if not files:
            return
        schema = self._schema
        if schema is None:
            schema = schema_of(self.staging, files[0])
        staged = [_staged(file) for file in files]
        publication = Publication(
            app=app, batch=batch, files=staged, schema=schema, origin=origin, fingerprint=fingerprint
        )
        self._opened().publish(publication)

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Restore a version, and open the sink again: what was loaded of it is old.

        Raises CannotTruncate, also where the sink takes nothing back.
        """
        if not isinstance(self._sink, TruncatableSink):
            raise CannotTruncate(f"sink {self.name!r} is another than it was, and takes nothing back", sink=self.name)
        done = self._sink.put_back(target, version, slot=slot, newest=newest)
        self._publisher = None
        self.open()
        return done

    def _opened(self) -> Publisher:
        assert self._publisher is not None, f"sink {self.name!r} was used before it was opened"
        return self._publisher


def fingerprint_of(files: Sequence[StagedFile]) -> int:
    """Return 31 bits of the names of files, which have random digits for each run of a batch; never 0."""
    return max(1, crc32("\n".join(sorted(file.path for file in files)).encode()) >> 1)


def _staged(file: StagedFile) -> Staged:
    stats, written = file.stats, None
    if FORMAT in stats:
        written = Written(format=str(stats[FORMAT]), folder=str(stats[FOLDER]))
    return Staged(
        path=file.path,
        size=file.size,
        rows=file.rows,
        checksum=file.checksum,
        fails=tuple(file.fails),
        written=written,
    )
