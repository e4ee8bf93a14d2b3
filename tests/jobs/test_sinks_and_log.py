"""What sinks show and what the log says of them agree, or the job stops with a way on (SEMANTICS 9.4 to 9.6, F70)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_samples import own
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from harness_jobs import ORDERS, order

from penstock import Job
from penstock.checkpoint.log.entries import Commit, Release, Restore, Skip
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.takeover import confirm
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import (
    CannotRestore,
    CheckpointCopied,
    CheckpointCorrupt,
    Fenced,
    SinkAhead,
    SinkBehind,
    SinkError,
    SinkSchemaMismatch,
    SinkValueRefused,
)
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.sink_repair import SinksAtRest, redo, skip
from penstock.sinks import Delta, Mode
from penstock.sinks.base import Publication, Publisher, Sink
from penstock.sinks.delta.log_entry import entry_name
from penstock.sinks.staged_files import read_staged
from penstock.sinks.staged_publisher import StagedPublisher
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness

pytestmark = pytest.mark.sample(2, of="sinks and the log")

NO_ROW = -1
"""The value of a row that the job reads and passes on to no sink."""
ME = Identity(holder="test", code_version="test")


class Listed(Sink, Publisher):
    """A sink that cannot tell what it has taken; `broken` names a batch whose rows it cannot hold."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.broken: int | None = None
        self.staged = Path()

    def open(self, staging: Path, spark: Any) -> Listed:
        self.staged = staging
        return self

    def publish(self, publication: Publication) -> None:
        if publication.batch == self.broken:
            raise OverflowError("a value that this sink cannot hold")
        if publication.files:
            self.batches += [publication.batch for _ in range(read_staged(self.staged, publication.files).num_rows)]

    def version(self, app: str) -> int | None:
        return None

    def describe(self) -> str:
        return "listed"


def make_job(sink: Any, keep: str = "v is null or v >= 0") -> Job:
    """Return a job that copies its rows, of those that it is to keep."""
    job = Job("copied", partitions=1)
    job.source("orders", MemorySource(ORDERS)).filter(keep).select("user", "v").write("out", sink)
    return job


class World:
    """A job over a table, one row a batch, of which the newest versions can be taken away."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = root / "table"
        self.keys: tuple[str, ...] = ()

    def sink(self) -> Delta:
        return Delta(self.table, mode=Mode.UPSERT, keys=self.keys) if self.keys else Delta(self.table)

    @contextmanager
    def running(self, batches: int = 0) -> Iterator[Harness]:
        with Harness(make_job(self.sink()), self.root / "checkpoints") as h:
            self.feed(h, batches)
            yield h

    def feed(self, h: Harness, batches: int) -> None:
        for number in range(batches):
            h.batch({"orders": [order("a", number + 1, number)]})

    def set_back(self, versions: int) -> None:
        """Take the newest versions of the table away, as a backup or somebody else's commit does."""
        newest = DeltaTable(str(self.table)).version()
        for version in range(newest, newest - versions, -1):
            (self.table / "_delta_log" / entry_name(version)).unlink()

    def shown(self) -> list[int]:
        return sorted(DeltaTable(str(self.table)).to_pyarrow_table()["v"].to_pylist())

    def at_rest(self) -> tuple[Log, SinksAtRest, str, str]:
        """Return what a command needs to repair the sink."""
        folder = self.root / "checkpoints" / "copied"
        store = LocalStore(folder)
        graph = make_job(self.sink()).graph()
        return Log(store), SinksAtRest(graph, folder / "staged", None), "out", read_metadata(store).uuid

    def skips(self) -> list[Skip]:
        log = self.at_rest()[0]
        return [entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Skip)]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.remedy("PEN-SNK-006")
