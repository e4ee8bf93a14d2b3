"""The record of a stream, with what is wanted of it and the outcome; commands and the supervisor write it in turns.

Records are numbered and each follows from the one before (`records.StreamRecords`). So a command and the supervisor
cannot both act on the same state: one of them gets the number, the other looks again.
Times are UTC microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, JsonValue

from penstock.checkpoint.log.entries import Record
from penstock.graph.names import is_name
from penstock.rates.limits import Limits
from penstock.runtime.restore.target import RestoreTarget, parse_start, parse_state

__all__ = [
    "Answered",
    "DriverSlot",
    "Phase",
    "StartOptions",
    "Stream",
    "Wish",
    "begins_from",
    "start_words",
    "why_rolled_back",
]


class Wish(Enum):
    """The wish of a person, or of Airflow, for a stream."""

    RUN = "RUN"
    DRAIN = "DRAIN"
    """Do what was there when it was asked, close all windows, end (SEMANTICS 10.6)."""
    SUSPEND = "SUSPEND"
    """End after the batch, and keep the limits and the code for `resume`."""
    STOP = "STOP"


class Phase(Enum):
    """The phase of a stream (DESIGN 11)."""

    SUBMITTING = "SUBMITTING"
    """A driver is being started and has not said anything yet."""
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    """The driver lives, and its progress mark does not change."""
    BACKOFF = "BACKOFF"
    """The driver failed; the next one starts at `until`."""
    PAUSED = "PAUSED"
    """Storage does not answer, as `reason` says; tried again at `until`, and the failure budget is not touched."""
    DRAINING = "DRAINING"
    SUSPENDED = "SUSPENDED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    """Given up: a person is needed, as `reason` says."""
    FINISHED = "FINISHED"
    """The sources have ended, or the stream was drained."""

    @property
    def is_final(self) -> bool:
        """Return whether only a command leads out of this phase."""
        return self in (Phase.SUSPENDED, Phase.STOPPED, Phase.FAILED, Phase.FINISHED)


class StartOptions(Record):
    """Options for state and sinks at a start; each has the meaning of the option of `penstock run`.

    The first three are done once for the command that began the stream, as a restore. What is to be dropped is said
    to every driver: until a batch is committed without it, none would start.
    """

    partitions: Annotated[int, Field(ge=1)] | None = None
    state: dict[str, str] = Field(default_factory=dict)
    truncate_sinks: bool = False
    drop: tuple[str, ...] = ()

    @classmethod
    def given(
        cls, *, partitions: int | None, state: Iterable[str], truncate_sinks: bool, drop: Iterable[str]
    ) -> StartOptions | None:
        """Return the options that a command line or a form gives, None for none; raises ValueError.

        `state` is `STEP=TABLE`, each, and `drop` are names of steps and sources.
        """
        steps = tuple(drop)
        if unknown := [step for step in steps if not is_name(step)]:
            raise ValueError(f"{unknown[0]!r} is no name of a step or source")
        options = cls(partitions=partitions, state=parse_state(state), truncate_sinks=truncate_sinks, drop=steps)
        return None if options == cls() else options

    @property
    def of_older_code(self) -> StartOptions | None:
        """Return the options for an older version of the code, which has its own partitions and steps."""
        kept = StartOptions(state=self.state, truncate_sinks=self.truncate_sinks)
        return None if kept == StartOptions() else kept


def start_words(start: str, options: StartOptions | None) -> list[str]:
    """Return the arguments of `penstock run` that say where a stream begins, and with which options."""
    arguments = [] if start == "last" else ["--from", start]
    if options is None:
        return arguments
    arguments += [] if options.partitions is None else ["--partitions", str(options.partitions)]
    arguments += [word for step, table in options.state.items() for word in ("--state", f"{step}={table}")]
    arguments += ["--truncate-sinks"] if options.truncate_sinks else []
    return arguments + [word for step in options.drop for word in ("--drop", step)]


def begins_from(start: str, options: StartOptions | None) -> RestoreTarget:
    """Return where a stream begins; raises ValueError for a start that is none, and for options it does not take."""
    begins = parse_start(start)
    if options is None:
        return begins
    return begins.having(partitions=options.partitions, state=options.state, truncate=options.truncate_sinks)


class DriverSlot(Record):
    """A driver that was started, or is being started: `handle` is None until the launcher has answered.

    `handle` is the launcher's own: what it needs to watch and kill the driver. `host` is the machine of the supervisor
    that starts it, and `version` the code that it runs.
    `foreign` is a driver that somebody else started and that holds the job.
    """

    generation: int
    at: int
    host: str = ""
    version: str | None = None
    handle: dict[str, JsonValue] | None = None
    foreign: bool = False


class Answered(Record):
    """A command that was carried out, by the id that it keeps over its tries."""

    id: str
    verb: str
    generation: int


class Stream(Record):
    """A stream as one number of its records shows it.

    `generation` counts starts of drivers: each start has its own, and the newest claimed is the only one that may run.
    `first` is the generation that the wish in force began with. A command that names a generation means the stream
    that was started by it; the supervisor's own restarts have later generations and are the same stream.
    `launches` are the drivers that were started for it. `entered` is the generation of the first of them, later than
    `first` where the log had seen later ones; None before it was started.
    `command` is the id of the command that began it; its restore, if `start` and `options` are one, is done once.
    `asked_by` is the id of the command that the wish in force came with, at `asked_at`.
    `limits` lie over those of the configuration; None where nobody set any. `saves` are the requested names that the
    newest checkpoint does not have yet, with the time of the request; `unsaves` are names to delete. `checks` are the
    batches that restarts begin at which are being checked, each under an id of the check.
    `version` names the code that runs, None for "take the newest"; `stable` the last that was healthy long enough.
    """

    # what is wanted
    wish: Wish = Wish.STOP
    asked_at: int = 0
    asked_by: str | None = None
    first: int = 0
    start: str = "last"
    options: StartOptions | None = None
    available_now: bool = False
    command: str | None = None
    note: str | None = None
    limits: Limits | None = None
    saves: dict[str, int] = Field(default_factory=dict)
    unsaves: dict[str, int] = Field(default_factory=dict)
    checks: dict[str, int] = Field(default_factory=dict)
    answered: tuple[Answered, ...] = ()
    # what became of it
    generation: int = 0
    phase: Phase = Phase.STOPPED
    reason: str | None = None
    since: int = 0
    until: int | None = None
    driver: DriverSlot | None = None
    failures: tuple[int, ...] = ()
    streak: int = 0
    launches: int = 0
    entered: int | None = None
    healthy_since: int | None = None
    version: str | None = None
    stable: str | None = None
    rolled_back: str | None = None

    def having(self, **changes: object) -> Self:
        """Return the stream with other values of some fields."""
        return self.model_copy(update=changes)

    @property
    def changed_at(self) -> int:
        """Return when its phase began, or when a request came in it that is newer."""
        return max(self.since, self.asked_at)

    @property
    def wants_driver(self) -> bool:
        """Return whether a driver should run, now or after a pause."""
        return self.wish in (Wish.RUN, Wish.DRAIN) and not self.is_over

    def is_of(self, generation: int) -> bool:
        """Return whether a command that names a generation means this stream."""
        begun = self.first if self.entered is None else self.entered
        return generation == self.first or begun <= generation <= self.generation

    @property
    def request(self) -> tuple[str | None, int]:
        """Return what tells the request that the wish in force came with from any other."""
        return self.asked_by, self.asked_at

    @property
    def newest_request(self) -> str:
        """Return who has asked last for what, in words; of a start which generation it is."""
        if self.wish is Wish.RUN:
            return f"{self.asked_by or self.command} has started generation {self.first}"
        verb = next((known.verb for known in reversed(self.answered) if known.id == self.asked_by), None)
        return f"{self.asked_by} has asked for {verb or self.wish.value.lower()} since"

    @property
    def phase_in_words(self) -> str:
        """Return the phase and its reason; where somebody ended the stream, that is whose request it was."""
        ended = self.is_over and self.wish in (Wish.STOP, Wish.SUSPEND) and self.asked_by is not None
        reason = self.reason or (self.newest_request if ended else None)
        return f"{self.phase.value}: {reason}" if reason else self.phase.value

    @property
    def restarts(self) -> int:
        """Return how many drivers were started after the first."""
        return max(0, self.launches - 1)

    @property
    def is_over(self) -> bool:
        """Return whether the stream has come to an end and no newer start is wanted."""
        return self.phase.is_final


def why_rolled_back(version: str, records: Iterable[Stream]) -> str | None:
    """Return why a version was rolled back, as the records of its stream say; None where they no longer tell."""
    turns = (after for before, after in pairwise(records) if before.rolled_back != version == after.rolled_back)
    return next((turn.reason for turn in reversed([*turns])), None)
