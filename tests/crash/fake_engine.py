"""A world without Spark for the real driver loop: one source, three sinks, one windowed step.

`World` is what outlives a driver: the source's rows, the tables, the files that tasks wrote. `FakeEngine` is what a
driver computes with; it holds no truth. The tables keep to Delta's rule: the version of an app goes up, a version that
is there is left alone, and a lower one is refused. Staged files and state stand below the job's folder, as real ones do.

Row i of the source has id i and an event time in seconds. It goes to sink `raw`, and into tumbling windows of 4 seconds
by key (the parity of its id). A closed window goes to sink `windows` with the ids in it, a late row to sink `late`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from oracle import BEGINNING, NOTHING, Decided, Ledger, Windows

from penstock import agg
from penstock.checkpoint.log.entries import Commit, Entry, Restore, StagedFile, Void, from_bytes
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import folder_at
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import CannotTruncate, CheckpointCopied, CheckpointCorrupt, HolderAlive, SinkAhead
from penstock.graph.durations import seconds
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.graph.policies import OnEnd
from penstock.quality.verdict import Verdict
from penstock.runtime.driver.engine import SinkPublisher
from penstock.runtime.driver.loop import Driver, DriverSettings, Identity
from penstock.runtime.driver.retention import Retention
from penstock.runtime.restore.compatibility import compare, refuse
from penstock.runtime.snapshots.scheduler import DataCheckpoints
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.sinks.base import Origin, Publisher, Sink, Target, TruncatableSink
from penstock.sinks.delta.restore import choose_version
from penstock.sources.base import Ends, Position, Source, SourceReader, Span, Waiting
from penstock.state.manifest import Manifest, ManifestRef
from penstock.time.clock import ManualClock
from penstock.time.triggers import FixedInterval
from penstock.windows import Tumbling

OnPublish = Callable[[str, int], Exception | None]

SECOND = 1_000_000
SIZE = 4
"""The length of a window in seconds."""
PARTITIONS = 2
UUID = "5f0c9bb4-1111-4222-8333-444455556666"


class NoSource(Source):
    """A source whose rows the engine makes up; all windows close at its end."""

    on_end = OnEnd.CLOSE

    def open(self, spark: Any) -> SourceReader:
        """Have none: the engine reads."""
        raise NotImplementedError


class NoSink(Sink):
    """A sink whose rows the engine keeps."""

    def open(self, staging: Path, spark: Any) -> Publisher:
        """Have none: the engine publishes."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return what it is."""
        return "nothing"


def plain_job(sinks: Sequence[str] = ("raw", "copy")) -> JobGraph:
    """Return a job that copies its source to each sink."""
    job = Job("plain")
    numbers = job.source("numbers", NoSource())
    for sink in sinks:
        numbers.write(sink, NoSink())
    return job.graph()


class TableSink(NoSink, TruncatableSink):
    """A sink that takes back what it has published, by the rules of a Delta table (`sinks.delta.restore`).

    The engine keeps its rows, as of all sinks here.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def find_version(self, target: Target) -> int | None:
        """Return the version of the table that showed the target."""
        history = self.world.table(self.name).history
        commits = [(number, [{"txn": {"appId": app, "version": version}}]) for number, app, version, _ in history]
        return choose_version(reversed(commits), target, Path(self.name))

    def truncated(self, app: str) -> int | None:
        """Return the slot of the newest truncation."""
        return self.world.table(self.name).versions.get(f"{app}/truncate")

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Show the rows of a version again, once for a slot."""
        table = self.world.table(self.name)
        if table.versions.get(target.truncation, -1) >= slot:
            return False
        if table.versions.get(target.app, -1) > newest:
            raise CannotTruncate("the table has a batch of a driver that came later")
        then = table.history[version - 1][3] if version else ()
        table.versions[target.truncation], table.shown = slot, list(then)
        table.note(target.truncation, slot)
        return True


def windowed_job(out_of_order: float = 2, world: World | None = None) -> JobGraph:
    """Return a job with a raw copy, windows, and the rows that come too late for them.

    With a world the sinks take back what they have published.
    """
    job = Job("windowed", partitions=PARTITIONS)
    numbers = job.source("numbers", NoSource(), event_time="t", max_out_of_order=seconds(out_of_order))
    sinks = {name: NoSink() if world is None else TableSink(world, name) for name in ("raw", "windows", "late")}
    numbers.write("raw", sinks["raw"])
    for name in world.blind if world is not None else ():
        numbers.write(name, NoSink())
    sums = numbers.key_by("parity").window("sums", Tumbling(seconds(SIZE)).late_to("too_late"))
    sums.aggregate(ids=agg.count()).write("windows", sinks["windows"])
    job.late("too_late").write("late", sinks["late"])
    return job.graph()


