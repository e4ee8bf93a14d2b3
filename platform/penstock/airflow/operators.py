"""Operators that command streams. Each may be tried again, cleared or killed at any moment, and does no more by it.

No operator owns a stream: a task that ends, whatever way, ends no stream. Only StopStream and DrainStream do, and only
the stream that was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, ResumableJobMixin
from airflow.sdk.exceptions import AirflowFailException

from penstock.airflow.asking import ask, command_id, control_of, limits_of, meant_at, options_of
from penstock.airflow.triggers import StreamTrigger
from penstock.checkpoint.mirror import shown
from penstock.errors import StreamFailed, SupervisorAbsent
from penstock.runtime.project import find_project
from penstock.supervise.autostart import start_supervisor
from penstock.supervise.commands import Command, Outcome, Verb
from penstock.supervise.control import Asked, StreamControl
from penstock.supervise.stream import Phase, Stream

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["DrainStream", "RestartStream", "StartStream", "StopStream", "WaitStream"]

_HEALTHY = (Phase.RUNNING, Phase.DRAINING)
_SUPERSEDED = "SUPERSEDED"


class _StreamOperator(BaseOperator):
    """What all have: a job, and the project that it is of."""

    def __init__(self, *, job: str, project: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.job = job
        self.project = project

    def _control(self) -> StreamControl:
        return control_of(self.project, self.job)

    def _ask(self, context: Context, command: Command) -> Asked:
        """Ask, and say in the log what became of it."""
        control = self._control()
        asked = ask(control, replace(command, meant_at=meant_at(context)))
        self.log.info(
            "%s %s: %s; the stream is %s, generation %s",
            command.verb.value,
            self.job,
            asked.outcome.value,
            asked.stream.phase.value,
            asked.stream.generation,
        )
        return asked

    def _wait(self, generation: int, reached: Callable[[Stream], bool]) -> Stream:
        """Wait, and log each phase; a stream that came to another end is for a person, and no try helps."""
        told: Phase | None = None

        def look(stream: Stream) -> bool:
            nonlocal told
            if stream.phase is not told:
                self.log.info("%s is %s: %s", self.job, stream.phase.value, stream.reason or "")
                told = stream.phase
            return reached(stream)

        begun = False
        while True:
            try:
                return self._control().wait(generation, look)
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
        """Fail, at once and for good: what was asked stands, and the next run finds it."""
        raise AirflowFailException(str(why)) from why


class StartStream(_StreamOperator):
    """Start a job's stream, unless it runs; returns {job, generation, outcome}.

    `start` is what `penstock start --from` takes; with `restart` a stream that runs is ended and begun anew. `rows`
    bounds what a batch reads of each source. `partitions`, `state`, `truncate_sinks` and `drop` are the options of
    `penstock start`: `state` maps steps to tables, or is a text with STEP=TABLE, `drop` is a list or a text with steps.
    A second try finds what the first has begun, also when it is over by now: only a stream that has failed is begun
    again by it.
    """

    template_fields: Sequence[str] = (
        "job", "start", "rows", "note", "restart", "partitions", "state", "truncate_sinks", "drop"
    )  # fmt: skip

    def __init__(
        self,
        *,
        start: str = "last",
        restart: bool | str = False,
        available_now: bool = False,
        rows: int | str | None = None,
        note: str | None = None,
        partitions: int | str | None = None,
        state: Mapping[str, str] | Sequence[str] | str | None = None,
        truncate_sinks: bool | str = False,
        drop: Sequence[str] | str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.partitions = partitions
        self.state = state
        self.truncate_sinks = truncate_sinks
        self.drop = drop
        self.start = start
        self.restart = restart
        self.available_now = available_now
        self.rows = rows
        self.note = note

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask for the stream."""
        return self._begin(context)

    def _begin(self, context: Context, *, generation: int | None = None) -> dict[str, Any]:
        command = Command(
            verb=Verb.RESTART if _is_true(self.restart) else Verb.START,
            id=command_id(context),
            generation=generation,
            start=self.start,
            options=options_of(self.partitions, self.state, self.drop, truncate_sinks=_is_true(self.truncate_sinks)),
            available_now=self.available_now,
            limits=limits_of(self.rows),
            note=self.note or None,
            revives=True,
        )
        asked = self._ask(context, command)
        return {"job": self.job, "generation": asked.generation, "outcome": asked.outcome.value}


