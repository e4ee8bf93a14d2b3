"""Start the driver of the demo in a session of its own, follow its events, and end all that belongs to it.

A driver is several processes: Python, the JVM it starts, and the Python workers that the JVM starts.
They are in process groups of their own but in one session, so the session is what is killed and waited for.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Driver", "DriverFailed", "members"]

_SILENCE = 180.0
"""Seconds without an event after which a driver is given up; starting Spark on a loaded machine takes the longest."""
_DYING = 20.0
"""Seconds that killed processes have to be gone."""
_TAIL = 15
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DriverFailed(Exception):
    """The driver ended badly, or said nothing for too long; what it wrote last is in the text."""


class Driver:
    """Run one command until the block ends; whatever happens, nothing of it is left behind.

    `log` takes what it writes to standard error; standard output is read as JSON lines.
    """

    def __init__(self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        self._command = [str(part) for part in command]
        self._cwd, self._env, self._log = cwd, env, log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        with self._log.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of it; a second Ctrl-C does not leave half of it."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
        try:
            self.kill()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def pid(self) -> int:
        """Return the process id of the driver, which is the id of its session as well."""
        assert self._process is not None
        return self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the driver's events until it ends; DriverFailed where it ends with another code than 0."""
        while True:
            try:
                line = self._lines.get(timeout=_SILENCE)
            except queue.Empty:
                raise DriverFailed(f"the driver has said nothing for {_SILENCE:g} s\n{self._last_words()}") from None
            if line is None:
                break
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
        assert self._process is not None
        code = self._process.wait()
        if code != 0:
            raise DriverFailed(f"the driver ended with exit code {code}\n{self._last_words()}")

    def kill(self) -> int:
        """End every process of the session with SIGKILL, wait until they are gone, and return how many there were."""
        assert self._process is not None
        seen: set[int] = set()
        deadline = time.monotonic() + _DYING
        # A process may be born while the list is read: ask again until it is empty.
        while alive := members(self.pid):
            seen.update(alive)
            for pid in alive:
                _kill(pid)
            self._process.poll()  # takes the leader's exit code, so that it is no zombie in the next list
            if time.monotonic() > deadline:
                raise DriverFailed(f"processes {alive} of the driver are still there after SIGKILL")
            time.sleep(0.02)
        self._process.wait()
        return len(seen)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(["the last lines of its log:", *lines[-_TAIL:]])


def members(session: int) -> list[int]:
    """Return the processes of a session that run; one that has ended and waits to be asked after does not."""
    found = []
    for pid in _all_pids():
        try:
            if os.getsid(pid) == session and not _is_zombie(pid):
                found.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def _all_pids() -> list[int]:
    proc = Path("/proc")
    if (proc / "self").exists():
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    listed = subprocess.run(["ps", "-A", "-o", "pid="], check=True, capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def _is_zombie(pid: int) -> bool:
    if sys.platform != "linux":
        state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], check=False, capture_output=True, text=True)
        return state.stdout.strip().startswith("Z")
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have been faster
        os.kill(pid, signal.SIGKILL)
