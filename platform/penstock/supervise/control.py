"""Ask something of a stream, and see what becomes of it: what the commands and Airflow's tasks have in common."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.roots import control_store, is_there, job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.config.settings import checkpoint_root
from penstock.config.toml_reader import closest
from penstock.errors import (
    CannotRestore,
    CommandRefused,
    ConfigError,
    JobNotFound,
    PenstockError,
    RolledBack,
    RootMissing,
    StreamFailed,
    SupervisorAbsent,
)
from penstock.graph.names import is_name
from penstock.rates.limits import Limits
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.minimum_rates import refuse_limits
from penstock.runtime.process.project import Project
from penstock.runtime.process.takeover_policy import is_gone
from penstock.supervise.commands import Command, CommandResult, Verb, changed_limits, fold, generation_of, remember
from penstock.supervise.records import LeaseRecords, StreamRecords, supervised_jobs
from penstock.supervise.stream import Phase, Stream, Wish, begins_from, why_rolled_back
from penstock.supervise.supervisor import PATIENCE
from penstock.time.clock import Clock, SystemClock

__all__ = ["Asked", "Silence", "StreamControl", "newest_stream", "stream_control", "stream_jobs"]

_POLL = 0.5


@dataclass(frozen=True, slots=True)
class Asked:
    """The outcome of a command: the stream after it, and the generation that it began or found."""

    stream: Stream
    outcome: CommandResult
    generation: int


@dataclass
class Silence:
    """Watch the lease's number: a supervisor that lives writes the next one every second or two."""

    lease: LeaseRecords
    clock: Clock
    where: str
    _seen: tuple[int, float] | None = None

    def check(self) -> None:
        """Raise SupervisorAbsent where the number has not moved for twice the patience of a standby."""
        number, now = self.lease.number(), self.clock.monotonic()
        if self._seen is None or self._seen[0] != number:
            self._seen = (number, now)
        elif now - self._seen[1] > 2 * PATIENCE:
            raise SupervisorAbsent(
                "no supervisor has given a sign of life; the request stays recorded", where=self.where
            )


