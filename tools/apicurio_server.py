"""A schema registry that others have written, on loopback: Apicurio Registry, with its schemas in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import requests

from penstock.runtime.spark.jars import ensure
from penstock.runtime.spark.java import java_command
from tools import jars
from tools.hdfs_server import BRIEF_JAVA
from tools.waiting import free_port, until

__all__ = ["ApicurioServer"]

_PATIENCE = 120.0
_ANSWER = 20.0
_MEDIA = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


class ApicurioServer:
    """A registry that has nothing at first; what it says goes to a log in `folder`."""

    def __init__(self, folder: Path) -> None:
        trouble = ensure(jars.REGISTRY)
        assert not trouble, trouble
        self._folder = folder
        self._port = free_port()
        self.process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Return where it speaks the protocol of Confluent's registry."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it; returns when it answers. Who calls this must call `end`."""
        (program,) = _unpacked().glob("*-runner.jar")
        settings = [f"-Dquarkus.http.port={self._port}", "-Dquarkus.http.host=127.0.0.1"]
        java = java_command(os.environ) or "java"
        with (self._folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(
                [java, *BRIEF_JAVA, *settings, "-jar", str(program)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
            )  # fmt: skip
        until(self._is_up, f"Apicurio to come up; its log is in {self._folder}", seconds=_PATIENCE)

    def end(self) -> None:
        """Kill it, if it was started: nothing of it is needed again."""
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        """Return its answer to a request below `url`."""
        return requests.request(method, self.url + path, headers=_MEDIA, timeout=_ANSWER, **more)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"Apicurio ended; see its log in {self._folder}"
        try:
            return self.ask("GET", "/subjects").ok
        except requests.ConnectionError:
            return False


def _unpacked() -> Path:
    """Return the folder of the program, which is unpacked once."""
    folder = jars.REGISTRY.folder / "program"
    if not folder.is_dir():
        (archive,) = jars.REGISTRY.folder.glob("*.tar.gz")
        made = Path(tempfile.mkdtemp(dir=jars.REGISTRY.folder))
        with tarfile.open(archive) as packed:
            packed.extractall(made, filter="data")
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return folder
