"""Wait, in a worker or without one, until what a task has asked of a stream is so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.configuration import conf
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from penstock.airflow.command_context import asking, control_of, run_started_at
from penstock.airflow.triggers import AWAITED, StreamTrigger
from penstock.errors import StreamFailed, SupervisorAbsent
from penstock.runtime.process.project import find_project
from penstock.supervise.autostart import start_supervisor
from penstock.supervise.commands import Command
from penstock.supervise.control import Asked, StreamControl
from penstock.supervise.stream import Phase, Stream

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["AskingOperator", "StreamOperator", "is_deferrable"]


class StreamOperator(BaseOperator):
    """An operator for one stream: it has a job and a project, and `until` where it waits."""

    until: str

    def __init__(self, *, job: str, project: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.job = job
        self.project = project

    def _control(self) -> StreamControl:
        return control_of(self.project, self.job)

    def _ask(self, context: Context, command: Command) -> Asked:
        """Ask, and say in the log what became of it."""
        control = self._control()
        command = replace(command, meant_at=run_started_at(context))
        nothing = control.reads_nothing(command)
        with asking():  # a refusal that stays fails the task at once, whatever its retries
            asked = control.ask(command)
        self.log.info(
            "%s %s: %s; the stream is %s, generation %s",
            command.verb.value,
            self.job,
            asked.outcome.value,
            asked.stream.phase.value,
            asked.stream.generation,
        )
        if nothing is not None:
            self.log.warning("%s", nothing)
        return asked

    def _wait(self, generation: int, reached: Callable[[Stream], bool], through: Collection[Phase] = ()) -> Stream:
        """Wait, and log each phase and why; a stream that came to another end is for a person, and no try helps."""
        shown = ""

        def look(stream: Stream) -> bool:
            nonlocal shown
            if stream.phase_in_words != shown:  # of a start that fails the phase stays, and the reason says with what
                shown = stream.phase_in_words
                self.log.info("%s is %s", self.job, shown)
            return reached(stream)

        begun = False
        while True:
            try:
                return self._control().wait(generation, look, through=through)
            except StreamFailed as why:
                raise AirflowFailException(str(why)) from why
            except SupervisorAbsent as why:
                if begun or not self._supervise():
                    self._give_up(why)
                begun = True

    def _supervise(self) -> bool:
        """Start a supervisor on this machine, if the configuration says so."""
        project = find_project(given=Path(self.project))
        if not project.settings(self.job).supervise.autostart:
            return False
        pid = start_supervisor(project.root, self._control().root)
        self.log.warning("nobody supervised, and autostart is set: process %s does now", pid)
        return True

    def _give_up(self, why: SupervisorAbsent) -> NoReturn:
        """Fail, at once and for good: the request stays in force, and the next run finds it."""
        raise AirflowFailException(str(why)) from why

    def _wait_without_worker(self, event: Any, *, generation: int, begun: bool, **kept: Any) -> NoReturn:
        """Defer until a trigger fires; where the last one found no supervisor, start one or give up first.

        `execute_complete` gets `kept` and `begun`, which says that this task has started a supervisor before.
        """
        absent = event.get("absent") if isinstance(event, dict) else None
        if absent and not self._control().is_supervised():
            if begun or not self._supervise():
                self._give_up(SupervisorAbsent(absent, where=str(self._control().root)))
            begun = True
        trigger = StreamTrigger(project=self.project, job=self.job, first=generation, until=self.until)
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={**kept, "begun": begun})


class AskingOperator(StreamOperator):
    """Ask something of a stream, then wait until it is so.

    With `deferrable`, for which None means Airflow's `[operators] default_deferrable`, the wait takes no worker slot.
    What was asked counts once: a try after a lost trigger finds it under the id of the task.
    """

    until = "healthy"

    def __init__(self, *, deferrable: bool | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.deferrable = is_deferrable(deferrable)

    def execute_complete(
        self, context: Context, event: Any, said: dict[str, Any], *, begun: bool = False
    ) -> dict[str, Any]:
        """Return the task's result, `said`, once the stream is as requested, or a newer command has restarted it.

        A deferrable task is deferred until then; an event may have been sent too early.
        """
        generation, reached = int(said["generation"]), AWAITED[self.until]
        if not self.deferrable:
            return self._outcome(self._wait(generation, lambda seen: seen.phase in reached), said, context)
        stream = self._control().newest()
        if stream.phase in reached or stream.first > generation:
            return self._outcome(stream, said, context)
        if stream.is_over:
            raise AirflowFailException(f"{self.job} is {stream.phase_in_words}")
        return self._wait_without_worker(event, generation=generation, begun=begun, said=said)

    def _outcome(self, stream: Stream, answer: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return what the task returns; raises what fails it, as RolledBack where a version of the code failed."""
        if self.until == "healthy":
            with asking():
                self._control().refuse_older(stream, int(answer["generation"]))
        return answer


def is_deferrable(wanted: bool | None) -> bool:  # noqa: FBT001 - as operators are given it
    """Return whether a task is deferred; None leaves it to Airflow."""
    return conf.getboolean("operators", "default_deferrable", fallback=False) if wanted is None else wanted
