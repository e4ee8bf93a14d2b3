"""Run a job with receivers in a process of its own, which kills itself when told to: a program for the tests of kills.

    python receiving_job.py FOLDER [STAGE WHEN BATCH]

FOLDER gets the checkpoint, the table and, in `ports`, the ports of the receivers. The driver runs until the file
`stop` is there, or kills itself at that hook of that batch, or the first one after it. With SPARK_MASTER in the
environment its executors are on that cluster, and so are its receivers, as many as RECEIVERS says.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pushing import Acknowledging

from penstock import Job
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.config.values import is_local
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.process.job_run import JobRun
from penstock.runtime.spark.session import open_session
from penstock.sinks import Delta
from penstock.sources import Receive
from penstock.time.clock import SystemClock
from penstock.time.triggers import AsFastAsPossible
from tools.spark_cluster import QUICK_JAVA

RECEIVERS = int(os.environ.get("RECEIVERS", "2"))
MASTER = os.environ.get("SPARK_MASTER", "local[2]")
HERE = Path(__file__).resolve().parents[2]
ON_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}


def make_job(folder: Path) -> Job:
    """Return the job: numbers as they come."""
    job = Job("received")
    source = Receive(Acknowledging(str(folder / "ports")), schema="k long", receivers=RECEIVERS)
    job.source("numbers", source).write("raw", Delta(folder / "raw"))
    return job


def main(folder: Path, kill: tuple[str, str, int] | None) -> None:
    """Run the job."""
    shared = not is_local(MASTER)
    spark = open_session(
        "received",
        master=MASTER,
        jars=HERE / ".jars",
        settings=ON_CLUSTER if shared else {},
        modules=[HERE / "tests" / "support"] if shared else [],
    )
    run = JobRun.open(
        make_job(folder),
        spark,
        root=LocalFolder(folder / "root"),
        clock=SystemClock(),
        trigger=AsFastAsPossible(),
        suites={},
        settings=DriverSettings(keep=2),
        shared=shared,
    )
    with run.receivers:
        for hook in run.driver.run():
            if kill is not None and (hook.stage, hook.when) == kill[:2] and (hook.batch or 0) >= kill[2]:
                os.kill(os.getpid(), signal.SIGKILL)
            if (folder / "stop").exists():
                run.driver.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), (sys.argv[2], sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 2 else None)
