"""Start Spark with the settings that the engine needs (FACTS 5), or say what is missing."""

from __future__ import annotations

import os
import re
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.values import is_local
from penstock.errors import ClusterUnavailable, ConfigError, EnvironmentUnfit
from penstock.runtime.spark.secrets import secrets_in_file
from penstock.runtime.tasks.transport import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ARCHIVE", "archive_options", "is_nowhere", "open_session", "session_settings"]

_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    # State lives by partition number: nothing may fold partitions together.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    # A batch of payloads would grow beyond what an array of Arrow holds, in Java and in Python (F75).
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    # TCP adds 40 ms of delayed acknowledgement to each Python stage.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "penstock.runtime.spark.worker_daemon",
    # SQL sets it for its workers; set for all, those of `warm_up` are forked from the daemon that SQL uses.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    # A stage's description takes a whole block, however short it is: with Spark's 4 MiB, Java fills its memory by them.
    "spark.broadcast.blockSize": "512k",
    # What Spark remembers of jobs that are over grows by default for a thousand batches; the log is what remembers.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "100",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


_PLACED = {
    # Where a task of state runs, `partition_placement` says, and not where most of its rows were written a moment ago.
    "spark.shuffle.reduceLocality.enabled": "false",
    # Bringing what a partition has changed takes about as long. By default it would be 3 s, with machines that idle.
    "spark.locality.wait": "300ms",
}
"""Of a cluster."""

