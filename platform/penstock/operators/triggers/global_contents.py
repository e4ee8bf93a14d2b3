"""Keep the rows of global windows, or what aggregates make of them, and compute what windows give that fire.

`WindowRows` keeps rows: for functions, and where an evictor takes rows out. `MergedRows` keeps partial aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.window_evictors import ReadyEvictor
from penstock.graph.window_functions import WindowView
from penstock.operators.aggregates import AggregatePlan, Partials, Rows
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.key_index import NONE, moments
from penstock.operators.functions.python_values import key_values
from penstock.operators.functions.window_calls import WindowCalls
from penstock.operators.protocol import TIME, StateView, StepFacts
from penstock.operators.triggers.evictions import WindowedRows, kept_rows
from penstock.operators.triggers.global_layout import EVENT_TIME, ROW, ROWS, GlobalLayout
from penstock.operators.triggers.row_evictors import kept_by
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import conform

__all__ = ["Given", "MergedRows", "WindowRows", "Windows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of a batch in one partition, before any of them fires.

    Attributes:
        name: The name of the step.
        spec: What the job says of it.
        visible: The columns of the stream.
        output: The columns of its output.
        layout: The columns of its state.
        facts: Those of the batch.
        state: The state before the batch.
        hashes: int64: the hash of each key, ascending.
        keys: The key columns, a row for each key.
        held: int64: how many rows the state has of each key.
        stored: What the state has for each key, nulls where it has nothing.
        rows: The batch's rows that count, in the order of arrival.
        ids: int64: the key of each of these rows.
        numbers: int64: the number of each among those of its key, after those that are held.
        read: Returns the values of an expression for these rows.
    """

    name: str
    spec: GlobalWindows
    visible: pa.Schema
    output: pa.Schema
    layout: GlobalLayout
    facts: StepFacts
    state: StateView
    hashes: Ints
    keys: pa.Table
    held: Ints
    stored: pa.Table
    rows: pa.Table
    ids: Ints
    numbers: Ints
    read: Callable[[str], pa.Array]

    def keys_at(self, places: Ints) -> pa.Table:
        """Return the keys with these numbers."""
        columns = [column_array(self.keys, name).take(pa.array(places)) for name in self.keys.column_names]
        return pa.table(columns, schema=self.keys.schema)


@dataclass(frozen=True, slots=True)
class Given:
    """What windows that fire have given: rows, the key of each, and how many rows each window has left."""

    rows: pa.Table
    keys: Ints
    left: Ints


class MergedRows:
    """The rows of each window as one row of partial aggregates."""

    def __init__(self, windows: Windows) -> None:
        plan = windows.layout.plan
        assert plan is not None
        self.windows, self.plan = windows, plan
        held = np.flatnonzero(windows.held > 0)
        self.owners, ids = np.unique(np.concatenate([held, windows.ids]), return_inverse=True)
        schema = pa.schema(plan.fields)
        tables = [windows.stored.select(schema.names).take(pa.array(held)).cast(schema)]
        if windows.rows.num_rows:
            tables.append(pa.table(plan.arrays_of(self._reduced(ids[len(held) :])), schema=schema))
        every = pa.concat_tables(tables).combine_chunks()
        if every.num_rows > len(self.owners):
            of_rows = np.unique(ids[len(held) :])
            merged = plan.merge(plan.partials_of(every), np.concatenate([ids[: len(held)], of_rows]), len(self.owners))
            every = pa.table(plan.arrays_of(merged), schema=schema)
        else:
            order = np.concatenate([held, np.unique(windows.ids)])
            every = every.take(pa.array(np.argsort(order)))
        self.merged = every

    def _reduced(self, ids: Ints) -> Partials:
        """Return partials of the batch's rows, one for each key that has some."""
        windows = self.windows
        _, dense = np.unique(ids, return_inverse=True)
        times = windows.rows[TIME].fill_null(NONE).to_numpy()
        rows = _inputs(self.plan, windows.read, times, windows.facts.batch, windows.numbers)
        return self.plan.reduce(rows, dense, int(dense.max()) + 1)

    def emit(self, fires: Ints) -> Given:
        """Return the results of the windows of these keys."""
        windows, plan = self.windows, self.plan
        if not len(fires):
            return Given(windows.output.empty_table(), fires, fires)
        of = self.merged.take(pa.array(np.searchsorted(self.owners, fires))).combine_chunks()
        table = pa.table([*windows.keys_at(fires).columns, *plan.results(plan.partials_of(of))], schema=windows.output)
        left = windows.held[fires] + np.bincount(windows.ids, minlength=len(windows.hashes))[fires]
        return Given(table, fires, left)

    def partials(self, kept: Bools) -> Mapping[str, pa.Array]:
        """Return the columns of partials of all keys, null where the mask says that nothing is kept."""
        place = np.full(len(kept), -1, dtype=np.int64)
        place[self.owners] = np.arange(len(self.owners))
        index = pa.array(place, mask=~kept)
        return {name: column_array(self.merged, name).take(index) for name in self.merged.column_names}

    def written(self, emptied: Ints) -> Mapping[str, pa.Table]:
        """Return nothing: all there is of a window is with its key."""
        return {}


