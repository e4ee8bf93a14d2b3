"""Batches that a gate holds, and who releases or discards them, in storms (SEMANTICS 9.4, 11.5, F71).

The driver loop, the log, the decisions and their files are the real ones; only Spark and the table are made up.
Drivers crash, are fenced and restored, the table breaks, and people decide beside a driver or at rest. Two claims:
a row is published at most once for each batch that has it, and a batch that is not held, or is released, is shown.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_engine import UUID, FakeEngine, NoSource, Witness, World, heartbeat, make_driver, quick_folder, run_to_end

from penstock.checkpoint.log import compaction
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotRestore, Fenced, HeldDecided, HeldNotFound, HolderAlive, PenstockError, SinkError
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.quality.held.release import HeldBatch, HeldPins, find_held, waiting
from penstock.quality.policy import OnFail
from penstock.quality.suite import Severity
from penstock.quality.verdict import RuleResult, Status, Verdict
from penstock.runtime.driver.loop import Driver, DriverSettings
from penstock.runtime.driver.retention import Retention
from penstock.runtime.driver.settings import Identity
from penstock.runtime.driver.stages import Hook
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.held_service import HeldWork, decide_at_rest
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.sinks.base import Publication, Publisher, Sink
from penstock.sinks.staged_files import stage_table
from penstock.sinks.staged_publisher import StagedPublisher

pytestmark = pytest.mark.fault("F71")

SINK = "guarded"
NAMED = (CannotRestore, Fenced, SinkError)
"""What a driver or a command may end with here."""
SUITE: dict[str, Any] = {"expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 9}}]}


class GuardedSink(Sink, Publisher):
    """A table in memory behind real staged files; `broken` may raise before a publication, or return an error."""

    deduplicates = True

    def __init__(self, world: World, broken: Callable[[], Exception | None] = lambda: None) -> None:
        self.world, self.broken = world, broken

    def describe(self) -> str:
        """Return its name."""
        return SINK

    def open(self, staging: Path, spark: Any) -> GuardedSink:
        """Return this; its files lie in `staging`."""
        self.folder = staging
        return self

    def publish(self, publication: Publication) -> None:
        """Show the rows of the files once."""
        ids = [i for file in publication.files for i in pq.read_table(self.folder / file.path)["id"].to_pylist()]
        error = self.broken()
        self.world.table(SINK).publish(publication.app, publication.batch, ids)
        if error is not None:
            raise error


class GuardedEngine(FakeEngine):
    """An engine of which a gate fails in every batch that `fails` says of its first row."""

    fails: Callable[[int], bool]
    first = 0

    def _stage(self, facts: BatchContext, sink: str, rows: Sequence[Any]) -> list[Mapping[str, Any]]:
        if not rows:
            return []
        self.first = rows[0]
        name = self._name(facts)
        file = stage_table(pa.table({"id": rows}), self.world.root / "staged" / sink, name)
        return [
            {"kind": "measured", "check": "gate", "rows": len(rows), "partial": {}},
            {"kind": "staged", "sink": sink, "check": "gate", "file": {**file, "fails": [], "unit": None}},
        ]

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Fail a table rule, by the first row of the batch: the same batch fails whoever computes it."""
        if not partials:
            return []
        good = not self.fails(self.first)
        result = RuleResult(rule="rows", severity=Severity.CRITICAL, success=good, observed=1)
        return [(None, Verdict(status=Status.PASSED if good else Status.FAILED, rows=1, results=(result,)))]

    def sink(self, name: str) -> StagedPublisher:
        """Return the real publisher, of real files."""
        node = next(node.sink for node in self.graph.sinks if node.name == name)
        publisher = StagedPublisher(name, node, self.world.root / "staged" / name, None)
        return publisher.open() if name in self.opened else publisher