ARCHIVE = "spark.jsa"
"""The file beside the jars in which Java finds Spark's classes as it loaded them before (`tools/java_archive.py`)."""
_OPTIONS = "spark.driver.extraJavaOptions"
_REGIONS = "-XX:G1HeapRegionSize=4m"
"""Spark allocates 1 MiB for each answer of a task. In smaller regions each of them makes a longer collection begin."""
_COMPILED_SOON = (
    "-XX:Tier4InvocationThreshold=1000",
    "-XX:Tier4MinInvocationThreshold=200",
    "-XX:Tier4CompileThreshold=3000",
)
"""Java's own are 5,000, 600 and 15,000 (decision 244).

Spark runs some thousand methods once a batch, so all of these are compiled about the same time. By Java's own it is
after 5,000 batches, minutes into a stream, and each takes a processor for a batch.
"""
_SCALED = "-XX:CompileThresholdScaling"
"""An option of a user that Java multiplies with these thresholds, whichever comes last."""
_OTHER_COLLECTOR = re.compile(r"-XX:\+Use(?!G1)\w+GC\b")
"""Options of a user who chooses the collector: another one may give up all else for a short collection."""
_PAUSE = 20
"""Milliseconds that a collection should take at most, which Java heeds where it can. About four are spent whatever it
collects, so that with a lower limit more batches are slow."""
_MEMORY = "spark.driver.memory"
_MEBIBYTES = {"m": 1, "g": 1024, "t": 1024**2}
_PATH = "spark.executorEnv.PYTHONPATH"
_PYTHON = "spark.pyspark.python"
_WAIT = "spark.scheduler.minRegisteredResourcesRatio"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""What spark-submit tells a driver of the JVM that has started it."""
_OF_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def archive_options(jars: Path) -> list[str]:
    """Return the options by which Java takes Spark's classes from the archive beside these jars.

    It goes without one that is not there or does not fit it, and is not to say so in a driver's log.
    """
    return [f'"-XX:SharedArchiveFile={jars.absolute() / ARCHIVE}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _heap_options(memory: str) -> list[str]:
    """Return the options by which Java's heap begins with half of a driver's memory, and how it is collected.

    Java begins with a small heap, and 64 MiB of it for new objects. Each time these are full, a collection stops all
    tasks for 4 ms and more, and then Spark cleans up what the batches since the last have left. With a limit for the
    time of a collection, Java chooses how much it collects at once. With 4 GiB it is about what 130 batches of a
    thousand rows leave.
    """
    amount = re.fullmatch(r"(\d+)([mgt]?)b?", memory.strip().lower())
    if amount is None:  # Spark, which reads it too, says what is wrong
        return []
    heap = int(amount[1]) * _MEBIBYTES[amount[2] or "m"] // 2
    return [f"-Xms{heap}m", f"-XX:NewSize={heap // 8}m", f"-XX:MaxGCPauseMillis={_PAUSE}"]


def is_nowhere(master: str) -> bool:
    """Return whether the master is YARN, and nothing says where that is.

    The environment may, and so may the script that Spark runs before it starts.
    """
    if master != "yarn" or any(map(os.environ.get, _OF_HADOOP)):
        return False
    spec = find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    folder = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME") or installed, "conf")
    return not Path(folder, "spark-env.sh").is_file()


def session_settings(
    *,
    master: str,
    jars: Path | None = None,
    settings: Mapping[str, str] | None = None,
    modules: Sequence[Path] = (),
) -> dict[str, str]:
    """Return all settings of a session, `settings` last; what each argument means, `open_session` says."""
    jar_files = sorted(jars.glob("*.jar")) if jars is not None and jars.is_dir() else []
    memory = (settings or {}).get(_MEMORY, "2g")
    options = [
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
        _REGIONS,
    ]
    own = (settings or {}).get(_OPTIONS, "")
    if _SCALED not in own:
        options += _COMPILED_SOON
    if _OTHER_COLLECTOR.search(own) is None:
        options += _heap_options(memory)
    if jars is not None and (jars / ARCHIVE).is_file():
        options += archive_options(jars)
    chosen = {_MEMORY: memory, **_FIXED}
    if jar_files:
        chosen["spark.jars"] = ",".join(str(j) for j in jar_files)
    if any(jar.name.startswith("delta-spark") for jar in jar_files):
        chosen |= _DELTA
    if not is_local(master):
        chosen |= _PLACED
        chosen[_WAIT] = "1.0"  # the first job begins with all requested executors, or after half a minute
    chosen |= settings or {}
    chosen[_OPTIONS] = " ".join([*options, *([own] if own else [])])
    if modules:
        # Executors elsewhere do not inherit the environment of the driver, nor do those of a JVM that was there before.
        chosen[_PATH] = os.pathsep.join([*map(str, modules), *filter(None, [chosen.get(_PATH)])])
    return chosen


def open_session(
    name: str,
    *,
    master: str = "local[2]",
    jars: Path | None = None,
    settings: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    modules: Sequence[Path] = (),
) -> SparkSession:
    """Return the Spark session of this process, made if there is none.

    `jars` is the folder that `make setup` fills; with it, Delta tables can be written by delta-spark. `modules` are
    the folders in which executors find the job's own modules. `secrets` are settings that are not to be seen in the
    words of a process.
    Raises EnvironmentUnfit when Java is missing, ClusterUnavailable when no master answers, and ConfigError when
    nothing says where YARN is.
    """
    if is_nowhere(master):
        raise ConfigError(f"master is 'yarn', and neither {' nor '.join(_OF_HADOOP)} is set", where="environment")
    chosen = session_settings(master=master, jars=jars, settings=settings, modules=modules)
    # pyspark itself reads the variable only; spark-submit sets it from the setting.
    os.environ["PYSPARK_PYTHON"] = chosen.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if is_local(master):
        # Loopback only: a laptop's other addresses come and go, and no port is to be seen from outside.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    _log_no_queries()
    _decode_bytes_at_once()
    builder = SparkSession.builder.appName(name).master(master)
    if SparkContext._gateway is not None or _GATEWAY in os.environ:  # noqa: SLF001
        # A JVM that is there, as spark-submit's is, reads no file any more.
        chosen |= secrets or {}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with secrets_in_file(secrets or {}):
            return builder.getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as why:
        raise EnvironmentUnfit(f"Spark did not start: {str(why).splitlines()[0]}") from why
    except Py4JError as why:
        causes = [line.strip() for line in str(why).splitlines() if "Exception" in line or "Error:" in line]
        problem = (
            f"Spark did not start on {master}: {causes[0].removeprefix(': ') if causes else 'Java does not say why'}"
        )
        raise (EnvironmentUnfit if is_local(master) else ClusterUnavailable)(problem) from why


def _decode_bytes_at_once() -> None:
    """Replace py4j's decoder of byte arrays, which calls a function for each byte: 10 ms for receipts of 100 kB."""
    from py4j import protocol

    protocol.OUTPUT_CONVERTER[protocol.BYTES_TYPE] = lambda encoded, _: b64decode(encoded)


def _log_no_queries() -> None:
    """Keep pyspark from logging each error of analysis with Java's stack: it is raised, and shown with its line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
