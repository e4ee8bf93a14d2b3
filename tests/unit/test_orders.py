"""What a driver hears while it runs: each order once, the last one while storage does not answer."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from penstock.checkpoint.faulty import Fault, FaultyStore, Lasting, Plan
from penstock.checkpoint.memory import MemoryStore
from penstock.errors import Fenced, StorageUnavailable
from penstock.runtime import orders as orders_module
from penstock.runtime.orders import Order, OrderWatch
from penstock.runtime.stopping import StopSwitch
from penstock.sources.base import ReadLimit
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Limits, Phase, Stream, Wish
from penstock.time.clock import SystemClock

FIRST = ReadLimit(rows=100)
WANTED = [
    Order(),
    Order(stop=True),
    Order(drain=True),
    Order(over="a newer one", stop=True),
    Order(over="a newer one"),
    Order(limit=ReadLimit(rows=5)),
    Order(limit=ReadLimit(rows=None)),
]


class Switch:
    """Count how often a stop is asked for."""

    def __init__(self):
        self.heard = False
        self.asked = 0

    def ask(self):
        self.heard = True
        self.asked += 1


class Told:
    """Orders that say one thing after another, and then the last of them again; an error is raised."""

    def __init__(self, *orders):
        self.orders = list(orders)
        self.looks = 0

    def look(self):
        self.looks += 1
        said = self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]
        if isinstance(said, Exception):
            raise said
        return said


def watching(*orders):
    """Return a watch of such orders, its switch, and the list that draining is noted in."""
    switch, drained = Switch(), []
    watch = OrderWatch(Told(*orders), switch, first=FIRST)
    return watch, switch, drained


# --- passing on -----------------------------------------------------------------------------------
def test_nothing_asked_is_nothing_done():
    """The configuration's limit holds."""
    watch, switch, drained = watching(Order())
    watch.on_drain(lambda: drained.append(1))
    watch.look()
    assert (switch.asked, drained, watch.limit()) == (0, [], FIRST)


def test_a_stop_is_asked_for_once():
    """However often it is read."""
    watch, switch, _ = watching(Order(), Order(stop=True))
    for _ in range(4):
        watch.look()
    assert switch.asked == 1


def test_a_stop_that_a_signal_asked_for_before_is_not_asked_again():
    """A second asking would be a second signal."""
    watch, switch, _ = watching(Order(stop=True))
    switch.heard = True
    watch.look()
    assert switch.asked == 0


def test_a_drain_is_passed_on_once():
    """However often it is read."""
    watch, switch, drained = watching(Order(), Order(drain=True))
    watch.on_drain(lambda: drained.append(1))
    for _ in range(4):
        watch.look()
    assert (drained, switch.asked) == ([1], 0)


def test_a_drain_asked_for_before_anybody_takes_it_is_passed_on_at_once():
    """Spark takes its seconds to start; then the driver drains, and is not told twice."""
    watch, _, drained = watching(Order(drain=True))
    watch.look()
    assert drained == []
    watch.on_drain(lambda: drained.append(1))
    assert drained == [1]
    watch.look()
    assert drained == [1]


def test_a_generation_that_is_over_is_fenced():
    """The switch is asked too, for the look from the thread raises nothing."""
    watch, switch, _ = watching(Order(over="generation 5 was claimed"))
    watch.refuse_if_over()
    with pytest.raises(Fenced, match="generation 5 was claimed"):
        watch.look()
    with pytest.raises(Fenced):
        watch.refuse_if_over()
    assert switch.asked == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, FIRST), (ReadLimit(rows=None), ReadLimit(rows=None)), (ReadLimit(rows=5), ReadLimit(rows=5))],
    ids=["nothing was said", "no bound", "a number"],
)
def test_the_newest_limit_holds(limit, expected):
    """And the configuration's again where it is given back."""
    watch, _, _ = watching(Order(limit=ReadLimit(rows=7)), Order(limit=limit), Order())
    watch.look()
    assert watch.limit() == ReadLimit(rows=7)
    watch.look()
    assert watch.limit() == expected
    watch.look()
    assert watch.limit() == FIRST


def test_a_change_of_the_limit_is_told_once():
    """With the number that holds then; the limit at the start is no change."""
    watch, _, _ = watching(Order(), Order(limit=ReadLimit(rows=5)), Order(limit=ReadLimit(rows=5)), Order())
    with capture_logs() as told:
        for _ in range(5):
            watch.look()
    assert [(event["event"], event["rows"]) for event in told] == [("orders.limit", 5), ("orders.limit", 100)]


