"""What a driver hears while it runs: each order once, the last one while storage does not answer."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from penstock.errors import Fenced, StorageUnavailable
from penstock.rates.limits import Limits
from penstock.runtime.process import control as orders_module
from penstock.runtime.process.control import ControlState, OrderWatch
from penstock.runtime.process.signals import StopSwitch
from penstock.time.clock import SystemClock

FIRST = Limits(rows=100)
WANTED = [
    ControlState(),
    ControlState(stop=True),
    ControlState(drain=True),
    ControlState(over="a newer one", stop=True),
    ControlState(over="a newer one"),
    ControlState(limits=Limits(rows=5)),
    ControlState(limits=Limits(rows=None)),
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
        order = self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]
        if isinstance(order, Exception):
            raise order
        return order


def watching(*orders):
    """Return a watch of such orders, its switch, and the list that draining is noted in."""
    switch, drained = Switch(), []
    watch = OrderWatch(Told(*orders), switch, first=FIRST)
    return watch, switch, drained


# --- passing on -----------------------------------------------------------------------------------
def test_nothing_asked_is_nothing_done():
    """The configuration's limit holds."""
    watch, switch, drained = watching(ControlState())
    watch.on_drain(lambda: drained.append(1))
    watch.look()
    assert (switch.asked, drained, watch.limits()) == (0, [], FIRST)


def test_a_stop_is_asked_for_once():
    """However often it is read."""
    watch, switch, _ = watching(ControlState(), ControlState(stop=True))
    for _ in range(4):
        watch.look()
    assert switch.asked == 1


def test_a_stop_that_a_signal_asked_for_before_is_not_asked_again():
    """A second asking would be a second signal."""
    watch, switch, _ = watching(ControlState(stop=True))
    switch.heard = True
    watch.look()
    assert switch.asked == 0


def test_a_drain_is_passed_on_once():
    """However often it is read."""
    watch, switch, drained = watching(ControlState(), ControlState(drain=True))
    watch.on_drain(lambda: drained.append(1))
    for _ in range(4):
        watch.look()
    assert (drained, switch.asked) == ([1], 0)


def test_a_drain_asked_for_before_anybody_takes_it_is_passed_on_at_once():
    """Spark takes its seconds to start; then the driver drains, and is not told twice."""
    watch, _, drained = watching(ControlState(drain=True))
    watch.look()
    assert drained == []
    watch.on_drain(lambda: drained.append(1))
    assert drained == [1]
    watch.look()
    assert drained == [1]


def test_a_generation_that_is_over_is_fenced():
    """The switch is asked too, for the look from the thread raises nothing."""
    watch, switch, _ = watching(ControlState(over="generation 5 was claimed"))
    watch.refuse_if_over()
    with pytest.raises(Fenced, match="generation 5 was claimed"):
        watch.look()
    with pytest.raises(Fenced):
        watch.refuse_if_over()
    assert switch.asked == 1


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits(), FIRST), (Limits(rows=None), Limits(rows=None)), (Limits(rows=5), Limits(rows=5))],
    ids=["nothing was said", "no bound", "a number"],
)
def test_the_newest_limit_holds(limits, expected):
    """And the configuration's again where it is given back."""
    watch, _, _ = watching(ControlState(limits=Limits(rows=7)), ControlState(limits=limits), ControlState())
    watch.look()
    assert watch.limits() == Limits(rows=7)
    watch.look()
    assert watch.limits() == expected
    watch.look()
    assert watch.limits() == FIRST


def test_a_change_of_the_limit_is_told_once():
    """With the number that holds then; the limit at the start is no change."""
    watch, _, _ = watching(
        ControlState(), ControlState(limits=Limits(rows=5)), ControlState(limits=Limits(rows=5)), ControlState()
    )
    with capture_logs() as events:
        for _ in range(5):
            watch.look()
    assert [(event["event"], event["rows"]) for event in events] == [("orders.limit", 5), ("orders.limit", 100)]


