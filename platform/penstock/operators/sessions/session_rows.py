"""Merge rows into sessions before the shuffle, in the task that made them (SEMANTICS 3).

A row at t with gap g is the span [t, t + g], and spans that touch are one session. So a task sends one row for each key
and session of its rows. Whether an old row is late depends on what it joins, and so is judged after the shuffle. Late
rows that go to a side stream are sent whole, each as a session of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.errors import BadExpression, JobError
from penstock.graph.policies import LatenessRule
from penstock.graph.specs.session_windows import ASIDE_OUTLET, LONGEST_GAP, SessionWindow, SessionWindows
from penstock.graph.windows import LateTo
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import HASHED, TIME, BoundSide, Emit, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.sessions.session_spans import merged_spans
from penstock.operators.windows.applied_windows import plan_of
from penstock.operators.windows.arrival_places import inputs_of, placed
from penstock.operators.windows.slices import FARTHEST
from penstock.operators.windows.window_rows import LATE_COLUMNS
from penstock.state.keys import Bools, Ints

__all__ = ["END", "LATE_ARRIVAL", "ROW", "START", "SURELY_LATE", "SessionSide"]

START, END, SURELY_LATE = "_penstock_start", "_penstock_end", "_penstock_surely_late"
LATE_ARRIVAL, ROW = "_penstock_late_arrival", "_penstock_row_"
"""Columns of rows that are sent whole: their place in the order of arrival, and `ROW` before the user's names."""
_UTC = pa.timestamp("us", tz="UTC")
_ASIDE = pa.schema([("_error", pa.string()), ("_event_time", _UTC)])
"""The columns that rows in quarantine get beside their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSide:
    """Map side: rows without a gap are quarantined, the others merged into sessions."""

    bound: BoundSide
    window: SessionWindow
    plan: AggregatePlan

    @classmethod
    def of(cls, spec: SessionWindows, side: BoundSide) -> Self:
        """Return the map side; raises JobError for a taken name, and BadExpression for a gap that is none."""
        plan = plan_of(spec.aggregates, side)
        gap, added = spec.window.gap, {*LATE_COLUMNS.names} if isinstance(spec.window.late, LateTo) else set()
        if isinstance(gap, str):
            added |= {*_ASIDE.names}
            kind = side.inputs[gap]
            if not (pa.types.is_integer(kind) or pa.types.is_duration(kind)):
                raise BadExpression(
                    f"the gap of window {side.name!r} is {gap}, a {kind}: give an interval or microseconds"
                )
        if taken := next((field.name for field in side.visible or () if field.name.lower() in added), None):
            raise JobError(f"column {taken!r} has the name of one that a side stream of {side.name!r} adds; rename it")
        return cls(bound=side, window=spec.window, plan=plan)

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the rows without a gap, where rows have one of their own."""
        if isinstance(self.window.gap, int):
            return {}
        return {ASIDE_OUTLET: pa.schema([*(self.bound.visible or ()), *_ASIDE])}

    @property
    def visible(self) -> pa.Schema | None:
        """Return the columns of late rows, where a side stream takes them."""
        return self.bound.visible if isinstance(self.window.late, LateTo) else None

    def differs(self, other: SessionSide) -> str | None:
        """Return that keys, partials or columns have other types."""
        mine, theirs = ((side.bound.keys, side.plan.fields, side.visible) for side in (self, other))
        return None if mine == theirs else "other types"

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Merge the rows that have a gap into sessions."""
        n = rows.table.num_rows
        gaps = self._gaps(rows)
        aside: Bools = gaps <= 0
        outside = ~aside & (np.abs(integers(rows.table, TIME)) > FARTHEST)
        kept = ~(aside | outside)
        sent = int(kept.sum())
        yield Tally({"rows": n, "in_no_window": int(outside.sum()), "quarantined": int(aside.sum()), "sent": sent})
        if ASIDE_OUTLET in facts.read and aside.any():
            bad = rows.only(aside)
            yield Emit(outlet=ASIDE_OUTLET, rows=self._quarantined(bad), arrivals=bad.arrivals)
        if sent:
            yield Send(self._sessions(rows if sent == n else rows.only(kept), gaps[kept], facts))

    def _gaps(self, rows: RowsOfBranch) -> Ints:
        """Return the gap of each row, 0 for one that has none, or one that reaches beyond time."""
        if isinstance(self.window.gap, int):
            return np.full(rows.table.num_rows, self.window.gap, dtype=np.int64)
        column = column_array(rows.table, rows.inputs[self.window.gap])
        if pa.types.is_duration(column.type):
            column = column.cast(pa.duration("us"))
        gaps: Ints = column.cast(pa.int64()).fill_null(0).to_numpy()
        return np.where(gaps > LONGEST_GAP, 0, gaps)

    def _quarantined(self, rows: RowsOfBranch) -> pa.Table:
        table = rows.table
        error = f"the gap of {self.bound.name!r}, {self.window.gap}, is null, not above 0, or longer than time"
        bad = table.select([*rows.visible, TIME]).append_column("_error", pa.repeat(error, table.num_rows))
        return bad.append_column("_event_time", table[TIME].cast(_UTC))

    def _sessions(self, rows: RowsOfBranch, gaps: Ints, facts: StepFacts) -> pa.Table:
        kept = placed(rows, self.plan, batch=facts.batch, chained=self.bound.chained)
        table = kept.rows.table
        starts = integers(table, TIME)
        ends = starts + gaps
        keys = [column_array(table, column) for column in rows.keys.values()]
        hashes = integers(table, rows.hash_column)
        sure, alone = self._old(starts, ends, facts.late)
        owners = group_rows(keys, hashes).ids * 2 + sure
        owners[alone] = int(owners.max()) + 1 + np.arange(int(alone.sum()))
        spans = merged_spans(owners, starts, ends)
        partials = self.plan.reduce(inputs_of(kept.rows, kept.order, self.plan), spans.ids, spans.total)
        at = pa.array(spans.first)
        columns: dict[str, Any] = {
            HASHED: pa.array(hashes[spans.first]),
            **{name: key.take(at) for name, key in zip(rows.keys, keys, strict=True)},
            START: pa.array(spans.starts),
            END: pa.array(spans.ends),
            SURELY_LATE: pa.array(sure[spans.first]),
            **dict(zip([f.name for f in self.plan.fields], self.plan.arrays_of(partials), strict=True)),
        }
        if self.visible is not None:
            whole = pa.array(spans.first, mask=~alone[spans.first])
            columns[LATE_ARRIVAL] = rows.arrivals().take(whole)
            columns |= {ROW + field.name: table[field.name].take(whole) for field in self.visible}
        return kept.beside(pa.table(columns), self.plan)

    def _old(self, starts: Ints, ends: Ints, late: int | None) -> tuple[Bools, Bools]:
        """Return which rows are late whatever they join, and which are to be sent whole because they may be late."""
        none = np.zeros(len(starts), dtype=np.bool_)
        if late is None:
            return none, none
        sure = starts < late if self.window.rule is LatenessRule.WATERMARK else none
        return sure, none if self.visible is None else sure | (ends < late)

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel, but for places beside partials."""
        whole = [(LATE_ARRIVAL, pa.binary()), *((ROW + f.name, f.type) for f in self.visible or ())]
        own = [(START, pa.int64()), (END, pa.int64()), (SURELY_LATE, pa.bool_())]
        return pa.schema(
            [(HASHED, pa.int64()), *self.bound.keys, *own, *self.plan.fields, *(whole if self.visible else ())]
        )
