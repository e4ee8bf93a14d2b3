"""Write a step's state from tables, in a Spark job of its own: what it begins with, or what a restore rewrites.

The tables are those of `Step.tables`, as a data checkpoint writes them. So a table that a person writes, or that of an
older batch, can give a step its state (SEMANTICS 7.3, 10.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import BadExpression, StepsChanged
from penstock.graph.steps import StepNode
from penstock.operators.protocol import HASHED, MAIN, TIMERS, Step, StepFacts
from penstock.runtime.plan.branch_frame import at_site, hash_of, normalised, quoted
from penstock.runtime.plan.projection import map_in_arrow
from penstock.runtime.snapshots.catalog import storable, table_path
from penstock.runtime.tasks.functions import Batches, TaskFunction, task_files
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.runtime.tasks.transport import Emitter, Item, receipt
from penstock.state.full_compaction import live_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.driver.engine import StepRewrite

__all__ = ["initial_frame", "loading_frame", "manifests", "rewritten_tables"]

_PID, _TABLE = "_penstock_pid", "_penstock_table"


def initial_frame(node: StepNode, work: Step, spark: SparkSession, folder: CheckpointFolder) -> DataFrame:
    """Return the frame whose collection writes the state that a step begins with, and gives its receipts.

    Raises BadExpression at the user's line where it lacks a column, or has one of another type.
    """
    from pyspark.sql import DataFrame

    with at_site(node.site):
        initial = node.spec.initial
        frame = _table(initial, spark) if isinstance(initial, str) else initial()  # type: ignore[misc]
        if not isinstance(frame, DataFrame):
            raise BadExpression(f"initial= of step {node.name!r} gave a {type(frame).__name__}, not a DataFrame")
        return loading_frame(node, work, {MAIN: frame}, folder=folder, what=f"initial= of step {node.name!r}")


def _table(named: str, spark: SparkSession) -> DataFrame:
    """Return a table by its path, if there is a slash in it, or else by its name; backquotes are of a name."""
    if "/" not in named or "`" in named:
        return spark.table(named)
    # Spark would begin a relative path at the folder that its process was started in.
    path = named if "://" in named else str(Path(named).absolute())
    return spark.read.format("delta").load(path)


def loading_frame(
    node: StepNode,
    work: Step,
    tables: Mapping[str, DataFrame],
    *,
    folder: CheckpointFolder,
    what: str,
    older: bool = False,
) -> DataFrame:
    """Return the frame whose collection writes a step's state in its partitions, and gives the receipts.

    `folder` is that of all steps' state; `older` tables may lack state columns, which were added since.
    Raises BadExpression, which begins with `what`, where a column is missing.
    """
    from pyspark.sql import functions as F

    partitions = node.partitions
    # A task for each partition of an empty table too: what is to be there is nothing then.
    frames = [_typed(work, name, table, what, older=older) for name, table in tables.items()]
    frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    placed = frame.withColumn(_PID, F.pmod(F.col(HASHED), F.lit(partitions)).cast("int"))
    routed = placed.repartitionById(partitions, F.col(_PID)).drop(_PID)
    emitter = Emitter(stage=0)
    task = _task(node.name, work, folder, partitions, tuple(tables), emitter)
    return map_in_arrow(routed, task, emitter.schema)


def rewritten_tables(
    rewrite: StepRewrite, work: Step, commit: Commit, spark: SparkSession, folder: CheckpointFolder
) -> dict[str, DataFrame]:
    """Return the tables from which a step's state is rewritten; `folder` is the job's checkpoint.

    A table of the user's takes the place of the main one: timers stay as they were.
    """
    step, snapshot = rewrite.step, rewrite.snapshot
    tables = {}
    for name in work.tables:
        if name == MAIN and rewrite.table is not None:
            tables[name] = spark.read.format("delta").load(rewrite.table)
        elif snapshot is not None:
            files = snapshot.files if name == MAIN else snapshot.timer_files
            # Not as a version of the table: how long Delta keeps its log is no matter of ours.
            paths = [table_path(folder, step, name) / file for file in files]
            tables[name] = _snapshot(paths, work, name, snapshot.layout, spark)
        else:
            tables[name] = _segments(step, work, name, commit, spark, folder / "state")
    return tables


def _snapshot(files: list[CheckpointFolder], work: Step, table: str, layout: str, spark: SparkSession) -> DataFrame:
    """Return the rows of a snapshot's files, a task for each; a task has them brought where it runs."""
    adapt = work.adapted(table, layout)
    stored = pq.read_schema(files[0].fetch()).remove_metadata() if files else storable(work.tables[table])
    schema = storable(adapt(stored.empty_table()).schema)

    def tables(number: int) -> Iterator[pa.Table]:
        for rows in pq.ParquetFile(files[number].fetch()).iter_batches():
            yield adapt(pa.Table.from_batches([rows]))

    return _numbered(spark, len(files), tables, schema)


def _segments(
    step: str, work: Step, table: str, commit: Commit, spark: SparkSession, root: CheckpointFolder
) -> DataFrame:
    """Return a table as the segments of a Commit have it, a task for each partition."""
    named = {int(partition): ref.model_dump() for partition, ref in commit.state.get(step, {}).items()}
    parts = [name for name, part in work.parts.items() if part.table == table]
    schema = storable(work.tables[table])

    def tables(partition: int) -> Iterator[pa.Table]:
        state = PartitionState.open(root, step, partition, named.get(partition), work=work)
        return (work.shown(part, rows) for part in parts for rows in live_rows(state, part, work.parts))

    return _numbered(spark, max(named, default=0) + 1, tables, schema)


