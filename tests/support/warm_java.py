"""One Java process for the commands of a test process: a command that ends needs Spark, and no Spark of its own.

Most of what such a command takes is Java that starts and compiles what each Spark session does first. What a test
sees of the command stays its own: a process with its words, output and exit code, and a session that it makes and stops.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.runtime.spark.session import session_settings

JARS = Path(__file__).resolve().parents[2] / ".jars"
COMMANDS = 25
"""After so many a new one: each session leaves something behind in Java."""

_found: Any = None
_used = 0


def environment() -> dict[str, str]:
    """Return the variables that have pyspark use this Java process; it is started, or made free of a session."""
    global _found, _used  # noqa: PLW0603 - one for each process
    if _found is not None and (_found.proc.poll() is not None or _used >= COMMANDS or not _is_free(_found)):
        end()
    if _found is None:
        _found, _used = _launch(), 0
    _used += 1
    asked = _found.java_parameters
    return {"PYSPARK_GATEWAY_PORT": str(asked.port), "PYSPARK_GATEWAY_SECRET": asked.auth_token}


def end() -> None:
    """End the process, if there is one; it ends too when nobody holds its standard input any more."""
    global _found  # noqa: PLW0603 - as above
    if _found is not None:
        with suppress(OSError):
            _found.proc.stdin.close()
        _found.proc.kill()
        _found.proc.wait()
        _found = None


atexit.register(end)


def _launch() -> Any:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    for key, value in session_settings(master="local[2]", jars=JARS).items():
        conf.set(key, value)
    return launch_gateway(conf)


def _is_free(gateway: Any) -> bool:
    """Return whether no session is left of a command that was killed."""
    try:
        return gateway.jvm.org.apache.spark.SparkEnv.get() is None
    except Exception:  # noqa: BLE001 - whatever is wrong with it, there will be another
        return False
