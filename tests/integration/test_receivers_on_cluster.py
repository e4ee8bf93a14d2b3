"""Receivers on a real standalone cluster are tasks of its executors, which die (DESIGN 11, F10, F47)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import receiving_job
from clusters import Cluster
from deltalake import DeltaTable
from pushing import Sender, until

from penstock.runtime.process.os_processes import argv_of, kill_session, process_start

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """A master and two workers, each of two cores."""
    started = Cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2)
    yield started
    started.end()


class Drivers:
    """Drivers of one job, one after the other, and what is left of all of them."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self._url = cluster.url
        self._started: list[tuple[subprocess.Popen[bytes], str]] = []

    def start(self, *, receivers: int = 2) -> subprocess.Popen[bytes]:
        """Start a driver in a session of its own."""
        paths = [path for path in sys.path if path]
        around = {"SPARK_MASTER": self._url, "RECEIVERS": str(receivers), "PYTHONPATH": os.pathsep.join(paths)}
        with (self.folder / "log.txt").open("a") as output:
            driver = subprocess.Popen(
                [sys.executable, receiving_job.__file__, str(self.folder)],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **around},
            )
        self._started.append((driver, process_start(driver.pid)))
        return driver

    def log(self) -> str:
        """Return the end of what they have said."""
        return (self.folder / "log.txt").read_text()[-4_000:]

    def end(self) -> None:
        """Kill what still runs."""
        for driver, start in self._started:
            kill_session(driver.pid, start, within=20.0)
            driver.wait()

    def rows(self) -> Counter[int]:
        """Return how often the table shows each number."""
        return Counter(DeltaTable(str(self.folder / "raw")).to_pyarrow_table()["k"].to_pylist())


@pytest.fixture
def drivers(tmp_path: Path, cluster: Cluster) -> Iterator[Drivers]:
    """Drivers whose executors are on the cluster; all end with the test."""
    (tmp_path / "ports").mkdir()
    made = Drivers(tmp_path, cluster)
    yield made
    made.end()


def executors_of_receivers() -> dict[int, int]:
    """Return the executor above each process of a receiver."""
    above: dict[int, int] = {}
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        if "penstock.receivers.process" in argv_of(pid):
            above[pid] = executor_above(pid)
    return {pid: executor for pid, executor in above.items() if executor}


def executor_above(pid: int) -> int:
    """Return the executor that has started a process, 0 for none."""
    while pid > 1 and not any("CoarseGrainedExecutorBackend" in word for word in argv_of(pid)):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return 0
    return pid if pid > 1 else 0


@pytest.mark.sample(seconds=140)
@pytest.mark.fault("F01", "F10", "F47")
def test_receivers_run_on_executors_and_outlive_them(drivers: Drivers) -> None:
    """Two executors have one each; an executor and a driver are killed, and what was acknowledged is there once."""
    senders = [Sender(drivers.folder / "ports", index) for index in range(2)]
    driver = drivers.start()
    try:
        for sender in senders:
            sender.until_more(20)
        before = executors_of_receivers()
        assert len(set(before.values())) == len(before) == 2
        os.kill(next(iter(before.values())), signal.SIGKILL)
        for sender in senders:
            sender.until_more(20)
        after = until(lambda: len(now := executors_of_receivers()) == 2 and now)
        assert len(before.keys() & after.keys()) == 1
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        until(lambda: not after.keys() & executors_of_receivers().keys())
        driver = drivers.start()
        for sender in senders:
            sender.until_more(20)
            sender.stop()
        acknowledged = {number for sender in senders for number in sender.acknowledged}
        until(lambda: acknowledged <= drivers.rows().keys() or driver.poll() is not None)
        (drivers.folder / "stop").touch()
        assert driver.wait(200) == 0, drivers.log()
    except AssertionError as why:
        why.add_note(drivers.log())
        raise
    shown = drivers.rows()
    assert set(shown.values()) == {1}
    assert acknowledged <= shown.keys() <= {number for sender in senders for number in sender.sent}
    assert until(lambda: not executors_of_receivers())


@pytest.mark.sample(seconds=60)
def test_receivers_that_would_take_every_core_are_refused_there(drivers: Drivers) -> None:
    """Four of four cores: before the log has an owner, and with the number of both."""
    assert drivers.start(receivers=4).wait(200) != 0
    assert "receivers take 4 cores, and the executors have 4" in drivers.log()
    assert not list(drivers.folder.glob("root/received/log/*"))
