"""Operators that look after what streams have made: quality reports, and checkpoints.

The work is done by the command `penstock` in a process of its own, so that nothing it imports meets Airflow, and
another environment can do it. A task that is killed leaves nothing half done, and a try again does nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from penstock.airflow.asking import command_id
from penstock.errors import EXIT_PERSON
from penstock.runtime.project import NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["CheckpointUpkeep", "QualityReport"]

_WRONG_COMMAND = 2
_MOST_REPORTS = 100
"""Reports that one try makes: of a backlog that is longer, the next run goes on with the rest."""


class _PenstockOperator(BaseOperator):
    """Run `penstock COMMAND JOB` for a project, by the interpreter `python`: Airflow's own where none is named."""

    def __init__(self, *, job: str, project: str, python: str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.job = job
        self.project = project
        self.python = python
        self._process: subprocess.Popen[str] | None = None

    def on_kill(self) -> None:
        """End the command with the task."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def _penstock(self, *words: str) -> list[dict[str, Any]]:
        """Return what the command said, a dict for each line; what it complains of goes to the task's log.

        Raises AirflowFailException where trying again does not help, AirflowException where it may.
        """
        if NAME.fullmatch(self.job) is None:  # a template may have made of it what the command takes for an option
            raise AirflowFailException(f"{self.job!r} is not the name of a job")
        line = [self.python or sys.executable, "-m", "penstock", *words, "--json", "--project", self.project]
        told: list[str] = []
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
            listening = threading.Thread(target=self._pass_on, args=(process.stderr, told), daemon=True)
            listening.start()
            try:
                said = process.stdout.read()
            except BaseException:  # such as the task's own timeout; leaving the block waits for the end
                self.on_kill()
                raise
            listening.join()
        if process.returncode in (EXIT_PERSON, _WRONG_COMMAND):
            raise AirflowFailException("\n".join(told) or f"{line} ended with {process.returncode}")
        if process.returncode:
            raise AirflowException("\n".join(told) or f"{line} ended with {process.returncode}")
        answers = [json.loads(one) for one in said.splitlines() if one.startswith("{")]
        if not answers and words[0] != "report":
            raise AirflowException("\n".join(told) or f"{line} has said nothing")
        return answers

    def _pass_on(self, lines: Any, told: list[str]) -> None:
        for line in lines:
            text = line.rstrip()
            told[:] = [*told, text][-20:]
            self.log.info("%s", text)


class QualityReport(_PenstockOperator):
    """Judge the windows that a job has published since its last report, or the newest few, and write the pages.

    `check` names one check; without it each on windows. `newest` is a number of windows, or text of one; nothing means
    what is new. With `fail` the task fails where a window failed; else it succeeds when the report is made.
    Returns a list with a dict for each report: check, verdict, windows, failed, noted, page.
    """

    template_fields: Sequence[str] = ("job", "project", "check", "newest")

    def __init__(
        self, *, check: str | None = None, newest: int | str | None = None, fail: bool = False, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.check = check
        self.newest = newest
        self.fail = fail

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Make reports until nothing waits; a try again counts what earlier ones have made."""
        found: list[dict[str, Any]] = []
        base = hashlib.sha256(command_id(context).encode()).hexdigest()[:16]
        for number in range(_MOST_REPORTS):
            words = ["report", self.job, "--if-any", "--run", f"{base}-{number}"]
            words += ["--check", self.check] if self.check else []
            words += ["--newest", str(self.newest)] if self.newest else []
            made = self._penstock(*words)
            for one in made:
                self.log.info("%(check)s: %(verdict)s, %(windows)s windows, %(failed)s failed; %(page)s", one)
            found += [one for one in made if one["windows"] or not number]
            if not any(one["more"] for one in made):
                break
        if self.fail and any(one["verdict"] == "failed" for one in found):
            raise AirflowFailException(
                "windows failed: " + ", ".join(sorted({one["check"] for one in found if one["verdict"] == "failed"}))
            )
        return found


class CheckpointUpkeep(_PenstockOperator):
    """Read all that a job can go back to, and sweep what drivers and reports have left; fails where it finds damage.

    Returns a dict with what was read: batches, files, bytes, problems.
    """

    template_fields: Sequence[str] = ("job", "project")

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify."""
        found = self._penstock("upkeep", self.job)[0]
        self.log.info("%(job)s: %(batches)s batches, %(files)s files, %(bytes)s bytes, all read", found)
        return found
