"""Receivers run beside a driver that receives, are bounded by its rates, and are heard of (SEMANTICS 8.6, F47)."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pushing import Counting, Failing, until
from received_blocks import Pushed

from penstock import Job, ReceiverInfo
from penstock.checkpoint.log.listener import Listener
from penstock.errors import CannotListen, ConfigError, EpochSealed, ReceiversTakeAllCores
from penstock.graph.policies import MaxRate
from penstock.rates.limits import Limits
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING
from penstock.receivers.blocks import Place
from penstock.runtime.driver.admission import rates_of
from penstock.runtime.process import receiving
from penstock.runtime.process.receiving import MOST_WAITING, Receivers, receiver_rate, sweeping
from penstock.runtime.spark.receiver_tasks import refuse_all_cores
from penstock.sinks import MemorySink
from penstock.sources import MemorySource, Receive
from penstock.time.clock import SystemClock


class Notes(Listener):
    """A listener of the driver and of the job."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []
        self.heard: list[tuple[str, ReceiverInfo]] = []

    def on_receivers(self, states: Any) -> None:
        """Note how they are."""
        self.states = list(states)

    def on_receiver_started(self, info: ReceiverInfo) -> None:
        """Note a start."""
        self.heard.append(("started", info))

    def on_receiver_error(self, info: ReceiverInfo) -> None:
        """Note an error, and be none the better."""
        self.heard.append(("error", info))
        raise ZeroDivisionError

    def on_receiver_stopped(self, info: ReceiverInfo) -> None:
        """Note an end."""
        self.heard.append(("stopped", info))


def receivers(folder: Path, receiver: Receiver, notes: Notes, count: int = 1) -> tuple[Receivers, Pushed]:
    """Return the receivers of a job, and its checkpoint."""
    pushed = Pushed(folder / "job", receivers=0)
    job = Job("job")
    job.source("s", Receive(receiver, schema="k long", receivers=count)).write("out", MemorySink())
    job.listen(notes)
    reader = pushed.reader(receivers=count)
    object.__setattr__(reader.receiving, "receiver", receiver)
    return Receivers(job.graph(), {"s": reader}, SystemClock(), [notes]), pushed


def rows(pushed: Pushed, index: int = 0) -> int:
    """Return how many rows a receiver has kept."""
    return sum(block.rows for _, block in pushed.log(index).follow(BEGINNING))


@pytest.mark.slow
def test_receivers_run_while_the_driver_serves(tmp_path: Path) -> None:
    """They start with its first look, stop at the end of the run, and their listeners hear of both."""
    notes = Notes()
    running, pushed = receivers(tmp_path, Counting(5), notes, count=2)
    with running:
        assert running.pids() == []
        running.serve()
        until(lambda: rows(pushed) == rows(pushed, 1) == 5)
        running.serve()
        assert all(pid is not None for pid in running.pids())
        running.serve()
        assert [state["receiver"] for state in notes.states] == ["s-0", "s-1"]
    assert [state["state"] for state in notes.states] == ["stopped", "stopped"]
    assert sorted((event, info.receiver, info.source) for event, info in notes.heard) == [
        (event, receiver, "s") for event in ("started", "stopped") for receiver in (0, 1)
    ]
    assert running.pids() == []


@pytest.mark.slow
def test_an_error_is_heard_and_shown_and_a_drain_ends_receiving(tmp_path: Path) -> None:
    """A listener that fails harms nobody."""
    notes = Notes()
    running, _ = receivers(tmp_path, Failing(str(tmp_path / "never")), notes)
    with running:
        running.serve()

        def failed() -> bool:
            running.serve()
            return any(event == "error" for event, _ in notes.heard)

        until(failed)
        running.draining = lambda: True
        running.serve()
        assert running.pids() == []
    (error,) = [info.error for event, info in notes.heard if event == "error"][:1]
    assert "ZeroDivisionError" in str(error)
    assert notes.states[0]["error"] == error


