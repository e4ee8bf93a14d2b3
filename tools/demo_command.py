"""Command the demo's stream: through Airflow, as operators do, or by hand.

Through Airflow the task that follows the stream is killed too, and its next try attaches to the stream again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from penstock.runtime.process.os_processes import argv_of
from tools.demo_stream import DemoFailed, DemoStream
from tools.standalone import Standalone

__all__ = ["WINDOWS", "ByAirflow", "ByHand", "Commander"]

_DAG = "stream_flights"
_REPORTS = "quality_reports"
WINDOWS = 24
"""Windows that the report is on: four hours."""
_PATIENCE = 240.0

Say = Callable[[str], None]


class Commander(Protocol):
    """Start a stream, see it through trouble, and see its end."""

    title: str

    def start(self, stream: DemoStream, say: Say) -> None:
        """Ask for the stream."""

    def disturb(self, say: Say) -> None:
        """Kill what commands the stream, if anything lives on to do so, and see it come back."""

    def finish(self, say: Say) -> None:
        """See the end of the stream where it was asked for."""

    def ask_report(self) -> None:
        """Ask for a quality report on the newest windows, if it can be made while other things are done."""

    def see_report(self, stream: DemoStream, say: Say) -> None:
        """See the report made."""

    def keep(self, say: Say) -> None:
        """Leave what can be looked at running until Ctrl-C."""


class ByHand:
    """The command line: whoever gives a command is not needed afterwards."""

    title = "penstock start flights, under penstock supervise"

    def start(self, stream: DemoStream, say: Say) -> None:
        """Give the command, as soon as there is somebody to give it to."""
        stream.until_supervised()
        stream.ask("start", "flights")

    def disturb(self, say: Say) -> None:
        """Do nothing: the command has ended long ago."""

    def finish(self, say: Say) -> None:
        """Do nothing: the stream's own end was seen."""

    def ask_report(self) -> None:
        """Do nothing: the command is given when it is waited for."""

    def see_report(self, stream: DemoStream, say: Say) -> None:
        """Give the command."""
        stream.ask("report", "flights", "--newest", str(WINDOWS))
        say(f"penstock report flights --newest {WINDOWS}")

    def keep(self, say: Say) -> None:
        """Leave nothing: nothing runs."""


class ByAirflow:
    """A run of the DAG that the factory made of conf/jobs/flights.toml."""

    title = "the DAG stream_flights, triggered through Airflow's REST interface"

    def __init__(self, airflow: Standalone) -> None:
        self._airflow = airflow
        self._run = ""
        self._report = ""

    @classmethod
    @contextmanager
    def running(cls, home: Path, dags: Path, env: Mapping[str, str], say: Say) -> Iterator[ByAirflow]:
        """Start Airflow on loopback, and end it with the block."""
        began = time.monotonic()
        # So that the task which follows the stream has a process that can be killed: it is deferred else.
        with Standalone(home, dags, env={**env, "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "False"}) as airflow:
            for dag in (_DAG, _REPORTS):
                airflow.until(partial(airflow.has_dag, dag), f"the DAG {dag}", seconds=_PATIENCE)
            say(f"Airflow is up at {airflow.url} after {time.monotonic() - began:,.0f} s")
            yield cls(airflow)

    def start(self, stream: DemoStream, say: Say) -> None:
        """Trigger the run."""
        self._run = self._airflow.trigger(_DAG, note="make demo")
        say(f"run {self._run}: deploy, healthy, supervise")

    def disturb(self, say: Say) -> None:
        """Kill the task that follows the stream, and wait for its next try."""
        self._airflow.until(lambda: self._task()[0] == "running", "the task `supervise` to run", seconds=_PATIENCE)
        attempt = self._task()[1]
        path = f"/dags/{_DAG}/dagRuns/{self._run}/taskInstances/supervise"
        words = f"airflow worker -- {self._airflow.call('GET', path)['id']}"
        for pid in self._airflow.members():
            if words in " ".join(argv_of(pid)):
                os.kill(pid, signal.SIGKILL)
                say(f"kill -9 of the Airflow task `supervise`, process {pid}")

        def again() -> bool:
            return self._task() == ("running", attempt + 1)

        self._airflow.until(again, "the next try of the task `supervise`", seconds=_PATIENCE)
        say(f"its try {attempt + 1} has attached to the stream, which went on meanwhile")

    def finish(self, say: Say) -> None:
        """Wait until every task of the run has ended well."""

        def ended() -> bool:
            return all(state == "success" for state, _ in self._airflow.tasks(_DAG, self._run).values())

        self._airflow.until(ended, "the run to succeed", seconds=_PATIENCE)
        tries = ", ".join(f"{task} in {tried}" for task, (_, tried) in self._airflow.tasks(_DAG, self._run).items())
        say(f"the run has succeeded; tries: {tries}")

    def ask_report(self) -> None:
        """Trigger the DAG of reports."""
        self._report = self._airflow.trigger(_REPORTS, job="flights", newest=WINDOWS)

    def see_report(self, stream: DemoStream, say: Say) -> None:
        """Wait until its run has succeeded."""

        def ended() -> bool:
            state = self._airflow.state(_REPORTS, self._report)
            if state == "failed":
                raise DemoFailed(f"the run {self._report} of {_REPORTS} has failed")
            return state == "success"

        self._airflow.until(ended, "the quality report", seconds=_PATIENCE)
        say(f"the DAG {_REPORTS} has judged the newest {WINDOWS} windows, run {self._report}")

    def keep(self, say: Say) -> None:
        """Say where to look, and stay until Ctrl-C."""
        say(f"Airflow: {self._airflow.url}, user {self._airflow.user}, password {self._airflow.password}")
        say(f"the run: {self._airflow.url}/dags/{_DAG}/runs/{self._run}")
        say(f"its page, with windows, checkpoints and reports: {self._airflow.url}/plugin/penstock")
        say("restart it from a batch: the DAG restart_from_checkpoint")
        say("Ctrl-C ends all of it")
        signal.pause()

    def _task(self) -> tuple[str | None, int]:
        return self._airflow.tasks(_DAG, self._run)["supervise"]