@dataclass(frozen=True)
class Shown:
    """One visible row of a table, and under which app and batch it was published."""

    app: str
    batch: int
    row: Any


@dataclass
class Table:
    """A sink with the version semantics of a Delta table's app transactions."""

    versions: dict[str, int] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)
    history: list[tuple[int, str, int, tuple[Shown, ...]]] = field(default_factory=list)
    """Each version from 1 on: its number, the app and its version, and what the table showed then."""
    files: dict[str, Sequence[str]] = field(default_factory=dict)

    def note(self, app: str, version: int) -> None:
        """Note what the table shows now as a version of its own."""
        self.history.append((len(self.history) + 1, app, version, tuple(self.shown)))

    def publish(self, app: str, batch: int, rows: Sequence[Any], files: Sequence[str] = ()) -> None:
        """Show the rows as version `batch` of the app, unless these files are shown; raises SinkAhead below it."""
        seen = self.versions.get(app, -1)
        if seen == batch and files and self.files.get(app, files) != files:  # a table in a file has no names
            raise CheckpointCopied(f"the table has other files of batch {batch}")
        if seen > batch:
            raise SinkAhead(f"the table has batch {seen} and is asked to take batch {batch}", seen=seen, batch=batch)
        if seen < batch:
            self.versions[app], self.files[app] = batch, files
            self.shown.extend(Shown(app, batch, row) for row in rows)
            self.note(app, batch)


@dataclass
class World:
    """What outlives every driver.

    `root` is the job's folder; without it staged files are kept in `files`, and no job with state can run.
    `times` are the event times of the source's rows, in seconds; `closed` says that there will be no more.
    """

    root: CheckpointFolder | None = None
    times: list[float] = field(default_factory=list)
    closed: bool = True
    batch_rows: int = 2
    tables: dict[str, Table] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    blind: frozenset[str] = frozenset()
    """Sinks that cannot tell which batches they show, and so show some of them again: at least once."""

    def table(self, sink: str) -> Table:
        """Return the table behind a sink."""
        return self.tables.setdefault(sink, Table())

    def stage(self, sink: str, name: str, rows: Sequence[Any]) -> None:
        """Keep the rows of a staged file."""
        if self.root is None:
            assert name not in self.files
            self.files[name] = json.dumps(rows)
            return
        path = self.root / "staged" / sink / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="ascii") as file:
            json.dump(rows, file)

    def staged(self, sink: str, name: str) -> list[Any]:
        """Return the rows of a staged file."""
        text = self.files[name] if self.root is None else (self.root / "staged" / sink / name).read_text("ascii")
        rows: list[Any] = json.loads(text)
        return rows

    def rows(self, sink: str) -> list[Any]:
        """Return the rows a sink shows, in order."""
        return [shown.row for shown in self.table(sink).shown]