@pytest.mark.fault("F70")
def test_a_start_finds_that_a_table_has_lost_batches_and_they_are_given_again(world):
    """SEMANTICS 9.5: the batches are named, nothing is published until they are back, and then all goes on."""
    with world.running(5) as h:
        pass
    world.set_back(3)
    message = r"shows batch 1 .* has shown batch 4; missing are 2 \(1 rows, whose files are there\), 3 .*, 4 "
    with pytest.raises(SinkBehind, match=message) as caught, world.running():
        pass
    assert (caught.value.exit_code, caught.value.where, world.shown()) == (78, str(world.table), [0, 1])
    assert [commit.batch for commit in redo(*world.at_rest(), ME, anybody_may).missing] == [2, 3, 4]
    assert world.shown() == [0, 1, 2, 3, 4]
    with world.running() as h:
        h.batch({"orders": [order("a", 6, 5)]})
    assert world.shown() == [0, 1, 2, 3, 4, 5]


class Watched(StagedPublisher):
    """A sink that tells when it is asked what it shows, and when its files are read."""

    asked: Callable[[], None]

    def version(self, app: str) -> int | None:
        self.asked()
        return super().version(app)

    def verify(self, files: Any) -> None:
        self.asked()
        super().verify(files)


class Overtaken(SinksAtRest):
    """The sinks of a command; another takes the log over and goes back when the n-th thing is asked of them."""

    def begin(self, log: Log, at: int, shown: Callable[[], list[int]]) -> None:
        self.log, self.left, self.shown, self.then = log, at, shown, None

    def _asked(self) -> None:
        self.left -= 1
        if self.left == -1:
            rival = own(self.log, "rival")
            who = {"epoch": rival.epoch, "writer": "rival"}
            rival.append(Restore(**who, source="batch", batch=1, saved=None, partitions=None))
            self.then = self.shown()

    def sink(self, name: str) -> StagedPublisher:
        if name not in self._opened:
            written = next(node.sink for node in self.graph.sinks if node.name == name)
            watched = Watched(name, written, self.staged / name, self.spark)
            watched.asked = self._asked
            self._opened[name] = watched.open()
        return self._opened[name]

    def publish(self, name: str, app: str, commit: Commit) -> None:
        super().publish(name, app, commit)
        self._asked()


@pytest.mark.fault("F07", "F70")
def test_a_redo_whose_log_is_taken_over_publishes_nothing_more(world):
    """Wherever the other begins: what it goes back behind comes again, and must not come beside it."""
    with world.running(5):
        pass
    world.set_back(3)
    for at in range(20):
        log, sinks, sink, uuid = world.at_rest()
        overtaken = Overtaken(sinks.graph, sinks.staged, None)
        overtaken.begin(log, at, world.shown)
        try:
            redo(log, overtaken, sink, uuid, ME, anybody_may)
        except Fenced:
            assert world.shown() == overtaken.then
        else:
            assert at > 3 + 3, "once to look, to see three files, and to publish them"
            break
        for slot in range(log.find_tail(), log.find_tail() - 2, -1):
            (world.root / "checkpoints" / "copied" / log.path(slot)).unlink()  # as if the other had never been
        mine = confirm(log, log.find_tail())
        mine.append(Release(epoch=mine.epoch, writer=mine.writer, reason="stopped", published={"out": 4}))
        world.set_back(DeltaTable(str(world.table)).version() - 2)
    assert world.shown() == [0, 1, 2, 3, 4]


@pytest.mark.fault("F70")
def test_a_table_that_loses_a_batch_under_a_driver_stops_it(world):
    """SEMANTICS 9.5: between batches as at a start, with the missing batch and where its files are."""
    with world.running(3) as h:
        world.set_back(1)
        (world.table / "_delta_log" / entry_name(3)).write_text('{"commitInfo":{"operation":"WRITE"}}\n')
        with pytest.raises(SinkBehind, match=r"missing are 2 \(1 rows, whose files are there\)"):
            h.batch({"orders": [order("a", 4, 3)]})
        redo(*world.at_rest(), ME, anybody_may)
        h.restart()
    assert world.shown() == [0, 1, 2, 3]


@pytest.mark.remedy("PEN-SNK-006")
@pytest.mark.fault("F70")
@pytest.mark.parametrize("keys", [(), ("v",)], ids=["append", "upsert"])
def test_a_table_that_is_deleted_under_a_job_is_one_that_has_lost_batches(world, keys):
    """At the next batch, not at the next start; the error names all that the table had."""
    world.keys = keys
    with world.running(2) as h:
        shutil.rmtree(world.table)
        with pytest.raises(SinkBehind, match=r"the table is gone: sink 'out' shows no batch .*missing are 0 .*, 1 "):
            h.batch({"orders": [order("a", 3, 2)]})


