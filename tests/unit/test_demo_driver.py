"""The demo's driver: its events are followed, and nothing of it outlives the block."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tools.demo_driver import Driver, DriverFailed, members

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
                         stdout=subprocess.PIPE, process_group=0)
child.stdout.readline()
print('{"event": "up"}', flush=True)
time.sleep(60)
"""


def driver_of(code, tmp_path):
    return Driver([sys.executable, "-c", code], cwd=tmp_path, env=os.environ, log=tmp_path / "log")


def test_events_are_the_json_objects_among_the_lines(tmp_path):
    """Words that are no JSON, and JSON that is no object, are passed over."""
    code = """print('warning: ...'); print('{"event": "a"}'); print('[1]'); print('{"event": "b", "batch": 1}')"""
    with driver_of(code, tmp_path) as driver:
        assert list(driver.events()) == [{"event": "a"}, {"event": "b", "batch": 1}]


def test_a_bad_end_is_told_with_the_last_words(tmp_path):
    """The exit code and the end of standard error are in the message."""
    code = "import sys; sys.exit('the sink is full')"
    with driver_of(code, tmp_path) as driver, pytest.raises(DriverFailed, match="exit code 1") as told:
        list(driver.events())
    assert "the sink is full" in str(told.value)


def test_kill_ends_children_in_process_groups_of_their_own(tmp_path):
    """Spark's Python workers leave the driver's process group, but not its session."""
    with driver_of(FAMILY, tmp_path) as driver:
        assert next(driver.events()) == {"event": "up"}
        assert len({os.getpgid(pid) for pid in members(driver.pid)}) == 2
        assert driver.kill() == 2
        assert members(driver.pid) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_nothing_outlives_the_block_whatever_ends_it(tmp_path, error):
    """Ctrl-C and a failure end the whole family, and the signals' handlers are those of before."""
    before = signal.getsignal(signal.SIGINT)
    driver = driver_of(FAMILY, tmp_path)

    def work():
        with driver:
            next(driver.events())
            assert len(members(driver.pid)) == 2
            raise error

    with pytest.raises(error):
        work()
    assert members(driver.pid) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_the_family_of_a_driver_that_died_is_ended_too(tmp_path):
    """With its leader gone, the rest of the session is still found."""
    with driver_of(FAMILY, tmp_path) as driver:
        next(driver.events())
        os.kill(driver.pid, signal.SIGKILL)
        with pytest.raises(DriverFailed, match="exit code -9"):
            list(driver.events())
        assert len(members(driver.pid)) == 1
    assert members(driver.pid) == []
