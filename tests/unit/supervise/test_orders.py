"""What a driver is to do, read from the record of its stream."""

from __future__ import annotations

import time

import pytest
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import Fenced, StorageUnavailable
from penstock.rates.limits import Limits
from penstock.runtime.process.control import CHECKED, ControlState, OrderWatch
from penstock.runtime.process.signals import StopSwitch
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.control import StreamControl
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Stream, Wish
from penstock.time.clock import SystemClock
from tools.waiting import until

FIRST = Limits(rows=100)


def records(store=None):
    return StreamRecords(store or MemoryStore(), "flights")


def ask(mine, verb, at, **more):
    """Carry out a command at a time."""
    return mine.update(lambda stream: fold(stream, Command(verb=verb, id=f"{verb.value}/{at}", **more), at))


def put(mine, stream):
    mine.update(lambda _: (stream, None))


RUNNING = Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=4, asked_at=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ControlState()),
        ({"wish": Wish.STOP}, ControlState(stop=True)),
        ({"wish": Wish.SUSPEND}, ControlState(stop=True)),
        ({"wish": Wish.DRAIN}, ControlState(drain=True)),
        ({"limits": Limits(rows=5)}, ControlState(limits=Limits(rows=5))),
        ({"limits": Limits(rows=None)}, ControlState(limits=Limits(rows=None))),
        ({"limits": Limits(rows=5), "wish": Wish.STOP}, ControlState(stop=True, limits=Limits(rows=5))),
        ({"generation": 3}, ControlState()),
    ],
    ids=["run", "stop", "suspend", "drain", "limit", "no limit", "both", "an older record"],
)
def test_the_newest_generation_hears(changes, expected):
    """Its own wish and limits, as they stand."""
    mine = records()
    put(mine, RUNNING.model_copy(update=changes))
    assert StreamOrders(mine, 4).look() == expected


@pytest.mark.fault("F08")
@pytest.mark.parametrize("wish", list(Wish), ids=lambda wish: wish.value.lower())
def test_an_older_generation_is_over(wish):
    """Whatever is wished of the newer one, which is named; a drain is none of its own."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"wish": wish}))
    control = StreamOrders(mine, 3).look()
    assert (control.stop, control.drain) == (True, False)
    assert "generation 4" in control.over


@pytest.mark.fault("F08")
def test_a_driver_finds_its_generation_over_when_a_newer_one_is_claimed():
    """By a restart, though nothing was started yet."""
    mine = records()
    put(mine, RUNNING)
    orders = StreamOrders(mine, 4)
    switch = StopSwitch(60.0, clock=SystemClock())
    watch = OrderWatch(orders, switch, first=FIRST)
    with switch.armed():
        watch.look()
        ask(mine, Verb.RESTART, 5)
        with pytest.raises(Fenced, match="generation 5 was claimed after this driver's, 4"):
            watch.look()
        assert until(lambda: switch.heard)


def test_a_driver_hears_each_command_in_turn():
    """Limits, the end of them, and a drain."""
    mine = records()
    put(mine, RUNNING)
    orders = StreamOrders(mine, 4)
    heard = [orders.look()]
    for at, (verb, more) in enumerate(
        [
            (Verb.LIMITS, {"limits": Limits(rows=5)}),
            (Verb.LIMITS, {"limits": Limits(rows=None)}),
            (Verb.LIMITS, {}),
            (Verb.DRAIN, {}),
            (Verb.STOP, {}),
        ],
        start=2,
    ):
        ask(mine, verb, at, **more)
        heard.append(orders.look())
    five, free = ControlState(limits=Limits(rows=5)), ControlState(limits=Limits(rows=None))
    assert heard == [ControlState(), five, free, ControlState(), ControlState(drain=True), ControlState(stop=True)]


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (Verb.STOP, ControlState(stop=True)),
        (Verb.SUSPEND, ControlState(stop=True)),
        (Verb.DRAIN, ControlState(drain=True)),
        (Verb.RESTART, ControlState(stop=True)),
    ],
    ids=lambda value: value.value if isinstance(value, Verb) else "",
)
def test_a_driver_that_was_started_by_hand_obeys_what_is_asked_after_its_start(verb, expected):
    """Of a stream that runs; a restart as well, because no newer driver is started while it holds the job."""
    mine = records()
    put(mine, RUNNING)
    orders = StreamOrders(mine, 0)
    assert orders.look() == ControlState()
    ask(mine, verb, 9)
    assert orders.look() == expected


@pytest.mark.parametrize("wish", [Wish.STOP, Wish.SUSPEND, Wish.DRAIN], ids=lambda wish: wish.value.lower())
def test_a_driver_that_was_started_by_hand_ignores_what_was_asked_before(wish):
    """It was not meant for it; the limits are, and so is what is asked later."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"wish": wish, "limits": Limits(rows=5)}))
    orders = StreamOrders(mine, 0)
    assert orders.look() == ControlState(limits=Limits(rows=5))
    mine.update(lambda stream: (stream.model_copy(update={"reason": "the supervisor's", "generation": 9}), None))
    assert orders.look() == ControlState(limits=Limits(rows=5))
    ask(mine, Verb.LIMITS, 8, limits=Limits(rows=6))
    assert orders.look() == ControlState(limits=Limits(rows=6))
    ask(mine, Verb.STOP, 9)
    assert orders.look() == ControlState(stop=True, limits=Limits(rows=6))


