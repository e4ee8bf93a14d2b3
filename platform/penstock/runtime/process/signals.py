"""Stop a run that signals ask to stop: after the batch if it ends in time, else in the middle of it (F02)."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Any

import structlog

from penstock.errors import EXIT_RETRY
from penstock.time.clock import Clock

__all__ = ["Ending", "StopSwitch", "StoppableClock"]

log = structlog.get_logger()

_WORDS = {signal.SIGTERM: b"t", signal.SIGINT: b"i"}
_OVER = b"o"
_CANCEL_EVERY = 0.5
GRACE = 10.0
"""Seconds that a cancelled batch may take to end before the process ends without it."""


class Ending(Enum):
    """How a run ended without an error; the exit code is 0 for each."""

    FINISHED = "finished"
    STOPPED = "stopped"
    RESTORED = "restored; the next start resumes from there"
    ABANDONED = "stopped in the middle of a batch, which the next start does again"


class StopSwitch:
    """Handles SIGTERM and SIGINT. The first asks for a stop; a SIGINT after it ends the deadline at once.

    `heard` is true from the first on, `asked` soon after it, for threads that wait; `expired` is set when the deadline
    has passed. `deadline` and `grace` are seconds.
    A thread of the switch calls `told` once after the first signal. From the deadline on it calls `cancel` repeatedly,
    because a Spark job that is about to start cannot be cancelled yet.
    """

    def __init__(
        self, deadline: float, *, clock: Clock, grace: float = GRACE, leave: Callable[[int], Any] = os._exit
    ) -> None:
        self.deadline = deadline
        self.heard = False
        self.asked = threading.Event()
        self.expired = threading.Event()
        self.cancel: Callable[[], None] = lambda: None
        self.told: Callable[[], None] = lambda: None
        self._clock = clock
        self._grace = grace
        self._leave = leave
        self._ear, self._mouth = -1, -1
        self._told = threading.Event()

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Hear signals inside the block; used once, from the main thread."""
        before = {number: signal.getsignal(number) for number in _WORDS}
        # A signal handler only writes a byte: the locks of events and of the terminal may be held where it interrupts.
        self._ear, self._mouth = os.pipe()
        watching = threading.Thread(target=self._watch, name="penstock-deadline", daemon=True)
        watching.start()
        self.hear()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.write(self._mouth, _OVER)
            watching.join(timeout=self._grace)
            os.close(self._mouth)
            os.close(self._ear)

    def hear(self) -> None:
        """Install the handlers; called a second time after the start of Spark, which takes SIGINT for itself."""
        for number in _WORDS:
            signal.signal(number, self._heard)

    def ask(self) -> None:
        """Ask for a stop, as the first signal does."""
        self._heard(signal.SIGTERM, None)

    def wait_until_told(self) -> None:
        """Let what a stop has to say come before what is said next; returns at once where none was heard."""
        if self.heard:
            self._told.wait(self._grace)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        os.write(self._mouth, _WORDS[signal.Signals(number)])

    def _watch(self) -> None:
        if self._next(None) == _OVER:
            return
        self.asked.set()
        try:
            self.told()
        finally:
            self._told.set()
        ends = self._clock.monotonic() + self.deadline
        while (left := ends - self._clock.monotonic()) > 0:
            word = self._next(left)
            if word == _OVER:
                return
            if word == _WORDS[signal.SIGINT]:
                break
        self.expired.set()
        ends = self._clock.monotonic() + self._grace
        while self._clock.monotonic() < ends:
            with suppress(Exception):  # what is gone need not be cancelled
                self.cancel()
            if self._next(_CANCEL_EVERY) == _OVER:
                return
        log.error("run.left_hanging", seconds=self.deadline + self._grace)
        self._leave(EXIT_RETRY)

    def _next(self, seconds: float | None) -> bytes:
        """Return the next word that was said, or nothing after so many seconds."""
        # Not select.select: it refuses descriptors from 1,024 on, and a driver of many partitions holds more than that.
        ready = select.poll()
        ready.register(self._ear, select.POLLIN)
        return os.read(self._ear, 1) if ready.poll(None if seconds is None else seconds * 1_000) else b""


class StoppableClock:
    """A clock that waits as another one does, but no longer than until a stop is requested.

    It calls `napping` while it waits, twice a second or so: a waiting thread is not stuck.
    """

    def __init__(self, clock: Clock, asked: threading.Event) -> None:
        self.napping: Callable[[], None] = lambda: None
        self._clock = clock
        self._asked = asked

    def wall(self) -> int:
        """Return microseconds since 1970, UTC."""
        return self._clock.wall()

    def monotonic(self) -> float:
        """Return seconds of a clock that never moves backwards."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait a little, or until asked to stop."""
        self.napping()
        self._asked.wait(seconds)

    def sleep_until(self, wall: int) -> None:
        """Wait for a tick, in naps because the wall clock may be set, or until asked to stop."""
        while (left := wall - self._clock.wall()) > 0 and not self._asked.is_set():
            self.napping()
            self._asked.wait(min(left / 1_000_000, 0.5))
