"""Held batches wait until a person decides, are published once, and are not purged before (SEMANTICS 11.5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from checkpoint_samples import commit, offsets, own
from deltalake import DeltaTable

from penstock import Job
from penstock.checkpoint.log.entries import Restore, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CheckpointCorrupt, HeldCopied, HeldDecided, HeldNotFound, StorageUnavailable, UnknownName
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.quality.held.overtaken import InForce
from penstock.quality.held.release import (
    HeldPins,
    SessionOnDemand,
    discard,
    find_held,
    held_app,
    release,
    undecided,
    undone_by_restore,
)
from penstock.runtime.driver.retention import Retention
from penstock.sinks import Console, Delta
from penstock.sinks.base import Origin
from penstock.sinks.delta.publisher import DeltaPublisher
from penstock.sinks.staged_files import stage_table
from penstock.sinks.staged_publisher import StagedPublisher, fingerprint_of
from penstock.sources import MemorySource

UUID = "5f0c9bb4-1111-4222-8333-444455556666"
SCHEMA = pa.schema([("v", pa.int64())])


class World:
    """A checkpoint with Delta sinks `out` and `second`, a console sink `shown`, and batches whose rows are held."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = ""
        self.table = root / "table"
        self.sink = Delta(self.table)
        self.second = Delta(root / "second")
        for sink in (self.sink, self.second):
            sink.create(SCHEMA, None)
        job = Job("orders")
        rows = job.source("orders", MemorySource(schema="v long"))
        rows.write("out", self.sink)
        rows.write("second", self.second)
        rows.write("shown", Console())
        self.graph = job.graph()
        self.staged = root / "checkpoint" / "staged"
        self.log = Log(LocalStore(root / "checkpoint"))
        self.owned = own(self.log)
        self.records = HeldRecords(LocalStore(root / "control"), "orders")

    def hold(self, batch: int, rows: int = 3, *, sinks=("out",), floor: int = 0):
        """Commit a batch whose rows are held."""
        held = {}
        for sink in sinks:
            delta = {"out": self.sink, "second": self.second}.get(sink)
            folder = self.staged / sink if delta is None else delta.staging(self.staged / sink)
            table = pa.table({"v": pa.array([batch] * rows, pa.int64())})
            facts = stage_table(table, folder, f"{batch:012d}-{self.run}{sink}.parquet")
            held[sink] = [StagedFile(**facts, stats={})]
        verdict = {"check": "quality", "unit": None, "action": "hold", "status": "failed"}
        self.owned.append(offsets(batch))
        return self.owned.append(commit(batch, held=held, verdicts=[verdict], floor=floor))

    def pass_on(self, batch: int, *, floor: int = 0):
        """Commit a batch of which nothing is held."""
        self.owned.append(offsets(batch))
        return self.owned.append(commit(batch, floor=floor))

    def restore(self, batch: int | None) -> None:
        source = "empty" if batch is None else "batch"
        self.owned.append(Restore(epoch=1, writer="w1", batch=batch, source=source, saved=None, partitions=None))

    def found(self, batch: int):
        return find_held(self.records, recover(self.log), batch)

    def release(self, batch: int, spark=None):
        return release(
            self.records, self.found(batch), self.graph, uuid=UUID, staged=self.staged, spark=spark, by="test",
            still_mine=self.owned.refuse_lost, older={}, in_force=InForce.of(recover(self.log)),
        )  # fmt: skip

    def discard(self, batch: int):
        return discard(
            self.records,
            self.found(batch),
            self.graph,
            uuid=UUID,
            staged=self.staged,
            spark=None,
            by="test",
            still_mine=self.owned.refuse_lost,
        )

    def shown(self) -> list[int]:
        return sorted(DeltaTable(str(self.table)).to_pyarrow_table()["v"].to_pylist())

    def waiting(self) -> list[int]:
        return [h.batch for h in undecided(self.records, recover(self.log))]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_held_batches_are_listed_until_they_are_decided(world):
    """With their rows by sink and the checks that held them."""
    world.hold(0)
    world.pass_on(1)
    world.hold(2, rows=5)
    assert world.waiting() == [0, 2]
    held = world.found(2)
    assert (held.rows, held.checks, held.undone, held.ruling) == ({"out": 5}, ("quality",), False, None)
    world.release(0)
    world.discard(2)
    assert world.waiting() == []


