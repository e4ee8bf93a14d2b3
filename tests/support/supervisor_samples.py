"""A supervisor of a project with one job, and a launcher of the tests' own."""

from __future__ import annotations

from pathlib import Path

from policy_samples import SETTINGS

from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.launcher import Handle, LaunchOrder
from penstock.supervise.machine import Life, Seen
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import DriverSlot, Stream
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import ManualClock

HANDLE: Handle = {"host": "elsewhere", "pid": 7, "start": "1"}


class Drivers:
    """A launcher that starts nothing and says what the test wants."""

    def __init__(self) -> None:
        self.launched: list[LaunchOrder] = []
        self.killed: list[Handle] = []
        self.sees = Seen(Life.RUNS)
        self.refuses: Exception | None = None

    def launch(self, order: LaunchOrder) -> Handle:
        """Note the order."""
        if self.refuses is not None:
            raise self.refuses
        self.launched.append(order)
        return HANDLE | {"pid": len(self.launched)}

    def look(self, job: str, slot: DriverSlot, logs: Path) -> Seen:
        """Say what was to be said."""
        return self.sees

    def kill(self, handle: Handle) -> None:
        """Note it."""
        self.killed.append(handle)


def supervisor_of(folder: Path, drivers: Drivers, clock: ManualClock) -> Supervisor:
    """Return a supervisor of a project with one job."""
    project = folder / "project"
    (project / "jobs").mkdir(parents=True)
    (project / "jobs" / "j.py").write_text("one\n")
    return Supervisor(
        root=folder / "root", project=project, launcher=drivers, settings_of=lambda _job, _code: SETTINGS, clock=clock
    )


def records(supervisor: Supervisor, job: str = "j") -> StreamRecords:
    """Return the records of a job's stream."""
    return StreamRecords(supervisor.store, job)


def ask(supervisor: Supervisor, verb: Verb, name: str = "a", job: str = "j") -> None:
    """Command a stream."""
    now = supervisor.clock.wall()
    records(supervisor, job).update(lambda stream: fold(stream, Command(verb=verb, id=name), now))


def put(supervisor: Supervisor, stream: Stream, job: str = "j") -> None:
    """Write a stream's record as it is."""
    records(supervisor, job).update(lambda _found: (stream, None))
