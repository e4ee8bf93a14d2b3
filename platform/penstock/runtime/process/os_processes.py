"""Identify processes of this machine, and end whole sessions of them.

A driver is several processes: Python, the JVM that it starts, and the Python workers that the JVM starts. They are in
process groups of their own but in one session, so the session is what is watched and killed. A process is named by its
number and its start, because numbers are used again; a session's number is not while one of its processes lives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = [
    "argv_of",
    "environment_of",
    "kill_session",
    "leaders",
    "pid_namespace",
    "process_runs",
    "process_start",
    "session_members",
]

_PROC = Path("/proc")
_PAUSE = 0.02


def process_start(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty where there is no such process."""
    with suppress(OSError, IndexError):
        return _stat(pid)[19]
    # Where there is no /proc: macOS.
    return "".join(c for c in _ps("lstart=", pid) if c.isalnum())


def pid_namespace() -> str:
    """Return the number of the namespace that numbers of processes mean something in here; empty where there is none.

    Two containers under one host name see different processes under the same number.
    """
    with suppress(OSError):
        return str((_PROC / "self" / "ns" / "pid").stat().st_ino)
    return ""


def process_runs(pid: int, start: str) -> bool:
    """Return whether the process that started then still runs here.

    One that was killed and that its parent has not asked after yet is dead, though its number is taken.
    """
    started = process_start(pid)
    return bool(started) and started == start and not _is_zombie(pid)


def session_members(session: int) -> list[int]:
    """Return the processes of a session that run; one that has ended and waits to be asked after does not."""
    return [pid for pid, known in _sessions() if known == session and not _is_zombie(pid)]


def kill_session(session: int, start: str, *, within: float) -> list[int]:
    """End every process of a session with SIGKILL; return those that are still there after so many seconds.

    `session` and `start` are of the process that began it. Nothing is done where its number is another's by now.
    """
    ends = time.monotonic() + within
    # A process may be born while the list is read: ask again until it is empty.
    while alive := session_members(session):
        if session in alive and process_start(session) != start:
            return []
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > ends:
            return alive
        time.sleep(_PAUSE)
    return []


def argv_of(pid: int) -> list[str]:
    """Return the command line of a process; empty where it cannot be read."""
    return _words(pid, "cmdline")


def environment_of(pid: int) -> dict[str, str]:
    """Return the initial environment of a process of our own user; empty where it cannot be read."""
    return {name: value for name, _, value in (word.partition("=") for word in _words(pid, "environ"))}


def leaders() -> list[int]:
    """Return the processes that began a session."""
    return [pid for pid, session in _sessions() if pid == session]


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield all processes, each with its session."""
    for pid in _all_pids():
        with suppress(ProcessLookupError, PermissionError):
            yield pid, os.getsid(pid)


def _all_pids() -> list[int]:
    if (_PROC / "self").exists():
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    command = ["ps", "-A", "-o", "pid="]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    return [int(pid) for pid in listed.stdout.split()]


def _is_zombie(pid: int) -> bool:
    if sys.platform != "linux":
        return _ps("state=", pid).strip().startswith("Z")
    try:
        return _stat(pid)[0] in ("Z", "X")
    except (OSError, IndexError):
        return True


def _words(pid: int, file: str) -> list[str]:
    with suppress(OSError):
        return (_PROC / str(pid) / file).read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    return []


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    return text.rsplit(")", 1)[1].split()


def _ps(field: str, pid: int) -> str:
    command = ["ps", "-o", field, "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - a number varies