@dataclass
class StreamControl:
    """Command one stream of a control root."""

    root: CheckpointFolder
    job: str
    clock: Clock
    store: CheckpointStore = field(init=False)
    records: StreamRecords = field(init=False)

    def __post_init__(self) -> None:
        """Open the control root; raises RootMissing, because a command that nobody reads would be lost in one."""
        self.store = control_store(self.root, make=False)
        self.records = StreamRecords(self.store, self.job)

    def ask(self, command: Command, *, by_hand: bool = False) -> Asked:
        """Carry out a command on the stream's record; the supervisor then does what follows.

        With `by_hand` a driver that was started by hand may drain a stream that wants no driver: nothing is begun.

        Raises CommandRefused, also for a drain beside such a driver that is not `by_hand`, because the supervisor would
        start another one for it. Raises, with nothing changed, CannotRestore for a batch that is not kept. ConfigError
        is for a limit below a minimum of the driver that runs, and for one of a source that the job has not.
        """
        now = self.clock.wall()
        # Before the record is written: the driver that runs would be ended for a start that must fail.
        newest = self.newest()
        over = command.generation is not None and not newest.is_of(command.generation)
        if command.verb in (Verb.START, Verb.RESTART) and not over and generation_of(newest, command.id) is None:
            self._refuse_unkept(command)
        if command.verb is Verb.LIMITS and not over and generation_of(newest, command.id) is None:
            self._refuse_unknown_sources(command.limits)
            before, after = newest.limits or Limits(), changed_limits(newest.limits, command)
            refuse_limits(before, after, self._beating().get("minimum_rates"))

        beside = command.verb is Verb.DRAIN and self.runs_by_hand()

        def folded(newest: Stream) -> tuple[Stream, CommandResult]:
            stream, outcome = fold(newest, command, now)
            answered = generation_of(newest, command.id) is not None or outcome is CommandResult.STALE
            if not beside or answered or newest.wants_driver:
                return stream, outcome
            if not by_hand:
                why = f"a driver runs that was started by hand; it drains by `penstock drain {self.job}`"
                raise CommandRefused(f"drain is refused: {why}")
            return remember(newest, command.id, command.verb.value), CommandResult.DONE

        stream, outcome = self.records.update(folded)
        known = generation_of(stream, command.id)
        return Asked(stream, outcome, stream.generation if known is None else known)

    def ends_driver(self, command: Command) -> bool:
        """Return whether a command would end a driver and start another in its place, which is to be checked first."""
        stream = self.newest()
        if command.verb is not Verb.RESTART or fold(stream, command, self.clock.wall())[1] is not CommandResult.DONE:
            return False
        # A driver that was started by hand has no place in the record, and is ended by a restart as well.
        return stream.driver is not None or bool(self._beating())

    @contextmanager
    def checking(self, command: Command) -> Iterator[Command]:
        """Have the driver keep the batch that a restart begins at while it is checked and asked; yields the command.

        The command undoes nothing that is asked for from now on, whatever the clock of the machine that asks says. Each
        check has a note of its own: a task that was killed may have left one, which counts from when it was written.
        """
        check = secrets.token_hex(8)
        batch = begins_from(command.start, command.options).batch

        def noted(stream: Stream) -> tuple[Stream, None]:
            return stream.having(checks=stream.checks if batch is None else {**stream.checks, check: batch}), None

        def over(stream: Stream) -> tuple[Stream, None]:
            return stream.having(checks={by: n for by, n in stream.checks.items() if by != check}), None

        stream, _ = self.records.update(noted)
        try:
            yield replace(command, follows=stream.request)
        finally:
            self.records.update(over)

    def newest(self) -> Stream:
        """Return the stream's newest record."""
        return self.records.newest()

    def why_rolled_back(self, stream: Stream) -> str | None:
        """Return why an older version of a stream's code runs, None where none was rolled back."""
        if stream.rolled_back is None:
            return None
        why = why_rolled_back(stream.rolled_back, (kept for _, kept in self.records.history()))
        return why or f"version {stream.rolled_back} was rolled back"

    def refuse_older(self, stream: Stream, generation: int) -> None:
        """Raise RolledBack for a stream that began with a generation, if an older version of its code has run since."""
        if stream.first == generation and (why := self.why_rolled_back(stream)) is not None:
            raise RolledBack(f"{self.job} is {stream.phase.value}: {why}", where=str(self.root))

    def wait(self, generation: int, until: Callable[[Stream], bool], *, through: Collection[Phase] = ()) -> Stream:
        """Wait until the stream that a generation is of is as wanted; for ever, as long as it is supervised.

        Raises StreamFailed where it came to another end, and SupervisorAbsent where nobody supervises it. After a later
        command has restarted the stream, returns it as it is. `through` are final phases at which waiting continues.
        """
        silence = self.silence()
        while True:
            stream = self.newest()
            if until(stream) or stream.first > generation:
                return stream
            if stream.is_over and stream.phase not in through:
                raise StreamFailed(f"{self.job} is {stream.phase_in_words}", where=str(self.root))
            silence.check()
            self.clock.sleep(_POLL)

    def silence(self) -> Silence:
        """Return what tells, when it is asked again and again, that nobody supervises."""
        return Silence(LeaseRecords(self.store), self.clock, str(self.root))

    def is_supervised(self) -> bool:
        """Return whether a supervisor gave a sign of life not long ago, by the wall clocks of both machines."""
        lease = LeaseRecords(self.store).holder()
        return lease is not None and not lease.left and self.clock.wall() - lease.at < 2 * PATIENCE * 1_000_000

    def reads_nothing(self, command: Command) -> str | None:
        """Return why a start that resumes from the last commit reads nothing, in a sentence; None where it may read.

        All sources have ended: with a drain, or at the end of what they had. Trouble with the log is for the start.
        """
        if command.verb not in (Verb.START, Verb.RESTART, Verb.RESUME):
            return None
        stream = self.newest()
        # A resume begins where the suspended start does, and a start adds nothing to a stream that runs.
        keeps = command.verb is Verb.RESUME or (command.verb is Verb.START and stream.wants_driver)
        if (stream.start if keeps else command.start) != "last":
            return None
        commit = None
        with suppress(PenstockError):
            log = job_log(self.root / self.job)
            commit = None if log is None else recover(log, Damage.LIST, newest=1).commit
        if commit is None or not commit.sources or not all(of.ended for of in commit.sources.values()):
            return None
        return (
            f"all sources of {self.job} have ended with batch {commit.batch} or before, by a drain or by themselves. "
            f"A start reads nothing of them; to read on, start from an older one: penstock checkpoints {self.job}"
        )

    def has_driver(self) -> bool:
        """Return whether any driver gives signs of life."""
        return bool(self._beating())

    def runs_by_hand(self) -> bool:
        """Return whether a driver gives signs of life that nobody supervises: somebody has started it by hand."""
        return self._beating().get("generation") == 0

    def heeds_by_hand(self, command: Command) -> bool:
        """Return whether a driver that was started by hand is who carries out a command that was not asked before.

        Where it has taken over the stream of a supervisor, that one carries it out.
        """
        obeyed = command.verb in (Verb.STOP, Verb.SUSPEND, Verb.DRAIN, Verb.LIMITS)
        newest = self.newest()
        taken_over = newest.wants_driver and self.is_supervised()
        known = generation_of(newest, command.id) is not None
        return obeyed and self.runs_by_hand() and not (taken_over or known)

    def drains_by_hand(self, command: Command, asked: Asked) -> bool:
        """Return whether a drain that was asked before began no stream: the newest driver, started by hand, does it."""
        if (
            command.verb is not Verb.DRAIN
            or asked.outcome is not CommandResult.ALREADY
            or asked.stream.wish is Wish.DRAIN
        ):
            return False
        record = StatusRecords(self.store, self.job).newest()
        body: Mapping[str, Any] = {} if record is None else record.body
        return body.get("generation") == 0 and command.id not in (body.get("ignores") or ())

    def wait_by_hand(self, *, drained: bool) -> None:
        """Wait until the driver has ended that was started by hand; raises StreamFailed where it did not end well.

        With `drained` it has to have read to the end.
        """
        records, where = StatusRecords(self.store, self.job), str(self.root)
        record = records.newest()
        body: Mapping[str, Any] = {} if record is None else record.body
        asked = body.get("writer")
        while self.runs_by_hand() and body.get("writer") == asked:
            self.clock.sleep(_POLL)
            record = records.newest()
            body = {} if record is None else record.body
        if body.get("writer") != asked:
            if drained:
                raise StreamFailed(
                    f"{self.job} has another driver, so nobody knows whether it was drained", where=where
                )
            return
        state, error = body.get("state"), body.get("error")
        if isinstance(error, Mapping):
            raise StreamFailed(f"the driver of {self.job} failed: {error.get('what')}", where=where)
        if state == "running":
            raise StreamFailed(f"the driver of {self.job} gives no sign of life any more", where=where)
        if drained and state != "finished":
            raise StreamFailed(f"the driver of {self.job} was stopped before all was drained", where=where)

    def _refuse_unknown_sources(self, limits: Limits) -> None:
        """Raise ConfigError for limits of a source that the newest driver of the job did not have.

        They are only refused to be set: those of a source that is gone can be taken back.
        """
        record = StatusRecords(self.store, self.job).newest()
        left = record.body.get("left") if record is not None else None
        known = [str(name) for name in left] if isinstance(left, Mapping) else []
        for source in sorted(limits.sources):
            if not is_name(source) or (known and source not in known):
                what = f"the job has no source {source!r} to limit; {closest(source, known)}"
                raise ConfigError(what, where=f"the limits of {self.job}")

    def _beating(self) -> Mapping[str, Any]:
        """Return the record of a driver that gave a sign of life not long ago, by the wall clocks of both machines.

        Empty where none did.
        """
        record = StatusRecords(self.store, self.job).newest()
        at = record.body.get("at") if record is not None and record.body.get("state") == "running" else None
        beats = isinstance(at, int) and self.clock.wall() - at < 2 * PATIENCE * 1_000_000
        return record.body if record is not None and beats and not is_gone(str(record.body.get("holder"))) else {}

    def _refuse_unkept(self, command: Command) -> None:
        start, log = begins_from(command.start, command.options), job_log(self.root / self.job)
        if log is not None:
            refuse_ended(log, survey(log))
        if not (start.goes_back or start.rewrites):
            return
        if log is None:
            target = f"to restore {start.target} from" if start.goes_back else "yet, so there is no state to rewrite"
            raise CannotRestore(f"there is no checkpoint {target}", where=str(self.root))
        start.resolve(recover(log, Damage.LIST), self.root / self.job)


