"""Run a small job to its end in a process of its own, which kills itself when told to: a program for test_kill.

    python killed_job.py FOLDER [STAGE WHEN BATCH]

FOLDER holds the input, the checkpoint and the tables; with a file `hdfs`, the checkpoint is at the URL in it. With a
file `kafka`, which names brokers and two topics, the rows come from the first and go into the second as well. With a
hook of the loop the process
sends itself SIGKILL there, in that batch or a later one. With the stage `task` a task of the batch kills its driver,
from inside the Spark job.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from written_files import TaskParquet

from penstock import EveryBatches, Job, agg, seconds
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.job_run import JobRun
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy, HelperProcess
from penstock.runtime.spark.session import open_session
from penstock.sinks import Delta, Kafka, Parquet
from penstock.sources import FileReplay, Json
from penstock.sources import Kafka as FromKafka
from penstock.sources.base import Source
from penstock.time.clock import SystemClock
from penstock.time.triggers import AsFastAsPossible
from penstock.windows import Tumbling

ROWS = 60
A_BATCH = 10
SINKS = ("raw", "windows")


def make_input(folder: Path, rows: int = ROWS) -> None:
    """Write the rows of the source: one each second, by two users, every seventh a little late."""
    moments = [i * 1_000_000 - (2_500_000 if i % 7 == 0 else 0) for i in range(rows)]
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "user": pa.array(["ab"[i % 2] for i in range(rows)]),
            "t": pa.array(moments, pa.timestamp("us", tz="UTC")),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "input.parquet")


def records(folder: Path) -> list[bytes]:
    """Return the rows of the source as records of a topic."""
    rows = pq.read_table(folder / "input.parquet").to_pylist()
    return [json.dumps({**row, "t": row["t"].isoformat()}).encode() for row in rows]


def killing(marker: Path, driver: int, batch: int) -> Any:
    """Return a function of a frame whose tasks kill the driver once, in the batch that reads row `batch * A_BATCH`."""

    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield rows
            if batch * A_BATCH in rows["id"].to_pylist() and not marker.exists():
                marker.touch()
                os.kill(driver, signal.SIGKILL)
                time.sleep(30)

    return lambda frame: frame.mapInArrow(kill_once, frame.schema)


def make_job(folder: Path, kill: tuple[str, str, int] | None) -> Job:
    """Return the job: the rows as they are, in a table and in folders of files, and counts by user and window."""
    job = Job("killed", partitions=2)
    job.checkpoint(every=EveryBatches(3))
    servers, *topics = (folder / "kafka").read_text().split() if (folder / "kafka").exists() else ("",)
    # The order of the ids is the order of arrival.
    source: Source = FileReplay(folder / "input.parquet", order_by="id", rows_per_batch=A_BATCH)
    if topics:
        source = FromKafka([topics[0]], servers=servers, format=Json("id long, user string, t timestamp"))
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(3))
    if kill is not None and kill[0] == "task":
        rows = rows.transform("kill", killing(folder / "marker", os.getpid(), kill[2]))
    rows.write("raw", Delta(folder / "raw"))
    rows.write("files", Parquet(folder / "files", partition_by=["user"]))
    rows.write("written", TaskParquet(folder / "written", partition_by=["user"]))
    if topics:
        rows.write("topic", Kafka(topics[1], servers=servers, key="user"))
    windows = rows.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count(), ids=agg.sum("id")).write("windows", Delta(folder / "windows"))
    return job


def main(folder: Path, kill: tuple[str, str, int] | None) -> None:
    """Run the job to the end of its input, or to the hook, in a session of its own."""
    spark = open_session("killed", master="local[2,4]", jars=Path(__file__).resolve().parents[2] / ".jars")
    for hook in hooks(folder, spark, kill):
        # A hook of a start is of no batch, and one that not every batch has kills in the next that has it.
        if kill is not None and kill[:2] == (hook.stage, hook.when) and (hook.batch is None or hook.batch >= kill[2]):
            os.kill(os.getpid(), signal.SIGKILL)
    spark.stop()


def root(folder: Path) -> CheckpointFolder:
    """Return where the checkpoint is."""
    url = folder / "hdfs"
    return root_of(url.read_text(), cache=str(folder / "cache")) if url.exists() else LocalFolder(folder / "root")


def hooks(folder: Path, spark: Any, kill: tuple[str, str, int] | None = None) -> Iterator[Hook]:
    """Yield the hooks of a driver that runs the job to the end of its input."""
    reads_topic = (folder / "kafka").exists()
    run = JobRun.open(
        make_job(folder, kill),
        spark,
        root=root(folder),
        clock=SystemClock(),
        trigger=AsFastAsPossible(),
        suites={},
        settings=DriverSettings(
            stop_at_end=reads_topic,  # it has no end: the run ends with what is there
            limits=lambda: Limits(rows=A_BATCH if reads_topic else None),
            data=DataCheckpointPolicy(make=HelperProcess),
        ),
    )
    yield from run.driver.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), (sys.argv[2], sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 2 else None)
