"""Carry out a command on a stream's record. Pure: what a command means, whatever the stream is at.

A command changes what is wanted; the supervisor does the rest. Each may be given again under its id: it is carried
out once. One that names a generation which is not the stream's any more changes nothing (DESIGN 11).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import CommandRefused
from penstock.rates.limits import Limits
from penstock.supervise.stream import Answered, Phase, StartOptions, Stream, Wish, begins_from, start_words

__all__ = [
    "DAGS",
    "ID_RULE",
    "Command",
    "CommandResult",
    "Request",
    "Verb",
    "changed_limits",
    "fold",
    "generation_of",
    "is_id",
    "remember",
]

ID_RULE = "1 to 250 letters, digits and characters of _ . : + @ / ~ -"
_ID = re.compile(r"[A-Za-z0-9_.:+@/~-]{1,250}")
_REMEMBERED = 200
"""How many ids of commands a record holds: a retry comes within days, and a stream has a few commands a day."""


class Request(Enum):
    """A request that is neither a start nor a restart, as Airflow's DAGs and the pages name it.

    `StreamControl.ask` makes the first five. `saving.save` names a checkpoint. `penstock held`, which loads the job,
    releases and discards held batches (SEMANTICS 11.5). `penstock requeue` sends quarantined rows again. `penstock
    sinks` publishes the batches that a sink has lost again, or skips them (9.5).
    """

    STOP = "stop"
    DRAIN = "drain"
    SUSPEND = "suspend"
    RESUME = "resume"
    LIMITS = "limits"
    SAVE = "save"
    RELEASE = "release"
    DISCARD = "discard"
    REQUEUE = "requeue"
    REDO = "redo"
    SKIP = "skip"


DAGS = {
    Request.STOP: "stop_stream",
    Request.DRAIN: "drain_stream",
    Request.SUSPEND: "suspend_stream",
    Request.RESUME: "resume_stream",
    Request.LIMITS: "limit_stream",
    Request.SAVE: "save_checkpoint",
    Request.RELEASE: "release_held_batch",
    Request.DISCARD: "discard_held_batch",
    Request.REQUEUE: "requeue_rows",
    Request.REDO: "redo_sink",
    Request.SKIP: "skip_sink",
}
"""The DAG of each request.

