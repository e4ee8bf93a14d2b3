"""Make in a task what Spark would make of rows that no expression of SQL reads: times, statuses, keys and hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.protocol import TIME
from penstock.runtime.tasks.columns import BAD_RECORD, FUTURE, NO_EVENT_TIME, TOO_FAR_AHEAD
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.sources.base import ERROR
from penstock.state.hashing import hash_columns, normalise

__all__ = ["PlainColumns"]


@dataclass
class PlainColumns:
    """The columns that a task makes of the rows it has read: those it computes, and those it keeps."""

    event_time: str | None
    bounded_ahead: bool
    even: dict[str, str] = field(default_factory=dict)
    """Columns of floats with one NaN and one zero, each with its key column."""
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of hashes, each with the columns that are hashed."""
    kept: dict[str, None] = field(default_factory=dict)

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of rows as they were read (SEMANTICS 2.7, 2.9, 9.3)."""
        for batch in batches:
            made = {TIME: self._times(batch)}
            made[ROW_STATUS] = self._fates(batch, made[TIME])
            made |= {name: normalise(batch.column(key)) for name, key in self.even.items()}
            for name, columns in self.hashes.items():
                hashed = [made[c] if c in made else batch.column(c) for c in columns]
                made[name] = pa.array(hash_columns(hashed, batch.num_rows))
            made |= {name: batch.column(name) for name in self.kept}
            yield pa.RecordBatch.from_pydict(made)

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if self.event_time is None:
            return pa.nulls(batch.num_rows, pa.int64())
        times = batch.column(self.event_time).cast(pa.int64())
        errors = batch.column(ERROR)
        return times if errors.null_count == len(errors) else pc.if_else(errors.is_null(), times, None)

    def _fates(self, batch: pa.RecordBatch, times: pa.Array) -> pa.Array:
        fates = np.zeros(batch.num_rows, np.int32)
        if self.bounded_ahead:
            ahead = pc.greater(times, batch.column(FUTURE)).fill_null(False)  # noqa: FBT003 - Arrow's signature
            fates[ahead.to_numpy(zero_copy_only=False)] = TOO_FAR_AHEAD
        if self.event_time is not None and times.null_count:
            fates[times.is_null().to_numpy(zero_copy_only=False)] = NO_EVENT_TIME
        errors = batch.column(ERROR)
        if errors.null_count < len(errors):
            fates[errors.is_valid().to_numpy(zero_copy_only=False)] = BAD_RECORD
        return pa.array(fates)
