"""A checkpoint is moved, and whoever does it is killed at any moment (SEMANTICS 10.2, decision 46).

At each moment exactly one of the two places goes on: a plain start there succeeds, and one at the other place is
refused. Wherever it goes on, and also once the command was repeated, the tables show each row once.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_engine import World, make_driver, quick_folder, run_to_end, windowed_job

from penstock.checkpoint.log.entries import Arrival, Moved, Release, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create, read_metadata
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.log.takeover import View, claim, survey
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import CannotCopy, CheckpointMoved, Fenced, MoveUnfinished
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.launch import RunOrder, _look_first
from penstock.runtime.restore.move import finish_move, move_checkpoint

GRAPH = windowed_job()
TIMES = [float(n) for n in range(12)]
WATCH = SimpleNamespace(may_take_over=lambda view: None)
CUTS = {"left": None, "a batch begun": ("Compute", "before"), "a batch unpublished": ("PublishSinks", "before")}


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Kills when so many steps of a move have had their effect: files that got their names, folders that were moved."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        for name in ("link", "rename"):
            patch.setattr(os, name, self._deadly(getattr(os, name)))

    def _deadly(self, step):
        def done(*arguments, **more):
            if not self.left:
                raise Killed  # and nothing is done any more by who is dead
            self.left -= 1
            return step(*arguments, **more)

        return done


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder in memory."""
    with quick_folder() as folder:
        yield folder


def world_at(folder: Path) -> World:
    """Return a world whose job has its checkpoint in a folder."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    open_or_create(LocalStore(folder), now=1)
    return World(root=folder, times=TIMES)


def driver_of(world: World, name: str):
    """Return a driver over the checkpoint where it stands now, with the identity that it has there."""
    assert world.root is not None
    store = LocalStore(world.root)
    return make_driver(world, store, name, graph=GRAPH, uuid=read_metadata(store).uuid)


def begin(world: World, cut: tuple[str, str] | None) -> None:
    """Run three batches, the last of them up to a hook; then the driver leaves, or dies."""
    driver = driver_of(world, "a")
    for hook in driver.run():
        if cut is not None and hook.batch == 2 and (hook.stage, hook.when) == cut:
            return
        if cut is None and hook.batch == 2 and (hook.stage, hook.when) == ("PublishSinks", "before"):
            driver.stop()


def moving(source: Path, folder: Path, writer: str = "m") -> Iterator[str]:
    """Move as the command does."""
    me = Identity(holder=f"host-{writer}", writer=writer, code_version="move")
    return move_checkpoint(source, folder, identity=me, may_take_over=lambda view: None)


def goes_on(folder: Path) -> bool:
    """Return whether a start would go on there; one that finds a checkpoint and is refused says why."""
    if not folder.exists():
        return False
    assert (folder / "log").is_dir()
    try:
        _look_first(folder, WATCH, RunOrder(), None, GRAPH)
    except (CheckpointMoved, MoveUnfinished) as why:
        view = survey(Log(LocalStore(folder)))
        with pytest.raises(type(why)):
            claim(Log(LocalStore(folder)), view, Takeover(
                epoch=view.next_epoch, writer="x", generation=99, holder="x", code_version="", partitions={}
            ))  # fmt: skip
        return False
    return True


def shown(world: World) -> dict[str, list]:
    """Return the rows of all tables, each as often as it is shown."""
    return {sink: sorted(map(str, world.rows(sink))) for sink in ("raw", "windows", "late")}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list]:
    """What the tables show where nobody moves anything."""
    with quick_folder() as root:
        world = world_at(root / "a" / "job")
        run_to_end(driver_of(world, "a"))
        return shown(world)


@pytest.mark.fault("F01", "F07", "F31")
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_move_keeps_the_identity_and_what_was_begun_is_finished_there(root, undisturbed, cut):
    """Pending offsets, an unpublished batch, windows that are open; and the old place is at its end for good."""
    world = world_at(root / "a" / "job")
    begin(world, cut)
    uuid = read_metadata(LocalStore(world.root)).uuid
    assert [*moving(world.root, root / "b" / "job")] == ["source owned", "copied", "in place", "source ended", "done"]
    old, new = Log(LocalStore(world.root)), Log(LocalStore(root / "b" / "job"))
    ends = old.read(old.tail())
    assert (type(ends), ends.to) == (Moved, str(root / "b" / "job"))
    assert [type(new.read(slot)) for slot in range(new.tail() - 2, new.tail() + 1)] == [Takeover, Arrival, Release]
    assert recover(new).next_batch == recover(old).next_batch
    assert read_metadata(new.store).uuid == uuid
    run_to_end(driver_of(replace(world, root=root / "b" / "job"), "b"))
    assert shown(world) == undisturbed
    assert not goes_on(world.root)
    with pytest.raises(CheckpointMoved, match=f"the job has moved to {root}/b/job"):
        run_to_end(driver_of(world, "c"))
    assert sorted(p.name for p in (root / "b").iterdir()) == ["_importing", "job"]
    assert [*(root / "b" / "_importing").iterdir()] == []


@pytest.mark.slow
@pytest.mark.fault("F01", "F07", "F30")
def test_whoever_moves_may_be_killed_at_any_step(undisturbed):
    """One place goes on, whichever step was the last; and the command, repeated, makes it the new one."""
    ends, at = set(), -1
    while "done" not in ends:
        at += 1
        for repeated in (False, True):
            with quick_folder() as root:
                world = world_at(root / "a" / "job")
                begin(world, CUTS["a batch unpublished"])
                place = root / "b" / "job"
                with pytest.MonkeyPatch.context() as patch:
                    Killer(patch, at)
                    with suppress(Killed):
                        ends.add(list(moving(world.root, place))[-1])
                if repeated:
                    assert [*moving(world.root, place, "again")][-1] in ("done", "already")
                    assert [*moving(world.root, place, "thrice")] == ["already"]
                here, there = goes_on(world.root), goes_on(place)
                assert here != there, f"step {at}: {here} {there}"
                assert there or not repeated
                ends.add(there)
                run_to_end(driver_of(replace(world, root=place) if there else world, "b"))
                assert shown(world) == undisturbed, f"step {at}"
    assert at > 20
    assert ends == {"done", False, True}


def test_a_place_that_was_not_reached_is_made_anew_when_the_source_has_gone_on(root, undisturbed):
    """The first try's copy is old by then, and nobody could go on with it."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    place = root / "b" / "job"
    first = moving(world.root, place)
    while next(first) != "in place":
        pass
    assert (goes_on(place), goes_on(world.root)) == (False, True)
    driver = driver_of(world, "b")
    for hook in driver.run():
        if (hook.stage, hook.batch) == ("Purge", 3):
            driver.stop()
    assert [*moving(world.root, place, "again")][-1] == "done"
    with pytest.raises(Fenced):
        next(first)
    run_to_end(driver_of(replace(world, root=place), "c"))
    assert shown(world) == undisturbed


