"""Run the command `penstock` for a task, in a process of its own.

Nothing that the command imports meets Airflow, and another environment can do it. A task that is killed leaves nothing
half done, and a try again does nothing twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from penstock.errors import EXIT_PERSON
from penstock.graph.names import is_name

__all__ = ["PenstockOperator", "RunsPenstock"]

_WRONG_COMMAND = 2


class RunsPenstock:
    """Run `penstock COMMAND JOB` for an operator, by the interpreter `python`: Airflow's own where none is named."""

    log: Any
    job: str
    project: str
    python: str | None = None
    _process: subprocess.Popen[str] | None = None

    def on_kill(self) -> None:
        """End the command with the task."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def _penstock(self, *words: str) -> list[dict[str, Any]]:
        """Return what the command said, a dict for each line; what it complains of goes to the task's log.

        Raises AirflowFailException where trying again does not help, AirflowException where it may.
        """
        if not is_name(self.job):  # a template may have made of it what the command takes for an option
            raise AirflowFailException(f"{self.job!r} is not the name of a job")
        line = [self.python or sys.executable, "-m", "penstock", *words, "--json", "--project", self.project]
        complaints: list[str] = []
        with subprocess.Popen(  # noqa: S603 - our own command, and no shell
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # to be killed with what it starts; in the session of Airflow, for who ends all of that
        ) as process:
            self._process = process
            assert process.stderr is not None
            assert process.stdout is not None
            listening = threading.Thread(target=self._pass_on, args=(process.stderr, complaints), daemon=True)
            listening.start()
            try:
                output = process.stdout.read()
            except BaseException:  # such as the task's own timeout; leaving the block waits for the end
                self.on_kill()
                raise
            listening.join()
        if process.returncode:
            failure = AirflowFailException if process.returncode in (EXIT_PERSON, _WRONG_COMMAND) else AirflowException
            raise failure(_error_of(complaints) or f"{line} ended with {process.returncode}")
        answers = [json.loads(text) for text in output.splitlines() if text.startswith("{")]
        if not answers and words[0] != "report":
            raise AirflowException("\n".join(complaints) or f"{line} has said nothing")
        return answers

    def _pass_on(self, lines: Any, complaints: list[str]) -> None:
        for line in lines:
            text = line.rstrip()
            complaints[:] = [*complaints, text][-20:]
            self.log.info("%s", text)


def _error_of(complaints: list[str]) -> str:
    """Return the error that a command ended with, from its code on, without what libraries have warned of before."""
    first = next((at for at, text in enumerate(complaints) if text.startswith("PEN-")), 0)
    return "\n".join(complaints[first:])


class PenstockOperator(RunsPenstock, BaseOperator):
    """An operator that runs a command for a job of a project."""

    def __init__(self, *, job: str, project: str, python: str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.job = job
        self.project = project
        self.python = python
