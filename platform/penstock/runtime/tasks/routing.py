"""End a branch inside its tasks: count every row, judge it, pre-aggregate or stage it (SEMANTICS 2.10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.columns import column_array
from penstock.operators.event_times import event_time_missing
from penstock.operators.protocol import HASHED, TIME, Emit, Send, Tally, arrivals_of
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.requeued import REQUEUED, originals
from penstock.runtime.tasks.specs import AHEAD, ROW_STATUS, RouteSpec, SinkLeafSpec, SourceSpec, StepLeafSpec
from penstock.runtime.tasks.staging import TaskFiles, emit_to, refuse_lacking
from penstock.runtime.tasks.transport import Item, receipt
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW, PartitionNames
from penstock.state.keys import Ints, partition_of
from penstock.time.arrival import ARRIVAL, split, timed

__all__ = ["QUARANTINE_SCHEMA", "quarantine_schema", "route", "step_port"]

REASONS = {-1: "bad record", -2: "null event time", -3: AHEAD}
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


def quarantine_schema(names: PartitionNames | None) -> pa.Schema:
    """Return the columns of a source's quarantine: one more, where the source names its partitions."""
    return QUARANTINE_SCHEMA if names is None else QUARANTINE_SCHEMA.append(pa.field(names.column, pa.string()))


_BEGINNING_OF_TIME = -(2**63)
_MOST_COUNTED = 4_096
"""The highest number of a partition up to which rows are counted by number."""
Ints32 = npt.NDArray[np.int32]


def step_port(step: str, side: int) -> str:
    """Return the port that carries what a step takes of an input, rows or partials, to its state partitions."""
    return f"step:{step}/{side}"


def route(table: pa.Table, spec: RouteSpec, files: TaskFiles) -> Iterator[Item]:
    """Yield what the rows of one task become, and the receipts that account for each of them."""
    fates = table[ROW_STATUS].to_numpy()
    if spec.source is not None:
        read = (fates < 0) | ((fates > 0) & (fates <= spec.made[0])) if spec.made else None
        yield from _account(table if read is None else table.filter(pa.array(read)), spec.source, files)
    yield from _count_filters(fates, spec)
    alive = table if not fates.any() else table.filter(pa.array(fates == 0))
    if spec.timed_by is not None:
        alive = _timed(alive, spec, *spec.timed_by)
    for leaf in spec.leaves:
        if isinstance(leaf, StepLeafSpec):
            yield from _to_step(alive, leaf, files)
        else:
            yield from _to_sinks(alive, leaf, files)


def _account(table: pa.Table, source: SourceSpec, files: TaskFiles) -> Iterator[Item]:
    if source.name in files.facts.requeued:
        again = pc.equal(table[PARTITION], REQUEUED)
        yield from _account_again(table.filter(again), source, files)
        table = table.filter(pc.invert(again))
    fates = table[ROW_STATUS].to_numpy()
    names, places = _numbered(column_array(table, PARTITION).to_numpy())
    if len(names) == 1:
        read = {names[0]: table.num_rows}
    else:
        read = {name: int(n) for name, n in zip(names, np.bincount(places, minlength=len(names)), strict=True) if n}
    times = column_array(table, TIME)
    reasons = _reasons(fates)
    if reasons or times.null_count:
        timed = (fates >= 0) & times.is_valid().to_numpy(zero_copy_only=False)
        places, times = places[timed], times.filter(pa.array(timed))
    highest = _highest(names, places, times)
    yield receipt("read", source=source.name, rows=read, highest=highest, quarantined=reasons)
    if reasons and source.quarantine.used:
        quarantined = _quarantined(table.filter(pa.array(fates < 0)), source, files.facts)
        yield from emit_to(quarantined, source.quarantine, files)