@given(said=st.lists(st.sampled_from(WANTED), min_size=1, max_size=20), taken=st.integers(0, 20))
def test_every_order_is_passed_on_once(said, taken):
    """Whatever is asked in which order, and whenever the driver is ready to drain."""
    watch, switch, drained = watching(*said)
    for at in range(len(said)):
        if at == taken:
            watch.on_drain(lambda: drained.append(1))
        try:
            watch.look()
        except Fenced:
            assert said[at].over
        else:
            assert said[at].over is None
        assert switch.asked == any(order.stop or order.over for order in said[: at + 1])
        assert watch.limit() == (said[at].limit or FIRST)
    heard = [order.drain for order in said[max(0, taken - 1) :]]
    rises = sum(now and not before for before, now in zip([False, *heard], heard, strict=False))
    assert len(drained) == (rises if taken < len(said) else 0)


# --- the thread that looks --------------------------------------------------------------------
@pytest.fixture
def quick(monkeypatch):
    """Let a look come after the other at once."""
    monkeypatch.setattr(orders_module, "EVERY", 0.002)


def wait_for(event):
    assert event.wait(60)


class Heard(Told):
    """Orders as above, with an event for the end of the list."""

    def __init__(self, *orders):
        super().__init__(*orders)
        self.read = threading.Event()

    def look(self):
        if self.looks > 2 and len(self.orders) == 1:
            self.read.set()
        return super().look()


def test_inside_the_block_orders_are_heard(quick):
    """The thread ends with the block."""
    orders, switch = Heard(Order(), Order(stop=True)), Switch()
    watch = OrderWatch(orders, switch, first=FIRST)
    with watch.watching():
        assert "penstock-orders" in [thread.name for thread in threading.enumerate()]
        wait_for(orders.read)
    assert switch.asked == 1
    looks = orders.looks
    assert threading.Event().wait(0.02) is False
    assert orders.looks == looks


def test_a_real_switch_is_asked(quick):
    """As by the first signal."""
    switch = StopSwitch(60.0, clock=SystemClock())
    watch = OrderWatch(Told(Order(stop=True)), switch, first=FIRST)
    with switch.armed(), watch.watching():
        wait_for(switch.asked)
    assert switch.heard
    assert not switch.expired.is_set()


@pytest.mark.fault("F30")
def test_a_generation_that_ends_while_it_runs_stops_the_driver_and_is_fenced(quick):
    """The thread asks for the stop, and whoever ends the run asks why."""
    orders, switch = Heard(Order(), Order(over="generation 5 was claimed", stop=True)), Switch()
    watch = OrderWatch(orders, switch, first=FIRST)
    with watch.watching():
        wait_for(orders.read)
    assert switch.asked == 1
    with pytest.raises(Fenced):
        watch.refuse_if_over()


@pytest.mark.parametrize(
    "error", [StorageUnavailable("no answer", where="x"), PermissionError("no")], ids=["storage", "system"]
)
def test_storage_that_does_not_answer_keeps_the_last_order_and_is_told_once(quick, error):
    """Once for each time that it goes away."""
    five = Order(limit=ReadLimit(rows=5))
    orders, switch = Heard(five, error, error, error, five, error, error, five), Switch()
    watch = OrderWatch(orders, switch, first=FIRST)
    seen = []
    look = orders.look

    def noting():
        seen.append(watch.limit())
        return look()

    orders.look = noting
    with capture_logs() as told, watch.watching():
        wait_for(orders.read)
    assert [event["event"] for event in told] == ["orders.limit", "orders.not_read", "orders.not_read"]
    assert set(seen[1:]) == {ReadLimit(rows=5)}
    assert switch.asked == 0


def test_the_look_before_the_start_tells_what_storage_says():
    """Nothing runs yet that could go on."""
    watch, switch, _ = watching(StorageUnavailable("no answer", where="x"))
    with pytest.raises(StorageUnavailable):
        watch.look()
    assert switch.asked == 0


# --- the orders in a stream's record -------------------------------------------------------------
def records(store=None):
    return StreamRecords(store or MemoryStore(), "flights")


def ask(mine, verb, at, **more):
    """Carry out a command at a time."""
    return mine.update(lambda found: fold(found, Command(verb=verb, id=f"{verb} {at}", **more), at))


def put(mine, stream):
    mine.update(lambda found: (stream, None))


