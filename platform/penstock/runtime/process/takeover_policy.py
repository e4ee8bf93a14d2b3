"""Decide whether a driver may take the log over from the one that holds it (DESIGN 4, F07, F09).

Fencing keeps two drivers from both committing, whatever is decided here. This is about manners: a driver that lives
is left alone, and one that died is not waited for longer than need be.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cached_property

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.takeover import View, survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import Fenced, HolderAlive, StorageUnavailable
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.os_processes import pid_namespace, process_runs, process_start
from penstock.time.clock import Clock

__all__ = ["Answer", "HolderName", "HolderWatch", "StoppedWaiting", "holder_name", "is_gone", "judge"]

_LOOK_EVERY = 0.25
"""Seconds between two looks at a holder that may be dead."""


class StoppedWaiting(Exception):
    """A signal stopped the driver while it waited for a holder's sign of life."""


class Answer(Enum):
    """The decision about the log's holder."""

    TAKE = "take the log over"
    WAIT = "look again"
    REFUSE = "leave it: the holder lives"


@dataclass(frozen=True, slots=True)
class HolderName:
    """Read a holder's name, `host:pid:start:namespace`.

    `start` is when the process started, as its host counts; `namespace` is the one that its number means something in,
    empty where that is not known. Containers may have one host name and different processes under one number.
    """

    host: str
    pid: int
    start: str
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> HolderName | None:
        """Return the parts, or None for a name of another form."""
        host, _, rest = text.partition(":")
        pid, _, rest = rest.partition(":")
        start, _, namespace = rest.partition(":")
        return cls(host, int(pid), start, namespace) if host and pid.isdecimal() else None

    def is_of(self, host: str, namespace: str) -> bool:
        """Return whether the process table that one sees on a host, in a namespace, tells of this process."""
        return self.host == host and self.namespace in {"", namespace}


def is_gone(holder: str) -> bool:
    """Return whether a holder was a process of this host, and is there no more."""
    name = HolderName.parse(holder)
    here = name is not None and name.is_of(socket.gethostname(), pid_namespace())
    return name is not None and here and not process_runs(name.pid, name.start)


def judge(
    view: View, *, gone: bool, moved: bool, still_for: float, generation: int, told: bool, patience: float
) -> Answer:
    """Return whether a driver of this generation may take over, by the holder's signs since the watcher's first look.

    `gone`: its process was on this host and is there no more. `moved`: its log or its heartbeat has grown.
    `still_for`: seconds of the watcher's own monotonic clock in which neither did.
    `told` is `--take-over`; `patience` are the seconds after which a holder without a sign of life counts as dead.
    """
    if view.holder is None or told or gone:
        return Answer.TAKE
    if view.takeover is not None and generation > view.takeover.generation:
        return Answer.TAKE
    if moved:
        return Answer.REFUSE
    return Answer.TAKE if still_for >= patience else Answer.WAIT


@dataclass
class HolderWatch:
    """Watches the holder of one log until the decision whether to take over; made once for each start.

    A start may use it several times, before Spark has started and after; it counts from its first look.
    `folder` is the job's checkpoint, which is there. `patience` are the seconds of `clock` without a sign of life after
    which a holder counts as dead. Without a generation, as of a command that is no driver, the log is taken only from a
    holder that is dead or gone. `stopped` says whether to give up waiting.
    """

    folder: CheckpointFolder
    _: KW_ONLY
    patience: float
    clock: Clock
    generation: int = 0
    told: bool = False
    stopped: Callable[[], bool] = lambda: False
    host: str = field(default_factory=socket.gethostname)
    namespace: str = field(default_factory=pid_namespace)
    runs: Callable[[int, str], bool] = field(default=process_runs)
    _seen: tuple[object, ...] | None = None
    _who: tuple[object, ...] | None = None
    _since: float = 0.0

    def __post_init__(self) -> None:
        """Open the records of heartbeats."""
        self._heartbeats = StatusRecords(control_store(self.folder.parent, make=False), self.folder.name)

    @cached_property
    def _log(self) -> Log:
        """A log that is kept searches for its tail from where it was."""
        log = job_log(self.folder, identified=False)
        if log is None:  # whoever watches has seen it
            raise StorageUnavailable("the checkpoint is gone", where=str(self.folder), path=str(self.folder))
        return log

    def look(self) -> View:
        """Survey the log again."""
        return survey(self._log)

    def heartbeat_of(self, writer: str | None) -> int | None:
        """Return the number of a writer's heartbeat if that is the newest."""
        return self._heartbeats.newest_of(writer)

    def may_take_over(self, view: View) -> None:
        """Return when the log may be taken over from the holder that the view shows.

        Raises HolderAlive, with `holder`, Fenced for a generation that is older than the log's, and StoppedWaiting.
        Waits at most `patience` for one holder.
        """
        newest = view.takeover.generation if view.takeover is not None else 0
        if 0 < self.generation < newest:
            raise Fenced(f"this start is generation {self.generation}, and generation {newest} has had the log since")
        while (answer := self._answer(view)) is Answer.WAIT:
            if self.stopped():
                raise StoppedWaiting
            self.clock.sleep(_LOOK_EVERY)
            view = self.look()
        if answer is Answer.REFUSE:
            raise HolderAlive(
                f"the log is held by {view.holder}, epoch {view.epoch}, and it is alive",
                holder=view.holder,
                epoch=view.epoch,
            )

    def _answer(self, view: View) -> Answer:
        writer = view.takeover.writer if view.takeover is not None else None
        who = (view.epoch, writer)
        seen = (view.tail, self.heartbeat_of(writer))
        now = self.clock.monotonic()
        if who != self._who:
            self._who, self._seen, self._since = who, seen, now
        return judge(
            view,
            gone=self._gone(view),
            moved=seen != self._seen,
            still_for=now - self._since,
            generation=self.generation,
            told=self.told,
            patience=self.patience,
        )

    def _gone(self, view: View) -> bool:
        name = HolderName.parse(view.takeover.holder) if view.takeover is not None else None
        return name is not None and name.is_of(self.host, self.namespace) and not self.runs(name.pid, name.start)


def holder_name() -> str:
    """Return host, process, its start time and its namespace: enough to tell whether a holder on this host is alive."""
    return f"{socket.gethostname()}:{os.getpid()}:{process_start(os.getpid())}:{pid_namespace()}".removesuffix(":")