class HeldStorm:
    """One simulated run."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.seed, self.ends = seed, Counter[str]()
        self.bad = {i for i in range(40) if rng.random() < 0.5}
        self.world = World(root=root, times=[float(i) for i in range(rng.randint(4, 24))], batch_rows=rng.randint(1, 4))
        self.store, self.stride = Witness(), rng.choice([2, 4, 4_096])
        self.keep = rng.choice([1, 2, 20])
        self.records = HeldRecords(MemoryStore(), "guarded")
        self.undone_at_release: list[str] = []
        self.stormy = True
        self.graph = self.job()
        self.drivers: list[Driver | None] = [None, None]
        self.points: list[Iterator[Hook]] = [iter(()), iter(())]
        self.born = 0

    def job(self) -> JobGraph:
        """Return a job whose one sink is behind a gate that holds."""
        job = Job("guarded")
        checked = job.source("numbers", NoSource()).check("gate", suite=SUITE, on_fail=OnFail.HOLD)
        checked.write(SINK, GuardedSink(self.world, self.broken))
        return job.graph()

    def broken(self) -> Exception | None:
        """Break a publication now and then, before it takes effect or after."""
        chance = self.rng.random() if self.stormy else 0.5
        if chance < 0.1:
            raise SinkError("the table does not take it")
        return SinkError("the table does not answer") if chance > 0.9 else None

    def run(self) -> None:
        """Let it storm, then let one driver finish, and decide on what is left."""
        for _ in range(self.rng.choice([20, 60, 120])):
            self.turn(self.rng.randrange(2))
            if self.rng.random() < 0.1:
                self.decide_at_rest(allowed=self.rng.random() < 0.3)
            self.judge(finished=False)
        self.drivers, self.stormy = [None, None], False
        run_to_end(self.driver("last"))
        for batch in waiting(self.records, recover(self.log())):
            self.decide_at_rest(allowed=True, batch=batch)
        self.judge(finished=True)

    def turn(self, place: int) -> None:
        """Let a driver take some steps, be born, or die."""
        rng = self.rng
        if self.drivers[place] is None:
            self.born += 1
            driver = self.drivers[place] = self.driver(f"d{self.born}", allowed=rng.random() < 0.2)
            goes_back = rng.random() < 0.15
            self.points[place] = restore(driver, self.way_back()) if goes_back else driver.run()
        if rng.random() < 0.03:
            self.drivers[place] = None
            return
        try:
            for _ in range(rng.choice([1, 2, 5, 20])):
                next(self.points[place])
        except StopIteration:
            self.drivers[place] = None
        except (*NAMED, HolderAlive) as error:
            self.drivers[place] = None
            self.ends[type(error).__name__] += 1
        except PenstockError as error:
            raise AssertionError(self.said(error)) from error

    def way_back(self) -> RestoreTarget:
        """Return a batch to go back to."""
        batches = [entry.batch for entry in self.store.entries() if isinstance(entry, Commit)]
        return RestoreTarget(restore=True, batch=self.rng.choice([None, *batches[-6:]]))

    def driver(self, name: str, *, allowed: bool = False) -> Driver:
        """Return a driver that decides between its batches, as `HeldService` does."""
        engine = GuardedEngine(self.world, self.graph, name)
        engine.fails = self.bad.__contains__
        settings = DriverSettings(keep=self.keep)
        pins = HeldPins(self.records)
        driver = make_driver(
            self.world,
            self.store,
            name,
            graph=self.graph,
            engine=engine,
            log=self.log(),
            settings=settings,
            may_take_over=heartbeat(self.drivers, allowed=allowed),
            listeners=(pins,),
        )
        driver.janitor = Retention(self.world.root, keep=self.keep, pinned_batches=pins, decided_on=pins.decided_on)
        driver.between = self.served
        return driver

    def served(self, owned: OwnedLog) -> None:
        """Decide on a batch beside the driver; its errors are those of who asked, but for the loss of the log."""
        if self.rng.random() < 0.3:
            self.decided(lambda batch, decision: self.work().decide(batch, decision, owned=owned, by="driver"))

    def decide_at_rest(self, *, allowed: bool, batch: int | None = None) -> None:
        """Decide by a command that owns the log, where no driver lives or a person says so."""
        self.born += 1
        identity = Identity(holder=f"host-c{self.born}", writer=f"c{self.born}")
        status = StatusRecords(MemoryStore(), "guarded")
        may = heartbeat(self.drivers, allowed=allowed)
        with suppress(*NAMED, HolderAlive):
            self.decided(lambda n, d: decide_at_rest(self.work(), n, d, identity, may, status), batch)

    def decided(self, decide: Callable[[int, Decision], Any], batch: int | None = None) -> None:
        """Release or discard one of the held batches; the answer says whether that may be."""
        recovered = recover(self.log(), Damage.LIST)
        held = [batch] if batch is not None else sorted(recovered.held)
        if not held:
            return
        chosen, decision = self.rng.choice(held), self.rng.choice(list(Decision))
        try:
            if decision is Decision.RELEASE and chosen in recovered.held.undone:
                # Its rows come again, so nothing of it may be published from now on.
                self.undone_at_release = [f"batch {chosen}"]
            before = len(self.world.table(SINK).shown)
            decide(chosen, decision)
            self.ends[decision.value] += 1
        except (HeldDecided, HeldNotFound):
            self.ends["refused"] += 1
            if batch is not None:  # at the end: what may not be released can be discarded
                decide(chosen, Decision.DISCARD if decision is Decision.RELEASE else Decision.RELEASE)
        except SinkError:
            self.ends["broken"] += 1
        else:
            if self.undone_at_release:
                assert len(self.world.table(SINK).shown) == before, self.said(f"undone: {self.undone_at_release}")
        self.undone_at_release = []

    def work(self) -> HeldWork:
        """Return what decides, over the job's files."""
        staged = self.world.root / "staged"
        return HeldWork(self.records, self.log(), self.graph, uuid=UUID, staged=staged, spark=None)

    def log(self) -> Log:
        """Return the log as another process sees it."""
        return Log(self.store, stride=self.stride)

    def judge(self, *, finished: bool) -> None:
        """Hold what the table shows against the Commits that were ever written, and against the decisions."""
        commits = {entry.batch: entry for entry in self.store.entries() if isinstance(entry, Commit)}
        shown: dict[int, list[tuple[str, int]]] = {}
        for row in self.world.table(SINK).shown:
            shown.setdefault(row.batch, []).append((row.app, row.row))
        assert shown.keys() <= commits.keys(), self.said("a batch is shown that was not committed")
        newest = max(commits, default=-1)
        for batch, commit in commits.items():
            copies = shown.get(batch, [])
            assert len(copies) == len(set(copies)), self.said(f"batch {batch} shows a row twice")
            apps = {app for app, _ in copies}
            assert apps <= {f"{UUID}/{SINK}/held/{batch}" if commit.held else f"{UUID}/{SINK}"}, self.said(apps)
            rows = sum(file.rows for files in (commit.held or commit.staged).values() for file in files)
            ruling = self.records.ruling(batch)
            if commit.held:
                assert not finished or (ruling is not None and ruling.done), self.said(f"batch {batch} is forgotten")
                released = ruling is not None and ruling.decision is Decision.RELEASE
                must, may = released and ruling.done, released
                # A release that was cut short may have been ended by a discard behind a restore.
                may = may or (ruling is not None and ruling.done)
            else:
                must, may = finished or batch < newest, True
            assert may or not copies, self.said(f"batch {batch} was not released and is shown")
            assert not must or len(copies) == rows, self.said(f"batch {batch} has lost rows: {copies}")

    def said(self, what: object) -> str:
        """Name the seed."""
        return f"seed {self.seed}: {what}"


