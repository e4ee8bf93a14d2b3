"""End a branch inside its tasks: count every row, judge it, pre-aggregate or stage it (SEMANTICS 2.10)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.functions.arrow_calls import event_time_missing
from penstock.operators.windows.partials import column_array
from penstock.operators.windows.slices import BEGINNING_OF_TIME, judge
from penstock.operators.windows.time_windows import preaggregate
from penstock.runtime.tasks.arrival_order import with_arrivals
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.specs import (
    AHEAD,
    HASHED,
    ROW_STATUS,
    TIME,
    FunctionLeafSpec,
    RouteSpec,
    SinkLeafSpec,
    SourceSpec,
    WindowLeafSpec,
)
from penstock.runtime.tasks.staging import Outlet, TaskFiles, emit_to
from penstock.runtime.tasks.transport import Item, receipt
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW
from penstock.state.keys import partition_of
from penstock.time.arrival import ARRIVAL, arrival_ranks, of_source, split, timed

__all__ = ["PLACE", "QUARANTINE_SCHEMA", "key_column", "late_schema", "route", "step_port"]

REASONS = {-1: "bad record", -2: "null event time", -3: AHEAD}
UTC = pa.timestamp("us", tz="UTC")
QUARANTINE_SCHEMA = pa.schema(
    [
        ("_source", pa.string()),
        ("_partition", pa.int32()),
        ("_position", pa.int64()),
        ("_reason", pa.string()),
        ("_raw", pa.string()),
        ("_batch", pa.int64()),
    ]
)

Ints = npt.NDArray[np.int64]


_RANK = "_penstock_rank"
PLACE = "_penstock_place"
"""int32: the place of a row's port among all, the first part of the order of arrival (SEMANTICS 1.6)."""


def step_port(step: str) -> str:
    """Return the port that carries what a step takes, rows or partials, to its state partitions."""
    return f"step:{step}"


def key_column(name: str) -> str:
    """Return the column that carries a key, normalised, beside the column that the user sees."""
    return f"_penstock_key_{name}"


def late_schema(visible: pa.Schema) -> pa.Schema:
    """Return the columns of late rows: their own, then event time, watermark and step."""
    return pa.schema(
        [*visible, pa.field("_event_time", UTC), pa.field("_watermark", UTC), pa.field("_step", pa.string())]
    )


def route(table: pa.Table, spec: RouteSpec, facts: BatchContext, files: TaskFiles) -> Iterator[Item]:
    """Yield what the rows of one task become, and the receipts that account for each of them."""
    fates = table[ROW_STATUS].to_numpy()
    if spec.source is not None:
        yield from _account(table, fates, spec.source, facts, files)
    yield from _count_filters(fates, spec)
    alive = table if not fates.any() else table.filter(pa.array(fates == 0))
    if spec.timed_by is not None:
        alive = _timed(alive, spec, *spec.timed_by)
    for leaf in spec.leaves:
        if isinstance(leaf, WindowLeafSpec):
            yield from _to_window(alive, leaf, facts, files)
        elif isinstance(leaf, FunctionLeafSpec):
            yield from _to_function(alive, leaf)
        else:
            yield from _to_sinks(alive, leaf, files)


def _account(table: pa.Table, fates: Ints, source: SourceSpec, facts: BatchContext, files: TaskFiles) -> Iterator[Item]:
    coded = column_array(table, PARTITION).dictionary_encode()
    names, places = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    read = {str(p): int(n) for p, n in zip(names, np.bincount(places, minlength=len(names)), strict=True)}
    timed = (fates >= 0) & pc.is_valid(table[TIME]).to_numpy()
    most = np.full(len(names), np.iinfo(np.int64).min)
    np.maximum.at(most, places[timed], pc.fill_null(table[TIME], 0).to_numpy()[timed])
    seen = np.bincount(places[timed], minlength=len(names)) > 0
    highest = {str(p): int(t) for p, t, there in zip(names, most, seen, strict=True) if there}
    reasons = {REASONS[code]: int((fates == code).sum()) for code in REASONS if (fates == code).any()}
    yield receipt("read", source=source.name, rows=read, highest=highest, quarantined=reasons)
    if reasons and source.quarantine.used:
        yield from emit_to(_quarantined(table.filter(pa.array(fates < 0)), source, facts), source.quarantine, files)