def copied(world: World) -> World:
    """Return a copy of the checkpoint, which writes to the same tables; batches from now on have other rows."""
    copy = World(world.root / "copy")
    copy.sink, copy.second, copy.graph, copy.run = world.sink, world.second, world.graph, "copy-"
    return copy


@pytest.mark.remedy("PEN-QLT-009")
def test_what_a_copy_of_the_checkpoint_has_released_first_can_only_be_discarded(world):
    """The copy has the uuid and the number, and other rows. No sink gets ours, and no note of rows that they replace."""
    copy = copied(world)
    copy.hold(0, rows=2, sinks=("second",))
    world.hold(0, sinks=("out", "second"))
    copy.release(0)
    for _ in range(2):  # the same each time
        with pytest.raises(HeldCopied, match="sink 'second' shows batch 0 with other rows"):
            world.release(0)
        assert (world.waiting(), world.found(0).ruling, world.shown()) == ([0], None, [])
    assert world.discard(0).rows == {"out": 3, "second": 3}
    assert world.waiting() == []
    assert copy.release(0).done
    assert DeltaTable(str(world.root / "second")).to_pyarrow_table().num_rows == 2


def test_a_release_that_a_copy_of_the_checkpoint_came_into_is_discarded_without_what_is_visible(world):
    """Whoever began it died behind its first sink. What that one shows is not counted as dropped."""
    copy = copied(world)
    copy.hold(0, rows=2, sinks=("second",))
    world.hold(0, sinks=("out", "second", "shown"))
    world.records.decide(0, Decision.RELEASE, world.found(0).rows, by="who dies")
    held = world.found(0)
    out = StagedPublisher("out", world.sink, world.staged / "out", None).open()
    out.show(
        held_app(UUID, "out", 0), 0, held.files["out"], Origin(job="orders", time=0),
        fingerprint=fingerprint_of(held.files["out"]),
    )  # fmt: skip
    with pytest.raises(HeldDecided, match="is being released"):
        world.discard(0)
    copy.release(0)
    with pytest.raises(HeldCopied, match="sink 'second'"):
        world.release(0)
    assert world.discard(0).rows == {"second": 3, "shown": 3}
    assert (world.waiting(), world.shown()) == ([], [0, 0, 0])
    with pytest.raises(HeldDecided, match="batch 0 was discarded"):
        world.release(0)


def test_a_batch_that_was_held_before_the_checkpoint_was_copied_is_shown_once(world):
    """Both have the same files: the second to release them finds its own rows."""
    world.hold(0)
    copy = copied(world)
    copy.log, copy.owned, copy.staged = world.log, world.owned, world.staged
    copy.records = HeldRecords(LocalStore(world.root / "other"), "orders")
    copy.release(0)
    world.release(0)
    assert (copy.waiting(), world.waiting(), world.shown()) == ([], [], [0, 0, 0])


def test_a_decision_says_which_windows_the_batch_has_closed(world):
    """After those of the batch before it, where that is known; a restore between leaves it open."""
    for batch in range(3):
        world.owned.append(offsets(batch))
        file = StagedFile(path=f"{batch}.parquet", size=9, rows=3, checksum="c", stats={})
        world.owned.append(commit(batch, held={"out": [file]}, watermarks_in={"w": batch * 60, "later": None}))
        if batch == 1:
            world.restore(1)
    assert [world.found(batch).windows for batch in range(3)] == [{"w": (None, 0)}, {"w": (0, 60)}, {"w": (None, 120)}]
    ruling = world.records.decide(1, Decision.RELEASE, {"out": 3}, by="me", windows=world.found(1).windows)
    world.records.carried_out(1, ruling, by="me")
    assert world.records.ruling(1).windows == {"w": (0, 60)}


def test_a_release_publishes_the_rows_and_a_second_one_changes_nothing(world):
    """Under an app id of its own for each batch, so that the order does not matter."""
    world.hold(0)
    world.hold(1, rows=2)
    assert world.shown() == []
    assert world.release(1).rows == {"out": 2}
    assert world.release(0).rows == {"out": 3}
    assert world.release(1).done
    assert world.shown() == [0, 0, 0, 1, 1]
    table = DeltaTable(str(world.table))
    assert table.transaction_version(f"{UUID}/out/held/1") == 1
    assert table.version() == 2


