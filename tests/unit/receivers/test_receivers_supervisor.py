"""A receiver's process is started again when it dies, in a new epoch, and what it acknowledged stays (F47)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pushing import Acknowledging, Counting, Failing, Restarting, Sender, until

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING, BlockLog
from penstock.receivers.blocks import Place, rows_in
from penstock.receivers.process import ReceiverOrder
from penstock.receivers.receiver import Rows
from penstock.receivers.supervisor import Event, ReceiverState, ReceiverSupervisor, State, pause_after

pytestmark = pytest.mark.slow


def encode(rows: Rows) -> pa.Table:
    """Make a table of the rows of tests."""
    listed = [rows] if isinstance(rows, dict) else list(rows)
    return pa.Table.from_pylist(listed, schema=pa.schema([("k", pa.int64())]))


class Run:
    """A supervisor, what it has told, and the blocks."""

    def __init__(self, folder: Path, receiver: Receiver, rate: float | None = None) -> None:
        self.folder = LocalFolder(folder)
        self.log = BlockLog(self.folder.store(), "s-0")
        self.told: list[tuple[Event, ReceiverState]] = []
        self.supervisor = ReceiverSupervisor(
            self.log,
            known=lambda: BEGINNING,
            order=lambda place, rate: ReceiverOrder(
                receiver=receiver, index=0, receivers=1, encode=encode, checkpoint=self.folder.address, log="s-0",
                place=place, interval=0.01, most=100_000, rate=rate,
            ),
            tell=lambda event, state: self.told.append((event, state)),
            rate=rate,
        )  # fmt: skip
        self.supervisor.start()

    @property
    def state(self) -> ReceiverState:
        """Return how the receiver is."""
        return self.supervisor.state

    def rows(self) -> list[int]:
        """Return the rows that the chain has."""
        kept: list[int] = []
        for place, _ in self.log.follow(BEGINNING):
            path = self.log.path(place)
            kept += rows_in(self.log.store.read(path), receiver="s-0", place=place, path=path)["k"].to_pylist()
        return kept

    def stop(self) -> None:
        """End it."""
        self.supervisor.ask_to_stop()
        self.supervisor.wait()


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a receiver; all end with the test."""
    runs: list[Run] = []

    def started(receiver: Receiver, rate: float | None = None) -> Run:
        runs.append(Run(tmp_path / "job", receiver, rate))
        return runs[-1]

    yield started
    for run in runs:
        run.stop()


@pytest.mark.fault("F47")
def test_a_killed_receiver_loses_nothing_that_it_acknowledged(tmp_path: Path, start: Start) -> None:
    """SIGKILL again and again, under a sender; each number is there once at most, and each acknowledged one is."""
    (tmp_path / "ports").mkdir()
    run = start(Acknowledging(str(tmp_path / "ports")))
    sender = Sender(tmp_path / "ports")
    for _ in range(3):
        sender.until_more(20)
        os.kill(until(lambda: run.supervisor.pid), signal.SIGKILL)
    sender.until_more(20)
    sender.stop()
    run.stop()
    kept = run.rows()
    assert len(kept) == len(set(kept))
    assert set(sender.acknowledged) <= set(kept) <= set(sender.sent)
    assert run.state.restarts == 3
    assert run.state.rows >= 80
    assert [event for event, _ in run.told] == [*[Event.STARTED, Event.ERROR] * 3, Event.STARTED, Event.STOPPED]


def test_a_receiver_that_raises_is_started_until_it_works(tmp_path: Path, start: Start) -> None:
    """Its error, and where it was raised, is in the state."""
    run = start(Failing(str(tmp_path / "mended")))
    until(lambda: run.state.restarts >= 2)
    assert run.state.state is State.WAITING or run.state.error is not None
    assert "ZeroDivisionError: not yet" in str(run.state.error)
    assert "pushing.py:" in str(run.state.error)
    (tmp_path / "mended").touch()
    assert until(run.rows) == [1]
    assert run.state.epoch is not None
    assert run.state.epoch >= 3


def test_a_restart_keeps_what_was_taken(start: Start) -> None:
    """Rows whose sender has no answer yet are written before the process ends, though its on_stop raises."""
    run = start(Restarting())
    until(lambda: len(run.rows()) >= 2)
    run.stop()
    errors = [state.error for event, state in run.told if event is Event.ERROR]
    assert errors[:3] == [
        "the other end hangs up: ConnectionError: gone",
        next(error for error in errors if error and "on_stop raised ZeroDivisionError: late" in error),
        "once more",
    ]


def test_a_receiver_stops_and_keeps_what_it_has(start: Start) -> None:
    """The next start continues the numbers in a new epoch, behind the one that the receiver has ended itself (225)."""
    run = start(Counting(5))
    assert until(run.rows) == [*range(5)]
    run.stop()
    assert run.state.state is State.STOPPED
    assert run.supervisor.pid is None
    assert run.log.end_epochs(BEGINNING) == Place(3, 1)


def test_a_rate_holds_a_receiver_up(start: Start) -> None:
    """One that is there from the start, and another one later."""
    run = start(Counting(5), rate=0.0)
    until(lambda: run.state.state is State.RUNNING)
    assert run.rows() == []
    run.supervisor.limit(100.0)
    assert until(run.rows) == [*range(5)]


def test_a_receiver_that_cannot_be_pickled_is_shown_and_tried_again(start: Start) -> None:
    """Its thread survives whatever a start raises: a job that receives nothing must not look as if it did."""
    receiver = Counting(1)
    receiver.lock = threading.Lock()  # type: ignore[attr-defined]
    run = start(receiver)
    until(lambda: run.state.restarts >= 2)
    assert "TypeError: cannot pickle" in str(run.state.error)
    assert run.supervisor.pid is None


def test_pauses_grow_up_to_half_a_minute() -> None:
    """A receiver that never works is tried twice a minute."""
    assert [pause_after(n) for n in range(10)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
