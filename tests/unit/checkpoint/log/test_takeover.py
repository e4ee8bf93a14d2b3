"""Fencing under every order of calls: drivers run in turns, one store call at a time, as a schedule says.

The oracle is the log as it would be had nothing ever been purged. `Truth` checks each entry as it is written: it
stands right after the last one, and its writer held the log, or else it is a Takeover in the hole of a purged entry.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import checkpoint_samples
import pytest
from checkpoint_samples import Driver
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import Commit, Takeover, from_bytes
from penstock.checkpoint.log.fencing import OwnedLog, fenced
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import AlreadyExists, CommitUnknown, Fenced, StorageUnavailable

STRIDE = 4


class Truth(MemoryStore):
    """A store that remembers the whole log and fails the test when an entry is written by who may not."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = MemoryStore()
        self.tail = -1
        self.owner: tuple[int, str] | None = None
        self.strays: list[Takeover] = []
        self.committed: list[int] = []
        self.broken: list[str] = []

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        entry, slot = from_bytes(data, path), int(path[4:])
        if slot <= self.tail:
            if isinstance(entry, Takeover):
                self.strays.append(entry)
            elif self.whole.read(path) != data:  # an entry whose acknowledgement was lost may rise once more
                self.broken.append(f"{entry.kind} of {entry.writer} in the hole {slot}")
            return
        if slot != self.tail + 1:
            self.broken.append(f"{entry.kind} of {entry.writer} in {slot}, after {self.tail}")
        if isinstance(entry, Takeover):
            if self.owner and entry.epoch <= self.owner[0]:
                self.broken.append(f"epoch {entry.epoch} after {self.owner[0]}")
            self.owner = (entry.epoch, entry.writer)
        elif (entry.epoch, entry.writer) != self.owner:
            self.broken.append(f"{entry.kind} {slot} of {entry.writer} while {self.owner} holds the log")
        if isinstance(entry, Commit):
            self.committed.append(entry.batch)
        self.whole.create(path, data)
        self.tail = slot

    def check(self) -> None:
        """Hold the purged log against the whole one."""
        assert self.broken == []
        assert self.committed == list(range(len(self.committed)))
        purged, whole = recover(Log(self, stride=STRIDE)), recover(Log(self.whole, stride=STRIDE))
        for name in ("tail", "commit", "pending", "next_batch", "last_takeover", "last_published_commit", "floor"):
            assert getattr(purged, name) == getattr(whole, name), name
        assert purged.kept == whole.kept


class AsleepError(BaseException):
    """Raised in a driver that never wakes again."""


@dataclass
class Turns:
    """Runs actors in threads of which exactly one moves, from one store call to the next."""

    truth: Truth
    waiting: dict[str, threading.Semaphore] = field(default_factory=dict)
    idle: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    over: bool = False
    errors: list[BaseException] = field(default_factory=list)

    def store(self, name: str, lose_answer: Callable[[], bool] = lambda: False) -> CheckpointStore:
        """Return the store as one actor sees it."""
        return _InTurn(self, name, lose_answer)

    def add(self, name: str, program: Callable[[], None]) -> None:
        """Let an actor run up to its first call."""

        def body() -> None:
            try:
                program()
            except AsleepError:
                pass
            except BaseException as error:  # noqa: BLE001 - shown to the test
                self.errors.append(error)
            self.waiting.pop(name, None)
            self.idle.release()

        self.threads[name] = threading.Thread(target=body)
        self.threads[name].start()
        self.idle.acquire()

    def step(self, name: str, calls: int = 1) -> int:
        """Let an actor make so many store calls; return how many it made before it ended."""
        for made in range(calls):
            if name not in self.waiting:
                return made
            self.waiting[name].release()
            self.idle.acquire()
        return calls

    def pause(self, name: str) -> None:
        """Wait for the next turn, in an actor's thread."""
        turn = self.waiting.setdefault(name, threading.Semaphore(0))
        self.idle.release()
        turn.acquire()
        if self.over:
            raise AsleepError

    def end(self) -> None:
        """Put everybody to sleep for ever; what they raised counts as broken."""
        self.over = True
        for name in list(self.waiting):
            self.step(name)
        for thread in self.threads.values():
            thread.join()
        self.truth.broken += map(repr, self.errors)


class _InTurn:
    def __init__(self, turns: Turns, name: str, lose_answer: Callable[[], bool]) -> None:
        self._turns, self._name, self._lose_answer = turns, name, lose_answer

    @property
    def root(self) -> str:
        return "turns:"

    def create(self, path: str, data: bytes) -> None:
        self._turns.pause(self._name)
        try:
            self._turns.truth.create(path, data)
        except AlreadyExists:
            if not self._lose_answer():
                raise
            raise StorageUnavailable("lost", where=path) from None
        if self._lose_answer():
            raise StorageUnavailable("lost", where=path)

    def read(self, path: str) -> bytes:
        self._turns.pause(self._name)
        return self._turns.truth.read(path)

    def exists(self, path: str) -> bool:
        self._turns.pause(self._name)
        return self._turns.truth.exists(path)

    def list(self, prefix: str) -> list[str]:
        self._turns.pause(self._name)
        return self._turns.truth.list(prefix)

    def delete(self, path: str) -> None:
        self._turns.pause(self._name)
        self._turns.truth.delete(path)


