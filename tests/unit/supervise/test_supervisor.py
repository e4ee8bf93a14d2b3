"""What a supervisor does around the decision: the record first, then the driver; with a launcher of the tests' own."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_samples import SECOND, SETTINGS
from structlog.testing import capture_logs
from supervisor_samples import HANDLE, Drivers, ask, put, records

from penstock.checkpoint.control_records import Records
from penstock.config.settings import Settings
from penstock.errors import ConfigError, EnvironmentUnfit
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.supervise.commands import Verb
from penstock.supervise.machine import Exit, Life, Seen
from penstock.supervise.stream import DriverSlot, Phase, Stream, Wish
from penstock.supervise.supervisor import Supervisor
from penstock.supervise.versions import Versions
from penstock.time.clock import ManualClock


def test_a_launched_driver_is_written_down(mine: Supervisor, drivers: Drivers) -> None:
    """First the claim, then the driver, then how to find it."""
    ask(mine, Verb.START)
    mine.tick()
    (order,) = drivers.launched
    after = records(mine).newest()
    assert after.driver is not None
    assert (after.phase, after.driver.handle, after.driver.version) == (
        Phase.SUBMITTING,
        HANDLE | {"pid": 1},
        after.version,
    )
    assert (order.stream.generation, order.job) == (after.generation, "j")
    assert (order.code / "jobs" / "j.py").read_text() == "one\n"
    mine.tick()
    assert len(drivers.launched) == 1


@pytest.mark.fault("F10")
def test_a_stop_between_the_look_and_the_claim_prevents_the_launch(
    mine: Supervisor, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is written over what was looked at, or not at all."""
    ask(mine, Verb.START)
    take = Versions.take

    def taken(self: Versions) -> str:
        ask(mine, Verb.STOP, "b")
        return take(self)

    monkeypatch.setattr(Versions, "take", taken)
    mine.tick()
    assert drivers.launched == []
    assert records(mine).newest().driver is None
    mine.tick()
    assert records(mine).newest().phase is Phase.STOPPED


@pytest.mark.fault("F10")
def test_a_driver_that_could_not_be_started_is_a_failure_like_any_other(
    mine: Supervisor, drivers: Drivers, clock: ManualClock
) -> None:
    """And the record says why; what nobody but a person can mend is not tried again."""
    drivers.refuses = OSError("no room for a process")
    ask(mine, Verb.START)
    mine.tick()
    after = records(mine).newest()
    assert (after.phase, after.driver, len(after.failures)) == (Phase.BACKOFF, None, 1)
    assert after.reason == "the driver is gone: it could not be started: no room for a process"
    drivers.refuses = EnvironmentUnfit("no Java")
    clock.now += 10 * SECOND
    mine.tick()
    assert records(mine).newest().phase is Phase.FAILED
    ask(mine, Verb.START, "again")
    drivers.refuses = None
    mine.tick()
    assert len(drivers.launched) == 1


@pytest.mark.fault("F10")
def test_a_launch_that_was_not_written_down_is_found_again(mine: Supervisor, drivers: Drivers) -> None:
    """The supervisor was killed between the launch and the note."""
    slot = DriverSlot(generation=3, at=mine.clock.wall(), host=socket.gethostname(), version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.SUBMITTING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.RUNS, handle=HANDLE)
    mine.tick()
    driver = records(mine).newest().driver
    assert driver is not None
    assert driver.handle == HANDLE
    assert drivers.launched == []


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "somebody else's"])
def test_only_what_we_started_is_ended_and_buried(
    mine: Supervisor, drivers: Drivers, clock: ManualClock, *, foreign: bool
) -> None:
    """What a driver of ours left behind is ended before the next one starts; a terminal of somebody else is not."""
    slot = DriverSlot(generation=3, at=clock.wall(), handle=HANDLE, foreign=foreign)
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    drivers.sees = Seen(Life.RUNS)
    clock.now += 3_600 * SECOND
    mine.tick()
    assert drivers.killed == ([] if foreign else [HANDLE])
    drivers.killed.clear()
    drivers.sees = Seen(Life.GONE, exit=Exit(code=1))
    mine.tick()
    assert drivers.killed == ([] if foreign else [HANDLE])


def test_a_supervisor_without_the_copy_of_the_code_runs_what_is_there_now(
    mine: Supervisor, drivers: Drivers, clock: ManualClock
) -> None:
    """As one on another machine, where checkpoints are on HDFS and copies of code are not."""
    ask(mine, Verb.START)
    mine.tick()
    before = records(mine).newest().version
    shutil.rmtree(mine.root / "_versions")
    drivers.sees = Seen(Life.GONE, exit=Exit(code=75, error="gone"))
    for _ in range(4):
        clock.now += 3_600 * SECOND
        mine.tick()
    first, second = drivers.launched[:2]
    assert first.code.name == second.code.name == before  # of the same code it is the same copy
    assert second.code.is_dir()
    (mine.project / "jobs" / "j.py").write_text("two\n")
    shutil.rmtree(mine.root / "_versions")
    with capture_logs() as events:
        for _ in range(4):
            clock.now += 3_600 * SECOND
            mine.tick()
    assert drivers.launched[-1].code.name == records(mine).newest().version != before
    assert records(mine).newest().stable is None  # of which there is no copy either: a failure would go in circles
    assert "version.not_here" in {event["event"] for event in events}


