"""Held batches are decided on by the one process that commits: the driver, or who owns the log (SEMANTICS 9.4, F71)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_samples import own
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from test_release import UUID, World

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.entries import Release, Restore, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import CheckpointError, Fenced, HeldDecided, HeldNotFound, HolderAlive, SinkError
from penstock.quality.held import release as release_module
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.quality.held.requests import HeldAsks
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process import held_service
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.held_service import HeldService, HeldWork, decide_at_rest
from penstock.sinks.base import Target
from penstock.time.clock import ManualClock

pytestmark = pytest.mark.fault("F71")


class Served(World):
    """A world with a driver's service, and with who asks."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.clock = ManualClock(5_000_000)
        self.control = LocalStore(root / "control")
        self.asker = HeldAsks(self.control, "orders")
        self.heard = HeldAsks(self.control, "orders")
        self.heard.pending()
        self.work = HeldWork(self.records, self.log, self.graph, uuid=UUID, staged=self.staged, spark=None)

    def serve(self) -> None:
        """Look again, as a driver does that runs."""
        HeldService(self.heard, self.work, self.clock).serve(self.owned)

    def ask(self, batch: int, decision: Decision = Decision.RELEASE, **arguments: Any) -> str:
        return self.asker.ask(batch, decision, by="test", at=self.clock.wall(), **arguments)


@pytest.fixture
def world(tmp_path):
    return Served(tmp_path)


def test_a_driver_does_what_is_asked_and_says_so(world):
    """Release and discard, each once, with the rows; until then nothing is answered."""
    world.hold(0)
    world.hold(1, rows=2)
    release, drop = world.ask(0), world.ask(1, Decision.DISCARD)
    assert world.asker.answer(release) is None
    world.serve()
    assert world.asker.answer(release).rows == {"out": 3}
    assert world.asker.answer(drop).decision is Decision.DISCARD
    assert (world.shown(), world.waiting()) == ([0, 0, 0], [])
    number = Records(world.control, "asks", "orders").tail()
    world.serve()
    assert Records(world.control, "asks", "orders").tail() == number, "what was answered is not answered again"


def test_an_error_is_the_askers_and_no_drivers(world):
    """By its own class, so that the remedy is the right one."""
    world.pass_on(0)
    asked = world.ask(0)
    world.serve()
    with pytest.raises(HeldNotFound, match="batch 0 is not held"):
        world.asker.answer(asked)


def test_any_error_of_a_release_leaves_the_driver_alone(world, monkeypatch):
    """What is decided stays on the list, and who asks again finishes it."""
    world.hold(0)

    def fail(*args: Any) -> None:
        raise RuntimeError("no such luck")

    asked = world.ask(0)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.sinks.delta.publisher.DeltaPublisher.publish", fail)
        world.serve()
    with pytest.raises(SinkError, match="RuntimeError: no such luck"):
        world.asker.answer(asked)
    again = world.ask(0)
    world.serve()
    assert (world.asker.answer(again).rows, world.shown()) == ({"out": 3}, [0, 0, 0])


@pytest.mark.fault("F45")
@pytest.mark.parametrize("ahead", [-86_400, -61, 0, 61, 86_400], ids="{} s".format)
def test_a_driver_hears_whoever_waits_whatever_clocks_say(world, ahead):
    """What two machines take for the time may be a day apart; a repetition is no second ask."""
    world.hold(0)
    at = world.clock.wall() + ahead * 1_000_000
    asked = world.asker.ask(0, Decision.RELEASE, by="test", at=at)
    assert world.asker.ask(0, Decision.RELEASE, by="test", at=at + 1, again=asked) == asked
    world.serve()
    assert (world.asker.answer(asked).rows, world.shown()) == ({"out": 3}, [0, 0, 0])


def test_what_was_asked_of_a_driver_before_is_done_only_when_it_is_asked_for_again(world):
    """Who was killed waits no longer, and nobody is surprised an hour later."""
    world.hold(0)
    asked = world.ask(0)
    world.heard = HeldAsks(world.control, "orders")  # that of the next driver
    for _ in range(2):
        world.serve()
        assert (world.asker.answer(asked), world.waiting()) == (None, [0])
    world.clock.now += 1
    assert world.ask(0, again=asked) == asked
    world.serve()
    assert world.asker.answer(asked).rows == {"out": 3}


