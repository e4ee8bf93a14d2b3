"""Run the penstock command as people do: real processes, in a project of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import warm_java
from deltalake import DeltaTable

COMMAND = [sys.executable, "-m", "penstock"]
OF_SPARK = {"run", "restore", "restart", "diff", "explain"}
"""The commands that always start Spark."""
PATIENCE = 240.0
"""Seconds; a busy machine takes long to start Spark."""


class Shell:
    """Runs commands in a project, and ends what is left of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, *words: str, stdout: int = subprocess.PIPE, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command in a session of its own, with `env` beside the variables of this process."""
        process = subprocess.Popen(
            [*COMMAND, *words], cwd=self.root, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *words: str, java: bool = False) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors; those of Spark share a Java process, unless `java`."""
        process = self.start(*words, env=None if java or words[0] not in OF_SPARK else warm_java.environment())
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def json(self, *words: str):
        """Run a command that answers in JSON."""
        code, out, err = self.run(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def totals(self, table: str = "totals") -> list[tuple]:
        """Return what the table shows, sorted."""
        rows = DeltaTable(str(self.root / "tables" / table)).to_pyarrow_table().to_pylist()
        return sorted((r["user"], r["window_start"], r["n"], r["total"]) for r in rows)

    def end(self) -> None:
        """Kill what still runs, with all that it started."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
