"""Run the receivers of a job beside its driver: start and stop them, bound their rates, report how they are."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Self

import structlog

from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.listener import Listener
from penstock.errors import CannotListen, ConfigError, PenstockError
from penstock.graph.graph import JobGraph
from penstock.graph.listeners import ReceiverInfo
from penstock.graph.policies import MaxRate
from penstock.rates.limits import Limits
from penstock.receivers.local_process import LocalProcess
from penstock.receivers.supervisor import Event, ReceiverState, ReceiverSupervisor
from penstock.runtime.driver.admission import rates_of
from penstock.runtime.process.batch_events import tell_listeners
from penstock.runtime.spark.receiver_tasks import ReceiverTasks
from penstock.sources.base import CheckpointedReader, Position, SourceReader
from penstock.sources.received import ReceivingReader
from penstock.time.clock import Clock

__all__ = ["MOST_WAITING", "Receivers", "receiver_rate", "sweeping"]

log = structlog.get_logger()

_ENDING, _LOOK = 5.0, 0.1
"""Seconds for what is in the way of a receiver to go, and between two looks."""
MOST_WAITING = 2**30
"""Bytes of blocks of one receiver that no batch has read, above which its senders are held up."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Running:
    """A receiver that was started, with the source that it is of."""

    source: str
    index: int
    reader: ReceivingReader
    supervisor: ReceiverSupervisor
    rate: float | None


@dataclass(eq=False)
class Receivers(Listener):
    """The receivers of one run of a driver.

    They start with the first call of `serve`, which the driver makes when it owns the log, and only where the run has
    entered this object. So a driver that only restores, or reads what is there, receives nothing. All but the threads
    of supervisors is on the driver's thread.

    Attributes:
        draining: Returns whether the driver reads what is there and ends: then nothing more is received.
        listeners: Hear `on_receivers`.
        tasks: Runs receivers on the executors of a cluster; None where they run beside the driver.
        in_force: Returns the Commit in force, None for none; safe from any thread.
    """

    graph: JobGraph
    readers: Mapping[str, SourceReader]
    clock: Clock
    listeners: Sequence[Listener] = ()
    draining: Callable[[], bool] = lambda: False
    tasks: ReceiverTasks | None = None
    in_force: Callable[[], Commit | None] = lambda: None
    _running: list[_Running] = field(default_factory=list)
    _events: queue.SimpleQueue[tuple[str, int, Event, ReceiverState]] = field(default_factory=queue.SimpleQueue)
    _is_on: bool = False
    _limits: Mapping[str, Any] = field(default_factory=dict)
    _shown: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Let the next call of `serve` start the receivers; raises ReceiversTakeAllCores on too small a cluster."""
        if self.tasks is not None:
            self.tasks.refuse(sum(reader.receiving.receivers for reader in self._receiving().values()))
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all receivers; what they have acknowledged is durable."""
        self.close()

    def begin(self) -> None:
        """Start the receivers at once: for a driver that owns the log, and waits for a test to ask for a batch."""
        self.__enter__()
        self.serve()

    def serve(self) -> None:
        """Start what is to run, and report what has happened since the last call."""
        if self._is_on and self.draining():
            self.close()
        if self._is_on and not self._running:
            self._start()
        self._push()
        self._report()

    def on_batch_submitted(self, offsets: Offsets) -> None:
        """Learn the limits in force (SEMANTICS 8.6)."""
        self._limits = offsets.limits
        self._push()

    def close(self) -> None:
        """Let all receivers end, and wait for that."""
        self._is_on = False
        for running in self._running:
            running.supervisor.ask_to_stop()
        for running in self._running:
            running.supervisor.wait()
        self._report()
        self._running = []

    def pids(self) -> list[int | None]:
        """Return the process of each receiver, None where there is none at the moment."""
        return [running.supervisor.pid for running in self._running]

    def _start(self) -> None:
        if self.tasks is None:
            self._refuse_shared_addresses()
            for name, reader in self._receiving().items():
                self._check(name, reader)
        for name, reader in self._receiving().items():
            for index in range(reader.receiving.receivers):
                self._running.append(self._started(name, reader, index))
        if not self._running:
            self._is_on = False

    def _refuse_shared_addresses(self) -> None:
        """Raise ConfigError where two sources listen on one address, of which the second could never have it."""
        listening: dict[str, str] = {}
        for name, reader in self._receiving().items():
            receiver = reader.receiving.receiver
            if isinstance(receiver, type) or receiver.listens is None:
                continue
            for other, taken in listening.items():
                if _collide(receiver.listens, taken):
                    where = f"sources {other!r} and {name!r} both listen on {receiver.listens}"
                    raise ConfigError(f"{where}; give one another port")
            listening[name] = receiver.listens

    def _check(self, source: str, reader: ReceivingReader) -> None:
        """Raise what is in the way of a receiver here for longer than one of the driver before needs to end."""
        receiver = reader.receiving.receiver
        if isinstance(receiver, type):
            return  # there is no object that could say so
        until: float | None = None
        while True:
            try:
                receiver.on_check()
            except (PenstockError, OSError) as why:
                if until is None:
                    # A driver that hangs has receivers that live. With its epoch sealed, one ends at its next rows.
                    self._seal(source, reader)
                    until = time.monotonic() + _ENDING
                elif time.monotonic() > until:
                    raise _named(why, source) from why
                time.sleep(_LOOK)
            else:
                return

    def _seal(self, source: str, reader: ReceivingReader) -> None:
        for index in range(reader.receiving.receivers):
            blocks = reader.log(str(index))
            assert blocks is not None  # the driver owns the log, which is in the same store
            blocks.end_epochs(reader.known(index, self._position(source)))

    def _started(self, name: str, reader: ReceivingReader, index: int) -> _Running:
        blocks = reader.log(str(index))
        assert blocks is not None  # the driver owns the log, which is in the same store
        rate = self._rate(name)
        supervisor = ReceiverSupervisor(
            blocks,
            known=lambda: reader.known(index, self._position(name)),
            order=lambda place, rate: reader.order(index, place, rate),
            tell=lambda event, state: self._events.put((name, index, event, state)),
            rate=rate,
            launch=LocalProcess if self.tasks is None else self.tasks.launch,
        )
        supervisor.start()
        return _Running(name, index, reader, supervisor, rate)

    def _position(self, source: str) -> Position | None:
        commit = self.in_force()
        return None if commit is None or source not in commit.sources else commit.sources[source].position

    def _receiving(self) -> dict[str, ReceivingReader]:
        return {name: reader for name, reader in self.readers.items() if isinstance(reader, ReceivingReader)}

    def _rate(self, source: str) -> float | None:
        counts = {name: reader.receiving.receivers for name, reader in self._receiving().items()}
        own = rates_of(Limits.recorded(self._limits), source, self.graph.rates.get(source, MaxRate()))
        return receiver_rate(self._limits.get("rate"), own, of_source=counts[source], of_all=sum(counts.values()))

    def _push(self) -> None:
        """Bound each receiver by the limits, and hold up those of which too much waits."""
        for running in self._running:
            full = running.reader.waiting_bytes(running.index) > MOST_WAITING
            rate = 0.0 if full else self._rate(running.source)
            if rate != running.rate:
                running.rate = rate
                running.supervisor.limit(rate)

    def _report(self) -> None:
        while not self._events.empty():
            self._tell(*self._events.get())
        states = [running.supervisor.state.to_json() for running in self._running]
        if states != self._shown and states:
            self._shown = states
            for listener in self.listeners:
                listener.on_receivers(states)

    def _tell(self, source: str, index: int, event: Event, state: ReceiverState) -> None:
        facts = {"source": source, "receiver": index, "epoch": state.epoch}
        match event:
            case Event.STARTED:
                log.info("receiver.started", **facts)
            case Event.ERROR:
                log.warning("receiver.error", **facts, error=state.error)
            case Event.STOPPED:
                log.info("receiver.stopped", **facts)
        info = ReceiverInfo(
            source=source,
            receiver=index,
            epoch=state.epoch,
            time=_EPOCH + timedelta(microseconds=self.clock.wall()),
            restarts=state.restarts,
            error=state.error,
        )
        tell_listeners(self.graph.listeners, event.value, info, source=source)


