"""What killed drivers and late tasks leave behind is in no Commit: it is ignored, then swept (F04, F15, F30)."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from fake_engine import SECOND, Witness, World, WorldPublisher, ledger_of, make_driver, run_to_end, windowed_job
from oracle import judge
from structlog.testing import capture_logs

from penstock.checkpoint.log import compaction
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import ComputeFailed, SinkBehind
from penstock.runtime.driver import retention
from penstock.runtime.driver.loop import Driver, DriverSettings
from penstock.runtime.driver.retention import Retention, sweep_left
from penstock.runtime.driver.savepoint import save_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.inspect.fsck import verify
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget

GRAPH = windowed_job()
TIMES = [float(i) for i in range(24)]


class Killed(BaseException):
    """The process is gone."""


def strays(root: Path) -> list[Path]:
    """Return files that a zombie task writes late: under another attempt's name, for batches that are decided."""
    return [
        root / "state" / "sums" / "0" / "000000000001-1-zombie-1",
        root / "state" / "sums" / "1" / "000000000002-1-zombie-2.arrow",
        root / "staged" / "raw" / "000000000001-1-zombie-3.parquet",
        root / "staged" / "windows" / "000000000002-1-zombie-4.parquet",
    ]


def sweeper(world: World, store: Witness, **more: Any) -> Driver:
    """Return a driver that keeps two commits."""
    return make_driver(world, store, "first", graph=GRAPH, settings=DriverSettings(keep=2), **more)


def short_log() -> MagicMock:
    """Return a log before its first milestone, in which nothing is to be purged."""
    return MagicMock(seen=0, **{"slots.strides": (4096,)})


