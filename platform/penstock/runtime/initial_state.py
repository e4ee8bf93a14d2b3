"""Load the state that a step begins with, before its first batch: a Spark job of its own (SEMANTICS 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadExpression
from penstock.graph.nodes import FunctionNode
from penstock.runtime.dataframes import at_site, hash_of, normalised, quoted
from penstock.runtime.facts import current_facts
from penstock.runtime.partition_state import PartitionState
from penstock.runtime.projection import map_in_arrow
from penstock.runtime.route import ROW_HASH
from penstock.runtime.rows import Emitter, receipt
from penstock.runtime.staging import TaskFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.function_work import FunctionWork

__all__ = ["initial_frame", "manifests"]

_PID = "_penstock_pid"


def initial_frame(node: FunctionNode, work: FunctionWork, spark: SparkSession, folder: str) -> DataFrame:
    """Return the frame whose collection writes a step's first segments, and gives their receipts.

    Raises BadExpression at the user's line where the initial state lacks a column, or has one of another type.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    with at_site(node.site):
        given = spark.table(node.initial) if isinstance(node.initial, str) else node.initial()  # type: ignore[misc]
        if not isinstance(given, DataFrame):
            raise BadExpression(f"initial= of step {node.name!r} gave a {type(given).__name__}, not a DataFrame")
        wanted = from_arrow_schema(pa.schema([*work.keys, *work.spec.state]))
        missing = next((field.name for field in wanted if field.name not in given.columns), None)
        if missing is not None:
            raise BadExpression(
                f"initial= of step {node.name!r} has no column {missing!r}; it has {', '.join(given.columns)}"
            )
        typed = given.select([F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in wanted])
        keys = {f.name: f.dataType for f in wanted if f.name in work.keys.names}
        even = {name: normalised(name, kind) for name, kind in keys.items()}
        typed = typed.withColumns({name: column for name, column in even.items() if column is not None})
        hashed = typed.withColumn(ROW_HASH, hash_of([F.col(quoted(name)) for name in keys]))
        placed = hashed.withColumn(_PID, F.pmod(F.col(ROW_HASH), F.lit(node.partitions)).cast("int"))
        routed = placed.repartitionById(node.partitions, F.col(_PID)).drop(_PID)
        emitter = Emitter(stage=0)
        return map_in_arrow(routed, _task(node, work, folder, emitter), emitter.schema).select("_port", "_payload")


def _task(
    node: FunctionNode, work: FunctionWork, folder: str, emitter: Emitter
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    name, partitions = node.name, node.partitions

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if rows:
            yield from emitter.emit([_written(pa.Table.from_batches(rows))], _partition())

    def _written(rows: pa.Table) -> Any:
        from pyspark import TaskContext

        context, facts, partition = TaskContext.get(), current_facts(), _partition()
        assert context is not None
        files = TaskFiles(facts, context.taskAttemptId(), "initial")
        state = PartitionState.open(Path(folder), name, partition, None, work=work)
        state.refuse_strangers([rows], partition, partitions, name)
        hashes = rows[ROW_HASH].to_numpy()
        order = pa.array(np.argsort(hashes, kind="stable"))
        change = work.initial(rows.take(order), zero=facts.begins or 0)
        written = state.write(change, files, partitions=partitions)
        assert written.ref is not None
        ref = {"path": written.ref.path, "size": written.ref.size, "checksum": written.ref.checksum}
        return receipt("initial", step=name, partition=partition, manifest=ref, written=written.written)

    return run


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def manifests(receipts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, by step and partition, the manifests of what was loaded."""
    found: dict[str, dict[str, Any]] = {}
    for said in receipts:
        found.setdefault(said["step"], {})[str(said["partition"])] = said["manifest"]
    return found
