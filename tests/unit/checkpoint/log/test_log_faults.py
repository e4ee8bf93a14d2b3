"""A driver loop without Spark on a store that breaks at every call in turn, and is started again."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from checkpoint_samples import Driver, commit, leave, offsets, own, purge, run_batch, void
from faulty_store import Fault, FaultyStore, Lasting, Plan
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import Commit, Place, Restore, Save, from_bytes, to_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, find_restorable, recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import CheckpointCorrupt, LogGap, PenstockError, StorageFull, StorageUnavailable

BATCHES = 7


class KilledError(BaseException):
    """The end of a process: nothing catches it but the test."""


class Recording(MemoryStore):
    """A store that remembers the batches of the Commits that were written whole."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[int] = []

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        with suppress(CheckpointCorrupt):
            entry = from_bytes(data, path)
            if isinstance(entry, Commit):
                self.committed.append(entry.batch)


def until_done(store: CheckpointStore) -> list[BaseException]:
    """Start driver after driver until one commits the last batch; return what the others died of, three at most."""
    deaths: list[BaseException] = []
    while len(deaths) < 3:
        driver = Driver(Log(store, stride=4), f"w{len(deaths)}")
        try:
            while not driver.start():
                pass
            for _ in driver.run(until=BATCHES):
                pass
            break
        except (PenstockError, KilledError) as death:
            deaths.append(death)
    return deaths


def restore_newest(log: Log) -> None:
    """Do what the remedy of `CheckpointCorrupt` says."""
    owned = own(log, "cli")
    kept = recover(log, Damage.LIST).kept
    fields: dict[str, Any] = (
        {"batch": kept[-1].batch, "source": "batch"} if kept else {"batch": None, "source": "empty"}
    )
    owned.append(Restore(epoch=owned.epoch, writer="cli", saved=None, partitions=None, **fields))
    leave(owned)


def sweep(fault: Fault, **plan: Any) -> list[tuple[Recording, list[BaseException]]]:
    """Let the fault strike each call of a run in turn; return each store and what drivers died of."""
    runs = []
    for at in range(1, 1_000):
        inner = Recording()
        store = FaultyStore(inner, Plan(fault, at=at, **plan))
        deaths = until_done(store)
        if not store.fired:
            return runs
        runs.append((inner, deaths))
    raise AssertionError("the sweep does not end")


DEATHS = {"error": lambda path: StorageUnavailable("no answer", where=path), "kill": lambda _: KilledError()}


@pytest.mark.slow
@pytest.mark.fault("F01", "F23", "F27", "F29")
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.FULL, Fault.STALE])
def test_a_fault_at_any_call_loses_and_doubles_nothing(fault: Fault, death: str) -> None:
    """Every batch is committed once, by this driver or by the next."""
    runs = sweep(fault, error=DEATHS[death])
    assert runs
    for inner, deaths in runs:
        assert len(deaths) < 2
        assert inner.committed == list(range(BATCHES))
        recovered = recover(Log(inner, stride=4))
        assert (recovered.commit and recovered.commit.batch, recovered.pending, recovered.damaged) == (
            BATCHES - 1,
            None,
            (),
        )


@pytest.mark.fault("F01", "F13")
@pytest.mark.parametrize("death", DEATHS)
def test_a_torn_write_at_any_create_is_given_up_or_named(death: str) -> None:
    """A torn Takeover or Offsets costs an id at most; a torn Commit stops the job until it is restored over."""
    outcomes = set()
    for inner, deaths in sweep(Fault.TORN, error=DEATHS[death]):
        log = Log(inner, stride=4)
        listed = recover(log, Damage.LIST)
        if listed.problems:
            assert isinstance(deaths[-1], CheckpointCorrupt)
            assert str(listed.problems[0]) == str(deaths[-1])
            restore_newest(log)
            assert until_done(inner) == []
        outcomes.add("stopped" if listed.problems else "went on")
        recovered = recover(log)
        missing = set(range(BATCHES)) - set(inner.committed)
        assert inner.committed == sorted(set(inner.committed))
        assert (len(missing) <= 1, recovered.next_batch, recovered.damaged) == (True, BATCHES, ())
    assert outcomes == {"went on", "stopped"}


@pytest.mark.fault("F16", "F24")
def test_a_store_that_swallows_files_is_found_out() -> None:
    """The driver believes it, and whoever starts next is told which entry is missing."""
    inner = MemoryStore()
    owned = own(Log(FaultyStore(inner, Plan(Fault.VANISHED, at=3))))
    run_batch(owned, 0)
    run_batch(owned, 1)
    with pytest.raises(LogGap) as caught:
        recover(Log(inner))
    assert caught.value.fields["missing"] == [2]


@pytest.mark.fault("F27")
@pytest.mark.parametrize("at", range(2, 2 * BATCHES + 2))
def test_the_same_driver_goes_on_when_there_is_room_again(at: int) -> None:
    """A full disk at any create: the same entry is appended a moment later, and the log shows no trace."""
    store = FaultyStore(MemoryStore(), Plan(Fault.FULL, at=at, lasting=Lasting.FROM_THEN_ON))
    log = Log(store)
    owned = own(log)
    for batch in range(BATCHES):
        for entry in (offsets(batch), commit(batch)):
            try:
                owned.append(entry)
            except StorageFull:
                store.plan = None
                owned.append(entry)
    assert store.fired
    assert [kept.batch for kept in recover(log).kept] == list(range(BATCHES))