@pytest.mark.fault("F04", "F15")
def test_files_of_tasks_that_came_too_late_are_ignored_and_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in no Commit, so nobody reads them; below the floor they go with the files that were superseded."""
    monkeypatch.setattr(retention, "EVERY", 2)
    world, store = World(root=tmp_path, times=TIMES), Witness()
    for hook in sweeper(world, store).run():
        if (hook.stage, hook.when, hook.batch) == ("Compute", "after", 3):
            for path in strays(tmp_path):
                path.parent.mkdir(exist_ok=True)
                path.write_text("not what the real task wrote")
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []
    assert [path for path in strays(tmp_path) if path.exists()] == []


@pytest.mark.fault("F30")
def test_a_sweep_may_be_cut_short_at_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one does the rest, and what is kept can be restored all the while."""
    monkeypatch.setattr(retention, "EVERY", 1)
    unlink, left = Path.unlink, 0

    def dying(path: Path, *, missing_ok: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        unlink(path, missing_ok=missing_ok)

    for at in range(12):
        world, store = World(root=tmp_path / str(at), times=TIMES), Witness()
        left = 20 + at
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", dying)
            with pytest.raises(Killed):
                run_to_end(sweeper(world, store))
        driver = make_driver(world, store, "second", graph=GRAPH, settings=DriverSettings(keep=2))
        kept = [known.batch for known in recover(Log(store)).kept]
        for _ in restore(driver, RestoreTarget(restore=True, batch=kept[0])):
            pass
        run_to_end(make_driver(world, store, "third", graph=GRAPH, settings=DriverSettings(keep=2)))
        again = world.rows("raw")
        assert sorted(set(again)) == list(range(len(TIMES)))
        assert len(again) - len(set(again)) == 2 * (len(kept) - 1), "only what came after the restored batch"


@pytest.mark.fault("F04", "F15", "F30")
@pytest.mark.parametrize("until", [5, 9, None])
def test_upkeep_sweeps_what_a_driver_has_left_below_the_floor_while_another_may_run(
    tmp_path: Path, until: int | None
) -> None:
    """At whatever hook the driver is: all that is kept can be gone back to, and the rest comes out as it would have."""
    world, store = World(root=tmp_path, times=TIMES), Witness()
    uuid = open_or_create(store, now=0).uuid  # as who runs a job does
    strayed, deleted = False, []
    for hook in sweeper(world, store, uuid=uuid).run():
        if until is not None and hook.batch == until:
            if not strayed:
                for path in strays(tmp_path):
                    path.parent.mkdir(exist_ok=True)
                    path.write_text("not what the real task wrote")
            strayed = True
            deleted.append(sweep_left(tmp_path, Log(store), keep=2, now=0.0))
    if until is None:
        for path in strays(tmp_path):
            path.write_text("not what the real task wrote")
        deleted.append(sweep_left(tmp_path, Log(store), keep=2, now=0.0))
    assert deleted[0] >= len(strays(tmp_path))
    assert [path for path in strays(tmp_path) if path.exists()] == []
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []
    kept = [known.batch for known in recover(Log(store)).kept]
    assert verify(Log(store), tmp_path).findings == ()
    second = make_driver(world, store, "second", graph=GRAPH, uuid=uuid)
    for _ in restore(second, RestoreTarget(restore=True, batch=kept[0])):
        pass
    run_to_end(make_driver(world, store, "third", graph=GRAPH, uuid=uuid))
    assert sorted(set(world.rows("raw"))) == list(range(len(TIMES)))


@pytest.mark.fault("F30")
def test_a_batch_that_is_named_before_the_commit_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart that was accepted while the batch was computed finds the batch that it goes back to."""
    monkeypatch.setattr(retention, "EVERY", 1)
    world, store, named = World(root=tmp_path, times=TIMES), Witness(), set()
    driver = sweeper(world, store)
    driver.janitor = retention.Retention(tmp_path, keep=2, pinned_batches=lambda: set(named))
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("CommitBatch", "before", 9):
            named.add(7)
    assert next(known.batch for known in recover(Log(store)).kept) == 7


@pytest.mark.fault("F15")
def test_temporary_files_are_never_read_and_are_removed_after_their_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log and in the state; one that is younger may be a write that is going on."""
    monkeypatch.setattr(retention, "EVERY", 1)
    world = World(root=tmp_path / "job", times=TIMES)
    store = LocalStore(tmp_path / "job")
    driver = make_driver(world, store, "first", graph=GRAPH)
    driver.clock.now = round(time.time() * SECOND)
    old, young = [], []
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("Compute", "after", 0):
            for number, folder in enumerate(("log", "state/sums/0", "state/sums/1")):
                old.append(tmp_path / "job" / folder / f".tmp-{number:032x}")
                young.append(tmp_path / "job" / folder / f".tmp-{number + 9:032x}")
            for path in (*old, *young):
                path.write_bytes(b"half an ent")
            for path in old:
                os.utime(path, (time.time() - 86_400,) * 2)
    assert world.rows("raw") == list(range(len(TIMES)))
    assert [path for path in old if path.exists()] == []
    assert [path for path in young if not path.exists()] == []


@pytest.mark.fault("F13", "F14", "F18", "F30")
@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_damage_in_an_older_kept_batch_neither_stops_the_job_nor_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """It says nothing of the state in force; which files it needed is not known, so none go while it is kept."""
    world, store = World(root=tmp_path, times=TIMES), Witness()
    settings = DriverSettings(keep=4)
    for hook in make_driver(world, store, "first", graph=GRAPH, settings=settings).run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 4):
            break
    manifests = sorted((tmp_path / "state" / "sums" / "0").iterdir())
    assert [path.name[:12] for path in manifests] == [f"{batch:012d}" for batch in range(5)]
    if harm == "damaged":
        manifests[2].write_bytes(manifests[2].read_bytes()[:-1])
    else:
        manifests[2].rename(tmp_path / "away")
    monkeypatch.setattr(retention, "EVERY", 1)
    for hook in make_driver(world, store, "second", graph=GRAPH, settings=settings).run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 5):
            assert manifests[1].exists()
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []
    assert not manifests[1].exists()


@pytest.mark.fault("F28", "F30")
@pytest.mark.parametrize("what", ["remove_files", "files", "delete"])
def test_what_cannot_be_deleted_ends_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """It is named in a warning, and a later sweep does it, once that can be done."""
    monkeypatch.setattr(retention, "EVERY", 1)
    monkeypatch.setattr(compaction, "EVERY", 3)
    world, store, denied = World(root=tmp_path, times=TIMES), Witness(), True
    owner = store if what == "delete" else LocalFolder
    works = getattr(owner, what)

    def denying(*asked: object) -> object:
        if denied and asked[-1] and "snapshots" not in str(asked[0]):
            raise PermissionError(errno.EACCES, "permission denied", "this file")
        return works(*asked)

    monkeypatch.setattr(owner, what, denying)
    driver = sweeper(world, store)
    driver.log = Log(store, stride=4)
    with capture_logs() as events:
        for hook in driver.run():
            if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 8):
                denied, left = False, left_of(store, tmp_path)
    assert left_of(store, tmp_path) < left
    warned = {(event["reason"], event["where"]) for event in events if event["event"] == "janitor.not_swept"}
    assert warned == {("[Errno 13] permission denied: 'this file'", "this file")}
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []


def left_of(store: Witness, root: Path) -> int:
    """Return how many entries and staged files there are."""
    return len(store.list("log")) + sum(path.is_file() for path in (root / "staged").rglob("*"))