def _storms(seeds: range) -> Counter[str]:
    ends = Counter[str]()
    for seed in seeds:
        with quick_folder() as root:
            storm = HeldStorm(seed, root)
            storm.run()
            ends += storm.ends
    return ends


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(n, n + 25), marks=pytest.mark.soak if n >= 25 else ()) for n in range(0, 400, 25)],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_held_batches_are_published_once_or_not_at_all(monkeypatch, seeds):
    """Whoever decides, and whatever breaks in between; a log that is compacted all the time names them still."""
    monkeypatch.setattr(compaction, "EVERY", 3)
    ends = _storms(seeds)
    assert {"release", "discard", "refused", "Fenced"} <= ends.keys(), f"the storms met only {ends}"


def _forgets(log: Log, owned: OwnedLog, *, decided_on: Callable[[int], bool]) -> Any:
    return compaction.compact(log, owned, decided_on=lambda _: True)


def _never_undone(*asked: Any) -> HeldBatch:
    return replace(find_held(*asked), undone=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "broken"),
    [
        pytest.param("penstock.runtime.process.held_service.find_held", _never_undone, id="a restore is not looked at"),
        pytest.param(
            "penstock.quality.held.release.held_app", lambda uuid, sink, batch: f"{uuid}/{sink}/held", id="one app"
        ),
        pytest.param("penstock.runtime.driver.retention.compact", _forgets, id="a compaction forgets what waits"),
    ],
)
def test_the_storms_of_held_batches_see_what_is_broken(monkeypatch, place, broken):
    """Else they would say nothing."""
    monkeypatch.setattr(compaction, "EVERY", 3)
    monkeypatch.setattr(place, broken)
    with pytest.raises((AssertionError, PenstockError)):
        _storms(range(25))
