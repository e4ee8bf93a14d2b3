"""Stage rows of a port inside a task: a durable file for each sink, and a receipt for each file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import folder_at
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.transport import Item, receipt
from penstock.sinks.base import TaskForm
from penstock.sinks.files.task_form import WrittenPart, files_of
from penstock.sinks.staged_files import encoded, facts_of
from penstock.time.arrival import ARRIVAL

__all__ = ["Outlet", "TaskFiles", "emit_to", "refuse_lacking"]


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Where the rows of a port go: to sinks as they are, and along lanes to hops.

    `ordered` are the sinks that want the order of arrival; `place` is that of the port among all of the graph.
    """

    sinks: tuple[str, ...]
    lanes: tuple[str, ...]
    schema: pa.Schema
    place: int
    ordered: tuple[str, ...] = ()

    @property
    def used(self) -> bool:
        """Return whether anybody reads the port."""
        return bool(self.sinks or self.lanes)

    @property
    def needs_arrival(self) -> bool:
        """Return whether anybody asks where the rows stand in the order of arrival."""
        return bool(self.ordered or self.lanes)


_writer = ThreadPoolExecutor(1, thread_name_prefix="staging")
"""Its thread starts with the first file, so that workers may be forked before."""


class TaskFiles:
    """Name the files of one task: batch, epoch, the run's random id, the task's attempt id, and a number (F04).

    `stage` tells apart the Python stages, and the branches of one, that Spark runs in the same task.
    A file is written while the task computes on, because the disk takes milliseconds to make it durable. At most one
    waits in memory. The task ends with `settle`.
    """

    def __init__(self, facts: BatchContext, attempt: int, stage: str) -> None:
        self.facts = facts
        self.attempt = attempt
        self._stage = stage
        self._numbers = itertools.count()
        self._writing: Future[None] | None = None

    def settle(self) -> None:
        """Return when all files are durable; raises StorageFull and its kin, as `CheckpointFolder.stage` does."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def stage(
        self,
        table: pa.Table,
        sinks: tuple[str, ...],
        *,
        ordered: tuple[str, ...] = (),
        fails: tuple[str, ...] = (),
        unit: int | None = None,
        check: str | None = None,
    ) -> Iterator[Item]:
        """Have rows written for each sink and yield the receipts of files, for which `settle` waits; no rows, no file.

        Args:
            table: The rows, with ARRIVAL where there are `ordered` sinks.
            sinks: The names of the sinks, each of which gets a file of its own.
            ordered: The sinks whose files keep ARRIVAL, the order of arrival.
            fails: The critical rules that all of these rows fail.
            unit: The end of the window of these rows, microseconds; None where the check judges the batch.
            check: The check that judges the rows; None for none.
        """
        if table.num_rows == 0:
            return
        facts = self.facts
        name = f"{facts.batch:012d}-{facts.epoch}-{facts.run}-{self.attempt}-{self._stage}"
        plain = table.drop_columns([ARRIVAL]) if ARRIVAL in table.column_names else table
        for sink in sinks:
            for file in self._written(table if sink in ordered else plain, sink, name):
                yield receipt("staged", sink=sink, check=check, file={**file, "fails": list(fails), "unit": unit})

    def _written(self, rows: pa.Table, sink: str, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield the facts of the files of a sink, of which some may be those that its target shows."""
        folder, form = folder_at(self.facts.staging[sink]), self.facts.forms.get(sink)
        for part in (rows,) if form is None else files_of(TaskForm(**form), rows):
            name = f"{prefix}-{next(self._numbers)}"
            if isinstance(part, WrittenPart):
                file = self._write(part.data, folder, f"{name}.{part.suffix}", part.rows)
                yield {**file, "stats": dict(part.stats)}
            else:
                yield self._write(encoded(part), folder, f"{name}.parquet", part.num_rows)

    def _write(self, data: memoryview, folder: CheckpointFolder, name: str, rows: int) -> dict[str, Any]:
        self.settle()
        self._writing = _writer.submit((folder / name).stage, data)
        return facts_of(data, name, rows=rows)


def refuse_lacking(rows: pa.Table, outlet: Outlet, step: str, name: str) -> None:
    """Raise RuntimeError for rows of a step that lack a column which the operator's `outlets` has: its own error."""
    if lacking := [column for column in outlet.schema.names if column not in rows.column_names]:
        raise RuntimeError(
            f"step {step!r} says that its outlet {name!r} has the column {lacking[0]!r}, and emitted rows with "
            f"{', '.join(rows.column_names)}"
        )


def emit_to(table: pa.Table, outlet: Outlet, files: TaskFiles) -> Iterator[Item]:
    """Send the rows of a port where they go; `table` may have more columns than the sinks are given."""
    if table.num_rows == 0:
        return
    columns = [*outlet.schema.names, *([ARRIVAL] if outlet.ordered else [])]
    yield from files.stage(table.select(columns), outlet.sinks, ordered=outlet.ordered)
    for lane in outlet.lanes:
        yield Item(lane, table)
