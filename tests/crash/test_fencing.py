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
from faulty_store import Fault, Lasting, Plan
from schedules import Play, Scene, explore

from penstock.checkpoint.log import compaction
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.errors import Fenced
from penstock.runtime.driver import retention

pytestmark = pytest.mark.sample(2, of="two drivers")

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
    checked = set()
    for play in plays:
        play.check_errors()
        if play.shared not in checked:
            checked.add(play.shared)
            play.check_shared()
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


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.fault("F07", "F08")
@pytest.mark.parametrize("scene", [Scene(), STALE_HISTORY], ids=["empty log", "unpublished batch"])
def test_two_drivers_in_every_order(scene: Scene) -> None:
    """All interleavings of one batch each."""
    ends = hold(explore(scene))
    assert ends["Fenced"] > 50
    assert set(ends) == {"Fenced", "NoneType"}


def lost(at: int, lasting: Lasting = Lasting.ONCE) -> Scene:
    """Return a scene in which acknowledgements to `a` are lost."""
    return Scene(plans={"a": Plan(Fault.AFTER, at=at, lasting=lasting)})


LOST = {
    "Takeover": lost(1),
    "Offsets": lost(2),
    "Commit": lost(3),
    "Release": lost(4),
    "all of them": lost(1, Lasting.FROM_THEN_ON),
}


@pytest.mark.fault("F07", "F08", "F23")
@pytest.mark.parametrize("scene", LOST.values(), ids=LOST)
def test_a_zombie_whose_acknowledgement_was_lost(scene: Scene) -> None:
    """An entry of its own in the slot counts as written, a Takeover of another as the loss of the log."""
    ends = hold(woken(scene, every=100))
    assert ends["Fenced"] >= 5
    assert set(ends) == {"Fenced", "NoneType"}


@pytest.mark.soak
@pytest.mark.fault("F07", "F08", "F23")
@pytest.mark.parametrize("scene", LOST.values(), ids=LOST)
def test_two_drivers_in_every_order_with_a_lost_acknowledgement(scene: Scene) -> None:
    """All interleavings, for each entry that `a` writes."""
    assert set(hold(explore(scene))) == {"Fenced", "NoneType"}


BROKEN_SINK = {
    f"{sink} {when}": Scene(failing={"a": (sink, when)}) for sink in ("raw", "copy") for when in ("before", "after")
}


@pytest.mark.fault("F55", "F58")
@pytest.mark.parametrize("scene", BROKEN_SINK.values(), ids=BROKEN_SINK)
def test_a_sink_that_fails_or_does_not_tell_holds_up_nobody(scene: Scene) -> None:
    """Fails before it took effect (F55), or after, so that nobody knows (F58); each sink rolls forward by its version.

    The driver ends with the sink's error. The next one publishes the batch again: the sink that has it leaves it.
    """
    ends = hold(woken(scene, every=100))
    assert ends["SinkError"] >= 5
    assert set(ends) == {"Fenced", "NoneType", "SinkError"}


@pytest.mark.soak
@pytest.mark.fault("F07", "F08", "F55", "F58")
@pytest.mark.parametrize("scene", BROKEN_SINK.values(), ids=BROKEN_SINK)
def test_two_drivers_in_every_order_with_a_broken_sink(scene: Scene) -> None:
    """All interleavings."""
    assert set(hold(explore(scene))) == {"Fenced", "NoneType", "SinkError"}


PURGED = Scene(before=3, rows=14, stride=2, keep=1, batches={"a": 1, "b": 3})
LONG = Scene(before=3, rows=20, stride=4, keep=1, batches={"a": 1, "b": 6})


@pytest.mark.slow
@pytest.mark.fault("F07", "F08", "F30")
@pytest.mark.parametrize("every", [pytest.param(7, id="some"), pytest.param(1, id="each", marks=pytest.mark.soak)])
def test_a_zombie_wakes_over_a_log_that_was_purged(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Milestones stand at every second slot, one commit is kept, and each batch purges."""
    monkeypatch.setattr(retention, "EVERY", 1)
    monkeypatch.setattr(compaction, "EVERY", 3)
    ends = hold(woken(PURGED, every=every))
    assert ends["Fenced"] > 50
    assert set(ends) == {"Fenced", "NoneType"}


def newcomers(*, every: int) -> Iterator[Play]:
    """Yield plays in which `a` surveys the log while `b` owns it, and sleeps until `b` has gone on and purged."""
    steps = len(_alone(LONG, "b").path)
    for owned in range(4, steps, every):
        for after in range(1, steps - owned, every):
            play = Play(LONG, "b" * owned + "aa" + "b" * after)
            play.finish("a")
            yield play
            play.finish("b")
            yield play


@pytest.mark.slow
@pytest.mark.fault("F07", "F08", "F30")
@pytest.mark.parametrize("every", [pytest.param(3, id="some"), pytest.param(1, id="each", marks=pytest.mark.soak)])
def test_a_newcomer_claims_a_slot_that_was_purged(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """The slot it saw as the next one was used and is empty again: its Takeover gets in, and nothing else does."""
    monkeypatch.setattr(retention, "EVERY", 1)
    monkeypatch.setattr(compaction, "EVERY", 3)
    strays = 0

    def plays() -> Iterator[Play]:
        nonlocal strays
        for play in newcomers(every=every):
            strays += play.strays == ["a"]
            yield play

    assert set(hold(plays())) == {"Fenced", "NoneType"}
    assert strays >= 10


@pytest.mark.slow
def test_the_schedules_would_see_a_driver_that_writes_without_owning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second search after a claim the oracle speaks up, so the tests above could fail."""
    monkeypatch.setattr("penstock.runtime.driver.ownership.confirm", lambda log, slot: OwnedLog(log, log.read(slot)))
    monkeypatch.setattr(retention, "EVERY", 1)
    monkeypatch.setattr(compaction, "EVERY", 3)
    with pytest.raises(AssertionError, match=r"^b+a+b+"):
        hold(newcomers(every=3))


def test_who_was_fenced_by_a_table_that_went_on_names_the_holder() -> None:
    """A zombie that publishes what is published learns from the table that it is late, and from the log whose fault."""
    scene = Scene(before=1, cut=("CommitBatch", "after"), rows=6)
    play = Play(scene, "aaaaa")
    play.finish("b")
    play.finish("a")
    error = play.actors["a"].error
    assert isinstance(error, Fenced)
    facts = (error.fields["epoch_mine"], error.fields["epoch_seen"], error.fields["holder"], error.exit_code)
    assert facts == (2, 3, "nobody any more: it was released", 77)
