"""Send the rows that windows of rows keep, and judge late ones, before the shuffle (SEMANTICS 5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.errors import JobError
from penstock.graph.specs.tuple_windows import LATE_OUTLET, Time, TupleWindow, TupleWindows
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.aggregates.naming import partial_name
from penstock.operators.columns import integers
from penstock.operators.protocol import TIME, BoundSide, Emit, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.whole_rows import WholeRows
from penstock.operators.windows.slices import FARTHEST
from penstock.operators.windows.window_rows import LATE_COLUMNS, late_rows
from penstock.time.clock import END_OF_TIME

__all__ = ["TupleSide", "behind_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleSide(WholeRows):
    """Map side: `visible` are the columns that the state keeps.

    A function gets all columns of the stream. Aggregates read only `inputs`: for each column its expression, and the
    name that the plan has for it.
    """

    bound: BoundSide
    window: TupleWindow
    plan: AggregatePlan | None
    inputs: tuple[tuple[str, str, str], ...]

    @classmethod
    def bind(cls, spec: TupleWindows, side: BoundSide) -> TupleSide:
        """Return the map side; raises JobError for a taken name, and BadExpression for aggregates that are none."""
        visible = side.visible or pa.schema([])
        added = {*LATE_COLUMNS.names} if spec.window.late_to is not None else set()
        if taken := next((name for name in visible.names if name.lower() in added), None):
            raise JobError(f"column {taken!r} has the name of one that late rows of {side.name!r} get; rename it")
        if spec.aggregates is None:
            return cls.of(side, bound=side, window=spec.window, plan=None, inputs=())
        types = {n: None if a.expression is None else side.inputs[a.expression] for n, a in spec.aggregates.items()}
        plan = AggregatePlan.build(spec.aggregates, types)
        read = {a.source: a for a in plan.aggregates if a.source is not None}
        inputs = tuple((partial_name("in", a.expression or ""), a.expression or "", name) for name, a in read.items())
        given = pa.schema([(column, side.inputs[sql]) for column, sql, _ in inputs])
        kept = replace(side, visible=pa.schema([*side.keys, *given]))
        return cls.of(kept, bound=side, window=spec.window, plan=plan, inputs=inputs)

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return late rows: their own columns, then event time, watermark and step."""
        if self.window.late_to is None or self.bound.visible is None:
            return {}
        return {LATE_OUTLET: pa.schema([*self.bound.visible, *LATE_COLUMNS])}

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Count and hand over late rows, and send the others."""
        if self.window.time is Time.EVENT:
            watermark = behind_by(facts.late, self.window.lag)
            times = integers(rows.table, TIME)
            outside = np.abs(times) > FARTHEST
            late = (times < watermark) & ~outside if watermark is not None else np.zeros(len(times), dtype=np.bool_)
            yield Tally(
                {"rows": int((late | outside).sum()), "late": int(late.sum()), "in_no_window": int(outside.sum())}
            )
            if LATE_OUTLET in facts.read and late.any():
                old = rows.only(late)
                table = late_rows(old.table.select([*old.visible, TIME]), watermark=watermark, step=self.bound.name)
                yield Emit(outlet=LATE_OUTLET, rows=table, arrivals=old.arrivals)
            kept = ~(late | outside)
            rows = rows if kept.all() else rows.only(kept)
        yield from WholeRows.prepare(self, self._kept(rows), facts)

    def _kept(self, rows: RowsOfBranch) -> RowsOfBranch:
        """Return rows with the columns that the state keeps."""
        if self.plan is None:
            return rows
        table = rows.table
        columns = {name: table[column] for name, column in rows.keys.items()}
        columns |= {column: table[rows.inputs[sql]] for column, sql, _ in self.inputs}
        hidden = {name: table[name] for name in table.column_names if name not in columns}
        return replace(rows, table=pa.table({**hidden, **columns}), visible=self.visible.names)


def behind_by(watermark: int | None, lag: int) -> int | None:
    """Return a watermark that is so far behind; the end of time stays the end."""
    return watermark if watermark is None or watermark == END_OF_TIME else max(watermark, -(2**63) + lag) - lag