@pytest.mark.remedy("PEN-SNK-006")
@pytest.mark.fault("F70")
@pytest.mark.parametrize("how", ["gone", "made again", "set back"])
def test_a_table_with_keys_gets_lost_batches_again(world, how):
    """The order of arrival in its staged files is no column of the table, whoever makes that."""
    world.keys = ("v",)
    batches = 4 if how == "set back" else 1  # files of older ones are deleted where the table has its own
    with world.running(batches):
        pass
    if how == "set back":
        world.set_back(2)
    else:
        shutil.rmtree(world.table)
    if how == "made again":
        with pytest.raises(SinkBehind, match="has shown batch 0"):
            world.running().__enter__()
    redo(*world.at_rest(), ME, anybody_may)
    assert world.shown() == [*range(batches)]
    assert DeltaTable(str(world.table)).schema().to_arrow().names == ["user", "v"]
    with world.running() as h:
        h.batch({"orders": [order("a", 9, 0), order("a", 9, 4)]})
    assert world.shown() == [*range(batches), 4]


@pytest.mark.remedy("PEN-SNK-006")
@pytest.mark.fault("F70")
def test_what_cannot_be_given_again_is_skipped_with_a_count(world):
    """SEMANTICS 9.5: the files are gone, which is told; the log says how many rows the table goes on without."""
    with world.running(4):
        pass
    world.set_back(2)
    for file in world.table.glob("000000000002-*.parquet"):
        file.unlink()
    with pytest.raises(SinkBehind, match="2 .1 rows, whose files are gone., 3 .1 rows, whose files are there"):
        world.running().__enter__()
    with pytest.raises(CheckpointCorrupt, match="the staged file is gone"):
        redo(*world.at_rest(), ME, anybody_may)
    assert world.shown() == [0, 1], "nothing is published behind a gap"
    skip(*world.at_rest(), ME, anybody_may)
    assert [(skip.sink, skip.batches, skip.rows) for skip in world.skips()] == [("out", [2, 3], 2)]
    with world.running(1):
        pass
    with world.running():
        pass
    assert world.shown() == [0, 0, 1]


@pytest.mark.remedy("PEN-SNK-006")
@pytest.mark.fault("F70")
def test_a_restore_goes_back_before_what_is_lost_and_no_further(world):
    """SEMANTICS 9.5: a batch that the table has lost is nothing to go on from; one before it is the third way on."""
    with world.running(4):
        pass
    world.set_back(2)
    h = Harness(make_job(Delta(world.table)), world.root / "checkpoints")
    with pytest.raises(SinkBehind):
        h.__enter__()
    for _ in range(2):
        with pytest.raises(SinkBehind) as caught:  # of the start that follows a restore which was refused
            h.restore(batch=2)
        assert isinstance(caught.value.__context__, CannotRestore)
        assert "restore a batch before 2" in str(caught.value.__context__)
    h.restore(batch=1)
    assert world.shown() == [0, 1]
    h.batch({"orders": [order("a", 9, 9)]})
    h.restart()
    assert world.shown()[-1] == 9


@pytest.mark.sample(1)
@pytest.mark.fault("F70")
@pytest.mark.parametrize("back", [{"batch": 1}, {"empty": True}], ids=["batch", "empty"])
def test_what_a_restore_has_left_behind_is_missed_by_nobody(world, back):
    """SEMANTICS 9.5: batches behind the restore are computed again, also where the next ones have no rows."""
    with world.running(4):
        pass
    if "batch" in back:
        world.set_back(2)
    else:
        shutil.rmtree(world.table)
    h = Harness(make_job(Delta(world.table)), world.root / "checkpoints")
    with pytest.raises(SinkBehind):
        h.__enter__()
    h.restore(**back, job=make_job(Delta(world.table), "v = 9"))
    h.batch({"orders": [order("a", 9, NO_ROW)]})
    h.restart()
    h.batch({"orders": [order("a", 9, 9)]})
    h.restart()
    assert world.shown()[-1] == 9