def paused_before_it_moves(patch: pytest.MonkeyPatch, folder: Path, meanwhile) -> None:
    """Have something happen right before a folder is given another name for the first time."""
    move_to, waiting = LocalFolder.move_to, [meanwhile]

    def moved(made_in: LocalFolder, place: LocalFolder) -> None:
        if made_in == folder and waiting:
            waiting.pop()()
        move_to(made_in, place)

    patch.setattr(LocalFolder, "move_to", moved)


def two_tries(root: Path) -> tuple[World, Path, Iterator[str]]:
    """Return a world, a place where a dead mover has left its copy, and another mover who has copied by then."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    place = root / "b" / "job"
    first = moving(world.root, place, "first")
    while next(first) != "in place":
        pass
    first.close()
    second = moving(world.root, place, "second")
    while next(second) != "copied":
        pass
    return world, place, second


@pytest.mark.fault("F08", "F72")
def test_a_mover_that_wakes_late_puts_back_what_lives_at_the_place(root, undisturbed, monkeypatch):
    """Also where the file system has no locks: what was looked at before the pause is not what stands there now."""
    world, place, late = two_tries(root)

    def finish() -> None:
        assert [*moving(world.root, place, "third")][-1] == "done"
        driver = driver_of(replace(world, root=place), "b")
        for hook in driver.run():
            if (hook.stage, hook.batch) == ("Purge", 4):
                driver.stop()

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    paused_before_it_moves(monkeypatch, place, finish)
    with pytest.raises(Fenced):
        list(late)
    assert goes_on(place)
    run_to_end(driver_of(replace(world, root=place), "c"))
    assert shown(world) == undisturbed


@pytest.mark.fault("F08", "F72")
def test_while_a_mover_makes_way_no_other_comes_between(root, undisturbed, monkeypatch):
    """The other is refused before it has put anything there, and repeated, it moves the job."""
    world, place, late = two_tries(root)

    def meet() -> None:
        with pytest.raises(CannotCopy, match="another command is putting a checkpoint into its place"):
            [*moving(world.root, place, "third")]

    paused_before_it_moves(monkeypatch, place, meet)
    with pytest.raises(Fenced):
        list(late)
    assert goes_on(world.root)
    assert [*moving(world.root, place, "again")][-1] == "done"
    assert [*(place.parent / "_importing").iterdir()] == []
    run_to_end(driver_of(replace(world, root=place), "c"))
    assert shown(world) == undisturbed


@pytest.mark.fault("F08", "F72")
@pytest.mark.parametrize("asleep", ["source owned", "copied"])
@pytest.mark.parametrize("awake", ["copied", "in place", "source ended", "done"])
def test_a_mover_that_has_lost_the_source_takes_nothing_from_its_successor(root, undisturbed, asleep, awake):
    """Neither the copy that is being made, nor the one in its place that the source has not ended for yet."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    place = root / "b" / "job"
    late, other = moving(world.root, place, "late"), moving(world.root, place, "other")
    while next(late) != asleep:
        pass
    while next(other) != awake:
        pass
    with pytest.raises(Fenced):
        list(late)
    assert [*other][-1:] == ([] if awake == "done" else ["done"])
    run_to_end(driver_of(replace(world, root=place), "b"))
    assert shown(world) == undisturbed


