"""Two drivers over one checkpoint, in every order of their steps: the loop itself, over a world without Spark.

DESIGN 4 claims that the log alone fences: a driver that sleeps through a takeover does no harm when it wakes.
Here `a` and `b` take turns at the hooks of the driver loop, and in every state that they can reach
- each batch id has at most one Commit, and ids have no gap;
- the tables show rows of committed batches only, each at most once, and owe at most those of the newest;
- who lost the log says so and names both epochs and the holder;
- a third driver that finds only this, as if both slept for ever, finishes with the source shown exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from schedules import Play, Scene, explore

from penstock.checkpoint.faulty import Fault, Lasting, Plan
from penstock.errors import Fenced, SinkError
from penstock.runtime import janitor

STALE_HISTORY = Scene(before=1, cut=("CommitBatch", "after"), rows=6)
"""One batch is committed and its publication was cut short."""


def woken(scene: Scene, *, every: int = 1) -> Iterator[Play]:
    """Yield plays in which `a` sleeps at each of its steps, until `b` has taken each number of steps, or ended."""
    steps = len(_alone(scene, "a").path)
    others = len(_alone(scene, "b").path)
    for asleep in range(steps + 1):
        for after in (*range(1, others, every), others):
            play = Play(scene, "a" * asleep + "b" * after)
            yield play
            for name in "ab":
                play.finish(name)
            yield play


def _alone(scene: Scene, name: str) -> Play:
    play = Play(scene)
    play.finish(name)
    return play


def hold(plays: Iterable[Play]) -> Counter[str]:
    """Check every state, and count how the drivers ended."""
    ends: Counter[str] = Counter()
    for play in plays:
        play.check()
        play.check_third()
        if not play.alive:
            ends.update(type(actor.error).__name__ for actor in play.actors.values())
    return ends


@pytest.mark.fault("F07", "F08")
@pytest.mark.parametrize("scene", [Scene(), STALE_HISTORY], ids=["empty log", "unpublished batch"])
def test_a_zombie_may_wake_at_any_step(scene: Scene) -> None:
    """`a` sleeps at each step while `b` takes the log over and runs to its end; then `a` wakes."""
    ends = hold(woken(scene, every=100))
    assert ends["Fenced"] >= 5
    assert set(ends) == {"Fenced", "NoneType"}


@pytest.mark.slow
@pytest.mark.fault("F07", "F08")
@pytest.mark.parametrize("scene", [Scene(), STALE_HISTORY], ids=["empty log", "unpublished batch"])
def test_two_drivers_in_every_order(scene: Scene) -> None:
    """All interleavings of one batch each."""
    ends = hold(explore(scene))
    assert ends["Fenced"] > 50
    assert set(ends) == {"Fenced", "NoneType"}