@pytest.mark.remedy("PEN-SNK-001")
@pytest.mark.fault("F31")
def test_a_checkpoint_from_a_backup_is_refused_while_the_table_is_ahead(world):
    """F31: both numbers are told and nothing is written; with the newer checkpoint in its place all goes on."""
    here, backup, newer = (world.root / name for name in ("checkpoints", "backup", "newer"))
    with world.running(2):
        pass
    shutil.copytree(here, backup)
    with world.running(2):
        pass
    here.rename(newer)
    shutil.copytree(backup, here)
    message = "out shows batch 3 of this checkpoint, and its log ends before batch 2 is committed"
    with pytest.raises(SinkAhead, match=message) as caught, world.running(1):
        pass
    assert (caught.value.exit_code, "restore the newer checkpoint" in str(caught.value)) == (78, True)
    assert world.shown() == [0, 0, 1, 1]
    shutil.rmtree(here)
    newer.rename(here)
    with world.running(1):
        pass
    assert world.shown() == [0, 0, 0, 1, 1]


@pytest.mark.remedy("PEN-SNK-025")
@pytest.mark.fault("F31")
def test_of_two_drivers_with_one_checkpoint_the_second_of_a_batch_is_told(world):
    """F31: its rows are not taken for those that are there; then one of them continues, as the remedies say."""
    copied = world.root / "copy"
    with world.running(2):
        pass
    shutil.copytree(world.root / "checkpoints", copied)
    with world.running() as ours, Harness(make_job(Delta(world.table)), copied) as copy:
        copy.batch({"orders": [order("a", 9, 8)]})
        with pytest.raises(CheckpointCopied, match="batch 2 is there already, with other rows") as caught:
            ours.batch({"orders": [order("a", 9, 9)]})
        assert (caught.value.exit_code, world.shown()) == (78, [0, 1, 8])
        with pytest.raises(CheckpointCopied):
            ours.restart()
    skip(*world.at_rest(), ME, anybody_may)
    assert [(entry.batches, entry.rows) for entry in world.skips()] == [([2], 1)]
    with world.running() as ours:
        ours.batch({"orders": [order("a", 10, 10)]})
        assert world.shown() == [0, 1, 8, 10]
    with (
        pytest.raises(SinkAhead, match="that copy is the newer checkpoint"),
        Harness(make_job(Delta(world.table)), copied),
    ):
        pass


def test_a_sink_moved_to_another_table_after_a_clean_stop_goes_on_there(world):
    """A Release says that the last batch is published, so its files are not needed where the rows go now."""
    with world.running(2) as h:
        other = make_job(Delta(world.root / "other"))
        h.restart(other)
        h.batch({"orders": [order("a", 3, 2)]})
        h.restart()
    assert world.shown() == [0, 1]
    assert DeltaTable(str(world.root / "other")).to_pyarrow_table()["v"].to_pylist() == [2]


@pytest.mark.sample(1)
@pytest.mark.parametrize("again", [1, 2])
def test_a_sink_that_was_moved_goes_on_whatever_the_next_batches_hold(world, again):
    """SEMANTICS 9.5: what was shown in one table is not missing in another, at no start that follows."""
    other = make_job(Delta(world.root / "other"))
    with world.running(2) as h:
        h.restart(other)
        for _ in range(again):
            h.batch({"orders": [order("a", 3, NO_ROW)]})
            h.restart()
        h.batch({"orders": [order("a", 4, 2)]})
        h.batch({"orders": [order("a", 5, 3)]})
        (world.root / "other" / "_delta_log" / entry_name(2)).unlink()
        with pytest.raises(SinkBehind, match="missing are ") as caught:
            h.restart()
        assert caught.value.fields["missing"] == [3 + again]
        h.restart(make_job(Delta(world.table)))
        h.batch({"orders": [order("a", 6, NO_ROW)]})
        h.restart()
    assert world.shown() == [0, 1]