@given(wanted=st.lists(st.sampled_from(WANTED), min_size=1, max_size=20), taken=st.integers(0, 20))
def test_every_order_is_passed_on_once(wanted, taken):
    """Whatever is asked in which order, and whenever the driver is ready to drain."""
    watch, switch, drained = watching(*wanted)
    for at in range(len(wanted)):
        if at == taken:
            watch.on_drain(lambda: drained.append(1))
        try:
            watch.look()
        except Fenced:
            assert wanted[at].over
        else:
            assert wanted[at].over is None
        assert switch.asked == any(order.stop or order.over for order in wanted[: at + 1])
        assert watch.limits() == wanted[at].limits.over(FIRST)
    heard = [order.drain for order in wanted[max(0, taken - 1) :]]
    rises = sum(now and not before for before, now in zip([False, *heard], heard, strict=False))
    assert len(drained) == (rises if taken < len(wanted) else 0)


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
    orders, switch = Heard(ControlState(), ControlState(stop=True)), Switch()
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
    watch = OrderWatch(Told(ControlState(stop=True)), switch, first=FIRST)
    with switch.armed(), watch.watching():
        wait_for(switch.asked)
    assert switch.heard
    assert not switch.expired.is_set()


@pytest.mark.fault("F08")
def test_a_generation_that_ends_while_it_runs_stops_the_driver_and_is_fenced(quick):
    """The thread asks for the stop, and whoever ends the run asks why."""
    orders, switch = Heard(ControlState(), ControlState(over="generation 5 was claimed", stop=True)), Switch()
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
    five = ControlState(limits=Limits(rows=5))
    orders, switch = Heard(five, error, error, error, five, error, error, five), Switch()
    watch = OrderWatch(orders, switch, first=FIRST)
    seen = []
    look = orders.look

    def noting():
        seen.append(watch.limits())
        return look()

    orders.look = noting
    with capture_logs() as events, watch.watching():
        wait_for(orders.read)
    assert [event["event"] for event in events] == ["orders.limit", "orders.not_read", "orders.not_read"]
    assert set(seen[1:]) == {Limits(rows=5)}
    assert switch.asked == 0


def test_the_look_before_the_start_tells_what_storage_says():
    """Nothing runs yet that could go on."""
    watch, switch, _ = watching(StorageUnavailable("no answer", where="x"))
    with pytest.raises(StorageUnavailable):
        watch.look()
    assert switch.asked == 0


@pytest.mark.fault("F45")
@pytest.mark.parametrize("ahead", [-86_400, -61, 0, 61, 86_400], ids="{} s".format)
def test_a_name_is_saved_while_somebody_asks_for_it_whatever_clocks_say(monkeypatch, ahead):
    """Who waits asks again and again by its own clock; what is no name would end the driver (SEMANTICS 10.2)."""
    now = [100.0]
    monkeypatch.setattr(orders_module.time, "monotonic", lambda: now[0])
    at = time.time_ns() // 1_000 + ahead * 1_000_000
    watch, _, _ = watching(
        ControlState(),
        ControlState(saves={"asked": at, "../x": at}),
        ControlState(saves={"asked": at}),
        ControlState(saves={"asked": at + 5}),
    )
    watch.look()
    assert watch.saves() == ()
    watch.look()
    assert watch.saves() == ("asked",)
    now[0] += orders_module.FRESH
    watch.look()
    assert watch.saves() == (), "who asked was killed"
    watch.look()
    assert watch.saves() == ("asked",), "asked for again"


def test_what_was_asked_of_a_driver_before_is_done_only_when_it_is_asked_for_again():
    """Who asked may have been killed long ago, and no clock that both have would tell."""
    watch, _, _ = watching(ControlState(saves={"old": 7}), ControlState(saves={"old": 8}))
    watch.look()
    assert watch.saves() == ()
    watch.look()
    assert watch.saves() == ("old",)


def test_names_to_delete_are_heard_in_the_same_way():
    """And not taken for names to give."""
    watch, _, _ = watching(ControlState(), ControlState(saves={"a": 1}, unsaves={"b": 1}))
    watch.look()
    watch.look()
    assert (watch.saves(), watch.unsaves()) == (("a",), ("b",))