class WindowRows:
    """The rows of each window as they are."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        layout, rows = windows.layout, windows.rows
        times = column_array(rows, TIME).cast(layout.of_row.field(EVENT_TIME).type)
        columns = {ROW: pa.array(windows.numbers), EVENT_TIME: times}
        columns |= {layout.input_of(sql): windows.read(sql) for sql in layout.inputs}
        every = [columns[f.name] if f.name in columns else column_array(rows, f.name) for f in layout.of_row]
        self.new = pa.table(every, schema=layout.of_row)
        self.stays: Bools = np.ones(len(windows.ids), dtype=np.bool_)
        none = np.empty(0, dtype=np.int64)
        self.fires = self.owners = self.held = none
        """The keys that fire, and of the rows that the state has of them, the keys and numbers."""
        self.gone = np.empty(0, dtype=np.bool_)
        """Which of these rows have been evicted."""

    def emit(self, fires: Ints) -> Given:
        """Evict rows of the windows of these keys, and return what function or aggregates make of the others."""
        windows = self.windows
        if not len(fires):
            return Given(windows.output.empty_table(), fires, fires)
        owners, held = self._held(fires)
        self.fires, self.owners, self.held = fires, owners, integers(held, ROW)
        self.gone = np.zeros(len(owners), dtype=np.bool_)
        mine = np.flatnonzero(np.isin(windows.ids, fires))
        rows = pa.concat_tables([held, self.new.take(pa.array(mine))]).combine_chunks()
        ids = np.searchsorted(fires, np.concatenate([owners, windows.ids[mine]]))
        order = np.lexsort((integers(rows, ROW), ids))
        rows, ids = rows.take(pa.array(order)), ids[order]
        kept = self._kept(rows, ids, fires)
        if not kept.all():
            out = order[~kept]
            self.gone[out[out < len(owners)]] = True
            self.stays[mine[out[out >= len(owners)] - len(owners)]] = False
            rows, ids = rows.filter(pa.array(kept)).combine_chunks(), ids[kept]
        left = np.bincount(ids, minlength=len(fires)).astype(np.int64, copy=False)
        given = self._called if windows.layout.plan is None else self._aggregated
        table, keys = given(rows, ids, fires)
        return Given(table, keys, left)

    def _held(self, keys: Ints) -> tuple[Ints, pa.Table]:
        """Return the rows that the state has of some keys, by key and number, and the key of each."""
        windows = self.windows
        some = keys[windows.held[keys] > 0]
        if not len(some):
            return some, windows.layout.of_row.empty_table()
        part = windows.layout.parts[ROWS]
        places, rows = windows.state.rows_of(
            part, windows.hashes[some], windows.keys_at(some), schema=windows.layout.of_row
        )
        return some[places], rows.combine_chunks()

    def _kept(self, rows: pa.Table, ids: Ints, fires: Ints) -> Bools:
        evictor = self.windows.spec.window.evicts_by
        if evictor is None:
            return np.ones(len(ids), dtype=np.bool_)
        if not isinstance(evictor, ReadyEvictor):
            windows = self.windows
            keys = windows.keys_at(fires)
            return kept_by(windows.name, evictor, self._visible(rows, fires[ids]), ids, keys, windows.facts)
        values = tuple(column_array(rows, self.windows.layout.input_of(sql)) for sql in evictor.reads)
        of = WindowedRows(ids=ids, total=len(fires), times=moments(rows, EVENT_TIME), values=values)
        return kept_rows(evictor, of)

    def _called(self, rows: pa.Table, ids: Ints, fires: Ints) -> tuple[pa.Table, Ints]:
        windows = self.windows
        assert windows.spec.function is not None
        visible = self._visible(rows, fires[ids])
        ends = np.searchsorted(ids, np.arange(len(fires) + 1))
        names = key_values(windows.keys_at(fires), len(fires))
        calls = WindowCalls(windows.name, windows.spec.function.fn, windows.output, windows.facts)
        pieces = [windows.output.empty_table()]
        keys = [fires[:0]]
        with calls.opened():
            for place, (key, name) in enumerate(zip(fires.tolist(), names, strict=True)):
                current = visible.slice(int(ends[place]), int(ends[place + 1] - ends[place]))
                if current.num_rows:
                    made = calls.call(name, WindowView(start=None, end=None, current=current))
                    pieces.append(made)
                    keys.append(np.full(made.num_rows, key, dtype=np.int64))
        return pa.concat_tables(pieces), np.concatenate(keys)

    def _visible(self, rows: pa.Table, owners: Ints) -> pa.Table:
        """Return rows as the stream has them."""
        keys = self.windows.keys_at(owners)
        schema = self.windows.visible
        return pa.table([keys[f.name] if f.name in keys.column_names else rows[f.name] for f in schema], schema=schema)

    def _aggregated(self, rows: pa.Table, ids: Ints, fires: Ints) -> tuple[pa.Table, Ints]:
        windows, plan = self.windows, self.windows.layout.plan
        assert plan is not None
        some, dense = np.unique(ids, return_inverse=True)

        def read(sql: str) -> pa.Array:
            return column_array(rows, windows.layout.input_of(sql))

        inputs = _inputs(plan, read, moments(rows, EVENT_TIME), 0, integers(rows, ROW))
        results = plan.results(plan.reduce(inputs, dense, len(some)))
        keys = fires[some]
        return pa.table([*windows.keys_at(keys).columns, *results], schema=windows.output), keys

    def partials(self, kept: Bools) -> Mapping[str, pa.Array]:
        """Return nothing: rows are kept."""
        return {}

    def written(self, emptied: Ints) -> Mapping[str, pa.Table]:
        """Return the rows that come and go; `emptied` are the keys of which no row stays."""
        windows, layout = self.windows, self.windows.layout
        stays = np.flatnonzero(self.stays & ~np.isin(windows.ids, emptied))
        tables = []
        if len(stays):
            ids = windows.ids[stays]
            rows = self.new.take(pa.array(stays))
            tables.append(layout.rows(windows.numbers[stays], windows.hashes[ids], windows.keys_at(ids), rows))
        # Those that do not fire have expired, and were not read yet.
        expired, held = self._held(np.setdiff1d(emptied, self.fires))
        gone = self.gone | np.isin(self.owners, emptied)
        owners = np.concatenate([self.owners[gone], expired])
        numbers = np.concatenate([self.held[gone], integers(held, ROW)])
        if len(owners):
            of = conform(pa.table({ROW: numbers}), layout.of_row)
            tables.append(layout.rows(numbers, windows.hashes[owners], windows.keys_at(owners), of, deleted=True))
        return {ROWS: pa.concat_tables(tables)} if tables else {}


def _inputs(plan: AggregatePlan, read: Callable[[str], pa.Array], times: Ints, batch: int, numbers: Ints) -> Rows:
    """Return what aggregates read of rows; the numbers give the order of those of a key and batch."""
    sources = {a.source: a.expression for a in plan.aggregates if a.source is not None and a.expression is not None}
    same = np.zeros(len(times), dtype=np.int64)
    return Rows(
        inputs={source: read(sql) for source, sql in sources.items()},
        times=times,
        order=(same + batch, same, same, numbers) if plan.needs_order else (),
    )