@pytest.mark.fault("F30")
def test_what_a_driver_began_with_is_not_kept_for_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Commit in force at its start goes as any other does, once as many have followed as are kept."""
    monkeypatch.setattr(retention, "EVERY", 1)
    world, store = World(root=tmp_path, times=TIMES), Witness()
    first = sweeper(world, store)
    for hook in first.run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 3):
            first.stop()
    began = recover(Log(store)).commit
    assert began is not None
    refs = [(step, part, ref.path) for step, parts in began.state.items() for part, ref in parts.items()]
    assert refs
    run_to_end(make_driver(world, store, "second", graph=GRAPH, settings=DriverSettings(keep=2)))
    assert recover(Log(store)).floor > began.batch + 2
    left = [path for step, part, path in refs if (tmp_path / "state" / step / part / path).exists()]
    last = recover(Log(store)).commit
    assert last is not None
    named = {ref.path for parts in last.state.values() for ref in parts.values()}
    assert [path for path in left if path not in named] == []


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.fault("F30")
@pytest.mark.parametrize("saves", [0, 30])
def test_runs_that_end_at_once_leave_a_log_that_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int
) -> None:
    """Without a row, and so without a batch and a sweep; also behind names that stay, which are looked at no more."""
    monkeypatch.setattr(compaction, "EVERY", 8)
    monkeypatch.setattr(retention, "BURST", 16)
    world, store = World(root=tmp_path, times=TIMES[:3], closed=False), Witness()

    def runs(number: int) -> int:
        for run in range(number):
            driver = make_driver(
                world, store, f"{number}-{run}", graph=GRAPH, settings=DriverSettings(keep=2, stop_at_end=True)
            )
            driver.log = Log(store, stride=16)
            run_to_end(driver)
        return sum(int(path[4:]) % 16 > 0 for path in store.list("log"))

    runs(1)
    for number in range(saves):
        save_at_rest(Log(store, stride=16), f"n{number}", Identity(holder="me"), lambda _: None)
    few, many = runs(60), runs(240)
    assert many <= few + 16 + 8, "but for where the newest milestone and Compaction stand just now"
    assert many < saves + 16 + 5 * 8
    recovered = recover(Log(store, stride=16))
    assert (len(recovered.saves), recovered.problems) == (saves, ())


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.fault("F10")
@pytest.mark.parametrize("cause", [SinkBehind("the table has lost a batch"), ComputeFailed("a function of the user's")])
@pytest.mark.parametrize("where", ["accept", "prepare", "version", "compute", "publish"])
def test_starts_that_fail_one_after_the_other_leave_a_log_that_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, cause: Exception
) -> None:
    """A supervisor starts a driver again and again; what the sinks are known to show is known still behind that."""
    monkeypatch.setattr(compaction, "EVERY", 8)
    monkeypatch.setattr(retention, "BURST", 16)
    world, store = World(root=tmp_path, times=TIMES[:8], closed=False, blind=frozenset({"raw"})), Witness()

    def run(name: str, *, fails: bool) -> None:
        driver = make_driver(world, store, name, graph=GRAPH, settings=DriverSettings(keep=2, stop_at_end=True))
        driver.log = Log(store, stride=16)
        if not fails:
            run_to_end(driver)
            return

        def broken(*_: object, **__: object) -> None:
            raise cause

        asked = WorldPublisher if where in {"version", "publish"} else driver.engine
        with monkeypatch.context() as patched:
            patched.setattr(asked, where, broken)
            with pytest.raises(type(cause)):
                run_to_end(driver)

    def starts(number: int) -> int:
        for start in range(number):
            run(f"{number}-{start}", fails=True)
        return sum(int(path[4:]) % 16 > 0 for path in store.list("log"))

    run("first", fails=False)
    world.times += TIMES[8:]
    world.closed = True
    few, many = starts(30), starts(120)
    assert many <= few + 16 + 8
    assert few < 16 + 5 * 8
    run("last", fails=False)
    assert recover(Log(store, stride=16)).problems == ()
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []
    assert len(world.table("raw").shown) == len(set(world.table("raw").shown)), "each was known to be shown"


@pytest.mark.fault("F30")
def test_sources_delete_only_what_no_kept_or_saved_commit_reads_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of receivers, which a restore reads again; and nothing while a saved one was not read."""
    monkeypatch.setattr(retention, "EVERY", 1)
    asked: list[list[int]] = []
    world, store = World(root=tmp_path, times=TIMES), Witness()
    driver = sweeper(world, store)
    driver.janitor._sweep_sources = lambda commits: asked.append([commit.batch for commit in commits]) or 0
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 2):
            driver.save("kept")
    assert asked[:6] == [[0], [0, 1], [1, 2], [2, 3], [3, 4, 2], [4, 5, 2]]
    driver.janitor._lost.add("kept")
    count = len(asked)
    driver.janitor._sweep_blocks()
    assert len(asked) == count