def test_versions_that_another_stream_runs_are_kept(mine: Supervisor, drivers: Drivers, clock: ManualClock) -> None:
    """However old they are; those that nobody uses go, but for the newest."""
    jobs = mine.project / "jobs" / "j.py"
    for number, job in enumerate(["runs", "stable", *(["j"] * 14)]):
        jobs.write_text(f"{number}\n")
        ask(mine, Verb.RESTART if number > 2 else Verb.START, str(number), job)
        drivers.sees = Seen(Life.GONE, exit=Exit(code=0)) if job == "j" else Seen(Life.RUNS)
        mine.tick()
        clock.now += 3_600 * SECOND
        if job == "stable":
            here = records(mine, job).newest()
            put(mine, here.having(stable=here.version, version=None, driver=None, phase=Phase.STOPPED), job)
        mine.tick()
    kept = {path.name for path in (mine.root / "_versions").iterdir()}
    runs, stable = records(mine, "runs").newest().version, records(mine, "stable").newest().stable
    assert {runs, stable} <= kept
    assert len(kept) < 15


def test_a_stream_whose_record_cannot_be_read_stops_no_other(mine: Supervisor, drivers: Drivers) -> None:
    """Nobody can say which code it runs, so all of it is kept; the others are started."""
    Records(mine.store, "streams", "a").put({"wish": "of a later version"})
    ask(mine, Verb.START)
    with capture_logs() as events:
        mine.tick()
    assert [order.job for order in drivers.launched] == ["j"]
    assert {"supervisor.trouble", "versions.not_pruned"} <= {event["event"] for event in events}


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab0/.é", max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab0/.é", max_size=5), inner, max_size=2),
)
STATUS = ["generation", "holder", "at", "stage", "works", "proved", "waits_since", "state"]


@pytest.mark.slow
@pytest.mark.fault("F77")
@given(body=st.dictionaries(st.sampled_from(STATUS), JUNK | st.fixed_dictionaries({"since": JUNK})), junk=JUNK)
@settings(max_examples=examples(24), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_record_ends_the_supervisor_or_the_care_for_another_stream(
    body: dict[str, object], junk: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Well-formed and senseless: whatever a status, a stream or a lease says, the next stream is started."""
    root, drivers = tmp_path_factory.mktemp("junk"), Drivers()
    (root / "project" / "jobs").mkdir(parents=True)
    made = Supervisor(
        root=root / "root",
        project=root / "project",
        launcher=drivers,
        settings_of=lambda _j, _c: SETTINGS,
        clock=ManualClock(),
    )
    slot = DriverSlot(generation=3, at=5, handle={"pid": junk, "start": junk, "host": socket.gethostname()})
    put(made, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1), "a")
    StatusRecords(made.store, "a").put(json.loads(json.dumps({"generation": 3, **body})))
    Records(made.store, "streams", "b").put(json.loads(json.dumps(body)))
    ask(made, Verb.START, job="c")
    for _ in range(2):
        made.tick()
    assert [order.job for order in drivers.launched if order.job != "b"] == ["c"]


@pytest.mark.fault("F77")
def test_a_status_that_makes_no_sense_is_named_once_and_counts_as_none(mine: Supervisor, drivers: Drivers) -> None:
    """Its number and the key are told; the driver goes on, and its next record counts."""
    slot = DriverSlot(generation=3, at=mine.clock.wall(), handle=HANDLE, version="v")
    put(mine, Stream(wish=Wish.RUN, phase=Phase.RUNNING, first=3, generation=3, driver=slot, launches=1))
    StatusRecords(mine.store, "j").put({"generation": 3, "at": "not a number"})
    with capture_logs() as events:
        mine.tick()
        mine.tick()
    (ignored,) = [event for event in events if event["event"] == "supervisor.record_ignored"]
    assert (ignored["job"], "status record 0 is ignored: at" in ignored["reason"]) == ("j", True)
    assert (drivers.killed, records(mine).newest().phase) == ([], Phase.RUNNING)


def test_a_job_whose_configuration_cannot_be_read_does_not_stop_the_others(mine: Supervisor, drivers: Drivers) -> None:
    """It is told once, and the next one is tended; the job starts when its file can be read again."""
    broken = {"a"}

    def settings_of(job: str, _code: Path | None) -> Settings:
        if job in broken:
            raise ConfigError(f"{job}.toml cannot be read")
        return SETTINGS

    mine.settings_of = settings_of
    for job in ("a", "b"):
        ask(mine, Verb.START, job=job)
    with capture_logs() as events:
        mine.tick()
        mine.tick()
    assert [order.job for order in drivers.launched] == ["b"]
    assert [event["job"] for event in events if event["event"] == "supervisor.trouble"] == ["a"]
    broken.clear()
    mine.tick()
    assert [order.job for order in drivers.launched] == ["b", "a"]
