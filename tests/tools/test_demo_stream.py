"""The demo's stream: its events are followed from driver to driver, and nothing of it outlives the block."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from penstock.checkpoint.storage.local import LocalStore
from penstock.runtime.process.os_processes import process_start, session_members
from penstock.supervise.launchers.local import log_files
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import DriverSlot, Phase, Wish
from penstock.supervise.watching import logs_of
from tools import demo_stream
from tools.demo_stream import DemoFailed, DemoStream
from tools.waiting import until

RUNS = {"wish": Wish.RUN, "phase": Phase.RUNNING, "first": 1, "generation": 1}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    logs_of(folder, "flights").mkdir(parents=True)
    folder.chmod(0o700)
    return folder


@pytest.fixture
def stream(tmp_path, root):
    """Return the stream, not supervised."""
    return DemoStream("flights", root=root, project=tmp_path, env=os.environ, log=tmp_path / "supervisor.log")


@pytest.fixture
def script(monkeypatch):
    """Let each of some steps be what happens while the stream sleeps, and each sleep take its seconds."""
    steps, now = [], [0.0]

    def sleep(seconds):
        now[0] += seconds
        if steps:
            steps.pop(0)()

    monkeypatch.setattr(demo_stream, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return steps


def become(root, **changes):
    """Write the stream's next record."""
    StreamRecords(LocalStore(root), "flights").update(lambda stream: (stream.model_copy(update=changes), None))


def say(root, text, generation=1):
    """Let the driver of a generation write to its events."""
    with log_files(logs_of(root, "flights"), generation)[0].open("a", encoding="utf-8") as file:
        file.write(text)


def line(number):
    return json.dumps({"n": number}) + "\n"


def numbers(stream):
    return [event["n"] for event in stream.events()]


# --- following ------------------------------------------------------------------------------------
def test_events_are_yielded_until_the_stream_is_finished(stream, root, script):
    """Those too that were written just before its end."""
    become(root, **RUNS)
    say(root, line(1))

    def finish():
        say(root, line(3))
        become(root, phase=Phase.FINISHED)

    script[:] = [lambda: None, lambda: say(root, line(2)), finish]
    assert numbers(stream) == [1, 2, 3]


def test_a_line_is_an_event_when_it_is_whole(stream, root, script):
    """Half of it may be read while the driver writes, a character's half too."""
    become(root, **RUNS)
    text = json.dumps({"n": "é"}, ensure_ascii=False) + "\n"
    events, _ = log_files(logs_of(root, "flights"), 1)

    def write(data):
        with events.open("ab") as file:
            file.write(data)

    data_written = text.encode() * 2
    script[:] = [lambda at=at: write(data_written[at : at + 1]) for at in range(len(data_written))]
    script.append(lambda: become(root, phase=Phase.FINISHED))
    assert numbers(stream) == ["é", "é"]


def test_events_go_on_with_the_next_driver(stream, root, script):
    """What a killed one left half written is no event, and the next one's are read from their beginning."""
    become(root, **RUNS)
    say(root, line(1) + line(2) + '{"n": ')

    def second():
        say(root, line(3) + '{"n": 4', generation=2)

    script[:] = [
        lambda: become(root, phase=Phase.BACKOFF),
        lambda: become(root, phase=Phase.SUBMITTING, generation=2),
        second,
        lambda: say(root, "4}\n", generation=2),
        lambda: become(root, phase=Phase.FINISHED),
    ]
    assert numbers(stream) == [1, 2, 3, 44]


def test_what_is_no_event_is_passed_over(stream, root, script):
    """Java and others write where they like."""
    become(root, **RUNS)
    say(root, 'WARN: x\n\n[1]\n"n"\n' + line(1) + "\n")
    script[:] = [lambda: become(root, phase=Phase.FINISHED)]
    assert numbers(stream) == [1]


def test_a_stream_that_was_never_begun_is_not_finished(stream, root, script):
    """STOPPED is how it stands before the start is asked for."""
    script[:] = [lambda: become(root, **RUNS), lambda: say(root, line(1)), lambda: become(root, phase=Phase.FINISHED)]
    assert numbers(stream) == [1]


def test_a_driver_that_begins_and_finishes_between_two_looks_is_heard(stream, root, script):
    """Whoever takes the events may take its time."""
    become(root, **RUNS)
    say(root, line(1))

    def all_of_it():
        become(root, generation=2)
        say(root, line(2), generation=2)
        become(root, phase=Phase.FINISHED)

    script[:] = [all_of_it]
    assert numbers(stream) == [1, 2]


