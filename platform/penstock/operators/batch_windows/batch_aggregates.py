"""Aggregate the rows of windows of batch time from the partials of their batches.

Where every aggregate has an exact inverse (SEMANTICS 3.3), a window follows from the one before by what enters and
leaves. Else the partials of all of its batches are merged.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates import AggregatePlan
from penstock.operators.aggregates.kinds import ONE_CELL
from penstock.operators.batch_windows.aggregate_sides import InputSide, PartialSide
from penstock.operators.batch_windows.batch_sides import COUNTED
from penstock.operators.batch_windows.window_forms import Form, Made, RunningForm, Whole, WholeForm, entry
from penstock.operators.columns import integers
from penstock.operators.protocol import HASHED, StepFacts
from penstock.state.row_layout import HASH

__all__ = ["MergedAggregates", "RunningAggregates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregates(Form, ABC):
    """Aggregates of which a batch keeps one row of partials for each key; `facts` are those of the batch."""

    side: PartialSide | InputSide
    facts: StepFacts | None = None

    @property
    def plan(self) -> AggregatePlan:
        """Return the aggregates."""
        return self.side.plan

    @property
    def partials(self) -> PartialSide:
        """Return what merges partials."""
        return self.side if isinstance(self.side, PartialSide) else self.side.partials

    @property
    def stored(self) -> pa.Schema:
        """Return keys and partials."""
        return pa.schema([*self.side.keys, *self.plan.fields])

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the type of the values of each partial whose column does not show it."""
        hidden = ((a, ONE_CELL[a.kind].hides) for a in self.plan.aggregates if a.kind in ONE_CELL)
        return tuple(f"{hides} of {a.given} {a.expression}" for a, hides in hidden if hides is not None)

    @property
    def made(self) -> pa.Schema:
        """Return keys and results."""
        return pa.schema([*self.side.keys, *self.plan.result_fields])

    @property
    def leading(self) -> int:
        """Return that the bounds follow the keys."""
        return len(self.side.keys)

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[Self]:
        """Yield the same for a batch, by whose number and time its rows are in order."""
        yield replace(self, facts=facts)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the partials of a batch."""
        assert self.facts is not None
        side = self.side
        rows = side.received(tables) if isinstance(side, PartialSide) else side.reduced(tables, self.facts)
        return self._entry(rows)

    def _entry(self, rows: pa.Table) -> pa.Table:
        return entry(rows[HASHED], rows.select(self.stored.names))

    def _hashed(self, rows: pa.Table) -> pa.Table:
        """Return stored rows as they travel."""
        return pa.table([rows[HASH], *(rows[name] for name in self.stored.names)], schema=self.partials.sent)

    def _results(self, rows: pa.Table) -> Made:
        """Return the results of partials, of which each is of a key and window."""
        results = self.plan.results(self.plan.partials_of(rows))
        made = pa.table([*(rows[key.name] for key in self.side.keys), *results], schema=self.made)
        return Made(made, np.ascontiguousarray(integers(rows, HASHED)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedAggregates(_Aggregates, WholeForm):
    """Aggregates of which one has no exact inverse: each window merges the partials of its batches."""

    def of(self, window: Whole) -> Made:
        """Return a row for each key, keys in order of their hashes."""
        return self._results(self.partials.merged(self._hashed(window.rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAggregates(_Aggregates, RunningForm):
    """Aggregates that all have an exact inverse: what leaves is subtracted, and a key without rows goes."""

    @property
    def stays(self) -> bool:
        """Return that a key goes with its rows."""
        return False

    def moved(self, running: pa.Table, left: pa.Table, entered: pa.Table) -> tuple[pa.Table, Made]:
        """Return the partials of a window from those of the one before, and the results."""
        parts = [self._hashed(part) for part in (running, entered, left)]
        rows = pa.concat_tables(parts).combine_chunks()
        sign = np.ones(rows.num_rows, dtype=np.int64)
        sign[rows.num_rows - left.num_rows :] = -1
        merged = self.partials.merged(rows, sign)
        merged = merged.filter(pa.array(integers(merged, COUNTED) > 0)).combine_chunks()
        return self._entry(merged), self._results(merged)