def test_no_batch_waits_for_two_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F30: each folder is swept once in eight batches, temporary files once in 64, and no batch does two of these."""
    done: list[list[str]] = []
    parts = [lambda name=name: done[-1].append(name) for name in ("state", "blocks", "staged")]
    monkeypatch.setattr(Retention, "_parts", lambda *_: [*parts])
    log = short_log()
    log.store.janitor = lambda *_: done[-1].append("temporary")
    janitor = Retention(LocalFolder(tmp_path), keep=20)
    for batch in range(128):
        done.append([])
        janitor.sweep(SimpleNamespace(batch=batch, held={}, floor=0, time=0), log)  # type: ignore[arg-type]
    assert max(map(len, done)) == 1
    names = [name for batch in done for name in batch]
    assert {name: names.count(name) for name in names} == {"state": 16, "blocks": 16, "staged": 16, "temporary": 2}


@pytest.mark.fault("F30")
def test_each_batch_purges_its_share_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A milestone frees thousands of entries, and no batch in the long row behind it deletes more than four of them."""
    monkeypatch.setattr(compaction, "EVERY", 16)
    world, store = World(root=tmp_path, times=[float(n) for n in range(600)]), Witness()
    driver = sweeper(world, store)
    driver.log = Log(store, stride=256)
    deleted, delete = [], Witness.delete
    monkeypatch.setattr(Witness, "delete", lambda store, path: (deleted.append(path), delete(store, path))[1])
    by_batch: list[int] = []
    for hook in driver.run():
        if hook.stage == "Purge" and hook.when == "before":
            deleted.clear()
        if hook.stage == "Purge" and hook.when == "after":
            by_batch.append(len(deleted))
    assert sum(by_batch) > 200
    assert max(by_batch) == 4
    assert len(store.list("log")) < 2 * 256 + 64


def test_a_purge_that_failed_is_tried_again_eight_batches_later(tmp_path: Path) -> None:
    """F30: a log whose entries cannot be deleted is a warning in eight batches, not one in each."""
    log, janitor = short_log(), Retention(LocalFolder(tmp_path), keep=20)
    janitor.adopt(MagicMock(kept=[], commit=None, saves=MagicMock(refs={}), held={}, compaction=7, floor=0))
    log.read.side_effect = PermissionError(errno.EACCES, "permission denied", "this file")
    with capture_logs() as events:
        for batch in range(32):
            janitor.sweep(SimpleNamespace(batch=batch, held={}, floor=0, time=0, state={}), log)  # type: ignore[arg-type]
    assert [event["event"] for event in events] == ["janitor.not_swept"] * 4


@pytest.mark.fault("F30")
def test_folders_that_cannot_be_swept_do_not_stop_the_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F30: each has its warning, and the log goes on being purged in every batch."""
    purged: list[int | None] = []
    monkeypatch.setattr(retention.Purge, "run", lambda _, newest: purged.append(newest) or 0)

    def denied() -> int:
        raise PermissionError(errno.EACCES, "permission denied", "this folder")

    monkeypatch.setattr(Retention, "_parts", lambda *_: [denied, denied, denied])
    janitor, log = Retention(LocalFolder(tmp_path), keep=20), short_log()
    with capture_logs() as events:
        for batch in range(64):
            janitor.sweep(SimpleNamespace(batch=batch, held={}, floor=0, time=0), log)  # type: ignore[arg-type]
    assert len(purged) == 64
    assert [event["event"] for event in events] == ["janitor.not_swept"] * 24


def test_a_run_of_one_batch_sweeps_what_sources_keep_beside_a_saved_checkpoint(tmp_path: Path) -> None:
    """F30: it reads the saved Commits itself, because the batch that sweeps the state is one of another run."""
    asked: list[list[int]] = []
    saved = SimpleNamespace(batch=0)
    saves = MagicMock(refs={"kept": saved})
    saves.__getitem__.return_value = saved
    janitor = Retention(
        LocalFolder(tmp_path), keep=20, sweep_sources=lambda kept: asked.append([commit.batch for commit in kept]) or 0
    )
    janitor.adopt(MagicMock(kept=[], commit=None, saves=saves, held={}, compaction=None, floor=0))
    commit = SimpleNamespace(batch=retention.EVERY + 1, held={}, floor=0, time=0)
    janitor.sweep(commit, short_log())  # type: ignore[arg-type]
    assert asked == [[commit.batch, 0]]
