"""Operators that ask something of a stream: stop, drain, suspend, resume, limits, save, held batches, requeue, sinks.

Each request is one task with a log of its own, and counts once, however often it is tried or cleared. Those of sinks
are the exception: a task that is cleared looks at what the sink lacks then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from penstock.airflow.awaiting import AskingOperator, StreamOperator
from penstock.airflow.cli_process import PenstockOperator
from penstock.airflow.command_context import asking, command_id, limits_of
from penstock.airflow.operators import generation_of
from penstock.graph.names import is_name
from penstock.rates.limits import SourceLimits, limits_in_words
from penstock.runtime.process.project import find_project
from penstock.supervise.commands import Command, CommandResult, Verb
from penstock.supervise.stream import Wish

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = [
    "DiscardHeld", "DrainStream", "LimitStream", "RedoSink", "ReleaseHeld", "RequeueRows", "ResumeStream",
    "SaveCheckpoint", "SkipSink", "StopStream", "SuspendStream",
]  # fmt: skip

_LIMITS = ("rows", "bytes", "files", "max_rate", "max_rate_per_partition", "paused")


class StopStream(AskingOperator):
    """End a stream after its batch; `generation` is of the one that is meant, None for whatever runs.

    One that a newer command has started is left alone, and the task ends well: what it meant is over. With `deferrable`
    the wait takes no worker slot.
    """

    template_fields: Sequence[str] = ("job", "generation")
    verb = Verb.STOP
    until = "stopped"

    def __init__(self, *, generation: int | str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.generation = generation

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, and wait until it is so."""
        generation = generation_of(self.generation)
        asked = self._ask(context, Command(verb=self.verb, id=command_id(context), generation=generation))
        answer = {"job": self.job, "generation": asked.generation, "outcome": asked.outcome.value}
        return answer if asked.outcome is CommandResult.STALE else self.execute_complete(context, None, answer)


class DrainStream(StopStream):
    """Have a stream process what is available, close all its windows, and end.

    A late try drains nothing that somebody has stopped or suspended since, and fails.
    """

    verb = Verb.DRAIN
    until = "drained"

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, and wait until it is so."""
        answer = super().execute(context)
        if answer["outcome"] == CommandResult.STALE.value and generation_of(self.generation) is None:
            newest = self._control().newest()
            if newest.wish in (Wish.STOP, Wish.SUSPEND):  # tasks that follow would take its windows for closed
                raise AirflowFailException(f"nothing was drained: {newest.newest_request}")
        return answer


class SuspendStream(StopStream):
    """End a stream after its batch, so that `ResumeStream` starts it with the same code and limits."""

    verb = Verb.SUSPEND
    until = "suspended"


class ResumeStream(StopStream):
    """Start a suspended stream again; succeeds when it runs, or has finished."""

    verb = Verb.RESUME
    until = "healthy"


class LimitStream(StreamOperator):
    """Bound what batches read, from the next one on; for what is not given the configuration's limit holds.

    `rows`, `bytes` and `files` are those of a batch and source; `bytes` may be a size such as "64 MiB". The rates are
    rows a second, of each source and of each of its partitions. With `source` they are of this source alone, and those
    of each stay as they are. With `paused` batches read nothing.
    Returns {job, source, rows, bytes, files, max_rate, max_rate_per_partition, paused, outcome}.
    """

    template_fields: Sequence[str] = ("job", "source", *_LIMITS)

    def __init__(
        self,
        *,
        source: str | None = None,
        rows: int | str | None = None,
        bytes: int | str | None = None,  # noqa: A002 - named as the limit
        files: int | str | None = None,
        max_rate: int | str | None = None,
        max_rate_per_partition: int | str | None = None,
        paused: bool | str = False,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.source = source
        self.rows = rows
        self.bytes = bytes
        self.files = files
        self.max_rate = max_rate
        self.max_rate_per_partition = max_rate_per_partition
        self.paused = paused

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask; the driver reads the limit before its next batch."""
        source = (self.source or "").strip()
        limits = limits_of(source=source, **{name: getattr(self, name) for name in _LIMITS})
        chosen = limits.sources.get(source, SourceLimits()) if source else limits
        names = {name for name in _LIMITS if name in type(chosen).model_fields} - chosen.set_limits().keys()
        lifted = frozenset(f"{source}.{name}" if source else name for name in names)
        command = Command(verb=Verb.LIMITS, id=command_id(context), limits=limits, unlimits=lifted)
        asked = self._ask(context, command)
        self.log.info("%s: %s from now on", self.job, limits_in_words(asked.stream.limits))
        values = {name: getattr(chosen, name, False) for name in _LIMITS}
        return {"job": self.job, "source": source or None, **values, "outcome": asked.outcome.value}


