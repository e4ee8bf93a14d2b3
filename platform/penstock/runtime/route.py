"""End a branch inside its tasks: count every row, judge it, pre-aggregate or stage it (SEMANTICS 2.10)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.slices import judge
from penstock.operators.time_windows import preaggregate
from penstock.runtime.facts import BatchFacts
from penstock.runtime.rows import Item, receipt
from penstock.runtime.specs import FATE, TIME, RouteSpec, SinkLeafSpec, SourceSpec, WindowLeafSpec
from penstock.runtime.staging import TaskFiles, pour
from penstock.sources.base import ERROR, PARTITION, POSITION, RAW
from penstock.state.keys import partition_of

__all__ = ["QUARANTINE_SCHEMA", "late_schema", "partials_port", "route"]

REASONS = {-1: "bad record", -2: "null event time", -3: "too far in the future"}
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


def partials_port(step: str) -> str:
    """Return the port that carries a window step's partials to its state partitions."""
    return f"partials:{step}"


def late_schema(visible: pa.Schema) -> pa.Schema:
    """Return the columns of late rows: their own, then event time, watermark and step."""
    return pa.schema(
        [*visible, pa.field("_event_time", UTC), pa.field("_watermark", UTC), pa.field("_step", pa.string())]
    )


def route(table: pa.Table, spec: RouteSpec, facts: BatchFacts, files: TaskFiles) -> Iterator[Item]:
    """Yield what the rows of one task become, and the receipts that account for each of them."""
    fates = table[FATE].to_numpy()
    if spec.source is not None:
        yield from _account(table, fates, spec.source, facts, files)
    yield from _count_filters(fates, spec)
    alive = table if not fates.any() else table.filter(pa.array(fates == 0))
    for leaf in spec.leaves:
        if isinstance(leaf, WindowLeafSpec):
            yield from _to_window(alive, leaf, facts, files)
        else:
            yield from _to_sinks(alive, leaf, files)


def _account(table: pa.Table, fates: Ints, source: SourceSpec, facts: BatchFacts, files: TaskFiles) -> Iterator[Item]:
    partitions = table[PARTITION].to_numpy()
    good = fates >= 0
    read = {str(p): int(n) for p, n in zip(*np.unique(partitions, return_counts=True), strict=True)}
    highest: dict[str, int] = {}
    if table[TIME].null_count < table.num_rows:
        times = pc.fill_null(table[TIME], np.iinfo(np.int64).min).to_numpy()
        for partition in read:
            chosen = times[good & (partitions == int(partition))]
            if len(chosen):
                highest[partition] = int(chosen.max())
    reasons = {REASONS[code]: int((fates == code).sum()) for code in REASONS if (fates == code).any()}
    yield receipt("read", source=source.name, rows=read, highest=highest, quarantined=reasons)
    if reasons and source.quarantine.used:
        yield from pour(_quarantined(table.filter(pa.array(fates < 0)), source.name, facts), source.quarantine, files)


def _quarantined(rows: pa.Table, source: str, facts: BatchFacts) -> pa.Table:
    n = rows.num_rows
    named = pa.array([REASONS[code] for code in rows[FATE].to_pylist()], pa.string())
    reason = pc.if_else(pc.is_valid(rows[ERROR]), rows[ERROR], named)
    columns = [
        pa.repeat(source, n),
        rows[PARTITION].cast(pa.int32()),
        rows[POSITION],
        reason,
        rows[RAW],
        pa.repeat(pa.scalar(facts.batch, pa.int64()), n),
    ]
    found = pa.table(columns, schema=QUARANTINE_SCHEMA)
    for name in (TIME, PARTITION, POSITION):  # for steps behind the quarantine, as rows of any other stream have them
        found = found.append_column(name, rows[name])
    return found


def _count_filters(fates: Ints, spec: RouteSpec) -> Iterator[Item]:
    rows = int((fates >= 0).sum())
    for number, name in enumerate(spec.filters, 1):
        dropped = int((fates == number).sum())
        if name is not None:
            yield receipt("filter", name=name, rows=rows, kept=rows - dropped, filtered=dropped)
        rows -= dropped


def _to_window(alive: pa.Table, leaf: WindowLeafSpec, facts: BatchFacts, files: TaskFiles) -> Iterator[Item]:
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
        yield from pour(_late_rows(alive.filter(pa.array(judged.late)), leaf, watermark), leaf.late, files)
    rows = alive if counted.all() else alive.filter(pa.array(counted))
    if rows.num_rows == 0:
        return
    if leaf.ranks > 1 and leaf.plan.needs_order:
        place = pc.add(pc.multiply(rows[POSITION], leaf.ranks), leaf.rank)
        rows = rows.set_column(rows.schema.get_field_index(POSITION), POSITION, place)
    partials = preaggregate(
        rows,
        keys=leaf.keys,
        inputs=leaf.inputs,
        hash_column=leaf.hash_column,
        time_column=TIME,
        order=(facts.batch, leaf.order, PARTITION, POSITION),
        plan=leaf.plan,
        window=leaf.window,
    )
    yield from _by_partition(partials, partials_port(leaf.step), leaf.partitions)


def _by_partition(partials: pa.Table, port: str, partitions: int) -> Iterator[Item]:
    owner = partition_of(partials["_hash"].to_numpy(), partitions)
    if partitions == 1:
        yield Item(port, partials, 0)
        return
    order = np.argsort(owner, kind="stable")
    sorted_table = partials.take(pa.array(order))
    bounds = np.searchsorted(owner[order], np.arange(partitions + 1))
    for pid in range(partitions):
        if bounds[pid] < bounds[pid + 1]:
            yield Item(port, sorted_table.slice(bounds[pid], bounds[pid + 1] - bounds[pid]), pid)


def _late_rows(rows: pa.Table, leaf: WindowLeafSpec, watermark: int | None) -> pa.Table:
    n = rows.num_rows
    # The end of time has no date: it is shown as none, as the beginning is.
    shown = None if watermark is None or abs(watermark) > _LAST_DATE else watermark
    late = rows.select([*leaf.visible, TIME, PARTITION, POSITION])
    late = late.append_column("_event_time", rows[TIME].cast(UTC))
    late = late.append_column("_watermark", pa.array([shown] * n, UTC))
    return late.append_column("_step", pa.repeat(leaf.step, n))


_LAST_DATE = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where Spark's timestamps end."""


def _to_sinks(alive: pa.Table, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    if alive.num_rows == 0:
        return
    if leaf.check is None:
        yield from files.stage(alive.select(leaf.visible), leaf.sinks)
        return
    from penstock.runtime.gates import stage_checked

    yield from stage_checked(alive, leaf, files)
