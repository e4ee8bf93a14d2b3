"""Call functions of the user's with the rows of a task, as Arrow tables (`map_batches`).

What a function has taken stays among the rows as if a filter had dropped it, so that every row is still accounted for
(SEMANTICS 2.10). With same_rows=True nothing is taken: each row has other columns, and keeps its place and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WrongOutput, WrongTable
from penstock.operators.functions.output_columns import typed_table
from penstock.operators.functions.user_function import TaskInfo, UserFunction
from penstock.runtime.tasks.batch_context import BatchContext, current_batch
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.runtime.tasks.transport import cut
from penstock.sources.base import PARTITION, POSITION
from penstock.state.key_state import as_datetime
from penstock.time.arrival import ARRIVAL

__all__ = ["RowFunction", "function_task", "info_of"]

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True)
class RowFunction:
    """A step of map_batches, as its tasks need it.

    `visible` are the columns that the function gets, `output` those that it returns, and `hidden` those beside them.
    `taken` is the status of the rows that it has taken, None where it returns a row for each row.
    """

    name: str
    fn: Callable[..., Any]
    visible: tuple[str, ...]
    output: pa.Schema
    hidden: pa.Schema
    taken: int | None

    @property
    def label(self) -> str:
        """Return the step in words, for errors."""
        return f"map_batches {self.name!r}"

    @property
    def user(self) -> UserFunction:
        """Return the function, with the step for errors."""
        return UserFunction(self.label, self.fn)


def info_of(name: str, facts: BatchContext) -> TaskInfo:
    """Return what a function without state gets to know of its batch; `name` is that of its step."""
    mark = facts.close.get(name)
    return TaskInfo(
        batch=facts.batch,
        time=as_datetime(facts.time),
        watermark=None if mark is None else as_datetime(mark),
        epoch=facts.epoch,
    )


def function_task(step: RowFunction) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs: it yields the columns of the output, and then the hidden ones."""

    def run(batches: Batches) -> Batches:
        info = info_of(step.name, current_batch())
        with step.user.opened(info):
            for table in cut(batches):
                for made in mapped(step, table, info):
                    yield from made.to_batches()

    return run


def mapped(step: RowFunction, table: pa.Table, info: TaskInfo) -> Iterator[pa.Table]:
    """Yield what becomes of rows: those that the function made, and those that it has taken or not seen.

    Raises UserFunctionError for what the function raises, and WrongTable for a result that does not fit.
    """
    alive = pc.equal(table[ROW_STATUS], 0)
    seen = table.filter(alive)
    if seen.num_rows < table.num_rows:
        yield _without_values(step, table.filter(pc.invert(alive)))
    if step.taken is None:
        if seen.num_rows:
            yield _joined(step, _called(step, seen, info), seen.select(step.hidden.names))
        return
    for rows in _by_partition(seen):
        made = _called(step, rows, info)
        # A row of the result stands where the first row of the call stood: whatever the tables, the order is the same.
        first = {
            name: pa.repeat(rows[name][0], made.num_rows)
            for name in (PARTITION, POSITION, ARRIVAL)
            if name in rows.column_names
        }
        first[ROW_STATUS] = pa.repeat(pa.scalar(0, step.hidden.field(ROW_STATUS).type), made.num_rows)
        nulls = {field.name: pa.nulls(made.num_rows, field.type) for field in step.hidden if field.name not in first}
        yield _joined(step, made, pa.table({name: ({**nulls, **first})[name] for name in step.hidden.names}))
        taken = pa.repeat(pa.scalar(step.taken, step.hidden.field(ROW_STATUS).type), rows.num_rows)
        yield _without_values(step, rows.set_column(rows.schema.get_field_index(ROW_STATUS), ROW_STATUS, taken))


def _by_partition(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each source partition that follow one another."""
    partitions = rows[PARTITION].to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(bounds):
        if start < end:
            yield rows.slice(start, end - start)


def _called(step: RowFunction, rows: pa.Table, info: TaskInfo) -> pa.Table:
    try:
        returned = step.fn(rows.select(step.visible), info)
    except Exception as why:
        raise step.user.blamed(why, f"{rows.num_rows:,} rows") from why
    try:
        made = typed_table(returned, step.output, f"what {step.label} returned")
    except WrongOutput as why:
        raise WrongTable(why.what) from why
    if step.taken is None and made.num_rows != rows.num_rows:
        raise WrongTable(f"{step.label} has same_rows=True and returned {made.num_rows:,} rows for {rows.num_rows:,}")
    return made


def _without_values(step: RowFunction, rows: pa.Table) -> pa.Table:
    nulls = pa.table([pa.nulls(rows.num_rows, field.type) for field in step.output], schema=step.output)
    return _joined(step, nulls, rows.select(step.hidden.names))


def _joined(step: RowFunction, made: pa.Table, hidden: pa.Table) -> pa.Table:
    columns = [*made.columns, *hidden.cast(step.hidden).columns]
    return pa.table(columns, schema=pa.schema([*step.output, *step.hidden]))