@pytest.mark.fault("F77")
@pytest.mark.parametrize(
    "body",
    [{}, {"ask": 7, "batch": 0}, {"ask": "x", "batch": "0", "decision": "release", "at": 1},
     {"ask": "x", "batch": 0, "decision": "burn", "at": 5_000_000},
     {"ask": "x", "batch": True, "decision": "release", "at": 5_000_000}, {"answer": None}],
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_passed_over(world, body):
    """F77: and what was asked beside it is done."""
    world.hold(0)
    Records(world.control, "asks", "orders").put(body)
    asked = world.ask(0)
    world.serve()
    assert world.asker.answer(asked).rows == {"out": 3}


def free(view: Any) -> None:
    """Let anybody take over."""


def test_where_no_driver_runs_the_command_owns_the_log_meanwhile(world, monkeypatch):
    """So no driver can begin to commit beside it; what the last driver said of itself stands again at the end."""
    world.hold(0)
    world.owned.append(Release(epoch=1, writer="w1", reason="stopped", published={"out": 0}))
    status = StatusRecords(world.control, "orders")
    status.put({"writer": "w1", "state": "stopped"})
    publish = world.work.graph.sinks[0].sink.open

    def look(*args: Any) -> Any:
        assert isinstance(world.log.read(world.log.find_tail()), Takeover)
        return publish(*args)

    monkeypatch.setattr(type(world.sink), "open", lambda _, *args: look(*args))
    me = Identity(holder="here", code_version="test")
    assert decide_at_rest(world.work, 0, Decision.RELEASE, me, free, status).rows == {"out": 3}
    last = world.log.read(world.log.find_tail())
    assert isinstance(last, Release)
    assert (last.reason, last.published) == ("stopped", {"out": 0})
    assert status.newest().body == {"writer": "w1", "state": "stopped"}


def test_an_error_at_rest_releases_the_log(world):
    """The next driver need not wait for anybody."""
    world.pass_on(0)
    world.owned.append(Release(epoch=1, writer="w1", reason="stopped"))
    status = StatusRecords(world.control, "orders")
    with pytest.raises(HeldNotFound):
        decide_at_rest(world.work, 0, Decision.RELEASE, Identity(holder="here"), free, status)
    assert isinstance(world.log.read(world.log.find_tail()), Release)


def test_what_a_restore_is_to_take_back_is_taken_back_before_anything_is_released(world):
    """SEMANTICS 10.1: a commit to the table in between would forbid it for ever; once it is done all goes on."""
    world.hold(0)
    world.pass_on(1)
    version = DeltaTable(str(world.table)).version()
    shown = CommitProperties(app_transactions=[Transaction(f"{UUID}/out", 1)])
    write_deltalake(str(world.table), pa.table({"v": [1]}), mode="append", commit_properties=shown)
    target = Target(app=f"{UUID}/out", batch=None, slot=-1)
    restore = Restore(
        epoch=1, writer="w1", batch=0, source="batch", saved=None, partitions=None, truncate={"out": version}
    )
    slot = world.owned.append(restore).place.slot
    world.owned.append(Release(epoch=1, writer="w1", reason="restored"))
    status, me = StatusRecords(world.control, "orders"), Identity(holder="here", code_version="test")
    with pytest.raises(CheckpointError, match="sink 'out' is to take rows back.*start the job first"):
        decide_at_rest(world.work, 0, Decision.RELEASE, me, free, status)
    assert (world.shown(), world.waiting()) == ([1], [0])
    assert world.sink.put_back(target, version, slot=slot, newest=1)
    assert decide_at_rest(world.work, 0, Decision.RELEASE, me, free, status).rows == {"out": 3}
    assert world.shown() == [0, 0, 0]


def overtake(log: Log, *, back_to: int | None) -> None:
    """Take the log over as a newer generation does, and go back."""
    owned = own(log, "w9")
    source = "empty" if back_to is None else "batch"
    owned.append(Restore(epoch=owned.epoch, writer="w9", batch=back_to, source=source, saved=None, partitions=None))


@pytest.mark.fault("F07")
@pytest.mark.parametrize("at_rest", [True, False], ids=["the command", "the driver"])
@pytest.mark.parametrize("hook", ["find", "verify", "decide", "open"])
@pytest.mark.parametrize("decision", list(Decision))
def test_who_has_lost_the_log_decides_nothing_more(world, monkeypatch, decision, hook, at_rest):
    """A newer generation may begin at any moment, and a restore have the rows come again: nothing comes beside them."""
    world.pass_on(0)
    world.hold(1)
    places = {
        "find": (held_service, "find_held"),
        "verify": (release_module, "verify_held"),
        "decide": (HeldRecords, "decide"),
        "open": (type(world.sink), "open"),
    }
    where, name = places[hook]
    before, times = getattr(where, name), []

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        if not times:
            times.append(1)
            overtake(world.log, back_to=0)
        return before(*args, **kwargs)

    monkeypatch.setattr(where, name, overtaken)
    status, me = StatusRecords(world.control, "orders"), Identity(holder="here", code_version="test")
    if at_rest:
        world.owned.append(Release(epoch=1, writer="w1", reason="stopped"))
    fenced = False
    try:
        if at_rest:
            decide_at_rest(world.work, 1, decision, me, free, status)
        else:
            world.ask(1, decision)
            world.serve()
    except Fenced:
        fenced = True
    assert bool(times) == fenced or (hook == "decide" and decision is Decision.DISCARD)
    assert world.shown() == []
    monkeypatch.undo()
    ruling = world.records.ruling(1)
    if ruling is not None and ruling.decision is Decision.RELEASE:
        with pytest.raises(HeldDecided, match="read its rows a second time"):
            world.work.decide(1, Decision.RELEASE, owned=own(world.log, "w10"), by="test")
        assert world.shown() == []


def test_a_driver_that_lives_is_not_pushed_aside(world):
    """It is asked instead."""
    world.hold(0)

    def refuse(view: Any) -> None:
        raise HolderAlive("the log is held")

    with pytest.raises(Fenced):
        decide_at_rest(
            world.work, 0, Decision.RELEASE, Identity(holder="here"), refuse, StatusRecords(world.control, "orders")
        )
    assert world.shown() == []
