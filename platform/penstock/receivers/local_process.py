"""Start the process of a receiver beside the driver, and exchange commands and events with it by its pipes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Protocol, TypeAlias

from penstock.receivers.process import ReceiverOrder, write_order

__all__ = ["Launch", "LocalProcess", "ReceiverProcess", "opened"]


class ReceiverProcess(Protocol):
    """A receiver's process as its supervisor sees it, wherever it runs."""

    @property
    def pid(self) -> int | None:
        """The process on this machine; None where it runs on another one."""

    def command(self, command: Mapping[str, Any]) -> None:
        """Send a command of `penstock.receivers.process`; one that arrives nowhere is passed over."""

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield its events as they come, until it has ended."""

    def kill(self) -> None:
        """End it at once; safe from any thread. `events` ends then."""

    def close(self) -> str:
        """End it where it still runs, and return how it has ended."""


Launch: TypeAlias = Callable[[ReceiverOrder], ReceiverProcess]
"""Starts a process by its order; raises PenstockError or OSError where none can be started."""


def opened(*, stdout: int, own_group: bool) -> subprocess.Popen[bytes]:
    """Start a process that waits for its order on standard input, whose end tells it that its starter is gone."""
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.receivers.process"],
        stdin=subprocess.PIPE,
        stdout=stdout,
        process_group=0 if own_group else None,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


class LocalProcess:
    """A process beside the driver: in its session, which is ended as a whole, but in a group of its own.

    Ctrl-C is for the driver, which then stops the receiver.
    """

    def __init__(self, order: ReceiverOrder) -> None:
        data = io.BytesIO()
        write_order(order, data)  # it fails where the receiver cannot be pickled: then there is no process to end
        self._process = opened(stdout=subprocess.PIPE, own_group=True)
        with suppress(BrokenPipeError):  # then its end tells why
            self._input.write(data.getvalue())
            self._input.flush()
        os.set_blocking(self._input.fileno(), False)

    @property
    def pid(self) -> int | None:
        """The process."""
        return self._process.pid

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def command(self, command: Mapping[str, Any]) -> None:
        """Write a command, a line; of a process that has ended, its events tell.

        A process that is stopped reads none. When its pipe is full the driver must not wait for it, so the command is
        passed over. A pipe takes so short a line whole, or not at all.
        """
        with suppress(OSError, ValueError):
            os.write(self._input.fileno(), json.dumps(command).encode() + b"\n")

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield its events."""
        assert self._process.stdout is not None
        with suppress(ValueError):  # half a line of a process that was killed
            for line in self._process.stdout:
                yield json.loads(line)

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def close(self) -> str:
        """Kill it, and return its exit code in words."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return f"its process ended with {code}, and said nothing"
