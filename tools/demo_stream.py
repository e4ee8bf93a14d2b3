"""Run the demo's stream under a supervisor of its own, follow its events, and end all that belongs to it.

What is started is in sessions of its own: the supervisor, and each driver with its JVM and Spark's Python workers.
Whatever ends the block, the supervisor is ended first, so that nobody starts what is being ended.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.runtime.process.os_processes import kill_session, process_start, session_members
from penstock.supervise.launcher import Handle
from penstock.supervise.launchers.local import LocalLauncher, events_of, log_files
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import DriverSlot, Phase
from penstock.supervise.watching import logs_of

__all__ = ["DemoFailed", "DemoStream"]

_SILENCE = 240.0
"""Seconds without an event after which a stream is given up; starting Spark on a loaded machine takes the longest."""
_DYING = 20.0
"""Seconds that killed processes have to be gone."""
_BEGINNING = 60.0
"""Seconds that the supervisor has to begin."""
_LOOK_EVERY = 0.05
_TAIL = 15
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):
    """The stream failed, or said nothing for too long; what its driver wrote last is in the text."""


class DemoStream:
    """Supervise one job until the block ends; whatever happens, nothing of it is left behind.

    `root` is the checkpoint root of the job, `log` takes what the supervisor says.
    """

    def __init__(self, job: str, *, root: Path, project: Path, env: Mapping[str, str], log: Path) -> None:
        self._job, self._root, self._project = job, root, project
        self._env, self._log = dict(env), log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._start = ""
        self._generation = 1
        self._read = 0

    def __enter__(self) -> Self:
        """Start the supervisor."""
        with self._log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                self._words("supervise", "--json"),
                cwd=self._project,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._start = process_start(self._supervisor.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of it; a second Ctrl-C does not leave half of it."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
        try:
            if self._supervisor is not None:
                kill_session(self._supervisor.pid, self._start, within=_DYING)
                self._supervisor.wait()
            if self._root.is_dir():
                for _, stream in StreamRecords(LocalStore(self._root), self._job).history():
                    self._end(stream.driver)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def until_supervised(self) -> None:
        """Wait until the supervisor has made the control root, without which nothing can be asked; or DemoFailed."""
        assert self._supervisor is not None
        ends = time.monotonic() + _BEGINNING
        while not self._root.is_dir():
            if self._supervisor.poll() is not None or time.monotonic() > ends:
                raise DemoFailed(f"the supervisor does not begin; see {self._log}")
            time.sleep(_LOOK_EVERY)

    def ask(self, *words: str) -> None:
        """Run a command; DemoFailed where it is refused."""
        ran = subprocess.run(
            self._words(*words),
            check=False,
            capture_output=True,
            text=True,
            cwd=self._project,
            env=self._env,
            stdin=subprocess.DEVNULL,
        )
        if ran.returncode != 0:
            raise DemoFailed(f"penstock {' '.join(words)} ended with {ran.returncode}\n{ran.stderr}")

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of one driver after another until the stream is finished; DemoFailed where it fails."""
        records = StreamRecords(LocalStore(self._root), self._job)
        silent_since = time.monotonic()
        while True:
            stream = records.newest()  # before the file is read: what a driver wrote before its end is read after it
            for event in self._new_events():
                silent_since = time.monotonic()
                yield event
            while self._generation < stream.generation:  # what the drivers before the newest have said is read as well
                self._generation, self._read = self._generation + 1, 0
                yield from self._new_events()
            if stream.phase is Phase.FAILED:
                raise DemoFailed(f"the stream failed: {stream.reason}\n{self._last_words()}")
            if stream.phase.is_final and stream.first > 0:
                return
            if time.monotonic() - silent_since > _SILENCE:
                raise DemoFailed(f"the driver has said nothing for {_SILENCE:g} s\n{self._last_words()}")
            time.sleep(_LOOK_EVERY)

    def reaches(self, phase: Phase, *, within: float) -> bool:
        """Wait until the stream is in a phase, and return whether it was within so many seconds."""
        records = StreamRecords(LocalStore(self._root), self._job)
        ends = time.monotonic() + within
        while records.newest().phase is not phase:
            if time.monotonic() > ends:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def failures(self) -> int:
        """Return how many failures of drivers the supervisor has counted at most, within an hour."""
        history = StreamRecords(LocalStore(self._root), self._job).history()
        return max((len(stream.failures) for _, stream in history), default=0)

    def kill_driver(self) -> int:
        """End every process of the driver with SIGKILL, wait until they are gone, and return how many there were."""
        driver = StreamRecords(LocalStore(self._root), self._job).newest().driver
        handle = self._handle(driver)
        count = len(session_members(int(str(handle["pid"])))) if handle is not None else 0
        left = self._end(driver)
        if left:
            raise DemoFailed(f"processes {left} of the driver are still there after SIGKILL")
        return count

    def _handle(self, driver: DriverSlot | None) -> Handle | None:
        """Return where a driver is; one whose start was not recorded yet is looked for."""
        if driver is None or driver.foreign or driver.handle is not None:
            return driver.handle if driver is not None and not driver.foreign else None
        return LocalLauncher().look(self._job, driver, logs_of(LocalFolder(self._root), self._job)).handle

    def _end(self, driver: DriverSlot | None) -> list[int]:
        handle = self._handle(driver)
        if handle is None:
            return []
        return kill_session(int(str(handle["pid"])), str(handle["start"]), within=_DYING)

    def _new_events(self) -> Iterator[dict[str, Any]]:
        """Yield what the driver of this generation has said since the last time, whole lines only."""
        path, _ = log_files(logs_of(LocalFolder(self._root), self._job), self._generation)
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        yield from events_of(whole)

    def _last_words(self) -> str:
        _, path = log_files(logs_of(LocalFolder(self._root), self._job), self._generation)
        path = path if path.is_file() else self._log
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"the last lines of {path.name}:", *lines[-_TAIL:]])

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock", *words]