def test_no_driver_is_passed_over(stream, root, script):
    """Also one that began and died between two looks; one that never said anything has no file."""
    become(root, **RUNS)
    say(root, line(1))

    def two_of_them():
        say(root, line(2), generation=2)
        become(root, generation=4)
        say(root, line(4), generation=4)

    script[:] = [two_of_them, lambda: None, lambda: None, lambda: become(root, phase=Phase.FINISHED)]
    assert numbers(stream) == [1, 2, 4]


def test_a_stream_that_fails_is_told_with_the_drivers_last_words(stream, root, script):
    """The events before it are yielded, and of the complaints the last fifteen lines are in the text."""
    become(root, **RUNS)
    _, errors = log_files(logs_of(root, "flights"), 1)
    errors.write_text("".join(f"complaint {number}.\n" for number in range(20)), "utf-8")
    say(root, line(1))
    script[:] = [lambda: become(root, phase=Phase.FAILED, reason="the driver ended with 78")]
    seen = []
    with pytest.raises(DemoFailed) as failure:
        seen.extend(stream.events())
    text = str(failure.value)
    assert text.startswith("the stream failed: the driver ended with 78\nthe last lines of 000001.log:\n")
    assert [f"complaint {number}." in text for number in (4, 5, 19)] == [False, True, True]
    assert seen == [{"n": 1}]


@pytest.mark.sample(seconds=12)
@pytest.mark.slow
def test_a_stream_that_says_nothing_is_given_up(stream, root, script, tmp_path):
    """With what the supervisor said, where no driver was started; an event begins the wait anew."""
    (tmp_path / "supervisor.log").write_text("supervisor.trouble\n", "utf-8")
    become(root, **RUNS)
    script[:] = [lambda: None] * 4_000 + [lambda: say(root, line(1))]
    seen = []
    with pytest.raises(DemoFailed, match=r"(?s)has said nothing for 240 s.*supervisor\.log.*supervisor\.trouble"):
        seen.extend(stream.events())
    assert seen == [{"n": 1}]
    assert demo_stream.time.monotonic() > 200 + 240


# --- looking ---------------------------------------------------------------------------------------
def test_a_phase_is_waited_for(stream, root, script):
    """But no longer than one wants to."""
    become(root, **RUNS)
    script[:] = [lambda: None, lambda: become(root, phase=Phase.PAUSED)]
    assert stream.reaches(Phase.PAUSED, within=1)
    assert not stream.reaches(Phase.FINISHED, within=1)


def test_failures_are_counted_that_were_forgotten_since(stream, root):
    """A healthy driver ends the count of the supervisor, and not that of the demo."""
    become(root, **RUNS)
    assert stream.failures() == 0
    become(root, failures=(1, 2))
    become(root, failures=())
    assert stream.failures() == 2


# --- asking ---------------------------------------------------------------------------------------
def words(text):
    """Return words that run a small program instead of penstock."""
    return lambda *more: [sys.executable, "-c", text, *more]


def test_a_command_that_is_refused_is_told(stream, monkeypatch):
    """With what it was, its exit code and what it said; one that is not refused says nothing."""
    monkeypatch.setattr(
        stream, "_words", words("import sys; sys.exit('no ' + sys.argv[2] if sys.argv[1] == 'stop' else 0)")
    )
    stream.ask("start", "flights")
    with pytest.raises(DemoFailed, match="penstock stop flights ended with 1\nno flights"):
        stream.ask("stop", "flights")


# --- ending ---------------------------------------------------------------------------------------
SUPERVISOR = """
import json, subprocess, sys, time
words = [sys.executable, "-c", "import time; time.sleep(60)"]
driver = [sys.executable, "-c", sys.argv[1], "-m", "penstock", "run", "flights", "--generation", "1", *sys.argv[2:]]
helper = subprocess.Popen(words, process_group=0)
driver = subprocess.Popen(driver, start_new_session=True, stdout=subprocess.PIPE, text=True)
child = int(driver.stdout.readline())
print(json.dumps({"helper": helper.pid, "driver": driver.pid, "child": child}), flush=True)
time.sleep(60)
"""
DRIVER = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def supervised(stream, monkeypatch, tmp_path, root):
    """Let `penstock supervise` be a small program with a child, and a driver with one; end what is left of them."""
    monkeypatch.setattr(
        stream,
        "_words",
        lambda *_: [sys.executable, "-c", SUPERVISOR, DRIVER, "--code", str(root / "_versions" / "a1")],
    )
    log, seen = tmp_path / "supervisor.log", {}

    def started():
        until(lambda: log.is_file() and log.read_text("utf-8").endswith("\n"), "the driver")
        seen.update(json.loads(log.read_text("utf-8")), supervisor=stream._supervisor.pid)
        assert len(session_members(seen["supervisor"])) == 2
        assert len(session_members(seen["driver"])) == 2
        return seen

    yield started
    for session in (stream._supervisor.pid, seen.get("driver")):
        for pid in session_members(session) if session else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def left(seen):
    return [pid for name in ("supervisor", "driver") for pid in session_members(seen[name])]


