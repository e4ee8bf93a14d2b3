"""Run windows of batch time (SEMANTICS 4).

The state of a partition has at most two parts. `batches` has the rows of each batch that a later window needs, whole
or reduced to one for each key. `_group` is the batch time. Where a window follows from the one before, `window` has the
value of each key in the newest one, and its end as `_until`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import DuplicateName, JobError, StateError
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindows
from penstock.graph.specs.batch_windows import Form as FormName
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.batch_windows.aggregate_sides import PartialSide, aggregate_side
from penstock.operators.batch_windows.applied_rows import AppliedForm
from penstock.operators.batch_windows.batch_aggregates import MergedAggregates, RunningAggregates
from penstock.operators.batch_windows.batch_ends import BatchEnds
from penstock.operators.batch_windows.batch_sides import COUNTED, CountSide, RowSide, ValueSide
from penstock.operators.batch_windows.inverse_reductions import RunningValues
from penstock.operators.batch_windows.key_reductions import KeyReduction
from penstock.operators.batch_windows.running_counts import CountForm
from penstock.operators.batch_windows.window_batch import BATCHES, UNTIL, WINDOW, WindowBatch, window_rows
from penstock.operators.batch_windows.window_forms import PLACE, GroupForm, ReduceForm, RowsForm, RunningForm, WholeForm
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.window_calls import output_schema
from penstock.operators.predicate_values import TablePredicate
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
from penstock.operators.whole_rows import WholeRowsStep
from penstock.state.keys import Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform
from penstock.state.writer import Change

__all__ = ["BatchWindowStep", "bind", "bind_side", "step_of"]

_UTC = pa.timestamp("us", tz="UTC")
BATCH_TIME, WINDOW_END = "batch_time", "window_end"
"""The columns of the table that shows the state: each row is of a batch, or of the window that ends then."""
_BOUNDS = pa.schema([("window_start", _UTC), ("window_end", _UTC)])
_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, PLACE, COUNTED, UNTIL, BATCH_TIME, "_state_partition", *_BOUNDS.names})
"""Columns that rows of state have beside those of the stream."""
_OF_EACH = " of each "
"""Between the length and a longer slide in a layout."""


def bind_side(spec: BatchWindows, side: BoundSide) -> RowSide | CountSide | PartialSide:
    """Return the map side; raises JobError for a column that has a name which the step gives."""
    named = pa.schema([]) if side.visible is None else side.visible
    for name in (*named.names, *side.keys.names, *((spec.column,) if spec.value is not None else ())):
        if name.lower() in {"window_start", "window_end"}:
            raise DuplicateName(f"window {side.name!r} adds a column {name!r}, which its rows have; rename that")
        if name.lower() in _OWN:
            raise JobError(f"a column of window {side.name!r} has the name {name!r}, which Penstock uses for itself")
    if spec.form in (FormName.ROWS, FormName.APPLY):
        return RowSide.of(side, window=spec.window)
    if spec.aggregates is not None:
        return aggregate_side(spec.aggregates, spec.window, side)
    values = pa.schema([] if spec.value is None else [(spec.column, side.inputs[spec.value])])
    if spec.form in (FormName.COUNT, FormName.COUNT_BY_VALUE):
        return CountSide(window=spec.window, keys=side.keys, values=values, expression=spec.value)
    assert spec.value is not None
    return ValueSide(
        window=spec.window,
        visible=values,
        keys=side.keys,
        chained=side.chained,
        ways=side.ways,
        expression=spec.value,
        column=spec.column,
    )


def bind(spec: BatchWindows, sides: Sequence[Any], context: StepContext) -> BatchWindowStep:
    """Return the step; raises BadExpression for DDL that is none, and for a `keep` that does not fit."""
    (side,) = sides
    return step_of(spec, side, context, None if spec.function is None else output_schema(spec.function, context.name))


def step_of(spec: BatchWindows, side: Any, context: StepContext, returned: pa.Schema | None) -> BatchWindowStep:
    """Return the step; `returned` are the columns that a function over windows returns, None where there is none."""
    form: WholeForm | RunningForm
    match spec.form:
        case FormName.ROWS:
            form = RowsForm(side=side)
        case FormName.GROUP:
            form = GroupForm(side=side)
        case FormName.REDUCE:
            assert spec.fn is not None
            (field,) = side.visible
            form = _reducing(spec, side, KeyReduction(step=context.name, field=field, fn=spec.fn, inverse=spec.inverse))
        case FormName.APPLY:
            assert spec.function is not None
            assert returned is not None
            form = AppliedForm(side=side, step=context.name, fn=spec.function.fn, returned=returned)
        case FormName.AGGREGATE:
            form = (RunningAggregates if side.plan.exact_inverse else MergedAggregates)(side=side)
        case _:
            form = CountForm(side=side)
    return BatchWindowStep(name=context.name, keys=side.keys, window=spec.window, word=spec.form.value, form=form)


def _reducing(spec: BatchWindows, side: ValueSide, reduction: KeyReduction) -> WholeForm | RunningForm:
    """Return how values are reduced; raises BadExpression for a `keep` that does not fit keys and value."""
    keep = None
    if spec.keep is not None:
        keep = TablePredicate(predicate=spec.keep, what=f"keep= of window {reduction.step!r}, {spec.keep_text},")
        keep.check(pa.schema([*side.keys, *side.visible]))
    if spec.inverse is None:
        return ReduceForm(side=side, reduction=reduction, keep=keep)
    return RunningValues(side=side, reduction=reduction, keep=keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWindowStep(WholeRowsStep):
    """The step in the state partitions; `word` is the method that made it."""

    name: str
    keys: pa.Schema
    window: BatchWindow
    word: str
    form: WholeForm | RunningForm

    @property
    def runs(self) -> bool:
        """Return whether a window follows from the one before."""
        return isinstance(self.form, RunningForm)

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the output: bounds follow the keys, or all columns of rows.

        Those of a function are its own.
        """
        fields = [*self.form.made]
        if not self.form.bounded:
            return self.form.made
        return pa.schema([*fields[: self.form.leading], *_BOUNDS, *fields[self.form.leading :]])

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the output."""
        return {MAIN_OUTLET: self.output}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return in words what is kept, and for how long.

        The slide is no part of it, and may change, but where it leaves batches out.
        """
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        columns = (f"{field.name} {field.type}" for field in self.form.stored if field.name not in _OWN)
        kept = ", ".join((*columns, *self.form.counted))
        return f"[{keys}] {self.word} of {kept or 'rows'} by batch; kept {self._kept}"

    @property
    def _kept(self) -> str:
        length, slide = self.window.length, self.window.slide
        return f"{length} us" if slide is None or slide <= length else f"{length} us{_OF_EACH}{slide} us"

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return batches, and the newest window where the next one follows from it; the main table shows both."""
        keys = tuple(self.keys.names)
        batches = Part(name=BATCHES, identity=keys, merge=Merge.APPEND, table=MAIN)
        if not self.runs:
            return by_name([batches])
        return by_name([batches, Part(name=WINDOW, identity=keys, merge=Merge.APPEND, table=MAIN)])

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs; a longer window is fine as long as no batch was forgotten."""
        return self._evolved(state.written_as, complete=BATCHES not in state.manifest.floors)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says; what was forgotten then is not known."""
        return self._evolved(layout, complete=False)

    def _evolved(self, layout: str, *, complete: bool) -> Evolution:
        kept, _, times = layout.rpartition("; kept ")
        length, _, every = times.partition(_OF_EACH)
        if kept != self.layout_name.rpartition("; kept ")[0]:
            return Evolution(refused=(f"it keeps {self.layout_name}, and its state is {layout}",))
        if self.window.length > int(length.removesuffix(" us")) and not complete:
            forgotten = (
                f"its windows have {self.window.length:,} us of batches, and the state has forgotten all before the "
                f"last {length}"
            )
            return Evolution(refused=(forgotten,))
        slide = self.window.slide
        if every and (slide is None or slide % int(every.removesuffix(" us"))):
            left_out = (
                f"its windows end every {self._every}, and its state has of each {every} of batches the last {length}, "
                "because the others were in no window: its first windows would lack their rows"
            )
            return Evolution(refused=(left_out,))
        return Evolution()

    @property
    def _every(self) -> str:
        return "batch" if self.window.slide is None else f"{self.window.slide:,} us"

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, what is kept, and the batch time, or the end of the window, that each row is of."""
        ends = [(WINDOW_END, _UTC)] if self.runs else []
        return {MAIN: pa.schema([*self.form.stored, (BATCH_TIME, _UTC), *ends])}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return the rows of batches, or those of the newest window."""
        column, name = (GROUP, BATCH_TIME) if part == BATCHES else (UNTIL, WINDOW_END)
        return conform(rows.append_column(name, rows[column].cast(_UTC)), self.tables[MAIN])

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what leaves out the newest window of a snapshot, where windows are made from their batches alone."""

        def of_batches(rows: pa.Table) -> pa.Table:
            if self.runs or WINDOW_END not in rows.column_names:
                return rows
            return rows.filter(rows[WINDOW_END].is_null()).drop_columns([WINDOW_END])

        return of_batches

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return these rows as state; raises StateError for one that is of no batch and of no window, or of both."""
        rows = tables[MAIN].rename_columns([HASH if name == HASHED else name for name in tables[MAIN].column_names])
        of_batches = rows[BATCH_TIME].is_valid().to_numpy()
        of_windows = rows[WINDOW_END].is_valid().to_numpy() if self.runs else np.zeros(rows.num_rows, dtype=np.bool_)
        if (of_batches == of_windows).any():
            without = "leave out those of the newest window, which only functions and aggregates with an inverse read"
            raise StateError(
                f"the state given to step {self.name!r} has rows "
                + ("that are not of one batch or one window" if self.runs else f"without {BATCH_TIME}; {without}")
            )
        batches, running = rows.filter(pa.array(of_batches)), rows.filter(pa.array(of_windows))
        stored = [HASH, *self.form.stored.names]
        times = _micros(batches, BATCH_TIME)
        append = {BATCHES: batches.select(stored).add_column(0, GROUP, pa.array(times))}
        # The batches before may have been forgotten: the rows do not say, and a longer window would lack them.
        floors = {BATCHES: int(times.min())} if len(times) else {}
        if running.num_rows:
            until = int(_micros(running, WINDOW_END).max())
            append[WINDOW] = window_rows(running.select(stored), until)
            floors[BATCHES] = until - self.window.length + 1
        # The next tick finds out which window is due.
        due = moment.time + 1 if rows.num_rows else None
        return Rebuilt(change=Change(append=append, floors=floors), due=None, due_time=due)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Fire the windows that are due since the batch before, then keep what later ones need."""
        with self.form.opened(facts) as form:
            rows = form.received(inputs[0])
            ends = BatchEnds.of(self.window, facts)
            batch = WindowBatch(form, self.output, state, rows, facts, ends)
            yield from batch.fired()
        counted = COUNTED in self.form.stored.names
        merged = int(integers(rows, COUNTED).sum()) if counted else sum(t.num_rows for t in inputs[0])
        yield Tally({"merged": merged})
        after = yield batch.change()
        assert after is not None
        yield Due(None, batch.due(after))


def _micros(rows: pa.Table, name: str) -> Ints:
    times: Ints = column_array(rows, name).cast(pa.int64()).to_numpy()
    return times
