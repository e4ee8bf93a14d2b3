"""Operators that start streams and follow them. Each may be tried again, cleared or killed at any moment.

No operator owns a stream: a task that ends, whatever way, ends no stream. Only those of `request_operators` do, and
only the stream that was meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import ResumableJobMixin
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from penstock.airflow.awaiting import AskingOperator, StreamOperator, is_deferrable
from penstock.airflow.cli_process import RunsPenstock
from penstock.airflow.command_context import asking, command_id, limits_of, options_of
from penstock.airflow.triggers import AWAITED, through
from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.roots import job_log
from penstock.errors import SupervisorAbsent
from penstock.supervise.commands import Command, CommandResult, Verb
from penstock.supervise.stream import Phase, Stream, start_words

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["RestartStream", "StartStream", "WaitStream", "generation_of"]

_RUNS = AWAITED["healthy"]


class StartStream(RunsPenstock, StreamOperator):
    """Start a job's stream, unless it runs; returns {job, generation, outcome}.

    `start` is as in `penstock start --from`; `restart` ends a running stream first. `rows`, `bytes` and `files` are the
    maximum per batch for each source; bytes may be a size such as 64 MiB. `partitions`, `state`, `truncate_sinks` and
    `drop` are the options of `penstock start`.
    `state` maps steps to tables, or is a text with STEP=TABLE; `drop` is a list or a text with steps and sources.
    A restart that would end a driver is checked first, by `penstock restart --check` under the interpreter `python`.
    The task is idempotent: a retry finds the stream of the first try, and restarts it only if it has failed.
    """

    template_fields: Sequence[str] = (
        "job", "start", "rows", "bytes", "files", "note", "restart", "partitions", "state", "truncate_sinks", "drop"
    )  # fmt: skip
    generation: int | str | None = None

    def __init__(
        self,
        *,
        start: str = "last",
        restart: bool | str = False,
        available_now: bool = False,
        rows: int | str | None = None,
        bytes: int | str | None = None,  # noqa: A002 - the limit's name
        files: int | str | None = None,
        note: str | None = None,
        partitions: int | str | None = None,
        state: Mapping[str, str] | Sequence[str] | str | None = None,
        truncate_sinks: bool | str = False,
        drop: Sequence[str] | str | None = None,
        python: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.start, self.restart, self.available_now = start, restart, available_now
        self.rows, self.bytes, self.files = rows, bytes, files
        self.note, self.python = note, python
        self.partitions, self.state, self.truncate_sinks, self.drop = partitions, state, truncate_sinks, drop

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask for the stream."""
        command = Command(
            verb=Verb.RESTART if _is_true(self.restart) else Verb.START,
            id=command_id(context),
            generation=generation_of(self.generation),
            start=self.start,
            options=options_of(self.partitions, self.state, self.drop, truncate_sinks=_is_true(self.truncate_sinks)),
            available_now=self.available_now,
            limits=limits_of(rows=self.rows, bytes=self.bytes, files=self.files),
            note=self.note or None,
            revives=True,
        )
        with self._checked(command) as meant:
            asked = self._ask(context, meant)
        if asked.outcome is CommandResult.STALE and command.generation is None and not asked.stream.wants_driver:
            raise AirflowFailException(f"nothing was restarted: {asked.stream.newest_request}")
        return {"job": self.job, "generation": asked.generation, "outcome": asked.outcome.value}

    @contextmanager
    def _checked(self, command: Command) -> Iterator[Command]:
        """Have a restart that ends a driver judged first; one that cannot work fails the task and ends nothing.

        What somebody asks for while it is judged is newer than it.
        """
        with asking():
            control = self._control()
            ends = control.ends_driver(command)
        if not ends:
            yield command
            return
        with control.checking(command) as meant:
            self.log.info("checking the restart of %s before its driver is ended", self.job)
            self._penstock("restart", self.job, *start_words(command.start, command.options), "--check")
            yield meant


class RestartStream(StartStream, AskingOperator):
    """End the driver of a stream and start it again from `start`; succeeds when it runs, or has finished.

    With `generation` only the stream that is meant is restarted; the task is skipped where a newer command has started
    another. It fails where a newer command took the stream before this restart was carried out. With `deferrable` the
    wait until the stream runs takes no worker slot; the check and the command do.
    """

    template_fields: Sequence[str] = (*StartStream.template_fields, "generation")

    def __init__(self, *, generation: int | str | None = None, **rest: Any) -> None:
        super().__init__(restart=True, **rest)
        self.generation = generation

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, then wait until the stream runs; say so where it never came to that."""
        answer, generation = super().execute(context), generation_of(self.generation)
        if answer["outcome"] == CommandResult.STALE.value:
            newest = self._control().newest()
            if generation is not None and not newest.is_of(generation):
                raise AirflowSkipException(f"nothing was restarted: generation {generation} of {self.job} is over")
            raise AirflowFailException(f"nothing was restarted: {newest.newest_request}")
        return self.execute_complete(context, None, answer)

    def _outcome(self, stream: Stream, answer: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return what the task returns; fails where another restart came before this one was carried out."""
        asked = int(answer["generation"])
        if stream.first <= asked:
            return super()._outcome(stream, answer, context)
        control = self._control()
        if any(s.first == asked and s.phase in _RUNS for _, s in control.records.history()):
            self.log.warning("%s ran as asked for; since then %s", self.job, _newer(stream))
            return {**answer, "superseded_by": stream.command}
        log = job_log(control.root / self.job)
        restored = None if log is None else find_restore_by_command(log, command_id(context))
        done = "nothing was restarted" if restored is None else "the restore was done, and no batch was run after it"
        raise AirflowFailException(f"superseded: {done}, because {_newer(stream)}")