@pytest.mark.parametrize(
    "before",
    [
        Stream(),
        Stream(wish=Wish.STOP, phase=Phase.STOPPED, first=3, generation=4, asked_at=1),
        Stream(wish=Wish.RUN, phase=Phase.FINISHED, first=3, generation=4, asked_at=1),
        Stream(wish=Wish.RUN, phase=Phase.FAILED, first=3, generation=4, asked_at=1),
    ],
    ids=["never asked for", "stopped", "finished", "failed"],
)
def test_a_stop_is_heard_by_a_driver_that_was_started_by_hand_while_its_stream_did_not_run(before):
    """It obeys what is asked after its start, also where the stream itself has nothing to stop."""
    mine = records()
    if before != Stream():
        put(mine, before)
    orders = StreamOrders(mine, 0)
    ask(mine, Verb.STOP, 9)
    assert orders.look() == ControlState(stop=True)


def test_the_record_is_read_only_when_there_is_a_new_one():
    """A driver looks every second, for months."""
    inner = MemoryStore()
    put(records(inner), RUNNING)
    counted = []

    class Counted(FaultyStore):
        def read(self, path):
            counted.append(path)
            return super().read(path)

    orders = StreamOrders(records(Counted(inner)), 4)
    for _ in range(5):
        orders.look()
    assert len(counted) == 1
    ask(records(inner), Verb.STOP, 5)
    assert orders.look() == ControlState(stop=True)
    assert len(counted) == 2


def test_at_whichever_call_storage_fails_the_next_look_hears_it():
    """Nothing that was not read counts as read."""
    at, fired = 0, True
    while fired:
        at += 1
        inner = MemoryStore()
        put(records(inner), RUNNING)
        store = FaultyStore(inner, Plan(Fault.BEFORE, at=at, lasting=Lasting.ONCE))
        orders = StreamOrders(records(store), 4)
        ask(records(inner), Verb.STOP, 5)
        try:
            control = orders.look()
        except StorageUnavailable:
            control = orders.look()
        fired = store.fired
        assert control == ControlState(stop=True)
    assert at > 2


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED, Phase.SUSPENDED, Phase.FINISHED])
def test_a_driver_that_comes_after_its_stream_was_given_up_ends(phase):
    """A supervisor that slept may launch a driver when nobody waits for it any more: its generation is the newest."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"phase": phase}))
    assert StreamOrders(mine, RUNNING.generation).look().stop


def test_a_generation_that_is_counted_elsewhere_is_not_over():
    """`penstock run --generation N` without a supervisor: nobody has written a record, and nobody wants a stop."""
    assert StreamOrders(records(), 2).look() == ControlState()


def test_the_batch_that_a_restart_goes_back_to_is_kept_until_the_older_driver_has_ended():
    """It commits for a moment yet, and would purge what was there when the restart was accepted."""
    mine = records()
    put(mine, RUNNING)
    watch = OrderWatch(StreamOrders(mine, 4), StopSwitch(60.0, clock=SystemClock()), first=FIRST)
    assert watch.needed() == set()
    ask(mine, Verb.RESTART, 5, start="batch=7")
    assert watch.needed() == {7}
    ask(mine, Verb.RESTART, 6, start="empty")
    assert watch.needed() == set()


def test_the_batch_of_a_restart_that_is_checked_is_kept_until_that_is_over(tmp_path):
    """The check may take a minute, and a stream with a batch a second purges the chosen one before it ends."""
    control_store(LocalFolder(tmp_path))
    control = StreamControl(LocalFolder(tmp_path), "flights", SystemClock())
    mine = control.records
    put(mine, RUNNING)
    watch = OrderWatch(StreamOrders(mine, 4), StopSwitch(60.0, clock=SystemClock()), first=FIRST)
    with control.checking(Command(verb=Verb.RESTART, id="a", start="batch=7")) as first:
        assert watch.needed() == {7}
        with control.checking(Command(verb=Verb.RESTART, id="b", start="batch=5")):
            assert watch.needed() == {5, 7}
        assert watch.needed() == {7}
        assert first.follows == mine.newest().request
        with control.checking(Command(verb=Verb.RESTART, id="c", start="saved=friday")):
            assert watch.needed() == {7}
    assert watch.needed() == set()


def test_a_check_whose_asker_was_killed_keeps_its_batch_for_ten_minutes(tmp_path, monkeypatch):
    """Of the driver's own clock. The next try of the task is a check of its own, and the next start forgets all."""
    control_store(LocalFolder(tmp_path))
    control = StreamControl(LocalFolder(tmp_path), "flights", SystemClock())
    mine = control.records
    command = Command(verb=Verb.RESTART, id="a", start="batch=7")
    put(mine, RUNNING)
    killed = control.checking(command)
    killed.__enter__()
    watch = OrderWatch(StreamOrders(mine, 4), StopSwitch(60.0, clock=SystemClock()), first=FIRST)
    begun = time.monotonic()
    assert watch.needed() == {7}
    for seconds, kept in ((CHECKED - 10, {7}), (CHECKED + 10, set())):
        monkeypatch.setattr(time, "monotonic", lambda later=begun + seconds: later)
        assert watch.needed() == kept
    with control.checking(command):
        assert watch.needed() == {7}
    ask(mine, Verb.RESTART, 5)
    assert mine.newest().checks == {}


def test_the_driver_that_went_back_to_a_batch_keeps_it_no_longer_than_others():
    """And where storage does not answer, retention goes on."""
    inner = MemoryStore()
    put(records(inner), RUNNING.model_copy(update={"start": "batch=7"}))
    store = FaultyStore(inner, Plan(Fault.BEFORE, at=4, lasting=Lasting.FROM_THEN_ON))
    watch = OrderWatch(StreamOrders(records(store), 4), StopSwitch(60.0, clock=SystemClock()), first=FIRST)
    assert [watch.needed() for _ in range(5)] == [set()] * 5
    assert store.fired
