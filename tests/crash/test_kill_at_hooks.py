"""kill -9 at every hook of the real loop, and between any two writes to HDFS (FAULTS 2).

This module is also the program that is killed: it has no Spark and no Java, and forks a driver for each kill. Log and
metadata, segments and staged files are real ones in a real store; tables are files, with the rules of Delta's. On HDFS
each driver begins without a copy of anything, as one on another machine does.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_engine import SECOND, Shown, Table, Witness, World, ledger_of, make_driver, quick_folder, run_to_end
from hdfs import InsecureClient
from oracle import judge
from test_damage import GRAPH, SegmentEngine

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import folder_at, root_of
from penstock.runtime.driver.loop import Driver, DriverSettings

ROWS = 40
TIMES: list[float] = [i - (6 if i % 9 == 8 else 0) for i in range(ROWS)]
"""Event times in seconds; one row in nine is too late for its window."""
SETTINGS = DriverSettings(keep=4)
AT_A_START = [("TakeOver", when) for when in ("before", "surveyed", "claimed", "after", "done")]
PUBLISHING = [("PublishSinks", when) for when in ("before", *(f"published {s.name}" for s in GRAPH.sinks), "after")]
IN_A_BATCH = [
    *((stage, when) for stage in ("FixOffsets", "Compute", "CommitBatch") for when in ("before", "after")),
    *PUBLISHING,
    *((stage, when) for stage in ("AckSources", "Purge") for when in ("before", "after")),
]
WRITES = 36
"""Requests that change something on HDFS: three for a file, and more files than a start and a batch have."""


@dataclass
class KeptTable(Table):
    """A table in a file, which has a batch whole or not at all."""

    file: Path = Path()

    def publish(self, app: str, batch: int, rows: Sequence[Any], files: Sequence[str] = ()) -> None:
        """Show the rows as a Delta table would."""
        super().publish(app, batch, rows, files)
        temp = self.file.with_suffix(".tmp")
        temp.write_text(json.dumps([self.versions, [[row.app, row.batch, row.row] for row in self.shown]]))
        temp.replace(self.file)


@dataclass
class KeptWorld(World):
    """A world that outlives the process: tables in `tables`, staged files in the checkpoint."""

    tables_in: Path = Path()

    def table(self, sink: str) -> Table:
        """Return the table as it is in its file."""
        if sink not in self.tables:
            made = KeptTable(file=self.tables_in / f"{sink}.json")
            if made.file.exists():
                made.versions, shown = json.loads(made.file.read_text())
                made.shown = [Shown(*row) for row in shown]
            self.tables[sink] = made
        return self.tables[sink]

    def stage(self, sink: str, name: str, rows: Sequence[Any]) -> None:
        """Keep the rows of a staged file."""
        assert self.root is not None
        file = self.root / "staged" / sink / name
        file.parent.make()
        file.create(json.dumps(rows).encode())

    def staged(self, sink: str, name: str) -> list[Any]:
        """Return the rows of a staged file."""
        assert self.root is not None
        rows: list[Any] = json.loads((self.root / "staged" / sink / name).read())
        return rows


def begin(root: CheckpointFolder, tables: Path, name: str) -> Driver:
    """Return a driver over a checkpoint, as the command makes one."""
    world = KeptWorld(root=root, times=TIMES, tables_in=tables)
    store = root.store()
    uuid = open_or_create(store, now=SECOND).uuid
    engine = SegmentEngine(world, GRAPH, name)
    return make_driver(world, store, name, graph=GRAPH, engine=engine, uuid=uuid, settings=SETTINGS)


# --- the program -------------------------------------------------------------------------------
def die_at(driver: Driver, stage: str, when: str, *, in_a_batch: bool) -> None:
    """Run a driver and die at a hook: of its start, or of the first batch that it runs itself."""
    began = False
    for hook in driver.run():
        began = began or (hook.stage, hook.when) in {("FixOffsets", "before"), ("Compute", "before")}
        if (hook.stage, hook.when, began) == (stage, when, in_a_batch):
            os.kill(os.getpid(), signal.SIGKILL)


def die_before_write(number: int) -> None:
    """See to it that this process dies when it has sent so many requests that change something on HDFS."""
    sent, send = itertools.count(), InsecureClient._request

    def counted(client: InsecureClient, method: str, url: str, **named: Any) -> Any:
        if method != "GET" and next(sent) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return send(client, method, url, **named)

    InsecureClient._request = counted


def killed(root: CheckpointFolder, drive: Callable[[], None]) -> None:
    """Do this in a process of its own, which must die, and remove every copy that it has made."""
    child = os.fork()
    if child == 0:
        try:
            drive()
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGKILL, code
    if not isinstance(root, LocalFolder):
        shutil.rmtree(root.here, ignore_errors=True)


def at_hooks(root: CheckpointFolder, tables: Path) -> None:
    """Kill a driver at each hook in turn."""
    strikes = [*((hook, True) for hook in IN_A_BATCH), *((hook, False) for hook in (*AT_A_START, *PUBLISHING))]
    for number, (hook, in_a_batch) in enumerate(strikes):
        killed(root, lambda n=number, h=hook, b=in_a_batch: die_at(begin(root, tables, f"w{n}"), *h, in_a_batch=b))


def between_writes(root: CheckpointFolder, tables: Path) -> None:
    """Kill a driver before each request in turn that changes something on HDFS."""

    def drive(number: int) -> None:
        die_before_write(number)
        run_to_end(begin(root, tables, f"w{number}"))

    for number in range(WRITES):
        killed(root, lambda n=number: drive(n))


KILLS = {"at hooks": at_hooks, "between writes": between_writes}


# --- the tests ---------------------------------------------------------------------------------
def shown(world: World) -> dict[str, list[tuple[int, Any]]]:
    """Return what each table shows, in order, and of which batches."""
    return {sink.name: [(row.batch, row.row) for row in world.table(sink.name).shown] for sink in GRAPH.sinks}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list[tuple[int, Any]]]:
    """Return what the tables show when nobody is killed, which is what they must show at all."""
    store = Witness()
    with quick_folder() as folder:
        world = World(root=folder, times=TIMES)
        run_to_end(make_driver(world, store, "alone", graph=GRAPH, engine=SegmentEngine(world, GRAPH, "alone")))
    assert judge(ledger_of(world, store, GRAPH, finished=True)) == []
    assert all(shown(world).values())
    return shown(world)


@pytest.mark.integration
@pytest.mark.fault("F01", "F04", "F15", "F23")
@pytest.mark.parametrize(
    ("kills", "place"),
    [
        ("at hooks", "on disk"),
        # Between two writes lies each hook, and each of these kills is one that the others do as well.
        pytest.param("at hooks", "on HDFS", marks=pytest.mark.soak),
        pytest.param("between writes", "on HDFS", marks=pytest.mark.sample(seconds=80)),
    ],
    ids=["at hooks on disk", "at hooks on HDFS", "between writes to HDFS"],
)
def test_a_kill_changes_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, undisturbed: dict[str, Any], kills: str, place: str
) -> None:
    """Each row once and in its batch, whoever died where; and of half a write a temporary file at most is left."""
    root = str(tmp_path / "root") if place == "on disk" else request.getfixturevalue("hdfs").url(secrets.token_hex(8))
    folder, tables = root_of(root, cache=str(tmp_path / "cache")) / "windowed", tmp_path / "tables"
    tables.mkdir()
    command = [sys.executable, __file__, kills, folder.address, str(tables)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-4_000:]
    last = begin(folder, tables, "last")
    run_to_end(last)
    assert shown(last.engine.world) == undisturbed
    store = folder.store()
    recovered = recover(Log(store))
    assert recovered.damaged == ()
    assert store.janitor(0, now=time.time() + 60) > 0 or kills == "at hooks"
    assert store.janitor(0, now=time.time() + 60) == 0


if __name__ == "__main__":
    KILLS[sys.argv[1]](folder_at(sys.argv[2]), Path(sys.argv[3]))