RUNNING = Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=4, asked_at=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Order()),
        ({"wish": Wish.STOP}, Order(stop=True)),
        ({"wish": Wish.SUSPEND}, Order(stop=True)),
        ({"wish": Wish.DRAIN}, Order(drain=True)),
        ({"limits": Limits(rows=5)}, Order(limit=ReadLimit(rows=5))),
        ({"limits": Limits(rows=None)}, Order(limit=ReadLimit(rows=None))),
        ({"limits": Limits(rows=5), "wish": Wish.STOP}, Order(stop=True, limit=ReadLimit(rows=5))),
        ({"generation": 3}, Order()),
    ],
    ids=["run", "stop", "suspend", "drain", "limit", "no limit", "both", "an older record"],
)
def test_the_newest_generation_hears(changes, expected):
    """Its own wish and limits, as they stand."""
    mine = records()
    put(mine, RUNNING.model_copy(update=changes))
    assert StreamOrders(mine, 4).look() == expected


@pytest.mark.fault("F30")
@pytest.mark.parametrize("wish", list(Wish), ids=lambda wish: wish.value.lower())
def test_an_older_generation_is_over(wish):
    """Whatever is wished of the newer one, which is named; a drain is none of its own."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"wish": wish}))
    told = StreamOrders(mine, 3).look()
    assert (told.stop, told.drain) == (True, False)
    assert "generation 4" in told.over


@pytest.mark.fault("F30")
def test_a_driver_finds_its_generation_over_when_a_newer_one_is_claimed():
    """By a restart, though nothing was started yet."""
    mine = records()
    put(mine, RUNNING)
    orders = StreamOrders(mine, 4)
    switch = Switch()
    watch = OrderWatch(orders, switch, first=FIRST)
    watch.look()
    ask(mine, Verb.RESTART, 5)
    with pytest.raises(Fenced, match="generation 5 was claimed after this driver's, 4"):
        watch.look()
    assert switch.asked == 1


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
    five, free = Order(limit=ReadLimit(rows=5)), Order(limit=ReadLimit(rows=None))
    assert heard == [Order(), five, free, Order(), Order(drain=True), Order(stop=True)]


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (Verb.STOP, Order(stop=True)),
        (Verb.SUSPEND, Order(stop=True)),
        (Verb.DRAIN, Order(drain=True)),
        (Verb.RESTART, Order()),
    ],
    ids=lambda said: said.value if isinstance(said, Verb) else "",
)
def test_a_driver_that_was_started_by_hand_obeys_what_is_asked_after_its_start(verb, expected):
    """Of a stream that runs; a newer generation is no order to it, because the log tells it."""
    mine = records()
    put(mine, RUNNING)
    orders = StreamOrders(mine, 0)
    assert orders.look() == Order()
    ask(mine, verb, 9)
    assert orders.look() == expected


@pytest.mark.parametrize("wish", [Wish.STOP, Wish.SUSPEND, Wish.DRAIN], ids=lambda wish: wish.value.lower())
def test_a_driver_that_was_started_by_hand_ignores_what_was_asked_before(wish):
    """It was not meant for it; the limits are, and so is what is asked later."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"wish": wish, "limits": Limits(rows=5)}))
    orders = StreamOrders(mine, 0)
    assert orders.look() == Order(limit=ReadLimit(rows=5))
    mine.update(lambda found: (found.model_copy(update={"reason": "the supervisor's", "generation": 9}), None))
    assert orders.look() == Order(limit=ReadLimit(rows=5))
    ask(mine, Verb.LIMITS, 8, limits=Limits(rows=6))
    assert orders.look() == Order(limit=ReadLimit(rows=6))
    ask(mine, Verb.STOP, 9)
    assert orders.look() == Order(stop=True, limit=ReadLimit(rows=6))


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
    assert orders.look() == Order(stop=True)


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
    assert orders.look() == Order(stop=True)
    assert len(counted) == 2


@pytest.mark.fault("F30")
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
            told = orders.look()
        except StorageUnavailable:
            told = orders.look()
        fired = store.fired
        assert told == Order(stop=True)
    assert at > 2


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED, Phase.SUSPENDED, Phase.FINISHED])
def test_a_driver_that_comes_after_its_stream_was_given_up_ends(phase):
    """A supervisor that slept may launch a driver when nobody waits for it any more: its generation is the newest."""
    mine = records()
    put(mine, RUNNING.model_copy(update={"phase": phase}))
    assert StreamOrders(mine, RUNNING.generation).look().stop


def test_a_generation_that_is_counted_elsewhere_is_not_over():
    """`penstock run --generation N` without a supervisor: nobody has written a record, and nobody wants a stop."""
    assert StreamOrders(records(), 2).look() == Order()
