"""The entries of a move are damaged or gone: the job goes on at one place, with its rows (F68)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import World, quick_folder, run_to_end
from test_damage import flips
from test_damaged_ends import cuts
from test_moving import begin, driver_of, goes_on, moving, shown, world_at

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import CheckpointMoved, MoveUnfinished
from penstock.runtime.restore import execute
from penstock.runtime.restore.move import finish_move
from penstock.runtime.restore.target import RestoreTarget


@pytest.fixture(scope="module")
def complete() -> dict[str, list]:
    """What the tables show where nobody moves anything."""
    with quick_folder() as root:
        world = world_at(root / "a" / "job")
        run_to_end(driver_of(world, "a"))
        return shown(world)


@pytest.fixture
def moved() -> Iterator[tuple[World, Path]]:
    """Return a world whose job has moved, and where to; nobody has gone on there."""
    with quick_folder() as root:
        world = world_at(root / "a" / "job")
        begin(world, ("PublishSinks", "before"))
        points = moving(world.root, root / "b" / "job")
        while next(points) != "source ended":
            pass
        yield world, root / "b" / "job"


def refused(world: World, name: str) -> None:
    """Start the job, and go back to a batch: neither is let, and neither writes."""
    log = Log(LocalStore(world.root))
    tail = log.find_tail()
    with pytest.raises(CheckpointMoved):
        run_to_end(driver_of(world, name))
    with pytest.raises(CheckpointMoved):
        list(execute.restore(driver_of(world, name), RestoreTarget(restore=True, batch=1)))
    assert log.find_tail() == tail


@pytest.mark.slow
@pytest.mark.fault("F68", "F08")
def test_a_damaged_moved_lets_nobody_go_on_at_the_old_place(moved, complete):
    """Every other byte flipped, the file cut short or zeros: no start, no restore; and the new place goes on."""
    world, place = moved
    log = Log(LocalStore(world.root))
    path = world.root / log.path(survey(log).tail)
    data = path.read_bytes()
    damages = [(f"byte {at}", changed) for at, changed in flips(data, 2)]
    damages += [(what, changed) for what, changed in cuts(data) if changed is not None]
    for what, changed in damages:
        path.write_bytes(changed)
        refused(world, what.replace(" ", ""))
    assert [*moving(world.root, place, "again")] == ["already"]
    assert goes_on(place)
    run_to_end(driver_of(replace(world, root=place), "b"))
    assert shown(world) == complete
    refused(world, "late")


@pytest.mark.fault("F68", "F16")
def test_a_moved_that_is_gone_lets_nobody_go_on_where_the_new_place_has(moved, complete):
    """The Takeover tells where the job was moved to, and the log there that it has arrived."""
    world, place = moved
    log = Log(LocalStore(world.root))
    path = world.root / log.path(survey(log).tail)
    assert goes_on(place)
    path.unlink()
    with pytest.raises(CheckpointMoved, match=f"has moved to {place}"):
        finish_move(world.root)  # as every start does
    run_to_end(driver_of(replace(world, root=place), "b"))
    assert shown(world) == complete


@pytest.mark.fault("F68")
def test_the_remedy_for_a_move_that_never_got_there_works(complete):
    """Who moved died before the copy had its name, and the next driver's Takeover is torn: nothing stands there."""
    with quick_folder() as root:
        world = world_at(root / "a" / "job")
        begin(world, ("PublishSinks", "before"))
        points = moving(world.root, root / "b" / "job")
        while next(points) != "copied":
            pass
        log = Log(LocalStore(world.root))
        path = world.root / log.path(survey(log).tail + 1)
        path.write_bytes(b"")
        with pytest.raises(CheckpointMoved, match=r"Where nothing of the job is there.* delete log/\d+ ") as why:
            run_to_end(driver_of(world, "b"))
        assert str(path) in str(why.value)
        path.unlink()
        run_to_end(driver_of(world, "b"))
        assert shown(world) == complete


@pytest.mark.fault("F68")
@pytest.mark.parametrize("whole", ["header", "body", "nothing"])
def test_a_damaged_arrival_waits_for_a_person(moved, complete, whole):
    """Neither a start nor a restore goes on there by itself; the remedy in the error does."""
    world, place = moved
    log = Log(LocalStore(place))
    path = place / log.path(survey(log).tail)
    data = path.read_bytes()
    path.write_bytes({"header": data[:-1], "body": data[1:], "nothing": b""}[whole])
    there = replace(world, root=place)
    refused(there, "b")
    refused(world, "c")
    with pytest.raises(CheckpointMoved, match="this is that place and the old one has ended, delete log") as why:
        run_to_end(driver_of(there, "b"))
    assert str(path) in str(why.value)
    path.unlink()
    run_to_end(driver_of(there, "b"))
    assert shown(world) == complete
    with pytest.raises((CheckpointMoved, MoveUnfinished)):
        run_to_end(driver_of(world, "c"))
