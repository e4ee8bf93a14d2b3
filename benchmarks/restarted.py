"""Run one side of a restart in a process of its own until it is killed: `-m benchmarks.restarted SIDE ROOT KEYS`.

It says what happens as lines of JSON, each with the time: `imported`, `ready` (there is a session), `offsets` and
`commit` of each batch, and `parts` of the time from `ready` to the first commit, milliseconds, behind that.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import SCHEMA, Input
from benchmarks.spark_side import ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TOUCHED", "given_of", "newest"]

TOUCHED = 100_000
JARS = Path(".jars")
MAINTENANCE = "spark.sql.streaming.stateStore.maintenanceInterval"
_LOOK = 0.002


def given_of(keys: int) -> Input:
    """Return the input of both sides."""
    return Input(rows=TOUCHED, keys=keys, step=1_000_000)


def newest(folder: Path) -> int:
    """Return the highest batch that a folder of the peer's log names, -1 for none."""
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def main() -> None:
    """Start a side, and go on for as long as nobody kills it."""
    side, root, keys = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    run = {"penstock": _penstock, "peer": _peer}[side]
    run(root, given_of(keys))


def _session() -> SparkSession:
    from penstock.runtime.spark.session import open_session

    _say("imported")
    spark = open_session(
        "penstock-restart", jars=JARS, settings={"spark.driver.memory": "4g", **ROCKSDB, MAINTENANCE: "10s"}
    )
    _say("ready")
    return spark


def _say(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, "at": time.time(), **more}), flush=True)


# --- Penstock -------------------------------------------------------------------------------------


def _penstock(root: Path, given: Input) -> None:
    from benchmarks.engine_side import BatchTime
    from benchmarks.folder_source import NumberedFiles
    from benchmarks.jobs import keyed_job
    from benchmarks.parts import spark_parts
    from penstock.checkpoint.log.entries import Commit
    from penstock.checkpoint.storage.locate import root_of
    from penstock.runtime.driver import loop, ownership, sink_recovery
    from penstock.runtime.process import job_run
    from penstock.runtime.spark.engine import SparkEngine
    from penstock.runtime.spark.warm_up import warm
    from penstock.time.clock import SystemClock
    from penstock.time.triggers import AsFastAsPossible

    spark = _session()
    warm(spark)  # as `penstock run` does
    parts: dict[str, float] = {}
    for holder, function in (
        (job_run, "SparkEngine"),
        (job_run, "prove_exclusive"),
        (job_run, "open_or_create"),
        (ownership, "survey"),
        (ownership, "claim"),
        (ownership, "confirm"),
        (loop, "recover"),
        (SparkEngine, "accept"),
        (SparkEngine, "prepare"),
        (sink_recovery, "_refuse_old_copy"),
        (sink_recovery, "_find_damaged"),
        (SparkEngine, "compute"),
    ):
        _time(holder, function, parts)
    source = NumberedFiles(given)
    source.offered = sys.maxsize
    run = job_run.JobRun.open(
        keyed_job(root / "table")(source),
        spark,
        root=root_of(root / "checkpoints"),
        clock=SystemClock(),
        trigger=AsFastAsPossible(),
        suites={},
        settings=loop.DriverSettings(keep=20),
    )
    first: Commit | None = None
    entered = 0.0
    for hook in run.driver.run():
        if hook.when == "before":
            entered = time.perf_counter()
        elif hook.when == "after":
            parts.setdefault(hook.stage, _since(entered))
        if (hook.stage, hook.when) == ("Compute", "before"):
            _say("offsets", batch=hook.batch)
        if (hook.stage, hook.when) == ("CommitBatch", "after"):
            _say("commit", batch=hook.batch)
        if (hook.stage, hook.when) == ("Purge", "after") and first is None:
            first = run.driver.commit
            assert first is not None
            spark_ms = parts["compute"]
            (job,) = spark_parts(spark, "keyed", [BatchTime(whole=0.0, spark=spark_ms, stages={}, commit=first)])
            parts |= {"plan": spark_ms - job.job, "account": parts["Compute"] - spark_ms}
            _say("parts", parts=parts | asdict(job))


def _time(holder: Any, name: str, parts: dict[str, float]) -> None:
    """Have a function note how long its first call takes."""
    plain: Callable[..., Any] = getattr(holder, name)

    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return plain(*given, **named)
        finally:
            parts.setdefault(name, _since(began))

    setattr(holder, name, timed)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


# --- Structured Streaming -------------------------------------------------------------------------


def _peer(root: Path, given: Input) -> None:
    from benchmarks.jobs import discard, grouped

    spark = _session()
    began = time.perf_counter()
    before = newest(root / "checkpoint" / "commits")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", given.files_a_batch)
    rows = reader.parquet(str((root / "watched").resolve()))
    writer = grouped(rows).writeStream.outputMode("update")
    query = discard(writer.option("checkpointLocation", str((root / "checkpoint").resolve()))).start()
    parts = {"start": _since(began)}
    batch = before + 1
    while True:
        _wait_for(root / "checkpoint" / "offsets" / str(batch), query)
        _say("offsets", batch=batch)
        parts.setdefault("find", _since(began) - parts["start"])
        _wait_for(root / "checkpoint" / "commits" / str(batch), query)
        _say("commit", batch=batch)
        if batch == before + 1:
            while not query.recentProgress:
                time.sleep(_LOOK)
            progress = query.recentProgress[0]
            states = [dict(state["customMetrics"]) for state in progress["stateOperators"]]
            _say("parts", parts={**parts, **progress["durationMs"], **(states[0] if states else {})})
        batch += 1


def _wait_for(path: Path, query: Any) -> None:
    until = time.monotonic() + 1.0
    while not path.exists():
        time.sleep(_LOOK)
        if time.monotonic() > until:
            if (why := query.exception()) is not None:
                raise why
            until = time.monotonic() + 1.0


if __name__ == "__main__":
    main()