def _highest(names: Sequence[str], places: Ints, times: pa.Array) -> dict[str, int]:
    """Return the highest event time of each partition that has one."""
    if not len(times):
        return {}
    if len(names) == 1:  # as in a task that reads one partition: a tenth of the time
        return {names[0]: pc.max(times).as_py()}
    most = np.full(len(names), np.iinfo(np.int64).min)
    np.maximum.at(most, places, times.to_numpy())
    seen = np.bincount(places, minlength=len(names)) > 0
    return {name: int(t) for name, t, has_time in zip(names, most, seen, strict=True) if has_time}


def _numbered(partitions: Ints32) -> tuple[list[str], Ints]:
    """Return names of partitions, and for each row the place of its partition among them."""
    if not len(partitions):
        return [], np.zeros(0, np.int64)
    lowest, highest = int(partitions.min()), int(partitions.max())
    if lowest == highest:
        return [str(lowest)], np.zeros(len(partitions), np.int64)
    if lowest < 0 or highest > _MOST_COUNTED:
        names, places = np.unique(partitions, return_inverse=True)
        return list(map(str, names.tolist())), places.astype(np.int64)
    # Numbers from 0, as nearly all sources have them, need no table.
    return list(map(str, range(highest + 1))), partitions.astype(np.int64)


def _reasons(fates: Ints) -> dict[str, int]:
    if fates.min(initial=0) >= 0:  # as nearly always: one pass instead of three
        return {}
    return {REASONS[code]: int((fates == code).sum()) for code in REASONS if (fates == code).any()}


def _account_again(table: pa.Table, source: SourceSpec, files: TaskFiles) -> Iterator[Item]:
    """Count the rows that are sent through again: they are none of the source's, and move no watermark."""
    fates = table[ROW_STATUS].to_numpy()
    reasons = _reasons(fates)
    counts = {"read": len(fates), "quarantined": sum(reasons.values())}
    counts["passed"] = counts["read"] - counts["quarantined"]
    yield receipt("requeued", of=f"requeue:{source.name}", counts=counts)
    if reasons and source.quarantine.used:
        rows = table.filter(pa.array(fates < 0))
        of = originals(files.facts.requeued[source.name], rows, _reason(rows))
        columns = [of.get(name) for name in ("_partition", "_position", "_reason")]
        yield from emit_to(_as_quarantine(rows, source, files.facts, columns, of["_name"]), source.quarantine, files)


def _timed(rows: pa.Table, spec: RouteSpec, step: str, event_time: str) -> pa.Table:
    """Give the output of a vectorised step its order by the event times that were computed after it.

    Raises EventTimeMissing for a row without one, where a step reads it.
    """
    read = [leaf for leaf in spec.leaves if not isinstance(leaf, SinkLeafSpec)]
    if rows[TIME].null_count and read:
        keys = {name: rows[column] for leaf in read for name, column in leaf.rows.keys.items()}
        seen = {name: rows[name] for name in rows.column_names if not name.startswith("_penstock")}
        raise event_time_missing(step, event_time, rows[TIME], {**keys, **seen})
    times = rows[TIME].fill_null(_BEGINNING_OF_TIME).combine_chunks().to_numpy()
    keys = timed(rows[ARRIVAL].combine_chunks(), times)
    return rows.set_column(rows.schema.get_field_index(ARRIVAL), ARRIVAL, keys)


def _reason(rows: pa.Table) -> pa.ChunkedArray:
    named = pa.array([REASONS[code] for code in rows[ROW_STATUS].to_pylist()], pa.string())
    return pc.if_else(pc.is_valid(rows[ERROR]), rows[ERROR], named)


def _quarantined(rows: pa.Table, source: SourceSpec, facts: BatchContext) -> pa.Table:
    names = None
    if source.names is not None:
        known = pa.array(source.names.of(facts.spans[source.name]), pa.string())
        names = known.take(column_array(rows, PARTITION))
    return _as_quarantine(rows, source, facts, [rows[PARTITION], rows[POSITION], _reason(rows)], names)