def test_a_release_that_a_crash_cut_short_is_finished_by_the_next(world, monkeypatch):
    """After the decision, after the publication: the batch stays on the list, and its rows are published once."""
    world.hold(0)

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("penstock.sinks.delta.publisher.DeltaPublisher.publish", crash)
        with pytest.raises(KeyboardInterrupt):
            world.release(0)
    assert (world.waiting(), world.shown()) == ([0], [])
    assert world.found(0).ruling.decision is Decision.RELEASE
    with monkeypatch.context() as patched:
        patched.setattr(HeldRecords, "carried_out", crash)
        with pytest.raises(KeyboardInterrupt):
            world.release(0)
    assert (world.waiting(), world.shown()) == ([0], [0, 0, 0])
    world.release(0)
    assert (world.waiting(), world.shown()) == ([], [0, 0, 0])


@pytest.mark.remedy("PEN-QLT-006")
def test_a_decision_is_made_once(world):
    """What was released cannot be discarded, nor the other way round, also when it is not finished."""
    world.hold(0)
    world.hold(1)
    world.hold(2)
    world.release(0)
    with pytest.raises(HeldDecided, match="batch 0 was released"):
        world.discard(0)
    world.discard(1)
    with pytest.raises(HeldDecided, match="batch 1 was discarded"):
        world.release(1)
    world.records.decide(2, Decision.DISCARD, {"out": 3}, by="another")
    with pytest.raises(HeldDecided, match="batch 2 is being discarded"):
        world.release(2)
    assert world.shown() == [0, 0, 0]
    assert world.waiting() == [2], "what the list shows is what can be decided"
    assert world.discard(2).decision is Decision.DISCARD
    assert world.waiting() == []


def test_of_two_people_at_once_the_first_decides(world):
    """Both are told the same."""
    for batch in range(20):
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(world.records.decide, batch, d, {}, by="x") for d in Decision]
            rulings = {a.result().decision for a in asked}
        assert len(rulings) == 1
        assert world.records.ruling(batch).decision in rulings


def test_a_discard_deletes_what_lies_below_the_checkpoint_only(world):
    """Files in the table's own folder are the table's: nothing names them, and its vacuum takes them."""
    world.hold(0, sinks=("out", "shown"))
    ours, theirs = world.staged / "shown" / "000000000000-shown.parquet", world.table / "000000000000-out.parquet"
    assert ours.exists()
    assert world.discard(0).rows == {"out": 3, "shown": 3}
    assert (ours.exists(), theirs.exists()) == (False, True)
    assert world.discard(0).done


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"x" + p.read_bytes()[1:])])
def test_a_held_file_that_is_not_what_the_commit_names_is_not_published(world, damage):
    """Nothing is decided, so the file can be put back."""
    world.hold(0)
    damage(world.table / "000000000000-out.parquet")
    with pytest.raises(CheckpointCorrupt, match="staged file"):
        world.release(0)
    assert (world.shown(), world.found(0).ruling) == ([], None)


def test_a_batch_that_a_restore_has_undone_is_not_released(world):
    """Its rows come again in later batches."""
    world.pass_on(0)
    world.hold(1)
    world.restore(0)
    world.pass_on(2)
    with pytest.raises(HeldDecided, match="later batches read its rows a second time"):
        world.release(1)
    assert world.discard(1).rows == {"out": 3}


@pytest.mark.parametrize("published", [False, True])
def test_a_release_that_was_cut_short_before_a_restore_is_not_finished_behind_it(world, monkeypatch, published):
    """The rows come again in later batches; a restore that brings the batch back brings the release back as well."""
    world.pass_on(0)
    world.hold(1)

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        killed_at = (HeldRecords, "carried_out") if published else (DeltaPublisher, "publish")
        patched.setattr(*killed_at, crash)
        with pytest.raises(KeyboardInterrupt):
            world.release(1)
    world.restore(0)
    world.pass_on(2)
    assert world.waiting() == [1]
    rows = [1, 1, 1] if published else []
    with pytest.raises(HeldDecided, match="later batches read its rows a second time"):
        world.release(1)
    assert (world.shown(), world.waiting()) == (rows, [1])
    world.restore(1)
    world.release(1)
    assert (world.shown(), world.waiting()) == ([1, 1, 1], [])


