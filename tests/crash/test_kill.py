"""kill -9 for real: a driver with its own Java process dies at each point of a batch, and inside its tasks (FAULTS 2).

One checkpoint lives through all of it: the first driver dies in its first batch, the next one in the batch after, and
so on; the last one finishes. The tables are then those of a driver that nobody killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import killed_job
import pyarrow.parquet as pq
import pytest
from delta_history import named_files, published_batches
from deltalake import DeltaTable
from pyarrow.dataset import dataset

from penstock.checkpoint.log.entries import Commit, Offsets, Takeover
from penstock.checkpoint.log.log import Log
from penstock.sinks import Parquet

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = [
    ("FixOffsets", "after", 0),
    ("task", "inside", 1),
    ("Compute", "after", 2),
    ("CommitBatch", "after", 3),
    ("PublishSinks", "published raw", 4),
]


def run(folder: Path, *kill: object) -> int:
    """Run the job in a process group of its own until it kills itself; return once no process of the group is left."""
    command = [sys.executable, killed_job.__file__, str(folder), *map(str, kill)]
    log = folder / "log.txt"
    with log.open("a") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            code = child.wait(timeout=200)
        finally:
            end(child.pid)
    assert code == -signal.SIGKILL, log.read_text()[-4_000:]
    return code


def end(group: int) -> None:
    """End every process of a group: the Java process outlives its killed driver by a moment."""
    for _ in range(600):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        with suppress(ChildProcessError):
            os.waitpid(-group, os.WNOHANG)
        time.sleep(0.05)
    raise AssertionError(f"processes of group {group} do not end")


@pytest.fixture(scope="module")
def kills(request: pytest.FixtureRequest) -> list[tuple[str, str, int]]:
    """Return how drivers die: in `--sample` behind the computation, whose files are then left, and at times one more way.

    Each costs a start of Java. The seed that pytest-randomly gives to `random` draws them, one in every third run.
    """
    if not request.config.getoption("sample"):
        return KILLS
    others = [kill for kill in KILLS if kill[0] != "Compute"]
    drawn = random.sample([*others, *2 * len(others) * [None]], 1)
    return [kill for kill in KILLS if kill[0] == "Compute" or kill in drawn]


@pytest.fixture(scope="module", params=["on disk", pytest.param("on HDFS", marks=pytest.mark.soak)])
def killed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    spark: Any,
    kills: list[tuple[str, str, int]],
) -> Path:
    """Return the folder of a job that was killed again and again, and then run to its end.

    On HDFS each driver begins without a copy of anything, as one on another machine does.
    """
    folder = tmp_path_factory.mktemp("killed")
    killed_job.make_input(folder)
    if request.param == "on HDFS":
        (folder / "hdfs").write_text(request.getfixturevalue("hdfs").url(folder.name))
    for kill in kills:
        assert run(folder, *kill) == -signal.SIGKILL
        shutil.rmtree(folder / "cache", ignore_errors=True)
    assert (folder / "marker").exists() == any(stage == "task" for stage, *_ in kills)
    assert finished(folder, spark)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """Return the folder of a job that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    killed_job.make_input(folder)
    assert finished(folder, spark)
    return folder


def finished(folder: Path, spark: Any) -> bool:
    """Run the job to its end in the session of the tests."""
    return [hook.stage for hook in killed_job.hooks(folder, spark)][-1] == "Release"


def rows(table: Path) -> Counter[tuple[Any, ...]]:
    """Return the rows of a Delta table."""
    return Counter(tuple(row.values()) for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist())


@pytest.mark.fault("F01", "F04", "F54")
@pytest.mark.parametrize("sink", killed_job.SINKS)
def test_the_tables_are_those_of_a_driver_that_nobody_killed(killed: Path, whole: Path, sink: str) -> None:
    """Row by row, each once."""
    assert rows(killed / sink) == rows(whole / sink)
    assert rows(killed / "raw").total() == killed_job.ROWS


@pytest.mark.fault("F01", "F54")
@pytest.mark.parametrize("sink", killed_job.SINKS)
def test_each_batch_stands_in_the_history_once(killed: Path, whole: Path, sink: str) -> None:
    """In order, and the same batches as without a kill: a batch that died was run again with exactly its ranges."""
    assert published_batches(killed / sink) == published_batches(whole / sink)
    assert published_batches(killed / "raw") == list(range(killed_job.ROWS // killed_job.A_BATCH))


@pytest.mark.fault("F01", "F04", "F54")
@pytest.mark.parametrize("folder", ["files", "written"])
def test_a_folder_of_files_has_each_row_once(killed: Path, folder: str) -> None:
    """By a listing as by the manifest, also where drivers died between staging and publishing, or between two sinks."""
    sink = Parquet(killed / folder, partition_by=["user"])
    listed = dataset(killed / folder, format="parquet", partitioning="hive").to_table()["id"].to_pylist()
    named = [(file.batch, id_) for file in sink.files() for id_ in pq.read_table(file.path)["id"].to_pylist()]
    assert Counter(listed) == Counter(range(killed_job.ROWS)) == Counter(id_ for _, id_ in named)
    assert all(batch == id_ // killed_job.A_BATCH for batch, id_ in named)


@pytest.mark.fault("F04")
def test_files_of_dead_runs_are_in_no_table(killed: Path) -> None:
    """The run that died after its tasks had staged everything left files that no Commit names."""
    there = {path.name for path in (killed / "raw").glob("*.parquet")}
    named = named_files(killed / "raw")
    assert named < there
    assert any(name.startswith(f"{2:012d}-") for name in there - named)


@pytest.mark.fault("F01")
def test_the_log_tells_what_happened(killed: Path, kills: list[tuple[str, str, int]]) -> None:
    """A Takeover for each driver; Offsets and a Commit once for each batch, whichever driver wrote them."""
    log = Log((killed_job.root(killed) / "killed").store())
    entries = [entry for _, entry in reversed(list(log.entries_back(log.tail())))]
    assert [entry.epoch for entry in entries if isinstance(entry, Takeover)] == list(range(1, len(kills) + 2))
    batches = [entry.batch for entry in entries if isinstance(entry, Commit)]
    assert batches == [entry.batch for entry in entries if isinstance(entry, Offsets)] == list(range(len(batches)))
    by = {entry.batch: entry.epoch for entry in entries if isinstance(entry, Commit)}
    # A batch has the epoch of the driver that committed it: one more for each that died before.
    committed = ("CommitBatch", "PublishSinks")
    died = [at + (stage in committed) for stage, _, at in kills]
    assert [by[batch] for batch in range(6)] == [1 + sum(at <= batch for at in died) for batch in range(6)]
