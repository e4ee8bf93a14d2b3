"""A project with supervisors, and the streams that they run, for tests that disturb them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from cli_runner import PATIENCE, Shell
from project_samples import expected_totals

from penstock.checkpoint.log.entries import Commit, Entry
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.runtime.process.os_processes import argv_of, kill_session, leaders
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Stream

QUICK = """
[run]
trigger = "interval 1 seconds"

[supervise]
backoff = "1 seconds"
healthy_after = "1 seconds"
failures_per_hour = 2

[limits]
rows = 4
"""
"""Streams that live long: a supervisor that waits for little, and drivers that leave a core to the tests beside them.

At three batches a second each took most of a core for as long as its test lasted, and tests wait for few batches.
"""


class Yard(Shell):
    """A project with supervisors, and the streams that they run; who waits looks every so many seconds."""

    def __init__(self, root: Path, checkpoints: CheckpointFolder | None = None, *, every: float = 0.1) -> None:
        super().__init__(root)
        self._every = every
        self.checkpoints = checkpoints or LocalFolder(root / "checkpoints")
        self.records = StreamRecords(self.checkpoints.store(), "orders")
        self._seen: dict[int, Entry] = {}

    def supervise(self) -> subprocess.Popen[str]:
        """Start a supervisor."""
        return self.start("supervise", "--json", stdout=subprocess.DEVNULL)

    def stream(self) -> Stream:
        """Return the stream as it stands."""
        return self.records.newest()

    def pid(self) -> int:
        """Return the process of the driver that the record names."""
        driver = self.stream().driver
        assert driver is not None
        assert driver.handle is not None
        return int(str(driver.handle["pid"]))

    def until(self, what: Callable[[Stream], bool]) -> Stream:
        """Wait until the stream is so."""
        ends = time.monotonic() + PATIENCE
        while not what(stream := self.stream()):
            assert time.monotonic() < ends, f"the stream is still {stream!r}"
            time.sleep(self._every)
        return stream

    def entries(self, kind: type) -> list:
        """Return the entries of one kind in the stream's log; each is read once, for who waits asks again and again."""
        log = job_log(self.checkpoints / "orders")
        slots = range(log.find_tail() + 1) if log is not None else ()
        for slot in slots:
            if slot not in self._seen:
                self._seen[slot] = log.read(slot)
        return [entry for slot in slots if isinstance(entry := self._seen[slot], kind)]

    def commits(self) -> int:
        """Return how many batches are committed."""
        return len(self.entries(Commit))

    def until_commits(self, count: int) -> None:
        """Wait until so many batches are committed."""
        self.until(lambda _: self.commits() >= count)

    def drivers(self) -> list[int]:
        """Return the drivers of the stream that run, whatever the records say."""
        ours = str(self.checkpoints)
        words = {pid: argv_of(pid) for pid in leaders()}
        return [pid for pid, argv in words.items() if "run" in argv and any(word.startswith(ours) for word in argv)]

    def undisturbed(self) -> None:
        """See that one driver runs, and that the table shows the beginning of what it would have shown in peace."""
        assert self.drivers() == [self.pid()]
        shown = self.totals() if (self.root / "tables" / "totals").is_dir() else []
        assert len(shown) == len(set(shown))
        assert set(shown) <= set(expected_totals())

    def end(self) -> None:
        """Kill supervisors first, then every driver that a record names."""
        super().end()
        for _, stream in self.records.history():
            if stream.driver is not None and stream.driver.handle is not None and not stream.driver.foreign:
                handle = stream.driver.handle
                kill_session(int(str(handle["pid"])), str(handle["start"]), within=20.0)
