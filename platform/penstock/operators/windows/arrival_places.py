"""Keep the place of a row in the order of arrival beside partial aggregates, for those that take the first or the last.

The state keeps a place as four numbers, the first of them the batch (SEMANTICS 1.6). The place of a row that a step has
emitted is bytes of any length, which travel beside the partials of a batch. The task that merges the partials knows all
places, and keeps each one's rank. Only rows of one batch are compared by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates import AggregatePlan, BoundAggregate, Rows
from penstock.operators.aggregates.items import item_positions, with_positions
from penstock.operators.columns import column_array, integers
from penstock.operators.protocol import TIME, RowsOfBranch
from penstock.sources.base import PARTITION
from penstock.state.keys import Ints
from penstock.time.arrival import arrival_ranks

__all__ = ["PlacedRows", "inputs_of", "placed", "ranked_together"]

_RANK = "_penstock_rank"
_BESIDE = "_penstock_arrival_of"
_TOLD_APART = "_penstock_told_apart"


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows to aggregate, and `order`: batch, source, partition and position, each a column or a number for all rows.

    `order` is empty where no aggregate asks for it.
    """

    rows: RowsOfBranch
    order: tuple[int | str, ...] = ()
    _arrivals: pa.Array | None = None

    def beside(self, partials: pa.Table, plan: AggregatePlan) -> pa.Table:
        """Add to partials of the rows, whose positions are ranks among them, what each rank stands for."""
        if self._arrivals is None:
            return partials
        distinct = pc.unique(self._arrivals)
        of_rank = distinct.take(pc.sort_indices(distinct))
        for name in plan.positions:
            ranks = partials[name].to_numpy() - 1
            partials = partials.append_column(_BESIDE + name, of_rank.take(pa.array(ranks)))
        for name in plan.item_lists:
            arrivals = of_rank.take(pa.array(item_positions(column_array(partials, name)) - 1))
            offsets = _offsets(partials[name])
            partials = partials.append_column(_BESIDE + name, pa.ListArray.from_arrays(offsets, arrivals))
        return partials


def placed(rows: RowsOfBranch, plan: AggregatePlan, *, batch: int, chained: bool) -> PlacedRows:
    """Return rows with their places, where an aggregate asks for them; `chained` as in `BoundSide`."""
    if not plan.needs_order:
        return PlacedRows(rows)
    if not chained:
        table = rows.table.append_column(_TOLD_APART, rows.positions())
        return PlacedRows(replace(rows, table=table), (batch, rows.place, PARTITION, _TOLD_APART))
    # Bytes do not fit where state keeps order: the state work puts numbers in their place.
    arrivals = rows.arrivals()
    table = rows.table.append_column(_RANK, pa.array(arrival_ranks(arrivals)))
    return PlacedRows(replace(rows, table=table), (batch, 0, 0, _RANK), arrivals)


def inputs_of(rows: RowsOfBranch, order: Sequence[int | str], plan: AggregatePlan) -> Rows:
    """Return what aggregates read of rows; `order` as in `PlacedRows`."""
    return Rows(
        inputs={a.source: _input(rows, a) for a in plan.aggregates if a.source is not None},
        times=integers(rows.table, TIME),
        order=tuple(_order(rows.table, part) for part in order) if plan.needs_order else (),
    )


def ranked_together(tables: Sequence[pa.Table], plan: AggregatePlan) -> list[pa.Table]:
    """Return the partials of one batch with positions that compare among all of them; as they are where none has any.

    The ranks of the map side count from 1 within one task.
    """
    filled = [table for table in tables if table.num_rows]
    known = filled[0].column_names if filled else ()
    names = [name for name in plan.positions if _BESIDE + name in known]
    lists = [name for name in plan.item_lists if _BESIDE + name in known]
    if not names and not lists:
        return list(tables)
    table = pa.concat_tables(filled)
    for name in names:
        ranks = pa.array(arrival_ranks(table[_BESIDE + name]))
        table = table.set_column(table.schema.get_field_index(name), name, ranks).drop_columns([_BESIDE + name])
    for name in lists:
        arrivals = pc.list_flatten(column_array(table, _BESIDE + name))
        items = with_positions(column_array(table, name), arrival_ranks(arrivals))
        table = table.set_column(table.schema.get_field_index(name), name, items).drop_columns([_BESIDE + name])
    return [table]


def _input(rows: RowsOfBranch, aggregate: BoundAggregate) -> pa.Array:
    """Return what an aggregate reads of each row."""
    if aggregate.kind is not AggregateKind.ROWS:
        return column_array(rows.table, rows.inputs[aggregate.expression or ""])
    columns = [column_array(rows.table, name) for name in rows.visible]
    return pa.StructArray.from_arrays(columns, names=[*rows.visible])


def _offsets(lists: pa.ChunkedArray) -> pa.Array:
    """Return where lists begin and end, the first at 0."""
    lengths = pc.list_value_length(lists).to_numpy()
    return pa.array(np.r_[0, np.cumsum(lengths)].astype(np.int32))


def _order(rows: pa.Table, part: int | str) -> Ints:
    if isinstance(part, int):
        return np.full(rows.num_rows, part, dtype=np.int64)
    column: Ints = column_array(rows, part).to_numpy().astype(np.int64, copy=False)
    return column