@pytest.mark.fault("F23")
def test_a_create_that_is_delayed_until_a_rival_has_won_is_told_apart() -> None:
    """Beaten, with nothing changed; the next try takes over from the rival."""
    inner = MemoryStore()

    def rival(*_: Any) -> None:
        own(Log(inner), "rival")

    driver = Driver(Log(FaultyStore(inner, Plan(Fault.DELAYED, at=1, rival=rival))), "w1")
    assert not driver.start()
    assert driver.log.read(0).writer == "rival"
    assert driver.start()
    assert [entry.epoch for _, entry in driver.log.entries_back(1)] == [2, 1]


# --- a model -----------------------------------------------------------------------------------

STEPS = ["batch"] * 6 + ["offsets", "restart", "leave", "save", "restore", "empty", "saved", "torn"]


class Model:
    """A job as a few plain variables, beside its real log."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = MemoryStore()
        self.log = Log(self.store, stride=4)
        self.starts = 0
        self.owned = own(self.log, "w0")
        self.position: int | None = None
        self.pending: int | None = None
        self.used = -1
        self.floor = 0
        self.saves: dict[str, int] = {}
        self.kept: list[int] = []

    def who(self) -> dict[str, Any]:
        """Return the fields that name the owner."""
        return {"epoch": self.owned.epoch, "writer": self.owned.writer}

    def step(self, name: str) -> None:
        """Take a step, if it can be taken now."""
        getattr(self, f"do_{name}")()

    def do_restart(self) -> None:
        self.starts += 1
        self.owned = own(self.log, f"w{self.starts}")

    def do_leave(self) -> None:
        leave(self.owned)
        self.do_restart()

    def do_offsets(self) -> None:
        if self.pending is None:
            self.used += 1
            self.pending = self.used
            self.owned.append(offsets(self.used, **self.who()))

    def do_batch(self) -> None:
        self.do_offsets()
        self.floor = max(self.floor, min(self.kept[-2:], default=0))
        self.owned.append(commit(self.used, **self.who(), floor=self.floor))
        self.position, self.pending = self.used, None
        self.kept = [batch for batch in [*self.kept, self.used] if batch >= self.floor]
        purge(self.log, self.owned, compact_every=5)

    def do_torn(self) -> None:
        if self.pending is None:
            slot = self.owned.next_slot
            begun = offsets(self.used + 1, self.owned.epoch, self.owned.writer)
            torn = to_bytes(begun.model_copy(update={"place": Place(slot=slot)}))[: self.rng.choice([-1, -40])]
            self.store.create(self.log.path(slot), torn)
            self.do_restart()
            self.used += 1
            (lost,) = recover(self.log).damaged
            assert lost.batch == self.used
            self.owned.append(void(lost, self.owned))

    def do_save(self) -> None:
        done = recover(self.log).commit
        if done:
            name = self.rng.choice("ab")
            self.owned.append(Save(**self.who(), name=name, commit=done))
            self.saves[name] = done.batch

    def do_restore(self) -> None:
        if self.kept:
            batch = self.rng.choice(self.kept)
            assert find_restorable(recover(self.log), batch=batch).batch == batch
            self.append_restore(batch, source="batch", batch=batch)

    def do_saved(self) -> None:
        if self.saves:
            name = self.rng.choice(sorted(self.saves))
            self.append_restore(self.saves[name], source="saved", saved=name)

    def do_empty(self) -> None:
        self.append_restore(None, source="empty")

    def append_restore(self, position: int | None, **fields: Any) -> None:
        """Append a Restore after which the job is at `position`."""
        asked: dict[str, Any] = {"batch": None, "saved": None, "partitions": None}
        self.owned.append(Restore(**self.who(), **asked | fields))
        self.position, self.pending = position, None

    def expected(self) -> tuple[Any, ...]:
        """Return what recovery should find."""
        next_batch = self.used + 1 if self.pending is None else self.pending
        return self.position, self.pending, next_batch, self.floor, self.saves, self.kept, ()


def facts_of(recovered: Recovered) -> tuple[Any, ...]:
    """Return what recovery found, in the model's terms."""
    return (
        recovered.commit.batch if recovered.commit else None,
        recovered.pending.batch if recovered.pending else None,
        recovered.next_batch,
        recovered.floor,
        {name: saved.batch for name, saved in recovered.saves.items()},
        [kept.batch for kept in recovered.kept],
        recovered.problems,
    )


@pytest.mark.fault("F13", "F20", "F30")
@given(steps=st.lists(st.sampled_from(STEPS), max_size=40), seed=st.integers(0, 2**32))
def test_recovery_agrees_with_a_plain_model_of_the_job(steps: list[str], seed: int) -> None:
    """After random batches, crashes, torn Offsets, saves, restores and purges, on a stride of 4."""
    model = Model(seed)
    for step in steps:
        model.step(step)
        assert facts_of(recover(model.log)) == model.expected()
