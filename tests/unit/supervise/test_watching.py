"""What a supervisor makes of status records and of drivers that it cannot look at; with a launcher of the tests' own."""

from __future__ import annotations

import socket

import pytest
from policy_samples import POLICY, SECOND
from supervisor_samples import HANDLE, Drivers, put, records

from penstock.runtime.process.heartbeat import StatusRecords
from penstock.supervise.launcher import Handle
from penstock.supervise.machine import Life, Seen
from penstock.supervise.stream import DriverSlot, Phase, Stream, Wish
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import ManualClock


@pytest.mark.fault("F77")
@pytest.mark.parametrize("life", [Life.RUNS, Life.UNKNOWN])
@pytest.mark.parametrize("fresh", [False, True], ids=["seen before", "supervisor just begun"])
@pytest.mark.parametrize("body", [{"generation": 3, "at": "x"}, {}, {"generation": 2, "holder": "old:1:1"}], ids=str)
def test_a_status_that_is_not_of_the_driver_does_not_end_it(
    mine: Supervisor, drivers: Drivers, clock: ManualClock, body: dict[str, object], life: Life, *, fresh: bool
) -> None:
    """Senseless, empty or another's: long after the start the driver's own record, the one before, stays in force."""
    slot = DriverSlot(generation=3, at=clock.wall(), handle=HANDLE, version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(life)
    clock.now += POLICY.start_within + 1
    StatusRecords(mine.store, "j").put({"generation": 3, "at": clock.wall()})
    if not fresh:
        mine.tick()
    StatusRecords(mine.store, "j").put(body)
    mine.tick()
    mine.tick()
    assert (drivers.killed, drivers.launched) == ([], [])
    assert (records(mine).newest().phase, records(mine).newest().driver) == (Phase.RUNNING, slot)


def test_the_status_of_the_driver_before_is_no_sign_of_life(
    mine: Supervisor, drivers: Drivers, clock: ManualClock
) -> None:
    """One that was just started and says nothing is killed after a while, whatever the one before has said."""
    slot = DriverSlot(generation=3, at=clock.wall(), handle=HANDLE, version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.SUBMITTING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.RUNS)
    StatusRecords(mine.store, "j").put({"generation": 2, "at": clock.wall()})
    mine.tick()
    assert (drivers.killed, records(mine).newest().phase) == ([], Phase.SUBMITTING)
    clock.now += POLICY.start_within + 1
    mine.tick()
    assert (drivers.killed, records(mine).newest().phase) == ([HANDLE], Phase.UNHEALTHY)


@pytest.mark.fault("F09")
def test_a_driver_that_holds_its_log_in_another_container_is_looked_for_there(
    mine: Supervisor, drivers: Drivers, clock: ManualClock
) -> None:
    """The name that it holds its log by says in which namespace its number counts, and the launcher is asked so."""
    slot = DriverSlot(generation=3, at=clock.wall(), host=socket.gethostname(), version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.SUBMITTING, first=3, generation=3, driver=slot, launches=1))
    StatusRecords(mine.store, "j").put({"generation": 3, "at": clock.wall(), "holder": "pod:7:1:402"})
    mine.tick()
    driver = records(mine).newest().driver
    assert driver is not None
    assert driver.handle == {"host": "pod", "pid": 7, "start": "1", "namespace": "402"}


@pytest.mark.parametrize(
    ("namespace", "other", "same"),
    [("402", "402", True), ("402", "403", False), ("402", "", True), ("", "402", True)],
    ids=["one container", "two containers", "an older name", "an older handle"],
)
def test_a_foreign_driver_is_told_from_one_of_another_container(
    mine: Supervisor, drivers: Drivers, clock: ManualClock, namespace: str, other: str, *, same: bool
) -> None:
    """Same host name, number and start: the heartbeats of the other are none of it, once it is late."""
    handle: Handle = {"host": "pod", "pid": 7, "start": "1", "namespace": namespace}
    slot = DriverSlot(generation=3, at=clock.wall(), handle=handle, foreign=True)
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.UNKNOWN)
    clock.now += POLICY.start_within + 1
    StatusRecords(mine.store, "j").put({"at": clock.wall(), "holder": f"pod:7:1:{other}"})
    mine.tick()
    assert (records(mine).newest().driver == slot) is same


def test_a_foreign_driver_out_of_sight_that_another_replaced_is_not_watched_on(
    mine: Supervisor, drivers: Drivers, clock: ManualClock
) -> None:
    """Two persons, two other machines: the heartbeats of the second are no signs of life of the first."""
    first: Handle = {"host": "elsewhere", "pid": 7, "start": "1"}
    slot = DriverSlot(generation=3, at=clock.wall(), handle=first, foreign=True)
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.UNKNOWN)
    clock.now += POLICY.start_within + 1
    for holder in ("elsewhere:7:1", "third:8:1"):
        StatusRecords(mine.store, "j").put({"at": clock.wall(), "holder": holder})
        mine.tick()
    assert records(mine).newest().driver is None


def test_a_driver_that_was_not_looked_at_is_not_killed_for_it(
    mine: Supervisor, drivers: Drivers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor stood still for long; the heartbeats of that time were not seen, which is no sign of anything."""
    monkeypatch.setattr(clock, "monotonic", lambda: clock.now / SECOND)
    slot = DriverSlot(generation=3, at=clock.wall(), handle=HANDLE, version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    StatusRecords(mine.store, "j").put({"generation": 3, "at": clock.wall()})
    mine.tick()
    clock.now += 3 * POLICY.deadline
    mine.tick()
    assert (drivers.killed, records(mine).newest().phase) == ([], Phase.RUNNING)


def test_a_stream_leaves_a_machine_that_went_down(
    mine: Supervisor, drivers: Drivers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor that stood by elsewhere sees heartbeats of the driver, and then no more: it starts the next one."""
    monkeypatch.setattr(clock, "monotonic", lambda: clock.now / SECOND)
    slot = DriverSlot(generation=3, at=clock.wall(), host="elsewhere", version="v", handle=HANDLE)
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.UNKNOWN)
    beats = StatusRecords(mine.store, "j")
    for _ in range(5):
        beats.put({"generation": 3, "at": clock.wall(), "holder": "elsewhere:7:1"})
        mine.tick()
        clock.now += 2 * POLICY.silent + 2 * POLICY.deadline  # storage stood still, for this machine as well
        mine.tick()
        clock.now += 2 * SECOND
        mine.tick()
    assert records(mine).newest().driver == slot
    for _ in range(7):  # four seconds of silence were seen before
        clock.now += SECOND
        mine.tick()
    assert (records(mine).newest().phase, records(mine).newest().driver) == (Phase.BACKOFF, None)
    clock.now += POLICY.backoff
    mine.tick()
    (order,) = drivers.launched
    assert order.stream.generation == 4