All take `job`, and `note` is of none. `limit_stream` takes `source` (null for each) and `rows` (null for the
configuration's), `save_checkpoint` takes `name`, `requeue_rows` takes `source` and `from_batch`. The two for held
batches take `batch`, and the two for sinks `sink`.
"""


class Verb(Enum):
    """The requests that a stream accepts."""

    START = "start"
    RESTART = "restart"
    STOP = "stop"
    DRAIN = "drain"
    SUSPEND = "suspend"
    RESUME = "resume"
    LIMITS = "limits"


_ENDING = (Verb.RESTART, Verb.STOP, Verb.DRAIN, Verb.SUSPEND)


class CommandResult(Enum):
    """The outcome of a command."""

    DONE = "done"
    """It changed what is wanted."""
    ALREADY = "already"
    """It was carried out before, or what it wants is so already."""
    STALE = "stale"
    """It means a generation that is over, or that never was; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request to a stream.

    A START of a stream that runs sets limits and note, and begins nothing.

    Attributes:
        verb: What the command asks for.
        id: Stays the same over the tries of one command.
        generation: The generation that the command is for; None for the current one. With `meant_at`, None means the
            generation of that time, or one that the same run of a DAG began, and nothing newer.
        start: Where a START or RESTART begins.
        options: Its options; None for none.
        available_now: Whether it ends when what is there is processed.
        limits: Of START, RESTART and LIMITS: what they set lies over what was set before.
        unlimits: Names of limits for which the configuration holds again, `orders.rows` for that of one source; of
            LIMITS with nothing else, all of them.
        note: A person's remark; None for none.
        revives: Whether an answered id counts once more where the stream has failed since. Its restore still happens
            once, because the driver looks for the id in the log.
        meant_at: When the command was meant, microseconds since 1970.
        follows: The `request` of the stream that a restart was checked after: what was asked for since is newer. None
            for a restart that was not checked.
    """

    verb: Verb
    id: str
    generation: int | None = None
    start: str = "last"
    options: StartOptions | None = None
    available_now: bool = False
    limits: Limits = field(default_factory=Limits)
    unlimits: frozenset[str] = frozenset()
    note: str | None = None
    revives: bool = False
    meant_at: int | None = None
    follows: tuple[str | None, int] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no id."""
        if not is_id(self.id):
            raise ValueError(f"{self.id!r} is no id: it takes {ID_RULE}")


def is_id(text: str) -> bool:
    """Return whether a text may be the id of a command: the names of a DAG, a run and a task may stand in it."""
    return _ID.fullmatch(text) is not None


def fold(stream: Stream, command: Command, now: int) -> tuple[Stream, CommandResult]:
    """Return the stream after a command, and what became of it.

    Raises CommandRefused where the stream's phase does not allow it, and ValueError for a start that is none.
    """
    begins_from(command.start, command.options)
    again = command.revives and stream.phase is Phase.FAILED
    if not again and generation_of(stream, command.id) is not None:
        return stream, CommandResult.ALREADY
    if _is_late(stream, command):
        return stream, CommandResult.STALE
    mine = again and stream.command == command.id  # what failed is what this command has begun
    if command.generation is not None and not (mine or stream.is_of(command.generation)):
        return stream, CommandResult.STALE
    changed = _changed(stream, command, now)
    if changed is None:
        return remember(stream, command.id, command.verb.value), CommandResult.ALREADY
    if (changed.wish, changed.first) != (stream.wish, stream.first):
        changed = changed.having(asked_by=command.id, checks={})  # a restart that is checked follows something else
    return remember(changed, command.id, command.verb.value), CommandResult.DONE


def _is_late(stream: Stream, command: Command) -> bool:
    """Return whether a command that comes late would undo what somebody has asked for since."""
    if command.verb not in _ENDING or _run_of(stream.asked_by or "") == _run_of(command.id):
        return False
    if stream.is_over and stream.wish is Wish.RUN:
        return False  # it came to its end by itself, and nobody wants that
    if command.follows not in (None, stream.request):
        return True
    return command.generation is None and command.meant_at is not None and stream.asked_at > command.meant_at


def _run_of(command_id: str) -> list[str]:
    return command_id.split("/")[:2]


def generation_of(stream: Stream, command_id: str) -> int | None:
    """Return the generation that a command last began or found, None for one that was never carried out."""
    return next((known.generation for known in reversed(stream.answered) if known.id == command_id), None)


def _changed(stream: Stream, command: Command, now: int) -> Stream | None:
    """Return the stream with what is wanted changed, None where it is so already."""
    match command.verb:
        case Verb.START:
            return _started(stream, command, now)
        case Verb.RESTART:
            return _begun(stream, command, now, Wish.RUN)
        case Verb.STOP:
            return _ended(stream, Wish.STOP, Phase.STOPPED, now)
        case Verb.SUSPEND:
            if stream.is_over and stream.phase is not Phase.SUSPENDED:
                raise _refused(command.verb, stream, "nothing runs that could be suspended")
            return _ended(stream, Wish.SUSPEND, Phase.SUSPENDED, now)
        case Verb.RESUME:
            if stream.wish is not Wish.SUSPEND:
                if stream.wants_driver:
                    return None
                raise _refused(command.verb, stream, "only a suspended stream is resumed")
            return _begun(stream, command, now, Wish.RUN)
        case Verb.DRAIN:
            return _drained(stream, command, now)
        case Verb.LIMITS:
            limits = _limited(stream, command)
            return None if limits == stream.limits else stream.having(limits=limits)


def _limited(stream: Stream, command: Command) -> Limits | None:
    """Return the limits of a stream after a command, None where nothing is set."""
    if command.verb is Verb.LIMITS and not (command.limits.set_limits() or command.unlimits):
        return None
    limits = changed_limits(stream.limits, command)
    return limits if limits.set_limits() else None


def changed_limits(limits: Limits | None, command: Command) -> Limits:
    """Return the limits of a stream after a command that sets some."""
    return command.limits.joined((limits or Limits()).without(command.unlimits))


def _started(stream: Stream, command: Command, now: int) -> Stream | None:
    if stream.wants_driver:
        if command.start != "last" or command.options is not None:
            words = " ".join(start_words(command.start, command.options))
            raise _refused(command.verb, stream, f"it runs, and {words} needs a new start: use restart")
        if stream.wish is Wish.DRAIN:
            raise _refused(command.verb, stream, "it ends when it is drained: start it then, or use restart")
        if command.available_now != stream.available_now:
            ends = "ends when what was there is done" if stream.available_now else "runs on"
            raise _refused(command.verb, stream, f"the stream that runs {ends}, unlike what is asked for: use restart")
        changed = stream.having(limits=_limited(stream, command), note=command.note or stream.note)
        return None if changed == stream else changed
    return _begun(stream, command, now, Wish.RUN)


def _drained(stream: Stream, command: Command, now: int) -> Stream | None:
    if stream.wants_driver:
        return None if stream.wish is Wish.DRAIN else stream.having(wish=Wish.DRAIN, asked_at=now)
    # Windows may be open after a source's end that closes none, and after a run of what was there.
    drained = stream.phase is Phase.FINISHED and stream.wish is Wish.DRAIN
    return None if drained else _begun(stream, command, now, Wish.DRAIN)


def _begun(stream: Stream, command: Command, now: int, wish: Wish) -> Stream:
    """Return the stream with a generation of its own; RESUME keeps the start and options of the suspended one.

    They may include a restore that no driver has reached yet. If one has, the log has the command's id, and the restore
    is not repeated.
    """
    resumes = command.verb is Verb.RESUME
    restores = resumes and begins_from(stream.start, stream.options).restore
    return stream.having(
        wish=wish,
        asked_at=now,
        first=stream.generation + 1,
        generation=stream.generation + 1,
        start=stream.start if resumes else command.start,
        options=stream.options if resumes else command.options,
        available_now=stream.available_now if resumes else command.available_now,
        command=stream.command if restores else command.id,
        note=command.note,
        limits=_limited(stream, command),
        phase=Phase.SUBMITTING,
        reason=f"asked for by {command.verb.value}",
        since=now,
        until=None,
        failures=(),
        streak=0,
        launches=0,
        entered=None,
        healthy_since=None,
        version=stream.version if resumes else None,
        rolled_back=None,
    )


def _ended(stream: Stream, wish: Wish, phase: Phase, now: int) -> Stream | None:
    if stream.phase is Phase.FINISHED or (stream.wish is wish and (stream.phase is phase or not stream.is_over)):
        return None
    if stream.is_over:
        return stream.having(wish=wish, asked_at=now, phase=phase, reason=None, since=now, until=None)
    return stream.having(wish=wish, asked_at=now, reason=f"{wish.value.lower()} was asked for")


def remember(stream: Stream, command_id: str, verb: str) -> Stream:
    """Return the stream with the id of a command that was carried out; the oldest ids are dropped."""
    answered = Answered(id=command_id, verb=verb, generation=stream.generation)
    return stream.having(answered=(*stream.answered, answered)[-_REMEMBERED:])


def _refused(verb: Verb, stream: Stream, why: str) -> CommandRefused:
    return CommandRefused(f"{verb.value} is refused: the stream is {stream.phase.value}, and {why}")
