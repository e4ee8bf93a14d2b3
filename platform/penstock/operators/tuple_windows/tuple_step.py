"""Run windows of rows: the last rows of a key, after so many rows or every so often (SEMANTICS 5).

`TupleBatch` has the work of a batch, `rounds` says which rows are in which windows, and `tuple_layout` what is kept.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import JobError, StateError
from penstock.graph.specs.tuple_windows import TupleWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE
from penstock.operators.functions.window_calls import WindowCalls, output_schema
from penstock.operators.grouping import group_rows
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution
from penstock.operators.tuple_windows.key_ledger import TTL
from penstock.operators.tuple_windows.pane_step import PaneStep, has_panes
from penstock.operators.tuple_windows.tuple_batch import TupleBatch
from penstock.operators.tuple_windows.tuple_layout import (
    ARRIVED,
    AT,
    CLOSED,
    ENTERED,
    FIRED,
    IDLE,
    KEYS,
    ROWS,
    SEEN,
    WAITING,
    TupleLayout,
    micros,
)
from penstock.operators.tuple_windows.tuple_results import AggregateMaker, FunctionMaker, Maker
from penstock.operators.tuple_windows.tuple_side import TupleSide
from penstock.operators.whole_rows import WholeRowsStep
from penstock.state.parts import Part
from penstock.state.row_layout import DELETED, GROUP, HASH
from penstock.state.writer import Change

__all__ = ["TupleStep", "bind", "bind_side", "step_of"]

_UTC = pa.timestamp("us", tz="UTC")


def bind_side(spec: TupleWindows, side: BoundSide) -> TupleSide:
    """Return the map side; raises JobError for a taken name, and BadExpression for aggregates that are none."""
    return TupleSide.bind(spec, side)


def bind(spec: TupleWindows, sides: Sequence[TupleSide], context: StepContext) -> TupleStep | PaneStep:
    """Return the step; raises JobError for names that the state takes for itself, and for unfit DDL."""
    (side,) = sides
    returned = None if spec.function is None else output_schema(spec.function, context.name)
    return step_of(spec, side, context.name, returned)


def step_of(spec: TupleWindows, side: TupleSide, name: str, returned: pa.Schema | None) -> TupleStep | PaneStep:
    """Return the step; `returned` are the columns that a function returns, None where there is none."""
    if returned is None and has_panes(spec.window):
        return PaneStep.of(side, name)
    return TupleStep.of(spec, side, name, returned)


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleStep(WholeRowsStep):
    """The step in the state partitions."""

    name: str
    spec: TupleWindows
    side: TupleSide
    layout: TupleLayout
    returned: pa.Schema | None
    """The columns that a function returns, None where there is none."""

    @classmethod
    def of(cls, spec: TupleWindows, side: TupleSide, name: str, returned: pa.Schema | None) -> TupleStep:
        """Return the step; raises JobError for names that the state takes for itself."""
        columns = pa.schema([field for field in side.visible if field.name not in side.keys.names])
        aggregated = returned is None
        layout = TupleLayout(name=name, window=spec.window, keys=side.keys, columns=columns, aggregated=aggregated)
        step = cls(name=name, spec=spec, side=side, layout=layout, returned=returned)
        names = step.outlets[MAIN_OUTLET].names
        if twice := {name for name in names if names.count(name) > 1}:
            raise JobError(f"a window step has two columns named {min(twice)!r}")
        return step

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.layout.keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the output."""
        return {MAIN_OUTLET: self._output}

    @property
    def _output(self) -> pa.Schema:
        return self._aggregates().output if self.returned is None else self.returned

    def _aggregates(self) -> AggregateMaker:
        assert self.side.plan is not None
        inputs = {name: column for column, _, name in self.side.inputs}
        return AggregateMaker(self.keys, self.side.plan, inputs, self.layout.length)

    def _maker(self, facts: StepFacts) -> Maker:
        function = self.spec.function
        if function is None:
            return self._aggregates()
        calls = WindowCalls(self.name, function.fn, self._output, facts)
        return FunctionMaker(calls, self.keys, self.side.visible, self._output, self.layout.length)

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps; lag and TTL are no part of it, and may change."""
        return self.layout.described

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return rows, waiting rows and keys, which the main table shows, and the index of TTLs."""
        return self.layout.parts

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs: the step resumes from rows of the same keys and windows."""
        return self.layout.evolution(state)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        return self.layout.evolved(layout, stored)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, place and time of each row, and its columns."""
        return {MAIN: self.layout.table}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the columns of keys: then no round has ended, and the last row of a key came at the moment."""
        return frozenset({FIRED, SEEN})

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each row that is kept, and for each key that is."""
        return self.layout.shown(rows)

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the state that has these rows; raises StateError for rows without a place."""
        layout, rows = self.layout, tables[MAIN]
        absent = [name for name in (FIRED, SEEN) if name not in rows.column_names]
        for name in absent:
            rows = rows.append_column(layout.table.field(name), pa.nulls(rows.num_rows, layout.table.field(name).type))
        rows = rows.append_column(HASH, rows[HASHED])
        of_rows = rows.filter(pc.is_valid(rows[AT]))
        if none := of_rows[ARRIVED].null_count:
            raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {ARRIVED}")
        waits = pc.is_null(of_rows[ENTERED])
        waiting, held = of_rows.filter(waits), of_rows.filter(pc.invert(waits))
        keys = self._keys_of(rows.filter(pc.is_null(rows[AT])), of_rows, moment)
        origin = 0 if layout.event else moment.zero
        end = layout.last_end(layout.clock(time=moment.time, watermark=moment.watermark), origin)
        floor = NONE if end is None or layout.by_clock else end
        append = {
            WAITING: layout.stored(WAITING, waiting, **{GROUP: np.maximum(micros(waiting, AT), floor)}),
            ROWS: layout.stored(
                ROWS,
                held,
                **{GROUP: integers(held, ARRIVED), DELETED: np.zeros(held.num_rows, dtype=np.bool_)},
            ),
            KEYS: layout.stored(
                KEYS,
                keys,
                **{
                    GROUP: np.zeros(keys.num_rows, dtype=np.int64),
                    DELETED: np.zeros(keys.num_rows, dtype=np.bool_),
                },
            ),
        }
        if layout.idle is not None:
            append[IDLE] = layout.entries(micros(keys, SEEN) + layout.idle + 1, keys)
        due = Due(moment.watermark, moment.time + 1)  # the next batch says when more is due
        facts = {CLOSED: end} if layout.slide is not None and end is not None else {}
        facts |= {} if layout.idle is None else {TTL: layout.idle}
        change = Change(append={part: table for part, table in append.items() if table.num_rows}, facts=facts)
        busy = bool(change.append)
        return Rebuilt(
            change=change,
            due=(NONE if due.watermark is None else due.watermark) if busy and layout.event else None,
            due_time=due.time if busy and (not layout.event or layout.idle is not None) else None,
        )

    def _keys_of(self, keys: pa.Table, rows: pa.Table, moment: StepFacts) -> pa.Table:
        """Return the rows of keys, and with a TTL one for each key that has rows only: its last came at the moment."""
        if self.layout.idle is None:  # a TTL that comes later knows no key that a former one has dated
            nobody_knows = pa.nulls(keys.num_rows, keys.schema.field(SEEN).type)
            return keys.set_column(keys.schema.get_field_index(SEEN), SEEN, nobody_knows)
        every = pa.concat_tables([keys, rows])
        grouping = group_rows([column_array(every, name) for name in self.keys.names], integers(every, HASH))
        every = every.take(pa.array(grouping.first))  # rows of keys stand before the others
        seen = pc.fill_null(pc.if_else(pc.is_null(every[AT]), every[SEEN], None), pa.scalar(moment.time).cast(_UTC))
        fired = pc.if_else(pc.is_null(every[AT]), every[FIRED], None)
        every = every.set_column(every.schema.get_field_index(SEEN), SEEN, seen)
        return every.set_column(every.schema.get_field_index(FIRED), FIRED, fired)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Evaluate the windows that the batch makes due."""
        received = self.side.received(inputs[0])
        batch = TupleBatch(self.layout, self.side, state, received, facts)
        maker = self._maker(facts)
        with maker.opened(self.name, facts):
            yield from batch.emits(maker)
        outside = batch.in_no_window
        merged = received.num_rows - outside
        yield Tally({"merged": merged, "in_no_window": outside, "fired": batch.fired, "expired": batch.expired})
        after = yield batch.change()
        assert after is not None
        yield batch.next_due(after)