def _timed(rows: pa.Table, spec: RouteSpec, step: str, event_time: str) -> pa.Table:
    """Give the output of a vectorised step its order by the event times that were computed behind it.

    Raises EventTimeMissing for a row without one, where a step reads it.
    """
    read = [leaf for leaf in spec.leaves if not isinstance(leaf, SinkLeafSpec)]
    if rows[TIME].null_count and read:
        keys = {name: rows[column] for leaf in read for name, column in leaf.keys.items()}
        seen = {name: rows[name] for name in rows.column_names if not name.startswith("_penstock")}
        raise event_time_missing(step, event_time, rows[TIME], {**keys, **seen})
    times = rows[TIME].fill_null(BEGINNING_OF_TIME).combine_chunks().to_numpy()
    keys = timed(rows[ARRIVAL].combine_chunks(), times)
    return rows.set_column(rows.schema.get_field_index(ARRIVAL), ARRIVAL, keys)


def _arrivals(rows: pa.Table, place: int) -> pa.Array:
    """Return where rows stand in the order of arrival; `place` is that of their source, where they are of one."""
    if ARRIVAL in rows.column_names:
        return rows[ARRIVAL].combine_chunks()
    return of_source(place, rows[PARTITION].to_numpy(), rows[POSITION].to_numpy())


def _in_step(rows: pa.Table, leaf: WindowLeafSpec | FunctionLeafSpec) -> pa.Array:
    """Return the same of rows that go to a step, which one row may reach along several branches."""
    keys = _arrivals(rows, leaf.order)
    return keys if leaf.ranks == 1 else split(keys, leaf.rank)


def _quarantined(rows: pa.Table, source: SourceSpec, facts: BatchContext) -> pa.Table:
    n = rows.num_rows
    named = pa.array([REASONS[code] for code in rows[ROW_STATUS].to_pylist()], pa.string())
    reason = pc.if_else(pc.is_valid(rows[ERROR]), rows[ERROR], named)
    columns = [
        pa.repeat(source.name, n),
        rows[PARTITION].cast(pa.int32()),
        rows[POSITION],
        reason,
        rows[RAW],
        pa.repeat(pa.scalar(facts.batch, pa.int64()), n),
    ]
    found = pa.table(columns, schema=QUARANTINE_SCHEMA)
    # For steps behind the quarantine, as rows of any other stream have them.
    return found.append_column(TIME, rows[TIME]).append_column(ARRIVAL, _arrivals(rows, source.place))


def _count_filters(fates: Ints, spec: RouteSpec) -> Iterator[Item]:
    rows = int((fates >= 0).sum())
    for number, name in enumerate(spec.filters, 1):
        dropped = int((fates == number).sum())
        if name is not None:
            yield receipt("filter", name=name, rows=rows, kept=rows - dropped, filtered=dropped)
        rows -= dropped


def _to_window(alive: pa.Table, leaf: WindowLeafSpec, facts: BatchContext, files: TaskFiles) -> Iterator[Item]:
    times = alive[TIME].to_numpy()
    watermark = facts.late[leaf.step]
    judged = judge(times, leaf.window, watermark)
    late = int(judged.late.sum())
    counted = judged.counted
    yield receipt(
        "window",
        step=leaf.step,
        rows=len(times),
        counted=int(counted.sum()),
        late=late,
        partly_late=int(judged.partly_late.sum()),
        in_no_window=int(judged.no_window.sum()),
    )
    if late and leaf.late is not None:
        yield from emit_to(
            _late_rows(alive.filter(pa.array(judged.late)), leaf, leaf.late, watermark), leaf.late, files
        )
    rows = alive if counted.all() else alive.filter(pa.array(counted))
    if rows.num_rows == 0:
        return
    order: tuple[int | str, ...] = (facts.batch, leaf.order, PARTITION, POSITION)
    arrivals: pa.Array | None = None
    if leaf.plan.needs_order and leaf.chained:
        # Bytes do not fit where state keeps order: the state work puts numbers in their place, see window_work.
        arrivals = _in_step(rows, leaf)
        rows = rows.append_column(_RANK, pa.array(arrival_ranks(arrivals)))
        order = (facts.batch, 0, 0, _RANK)
    elif leaf.plan.needs_order:
        rows = _ranked(rows, leaf)
    partials = preaggregate(
        rows,
        keys=leaf.keys,
        inputs=leaf.inputs,
        hash_column=leaf.hash_column,
        time_column=TIME,
        order=order,
        plan=leaf.plan,
        window=leaf.window,
    )
    if arrivals is not None:
        partials = with_arrivals(partials, leaf.plan, arrivals)
    yield from _by_partition(partials, "_hash", step_port(leaf.step), leaf.partitions)