def test_a_run_that_was_not_entered_receives_nothing(tmp_path: Path) -> None:
    """One that restores, reads what is there, or is a test."""
    running, pushed = receivers(tmp_path, Counting(5), Notes())
    running.serve()
    assert running.pids() == []
    assert pushed.log(0).listed() == []
    job = Job("other")
    job.source("s", MemorySource("k long")).write("out", MemorySink())
    with Receivers(job.graph(), {}, SystemClock()) as none:
        none.serve()
        assert none.pids() == []


class Barred(Counting):
    """A receiver that cannot start here, so many times."""

    def __init__(self, times: float, *, error: Exception | None = None) -> None:
        super().__init__(5)
        self.times, self.error = times, error or CannotListen("no receiver can listen here")

    def on_check(self) -> None:
        """Say so."""
        self.times -= 1
        if self.times >= 0:
            raise self.error


@pytest.mark.fault("F47")
@pytest.mark.parametrize(
    "error", [None, OSError(98, "it is taken")], ids=["an error of ours", "what a receiver of one's own raises"]
)
def test_what_is_in_the_way_of_a_receiver_ends_the_run_before_any_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Nothing is checked where none starts. Before it gives up it seals the epochs of a driver that hangs."""
    monkeypatch.setattr(receiving, "_ENDING", 0.3)
    running, pushed = receivers(tmp_path, Barred(inf, error=error), Notes())
    old = pushed.started(0)
    running.serve()
    with running:
        with pytest.raises(CannotListen, match=r"no receiver can listen here|it is taken") as refused:
            running.serve()
        assert refused.value.where == "source 's'"
        assert running.pids() == []
    pushed.writers, pushed.receivers = [old], 1
    with pytest.raises(EpochSealed):
        pushed.add(4)


@pytest.mark.slow
def test_what_goes_away_soon_is_in_nobodys_way(tmp_path: Path) -> None:
    """A receiver of a driver that died may have its port for a moment."""
    running, pushed = receivers(tmp_path, Barred(4), Notes())
    with running:
        running.serve()
        until(lambda: rows(pushed) == 5)


def test_executors_are_not_asked_what_is_in_the_way_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver knows nothing of their ports."""
    state = SimpleNamespace(to_json=dict)
    started = SimpleNamespace(start=str, ask_to_stop=str, wait=str, pid=None, state=state)
    monkeypatch.setattr(receiving, "ReceiverSupervisor", lambda *_, **__: started)
    running, _ = receivers(tmp_path, Barred(inf), Notes())
    running.tasks = SimpleNamespace(refuse=lambda _: None, launch=None)  # type: ignore[assignment]
    with running:
        running.serve()
        assert running.pids() == [None]


@pytest.mark.parametrize("again", ["127.0.0.1:8080", "localhost:8080", "0.0.0.0:8080"])
def test_two_sources_cannot_have_one_address(tmp_path: Path, again: str) -> None:
    """The second would be started again for ever, and batches would lack its rows."""
    running, _ = receivers(tmp_path / "s", Counting(5), Notes())
    other, _ = receivers(tmp_path / "t", Counting(5), Notes())
    running.readers = {"s": running.readers["s"], "t": other.readers["s"]}
    for reader, address in zip(running._receiving().values(), ("127.0.0.1:8080", again), strict=True):
        reader.receiving.receiver.listens = address
    with running, pytest.raises(ConfigError, match=f"sources 's' and 't' both listen on {again}"):
        running.serve()


def test_a_run_that_would_take_all_cores_is_refused_before_it_receives(tmp_path: Path) -> None:
    """One that reads what is there is not: it enters nothing."""
    running, _ = receivers(tmp_path, Counting(5), Notes(), count=2)
    cores = 2

    def refuse(count: int) -> None:
        refuse_all_cores(count, cores)

    tasks: Any = SimpleNamespace(refuse=refuse)
    running.tasks = tasks
    with pytest.raises(ReceiversTakeAllCores), running:
        raise AssertionError
    running.serve()
    assert running.pids() == []