def drive(driver: Driver, batches: int, tries: int = 4) -> Callable[[], None]:
    """Return a program: take over, run batches, stop when fenced or in doubt; try again a few times when beaten."""

    def program() -> None:
        for _ in range(tries):
            try:
                if driver.start():
                    for _ in driver.run(batches):
                        pass
                    return
            except (Fenced, CommitUnknown):
                return

    return program


def at_once(truth: Truth, writer: str, batches: int) -> None:
    """Run a whole driver without pause."""
    driver = Driver(Log(truth, stride=STRIDE), writer, keep=1)
    assert driver.start()
    for _ in driver.run(batches):
        pass


def calls_of(batches: int, before: int) -> int:
    """Count the store calls of a driver that runs alone after so many batches."""
    truth = Truth()
    turns = Turns(truth)
    if before:
        at_once(truth, "w0", before)
    turns.add("a", drive(Driver(Log(turns.store("a"), stride=STRIDE), "a", keep=1), batches))
    calls = turns.step("a", 10_000)
    turns.end()
    return calls


def zombie(stop_after: int, others: Iterable[int], before: int) -> Truth:
    """Stop a driver after so many calls, let others run batches meanwhile, and wake it."""
    truth = Truth()
    turns = Turns(truth)
    if before:
        at_once(truth, "w0", before)
    driver = Driver(Log(turns.store("a"), stride=STRIDE), "a", keep=1)
    turns.add("a", drive(driver, 3))
    turns.step("a", stop_after)
    for number, batches in enumerate(others, start=1):
        at_once(truth, f"w{number}", batches)
    turns.step("a", 10_000)
    turns.end()
    return truth


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.fault("F07", "F08", "F30")
@pytest.mark.parametrize(
    ("before", "others"),
    [
        # Each number of batches before, and each that others run, once a day.
        pytest.param(before, others, id=f"{others}-{before}", marks=() if (row + column) % 3 == 0 else pytest.mark.soak)
        for row, before in enumerate([0, 2, 6])
        for column, others in enumerate([(0,), (1,), (2,), (5,), (2, 2), (7, 1), (1, 9)])
    ],
)
def test_a_driver_that_sleeps_at_any_call_does_no_harm_when_it_wakes(before: int, others: tuple[int, ...]) -> None:
    """Stopped before each of its store calls in turn, while others take over, run on and purge."""
    calls = calls_of(3, before)
    assert calls > 20
    for stop_after in range(calls + 1):
        zombie(stop_after, others, before).check()


def newcomer(stop_after: int) -> Truth:
    """Stop a newcomer after so many calls while the owner it looked at goes on and purges, and wake it."""
    truth = Truth()
    turns = Turns(truth)
    owner = Driver(Log(truth, stride=STRIDE), "w0", keep=1)
    assert owner.start()
    running = owner.run(20)
    for _ in range(6):
        next(running)
    turns.add("a", drive(Driver(Log(turns.store("a"), stride=STRIDE), "a", keep=1), 3))
    turns.step("a", stop_after)
    with suppress(Fenced):
        for _ in running:
            pass
    turns.step("a", 10_000)
    turns.end()
    return truth


@pytest.mark.slow
@pytest.mark.fault("F07", "F30")
def test_a_claim_from_an_old_view_lands_in_a_hole_and_is_fenced() -> None:
    """It does happen, at several places, and never does harm."""
    strays = []
    for stop_after in range(calls_of(3, 2) + 1):
        truth = newcomer(stop_after)
        truth.check()
        strays += truth.strays
    assert len(strays) >= 3


@pytest.mark.parametrize("look", ["not at all", "at the next slot only"])
def test_a_driver_that_does_not_search_again_would_break_the_log(monkeypatch: pytest.MonkeyPatch, look: str) -> None:
    """The oracle sees it: what `confirm` does is needed, and the tests above could fail."""

    def careless(log: Log, slot: int) -> OwnedLog:
        entry = log.read(slot)
        if look == "at the next slot only" and log.slots.exists(slot + 1):
            raise fenced(log.path(slot), entry.epoch, 0, "somebody")
        assert isinstance(entry, Takeover)
        return OwnedLog(log, entry)

    monkeypatch.setattr(checkpoint_samples, "confirm", careless)
    assert any(newcomer(stop_after).broken for stop_after in range(30))


@pytest.mark.sample(seconds=8)
@pytest.mark.slow
@pytest.mark.fault("F07", "F08", "F23", "F30")
@settings(max_examples=examples(120))
@given(seed=st.integers(0, 2**32), drivers=st.integers(2, 4), lost=st.sampled_from([0, 0, 0.02, 0.1, 0.3]))
def test_drivers_in_any_order_keep_one_log(seed: int, drivers: int, lost: float) -> None:
    """Any interleaving of the store calls of several drivers, with lost acknowledgements, the last ones left asleep."""
    rng, truth = random.Random(seed), Truth()
    turns = Turns(truth)
    for number in range(drivers):
        name = f"d{number}"
        log = Log(turns.store(name, lambda: rng.random() < lost), stride=STRIDE)
        turns.add(name, drive(Driver(log, name, keep=rng.choice([1, 2])), rng.choice([3, 6, 15])))
    for _ in range(rng.choice([5, 20, 60])):
        turns.step(f"d{rng.randrange(drivers)}", rng.choice([1, 1, 1, 2, 3, 5, 8, 20, 60, 200]))
    turns.end()
    truth.check()