def _ranked(rows: pa.Table, leaf: WindowLeafSpec | FunctionLeafSpec) -> pa.Table:
    """Give each row of a source a position of its own where one row may come along several branches."""
    if leaf.ranks == 1:
        return rows
    place = pc.add(pc.multiply(rows[POSITION], leaf.ranks), leaf.rank)
    return rows.set_column(rows.schema.get_field_index(POSITION), POSITION, place)


def _to_function(alive: pa.Table, leaf: FunctionLeafSpec) -> Iterator[Item]:
    n = alive.num_rows
    yield receipt("function", step=leaf.step, rows=n)
    if not n:
        return
    rows = alive if leaf.chained else _ranked(alive, leaf)
    sent = rows.select([*leaf.visible, TIME])
    if leaf.chained:
        sent = sent.append_column(ARRIVAL, _in_step(rows, leaf))
    else:
        sent = sent.append_column(PARTITION, rows[PARTITION]).append_column(POSITION, rows[POSITION])
        sent = sent.append_column(PLACE, pa.repeat(pa.scalar(leaf.order, pa.int32()), n))
    sent = sent.append_column(HASHED, rows[leaf.hash_column])
    for name, column in leaf.keys.items():
        if column != name:  # else it is among the columns that the user sees
            sent = sent.append_column(key_column(name), rows[column])
    yield from _by_partition(sent, HASHED, step_port(leaf.step), leaf.partitions)


def _by_partition(partials: pa.Table, hashes: str, port: str, partitions: int) -> Iterator[Item]:
    owner = partition_of(partials[hashes].to_numpy(), partitions)
    if partitions == 1:
        yield Item(port, partials, 0)
        return
    order = np.argsort(owner, kind="stable")
    sorted_table = partials.take(pa.array(order))
    bounds = np.searchsorted(owner[order], np.arange(partitions + 1))
    for pid in range(partitions):
        if bounds[pid] < bounds[pid + 1]:
            yield Item(port, sorted_table.slice(bounds[pid], bounds[pid + 1] - bounds[pid]), pid)


def _late_rows(rows: pa.Table, leaf: WindowLeafSpec, outlet: Outlet, watermark: int | None) -> pa.Table:
    n = rows.num_rows
    # The end of time has no date: it is shown as none, as the beginning is.
    shown = None if watermark is None or abs(watermark) > _LAST_DATE else watermark
    late = rows.select([*leaf.visible, TIME])
    if outlet.needs_arrival:  # one row may be late for several windows
        late = late.append_column(ARRIVAL, split(_in_step(rows, leaf), leaf.place))
    late = late.append_column("_event_time", rows[TIME].cast(UTC))
    late = late.append_column("_watermark", pa.array([shown] * n, UTC))
    return late.append_column("_step", pa.repeat(leaf.step, n))


_LAST_DATE = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where Spark's timestamps end."""


def _to_sinks(alive: pa.Table, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    if alive.num_rows == 0:
        return
    if leaf.ordered and ARRIVAL not in alive.column_names:
        alive = alive.append_column(ARRIVAL, _arrivals(alive, leaf.order))
    if leaf.check is None:
        yield from files.stage(alive.select(leaf.staged), leaf.sinks, ordered=leaf.ordered)
        return
    from penstock.runtime.tasks.gates import stage_checked

    yield from stage_checked(alive, leaf, files)
