"""SIGKILL of drivers and receivers, under senders that count what was acknowledged to them (F47).

A sender sends each number once. So a number is in the table once at most, and it is there where it was acknowledged.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import receiving_job
from deltalake import DeltaTable
from pushing import Sender, until
from test_kill import end

from penstock.runtime.process.os_processes import argv_of

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = [("Compute", "before", 0), ("CommitBatch", "after", 3), ("AckSources", "after", 8)]


def started(folder: Path, *kill: object) -> subprocess.Popen[bytes]:
    """Start a driver in a session of its own."""
    command = [sys.executable, receiving_job.__file__, str(folder), *map(str, kill)]
    with (folder / "log.txt").open("a") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def receivers_of(driver: int) -> list[int]:
    """Return the processes of receivers that a driver has started."""
    children = Path(f"/proc/{driver}/task/{driver}/children")
    found = [int(pid) for task in children.parent.parent.iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in found if "penstock.receivers.process" in argv_of(pid)]


@pytest.mark.sample(seconds=100)
@pytest.mark.fault("F01", "F47")
def test_what_was_acknowledged_is_in_the_table_once(tmp_path: Path, spark: object) -> None:
    """Drivers die before a batch is computed, after its Commit and after its end; receivers die under the last one."""
    (tmp_path / "ports").mkdir()
    senders = [Sender(tmp_path / "ports", index) for index in range(receiving_job.RECEIVERS)]
    driver = None
    try:
        for kill in KILLS:
            driver = started(tmp_path, *kill)
            assert driver.wait(200) == -signal.SIGKILL, (tmp_path / "log.txt").read_text()[-4_000:]
            end(driver.pid)
        driver = started(tmp_path)
        for sender in senders:
            sender.until_more(20)
        pids = until(lambda: receivers_of(driver.pid))
        os.kill(pids[0], signal.SIGKILL)
        for sender in senders:
            sender.until_more(100)
            sender.stop()
        acknowledged = {number for sender in senders for number in sender.acknowledged}
        until(lambda: acknowledged <= rows(tmp_path).keys() or driver.poll() is not None)
        (tmp_path / "stop").touch()
        assert driver.wait(200) == 0, (tmp_path / "log.txt").read_text()[-4_000:]
    finally:
        if driver is not None:
            end(driver.pid)
    shown = rows(tmp_path)
    assert set(shown.values()) == {1}
    assert acknowledged <= shown.keys() <= {number for sender in senders for number in sender.sent}


def rows(folder: Path) -> Counter[int]:
    """Return how often the table shows each number."""
    return Counter(DeltaTable(str(folder / "raw")).to_pyarrow_table()["k"].to_pylist())