class WorldReader(SourceReader):
    """Follow the rows of a world, `batch_rows` a batch."""

    schema = pa.schema([("id", pa.int64())])

    def __init__(self, world: World) -> None:
        self.world = world

    def backlog(self, after: Position | None) -> Mapping[str, Waiting]:
        """Return the rows that no batch has read, of which a batch takes `batch_rows`."""
        return {"0": Waiting.of_rows(self._at(after), len(self.world.times), at_most=self.world.batch_rows)}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the number of rows that are read."""
        assert self._at(after) <= ends["0"] <= len(self.world.times)
        return {"at": ends["0"]}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the ids between two positions."""
        return {"from": self._at(start), "to": end["at"]}

    def rows(self, span: Span) -> int:
        """Return how many there are."""
        return int(span["to"]) - int(span["from"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return ("0",)

    def verify(self, span: Span) -> None:
        """Find the span as it was: rows are only ever added."""
        assert span["to"] <= len(self.world.times)

    def ended(self, position: Position | None) -> bool:
        """Return whether all rows are read and there will be no more."""
        return self.world.closed and self._at(position) >= len(self.world.times)

    @staticmethod
    def _at(position: Position | None) -> int:
        return 0 if position is None else int(position["at"])


class WorldPublisher:
    """Publish to a table of a world; with no file no version is noted, as in the Delta sink."""

    deduplicates = True
    place = None

    def __init__(self, engine: FakeEngine, sink: str) -> None:
        self.engine = engine
        self.world = engine.world
        self.name = sink
        self.staging = (engine.world.root or LocalFolder("no-such-folder")) / "staged" / sink

    def version(self, app: str) -> int | None:
        """Return the newest batch of the app that a table shows."""
        return None if self.name in self.world.blind else self._table().versions.get(app)

    def verify(self, files: Sequence[StagedFile]) -> None:
        """Believe them: the rows are in memory."""

    def refuse_values(self, files: Sequence[StagedFile]) -> None:
        """Take any row of a table that is open."""
        self._table()

    def publish(self, app: str, batch: int, files: Sequence[StagedFile], origin: Origin) -> None:
        """Show the rows of the files; no files, no version, as in the Delta sink."""
        table = self._table()
        if not files:
            return
        after = self.engine.on_publish(self.name, batch)
        if self.name in self.world.blind:
            table.versions.clear()
        names = [f.path for f in files]
        table.publish(app, batch, [row for name in names for row in self.world.staged(self.name, name)], names)
        if after is not None:
            raise after

    def put_back(self, target: Target, version: int, *, slot: int, newest: int) -> bool:
        """Have a table show a version again; the answer may be lost, as that of a publication."""
        self._table()
        after = self.engine.on_publish(self.name, -1)
        sink = next(s.sink for s in self.engine.graph.sinks if s.name == self.name)
        assert isinstance(sink, TruncatableSink)
        done = sink.put_back(target, version, slot=slot, newest=newest)
        if after is not None:
            raise after
        return done

    def _table(self) -> Table:
        if self.name not in self.engine.opened:
            raise KeyError(f"{self.name}: a table was asked before it was opened")
        return self.world.table(self.name)


class FakeEngine:
    """An `Engine` over a `World`. `name` goes into the names of the files it writes.

    `on_publish(sink, batch)` is called before a table is touched; an error that it returns is raised afterwards.
    """

    def __init__(
        self, world: World, graph: JobGraph, name: str = "engine", *, on_publish: OnPublish = lambda _sink, _batch: None
    ) -> None:
        self.world = world
        self.graph = graph
        self.name = name
        self.on_publish = on_publish
        self.computed: list[int] = []
        self._files = 0
        self.opened: set[str] = set()

    def accept(self, recovered: Recovered, drop: Collection[str] = ()) -> None:
        """Go on from any state that its steps have written."""
        refuse(compare(self.graph, recovered, {}, drop=drop))

    def prepare(self) -> None:
        """Open the tables; as with the real engine, no other method knows them before."""
        self.opened = {sink.name for sink in self.graph.sinks}

    def source(self, name: str) -> WorldReader:
        """Return the reader of the one source."""
        assert name in {source.name for source in self.graph.sources}
        return WorldReader(self.world)

    def tables(self, commit: Any, batch: int) -> dict[str, Any]:
        """Return none: no job here joins a table."""
        return {}

    def forget_tables(self, commit: Any) -> None:
        """It joins none."""

    def table_files(self, versions: Any) -> dict[str, str]:
        """Return none."""
        return {}

    def requeue(self, commit: Commit | None, batch: int) -> Mapping[str, Mapping[str, Any]]:
        """Send nothing again."""
        return {}

    def sink(self, name: str) -> SinkPublisher:
        """Return the publisher of a sink."""
        assert name in {sink.name for sink in self.graph.sinks}
        return WorldPublisher(self, name)

    # --- computing ---------------------------------------------------------------------------

    def compute(self, facts: BatchContext) -> Sequence[Mapping[str, Any]]:
        """Read, copy, sort into windows, close windows; return the receipts that tasks would."""
        self.computed.append(facts.batch)
        span = facts.spans["numbers"] or {"from": 0, "to": 0}
        ids = list(range(span["from"], span["to"]))
        receipts = [self._read(ids)]
        for sink in self.graph.sinks:
            if sink.name not in {"windows", "late"}:
                receipts += self._stage(facts, sink.name, ids)
        if self.graph.steps:
            receipts += self._windows(facts, ids)
        return receipts

    def cancel(self) -> None:
        """Have nothing to end."""

    def _read(self, ids: Sequence[int]) -> Mapping[str, Any]:
        highest = {"0": max(round(self.world.times[i] * SECOND) for i in ids)} if ids else {}
        rows = {"0": len(ids)} if ids else {}
        return {"kind": "read", "source": "numbers", "rows": rows, "highest": highest, "quarantined": {}}

    def _stage(self, facts: BatchContext, sink: str, rows: Sequence[Any]) -> list[Mapping[str, Any]]:
        if not rows:
            return []
        path = self._name(facts)
        self.world.stage(sink, path, rows)
        file = {"path": path, "size": 1, "rows": len(rows), "checksum": "", "fails": [], "unit": None}
        return [{"kind": "staged", "sink": sink, "check": None, "file": file}]

    def _windows(self, facts: BatchContext, ids: Sequence[int]) -> list[Mapping[str, Any]]:
        late_mark, close = facts.late["sums"], facts.close["sums"]
        late = [i for i in ids if late_mark is not None and self._end(i) <= late_mark]
        receipts: list[Mapping[str, Any]] = []
        closed: list[Any] = []
        for partition in range(PARTITIONS):
            open_windows = self._state(facts, partition)
            mine = [i for i in ids if i % PARTITIONS == partition and i not in late]
            for i in mine:
                open_windows.setdefault(str(self._end(i)), []).append(i)
            ends = [end for end in sorted(open_windows, key=int) if close is not None and int(end) <= close]
            closed += [[partition, int(end) // SECOND, open_windows.pop(end)] for end in ends]
            receipts.append(self._state_receipt(facts, partition, open_windows, merged=len(mine)))
        counts = {"rows": len(ids), "counted": len(ids) - len(late), "late": len(late)}
        counts |= {"partly_late": 0, "in_no_window": 0}
        receipts.append({"kind": "step", "counted_as": "window:sums", "counts": counts})
        return receipts + self._stage(facts, "windows", closed) + self._stage(facts, "late", late)

    def _name(self, facts: BatchContext) -> str:
        """Return a name that no other task and no other try uses."""
        self._files += 1
        return f"{facts.batch:012d}-{facts.epoch}-{self.name}-{self._files}"

    def _state(self, facts: BatchContext, partition: int) -> dict[str, list[int]]:
        """Return the open windows of a partition by their ends, from the manifest that the last Commit names."""
        known = facts.manifests.get("sums", {}).get(str(partition))
        if known is None:
            return {}
        path = folder_at(facts.state_folder) / "sums" / str(partition) / known["path"]
        open_ids: dict[str, list[int]] = Manifest.read(path, ManifestRef(**known)).facts["open"]
        return open_ids

    def _state_receipt(
        self, facts: BatchContext, partition: int, open_windows: Mapping[str, list[int]], *, merged: int
    ) -> Mapping[str, Any]:
        made = Manifest(
            step="sums", partition=partition, keys=("parity",), batch=facts.batch, facts={"open": open_windows}
        )
        path = folder_at(facts.state_folder) / "sums" / str(partition) / self._name(facts)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = made.to_bytes()
        with path.open("xb") as file:
            file.write(data)
        return {
            "kind": "state",
            "counted_as": "window:sums",
            "due_time": None,
            "step": "sums",
            "partition": partition,
            "manifest": {"path": path.name, "size": len(data), "checksum": made.checksum},
            "due": min(map(int, open_windows), default=None),
            "counts": {"merged": merged},
            "size": len(data),
            "written": len(data),
            "rewritten": 0,
            "fetched": 0,
        }

    def _end(self, i: int) -> int:
        return (int(self.world.times[i] // SIZE) + 1) * SIZE * SECOND

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        """Return nothing: no job here has a check."""
        return []


class StillClock(ManualClock):
    """Time for which nothing takes long, so that a run gives the same bytes each time."""

    def monotonic(self) -> float:
        """Return 0."""
        return 0.0


def make_driver(
    world: World,
    store: CheckpointStore,
    name: str,
    *,
    graph: JobGraph,
    engine: FakeEngine | None = None,
    log: Log | None = None,
    settings: DriverSettings | None = None,
    uuid: str = UUID,
    may_take_over: Callable[[View], None] = lambda _view: None,
    listeners: tuple[Listener, ...] = (),
) -> Driver:
    """Return a driver of the real loop over the world; `name` is its holder and its writer."""
    settings = settings or DriverSettings()
    return Driver(
        engine or FakeEngine(world, graph, name),
        log or Log(store),
        uuid=uuid,
        clock=StillClock(),
        trigger=FixedInterval(SECOND, 0),
        identity=Identity(holder=f"host-{name}", writer=name, code_version="test"),
        janitor=Retention(world.root or LocalFolder("no-such-folder"), keep=settings.keep),
        data=DataCheckpoints(LocalFolder("no-such-folder"), uuid, {}, settings.data),
        settings=settings,
        may_take_over=may_take_over,
        listeners=listeners,
    )


def heartbeat(drivers: Iterable[Driver | None], *, allowed: bool) -> Callable[[View], None]:
    """Return what allows a takeover: the holder is none of these, which live, or a person has said so."""

    def may_take_over(view: View) -> None:
        alive = {f"host-{driver.identity.writer}" for driver in drivers if driver is not None}
        if not allowed and view.holder in alive:
            raise HolderAlive("the holder's heart beats", epoch_mine=0, epoch_seen=view.epoch, holder=view.holder)

    return may_take_over


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Make a folder in memory where there is one: thousands of fsyncs say nothing new about a disk."""
    shared = Path("/dev/shm")  # noqa: S108 - the folder in it has a random name
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield LocalFolder(folder)


decoded = functools.lru_cache(maxsize=20_000)(from_bytes)
"""What an entry says, remembered: simulations read the same bytes again and again, and reading is a pure function."""


class Witness(MemoryStore):
    """A store that remembers every file it ever held, in order, whatever is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes) -> None:
        """Add the file and remember it."""
        super().create(path, data)
        self.ever.append((path, bytes(data)))

    def entries(self) -> list[Entry]:
        """Return every entry of the log that was ever written and can be read, in the order of writing."""
        entries = []
        for path, data in self.ever:
            if path.startswith("log/"):
                with suppress(CheckpointCorrupt):
                    entries.append(decoded(data, path))
        return entries


def ledger_of(world: World, store: Witness, graph: JobGraph, *, finished: bool) -> Ledger:
    """Return what the oracle judges: the tables as they are, and the Commits that were ever written."""
    entries = store.entries()
    ends, at, restored, decided = {NOTHING: 0}, NOTHING, None, []
    shown: frozenset[int] = frozenset()
    line: frozenset[int] = frozenset()
    lines: dict[int, frozenset[int]] = {NOTHING: line}
    then: dict[int, frozenset[int]] = {NOTHING: shown}
    unsettled: frozenset[int] = frozenset()
    for entry in entries:
        if isinstance(entry, Restore):
            at = restored = NOTHING if entry.batch is None else entry.batch
            line = lines[at]
            if entry.truncate:
                # Until a Commit follows, the tables may show either.
                unsettled |= shown ^ then[at]
                shown = then[at]
        elif isinstance(entry, Commit):
            end = int(str(entry.sources["numbers"].position["at"]))
            mark = entry.watermarks_in.get("sums")
            watermark = BEGINNING if mark is None else mark / SECOND
            decided.append(Decided(batch=entry.batch, start=ends[at], end=end, watermark=watermark, restored=restored))
            at, ends[entry.batch], restored = entry.batch, end, None
            then[entry.batch] = shown = shown | {entry.batch}
            lines[entry.batch] = line = line | {entry.batch}
            unsettled = frozenset()
    sinks = {sink.name: [(shown.batch, shown.row) for shown in world.table(sink.name).shown] for sink in graph.sinks}
    sinks |= {name: list(dict.fromkeys(sinks[name])) for name in world.blind}
    closed = [(batch, key, end, tuple(ids)) for batch, (key, end, ids) in sinks.pop("windows", [])]
    late = sinks.pop("late", [])
    return Ledger(
        inputs=len(world.times),
        decided=decided,
        copies=sinks,
        finished=finished,
        windows=Windows(times=world.times, size=SIZE, keys=PARTITIONS) if graph.steps else None,
        closed=closed,
        late=late,
        given_up=frozenset(e.batch for e in entries if isinstance(e, Void) and e.batch is not None),
        restored=restored,
        # What the state in force has counted must be shown, whatever was taken back.
        taken_back=frozenset(batch.batch for batch in decided) - shown - unsettled - line,
        unsettled=unsettled,
    )


def run_to_end(driver: Driver) -> None:
    """Run a driver until its bounded source is done."""
    for passed, hook in enumerate(driver.run()):
        assert hook.stage != "Wait", "nothing is left to do and the source has not ended"
        assert passed < 5_000, "there is no end"
