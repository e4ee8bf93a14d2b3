"""A receiver's process beside the driver takes commands and tells events by its pipes (F47)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from pushing import Counting
from received_blocks import order_at

from penstock.receivers import local_process
from penstock.receivers.local_process import LocalProcess

pytestmark = pytest.mark.slow


def test_a_process_stores_and_stops(tmp_path: Path) -> None:
    """It has a group of its own, so that Ctrl-C is for the driver; a command after its end is passed over."""
    process = LocalProcess(order_at(tmp_path / "job", Counting(3)))
    assert process.pid is not None
    assert os.getpgid(process.pid) == process.pid
    assert os.getsid(process.pid) == os.getsid(0)
    events = process.events()
    assert [next(events)["event"], next(events)] == ["started", {"event": "stored", "rows": 3}]
    process.command({"rate": 10.0})
    process.command({"stop": True})
    assert [event["event"] for event in events] == ["ended"]
    process.command({"stop": True})
    process.close()


@pytest.mark.fault("F47")
def test_a_process_that_is_killed_says_nothing(tmp_path: Path) -> None:
    """Its events end, and its code is told."""
    process = LocalProcess(order_at(tmp_path / "job", Counting(3)))
    assert next(process.events())["event"] == "started"
    process.kill()
    assert "ended" not in [event["event"] for event in process.events()]
    assert process.close() == "its process ended with -9, and said nothing"


@pytest.mark.fault("F47")
def test_a_process_that_is_stopped_holds_nobody_up(tmp_path: Path) -> None:
    """More commands than its pipe takes do not block who gives them; it reads whole ones later, and ends when asked."""
    process = LocalProcess(order_at(tmp_path / "job", Counting(3)))
    events = process.events()
    assert [next(events)["event"], next(events)["event"]] == ["started", "stored"]
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    for rate in range(1, 10_000):
        process.command({"rate": float(rate)})
    os.kill(process.pid, signal.SIGCONT)
    while True:  # its pipe may still be full
        process.command({"stop": True})
        if select.select([process._process.stdout], [], [], 0.05)[0]:
            break
    assert [event["event"] for event in events] == ["ended"]
    process.close()


@pytest.mark.fault("F47")
def test_half_an_event_of_a_killed_process_is_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long error does not fit into the pipe at once."""

    def opened(**_: object) -> subprocess.Popen[bytes]:
        script = 'printf \'{"event": "started"}\\n{"event": "err\''
        return subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(local_process, "opened", opened)
    process = LocalProcess(order_at(tmp_path / "job", Counting(3)))
    assert [*process.events()] == [{"event": "started"}]
    process.close()
