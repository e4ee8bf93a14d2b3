"""Deterministic simulation: drivers of the real loop over a world that breaks as a seed says (FAULTS 4.1, 4.2).

One number decides everything: rows and how out of order they are, who runs when, which store call or publication
fails and how, who crashes at which hook. A failure names its seed; `simulate(seed)` runs it again.
After the storm a sound driver finishes, and the oracle judges what the tables show.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import structlog
from fake_engine import (
    FakeEngine,
    OnPublish,
    Shown,
    Table,
    Witness,
    World,
    decoded,
    heartbeat,
    ledger_of,
    make_driver,
    quick_folder,
    run_to_end,
    windowed_job,
)
from faulty_store import Fault, FaultyStore, Lasting, Plan
from oracle import judge

from penstock.checkpoint.log import compaction
from penstock.checkpoint.log.entries import Commit, Entry, Restore, Save, Takeover
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.format import read_header
from penstock.errors import (
    CannotRestore,
    CheckpointCorrupt,
    CommitUnknown,
    Fenced,
    LogGap,
    PenstockError,
    SinkError,
    SlotTaken,
    StorageFull,
    StorageUnavailable,
)
from penstock.runtime.driver import retention
from penstock.runtime.driver.loop import Driver, DriverSettings
from penstock.runtime.driver.retention import Retention
from penstock.runtime.driver.stages import Hook
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget

NAMED = (CannotRestore, Fenced, CommitUnknown, StorageFull, StorageUnavailable, SinkError)
"""What a driver may end with when nothing is damaged."""


@dataclass
class Storm:
    """One simulated run."""

    seed: int
    root: Path
    rng: random.Random = field(init=False)
    ends: Counter[str] = field(default_factory=Counter)
    torn: bool = False

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        jitter = rng.choice([0, 2, 5])
        self.coming = [max(0.0, i * rng.choice([1, 1, 2]) - rng.random() * jitter) for i in range(rng.randint(1, 14))]
        self.world = World(root=self.root, closed=False, batch_rows=rng.randint(1, 4))
        self.store = Witness()
        self.keep = rng.choice([1, 2, 20])
        self.stride = rng.choice([2, 4, 4_096])
        self.restores = rng.random() < 0.3
        # A sink that cannot tell what it shows takes nothing back either.
        self.blind = rng.random() < (0.1 if self.restores else 0.4)
        self.world.blind = frozenset({"heard"} if self.blind else ())
        self.graph = windowed_job(out_of_order=rng.choice([0, 1, 4]), world=self.world)
        self.asked: list[str] = []
        self.commands: dict[str, RestoreTarget] = {}
        self.sweepers: list[Retention] = []
        self.drivers: list[Driver | None] = [None] * rng.randint(2, 3)
        self.points = [iter(()) for _ in self.drivers]
        self.born = 0

    def run(self) -> None:
        """Let it storm, then let one driver finish."""
        for step in range(self.rng.choice([10, 30, 60, 120])):
            self.turn(self.rng.randrange(len(self.drivers)))
            if step % 32 == 0:
                self.judge(finished=False)
        self.world.times += self.coming
        self.world.closed = True
        self.judge(finished=False)
        self.finish()

    def turn(self, place: int) -> None:
        """Let one driver take a step, be born, or die."""
        rng = self.rng
        if rng.random() < 0.1 and self.coming:
            self.world.times.append(self.coming.pop(0))
            self.world.closed = not self.coming
        if self.drivers[place] is None:
            driver = self.drivers[place] = self.born_driver()
            person = self.restores and rng.random() < 0.25
            self.points[place] = self.person(driver) if person else driver.run()
        if rng.random() < 0.05:
            self.asked.append(f"s{len(self.asked)}")
        if rng.random() < 0.1:
            self.sweep()
        if rng.random() < 0.02:
            self.drivers[place] = None
            return
        try:
            for _ in range(rng.choice([1, 1, 2, 5, 20])):
                next(self.points[place])
        except StopIteration:
            self.drivers[place] = None
        except PenstockError as error:
            self.ends[type(error).__name__] += 1
            self.drivers[place] = None
            if not isinstance(error, NAMED) and not (self.torn and isinstance(error, CheckpointCorrupt)):
                raise AssertionError(self.said(error)) from error

    def person(self, driver: Driver) -> Iterator[Hook]:
        """Have somebody go back by a command, which another try may carry out at the same time or has long before."""
        again = self.commands and self.rng.random() < 0.25
        command = self.rng.choice(list(self.commands)) if again else f"c{len(self.commands)}"
        start = self.commands.setdefault(command, self.way_back())
        driver.identity = replace(driver.identity, command=command)
        return restore(driver, start)

    def way_back(self) -> RestoreTarget:
        """Return what a person goes back to, and whether tables are to show it."""
        truncate = not self.blind and self.rng.random() < 0.5
        names = [entry.name for entry in self.store.entries() if isinstance(entry, Save)]
        if names and self.rng.random() < 0.15:
            return RestoreTarget(restore=True, saved=self.rng.choice(names), truncate=truncate)
        return RestoreTarget(restore=True, batch=self.rng.choice(self.committed()), truncate=truncate)

    def sweep(self) -> None:
        """Let `penstock upkeep` look at the log, or delete by what it saw however long ago."""
        log = Log(self.store, stride=self.stride)
        if self.sweepers and self.rng.random() < 0.5:
            self.sweepers.pop(self.rng.randrange(len(self.sweepers))).sweep_all(log, now=0.0)
            return
        retention = Retention(self.root, keep=self.keep)
        with suppress(CheckpointCorrupt, LogGap):  # which it names, and sweeps nothing
            retention.adopt(recover(log))
            self.sweepers.append(retention)

    def committed(self) -> list[int | None]:
        """Return the newest batches that have a Commit, and None."""
        return [None, *(entry.batch for entry in self.store.entries() if isinstance(entry, Commit))][-6:]

    def born_driver(self) -> Driver:
        """Return a driver whose store will break once, or from then on, or not."""
        rng = self.rng
        self.born += 1
        name = f"d{self.born}"
        fault = rng.choice([None, None, *(fault for fault in Fault if fault is not Fault.VANISHED)])
        store = self.store
        if fault is not None and fault is not Fault.DELAYED and (fault is not Fault.TORN or rng.random() < 0.2):
            lasting = rng.choice([Lasting.ONCE, Lasting.ONCE, Lasting.FROM_THEN_ON])
            self.torn = self.torn or fault is Fault.TORN
            store = FaultyStore(self.store, Plan(fault, at=rng.randint(1, 12), lasting=lasting))
        engine = FakeEngine(self.world, self.graph, name, on_publish=self.broken_sink())
        log = Log(store, stride=self.stride)
        settings = DriverSettings(keep=self.keep, saves=lambda: tuple(self.asked))
        return make_driver(
            self.world,
            store,
            name,
            graph=self.graph,
            engine=engine,
            log=log,
            settings=settings,
            may_take_over=heartbeat(self.drivers, allowed=rng.random() < 0.2),
        )

    def broken_sink(self) -> OnPublish:
        """Return what makes a publication fail now and then, before it took effect or after."""

        def on_publish(sink: str, batch: int) -> Exception | None:
            chance = self.rng.random()
            if chance < 0.02:
                raise SinkError(f"{sink} does not take batch {batch}")
            return SinkError(f"{sink} does not answer") if chance > 0.98 else None

        return on_publish

    def finish(self) -> None:
        """Let a sound driver finish; where it may refuse, because of a torn entry, a person restores and it goes on."""
        try:
            run_to_end(self.sound("last"))
        except CheckpointCorrupt as error:
            self.ends["refused"] += 1
            if not self.damage_forbids():
                raise AssertionError(self.said(error)) from error
            self.judge(finished=False)
            self.restore_newest()
        except PenstockError as error:
            raise AssertionError(self.said(error)) from error
        self.ends["finished"] += 1
        self.judge(finished=True)
        entries = self.store.entries()
        done = Counter(entry.command for entry in entries if isinstance(entry, Restore) and entry.command is not None)
        assert not done or max(done.values()) == 1, self.said(f"restored more than once: {done}")
        self.ends["saved"] += sum(isinstance(entry, Save) for entry in entries)
        self.ends["answered"] += sum(count > 1 for count in Counter(self.tried(entries)).values())

    def tried(self, entries: list[Entry]) -> Iterator[str]:
        """Yield the command of each Takeover that has one."""
        yield from (entry.command for entry in entries if isinstance(entry, Takeover) and entry.command is not None)

    def sound(self, name: str) -> Driver:
        """Return a driver whose store and sinks do not break."""
        return make_driver(self.world, self.store, name, graph=self.graph, log=Log(self.store, stride=self.stride))

    def restore_newest(self) -> None:
        """Do what the error says: restart from the newest batch that is kept."""
        kept = recover(Log(self.store, stride=self.stride), Damage.LIST).kept
        try:
            # A batch whose rows were taken back is gone back to only so that they come again.
            back = kept[-1].batch if kept else None
            start = RestoreTarget(restore=True, batch=back, truncate=self.restores and not self.blind)
            for _ in restore(self.sound("person"), start):
                pass
            run_to_end(self.sound("after"))
        except PenstockError as error:
            raise AssertionError(self.said(f"after a restore: {error}")) from error

    def damage_forbids(self) -> bool:
        """Say whether an entry that cannot be read was a Commit or a Restore, or stands where entries follow."""
        damaged = []
        slots = sorted(path for path in self.store._files if path.startswith("log/"))
        for path in slots:
            data = self.store._files[path]
            try:
                decoded(data, path)
            except CheckpointCorrupt:
                damaged.append(path)
                try:
                    if read_header(data, path)["kind"] in {"commit", "restore"}:
                        return True
                except CheckpointCorrupt:
                    return True
        return any(path < slots[-3] for path in damaged)

    def judge(self, *, finished: bool) -> None:
        """Hold what is visible against the oracle."""
        if self.world.times:
            wrongs = judge(ledger_of(self.world, self.store, self.graph, finished=finished))
            assert wrongs == [], self.said(wrongs)

    def said(self, what: object) -> str:
        """Name the seed with what went wrong."""
        return f"seed {self.seed}: {what}"


def simulate(seed: int, root: Path) -> Storm:
    """Run one seed, in a folder of its own."""
    storm = Storm(seed, root / str(seed))
    storm.run()
    return storm


def simulate_all(seeds: range, root: Path) -> Counter[str]:
    """Run seeds and return how all their drivers ended."""
    ends: Counter[str] = Counter()
    for seed in seeds:
        ends += simulate(seed, root).ends
    return ends


@pytest.fixture
def root() -> Iterator[Path]:
    """Return an empty folder."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read each entry once, compact after a few slots, and log nothing."""
    monkeypatch.setattr(compaction, "EVERY", 5)
    monkeypatch.setattr("penstock.checkpoint.log.log.from_bytes", decoded)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.fault("F01", "F07", "F08", "F13", "F23", "F24", "F27", "F29", "F30", "F55", "F58")