def _as_quarantine(
    rows: pa.Table, source: SourceSpec, facts: BatchContext, own: Sequence[Any], names: pa.Array | None
) -> pa.Table:
    """Return rows as the quarantine has them; `own` are partition, position and reason of each."""
    n = rows.num_rows
    batch = pa.repeat(pa.scalar(facts.batch, pa.int64()), n)
    partition, position, reason = own
    columns = [pa.repeat(source.name, n), partition.cast(pa.int32()), position, reason, rows[RAW], batch]
    if source.names is not None:
        columns.append(names)
    quarantined = pa.table(columns, schema=quarantine_schema(source.names))
    # For steps that read the quarantine, as rows of any other stream have them.
    return quarantined.append_column(TIME, rows[TIME]).append_column(ARRIVAL, arrivals_of(rows, source.place))


def _count_filters(fates: Ints, spec: RouteSpec) -> Iterator[Item]:
    ends = [*spec.made, None]
    rows = _since(fates, 0, ends[0])
    for number, name in enumerate(spec.filters, 1):
        dropped = int((fates == number).sum())
        if number in spec.made:
            made = _since(fates, number, ends[ends.index(number) + 1])
            if name is not None:
                yield receipt("mapped", of=name, counts={"rows": rows, "made": made})
            rows = made
            continue
        if name is not None:
            counts = {"rows": rows, "kept": rows - dropped, "filtered": dropped}
            yield receipt("filter", of=f"filter:{name}", counts=counts)
        rows -= dropped


def _since(fates: Ints, number: int, end: int | None) -> int:
    """Return how many rows there were after a function, up to the next that took rows, `end`, if there is one."""
    last = fates == 0 if end is None else fates == end
    return int((last | ((fates > number) & (fates < (end or np.iinfo(np.int32).max)))).sum())


def _to_step(alive: pa.Table, leaf: StepLeafSpec, files: TaskFiles) -> Iterator[Item]:
    used = [outlet for outlet, goes in leaf.outlets.items() if goes.used]
    rows_of_branch = replace(leaf.rows, table=alive)
    for made in leaf.map_side.prepare(rows_of_branch, files.facts.of_step(leaf.step, read=used)):
        match made:
            case Send():
                yield from _by_partition(made, leaf)
            case Emit():
                outlet = leaf.outlets[made.outlet]
                rows = made.rows
                refuse_lacking(rows, outlet, leaf.step, made.outlet)
                if outlet.needs_arrival and made.arrivals is not None:  # several steps may emit one row
                    rows = rows.append_column(ARRIVAL, split(made.arrivals(), leaf.place))
                yield from emit_to(rows, outlet, files)
            case Tally():
                yield receipt("step", counted_as=leaf.counted_as, counts=dict(made.counts))
            case _:
                raise RuntimeError(f"step {leaf.step!r} yielded {made!r} before the shuffle")


def _by_partition(send: Send, leaf: StepLeafSpec) -> Iterator[Item]:
    port, partitions, sent = step_port(leaf.step, leaf.side), leaf.partitions, send.rows
    if partitions == 1:
        yield Item(port, sent, 0)
        return
    owner = partition_of(sent[HASHED].to_numpy(), partitions)
    order = np.argsort(owner, kind="stable")
    sorted_table = sent.take(pa.array(order))
    bounds = np.searchsorted(owner[order], np.arange(partitions + 1))
    for pid in range(partitions):
        if bounds[pid] < bounds[pid + 1]:
            yield Item(port, sorted_table.slice(bounds[pid], bounds[pid + 1] - bounds[pid]), pid)


def _to_sinks(alive: pa.Table, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    if alive.num_rows == 0:
        return
    if leaf.ordered and ARRIVAL not in alive.column_names:
        alive = alive.append_column(ARRIVAL, arrivals_of(alive, leaf.order))
    if leaf.check is None:
        yield from files.stage(alive.select(leaf.staged), leaf.sinks, ordered=leaf.ordered)
        return
    from penstock.runtime.tasks.gates import stage_checked

    yield from stage_checked(alive, leaf, files)