@pytest.mark.fault("F65")
@pytest.mark.parametrize("what", ["file", "folder", "pipe"])
def test_a_checkpoint_with_anything_but_files_and_folders_does_not_move(root, tmp_path, what):
    """A symbolic link would bring the file of somebody else along; nothing is taken over or copied."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    strange = world.root / "state" / "strange"
    strange.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(strange)
    else:
        strange.symlink_to(tmp_path if what == "folder" else "/etc/hostname")
    before = Log(LocalStore(world.root)).find_tail()
    with pytest.raises(CannotCopy, match="Penstock makes none in a checkpoint"):
        [*moving(world.root, root / "b" / "job")]
    assert Log(LocalStore(world.root)).find_tail() == before
    assert not (root / "b").exists()


def test_a_driver_that_sleeps_through_the_move_is_fenced(root, undisturbed):
    """It finds its next slot taken, like after any takeover, and does no harm to what goes on elsewhere."""
    world = world_at(root / "a" / "job")
    sleeper = driver_of(world, "a")
    points = sleeper.run()
    for hook in points:
        if (hook.stage, hook.when, hook.batch) == ("CommitBatch", "before", 1):
            break
    place = root / "b" / "job"
    assert [*moving(world.root, place)][-1] == "done"
    run_to_end(driver_of(replace(world, root=place), "b"))
    with pytest.raises(Fenced):
        list(points)
    assert shown(world) == undisturbed


@pytest.mark.remedy("PEN-CKP-027")
def test_a_place_out_of_whose_sight_the_source_lies_waits_for_the_command(root):
    """What cannot be seen may still go on."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    place = root / "b" / "job"
    points = moving(world.root, place)
    while next(points) != "source ended":
        pass
    world.root.rename(root / "unmounted")
    with pytest.raises(MoveUnfinished, match="cannot be seen from this machine") as caught:
        finish_move(place)
    assert "penstock import DIR JOB --move" in str(caught.value)
    (root / "unmounted").rename(world.root)
    assert goes_on(place)


@pytest.mark.remedy("PEN-CKP-026")
@pytest.mark.parametrize("remedy", ["there", "moved back"])
def test_a_job_that_has_moved_goes_on_there_or_is_moved_back(root, undisturbed, remedy):
    """The folder that was left is put aside first; each row is shown once either way."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    left, place = world.root, root / "b" / "job"
    assert list(moving(left, place))
    with pytest.raises(CheckpointMoved):
        run_to_end(driver_of(world, "b"))
    if remedy == "moved back":
        left.rename(root / "aside")
        assert list(moving(place, left, "n"))
    else:
        world.root = place
    run_to_end(driver_of(world, "c"))
    assert shown(world) == undisturbed


def test_decisions_on_held_batches_come_along(root):
    """Also those that are made while the copy is made; at the old place nobody decides any more."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    records = HeldRecords(LocalStore(root / "a"), "job")
    records.decide(0, Decision.DISCARD, {"raw": 1}, by="tests")
    place = root / "b" / "other"
    points = moving(world.root, place)
    while next(points) != "in place":
        pass
    records.decide(1, Decision.RELEASE, {"raw": 2}, by="tests")
    assert [*points][-1] == "done"
    moved = HeldRecords(LocalStore(root / "b"), "other")
    for batch, decision in ((0, Decision.DISCARD), (1, Decision.RELEASE)):
        ruling = moved.ruling(batch)
        assert ruling is not None
        assert ruling.decision is decision


def test_who_may_not_take_over_moves_nothing(root):
    """A driver that lives is left alone, and nothing is written anywhere."""
    world = world_at(root / "a" / "job")
    begin(world, None)
    before = survey(Log(LocalStore(world.root))).tail

    def nobody(_view: View) -> None:
        raise Fenced("it lives")

    me = Identity(holder="m", writer="m")
    with pytest.raises(Fenced, match="it lives"):
        [*move_checkpoint(world.root, root / "b" / "job", identity=me, may_take_over=nobody)]
    assert survey(Log(LocalStore(world.root))).tail == before
    assert not (root / "b").exists()
