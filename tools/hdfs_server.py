"""A real HDFS on loopback: a NameNode and a DataNode, which tests kill and start again (FACTS 2)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hdfs import InsecureClient

from penstock.runtime.spark.jars import ensure
from penstock.runtime.spark.java import java_command
from tools import jars
from tools.waiting import free_port, until

_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
BRIEF_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For servers that live for seconds: compiled thoroughly they would be done before it pays."""
# Without it WebHDFS answers 500 to all.
OPENED = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
LOG = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
_PATIENCE = 60.0
SUPERUSER = "hdfs"
USER = "penstock"
"""Whose checkpoints stand there. It has no rights of its own, as no job should."""


class HdfsServer:
    """A NameNode that keeps its ports, and one DataNode. All that they keep and say is below `folder`.

    `java` are options of their Java processes.
    """

    def __init__(self, folder: Path, *, java: Sequence[str] = BRIEF_JAVA) -> None:
        trouble = ensure(jars.HDFS)
        assert not trouble, trouble
        self.folder = folder
        self._java = [java_command(os.environ) or "java", *java]
        self._rpc, self._http = free_port(), free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self.namenode: subprocess.Popen[bytes]
        self.datanode: subprocess.Popen[bytes]

    def start(self) -> None:
        """Make a file system and start both; returns when it can be used. Who calls this must call `end`."""
        self._configure()
        self._run(_NAMENODE, "-format", "-nonInteractive")
        self.start_namenode()
        self.start_datanode()
        self.wait()
        self.client(SUPERUSER).makedirs("/checkpoints", permission="1777")

    def client(self, user: str = USER) -> InsecureClient:
        """Return a client that does what it is told."""
        return InsecureClient(f"http://{self.address}", user=user)

    @property
    def address(self) -> str:
        """Return where WebHDFS answers: host and port."""
        return f"127.0.0.1:{self._http}"

    @property
    def blocks(self) -> Path:
        """Return the folder that is the DataNode's disk."""
        return self.folder / "blocks"

    @property
    def rpc(self) -> str:
        """Return the address of the file system, for clients of Hadoop."""
        return f"hdfs://127.0.0.1:{self._rpc}"

    def url(self, name: str, user: str = USER, hosts: str = "") -> str:
        """Return the root of a store of that name, by that user and by other hosts when told so."""
        return f"webhdfs://{user}@{hosts or self.address}/checkpoints/{name}"

    def admin(self, *words: str) -> None:
        """Run `hdfs dfsadmin` as the superuser; takes a second."""
        self._run(_ADMIN, *words)

    def kill_namenode(self) -> None:
        """Kill it as a power cut would."""
        self.namenode.kill()
        self.namenode.wait()

    def start_namenode(self) -> None:
        """Start it at its old place; returns before it answers."""
        self.namenode = self._start(_NAMENODE)

    def kill_datanode(self) -> None:
        """Kill it as a power cut would."""
        self.datanode.kill()
        self.datanode.wait()

    def start_datanode(self, *before: str) -> None:
        """Start it on its old disk, with these words before its command; returns before it answers."""
        self.datanode = self._start(_DATANODE, *before)

    def wait(self) -> None:
        """Wait until the DataNode that was started last is known and safe mode is over."""
        until(self._is_up, f"HDFS to come up; its logs are in {self.folder}")

    def end(self) -> None:
        """Kill all that was started and still runs: nothing of it is needed again."""
        for process in self._started:
            process.kill()
            process.wait()

    # --- inside ------------------------------------------------------------------------------
    def _configure(self) -> None:
        conf = self.folder / "conf"
        for name in ("hdfs", "datanode"):  # the jars lack them, and nothing starts without
            (conf / "webapps" / name / "WEB-INF").mkdir(parents=True)
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{self._rpc}",
            "dfs.namenode.http-address": self.address,
            "dfs.namenode.name.dir": (self.folder / "names").as_uri(),
            "dfs.datanode.data.dir": self.blocks.as_uri(),
            "dfs.datanode.hostname": "localhost",
            **{f"dfs.datanode{kind}.address": "127.0.0.1:0" for kind in ("", ".http", ".ipc")},
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": "1",
            "dfs.blocksize": str(2**20),  # a file reserves a block of its quota, so that little quota suffices
            "dfs.namenode.fs-limits.min-block-size": str(2**20),
            # A DataNode with a disk of its own that is small has less than the gigabyte that one leaves free by itself.
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",  # FACTS 4
            # Asked ten times a second a NameNode is found when it is up; refused for good, a DataNode sleeps for 5 s.
            "ipc.client.connect.max.retries": "100",
            "ipc.client.connect.retry.interval": "100",
            "dfs.client.retry.policy.enabled": "false",
        }
        for name in ("core-site.xml", "hdfs-site.xml"):
            (conf / name).write_text(settings_file(settings))
        (conf / "log4j.properties").write_text(LOG)

    def _command(self, name: str, *words: str) -> list[str]:
        path = f"{self.folder / 'conf'}:{jars.HDFS.folder}/*"
        return [*self._java, *OPENED, "-cp", path, name, *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HADOOP_USER_NAME": SUPERUSER}

    def _run(self, name: str, *words: str) -> None:
        ran = subprocess.run(
            self._command(name, *words),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def _start(self, name: str, *before: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name.rsplit('.', 1)[-1].lower()}.log").open("ab") as log:
            process = subprocess.Popen(
                [*before, *self._command(name)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    def _is_up(self) -> bool:
        dead = [process.args for process in (self.namenode, self.datanode) if process.poll() is not None]
        assert not dead, f"{dead} ended; see its log in {self.folder}"
        try:
            state = self._told("FSNamesystemState")
            live = json.loads(self._told("NameNodeInfo")["LiveNodes"])
        except (OSError, ValueError, LookupError):  # nothing, or a page that has no figures yet
            return False
        if state["FSState"] != "Operational":
            return False
        # A DataNode that was killed is believed to live for minutes, where it was: the new one has other ports.
        return [_answers(node["infoAddr"]) for node in live.values()] == [True]

    def _told(self, bean: str) -> dict[str, Any]:
        """Return what the NameNode tells of itself."""
        where = f"http://{self.address}/jmx?qry=Hadoop:service=NameNode,name={bean}"
        with urllib.request.urlopen(where, timeout=_PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)["beans"][0]
        return found


def settings_file(settings: Mapping[str, str]) -> str:
    """Return settings as servers of Hadoop read them from a file."""
    rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(rows)}</configuration>"


def _answers(address: str) -> bool:
    """Return whether somebody listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host, int(port)), timeout=_PATIENCE)):
            return True
    except OSError:
        return False
