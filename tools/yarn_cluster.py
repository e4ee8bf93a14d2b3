"""A real YARN on loopback: a ResourceManager and its NodeManagers, which tests kill and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.runtime.process.os_processes import argv_of, environment_of
from penstock.runtime.spark.jars import ensure
from penstock.runtime.spark.java import java_command
from tools import jars
from tools.hdfs_server import BRIEF_JAVA, LOG, OPENED, SUPERUSER, HdfsServer, settings_file
from tools.waiting import free_port, until

_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"


class YarnCluster:
    """A ResourceManager, and so many NodeManagers, each of so many cores and so many MiB.

    Each node has an address of its own, as if it were a machine. All that they keep and say is below `folder`.
    Applications stage their files on the HDFS. Who starts this must call `end`.
    """

    def __init__(self, folder: Path, hdfs: HdfsServer, *, nodes: int = 2, cores: int = 4, memory: int = 2048) -> None:
        trouble = [*ensure(jars.HDFS), *ensure(jars.YARN)]
        assert not trouble, trouble
        self.folder = folder
        self._page = free_port()
        ports = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        queues = "yarn.scheduler.capacity"
        self._settings = {
            "fs.defaultFS": hdfs.rpc,
            "dfs.replication": "1",
            "hadoop.tmp.dir": str(folder / "tmp"),
            **{f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in ports},
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{self._page}",
            # By default no application gets anything in the first ten seconds of a ResourceManager.
            "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "0",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            # A node that is killed is believed to live for ten minutes otherwise.
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.scheduler.minimum-allocation-mb": "128",
            f"{queues}.root.queues": "default",
            f"{queues}.root.default.capacity": "100",
            f"{queues}.maximum-am-resource-percent": "1",
            f"{queues}.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
            "yarn.nodemanager.resource.memory-mb": str(memory),
            "yarn.nodemanager.resource.cpu-vcores": str(cores),
            # Java reserves far more addresses than it uses; what is used is checked.
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            # What a container was started with stays, for who looks for secrets in it.
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
            "ipc.client.connect.max.retries": "100",
            "ipc.client.connect.retry.interval": "100",
        }
        self.conf = self._configured("manager", {})
        self._started: list[subprocess.Popen[bytes]] = [self._start(_MANAGER, self.conf)]
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for number in range(1, nodes + 1):
                self.start_node(number)
            until(lambda: self._alive() == nodes, f"the nodes to be known; their logs are in {folder}")
        except BaseException:
            self.end()
            raise

    def start_node(self, number: int) -> None:
        """Start a node, from 1; returns before it is known."""
        host, place = f"127.0.0.{number}", self._node_folder(number)
        addresses = ("localizer.address", "webapp.address", "collector-service.address")
        conf = self._configured(
            f"node{number}",
            {
                "yarn.nodemanager.hostname": host,
                "yarn.nodemanager.address": f"{host}:0",
                **{f"yarn.nodemanager.{name}": f"{host}:{free_port()}" for name in addresses},
                "yarn.nodemanager.local-dirs": str(place / "local"),
                "yarn.nodemanager.log-dirs": str(place / "logs"),
            },
        )
        self._nodes[number] = self._start(_NODE, conf)
        self._started.append(self._nodes[number])

    def kill_node(self, number: int) -> None:
        """Kill a node with all that runs on it, as the end of a machine would."""
        node = self._nodes.pop(number)
        node.kill()
        node.wait()
        _kill_containers(self._node_folder(number))

    def executors(self) -> dict[int, int]:
        """Return the node of each executor that runs, by its process."""
        return self.processes("org.apache.spark.executor.YarnCoarseGrainedExecutorBackend")

    def processes(self, word: str) -> dict[int, int]:
        """Return the node of each program in a container that has this word among its own, by its process; "" for all.

        The scripts that start them have all words in one.
        """
        found = {pid: number for number in self._nodes for pid in _of_containers(self._node_folder(number))}
        return {pid: number for pid, number in found.items() if not word or word in argv_of(pid)}

    def running(self) -> list[str]:
        """Return the names of the applications that are not over."""
        apps = self._asked("apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING").get("apps") or {}
        return [app["name"] for app in apps.get("app", [])]

    def end(self) -> None:
        """Kill all that was started, and what nodes have started."""
        for process in reversed(self._started):
            process.kill()
            process.wait()
        _kill_containers(self.folder)

    # --- inside ------------------------------------------------------------------------------
    def _node_folder(self, number: int) -> Path:
        return self.folder / f"node{number}"

    def _configured(self, name: str, own: Mapping[str, str]) -> Path:
        """Return the folder with the settings of a server."""
        conf = self.folder / f"conf-{name}"
        conf.mkdir(exist_ok=True)
        for file in ("core-site.xml", "yarn-site.xml", "capacity-scheduler.xml"):
            (conf / file).write_text(settings_file({**self._settings, **own}))
        (conf / "log4j.properties").write_text(LOG)
        return conf

    def _start(self, name: str, conf: Path) -> subprocess.Popen[bytes]:
        # As on another machine: without paths of the tests, so that executors find the engine where it is installed.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        java = Path(java_command(os.environ) or "java").resolve()
        path = f"{conf}:{jars.HDFS.folder}/*:{jars.YARN.folder}/*"
        with (self.folder / f"{conf.name}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    str(java),
                    *BRIEF_JAVA,
                    *OPENED,
                    "-cp",
                    path,
                    name,
                ],
                # Containers are started by a script that wants this variable.
                env={**kept, "HADOOP_USER_NAME": SUPERUSER, "JAVA_HOME": str(java.parents[1])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _alive(self) -> int:
        dead = [process.args for process in self._started if process.poll() is not None]
        assert not dead, f"{dead} ended; see its log in {self.folder}"
        return int(self._asked("metrics").get("clusterMetrics", {}).get("activeNodes", 0))

    def _asked(self, what: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/ws/v1/cluster/{what}", timeout=60) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except (OSError, ValueError):  # it starts
            return {}


def _of_containers(folder: Path) -> list[int]:
    """Return the processes of containers whose files are below a folder."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if environment_of(pid).get("LOCAL_DIRS", "").startswith(f"{folder}/")]


def _kill_containers(folder: Path) -> None:
    def killed() -> bool:
        alive = _of_containers(folder)
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive

    until(killed, "the containers to end")
