"""A real standalone cluster of Spark on loopback: a master and its workers, which tests kill and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark

from penstock.runtime.process.os_processes import argv_of, kill_session, process_start, session_members
from penstock.runtime.spark.session import archive_options
from tools.waiting import free_port, until

JARS = Path(__file__).resolve().parents[1] / ".jars"
QUICK_JAVA = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *archive_options(JARS)]).strip()
"""For Java processes that live for seconds: as the drivers of tests have it, with the archive of `make setup`."""
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Cluster:
    """A master that keeps its port, and so many workers, each of so many cores and so much memory.

    Each worker has an address of its own, as if it were a machine. `before` stands before the command of each.
    """

    def __init__(
        self, folder: Path, *, workers: int = 1, cores: int = 2, memory: str = "1g", before: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._started: list[tuple[subprocess.Popen[bytes], str]] = []
        self.master = self._start_master()
        self._size = ["-c", str(cores), "-m", memory]
        started = [self._start_worker(*before, host=f"127.0.0.{number}") for number in range(1, workers + 1)]
        self.worker = started[-1]
        until(lambda: len(self.workers()) == workers, "the workers to be known")

    def executors(self) -> list[int]:
        """Return the executors that run."""
        pids = [pid for process, _ in self._started for pid in session_members(process.pid)]
        return [pid for pid in pids if any("CoarseGrainedExecutorBackend" in word for word in argv_of(pid))]

    def workers(self) -> list[str]:
        """Return the workers that the master knows and that live."""
        return [worker["id"] for worker in self._state()["workers"] if worker["state"] == "ALIVE"]

    def apps(self) -> list[str]:
        """Return the applications that the master knows and that are not over."""
        return [app["name"] for app in self._state()["activeapps"]]

    def renew_master(self) -> None:
        """Kill the master, and start another at its place."""
        self._kill(self.master)
        self.master = self._start_master()
        until(self.workers, "the worker to come back")

    def renew_worker(self, *before: str) -> None:
        """Kill the worker with its executors, and start another, with these words before its command."""
        self._kill(self.worker)
        until(lambda: not self.executors(), "the executors to end with their worker")
        self.worker = self._start_worker(*before)
        until(self.workers, "the new worker to be known")

    def end(self) -> None:
        """Kill all that was started."""
        for process, start in reversed(self._started):
            kill_session(process.pid, start, within=20.0)
            process.wait()

    # --- inside ------------------------------------------------------------------------------
    def _start_master(self) -> subprocess.Popen[bytes]:
        place = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page)]
        started = self._start("org.apache.spark.deploy.master.Master", *place)
        until(lambda: bool(self._state()), "the master to answer")
        return started

    def _start_worker(self, *before: str, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        place = ["--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(self.folder)]
        name = "org.apache.spark.deploy.worker.Worker"
        return self._start(name, *place, *self._size, self.url, before=before)

    def _start(self, name: str, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        # As on another machine: without paths of the tests, so that executors find the engine where it is installed.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        # A master without recovery forgets its applications, and tells workers to end executors that it does not know.
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder}"
        java = f"{QUICK_JAVA} {recovery}"
        with (self.folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen(
                [*before, str(_CLASS), name, *words],
                env={**kept, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append((process, process_start(process.pid)))
        return process

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one process of the cluster, and leave what it has started to find out."""
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def _state(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=60) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, ValueError):  # while it starts, a page of HTML stands there
            return {"workers": [], "activeapps": []} if self._started[-1][0].poll() is None else {}
