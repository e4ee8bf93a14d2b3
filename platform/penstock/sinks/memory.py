"""Keep rows in the process, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead
from penstock.sinks.base import Publication, Publisher, ReadableSink
from penstock.sinks.staged_files import read_staged

__all__ = ["MemorySink"]


class MemorySink(ReadableSink):
    """Published rows by app and batch, each batch's in order of arrival; outlives the driver, as a table would."""

    deduplicates = True
    in_order = True

    def __init__(self) -> None:
        self.batches: dict[tuple[str, int], pa.Table] = {}
        self.fingerprints: dict[tuple[str, int], int | None] = {}

    def open(self, staging: CheckpointFolder, spark: Any) -> MemoryPublisher:
        """Return the publisher."""
        return MemoryPublisher(self, staging)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return "memory"

    def rows(self, batch: int | None = None, *, app: str | None = None) -> list[dict[str, Any]]:
        """Return the rows as dicts, of one batch or of all in order; timestamps are aware UTC datetimes.

        `app` asks for those of one sink of one checkpoint only.
        """
        fits = (key for key in self.batches if app in (None, key[0]) and batch in (None, key[1]))
        return [row for key in sorted(fits, key=lambda key: key[1]) for row in self.batches[key].to_pylist()]

    def read_batches(self, batches: range, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of quarantines of these batches."""
        kept = [rows for _, rows in sorted(self.batches.items(), key=lambda item: item[0][1])]
        if not kept:
            return pa.table({name: pa.nulls(0) for name in columns or ("_batch",)})
        rows = pa.concat_tables(kept)
        within = pc.and_(pc.greater_equal(rows["_batch"], batches.start), pc.less(rows["_batch"], batches.stop))
        return rows.filter(within).select(rows.column_names if columns is None else list(columns))

    def continue_from(self, other: MemorySink) -> None:
        """Become the same table as the sink of an earlier job: each shows the rows of both from now on."""
        if other.batches is not self.batches:
            other.batches.update(self.batches)
            other.fingerprints.update(self.fingerprints)
            self.batches, self.fingerprints = other.batches, other.fingerprints


class MemoryPublisher(Publisher):
    """Put staged rows into a MemorySink."""

    def __init__(self, sink: MemorySink, staging: CheckpointFolder) -> None:
        self.sink = sink
        self.staging = staging

    def publish(self, publication: Publication) -> None:
        """Keep the rows under app and batch; a second time changes nothing."""
        key = (publication.app, publication.batch)
        if not publication.files:
            return
        if key in self.sink.batches:
            publication.refuse_copy(self.sink.fingerprints.get(key), self.sink.describe())
            return
        seen = self.version(publication.app)
        if seen is not None and seen > publication.batch:
            raise SinkAhead(
                f"the sink has batch {seen} of this checkpoint and is asked to take batch {publication.batch}",
                seen=seen,
                batch=publication.batch,
            )
        self.sink.batches[key] = read_staged(self.staging, publication.files)
        self.sink.fingerprints[key] = publication.fingerprint

    def version(self, app: str) -> int | None:
        """Return the newest batch kept for the app."""
        return max((batch for known, batch in self.sink.batches if known == app), default=None)
