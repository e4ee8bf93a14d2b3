"""Make the functions that Spark runs in its tasks, one for each Python stage of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa

from penstock.runtime.tasks.batch_context import current_batch
from penstock.runtime.tasks.columns import FUTURE, PREFIX
from penstock.runtime.tasks.requeued import decoded
from penstock.runtime.tasks.routing import route
from penstock.runtime.tasks.specs import RouteSpec, StateSpec
from penstock.runtime.tasks.staging import TaskFiles
from penstock.runtime.tasks.state_stage import run_state
from penstock.runtime.tasks.transport import Emitter, Item, cut, ran, split_carriers
from penstock.sources.base import TaskReader

__all__ = [
    "Batches",
    "TaskFunction",
    "frame_task",
    "hop_task",
    "ingest_task",
    "no_rows",
    "read_task",
    "send_task",
    "state_task",
    "take_task",
    "task_files",
]

Batches = Iterator[pa.RecordBatch]
TaskFunction = Callable[[Batches], Batches]


def _sent_by(run: str) -> str:
    """Return the port by which rows travel that several forks of a source take, in one attempt at a batch."""
    return f"read:{run}"


def read_task(source: str, reader: TaskReader, splits: int, max_future: int | None, schema: pa.Schema) -> TaskFunction:
    """Return the function that reads a source's span; `schema` is what it yields."""

    def read(batches: Batches) -> Batches:
        # Not the number of Spark's partition: after a union that one counts the splits of other sources too.
        split = next(iter([row for batch in batches for row in batch.column(0).to_pylist()]))
        facts = current_batch()
        span = facts.spans.get(source)
        if span is not None:
            for rows in reader.read(span, split, splits):
                yield from _as_read(rows, facts.time, max_future, schema)
        if split == 0 and source in facts.requeued:
            visible = pa.schema([column for column in schema if not column.name.startswith(PREFIX)])
            again = decoded(facts.requeued[source], reader, visible)
            yield from _as_read(again, facts.time, max_future, schema)

    return read


def frame_task(max_future: int | None, schema: pa.Schema) -> TaskFunction:
    """Return the function that takes the rows that Spark reads of a source; `schema` is what it yields."""

    def read(batches: Batches) -> Batches:
        facts = current_batch()
        for batch in batches:
            yield from _as_read(pa.Table.from_batches([batch]), facts.time, max_future, schema)

    return read


def no_rows(_: Batches) -> Batches:
    """Return nothing, for a source of which a batch reads nothing."""
    return iter(())


def _as_read(rows: pa.Table, time: int, max_future: int | None, schema: pa.Schema) -> Batches:
    """Yield rows of a source as `schema` has them, each with the bound of its event time where there is one."""
    if max_future is not None:
        rows = rows.append_column(FUTURE, pa.repeat(pa.scalar(time + max_future, pa.int64()), rows.num_rows))
    yield from rows.cast(schema).to_batches()


def send_task(read: TaskFunction, splits: int) -> TaskFunction:
    """Return the function that reads a source's span once and sends the rows of each part through a shuffle."""
    emitter = Emitter(stage=0, home=splits)

    def run(batches: Batches) -> Batches:
        # Spark's partition is the part: in front of a shuffle nothing is united.
        files, partition = task_files(emitter)
        port = _sent_by(files.facts.run)
        yield from emitter.emit((Item(port, table) for table in cut(read(batches))), partition)

    return run


def take_task(schema: pa.Schema) -> TaskFunction:
    """Return the function that makes rows of what was sent; all that a part takes comes from one task, in order."""

    def run(batches: Batches) -> Batches:
        port = _sent_by(current_batch().run)
        for batch in batches:
            if strange := set(batch.column("_port").to_pylist()) - {port}:
                raise RuntimeError(f"rows of {strange} came, and not {port}: those of another attempt at the batch")
            for payload in batch.column("_payload"):
                with pa.ipc.open_stream(payload.as_buffer()) as rows:
                    for sent in rows:
                        yield from pa.Table.from_batches([sent]).cast(schema).to_batches()

    return run


def ingest_task(specs: tuple[RouteSpec, ...], emitter: Emitter) -> TaskFunction:
    """Return the function that ends the branches of a fork."""

    def run(batches: Batches) -> Batches:
        files, partition = task_files(emitter)
        routed = (route(spec.of_branch(table), spec, files) for table in cut(batches) for spec in specs)
        yield from _with(files, emitter.emit(chain([ran(files.facts.run)], chain.from_iterable(routed)), partition))

    return run


def hop_task(spec: RouteSpec, emitter: Emitter) -> TaskFunction:
    """Return the function that ends a branch inside the job; payloads of others pass through."""

    def run(batches: Batches) -> Batches:
        files, partition = task_files(emitter)
        carriers, rows = split_carriers(batches)
        yield from emitter.forward(carriers)
        items = (item for table in cut(rows) for item in route(table, spec, files))
        yield from _with(files, emitter.emit(chain([ran(files.facts.run)], items), partition))

    return run


def state_task(specs: tuple[StateSpec, ...], emitter: Emitter) -> TaskFunction:
    """Return the function that owns one state partition of each step; it runs in an empty batch as well."""

    def run(batches: Batches) -> Batches:
        files, partition = task_files(emitter)
        # Beside envelopes come the rows by which a cluster places the partitions; they say nothing.
        carriers, _ = split_carriers(batches)
        mine, others = run_state(carriers, specs, partition, files)
        yield from emitter.forward(others)
        yield from _with(files, emitter.emit(chain([ran(files.facts.run)], mine), partition))

    return run


def _with(files: TaskFiles, batches: Batches) -> Batches:
    """Yield what a task sends on, and end when its files are durable: before, nobody takes it for done."""
    yield from batches
    files.settle()


def task_files(emitter: Emitter) -> tuple[TaskFiles, int]:
    """Return what names the files of the task that runs, and the number of its partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    files = TaskFiles(current_batch(), context.taskAttemptId(), f"{emitter.stage}b{emitter.branch}")
    return files, context.partitionId()