class WaitStream(ResumableJobMixin, StreamOperator):
    """Follow a stream: `until="healthy"` for a driver that runs, `until="end"` for the end of the stream.

    The task fails if the stream comes to another end. It waits while the stream is suspended, and follows restarts.
    If a newer run of the same DAG restarts the stream, that run follows it, and this task is skipped with its
    downstream tasks. Killing or marking the task has no effect on the stream.
    Without a supervisor a wait for the end fails, so that a retry may follow; drivers keep running meanwhile.
    A deferrable task holds no worker slot; None means Airflow's `[operators] default_deferrable`. An event only wakes
    the task, which then reads the records itself.
    """

    external_id_key = "penstock_stream"
    template_fields: Sequence[str] = ("job",)

    def __init__(self, *, until: str = "end", deferrable: bool | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        if until not in ("healthy", "end"):
            raise ValueError(f"until={until!r} is neither 'healthy' nor 'end'")
        self.until = until
        self.deferrable = is_deferrable(deferrable)

    def execute(self, context: Context) -> Any:
        """Attach first, then wait."""
        if self.deferrable:
            return self.execute_complete(context, None, first=self.submit_job(context))
        return self.execute_resumable(context)

    def execute_complete(self, context: Context, event: Any, first: int, *, begun: bool = False) -> dict[str, Any]:
        """Look, and defer while there is something to wait for; an event may have been sent too early.

        `begun` says that this task has started a supervisor before.
        """
        stream = self._followed(first, context)
        if self.is_job_active(stream.phase.value):
            self._wait_without_worker(event, generation=stream.first, begun=begun, first=stream.first)
        return self.get_job_result(first, context)

    def submit_job(self, context: Any) -> int:
        """Return the generation that the stream began with: nothing is submitted by who waits."""
        stream = self._control().newest()
        self.log.info("%s is %s since generation %s", self.job, stream.phase.value, stream.first)
        return stream.first

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """Return the phase of the stream; skips the task where a newer run of its DAG follows it."""
        return self._followed(external_id, context).phase.value

    def is_job_active(self, status: str) -> bool:
        """Return whether there is something to wait for."""
        phase = Phase(status)
        return phase in through(self.until) or not (phase.is_final or self._is_there(phase))

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether what an earlier try waited for is there."""
        return self._is_there(Phase(status))

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        """Wait, and return what `get_job_result` does: of a try that attaches again that is the task's result.

        Raises AirflowFailException where the stream came to another end, and where nobody supervises it.
        """
        first = int(external_id)
        rests = through(self.until)
        while (stream := self._wait(first, lambda seen: self._is_there(seen.phase), rests)).first > first:
            first = self._followed(first, context).first
            if self._is_there(stream.phase):
                break
        return self.get_job_result(first, context)

    def _followed(self, first: int, context: Context) -> Stream:
        """Return the stream's newest record; a restarted stream is followed, or left to the run that restarted it."""
        stream = self._control().newest()
        if stream.first <= first:
            return stream
        mine, theirs = command_id(context).split("/"), (stream.command or "").split("/")
        if theirs[0] == mine[0] and theirs[1:2] != mine[1:2]:
            raise AirflowSkipException(f"{_newer(stream)}; that run follows the stream from here")
        self.log.info("%s; it is followed on", _newer(stream))
        return stream

    def _is_there(self, phase: Phase) -> bool:
        return phase in AWAITED[self.until]

    def _give_up(self, why: SupervisorAbsent) -> NoReturn:
        if self.until == "end":
            raise why
        super()._give_up(why)

    def get_job_result(self, external_id: Any, context: Any) -> dict[str, Any]:
        """Return {job, first, phase, generation, restarts}; fails where the stream came to another end.

        So does a wait for a stream that runs if its run of the DAG has begun it, and an older version of the code runs.
        """
        control = self._control()
        stream = control.newest()
        if stream.phase.is_final and not self._is_there(stream.phase):
            raise AirflowFailException(f"{self.job} is {stream.phase_in_words}")
        if self.until == "healthy" and stream.rolled_back is not None and _is_of_run(stream, context):
            with asking():
                control.refuse_older(stream, stream.first)
        self.log.info("%s is %s", self.job, stream.phase.value)
        facts = {"generation": stream.generation, "restarts": stream.restarts}
        return {"job": self.job, "first": external_id, "phase": stream.phase.value, **facts}


def _is_of_run(stream: Stream, context: Context) -> bool:
    """Return whether a task of the same run of a DAG began the stream."""
    return (stream.command or "").split("/")[:2] == command_id(context).split("/")[:2]


def _newer(stream: Stream) -> str:
    return f"{stream.command} has started generation {stream.first}"


def generation_of(value: object) -> int | None:
    """Return what a template gave; raises AirflowFailException for what is no generation."""
    if value in (None, "", "None"):
        return None
    if not str(value).isdecimal():
        raise AirflowFailException(f"{str(value)!r} is not a generation")
    return int(str(value))


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "restart", "1")