@pytest.mark.fault("F70")
def test_a_sink_whose_table_was_changed_can_write_to_a_new_one(world):
    """What PEN-SNK-003 says: the rows that the old table refused are let go, with a count, and the rest goes on."""
    h = Harness(make_job(Delta(world.table)), world.root / "checkpoints")
    with h:
        world.feed(h, 1)
        wider = pa.table([["a"], [1], [2]], names=["user", "v", "w"])
        write_deltalake(str(world.table), wider, mode="append", schema_mode="merge")
        with pytest.raises(SinkSchemaMismatch, match="penstock sinks JOB skip SINK"):
            h.batch({"orders": [order("a", 2, 1)]})
        world.table = world.root / "other"
        skip(*world.at_rest(), ME, anybody_may)
        h.restart(make_job(Delta(world.table)))
        h.batch({"orders": [order("a", 3, 2)]})
    assert world.shown() == [2]
    assert [(skip.batches, skip.rows) for skip in world.skips()] == [([1], 1)]


def test_a_sink_that_cannot_tell_gets_the_last_batch_once_where_the_job_was_stopped(tmp_path):
    """SEMANTICS 9.4: after a clean Release it is not published again; after a crash it is."""
    sink = Listed()
    with Harness(make_job(sink), tmp_path) as h:
        for number in range(2):
            h.batch({"orders": [order("a", number + 1, number)]})
        for _ in range(3):
            h.restart()
        assert sink.batches == [0, 1]
        h.crash_after("PublishSinks")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("a", 3, 2)]})
        h.restart()
        assert sink.batches == [0, 1, 2, 2]


@pytest.mark.fault("F74")
def test_a_batch_that_a_sink_cannot_hold_does_not_stop_the_job_for_ever(tmp_path):
    """SEMANTICS 9.6: each start does it again until a person lets that sink's batch go, which the log counts."""
    sink = Listed()
    sink.broken = 1
    root = tmp_path / "root"
    h = Harness(make_job(sink), root)
    with h:
        h.batch({"orders": [order("a", 1, 0)]})
        with pytest.raises(SinkError, match="sink 'out' cannot take batch 1: OverflowError"):
            h.batch({"orders": [order("a", 2, 1), order("a", 2, 1)]})
        for _ in range(2):
            with pytest.raises(SinkError, match="penstock sinks JOB skip"):
                h.restart()
        log, uuid = Log(LocalStore(root / "copied")), read_metadata(LocalStore(root / "copied")).uuid
        at_rest = SinksAtRest(make_job(sink).graph(), root / "copied" / "staged", None)
        skip(log, at_rest, "out", uuid, ME, anybody_may)
        h.restart()
        h.batch({"orders": [order("a", 3, 2)]})
        h.restart()
    assert sink.batches == [0, 2]
    skips = [entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Skip)]
    assert [(skip.batches, skip.rows) for skip in skips] == [([1], 2)]


@pytest.mark.sample(1)
@pytest.mark.remedy("PEN-SNK-008")
@pytest.mark.fault("F74")
@pytest.mark.parametrize("rule", ["check", "required"])
def test_a_row_that_a_table_refuses_fails_the_batch_before_the_commit(world, rule):
    """SEMANTICS 9.6: named with the row; with the rule taken away the batch is done again, and nothing is lost."""
    required = Field("v", PrimitiveType("integer"), nullable=rule != "required")
    DeltaTable.create(str(world.table), Schema([Field("user", PrimitiveType("string")), required]))
    if rule == "check":
        DeltaTable(str(world.table)).alter.add_constraint({"small": "v < 100"})
    bad = order("a", 2, 500 if rule == "check" else None)
    message = r"constraint 'small', v < 100: {'user': 'a', 'v': 500}" if rule == "check" else "column 'v' is NOT NULL: "
    with world.running(1) as h:
        with pytest.raises(SinkValueRefused, match=message) as caught:
            h.batch({"orders": [bad, order("b", 2, 1)]})
        assert (caught.value.exit_code, h.commit().batch, world.shown()) == (78, 0, [0])
        if rule == "check":
            DeltaTable(str(world.table)).alter.drop_constraint("small")
            h.restart()
            h.batch({"orders": [order("c", 3, 2)]})
            assert world.shown() == [0, 1, 2, 500]