@pytest.mark.parametrize("every", [1, 8], ids=["sweep each batch", "sweep each eighth"])
@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 400), marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_storms_do_no_harm(root: Path, monkeypatch: pytest.MonkeyPatch, every: int, seeds: range) -> None:
    """Crashes, zombies, lost acknowledgements, torn files, a full disk, stale listings, broken sinks."""
    monkeypatch.setattr(retention, "EVERY", every)
    ends = simulate_all(seeds, root)
    assert ends["finished"] == len(seeds)
    assert min(ends[name] for name in ("Fenced", "StorageUnavailable", "StorageFull", "SinkError", "saved")) > 5
    assert ends["answered"] > 0


def test_a_seed_gives_the_same_storm_again(root: Path) -> None:
    """Byte for byte in the log, or a failure could not be looked at."""
    first, again = simulate(7, root / "first"), simulate(7, root / "again")
    assert first.store.ever == again.store.ever
    assert (first.ends, first.world.tables) == (again.ends, again.world.tables)


def forgetful(table: Table, app: str, batch: int, rows: Sequence[object], files: Sequence[str] = ()) -> None:
    """Publish without asking for the version."""
    table.shown.extend(Shown(app, batch, row) for row in rows)


def pushy(owned: OwnedLog, slot: int, entry: Entry) -> None:
    """Write an entry into the next free slot, whoever took the one it belongs to."""
    with suppress(SlotTaken):
        return owned.log.append_at(slot, entry)
    assert entry.place is not None
    moved = entry.model_copy(update={"place": entry.place.model_copy(update={"slot": slot + 1})})
    return pushy(owned, slot + 1, moved)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("fake_engine.Table.publish", forgetful),
        ("fake_engine.FakeEngine._state", lambda *_: {}),
        ("penstock.runtime.driver.loop.Driver._publish", lambda *_: iter(())),
        ("penstock.checkpoint.log.fencing.OwnedLog._put", pushy),
        ("penstock.runtime.driver.sink_recovery.redo_truncation", lambda *_: iter(())),
        ("penstock.runtime.restore.sink_truncation._refuse_taken_back", lambda *_: None),
        ("penstock.runtime.restore.execute.find_restore_by_command", lambda *_: None),
    ],
    ids=[
        "a table that forgets versions",
        "state that is lost",
        "nothing published",
        "a fence that is none",
        "nothing taken back",
        "what was taken back is missed by nobody",
        "a command that is done as often as it is tried",
    ],
)
def test_the_simulation_sees_what_is_broken(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object]
) -> None:
    """Each part of the protocol that is taken out is noticed by some seed, and the seed is named."""
    monkeypatch.setattr(name, broken)
    with pytest.raises(AssertionError, match=r"^seed \d+: "):
        simulate_all(range(240), root)