class RestartStream(StartStream):
    """End the driver of a stream and begin anew from `start`; succeeds when it runs, or has finished.

    With `generation` only the stream that is meant is restarted; one that a newer command has begun is left alone.
    """

    template_fields: Sequence[str] = (*StartStream.template_fields, "generation")

    def __init__(self, *, generation: int | str | None = None, **rest: Any) -> None:
        super().__init__(restart=True, **rest)
        self.generation = generation

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, then wait until the stream runs."""
        said = self._begin(context, generation=_generation_of(self.generation))
        if said["outcome"] == Outcome.STALE.value:
            return said
        self._wait(said["generation"], lambda stream: stream.phase in (*_HEALTHY, Phase.FINISHED))
        return said


class WaitStream(ResumableJobMixin, _StreamOperator):
    """Attach to a stream and wait: `until="healthy"` for a driver that runs, `until="end"` for the end of the stream.

    Fails where the stream comes to another end. One that a newer command has begun anew ends the wait well: whoever
    gave that command waits for it; a try that comes after that attaches to the new one. Killing the task, or marking
    it, changes nothing about the stream.
    Where nobody supervises, a wait for the end fails so that a try may follow: drivers go on meanwhile.
    With `deferrable` the wait needs no worker; what the trigger says is looked up again, and not believed.
    """

    external_id_key = "penstock_stream"
    template_fields: Sequence[str] = ("job",)

    def __init__(self, *, until: str = "end", deferrable: bool = False, **rest: Any) -> None:
        super().__init__(**rest)
        if until not in ("healthy", "end"):
            raise ValueError(f"until={until!r} is neither 'healthy' nor 'end'")
        self.until = until
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Attach first, then wait."""
        if self.deferrable:
            return self.execute_complete(context, None, first=self.submit_job(context))
        return self.execute_resumable(context)

    def execute_complete(self, context: Context, event: Any, first: int, *, begun: bool = False) -> dict[str, Any]:
        """Look, and defer while there is something to wait for; an event may have been sent too early.

        `begun` says that this task has started a supervisor before.
        """
        if self.is_job_active(self.get_job_status(first, context)):
            absent = event.get("absent") if isinstance(event, dict) else None
            if absent and not self._control().is_supervised():
                if begun or not self._supervise():
                    self._give_up(SupervisorAbsent(absent, where=shown(self._control().root)))
                begun = True
            trigger = StreamTrigger(project=self.project, job=self.job, first=first, until=self.until)
            self.defer(trigger=trigger, method_name="execute_complete", kwargs={"first": first, "begun": begun})
        return self._ended(first)

    def submit_job(self, context: Any) -> int:
        """Return the generation that the stream began with: nothing is submitted by who waits."""
        stream = self._control().newest()
        self.log.info("%s is %s since generation %s", self.job, stream.phase.value, stream.first)
        return stream.first

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Return the phase, or SUPERSEDED for a stream that was begun anew."""
        stream = self._control().newest()
        return _SUPERSEDED if stream.first > external_id else stream.phase.value

    def is_job_active(self, status: str) -> bool:
        """Return whether there is something to wait for."""
        return status != _SUPERSEDED and not Phase(status).is_final and not self._is_there(Phase(status))

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether what an earlier try waited for is there; a stream begun anew since is attached to instead."""
        return status != _SUPERSEDED and self._is_there(Phase(status))

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        """Wait, and return what `get_job_result` does: of a try that attaches again that is the task's result.

        Raises AirflowFailException where the stream came to another end, and where nobody supervises it.
        """
        self._wait(external_id, lambda stream: self._is_there(stream.phase))
        return self._ended(external_id)

    def _is_there(self, phase: Phase) -> bool:
        if self.until == "healthy":
            return phase in (*_HEALTHY, Phase.FINISHED)
        return phase.is_final and phase is not Phase.FAILED

    def _give_up(self, why: SupervisorAbsent) -> NoReturn:
        if self.until == "end":
            raise why
        super()._give_up(why)

    def get_job_result(self, external_id: Any, context: Any) -> dict[str, Any]:
        """Return {job, first, phase, generation, restarts}."""
        return self._ended(external_id)

    def _ended(self, first: int) -> dict[str, Any]:
        stream = self._control().newest()
        if stream.first == first and stream.phase.is_final and not self._is_there(stream.phase):
            raise AirflowFailException(f"{self.job} is {stream.phase.value}: {stream.reason or ''}")
        phase = stream.phase.value if stream.first == first else _SUPERSEDED
        self.log.info("%s is %s", self.job, phase)
        facts = {"generation": stream.generation, "restarts": stream.restarts}
        return {"job": self.job, "first": first, "phase": phase, **facts}


class StopStream(_StreamOperator):
    """End a stream after its batch; `generation` is of the one that is meant, None for whatever runs.

    One that a newer command has begun is left alone, and the task ends well: what it meant is over.
    """

    template_fields: Sequence[str] = ("job", "generation")
    verb = Verb.STOP
    reached: tuple[Phase, ...] = (Phase.STOPPED, Phase.FINISHED)

    def __init__(self, *, generation: int | str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.generation = generation

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, and wait for the end."""
        generation = _generation_of(self.generation)
        asked = self._ask(context, Command(verb=self.verb, id=command_id(context), generation=generation))
        if asked.outcome is not Outcome.STALE:
            self._wait(asked.generation, lambda stream: stream.phase in self.reached)
        return {"job": self.job, "generation": asked.generation, "outcome": asked.outcome.value}


class DrainStream(StopStream):
    """Have a stream do what is there, close all its windows, and end."""

    verb = Verb.DRAIN
    reached = (Phase.FINISHED,)


def _generation_of(said: object) -> int | None:
    """Return what a template gave; raises AirflowFailException for what is no generation."""
    if said in (None, "", "None"):
        return None
    if not str(said).isdecimal():
        raise AirflowFailException(f"{str(said)!r} is not a generation")
    return int(str(said))


def _is_true(said: object) -> bool:
    return said is True or str(said).lower() in ("true", "restart", "1")
