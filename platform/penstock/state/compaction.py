"""Carry out a plan of compaction: read the runs up to a bound that the budget allows, and merge their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.compaction_planner import CompactionPlan, live_size
from penstock.state.key_codes import key_codes
from penstock.state.keys import Bools, Ints, equal_keys
from penstock.state.manifest import Run
from penstock.state.parts import Merge, Part
from penstock.state.reader import StateReader
from penstock.state.row_layout import (
    DELETED,
    GROUP,
    HASH,
    Bound,
    bucket_starts,
    conform,
    group_hash,
    sort_rows,
    start_of_group,
)

__all__ = ["Merged", "compact", "latest"]

_TRIES = 12


@dataclass(frozen=True, slots=True)
class Merged:
    """Merged rows: all there are below `bound` in the runs of the plan, or all there are, where it is None.

    `indivisible`: they are of one group and hash, so a smaller budget would not make them fewer.
    """

    rows: pa.Table
    bound: Bound | None
    indivisible: bool = False


def compact(reader: StateReader, plan: CompactionPlan, part: Part) -> Merged:
    """Merge the runs of a plan, from where they were left, as far as its budget goes; `part` is the plan's.

    Rows of one group and hash are never split; when they alone exceed the budget they are merged all the same.
    """
    bound = _bound(reader, plan)
    merged_runs = [reader.rows(plan.part, run, None, bound) for run in plan.inputs]
    tables = [table for table in merged_runs if table is not None]
    if not tables:
        return Merged(pa.table({GROUP: pa.array([], pa.int64()), HASH: pa.array([], pa.int64())}), bound)
    # Not the columns of the newest of these rows: later runs, and rows merged before, may have newer ones.
    schema = reader.schema(plan.part)
    assert schema is not None
    tables = [conform(table, schema) for table in tables]
    rows = _merged(part, tables, drop_deleted=plan.oldest)
    ends = {ends for table in tables for ends in _ends(table)}
    return Merged(rows, bound, indivisible=len(ends) == 1)


def _merged(part: Part, tables: list[pa.Table], *, drop_deleted: bool) -> pa.Table:
    """Merge tables of a part, oldest first, as its merge kind says."""
    if part.merge is Merge.LATEST:
        return latest(tables, part.identity, drop_deleted=drop_deleted)
    if part.merge is Merge.APPEND:
        return sort_rows(pa.concat_tables(tables))
    assert part.combine is not None
    return part.combine(tables)


def latest(tables: Sequence[pa.Table], keys: Sequence[str], *, drop_deleted: bool) -> pa.Table:
    """Return the newest row of each group and key of several tables, oldest first; sorted by group, then hash.

    `drop_deleted`: leave tombstones out, as there are no older rows for them to hide.
    """
    rows = pa.concat_tables(reversed(tables)).combine_chunks()
    groups, hashes = group_hash(rows)
    order = np.lexsort((hashes, groups))  # stable: newest first among equal ones
    starts = bucket_starts(groups[order], hashes[order])
    kept = order[starts]
    if len(kept) < len(order) and keys:
        kept = _newest_of_each_key(rows, keys, order, starts)
    if drop_deleted and DELETED in rows.column_names:
        deleted = rows.column(DELETED).to_numpy()
        kept = kept[~deleted[kept]]
    return rows.take(pa.array(kept))


def _newest_of_each_key(rows: pa.Table, keys: Sequence[str], order: Ints, starts: Bools) -> Ints:
    """Choose rows from buckets of equal group and hash, in which rows of several keys may stand."""
    columns = [rows.column(name).combine_chunks() for name in keys]
    bucket = np.cumsum(starts) - 1
    firsts = order[starts]
    others = np.flatnonzero(~starts)
    same = equal_keys(columns, order[others], columns, firsts[bucket[others]])
    rest = others[~same]
    if not len(rest):
        return firsts
    # Rows of one slice are keys that share a hash where rows of a key are told apart by more than it, as in a join.
    ids = bucket[rest]
    for column in columns:
        codes = key_codes(column.take(pa.array(order[rest])))
        _, ids = np.unique(ids * (int(codes.max()) + 1) + codes, return_inverse=True)
    kept = starts.copy()
    kept[rest[np.unique(ids, return_index=True)[1]]] = True
    return order[kept]


def _bound(reader: StateReader, plan: CompactionPlan) -> Bound | None:
    """Return a bound below which the runs hold about the plan's budget and at most that; None when all they hold fits.

    It tries rows of the runs, the largest first: its rows are the finest steps.
    Where the others hold more than the budget before its first row, as older slices do, only their own rows are bounds
    that help.
    """
    floor = reader.manifest.floors.get(plan.part)
    least = None if floor is None else start_of_group(floor)
    sizes = {run.number: live_size(run, least) for run in plan.inputs}
    if sum(sizes.values()) <= plan.budget_bytes:
        return None
    best: tuple[int, Bound | None] = (0, None)
    for run in sorted(plan.inputs, key=lambda run: -sizes[run.number]):
        rows = run.rows * sizes[run.number] // max(1, run.size)
        best = max(best, _bound_in(reader, plan, run, rows), key=lambda bound: bound[0])
        if best[0] >= plan.budget_bytes // 2:
            break
    return best[1] if best[1] is not None else _after_first_bucket(reader, plan)


def _bound_in(reader: StateReader, plan: CompactionPlan, run: Run, rows: int) -> tuple[int, Bound | None]:
    """Search the live rows of one run for the bound below which all runs hold most within the budget."""
    low, high = 0.0, 1.0
    share = min(1.0, plan.budget_bytes / max(1, sum(run.size for run in plan.inputs)))
    best: tuple[int, Bound | None] = (0, None)
    for _ in range(_TRIES):
        bound = reader.bound_at(plan.part, run, int(rows * share))
        size = sum(reader.count(plan.part, other, bound) * other.size // other.rows for other in plan.inputs)
        if size <= plan.budget_bytes:
            low = share
            best = max(best, (size, bound), key=lambda candidate: candidate[0])
            if size >= plan.budget_bytes // 2:
                break
        else:
            high = share
        share = (low + high) / 2
    return best


def _after_first_bucket(reader: StateReader, plan: CompactionPlan) -> Bound:
    """Return the bound after the first group and hash of the runs: the least that can be merged."""
    firsts = [next(reader.spans(plan.part, run, None, None), None) for run in plan.inputs]
    group, value = min(
        (int(span.block.groups[span.start]), int(span.block.hashes[span.start])) for span in firsts if span is not None
    )
    return (group, value + 1) if value < 2**63 - 1 else start_of_group(group + 1)


def _ends(table: pa.Table) -> tuple[Bound, Bound]:
    groups, hashes = group_hash(table)
    return (int(groups[0]), int(hashes[0])), (int(groups[-1]), int(hashes[-1]))