def test_a_release_that_a_restore_has_ended_is_discarded(world):
    """Else the batch would stay on the list for ever."""
    world.pass_on(0)
    world.hold(1)
    world.records.decide(1, Decision.RELEASE, {"out": 3}, by="killed")
    with pytest.raises(HeldDecided, match="is being released"):
        world.discard(1)
    world.restore(0)
    assert world.discard(1).rows == {"out": 3}
    assert (world.shown(), world.waiting(), world.found(1).ruling.decision) == ([], [], Decision.DISCARD)


@pytest.mark.remedy("PEN-QLT-007")
def test_what_is_not_held_cannot_be_decided_on(world):
    """Neither a batch that passed nor one that never was; nor for a sink that the job has no more."""
    world.pass_on(0)
    world.hold(1)
    for batch in (0, 7):
        with pytest.raises(HeldNotFound, match=r"undecided: \[1\]"):
            world.found(batch)
    assert world.found(1).rows == {"out": 3}
    job = Job("orders")
    job.source("orders", MemorySource(schema="v long")).write("other", Console())
    world.graph = job.graph()
    with pytest.raises(UnknownName, match="'out'"):
        world.release(1)


@pytest.mark.parametrize(
    ("script", "undone"),
    [
        ("0 1 2", []),
        ("0 1 2 <1", [2]),
        ("0 1 2 <1 3", [2]),
        ("0 1 2 <1 3 <2", [3]),
        ("0 1 2 <1 3 <2 4 <0", [1, 2, 3, 4]),
        ("0 1 <empty 2", [0, 1]),
        ("0 1 <empty 2 <1", [2]),
        ("0 1 2 <1 <2", []),
    ],
)
def test_which_batches_a_restore_has_gone_back_behind(world, script, undone):
    """A restore can itself be undone by another (DESIGN 5)."""
    for word in script.split():
        if word.startswith("<"):
            world.restore(None if word == "<empty" else int(word[1:]))
        else:
            world.pass_on(int(word))
    assert sorted(undone_by_restore(recover(world.log))) == undone


@pytest.mark.fault("F30")
def test_a_held_batch_stays_while_newer_ones_are_purged(world):
    """The floor does not pass it, its files are not swept, and it goes when it is decided."""
    pins = HeldPins(world.records)
    janitor = Retention(world.root / "checkpoint", keep=2, pinned_batches=pins)
    pins.on_takeover(recover(world.log))
    janitor.adopt(recover(world.log))
    file = world.staged / "shown" / "000000000001-shown.parquet"
    left = world.staged / "shown" / "000000000000-left.parquet"
    left.parent.mkdir(parents=True)
    left.touch()

    def go_on(batch: int) -> int:
        floor = janitor.floor(batch)
        done = world.hold(batch, sinks=("shown",), floor=floor) if batch == 1 else world.pass_on(batch, floor=floor)
        janitor.sweep(done, world.log)
        pins.on_batch_completed(done)
        return floor

    assert [go_on(batch) for batch in range(9)] == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert (file.exists(), left.exists()) == (True, False)
    assert [h.batch for h in undecided(world.records, recover(world.log))] == [1]
    world.discard(1)
    assert [go_on(batch) for batch in range(9, 11)] == [8, 9]


@pytest.mark.slow
def test_an_undecided_batch_costs_no_batch_and_no_start_anything(world):
    """Behind a Compaction the floor passes it, no decision is asked for, and it is released in the end (11.5)."""
    store, asked = world.log.store, []
    ruling = world.records.ruling
    world.records.ruling = lambda batch: (asked.append(batch), ruling(batch))[1]
    pins = HeldPins(world.records)
    janitor = Retention(world.root / "checkpoint", keep=2, pinned_batches=pins, decided_on=pins.decided_on)
    janitor.adopt(recover(world.log))
    floors, costs, seen, asks = [], [], [], []
    read = store.read
    store.read = lambda path: (seen.append(path), read(path))[1]
    for batch in range(400):
        floors.append(janitor.floor(batch))
        end_batch = world.hold if batch == 1 else world.pass_on
        done = end_batch(batch, floor=floors[-1])
        janitor.sweep(done, world.log)
        janitor.compact(world.owned)
        pins.on_batch_completed(done)
        if batch in (99, 399):
            seen.clear()
            assert recover(Log(store)).held.undone == set()
            costs.append(len(seen))
            asks.append(len(asked))
    assert floors[-1] == 398
    assert max(costs) < 100
    assert asks[1] - asks[0] <= 300 // 32 + 1, "once for each Compaction"
    assert world.waiting() == [1]
    world.release(1)
    assert world.shown() == [1, 1, 1]
    for batch in range(400, 450):
        janitor.sweep(world.pass_on(batch, floor=janitor.floor(batch)), world.log)
        janitor.compact(world.owned)
    assert dict(recover(world.log).held) == {}