def _numbered(
    spark: SparkSession, count: int, tables: Callable[[int], Iterator[pa.Table]], schema: pa.Schema
) -> DataFrame:
    """Return the rows of what each number below `count` names, in a task for each, with these columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [row for batch in batches for row in batch.column(0).to_pylist()]:
            for table in tables(number):
                yield from table.cast(schema).to_batches()

    return spark.range(0, count, 1, max(1, count)).mapInArrow(read, from_arrow_schema(schema))


def refuse_unfit(rewrite: StepRewrite, work: Step, commit: Commit, root: CheckpointFolder) -> None:
    """Raise StepsChanged where a step cannot resume from the source of its rewritten state; `root` has all state.

    Rewritten state has the layout of the current code, so a difference would be invisible afterwards. Of a table of the
    user's only the columns count, which are checked when it is read.
    """
    refused: tuple[str, ...] = ()
    if rewrite.snapshot is not None:
        snapshot = rewrite.snapshot
        timers = table_path(root.parent, rewrite.step, TIMERS)
        rows = (pq.read_metadata((timers / name).fetch()).num_rows for name in snapshot.timer_files)
        if TIMERS not in work.tables and any(rows):
            refused = ("timers wait in it, which only map_with_state fires",)
        if snapshot.files:
            stored = pq.read_schema((table_path(root.parent, rewrite.step) / next(iter(snapshot.files))).fetch())
            wanted = {field.name: field for field in work.tables[MAIN]}
            kept = list(stored.remove_metadata())
            # An interval is microseconds there, and nobody else's column is.
            spans = storable(pa.schema([wanted.get(f.name, f) for f in kept]))
            plain = pa.schema(
                [wanted.get(f.name, f) if f.type == s.type else f for f, s in zip(kept, spans, strict=True)]
            )
            refused += work.evolved(snapshot.layout, snapshot.keys, plain).refused
    else:
        for partition, ref in commit.state.get(rewrite.step, {}).items():
            state = PartitionState.open(root, rewrite.step, int(partition), ref.model_dump(), work=work)
            refused = refused or (work.lost(state) if rewrite.table is not None else work.evolution(state).refused)
    if refused:
        raise StepsChanged(f"step {rewrite.step!r} cannot resume from its state: {'; '.join(refused)}")


def _typed(work: Step, table: str, frame: DataFrame, what: str, *, older: bool) -> DataFrame:
    """Return a table with the columns and types that the step needs, and the hash of the keys."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted = from_arrow_schema(storable(work.tables[table]))
    present = {name.lower(): name for name in frame.columns}
    if older:
        added = [f for f in wanted if f.name.lower() not in present and f.name not in work.keys.names]
        frame = frame.withColumns({f.name: F.lit(None).cast(f.dataType) for f in added})
        present |= {f.name.lower(): f.name for f in added}
    fields = [f for f in wanted if f.name not in work.may_lack or f.name in present]
    missing = next((field.name for field in fields if field.name.lower() not in present), None)
    if missing is not None:
        raise BadExpression(f"{what} has no column {missing!r}; it has {', '.join(frame.columns)}")
    typed = frame.select([F.col(quoted(present[f.name.lower()])).cast(f.dataType).alias(f.name) for f in fields])
    keys = {f.name: f.dataType for f in fields if f.name in work.keys.names}
    even = {name: normalised(name, kind) for name, kind in keys.items()}
    typed = typed.withColumns({name: column for name, column in even.items() if column is not None})
    hashed = typed.withColumn(HASHED, hash_of([F.col(quoted(name)) for name in keys]))
    return hashed.withColumn(_TABLE, F.lit(table))


def _task(
    step: str, work: Step, folder: CheckpointFolder, partitions: int, names: tuple[str, ...], emitter: Emitter
) -> TaskFunction:
    def run(batches: Batches) -> Batches:
        files, partition = task_files(emitter)
        if rows := list(batches):
            yield from emitter.emit([written(pa.Table.from_batches(rows), files, partition)], partition)

    def written(rows: pa.Table, files: TaskFiles, partition: int) -> Item:
        state, facts = PartitionState.open(folder, step, partition, None, work=work), files.facts
        sorted_rows = rows.take(pa.array(np.argsort(rows[HASHED].to_numpy(), kind="stable")))
        tables = {name: _of_table(sorted_rows, name, work) for name in names}
        state.refuse_strangers(list(tables.values()), partitions)
        moment = StepFacts(batch=facts.batch, time=facts.time, watermark=facts.close.get(step), zero=facts.zero)
        made = work.rebuilt(tables, moment)
        change = state.write(made.change, files, partitions=partitions)
        return receipt(
            "initial",
            step=step,
            partition=partition,
            manifest=None if change.ref is None else asdict(change.ref),
            written=change.written,
            due=made.due,
            due_time=made.due_time,
        )

    return run


def _of_table(rows: pa.Table, name: str, work: Step) -> pa.Table:
    matching = rows.filter(pc.equal(rows[_TABLE], name))
    fields = [field for field in work.tables[name] if field.name in rows.column_names]
    named = matching.select([*(field.name for field in fields), HASHED])
    return named.cast(pa.schema([*fields, pa.field(HASHED, pa.int64())]))


def manifests(receipts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, by step and partition, the manifests of what was loaded."""
    loaded: dict[str, dict[str, Any]] = {}
    for entry in receipts:
        if entry["manifest"] is not None:
            loaded.setdefault(entry["step"], {})[str(entry["partition"])] = entry["manifest"]
    return loaded
