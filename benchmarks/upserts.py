"""Time merges of a thousand changed keys into a Delta table, by the sink and by MERGE of delta-spark, in turn."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.beside_spark import scratch
from benchmarks.report import Claim, report
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.sinks import Delta, Mode
from penstock.sinks.base import Publication, Staged
from penstock.sinks.staged_files import stage_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_upserts"]

ROWS = 1_000_000
CHANGED = 1_000
WARM = 3
MERGE = (
    "MERGE INTO delta.`{}` AS t USING changed AS c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def run_upserts(spark: SparkSession, *, quick: bool) -> list[Claim]:
    """Merge the same batches on both sides, with keys at random and with the keys of one thousand."""
    rows = ROWS // 5 if quick else ROWS
    batches = WARM + (5 if quick else 15)
    random = np.random.default_rng(7)
    shapes = {
        "at random": [random.choice(rows, CHANGED, replace=False) for _ in range(batches)],
        "the same each time": [np.arange(CHANGED)] * batches,
    }
    shown = []
    with report("upserts") as results:
        for shape, changes in shapes.items():
            with scratch() as root:
                sides = _Sides(root, spark, rows)
                took = [sides.merge(number, keys) for number, keys in enumerate(changes, 1)][WARM:]
                sides.compare()
            ours, theirs = (statistics.median(side) for side in zip(*took, strict=True))
            shown.append((f"{CHANGED:,} keys {shape}, of {rows:,}", ours, theirs, theirs / ours))
            results.claim(Claim(f"keys {shape}, times MERGE of delta-spark", theirs / ours, 1, "x"))
        results.table("milliseconds of a merge", ["keys", "Penstock", "MERGE", "ratio"], shown)
        return results.claims


@dataclass
class _Sides:
    """A table for each side, with the same rows to begin with."""

    root: Path
    spark: SparkSession
    rows: int

    def __post_init__(self) -> None:
        sink = Delta(self.root / "ours", mode=Mode.UPSERT, keys=["id"])
        first = _table(np.arange(self.rows), 0)
        sink.create(first.schema, self.spark)
        self._staging = LocalFolder(self.root / "staged")
        self._publisher = sink.open(self._staging, self.spark)
        file = self._staged(0, first)
        self._publish(0, file, first.schema)
        frame = self.spark.read.parquet(str(self._staging / file.path))
        frame.write.format("delta").save(str(self.root / "theirs"))

    def merge(self, batch: int, keys: np.ndarray) -> tuple[float, float]:
        """Merge new rows of some keys, and return the milliseconds of both sides."""
        changed = _table(keys, batch)
        file = self._staged(batch, changed)
        began = time.perf_counter()
        self._publish(batch, file, changed.schema)
        between = time.perf_counter()
        self.spark.read.parquet(str(self._staging / file.path)).createOrReplaceTempView("changed")
        self.spark.sql(MERGE.format((self.root / "theirs").resolve()))
        return (between - began) * 1_000, (time.perf_counter() - between) * 1_000

    def compare(self) -> None:
        """Raise where the tables differ."""
        ours, theirs = (
            DeltaTable(str(self.root / side)).to_pyarrow_table().sort_by("id") for side in ("ours", "theirs")
        )
        assert ours.to_pylist() == theirs.select(ours.column_names).to_pylist()

    def _staged(self, batch: int, rows: pa.Table) -> Staged:
        return Staged(**stage_table(rows, self._staging, f"{batch:012d}.parquet"))

    def _publish(self, batch: int, file: Staged, schema: pa.Schema) -> None:
        self._publisher.publish(Publication(app="bench/upserts", batch=batch, files=[file], schema=schema))


def _table(keys: np.ndarray, batch: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "name": pa.array([f"name of {key}" for key in keys]),
            "batch": pa.array([batch] * len(keys), pa.int64()),
            "amount": pa.array(keys * 0.5 + batch, pa.float64()),
        }
    )