def test_pins_are_found_again_by_the_next_driver(world):
    """From the log and the decisions alone; one that cannot be read keeps its batch."""
    world.hold(0)
    world.hold(1)
    world.discard(0)
    pins = HeldPins(world.records)
    pins.on_takeover(recover(world.log))
    assert pins() == {1}

    class Down(MemoryStore):
        def exists(self, path):
            raise StorageUnavailable("the store is down")

    pins = HeldPins(HeldRecords(Down(), "orders"))
    pins.on_takeover(recover(world.log))
    assert pins() == {0, 1}


@pytest.mark.parametrize("decision", list(Decision))
def test_what_was_decided_on_a_former_checkpoint_says_nothing_of_the_one_that_stands(tmp_path, decision):
    """Its folder was put aside, and the job began anew with `--new-lineage`: its batch ids come again (11.5)."""
    root = tmp_path / "root"
    control, folder = LocalStore(root), root / "orders"
    open_or_create(LocalStore(folder), now=1)
    before = HeldRecords(control, "orders")
    before.carried_out(3, before.decide(3, decision, {"out": 7}, by="me"), by="me")
    assert HeldPins(HeldRecords(control, "orders")).decided_on(3)
    folder.rename(root / "_aside")
    open_or_create(LocalStore(folder), now=2)
    records = HeldRecords(control, "orders")
    assert (records.ruling(3), records.released(), HeldPins(records).decided_on(3)) == (None, [], False)
    other = Decision.DISCARD if decision is Decision.RELEASE else Decision.RELEASE
    ruling = records.decide(3, other, {"out": 5}, by="me")
    assert (ruling.decision, ruling.done, ruling.rows) == (other, False, {"out": 5})
    records.carried_out(3, ruling, by="me")
    again = HeldRecords(control, "orders")
    assert (again.ruling(3).decision, again.ruling(3).done) == (other, True)
    assert again.released() == ([3] if other is Decision.RELEASE else [])


def test_a_decision_of_a_version_that_named_no_checkpoint_holds_for_the_one_that_stands(tmp_path):
    """Also where it was only begun: what is asked for again is what was decided."""
    control = LocalStore(tmp_path)
    old = HeldRecords(control, "orders")  # without metadata it writes where those versions did
    old.decide(2, Decision.RELEASE, {"out": 7}, by="me")
    open_or_create(LocalStore(tmp_path / "orders"), now=1)
    records = HeldRecords(control, "orders")
    ruling = records.decide(2, Decision.DISCARD, {"out": 7}, by="me")
    assert (ruling.decision, ruling.done, records.released()) == (Decision.RELEASE, False, [])
    records.carried_out(2, ruling, by="me")
    assert records.ruling(2).done
    assert records.released() == [2]


@pytest.mark.parametrize("decided", [3, 30])
def test_a_restore_reads_the_decisions_on_the_batches_that_the_log_keeps(tmp_path, decided):
    """However many were decided on before: what is asked of the store does not grow with them (B3)."""
    store = LocalStore(tmp_path)
    records = HeldRecords(store, "orders")
    for batch in range(decided):
        records.carried_out(batch, records.decide(batch, Decision.RELEASE, {"out": 1}, by="me"), by="me")
    asked = []
    store.read, store.list = partial(_noted, asked, store.read), partial(_noted, asked, store.list)
    assert HeldRecords(store, "orders").released_of([decided - 1, decided]) == [decided - 1]
    assert len(asked) < 12
    assert not any(f"orders/{batch:012d}/" in path for path in asked for batch in range(decided - 1))


def _noted(asked, method, path, *more):
    asked.append(str(path))
    return method(path, *more)


def test_a_session_is_opened_when_a_sink_asks_for_it():
    """A table that delta-rs may write needs none."""
    opened = []

    class Session:
        read = "reader"

        def stop(self):
            opened.append("stopped")

    def make():
        opened.append("opened")
        return Session()

    unused = SessionOnDemand(make)
    unused.close()
    assert opened == []
    used = SessionOnDemand(make)
    assert (used.read, used.read) == ("reader", "reader")
    used.close()
    assert opened == ["opened", "stopped"]