class SaveCheckpoint(StreamOperator):
    """Name the newest checkpoint, so that it is kept (a savepoint); returns {job, saved, batch}.

    The driver that runs names it after its batch; without one the task does.
    """

    template_fields: Sequence[str] = ("job", "name")

    def __init__(self, *, name: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.name = name

    def execute(self, context: Context) -> dict[str, Any]:
        """Save; a try again finds the name that an earlier one has given."""
        from penstock.supervise.saving import save  # it loads pyarrow, which a DAG file must not

        with asking():
            settings = find_project(given=Path(self.project)).settings(self.job)
            commit = save(self._control(), command_id(context), self.name, patience=settings.run.takeover_after.seconds)
        self.log.info("%s: batch %s is saved as %s", self.job, commit.batch, self.name)
        return {"job": self.job, "saved": self.name, "batch": commit.batch}


class _HeldOperator(PenstockOperator):
    """Decide on a batch that a gate holds back."""

    template_fields: Sequence[str] = ("job", "project", "batch")
    decision = ""

    def __init__(self, *, batch: int | str, **rest: Any) -> None:
        super().__init__(**rest)
        self.batch = batch

    def execute(self, context: Context) -> dict[str, Any]:
        """Decide, and return {batch, decision, rows}; a decision that was made before is found."""
        number = str(self.batch).strip()
        if not number.isdecimal():
            raise AirflowFailException(f"{number!r} is not the number of a batch")
        answer = self._penstock("held", self.job, self.decision, number)[-1]
        self.log.info("%s: batch %s: %s, rows %s", self.job, answer["batch"], answer["decision"], answer["rows"])
        return answer


class ReleaseHeld(_HeldOperator):
    """Publish a held batch."""

    decision = "release"


class DiscardHeld(_HeldOperator):
    """Drop a held batch."""

    decision = "discard"


class _SinkOperator(PenstockOperator):
    """Reconcile a sink of a stopped job with its log."""

    template_fields: Sequence[str] = ("job", "project", "sink")
    repair = ""

    def __init__(self, *, sink: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.sink = sink

    def execute(self, context: Context) -> dict[str, Any]:
        """Do it, and return {sink, missing, waiting}, the latter two with rows by batch."""
        if not is_name(self.sink):  # a template may have made of it what the command takes for an option
            raise AirflowFailException(f"{self.sink!r} is not the name of a sink")
        (stand,) = self._penstock("sinks", self.job, self.repair, self.sink)[-1]["sinks"]
        batches = {**stand["missing"], **(stand["waiting"] if self.repair == SkipSink.repair else {})}
        self.log.info("%s: %s %s: rows by batch %s", self.job, self.repair, self.sink, batches or "none")
        return dict(stand)


class RedoSink(_SinkOperator):
    """Publish the batches that a sink has lost again, if their files exist."""

    repair = "redo"


class SkipSink(_SinkOperator):
    """Continue without the batches that a sink does not show; the log counts their rows."""

    repair = "skip"


class RequeueRows(PenstockOperator):
    """Send the quarantined rows of a source through the job again; the driver takes them into its next batches.

    `from_batch` sends again what that batch and later ones quarantined. With `wait` the task succeeds when the rows are
    committed, and holds a worker slot until then. Returns {job, source, command, done}, and where done {rows, batch}.
    """

    template_fields: Sequence[str] = ("job", "project", "source", "from_batch")

    def __init__(self, *, source: str, from_batch: int | str | None = None, wait: bool = False, **rest: Any) -> None:
        super().__init__(**rest)
        self.source, self.from_batch, self.wait = source, from_batch, wait

    def execute(self, context: Context) -> dict[str, Any]:
        """Leave the request, once however often the task is tried."""
        if not is_name(self.source):  # a template may have made of it what the command takes for an option
            raise AirflowFailException(f"{self.source!r} is not the name of a source")
        number = "" if self.from_batch is None else str(self.from_batch).strip()
        if number and not number.isdecimal():
            raise AirflowFailException(f"{number!r} is not the number of a batch")
        words = ["--source", self.source, "--command", command_id(context)]
        words += ["--from-batch", number] if number else []
        words += ["--wait"] if self.wait else []
        answer = self._penstock("requeue", self.job, *words)[-1]
        became = (
            f"{answer['rows']} rows were sent again"
            if answer["done"]
            else "the driver takes them into its next batches, and the page of the stream counts them as requeued"
        )
        self.log.info("%s: quarantined rows of %s: %s", self.job, self.source, became)
        return answer
