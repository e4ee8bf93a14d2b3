"""Start one receiver's process again and again, each time in a new epoch, and know how it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from penstock.errors import PenstockError
from penstock.receivers.block_log import BlockLog
from penstock.receivers.blocks import Place
from penstock.receivers.local_process import Launch, LocalProcess, ReceiverProcess
from penstock.receivers.process import ReceiverOrder

__all__ = ["Event", "ReceiverState", "ReceiverSupervisor", "State", "pause_after"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_HEALTHY = 60.0
"""Seconds after which a receiver that ends counts as one that has worked, so that the pauses are short again."""
_PATIENCE = 15.0
"""Seconds that a process may take to stop."""


class State(Enum):
    """What a receiver does."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to be started again"
    STOPPED = "stopped"


class Event(Enum):
    """What listeners hear, by the name of their method."""

    STARTED = "on_receiver_started"
    ERROR = "on_receiver_error"
    STOPPED = "on_receiver_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverState:
    """How a receiver is.

    Attributes:
        log: Its name, as `orders-0`.
        state: What it does.
        epoch: The epoch of its newest start.
        rows: The rows that it has kept, in this driver's run.
        restarts: How often it was started again in this run.
        error: The newest error in words, None before the first.
        host: The machine that it runs on, of a cluster; None for the driver's.
        address: Where senders reach it, or the server that it reads from, as `127.0.0.1:8080`; None where unknown.
    """

    log: str
    state: State = State.STARTING
    epoch: int | None = None
    rows: int = 0
    restarts: int = 0
    error: str | None = None
    host: str | None = None
    address: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "receiver": self.log,
            "state": self.state.value,
            "epoch": self.epoch,
            "rows": self.rows,
            "restarts": self.restarts,
            "error": self.error,
            "host": self.host,
            "address": self.address,
        }


def pause_after(failures: int) -> float:
    """Return the seconds before the next start, after so many starts in a row that came to nothing."""
    return min(_FIRST_PAUSE * 2.0 ** min(failures - 1, 20), _LONGEST_PAUSE) if failures else 0.0


class ReceiverSupervisor:
    """Keep one receiver running, on a thread of its own.

    Args:
        log: The blocks of the receiver.
        known: Returns a place of the chain from which on no block is deleted.
        order: Makes the order of a process whose blocks begin at a place.
        tell: Hears each event, with the state, on the thread of the supervisor.
        rate: Rows a second at first; None for no bound.
        launch: Starts a process; by itself beside the driver.
    """

    def __init__(
        self,
        log: BlockLog,
        *,
        known: Callable[[], Place],
        order: Callable[[Place, float | None], ReceiverOrder],
        tell: Callable[[Event, ReceiverState], None],
        rate: float | None = None,
        launch: Launch = LocalProcess,
    ) -> None:
        self._log = log
        self._known = known
        self._order = order
        self._tell = tell
        self._launch = launch
        self._rate = rate
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: ReceiverProcess | None = None
        self._kept = 0
        self._thread = threading.Thread(target=self._run, name=f"penstock-{log.receiver}", daemon=True)
        self.state = ReceiverState(log=log.receiver)

    @property
    def pid(self) -> int | None:
        """Return the process of the receiver, None while there is none on this machine."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def limit(self, rate: float | None) -> None:
        """Bound the rows that the receiver takes a second; None for no bound, 0 to hold its senders up."""
        with self._lock:
            changed, self._rate = rate != self._rate, rate
        if changed:
            self._command({"rate": rate})

    def ask_to_stop(self) -> None:
        """Let the receiver end: it keeps what it has taken, and takes no more."""
        self._stopping.set()
        self._command({"stop": True})

    def wait(self) -> None:
        """Wait until it has ended; a process that does not is killed."""
        self._thread.join(_PATIENCE)
        process = self._process
        if process is not None:
            process.kill()
            self._thread.join(_PATIENCE)

    def _command(self, command: Mapping[str, Any]) -> None:
        process = self._process
        if process is not None:
            with self._lock:
                process.command(command)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began, kept = time.monotonic(), self._kept
            try:
                error = self._once()
            except Exception as why:  # noqa: BLE001 - of the store, of Spark, of an order that cannot be pickled
                error = str(why) if isinstance(why, PenstockError | OSError) else f"{type(why).__name__}: {why}"
            if self._stopping.is_set():
                break
            worked = time.monotonic() - began > _HEALTHY and self._kept > kept
            failures = 1 if worked else failures + 1
            self._change(state=State.WAITING, error=error, restarts=self.state.restarts + 1)
            self._tell(Event.ERROR, self.state)
            self._stopping.wait(pause_after(failures))
        self._change(state=State.STOPPED)
        self._tell(Event.STOPPED, self.state)

    def _once(self) -> str:
        """Run one process to its end, and return why it has ended."""
        self._change(state=State.STARTING)
        place = self._log.end_epochs(self._known())
        self._change(epoch=place.epoch)
        with self._lock:
            rate = self._rate
        process = self._launch(self._order(place, rate))
        ended: Mapping[str, Any] = {}
        try:
            self._process = process
            if self._stopping.is_set():
                process.command({"stop": True})
            with self._lock:
                late, rate = rate != self._rate, self._rate
            if late:
                process.command({"rate": rate})
            for event in process.events():
                ended = self._heard(event) or ended
        finally:
            self._process = None
            how = process.close()
            self._kept = self.state.rows
        return str(ended["error"] or ended["reason"]) if ended else how

    def _heard(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Note an event of the process; return the one that says why it ends."""
        match event["event"]:
            case "placed":
                self._change(host=event["host"])
            case "address":
                self._change(address=event["address"])
            case "started":
                self._change(state=State.RUNNING)
                self._tell(Event.STARTED, self.state)
            case "stored":
                self._change(rows=self._kept + event["rows"])
            case "error":
                self._change(error=event["error"])
                self._tell(Event.ERROR, self.state)
            case "ended":
                return event
        return {}

    def _change(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
