"""Make an operator of global windows: rows are sent to their state partition, and judged there (SEMANTICS 6)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import BadExpression, JobError, StateError
from penstock.graph.specs.global_windows import FINISHED_OUTLET, GlobalWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.trigger_protocol import trigger_words
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE, moments
from penstock.operators.functions.window_calls import output_schema
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
from penstock.operators.triggers.global_batch import GlobalBatch, GlobalWork
from penstock.operators.triggers.global_layout import (
    EVENT_DUE,
    HELD,
    ROW,
    ROWS,
    STATE,
    TIME_DUE,
    TIMED,
    TTL,
    GlobalLayout,
    counted_from,
    expiries,
)
from penstock.operators.triggers.global_side import GlobalSide
from penstock.operators.whole_rows import WholeRowsStep
from penstock.operators.windows.window_rows import LATE_COLUMNS
from penstock.state.keys import Ints
from penstock.state.parts import Part
from penstock.state.row_layout import EXPIRES, conform
from penstock.state.writer import Change
from penstock.time.clock import END_OF_TIME

__all__ = ["GlobalStep", "bind", "bind_side", "step_of"]


def bind_side(spec: GlobalWindows, side: BoundSide) -> GlobalSide:
    """Return the map side; raises JobError for a taken name, and BadExpression for a value that is no number."""
    for sql in (*spec.read_by_trigger, *spec.read_by_evictor):
        kind = side.inputs[sql]
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise BadExpression(f"window {side.name!r} compares {sql!r}, which is {kind} and no number")
    rows = GlobalSide.reading(side, spec.reads(0).expressions)
    if spec.side_streams(side.name):
        taken = next((name for name in rows.visible.names if name.lower() in LATE_COLUMNS.names), None)
        if taken is not None:
            raise JobError(f"column {taken!r} has the name of one that late rows get; rename it, or drop_late()")
    return rows


def bind(spec: GlobalWindows, sides: Sequence[GlobalSide], context: StepContext) -> GlobalStep:
    """Return the step; raises JobError for names that the state takes for itself, and BadExpression for unfit DDL."""
    (side,) = sides
    return step_of(
        spec, side, context.name, None if spec.function is None else output_schema(spec.function, context.name)
    )


def step_of(spec: GlobalWindows, side: GlobalSide, name: str, output: pa.Schema | None) -> GlobalStep:
    """Return the step of this name; `output` are the columns that a function returns, None for aggregates."""
    types = dict(side.inputs)
    merged = output is None and spec.window.evicts_by is None
    kept = () if merged else dict.fromkeys((*spec.read_by_aggregates, *spec.read_by_evictor))
    plan = None
    if spec.aggregates is not None:
        read = {name: None if a.expression is None else types[a.expression] for name, a in spec.aggregates.items()}
        plan = AggregatePlan.build(spec.aggregates, read)
    layout = GlobalLayout(
        keys=side.keys,
        trigger=trigger_words(spec.trigger),
        columns=pa.schema([f for f in side.visible if spec.keeps_rows and f.name not in side.keys.names]),
        inputs={sql: types[sql] for sql in kept},
        plan=plan,
        merged=merged,
    )
    layout.check(f"window {name!r}")
    results = () if plan is None else plan.result_fields
    made = pa.schema([*side.keys, *results]) if output is None else output
    return GlobalStep(name=name, spec=spec, rows_as=side, layout=layout, output=made)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStep(WholeRowsStep, GlobalWork):
    """The step in the state partitions."""

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.layout.keys

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the output, and the rows that came after the finish."""
        late = {FINISHED_OUTLET: pa.schema([*self.rows_as.visible, *LATE_COLUMNS])}
        return {MAIN_OUTLET: self.output, **(late if self.spec.side_streams(self.name) else {})}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return what this step keeps; the trigger is in it to say that it has changed."""
        return self.layout.layout_name

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return keys and rows, which the main table shows, and when keys are due."""
        return self.layout.parts

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs from what the step keeps."""
        return self.layout.evolved(state.written_as, state.schema(ROWS))

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        own = {*self.layout.of_key.names}
        return self.layout.evolved(layout, pa.schema([field for field in stored if field.name not in own]))

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, what is kept for each, and the rows of its window."""
        return {MAIN: self.layout.table}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the moment at which a key expires, and the `ttl` that it was computed by."""
        return frozenset({EXPIRES, TTL})

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return rows of keys, or of windows; the columns of the others are null."""
        table = self.layout.table
        if EXPIRES in rows.column_names:
            at = rows.schema.get_field_index(EXPIRES)
            rows = rows.set_column(at, EXPIRES, rows[EXPIRES].cast(table.field(EXPIRES).type))
        return conform(rows, table)

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return keys, rows and entries; raises StateError for rows that no key has, or too few."""
        layout, rows = self.layout, tables[MAIN]
        hashes = integers(rows, HASHED)
        keys = rows.select(self.keys.names).cast(self.keys)
        grouping = group_rows([column_array(keys, name) for name in self.keys.names], hashes)
        numbers: Ints = (
            np.full(len(hashes), -1, dtype=np.int64)
            if layout.merged
            else column_array(rows, ROW).fill_null(-1).to_numpy()
        )
        own = np.flatnonzero(numbers < 0)
        held = np.zeros(grouping.groups, dtype=np.int64)
        said = np.zeros(grouping.groups, dtype=np.int64)
        np.add.at(held, grouping.ids[numbers >= 0], 1)
        np.add.at(said, grouping.ids[own], column_array(rows, HELD).fill_null(0).to_numpy()[own])
        if len(own) != grouping.groups or len(np.unique(grouping.ids[own])) < len(own):
            raise StateError(f"the state given to step {self.name!r} needs one row without {ROW} for each key")
        if not layout.merged and (held != said).any():
            raise StateError(f"the state given to step {self.name!r} has keys whose {HELD} is not the number of rows")
        append = {}
        of_keys = rows.take(pa.array(own))
        ttl = self.spec.window.idle
        expires = ttl_from = np.full(len(own), NONE, dtype=np.int64)
        if ttl is not None:
            known = moments(of_keys, EXPIRES)
            ttl_from = np.where(known == NONE, moment.time, counted_from(of_keys))
            expires = expiries(ttl_from, known, ttl.micros, moment.time)
        due = {
            part: column_array(of_keys, f"_{part}").fill_null(END_OF_TIME).to_numpy() for part in (EVENT_DUE, TIME_DUE)
        }
        due[TIME_DUE] = np.where(expires == NONE, due[TIME_DUE], np.minimum(due[TIME_DUE], expires + 1))
        mine = {
            EXPIRES: pa.array(expires, mask=expires == NONE),
            TTL: pa.array(np.full(len(own), 0 if ttl is None else ttl.micros), mask=ttl_from == NONE),
            **{f"_{part}": pa.array(at, mask=at == END_OF_TIME) for part, at in due.items()},
        }
        columns = [mine[f.name] if f.name in mine else of_keys[f.name].cast(f.type) for f in layout.of_key]
        none = np.zeros(len(own), dtype=np.int64)
        own_keys = keys.take(pa.array(own))
        append[STATE] = layout.rows(none, hashes[own], own_keys, pa.table(columns, schema=layout.of_key))
        if not layout.merged:
            of_rows = np.flatnonzero(numbers >= 0)
            table = conform(rows.take(pa.array(of_rows)), layout.of_row)
            append[ROWS] = layout.rows(numbers[of_rows], hashes[of_rows], keys.take(pa.array(of_rows)), table)
        first: list[int | None] = []
        for part, at in due.items():
            some = np.flatnonzero(at < END_OF_TIME)
            append[part] = layout.entries(at[some], hashes[own][some], own_keys.take(pa.array(some)))
            first.append(int(at[some].min()) if len(some) else None)
        facts = {} if ttl is None else {TIMED: ttl.micros}
        return Rebuilt(change=Change(append=append, facts=facts), due=first[0], due_time=first[1])

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Take the rows of a batch, judge the triggers of their keys and of those that are due, and emit windows."""
        batch = GlobalBatch(self, state, self.rows_as.received(inputs[0]), facts)
        yield from batch.emitted()
        yield Tally(batch.counts)
        after = yield batch.change
        assert after is not None
        yield Due(after.first_group(EVENT_DUE), after.first_group(TIME_DUE))
