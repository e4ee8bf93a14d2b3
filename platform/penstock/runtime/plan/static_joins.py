"""Build a join with a table into the frame of a branch: tasks join, by the version that their batch uses."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import TableUnfit, UnknownName
from penstock.graph.join_static import StaticJoinNode
from penstock.operators.columns import arrow_schema
from penstock.runtime.plan.branch_frame import BranchFrame, at_site, quoted
from penstock.runtime.plan.projection import map_in_arrow
from penstock.runtime.tasks.columns import refuse_taken
from penstock.runtime.tasks.static_rows import StaticRows, static_task
from penstock.time.arrival import ARRIVAL

__all__ = ["join_static", "refuse_unfit"]


def join_static(current: BranchFrame, node: StaticJoinNode, table: pa.Schema) -> BranchFrame:
    """Return the rows with those of a table; `table` has its columns.

    Raises:
        UnknownName: A key is no column of the stream.
        TableUnfit: A key is no column of the table, or of another type; or both have another column of one name.
    """
    from pyspark.sql.types import StructType

    with at_site(node.site):
        frame = current.frame.select(*(quoted(name) for name in current.visible), *current.hidden)
        visible = arrow_schema(StructType([frame.schema[name] for name in current.visible]))
        hidden = arrow_schema(StructType([frame.schema[name] for name in current.hidden]))
        refuse_unfit(node, visible, table)
        filters = (*current.filters, node.counted_as)
        if ARRIVAL not in hidden.names:
            hidden = hidden.append(pa.field(ARRIVAL, pa.binary()))
        assert current.place is not None  # of every branch that a job begins
        step = StaticRows(
            name=node.name,
            keys=node.keys,
            visible=visible,
            table=table,
            how=node.how,
            hidden=hidden,
            place=current.place,
            taken=len(filters),
        )
        refuse_taken(step.added.names)
        made = map_in_arrow(frame, static_task(step), pa.schema([*step.output, *hidden]))
        result = current.next(made, tuple(step.output.names), filters)
        result.hidden = tuple(hidden.names)
        result.made = (*current.made, len(filters))
        return result


def refuse_unfit(node: StaticJoinNode, stream: pa.Schema, table: pa.Schema) -> None:
    """Raise UnknownName or TableUnfit for keys and columns that do not fit, as `join_static` does."""
    what = f"join_static {node.name!r}"
    for key in node.keys:
        if key not in stream.names:
            raise UnknownName(f"{what} has the key {key!r}; the stream has {stream.names}")
        if key not in table.names:
            raise TableUnfit(f"the table of {what} has no column {key!r}; it has {', '.join(table.names)}")
        mine, theirs = stream.field(key).type, table.field(key).type
        if mine != theirs:
            raise TableUnfit(f"key {key!r} of {what} is {mine} in the stream and {theirs} in the table")
    lower = {name.lower(): name for name in stream.names}
    added = [name for name in table.names if name not in node.keys]
    if twice := next((name for name in added if name.lower() in lower), None):
        raise TableUnfit(f"the stream and the table of {what} both have a column {twice!r}")
