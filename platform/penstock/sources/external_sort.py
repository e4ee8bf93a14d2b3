"""Sort more rows than memory holds: sort parts, write each as a run, and merge the runs a few rows at a time."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.storage.local import storage_errors
from penstock.sources.sorted_copy import hold

__all__ = ["ROW", "externally_sorted", "pieces"]

ROW, _ORDER, _RUN = "_penstock_row", "_penstock_order", "_penstock_run"
_KEYS = [(_ORDER, "ascending"), (ROW, "ascending")]
_BATCH = 8_192
"""Rows of a run that the merge holds at a time."""
MOST = 128 * 2**20
"""Bytes of rows that are sorted at a time."""


def externally_sorted(
    parts: Iterable[pa.Table],
    order: Callable[[pa.Table], pa.ChunkedArray],
    folder: Path,
    *,
    most: int = MOST,
    batch: int = _BATCH,
) -> Iterator[pa.Table]:
    """Yield the rows of tables in the order of `order`, nulls last, ties by their column ROW; memory is bounded.

    Args:
        parts: The rows, with a column ROW.
        order: Returns the sort key of each row of a table.
        folder: Where runs are spilled, until the last row was yielded, if there is more than one.
        most: About how many bytes are sorted at a time.
        batch: How many rows of a run are read at a time.
    """
    with ExitStack() as files:
        runs: list[_Run] = []
        rows: pa.Table | None = None
        for part in _gathered(parts, most):
            if rows is not None:
                runs.append(_Run(files.enter_context(_spilled(rows, folder, batch)), len(runs)))
            rows = part.append_column(_ORDER, order(part)).sort_by(_KEYS)
        if rows is None:
            return
        if not runs:
            yield rows.drop_columns([_ORDER, ROW])
            return
        runs.append(_Run(files.enter_context(_spilled(rows, folder, batch)), len(runs)))
        del rows
        for table in _merged(runs):
            yield table.drop_columns([_ORDER, ROW, _RUN])


def pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of tables in tables of so many rows, the last with what is left."""
    left: pa.Table | None = None
    for table in _gathered(tables, rows, lambda t: t.num_rows):
        held = table if left is None else pa.concat_tables([left, table])
        full = held.num_rows - held.num_rows % rows
        yield from (held.slice(first, rows) for first in range(0, full, rows))
        left = held.slice(full)
    if left is not None and left.num_rows:
        yield left


def _gathered(
    tables: Iterable[pa.Table], most: int, size: Callable[[pa.Table], int] = lambda t: t.nbytes
) -> Iterator[pa.Table]:
    """Yield tables put together until they are as large as `most`."""
    kept: list[pa.Table] = []
    held = 0
    for table in tables:
        kept.append(table)
        held += size(table)
        if held >= most:
            yield pa.concat_tables(kept)
            kept, held = [], 0
    if kept:
        yield pa.concat_tables(kept)


@contextmanager
def _spilled(table: pa.Table, folder: Path, batch: int) -> Iterator[pa.RecordBatchFileReader]:
    """Write a run to a file of its own, which goes with the block."""
    path = folder / f"{uuid.uuid4().hex}.tmp"
    with ExitStack() as block:
        block.callback(path.unlink, missing_ok=True)
        with (
            storage_errors(str(path)),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table, max_chunksize=batch)
        del table  # the block lasts as long as the merge
        block.callback(os.close, hold(path))
        yield pa.ipc.open_file(block.enter_context(pa.memory_map(str(path))))


@dataclass
class _Run:
    """The next rows of a run."""

    reader: pa.RecordBatchFileReader
    number: int
    taken: int = 0
    held: pa.Table | None = None

    def fill(self) -> bool:
        """Read until there is at least a row, and return whether there is one."""
        while (self.held is None or not self.held.num_rows) and self.taken < self.reader.num_record_batches:
            self.held = pa.Table.from_batches([self.reader.get_batch(self.taken)])
            self.held = self.held.append_column(_RUN, pa.repeat(self.number, self.held.num_rows))
            self.taken += 1
        return self.held is not None and bool(self.held.num_rows)

    @property
    def has_more(self) -> bool:
        """Return whether rows follow those that are held."""
        return bool(self.taken < self.reader.num_record_batches)


def _merged(runs: list[_Run]) -> Iterator[pa.Table]:
    """Yield the rows of sorted runs in order: each time all that come before the end of what some run holds."""
    while live := [run for run in runs if run.fill()]:
        held = {run.number: run.held for run in live if run.held is not None}
        ends = [held[run.number].slice(held[run.number].num_rows - 1) for run in live if run.has_more]
        if not ends:
            yield pa.concat_tables(list(held.values())).sort_by(_KEYS)
            return
        bound = pa.concat_tables(ends).sort_by(_KEYS).slice(0, 1)
        # Of the runs only those take part that have a row before the bound: in a sorted file that is one.
        heads = pa.concat_tables([bound, *(table.slice(0, 1) for table in held.values())]).sort_by(_KEYS)
        last = pc.index(heads[ROW], bound[ROW][0]).as_py()
        parts = set(heads.slice(0, last + 1)[_RUN].to_pylist())
        table = pa.concat_tables([held[number] for number in sorted(parts)]).sort_by(_KEYS)
        ready = table.slice(0, pc.index(table[ROW], bound[ROW][0]).as_py() + 1)
        yield ready
        counts = np.bincount(ready[_RUN].to_numpy(), minlength=len(runs))
        for run in live:
            if run.number in parts:
                run.held = held[run.number].slice(int(counts[run.number]))