def _collide(one: str, other: str) -> bool:
    """Return whether two addresses, as "127.0.0.1:8080", cannot both be had; that of all interfaces includes others."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return False
    numbers = [_number(host), _number(other_host)]
    return None in numbers or numbers[0] == numbers[1]


def _number(host: str) -> str | None:
    """Return the address of a host, None for that of all interfaces, and its name where nobody knows it."""
    try:
        number = socket.gethostbyname(host)
    except OSError:
        return host
    return None if ip_address(number).is_unspecified else number


def _named(why: PenstockError | OSError, source: str) -> PenstockError:
    """Return an error of a check with the source that it is of."""
    where = f"source {source!r}"
    if isinstance(why, OSError) and not isinstance(why, PenstockError):
        return CannotListen(f"a receiver cannot start: {why}", where=where)
    why.where = why.where or where
    return why


def receiver_rate(rate: float | None, own: MaxRate, *, of_source: int, of_all: int) -> float | None:
    """Return the rows a second that one receiver may take, None for no bound (SEMANTICS 8.6).

    A rate is divided evenly: a receiver that is held up cannot tell how much its senders have.

    Args:
        rate: The estimated rate of the newest batch, None for none.
        own: The limits of the source.
        of_source: The receivers of the source, among which its limit is divided.
        of_all: All receivers of the job, among which the estimated rate is divided.
    """
    bounds = (
        (rate, of_all),
        (own.rows, of_source),
        (own.per_partition, 1),
    )
    return min((float(bound) / share for bound, share in bounds if bound is not None), default=None)


def sweeping(readers: Mapping[str, SourceReader]) -> Callable[[Sequence[Commit]], int]:
    """Return what deletes the files of sources that no Commit reads on from (`driver.retention`)."""

    def sweep(commits: Sequence[Commit]) -> int:
        deleted = 0
        for name, reader in readers.items():
            if isinstance(reader, CheckpointedReader):
                positions = [commit.sources[name].position for commit in commits if name in commit.sources]
                deleted += reader.sweep(positions)
        return deleted

    return sweep
