"""Processes told apart by number and start, and whole sessions of them ended: real ones, small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from penstock.runtime.process.os_processes import (
    argv_of,
    kill_session,
    leaders,
    process_runs,
    process_start,
    session_members,
)

WAITS = "import time; time.sleep(60)"
LEADER = """
import os, subprocess, sys, time
words = [sys.executable, "-c", "import time; time.sleep(60)"]
print(*[subprocess.Popen(words, process_group=group).pid for group in (0, 0, None)], flush=True)
if "ends" not in sys.argv:
    time.sleep(60)
"""
NEVER = 2**22 + 1
"""More than Linux ever numbers a process by."""


def until(condition, what="it to come"):
    """Wait for it; fails where it never comes."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.01)


@pytest.fixture
def begin():
    """Return how to begin a session; what is left of it in the end is killed."""
    started = []

    def begin(text, *words):
        command = [sys.executable, "-c", text, *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
        return started[-1]

    yield begin
    for child in started:
        for pid in session_members(child.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def family(begin, *words):
    """Begin a session of a leader and three children; return the leader, its start and the children's numbers."""
    leader = begin(LEADER, *words)
    start = process_start(leader.pid)
    return leader, start, [int(pid) for pid in leader.stdout.readline().split()]


# --- one process ----------------------------------------------------------------------------------
def test_a_process_is_named_by_its_number_and_its_start(begin):
    """It runs under that name, and under no other start."""
    child = begin(WAITS)
    start = process_start(child.pid)
    assert start.isdecimal()
    assert process_start(child.pid) == start
    assert process_runs(child.pid, start)
    assert not process_runs(child.pid, str(int(start) - 1))
    assert not process_runs(child.pid, "")


def test_where_no_process_is_none_runs():
    """Not even one whose start is not known."""
    assert process_start(NEVER) == ""
    assert [process_runs(NEVER, start) for start in ("", "1")] == [False, False]


def test_one_that_waits_to_be_asked_after_is_dead(begin):
    """Its number is taken until its parent asks, and its start is still known."""
    child = begin("")
    start = process_start(child.pid)
    until(lambda: not process_runs(child.pid, start), "its end")
    assert process_start(child.pid) == start
    assert session_members(child.pid) == []
    child.wait()
    assert process_start(child.pid) == ""


def test_a_name_with_brackets_and_blanks_is_no_trouble(begin):
    """What Linux tells of a process has its name in the middle, and programs choose theirs."""
    child = begin("open('/proc/self/comm', 'w').write('a) Z (b 1'); print(); import time; time.sleep(60)")
    start = process_start(child.pid)
    child.stdout.readline()
    assert process_start(child.pid) == start
    assert process_runs(child.pid, start)


def test_the_words_of_a_process_are_those_it_was_started_with(begin):
    """Empty ones, blanks and letters of all kinds included."""
    words = ["run", "", "a b", "é\n"]
    child = begin(f"print(); {WAITS}", *words)
    child.stdout.readline()
    assert argv_of(child.pid) == [sys.executable, "-c", f"print(); {WAITS}", *words]


def test_the_words_of_a_process_that_is_not_there_are_none(begin):
    """Nor has one that has ended any."""
    assert argv_of(NEVER) == []
    child = begin("")
    start = process_start(child.pid)
    until(lambda: not process_runs(child.pid, start), "its end")
    assert argv_of(child.pid) == []


# --- a session ------------------------------------------------------------------------------------
def test_a_session_is_all_its_processes_whatever_their_groups(begin):
    """The JVM and Spark's workers have process groups of their own."""
    leader, _, children = family(begin)
    assert sorted(session_members(leader.pid)) == sorted([leader.pid, *children])
    assert len({os.getpgid(pid) for pid in (leader.pid, *children)}) == 3
    assert leader.pid in leaders()
    assert set(children).isdisjoint(leaders())


def test_a_session_is_killed_as_a_whole(begin):
    """And nothing beside it; once more does nothing."""
    leader, start, children = family(begin)
    bystander, its_start, _ = family(begin)
    assert kill_session(leader.pid, start, within=60) == []
    assert session_members(leader.pid) == []
    assert not any(process_runs(pid, process_start(pid)) for pid in children)
    assert leader.wait() == -signal.SIGKILL
    assert kill_session(leader.pid, start, within=60) == []
    assert process_runs(bystander.pid, its_start)
    assert len(session_members(bystander.pid)) == 4


def test_what_outlives_its_leader_is_found_and_ended(begin):
    """A driver that was killed may leave a JVM; whether its parent has asked after it or not."""
    for asked_after in (False, True):
        leader, start, children = family(begin, "ends")
        if asked_after:
            leader.wait()
        until(lambda leader=leader, start=start: not process_runs(leader.pid, start), "its end")
        assert sorted(session_members(leader.pid)) == sorted(children)
        assert kill_session(leader.pid, start, within=60) == []
        assert session_members(leader.pid) == []


def test_a_session_whose_number_is_anothers_by_now_is_let_alone(begin):
    """It was begun at another time."""
    leader, start, children = family(begin)
    assert kill_session(leader.pid, str(int(start) - 1), within=60) == []
    assert sorted(session_members(leader.pid)) == sorted([leader.pid, *children])


def test_children_are_killed_that_ignore_every_other_signal(begin):
    """Nobody is asked to end."""
    leader = begin(
        "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; print(); time.sleep(60)"
    )
    start = process_start(leader.pid)
    leader.stdout.readline()
    assert kill_session(leader.pid, start, within=60) == []
    assert leader.wait() == -signal.SIGKILL


def test_children_that_are_born_meanwhile_are_killed_too(begin):
    """A leader that starts one after another has none left in the end."""
    leader = begin(
        "import subprocess, sys\n"
        "while True:\n"
        "    print(subprocess.Popen(['sleep', '60'], process_group=0, stdout=subprocess.DEVNULL).pid, flush=True)\n"
    )
    start = process_start(leader.pid)
    for _ in range(3):
        leader.stdout.readline()
    assert kill_session(leader.pid, start, within=60) == []
    assert session_members(leader.pid) == []


def test_those_that_cannot_be_ended_in_time_are_told(begin, monkeypatch):
    """The caller must know that they are still there."""
    leader = begin(WAITS)
    start = process_start(leader.pid)
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    assert kill_session(leader.pid, start, within=0) == [leader.pid]
    monkeypatch.setattr(os, "kill", kill)
    assert process_runs(leader.pid, start)
