"""Make in a task what Spark would make of rows that need no Java: times, statuses, values, keys and hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.predicates import Predicate, columns_of
from penstock.operators.predicate_values import UNFIT, value_of
from penstock.operators.protocol import TIME
from penstock.runtime.tasks.columns import BAD_RECORD, FUTURE, NO_EVENT_TIME, PREFIX, TOO_FAR_AHEAD
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.sources.base import ERROR
from penstock.state.hashing import hash_columns, normalise
from penstock.state.keys import Bools

__all__ = ["LeftToSpark", "PlainColumns", "RowStep"]

Ints32 = npt.NDArray[np.int32]


class LeftToSpark(Exception):
    """A task cannot compute a value, as of a sum beyond its type: Spark does, or raises what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStep:
    """A step of a branch: a filter, or the columns that there are after a selection, each by its expression.

    `number` is the status of the rows that the filter drops, 0 for a selection.
    """

    number: int = 0
    predicate: Predicate | None = None
    columns: tuple[tuple[str, Predicate | str], ...] = ()
    """A text is the name of a column that stays as it is."""


@dataclass
class PlainColumns:
    """The columns that a task makes of the rows it has read: those it computes, and those it keeps."""

    event_time: str | None
    bounded_ahead: bool
    steps: tuple[RowStep, ...] = ()
    even: dict[str, str] = field(default_factory=dict)
    """Columns of floats with one NaN and one zero, each with its key column."""
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of hashes, each with the columns that are hashed."""
    kept: dict[str, None] = field(default_factory=dict)

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of rows as they were read (SEMANTICS 2.7, 2.9, 9.3).

        Raises LeftToSpark where an expression of a step has no value for a row.
        """
        for batch in batches:
            made = {TIME: self._times(batch)}
            fates = self._fates(batch, made[TIME])
            visible = dict(zip(batch.schema.names, batch.columns, strict=True))
            hidden = {name: column for name, column in visible.items() if name.startswith(PREFIX)}
            for step in self.steps:
                visible = _after(step, visible, fates) | hidden
            made[ROW_STATUS] = pa.array(fates)
            made |= {name: normalise(visible[key]) for name, key in self.even.items()}
            for name, columns in self.hashes.items():
                hashed = [made[c] if c in made else visible[c] for c in columns]
                made[name] = pa.array(hash_columns(hashed, batch.num_rows))
            made |= {name: visible[name] for name in self.kept}
            yield pa.RecordBatch.from_pydict(made)

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if self.event_time is None:
            return pa.nulls(batch.num_rows, pa.int64())
        times = batch.column(self.event_time).cast(pa.int64())
        errors = batch.column(ERROR)
        return times if errors.null_count == len(errors) else pc.if_else(errors.is_null(), times, None)

    def _fates(self, batch: pa.RecordBatch, times: pa.Array) -> Ints32:
        fates = np.zeros(batch.num_rows, np.int32)
        if self.bounded_ahead:
            ahead = pc.greater(times, batch.column(FUTURE)).fill_null(False)  # noqa: FBT003 - Arrow's signature
            fates[ahead.to_numpy(zero_copy_only=False)] = TOO_FAR_AHEAD
        if self.event_time is not None and times.null_count:
            fates[times.is_null().to_numpy(zero_copy_only=False)] = NO_EVENT_TIME
        errors = batch.column(ERROR)
        if errors.null_count < len(errors):
            fates[errors.is_valid().to_numpy(zero_copy_only=False)] = BAD_RECORD
        return fates


def _after(step: RowStep, visible: dict[str, pa.Array], fates: Ints32) -> dict[str, pa.Array]:
    """Return the columns after a step, and write the status of the rows that it drops into `fates`."""
    alive: Bools = fates == 0
    if step.predicate is not None:
        holds = _of_alive(step.predicate, visible, alive).fill_null(False)  # noqa: FBT003 - Arrow's signature
        fates[alive & ~holds.to_numpy(zero_copy_only=False)] = step.number
        return visible
    return {n: visible[of] if isinstance(of, str) else _of_alive(of, visible, alive) for n, of in step.columns}


def _of_alive(expression: Predicate, visible: dict[str, pa.Array], alive: Bools) -> pa.Array:
    """Return the value of an expression for the rows that no filter has dropped, null for others.

    One that a filter drops must not fail a later expression, as `1 / v` would after `filter("v > 0")`.
    """
    rows = pa.table({name: visible[name] for name in columns_of(expression)} or {PREFIX: pa.nulls(len(alive))})
    try:
        if alive.all():
            return value_of(expression, rows)
        values = value_of(expression, rows.filter(pa.array(alive)))
    except UNFIT as why:
        raise LeftToSpark(str(why)) from why
    return values.take(pa.array(np.cumsum(alive) - 1, mask=~alive))