def slot(pid, **more):
    fields = {"handle": {"host": socket.gethostname(), "pid": pid, "start": process_start(pid)}}
    return DriverSlot(generation=1, at=0, host=socket.gethostname(), **fields | more)


class Interrupted(BaseException):
    """What nothing catches."""


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, Interrupted, SystemExit])
def test_nothing_outlives_the_block_whatever_ends_it(stream, supervised, root, error):
    """The supervisor, the driver and the children of both, in process groups of their own."""

    def block():
        with stream as entered:
            assert entered is stream
            seen = supervised()
            become(root, **RUNS, driver=slot(seen["driver"]))
            if error is not None:
                raise error

    if error is None:
        block()
    else:
        with pytest.raises(error):
            block()
    assert (
        left({name: stream._supervisor.pid if name == "supervisor" else pid for name, pid in seen_of(stream).items()})
        == []
    )
    assert stream._supervisor.returncode == -signal.SIGKILL


def seen_of(stream):
    return json.loads(stream._log.read_text("utf-8")) | {"supervisor": 0}


def test_a_driver_of_an_earlier_record_is_ended_too(stream, supervised, root):
    """It was being ended when the block was left."""
    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"]))
        become(root, driver=None, phase=Phase.BACKOFF)
    assert left(seen) == []


def test_a_driver_whose_handle_was_not_recorded_yet_is_ended_too(stream, supervised, root):
    """The supervisor was ended between the start of a driver and the record of it."""
    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"], handle=None))
    assert left(seen) == []


def test_a_driver_that_somebody_else_started_is_let_alone(stream, supervised, root):
    """It is not the demo's."""
    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"], foreign=True))
    assert sorted(left(seen)) == sorted([seen["driver"], seen["child"]])


def test_a_supervisor_that_died_by_itself_leaves_nothing_either(stream, supervised, root):
    """Its child and the driver went on without it."""
    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"]))
        os.kill(seen["supervisor"], signal.SIGKILL)
    assert left(seen) == []


def test_a_stream_of_which_nothing_was_written_is_ended_all_the_same(tmp_path, monkeypatch):
    """There is no control root yet."""
    stream = DemoStream("flights", root=tmp_path / "none", project=tmp_path, env=os.environ, log=tmp_path / "log")
    monkeypatch.setattr(stream, "_words", words("import time; time.sleep(60)"))
    with stream:
        pid = stream._supervisor.pid
    assert session_members(pid) == []
    assert not (tmp_path / "none").exists()


def test_a_second_interrupt_does_not_leave_half_of_it(stream, supervised, root, monkeypatch):
    """While it ends everything it hears no signal; afterwards signals are what they were."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    kill_session = demo_stream.kill_session

    def interrupted(*words, **more):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        return kill_session(*words, **more)

    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"]))
        monkeypatch.setattr(demo_stream, "kill_session", interrupted)
    assert left(seen) == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_killing_the_driver_ends_all_its_processes_and_counts_them(stream, supervised, root):
    """The supervisor goes on; where no driver runs there are none."""
    become(root, **RUNS)
    assert stream.kill_driver() == 0
    with stream:
        seen = supervised()
        become(root, driver=slot(seen["driver"]))
        assert stream.kill_driver() == 2
        assert session_members(seen["driver"]) == []
        assert len(session_members(seen["supervisor"])) == 2


def test_a_driver_that_cannot_be_killed_is_told(stream, supervised, root, monkeypatch):
    """The demo shows nothing that did not happen."""
    with stream:
        seen = supervised()
        become(root, **RUNS, driver=slot(seen["driver"]))
        with monkeypatch.context() as patched:
            patched.setattr(demo_stream, "kill_session", lambda *words, **more: [seen["driver"]])
            with pytest.raises(DemoFailed, match=rf"\[{seen['driver']}\] of the driver are still there"):
                stream.kill_driver()


def test_of_a_driver_that_is_not_found_yet_none_are_counted(stream, root, monkeypatch):
    """Its handle is not recorded: nothing is killed, whatever else there is in our own session."""
    become(root, **RUNS, driver=slot(1, handle=None))
    monkeypatch.setattr(demo_stream, "session_members", lambda session: [1, 2, 3])
    assert stream.kill_driver() == 0
