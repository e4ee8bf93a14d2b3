"""Run a Structured Streaming query over an `Input`, tuned as Spark's and Delta's own pages advise, and time it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import SCHEMA, Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["ROCKSDB", "SparkSide", "show_files"]

_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    # Structured Streaming guide, "RocksDB state store": changelog checkpointing for latency, row counts off for speed.
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.shuffle.partitions": "2",
    # An idle query lists its folder a hundred times a second by default, which would cost the other side time.
    "spark.sql.streaming.pollingDelay": "500ms",
}
"""Settings of the session; they touch nothing that Penstock uses."""

_PATIENCE = 600.0


def show_files(given: Input, folder: Path, batches: range) -> None:
    """Copy the files of batches into a new folder, with times by which a query takes them in order."""
    folder.mkdir()
    for batch in batches:
        for path in given.files(batch):
            copy = folder / path.name
            copy.write_bytes(path.read_bytes())
            os.utime(copy, (1_700_000_000 + batch, 1_700_000_000 + batch))


class SparkSide:
    """Hold a running query: `transform` makes its result, `sink` where that goes."""

    name = "structured streaming"

    def __init__(
        self,
        spark: SparkSession,
        given: Input,
        root: Path,
        *,
        transform: Callable[[DataFrame], DataFrame],
        sink: Callable[[DataStreamWriter], DataStreamWriter],
        mode: str = "append",
        checkpoint: str | None = None,
    ) -> None:
        self.given = given
        self.offered = 0
        self._watched = root / "watched"
        self._watched.mkdir(parents=True)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", given.files_a_batch)
        rows = reader.option("recursiveFileLookup", "true").parquet(str(self._watched.resolve()))
        writer = transform(rows).writeStream.outputMode(mode)
        self.query = sink(writer.option("checkpointLocation", checkpoint or str(root.resolve() / "checkpoint"))).start()
        self._reported: dict[int, float] = {}

    def batches(self, n: int) -> list[float]:
        """Offer so many more batches, wait for them, and return what each with rows took in milliseconds."""
        self._offer(n)
        before = set(self._reported)
        until = time.monotonic() + _PATIENCE
        while len(self._reported) < self.offered:
            time.sleep(0.05)
            if (why := self.query.exception()) is not None:
                raise why
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self._reported)} of {self.offered} batches in {_PATIENCE:.0f} s")
            for progress in self.query.recentProgress:
                self._note(progress)
        self._rest()
        return [self._reported[batch] for batch in sorted(set(self._reported) - before)]

    def close(self) -> None:
        """Stop the query."""
        self.query.stop()

    def _offer(self, n: int) -> None:
        """Show the files of n batches at once: a folder that is filled elsewhere and renamed."""
        hidden = self._watched.parent / f"chunk-{self.offered:06d}"
        show_files(self.given, hidden, range(self.offered, self.offered + n))
        self.offered += n
        hidden.rename(self._watched / hidden.name)

    def _note(self, progress: Any) -> None:
        if progress["numInputRows"]:
            self._reported.setdefault(progress["batchId"], float(progress["durationMs"]["triggerExecution"]))

    def _rest(self) -> None:
        """Wait until the query is idle: a batch without rows may follow the last one with rows."""
        quiet = 0
        while quiet < 3:  # noqa: PLR2004 - three looks in a row
            time.sleep(0.05)
            quiet = quiet + 1 if not self.query.status["isTriggerActive"] else 0