def test_a_receiver_starts_behind_what_the_commit_in_force_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F47: of its own source, and as the Commit is when the receiver starts; without one at the first block."""
    running, pushed = receivers(tmp_path, Counting(5), Notes())
    pushed.writers, pushed.receivers = [pushed.started(0)], 1
    pushed.add(4)
    known: list[Any] = []
    monkeypatch.setattr(
        receiving, "ReceiverSupervisor", lambda *_, **given: known.append(given["known"]) or SimpleNamespace(start=str)
    )
    running._is_on = True
    running._start()
    assert known[0]() == Place(1, 0)
    other = SimpleNamespace(position={"receivers": {"0": [7, 7]}})
    running.in_force = lambda: SimpleNamespace(sources={"other": other})  # type: ignore[assignment, return-value]
    assert known[0]() == Place(1, 0)
    read = SimpleNamespace(position={"receivers": {"0": [1, 2]}})
    running.in_force = lambda: SimpleNamespace(sources={"other": other, "s": read})  # type: ignore[assignment, return-value]
    assert known[0]() == Place(1, 2)


class Held:
    """A supervisor that notes its rates."""

    def __init__(self) -> None:
        self.rates: list[float | None] = []

    def limit(self, rate: float | None) -> None:
        """Note a rate."""
        self.rates.append(rate)


def test_limits_of_a_batch_are_pushed_once(tmp_path: Path) -> None:
    """SEMANTICS 8.6; and a receiver of which too much waits takes nothing."""
    running, _ = receivers(tmp_path, Counting(5), Notes())
    reader, held = running.readers["s"], Held()
    waiting = [0]
    fake = SimpleNamespace(
        source="s", index=0, supervisor=held, rate=None, reader=SimpleNamespace(waiting_bytes=lambda _: waiting[0])
    )
    running._running.append(fake)
    offsets: Any = SimpleNamespace(limits={"rate": 100.0})
    running.on_batch_submitted(offsets)
    running.on_batch_submitted(offsets)
    assert held.rates == [100.0]
    waiting[0] = MOST_WAITING + 1
    running._push()
    waiting[0] = 0
    running._push()
    running.on_batch_submitted(SimpleNamespace(limits={"max_rate": 9, "sources": {"s": {"max_rate": 12}}}))  # type: ignore[arg-type]
    running.on_batch_submitted(SimpleNamespace(limits={}))  # type: ignore[arg-type]
    assert held.rates == [100.0, 0.0, 100.0, 12.0, None]
    assert reader is running.readers["s"]


@pytest.mark.parametrize(
    ("limits", "coded", "pushed"),
    [
        ({}, MaxRate(), None),
        ({"rate": 90.0}, MaxRate(), 30.0),
        ({"max_rate": 10}, MaxRate(), 5.0),
        ({"max_rate_per_partition": 7}, MaxRate(), 7.0),
        ({"rate": 900.0}, MaxRate(rows=100), 50.0),
        ({"rate": 900.0}, MaxRate(per_partition=20), 20.0),
        ({"max_rate": 10, "sources": {"s": {"max_rate": 40}}}, MaxRate(rows=2), 20.0),
        ({"max_rate": 10, "sources": {"other": {"max_rate": 4}}}, MaxRate(), 5.0),
        ({"sources": {"s": {"max_rate": None, "max_rate_per_partition": 3}}, "bound": {"s": "rate"}}, MaxRate(rows=2), 3.0),
    ],
    ids=[
        "none", "the estimate of all", "of the source", "of each", "of the code", "of the code for each",
        "of this source alone", "of another source alone", "lifted for this source",
    ],
)  # fmt: skip
def test_a_receiver_gets_its_part_of_each_limit(limits: dict[str, Any], coded: MaxRate, pushed: float | None) -> None:
    """Of two receivers of the source, and three of the job."""
    own = rates_of(Limits.recorded(limits), "s", coded)
    assert receiver_rate(limits.get("rate"), own, of_source=2, of_all=3) == pushed


def test_a_sweep_asks_the_sources_that_keep_something(tmp_path: Path) -> None:
    """With the positions of the Commits that have one."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(6)
    commits: list[Any] = [
        SimpleNamespace(sources={"s": SimpleNamespace(position={"receivers": {"0": [1, 2]}})}),
        SimpleNamespace(sources={}),
    ]
    assert sweeping({"s": pushed.reader(), "other": SimpleNamespace()})(commits) == 2  # type: ignore[dict-item]