def stream_jobs(project: Project) -> list[str]:
    """Return the project's jobs, and those whose code is gone and whose streams are not."""
    return sorted({*project.job_names(), *_supervised(checkpoint_root(project.root))})


def stream_control(project: Project, job: str) -> StreamControl:
    """Return the control of a stream; one whose code is gone is looked for in the project's own root.

    Raises JobNotFound where there is neither code nor a stream, and RootMissing where nobody supervises.
    """
    try:
        root = project.settings(job).root
    except JobNotFound:
        root = checkpoint_root(project.root)
        if job not in _supervised(root):
            raise
    return StreamControl(root, job, SystemClock())


def newest_stream(project: Project, job: str, errors: list[PenstockError]) -> Stream:
    """Return a job's stream; where its file or root is in trouble, what the project's own root says of it.

    The trouble becomes the reason of the stream, and is added to `errors`.
    """
    try:
        return stream_control(project, job).newest()
    except PenstockError as why:
        trouble = why
    if not isinstance(trouble, RootMissing):  # which is how a project looks before its first start
        errors.append(trouble)
    stream, root = Stream(), checkpoint_root(project.root)
    if isinstance(trouble, ConfigError) and job in _supervised(root):
        stream = StreamControl(root, job, SystemClock()).newest()
    return stream.having(reason=f"{trouble.what} ({trouble.where})")


def _supervised(root: CheckpointFolder) -> list[str]:
    """Return the jobs that have streams in a control root, which may not be there."""
    return supervised_jobs(control_store(root, make=False)) if is_there(root) else []
