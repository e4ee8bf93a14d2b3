"""Decide what to do about a stream, from its record and what was seen of its driver. Pure: no process, no clock.

The supervisor calls `step` at each tick. It returns the stream's next record, and what to do once that is written. If
the record has changed meanwhile, the supervisor drops both and looks again. So actions always follow from the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydantic import JsonValue

from penstock.config.settings import Settings
from penstock.errors import EXIT_FENCED, EXIT_PERSON
from penstock.runtime.process.signals import GRACE
from penstock.supervise.stream import DriverSlot, Phase, Stream, Wish

__all__ = ["Action", "Beat", "Exit", "Life", "Seen", "Step", "not_launched", "step"]

_HOUR = 3_600_000_000
_ENDINGS = {Wish.STOP: Phase.STOPPED, Wish.SUSPEND: Phase.SUSPENDED}
_HELD = "another driver, which no supervisor started, holds the job"
_QUIET = 15_000_000
"""Microseconds without a heartbeat, which is due every two seconds, after which a stream is shown as unhealthy."""
_LEAST_SILENCE = 10_000_000
"""Microseconds; a heartbeat is due every two seconds, and its way through storage that others use may take some."""
_SPARE = int(GRACE * 1_000_000) + 15_000_000
"""Microseconds beyond its deadline that a driver has to notice a stop and to leave Spark."""
_NEXT = "the next driver starts, after this: "
_UNHEALTHY = " did not become healthy"
_NOBODY = DriverSlot(generation=0, at=0, foreign=True)
_OUT_OF_SIGHT = "it gives no sign of life, and its machine cannot be looked at"


class Life(Enum):
    """Whether the process of a driver is there."""

    RUNS = "runs"
    GONE = "gone"
    UNKNOWN = "unknown"
    """The launcher cannot tell, or has not answered yet; a missing answer is never taken for an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a driver ended, as far as it is known: `code` and `error` are None where it was killed or nobody saw.

    `finished`: its sources have ended. `storage`: its checkpoint did not answer. `judged`: a gate stopped it, or what
    it was to begin from is damaged or not there, so that another version of the code is no way out. `unfit`: the state
    is not that of its code, or of the options of its start.
    """

    code: int | None = None
    error: str | None = None
    finished: bool = False
    storage: bool = False
    judged: bool = False
    unfit: bool = False

    def __str__(self) -> str:
        """Return the action in words."""
        if self.error and self.code is None:
            return f"is gone: {self.error}"
        if self.error:
            return f"ended with {self.code}: {self.error}"
        if self.code == 0:
            return "was stopped by somebody else"
        return f"ended with {self.code}" if self.code is not None else "was killed, or ended without saying why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What the newest status record of a driver says.

    Attributes:
        still_for: Microseconds since the last record or the last step of its loop, whichever is longer ago. A driver
            that waits for rows steps.
        works: Whether it has published a batch or has waited; before that it is still starting.
        proved: Whether it has published a batch, or there was none to do. Before that nothing is known of its code but
            that it loads.
        silent_for: Microseconds since the last record.
    """

    still_for: int
    works: bool = True
    proved: bool = True
    silent_for: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one look at a stream: what its launcher tells of its driver, and what the records and the log do.

    `handle` where the driver had to be found. `holder` is that of the log's newest Takeover, without a handle where the
    log was released, or has none.
    `rival` is a driver that lives and holds the log in the place of the stream's own, such as one that a person started
    with `--take-over`.
    """

    life: Life = Life.UNKNOWN
    exit: Exit | None = None
    handle: dict[str, JsonValue] | None = None
    beat: Beat | None = None
    holder: DriverSlot = _NOBODY
    rival: dict[str, JsonValue] | None = None


class Action(Enum):
    """An action of the supervisor once the record is written."""

    NOTHING = "nothing"
    LAUNCH = "launch"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Step:
    """The stream as it should stand, and what to do then."""

    stream: Stream
    action: Action = Action.NOTHING


def step(stream: Stream, seen: Seen, settings: Settings, now: int, host: str = "") -> Step:
    """Return what follows from what was seen; the stream itself where nothing does. `host` is the supervisor's.

    `settings` are the job's: `[supervise]` says how patient the supervisor is.
    """
    driver = stream.driver
    if driver is not None:
        life = _life(driver, seen, settings, now)
        if life is Life.GONE:
            return Step(_after(stream, driver, seen, settings, now))
        if life is Life.UNKNOWN:
            return Step(stream)
        done = _watched(stream, driver, seen, settings, now)
        # It hears of a stop like any other driver, and may be somebody's terminal.
        return Step(done.stream) if driver.foreign else done
    if stream.wish in _ENDINGS and not stream.is_over:
        return Step(_phase(stream, _ENDINGS[stream.wish], None, now))
    if not stream.wants_driver or _waits(stream, settings, now):
        return Step(stream)
    if seen.rival is not None:
        return Step(_attached(stream, seen.holder, now))
    return _launch(stream, seen.holder, host, now)


# --- a driver that is there --------------------------------------------------------------------
def _life(driver: DriverSlot, seen: Seen, settings: Settings, now: int) -> Life:
    """Return whether the driver lives; one that was to be started and never showed itself counts as gone.

    It may still come: its generation is over then, and both the log and its orders tell it so. So does one on another
    machine that was silent for long: out of sight, signs of life are all there is.
    """
    if seen.life is not Life.UNKNOWN:
        return seen.life
    if seen.beat is not None:
        silent = max(settings.run.takeover_after.micros, _LEAST_SILENCE)
        lost = seen.beat.silent_for > silent or seen.beat.still_for > settings.supervise.progress_within.micros
        return Life.GONE if lost else Life.RUNS
    return Life.GONE if _passed(driver.at, settings.supervise.start_within.micros, now) else Life.UNKNOWN


def _watched(stream: Stream, driver: DriverSlot, seen: Seen, settings: Settings, now: int) -> Step:
    """Judge a driver that lives."""
    beat, deadline = seen.beat, settings.supervise.progress_within.micros
    if driver.handle is None and seen.handle is not None:
        driver = driver.model_copy(update={"handle": seen.handle})
        stream = stream.having(driver=driver)
    if not stream.wants_driver or driver.generation < stream.first:
        # A driver may take its own deadline to stop, and a little more.
        late = _passed(stream.asked_at, settings.run.deadline.micros + _SPARE, now)
        return Step(stream, Action.KILL if late else Action.NOTHING)
    if beat is None and seen.rival is not None:
        # It has lost its log, finds that out at its next write, and ends with 77: the other is watched then.
        return Step(stream.having(reason=_HELD))
    if beat is None:
        if not _passed(driver.at, settings.supervise.start_within.micros, now):
            return Step(stream)
        return Step(_phase(stream, Phase.UNHEALTHY, "no sign of life since it was started", now), Action.KILL)
    if beat.still_for > deadline:
        late = beat.still_for > 2 * deadline
        reason = f"no progress for more than {deadline / 1e6:g} s"
        return Step(_phase(stream, Phase.UNHEALTHY, reason, now), Action.KILL if late else Action.NOTHING)
    if beat.silent_for > _QUIET:
        reason = f"no sign of life of its driver for more than {_QUIET / 1e6:g} s"
        return Step(_phase(stream, Phase.UNHEALTHY, reason, now))
    if beat.works:
        return Step(_healthy(stream, driver, beat, settings, now))
    return Step(_phase(stream, Phase.SUBMITTING, None, now) if stream.phase is Phase.UNHEALTHY else stream)


def _healthy(stream: Stream, driver: DriverSlot, beat: Beat, settings: Settings, now: int) -> Stream:
    phase = Phase.DRAINING if stream.wish is Wish.DRAIN else Phase.RUNNING
    reason = _HELD if driver.foreign else None
    if stream.phase is not phase:
        stream = _phase(stream, phase, reason, now, healthy_since=now)
    elif stream.reason == _HELD and reason is None:
        stream = stream.having(reason=None)
    since = stream.healthy_since or now
    noted = (stream.streak, stream.failures, stream.stable) == (0, (), stream.version)
    long = _passed(since, settings.supervise.healthy_after.micros, now)
    if beat.proved and not noted and not driver.foreign and long:
        stream = stream.having(streak=0, failures=(), stable=stream.version)
    return stream


# --- a driver that is gone ---------------------------------------------------------------------
def not_launched(stream: Stream, why: Exit, settings: Settings, now: int) -> Stream:
    """Return the stream whose driver could not be started, and for what reason."""
    assert stream.driver is not None
    holder = stream.driver if stream.launches > 1 else _NOBODY  # one before it may have had the log
    return _after(stream, stream.driver, Seen(life=Life.GONE, exit=why, holder=holder), settings, now)


def _after(stream: Stream, driver: DriverSlot, seen: Seen, settings: Settings, now: int) -> Stream:
    """Return the stream after the end of its driver."""
    ended = seen.exit or (Exit(error=_OUT_OF_SIGHT) if seen.life is Life.UNKNOWN else Exit())
    stream = stream.having(driver=None, healthy_since=None)
    if driver.generation < stream.first:
        return stream  # it made room for a newer one
    if stream.wish in _ENDINGS:
        return _phase(stream, _ENDINGS[stream.wish], None, now)
    if ended.finished:
        return _phase(stream, Phase.FINISHED, None, now)
    if driver.foreign:
        return _phase(stream, Phase.SUBMITTING, "the driver that held the job is gone", now, until=None)
    if seen.rival is not None or (ended.code == EXIT_FENCED and seen.holder.handle is not None):
        return _attached(stream, seen.holder, now)
    if ended.code == EXIT_FENCED:  # by a driver that is gone by now; no failure is counted
        return _phase(stream, Phase.BACKOFF, f"the driver {ended}", now, until=now + settings.supervise.backoff.micros)
    if ended.storage:
        until = now + _delay(settings, stream.streak)
        return _phase(stream, Phase.PAUSED, f"the driver {ended}", now, until=until, streak=stream.streak + 1)
    return _failed(stream, ended, seen.holder, settings, now)


def _attached(stream: Stream, holder: DriverSlot, now: int) -> Stream:
    """Return the stream that watches the driver which holds its log, and which somebody else started.

    No failure is counted.
    """
    return _phase(stream, Phase.RUNNING, _HELD, now, driver=holder.model_copy(update={"at": now}), until=None)


def _failed(stream: Stream, ended: Exit, holder: DriverSlot, settings: Settings, now: int) -> Stream:
    """Return the stream after a failure: a pause, an older version of the code, or the end."""
    failures = (*(at for at in stream.failures if now - _HOUR < at <= now), now)
    hung = stream.reason if stream.phase is Phase.UNHEALTHY and ended == Exit() else None
    before, stream = stream.reason or "", stream.having(failures=failures)
    reason = f"the driver {ended}" + (f"; before it, {hung}" if hung else "")
    hopeless = ended.code == EXIT_PERSON
    if hopeless or len(failures) > settings.supervise.failures_per_hour:
        older = stream.stable
        # An older version would do without the options that the state refuses, and truncate sinks for it.
        as_asked = ended.unfit and stream.options != (stream.options and stream.options.of_older_code)
        dropped = _may_have_dropped(stream, holder)
        if older not in (None, stream.version) and not (ended.judged or as_asked or dropped):
            why = f"version {stream.version}{_UNHEALTHY}, so {older} runs again: {reason}"
            options = None if stream.options is None else stream.options.of_older_code
            back = stream.having(version=older, rolled_back=stream.version, options=options, failures=(), streak=0)
            return _phase(back, Phase.BACKOFF, why, now, until=now)
        spent = "" if hopeless else f"{len(failures)} failures within an hour; the last: "
        undo = ""
        rollback = before.partition(_UNHEALTHY)[2]  # why, where the version did not run since
        if stream.rolled_back is not None and ended.error and ended.error in rollback:
            undo = f". Version {stream.rolled_back} ended so too, so the code is not the cause"
            reason = reason.removesuffix(".")
        elif stream.rolled_back is not None:
            undo = (
                f". Version {stream.rolled_back} ran before it and was rolled back: restore the previous code in the "
                "project, because a restart takes what is there; find an earlier batch with penstock checkpoints, and "
                "restore it with penstock restart --from batch=N"
            )
            reason = reason.removesuffix(".")  # of a remedy
        elif older not in (None, stream.version) and dropped:
            undo = (
                f". Version {older} does not run again, because {', '.join(dropped)} may be dropped already: it would "
                "read such a source from its beginning, and start such a step empty. Restore an earlier batch with "
                "penstock restart --from batch=N"
            )
            reason = reason.removesuffix(".")
        return _phase(stream, Phase.FAILED, f"{spent}{reason}{undo}", now, until=None)
    until = now + _delay(settings, stream.streak)
    return _phase(stream, Phase.BACKOFF, reason, now, until=until, streak=stream.streak + 1)


def _may_have_dropped(stream: Stream, holder: DriverSlot) -> tuple[str, ...]:
    """Return what a start drops, if a driver of it has had the log, and so perhaps has committed without that."""
    if stream.options is None or stream.entered is None or holder.generation < stream.entered:
        return ()
    return stream.options.drop


# --- a driver to be started --------------------------------------------------------------------
def _waits(stream: Stream, settings: Settings, now: int) -> bool:
    """Return whether a pause is not over; one that ends far in the future is from before the clock was set back."""
    return stream.until is not None and now < stream.until <= now + _longest(settings)


def _launch(stream: Stream, holder: DriverSlot, host: str, now: int) -> Step:
    """Claim a generation and launch its driver.

    A command has claimed the generation of its first driver; each later one claims the next. It must be newer than the
    log's, which may be of a driver that no supervisor started, or of a control root that is gone.
    """
    unused = stream.launches == 0
    generation = max(stream.generation if unused else stream.generation + 1, holder.generation + 1)
    slot = DriverSlot(generation=generation, at=now, host=host)
    entered = generation if unused else stream.entered
    launches = stream.launches + 1
    begun = stream.having(generation=generation, driver=slot, until=None, launches=launches, entered=entered)
    # The reason of a pause, left alone, reads as if that still went on.
    reason = stream.reason if unused or stream.reason is None else f"{_NEXT}{stream.reason}"
    return Step(_phase(begun, Phase.SUBMITTING, reason, now), Action.LAUNCH)


def _delay(settings: Settings, streak: int) -> int:
    return int(min(settings.supervise.backoff.micros * 2 ** min(streak, 30), _longest(settings)))


def _longest(settings: Settings) -> int:
    return max(settings.supervise.backoff.micros, settings.supervise.backoff_max.micros)


def _passed(since: int, span: int, now: int) -> bool:
    """Return whether a span has passed; setting the clock back lengthens it, and never ends it early."""
    return now - since > span


def _phase(stream: Stream, phase: Phase, reason: str | None, now: int, **more: object) -> Stream:
    """Return the stream in a phase, since when it first was; `more` are other fields that change with it."""
    since = stream.since if stream.phase is phase else now
    return stream.having(phase=phase, reason=reason, since=since, **more)
