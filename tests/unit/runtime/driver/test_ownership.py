"""When a batch is planned, and who may open the sinks: two rules of the loop that no output shows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fake_engine import SECOND, FakeEngine, Witness, World, make_driver, plain_job

from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.takeover import View
from penstock.errors import HolderAlive
from penstock.runtime.driver.loop import Driver
from penstock.time.clock import ManualClock
from penstock.time.triggers import AsFastAsPossible, FixedInterval

GRAPH = plain_job()


class Busy(ManualClock):
    """Time in which rows come while a driver waits for its tick."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def sleep(self, seconds: float) -> None:
        """Let a row come."""
        self.world.times.append(float(len(self.world.times)))

    def sleep_until(self, wall: int) -> None:
        """Let a row come, and then the tick."""
        self.sleep(0.0)
        super().sleep_until(wall)


def owned(driver: Driver, slots: int) -> list[Offsets]:
    """Step a driver until so many Offsets are in its log, and return them."""
    fixed: list[Offsets] = []
    for hook in driver.run():
        if (hook.stage, hook.when) == ("FixOffsets", "after"):
            assert driver.offsets is not None
            fixed.append(driver.offsets)
            if len(fixed) == slots:
                break
    return fixed


def test_rows_that_come_while_a_tick_is_waited_for_are_of_its_batch() -> None:
    """SEMANTICS 1.1: a batch has what was there at its time, not at the time at which it was first thought of."""
    world = World(times=[0.0], closed=False, batch_rows=100)
    driver = make_driver(world, Witness(), "a", graph=GRAPH)
    driver.clock = Busy(world)
    first, second = owned(driver, 2)
    assert (first.time, first.ranges["numbers"]["end"]) == (SECOND, {"at": 2})
    assert (second.time, second.ranges["numbers"]["end"]) == (2 * SECOND, {"at": 4})


class Late(ManualClock):
    """Sleep a little longer than asked for, as every machine does, and not for ever."""

    slept = 0

    def sleep_until(self, wall: int) -> None:
        """Move on to a moment behind the tick."""
        self.slept += 1
        assert self.slept < 10, "the tick never comes"
        super().sleep_until(wall + 1_234)


@pytest.mark.parametrize("clock", [ManualClock, Late])
def test_the_first_tick_comes_one_interval_behind_the_start(clock: type[ManualClock]) -> None:
    """SEMANTICS 1.1: the zero time is fixed once, not anew at each look while the first tick is waited for."""
    world = World(times=[0.0, 1.0, 2.0], batch_rows=1)
    driver = make_driver(world, Witness(), "a", graph=GRAPH)
    start = 10**15 + 250_000
    driver.clock, driver.trigger = clock(start), FixedInterval(SECOND)
    assert [offsets.time for offsets in owned(driver, 3)] == [10**15 + n * SECOND for n in (1, 2, 3)]


class SetBack(ManualClock):
    """An hour back at every look, and nobody has the patience to wait for it."""

    def wall(self) -> int:
        """Go back."""
        self.now -= 3_600 * SECOND
        return self.now

    def sleep_until(self, wall: int) -> None:
        """Fail: it would take an hour."""
        raise AssertionError(f"slept until {wall}")


@pytest.mark.fault("F45")
def test_a_clock_that_is_set_back_holds_up_no_job_without_ticks() -> None:
    """Its batch times creep on until the clock has caught up (SEMANTICS 1.1, 1.4)."""
    world = World(times=[0.0, 1.0, 2.0], batch_rows=1)
    driver = make_driver(world, Witness(), "a", graph=GRAPH)
    driver.clock, driver.trigger = SetBack(10**15), AsFastAsPossible()
    first, second, third = (offsets.time for offsets in owned(driver, 3))
    assert (second, third) == (first + 1, first + 2)


DAY = 86_400 * SECOND


class ADayAhead(ManualClock):
    """A day ahead for a moment, and counts what is waited for."""

    waited = 0

    def sleep_until(self, wall: int) -> None:
        """Count."""
        self.waited += max(0, wall - self.now)
        super().sleep_until(wall)


@pytest.mark.fault("F76", "F45")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_was_a_day_ahead_for_one_batch_holds_the_job_up_no_longer_than_a_tick(*, restarted: bool) -> None:
    """Batch times go on by ticks from that batch, in the same driver and in the next one."""
    world = World(times=[float(n) for n in range(9)], batch_rows=1)
    store, clock = Witness(), ADayAhead(10**15)

    def started(name: str) -> Driver:
        driver = make_driver(world, store, name, graph=GRAPH)
        driver.clock, driver.trigger = clock, FixedInterval(SECOND)
        return driver

    driver = started("a")
    times: list[int] = []
    for hook in driver.run():
        if (hook.stage, hook.when) == ("FixOffsets", "after"):
            assert driver.offsets is not None
            times.append(driver.offsets.time)
        if (hook.stage, hook.when) == ("Purge", "after"):
            clock.now += {0: DAY, 1: -DAY}.get(hook.batch, 0)
            if restarted and hook.batch == 1:
                break
    if restarted:
        driver = started("b")
        times += [offsets.time for offsets in owned(driver, 7)]
    assert times[1] - times[0] >= DAY
    assert [after - before for before, after in pairwise(times[1:])] == [SECOND] * 7
    assert clock.waited <= 9 * SECOND


@pytest.mark.fault("F45")
def test_a_clock_that_is_a_little_back_is_waited_for() -> None:
    """Batch times stay those of the wall clock."""
    world, clock = World(times=[0.0, 1.0, 2.0], batch_rows=1), ADayAhead(10**15)
    driver = make_driver(world, Witness(), "a", graph=GRAPH)
    driver.clock, driver.trigger = clock, FixedInterval(SECOND)
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 1):
            clock.now -= 100 * SECOND
    assert (driver.last_time, clock.waited) == (clock.now, 103 * SECOND)


class Prepared(FakeEngine):
    """An engine that notes when its sinks are opened."""

    prepared = 0

    def prepare(self) -> None:
        """Count."""
        self.prepared += 1
        super().prepare()


def test_only_the_owner_of_the_log_opens_the_sinks() -> None:
    """A driver that is refused makes no table, and the one that owns the log makes them once."""

    def refuse(_view: View) -> None:
        raise HolderAlive("somebody else has it", holder="host-b", epoch=1)

    world = World(times=[0.0, 1.0])
    for may, expected in ((refuse, 0), (lambda _view: None, 1)):
        engine = Prepared(world, GRAPH, "a")
        driver = make_driver(world, Witness(), "a", graph=GRAPH, engine=engine, may_take_over=may)
        if expected:
            list(driver.run())
        else:
            with pytest.raises(HolderAlive):
                list(driver.run())
        assert engine.prepared == expected
