"""Join the rows of a task with those of a table, of the version that the batch uses (`join_static`).

A row that matches is taken, as if a filter had dropped it, and its matches are rows of their own (SEMANTICS 2.10).
Each has the row's place in the order of arrival, and several of one row are in the order of the table (1.6).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.storage.locate import folder_at
from penstock.graph.join_arguments import JoinKind
from penstock.operators.columns import column_array
from penstock.operators.interval_pairs import number_in_key, row_bytes
from penstock.operators.protocol import arrivals_of
from penstock.operators.static_index import StaticIndex
from penstock.runtime.tasks.batch_context import current_batch
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.runtime.tasks.transport import cut
from penstock.state.keys import Ints
from penstock.state.row_layout import conform
from penstock.time.arrival import ARRIVAL, split

__all__ = ["StaticRows", "joined", "static_task", "table_of"]

Batches = Iterator[pa.RecordBatch]
_MOST_TABLES = 4
"""Versions of tables whose keys a worker keeps; the rows are memory that all workers of a machine share."""
_WAYS = 1 << 16
"""What one number of a place tells apart."""


@dataclass(frozen=True, kw_only=True)
class StaticRows:
    """A step of join_static, as its tasks need it.

    `visible` are the columns of the stream, `table` those of the table, and `keys` are in both. `hidden` are those
    beside them, and end with ARRIVAL. `place` is that of the port of the rows in the order of arrival, and `taken` the
    status of the rows that are taken.
    """

    name: str
    keys: tuple[str, ...]
    visible: pa.Schema
    table: pa.Schema
    how: JoinKind
    hidden: pa.Schema
    place: int
    taken: int

    @property
    def added(self) -> pa.Schema:
        """Return the columns that the table adds."""
        return pa.schema([field for field in self.table if field.name not in self.keys])

    @property
    def output(self) -> pa.Schema:
        """Return the columns that the user sees after the step."""
        return pa.schema([*self.visible, *self.added])


def static_task(step: StaticRows) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs: it yields the columns of the output, and then the hidden ones."""

    def run(batches: Batches) -> Batches:
        index = table_of(current_batch().tables[step.name], step)
        for rows in cut(batches):
            for made in joined(step, rows, index):
                yield from made.to_batches()

    return run


_known: OrderedDict[tuple[str, str], StaticIndex] = OrderedDict()


def table_of(address: str, step: StaticRows) -> StaticIndex:
    """Return the rows of a file that has a version of a table, by the keys of a step; a worker reads it once.

    A column that the version lacks, because the table has got it since, is null. Raises StateMissing.
    """
    key = (address, f"{step.keys} {step.table}")
    if key not in _known:
        with pa.memory_map(str(folder_at(address).fetch())) as file:
            rows = pa.ipc.open_file(file).read_all()
        _known[key] = StaticIndex(conform(rows, step.table), step.keys)
        while len(_known) > _MOST_TABLES:
            _known.popitem(last=False)
    _known.move_to_end(key)
    return _known[key]


def joined(step: StaticRows, rows: pa.Table, index: StaticIndex) -> Iterator[pa.Table]:
    """Yield what becomes of rows: those that were taken or not seen, and the matches."""
    if ARRIVAL not in rows.column_names:
        rows = rows.append_column(ARRIVAL, arrivals_of(rows, step.place))
    alive = pc.equal(rows[ROW_STATUS], 0)
    seen = rows.filter(alive)
    if seen.num_rows < rows.num_rows:
        yield _without_values(step, rows.filter(pc.invert(alive)))
    if not seen.num_rows:
        return
    status = rows.schema.get_field_index(ROW_STATUS)
    taken = pa.repeat(pa.scalar(step.taken, step.hidden.field(ROW_STATUS).type), seen.num_rows)
    yield _without_values(step, seen.set_column(status, ROW_STATUS, taken))
    seen = seen.combine_chunks()
    keys = [column_array(seen, name) for name in step.keys]
    own = row_bytes(seen.select(step.visible.names))
    matched = 0
    before = -1
    for mine, theirs in index.matches(keys, own, outer=step.how is JoinKind.LEFT):
        # The matches of one row may come in several pieces, and are numbered through.
        numbers = number_in_key(mine) + np.where(mine == before, matched, 0)
        before, matched = int(mine[-1]), int(numbers[-1]) + 1
        yield _matches(step, seen, index.table, mine, theirs, numbers)


def _matches(step: StaticRows, rows: pa.Table, table: pa.Table, mine: Ints, theirs: Ints, numbers: Ints) -> pa.Table:
    left, right = rows.take(pa.array(mine)), table.take(pa.array(theirs, mask=theirs < 0))
    arrivals = split(split(column_array(left, ARRIVAL), numbers // _WAYS), numbers % _WAYS)
    hidden = left.set_column(left.schema.get_field_index(ARRIVAL), ARRIVAL, arrivals)
    columns = [*left.select(step.visible.names).columns, *right.select(step.added.names).columns]
    return _beside(step, columns, hidden)


def _without_values(step: StaticRows, rows: pa.Table) -> pa.Table:
    return _beside(step, [pa.nulls(rows.num_rows, field.type) for field in step.output], rows)


def _beside(step: StaticRows, columns: list[pa.ChunkedArray | pa.Array], rows: pa.Table) -> pa.Table:
    hidden = rows.select(step.hidden.names).cast(step.hidden)
    return pa.table([*columns, *hidden.columns], schema=pa.schema([*step.output, *step.hidden]))
