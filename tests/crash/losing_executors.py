"""Run a job to its end on executors that its own tasks kill: a program for test_lost_executors.

    python losing_executors.py FOLDER state|forks KILLS

FOLDER holds the inputs, the checkpoint and the tables. KILLS is a JSON list of [stage, id]: a task of that stage kills
its executor when it has the row of that id, once for each time that the list has it. The last line of the output says,
as JSON, how many executors died, how many batches there were, and how many plans were kept for several of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import Job, agg, seconds
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.process.job_run import JobRun
from penstock.runtime.process.os_processes import argv_of
from penstock.runtime.spark.session import open_session
from penstock.sinks import Delta
from penstock.sources import FileReplay
from penstock.time.clock import SystemClock
from penstock.time.triggers import AsFastAsPossible
from penstock.windows import Tumbling

ROWS = 40
"""Of each of the two sources."""
A_BATCH = 10
_SETTINGS = {
    "spark.executor.memory": "1g",
    # A task asks a dead executor for its rows once more, after a moment: by default it takes 15 seconds to believe it.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}
_ROWS = "id long, user string, t timestamp"


def make_inputs(folder: Path) -> None:
    """Write the rows of both sources: one each second, by three users; those of `others` have ids from ROWS on."""
    for name, first in (("rows", 0), ("others", ROWS)):
        table = pa.table(
            {
                "id": pa.array(range(first, first + ROWS), pa.int64()),
                "user": pa.array(["abc"[i % 3] for i in range(ROWS)]),
                "t": pa.array([i * 1_000_000 for i in range(ROWS)], pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet")


def kill_executor() -> None:
    """End the executor of this worker, which is a parent of its own."""
    pid = os.getpid()
    while "CoarseGrainedExecutorBackend" not in " ".join(argv_of(pid)):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "this worker has no executor"
    os.kill(pid, signal.SIGKILL)
    time.sleep(30)  # the worker ends with it


def killer(folder: Path, kills: list[tuple[str, int]], stage: str) -> Callable[[list[int]], None]:
    """Return what kills the executor of a task that has a row of the list, as often as that names it."""
    wanted = [(number, row) for number, (where, row) in enumerate(kills) if where == stage]

    def judge(ids: list[int]) -> None:
        for number, row in wanted:
            marker = folder / f"died-{number}"
            if row in ids and not marker.exists():
                marker.touch()
                kill_executor()

    return judge


def make_job(folder: Path, kind: str, kills: list[tuple[str, int]]) -> Job:
    """Return a job whose first and second stage kill: with windows and state, or of forks that share a source."""
    first, second = (killer(folder, kills, stage) for stage in ("first", "second"))

    def in_first(rows: pa.Table, info: Any) -> pa.Table:
        first(rows["id"].to_pylist())
        return rows

    def in_second(rows: pa.Table, info: Any) -> pa.Table:
        second(rows["id"].to_pylist())
        return rows

    def count(at: Any, key: str, row: Mapping[str, Any], state: Any) -> dict[str, Any]:
        second([row["id"]])
        state.update({"n": state.get_or({"n": 0})["n"] + 1})
        return {"id": row["id"], "n": state.get()["n"]}

    job = Job("losing", partitions=4)
    sources = [
        job.source(
            name,
            FileReplay(folder / f"{name}.parquet", order_by="id", rows_per_batch=A_BATCH),
            event_time="t",
            max_out_of_order=seconds(3),
        )
        for name in ("rows", "others")
    ]
    if kind == "forks":
        sources[0].map_batches("again", in_second, output=_ROWS, same_rows=True).write("raw", Delta(folder / "raw"))
        sources[0].filter("id % 2 = 0").write("even", Delta(folder / "even"))
        sources[1].write("beside", Delta(folder / "beside"))
        return job
    rows, others = (
        source.map_batches(f"{name}_first", in_first, output=_ROWS, same_rows=True)
        for name, source in zip(("rows", "others"), sources, strict=True)
    )
    rows.write("raw", Delta(folder / "raw"))
    both = rows.union(others).key_by("user")
    both.map_with_state("count", count, state="n long", output="id long, n long", unbounded=True).write(
        "counted", Delta(folder / "counted")
    )
    windows = both.window("w", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count(), ids=agg.sum("id")).write("windows", Delta(folder / "windows"))
    return job


def main(folder: Path, kind: str, kills: list[tuple[str, int]]) -> None:
    """Run the job to the end of its input, in a session of its own."""
    spark = open_session(
        "losing", master="local-cluster[2,1,1024]", jars=Path(__file__).resolve().parents[2] / ".jars",
        settings=_SETTINGS, modules=[Path(entry) for entry in sys.path if Path(entry).is_dir()],
    )  # fmt: skip
    run = JobRun.open(
        make_job(folder, kind, kills), spark, root=LocalFolder(folder / "root"), clock=SystemClock(),
        trigger=AsFastAsPossible(), suites={}, settings=DriverSettings(),
    )  # fmt: skip
    plans: dict[int, Any] = {}
    for hook in run.driver.run():
        if (hook.stage, hook.when) == ("Compute", "after"):
            plans[hook.batch] = run.driver.engine._plans._kept
    kept = {id(plan) for plan in plans.values() if plan is not None}
    said = {"died": len(list(folder.glob("died-*"))), "batches": len(plans), "kept": len(kept)}
    sys.stdout.write(json.dumps(said | {"planned": sum(plan is None for plan in plans.values())}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [tuple(kill) for kill in json.loads(sys.argv[3])])
