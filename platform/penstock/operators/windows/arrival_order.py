"""Bring the order of arrival of a step's output to the state of a downstream window (SEMANTICS 1.6, 3.3).

A window that takes the first or the last row keeps its place as four numbers, the first of them the batch. The place of
a row that a step has emitted is bytes of any length, which travel beside the partials of a batch. The task that merges
the partials knows all places, and keeps each one's rank. Only rows of one batch are compared by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates import AggregatePlan
from penstock.time.arrival import arrival_ranks

__all__ = ["ranked_together", "with_arrivals"]

_BESIDE = "_penstock_arrival_of"


def with_arrivals(partials: pa.Table, plan: AggregatePlan, arrivals: pa.Array) -> pa.Table:
    """Add to partials, whose positions are ranks among `arrivals`, what each rank stands for."""
    distinct = pc.unique(arrivals)
    of_rank = distinct.take(pc.sort_indices(distinct))
    for name in plan.positions:
        ranks = partials[name].to_numpy() - 1
        partials = partials.append_column(_BESIDE + name, of_rank.take(pa.array(ranks)))
    return partials


def ranked_together(tables: Sequence[pa.Table], plan: AggregatePlan) -> list[pa.Table]:
    """Return the partials of one batch with positions that compare among all of them; as they are where none has any.

    The ranks of the map side count from 1 within one task.
    """
    filled = [table for table in tables if table.num_rows]
    names = [name for name in plan.positions if filled and _BESIDE + name in filled[0].column_names]
    if not names:
        return list(tables)
    table = pa.concat_tables(filled)
    for name in names:
        ranks = pa.array(arrival_ranks(table[_BESIDE + name]))
        table = table.set_column(table.schema.get_field_index(name), name, ranks).drop_columns([_BESIDE + name])
    return [table]
