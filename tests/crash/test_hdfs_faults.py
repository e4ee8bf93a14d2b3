"""What befalls an HDFS while a job has its checkpoint there: quotas, permissions, servers that go (FAULTS 4)."""

from __future__ import annotations

import os
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import killed_job
import pytest
import requests
from delta_history import published_batches
from deltalake import DeltaTable
from mounts import SMALL, mounted

from penstock import Job
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CheckpointError, StorageDenied, StorageFull
from penstock.runtime.driver.stages import Hook
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from tools.hdfs_server import SUPERUSER, HdfsServer
from tools.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.sample(seconds=40)]

SCHEMA = "k string, v long"
FILLER = "filler"
ROOM = 16 * 2**20
"""Bytes on a small disk: a NameNode gives a block of 1 MiB to none that has less."""


def sums(order: Path = Path("no-such-order")) -> Job:
    """Return a job of one partition, so that its writes come one after the other, which sums the values of two keys.

    Where there is an order, a file that names a disk, a task carries it out once: it fills the disk.
    """

    def summed(time: Any, key: Any, row: Any, state: Any) -> dict[str, Any]:
        if order.exists():
            disk = Path(order.read_text())
            order.unlink()
            fill(disk)
        state.update(total=state.get_or({"total": 0})["total"] + row["v"])
        return {"k": key, "total": state.get()["total"]}

    job = Job("sums", partitions=1)
    rows = job.source("rows", MemorySource(schema=SCHEMA))
    out = rows.key_by("k").map_with_state(
        "sum", summed, state="total long", output="k string, total long", unbounded=True
    )
    out.write("out", MemorySink())
    return job


@pytest.fixture
def root(tmp_path: Path, hdfs: HdfsServer) -> Iterator[CheckpointFolder]:
    """Return a root on HDFS, which gets its rights and its room back."""
    root_folder = root_of(hdfs.url(secrets.token_hex(8)), cache=str(tmp_path))
    yield root_folder
    hdfs.wait()
    limit(hdfs, root_folder)
    hdfs.client(SUPERUSER).set_permission(place(root_folder), "700")


def place(root: CheckpointFolder) -> str:
    """Return the path on HDFS that a root stands for."""
    return "/checkpoints/" + str(root).rpartition("/")[2]


def limit(hdfs: HdfsServer, root: CheckpointFolder, files: int = -1) -> None:
    """Let so many files and folders be below a root at most, or as many as there is room for."""
    query = {
        "op": "SETQUOTA",
        "namespacequota": files,
        "storagespacequota": 2**63 - 1 if files > 0 else -1,
        "user.name": SUPERUSER,
    }
    requests.put(f"http://{hdfs.address}/webhdfs/v1{place(root)}", params=query, timeout=10).raise_for_status()


def there(hdfs: HdfsServer, root: CheckpointFolder) -> int:
    """Return how many files and folders are below a root, itself among them."""
    summary = hdfs.client(SUPERUSER).content(place(root))
    return int(summary["fileCount"]) + int(summary["directoryCount"])


def totals(h: Harness, n: int) -> dict[str, int]:
    """Run a batch that adds n to two keys, and return what the sink has got of it."""
    return {row["k"]: row["total"] for row in h.batch({"rows": [{"k": "a", "v": n}, {"k": "b", "v": 10 * n}]})["out"]}


@pytest.mark.fault("F27")
def test_a_quota_that_is_met_at_any_write_costs_nothing_but_time(hdfs: HdfsServer, root: CheckpointFolder) -> None:
    """Whichever file does not fit any more: path and quota are named, no row comes out, and the batch is done later."""
    with Harness(sums(), root) as h:
        assert totals(h, 1) == {"a": 1, "b": 10}
    met: list[str] = []
    for room in range(12):
        limit(hdfs, root, there(hdfs, root) + room)
        try:
            with Harness(sums(), root) as h:
                got = totals(h, 1)
        except StorageFull as why:
            met.append(f"{why.where} {why.what}")
        else:
            break
    limit(hdfs, root)
    assert all("quota" in message for message in met)
    for write in ("_probe/", "log/", "/state/sum/0/"):
        assert any(write in message for message in met), met
    # A batch that was fixed when there was no room for the rest of it is done first, and then the one that is asked for.
    with Harness(sums(), root) as h:
        after = totals(h, 1)
    assert after["b"] == 10 * after["a"]
    assert after["a"] == got["a"] + 1
    assert not [path for path in hdfs.client(SUPERUSER).walk(place(root)) if any(".tmp" in name for name in path[2])]


@pytest.mark.fault("F28")
def test_a_right_that_is_taken_away_is_named_and_all_goes_on_when_it_is_back(
    hdfs: HdfsServer, root: CheckpointFolder
) -> None:
    """It needs a person: what is not permitted now will not be in a moment."""
    with Harness(sums(), root) as h:
        totals(h, 1)
    hdfs.client(SUPERUSER).set_owner(f"{place(root)}/sums", owner="somebody")
    try:
        with pytest.raises(StorageDenied, match="not permitted") as raised, Harness(sums(), root):
            pass
        assert raised.value.exit_code == 78
    finally:
        hdfs.client(SUPERUSER).set_owner(f"{place(root)}/sums", owner="penstock")
    with Harness(sums(), root) as h:
        assert totals(h, 1) == {"a": 2, "b": 20}


def restarted(hdfs: HdfsServer, what: str) -> Callable[[], None]:
    """Return a function that kills a server and starts it again."""

    def do() -> None:
        getattr(hdfs, f"kill_{what}")()
        getattr(hdfs, f"start_{what}")()

    return do


@pytest.mark.fault("F25", "F26")
@pytest.mark.parametrize("what", ["namenode", "datanode"])
def test_a_server_that_is_started_again_is_waited_for(hdfs: HdfsServer, root: CheckpointFolder, what: str) -> None:
    """Within a call's patience: the batches beside it take longer, and nothing else comes of it."""
    with Harness(sums(), root) as h:
        assert totals(h, 1) == {"a": 1, "b": 10}
        meanwhile = threading.Thread(target=restarted(hdfs, what))
        meanwhile.start()
        try:
            for n in range(2, 6):
                assert totals(h, 1) == {"a": n, "b": 10 * n}
        finally:
            meanwhile.join()


@pytest.fixture
def stream(tmp_path: Path, hdfs: HdfsServer) -> Iterator[Path]:
    """Return the folder of a stream whose checkpoint is on HDFS, which is not in safe mode in the end."""
    killed_job.make_input(tmp_path)
    (tmp_path / "hdfs").write_text(hdfs.url(secrets.token_hex(8)))
    yield tmp_path
    hdfs.admin("-safemode", "leave")


def refused(hdfs: HdfsServer, what: str) -> int:
    """Return how often a NameNode has refused, for its safe mode, to make a file whose path has this in it."""
    lines = (hdfs.folder / "namenode.log").read_text(errors="replace").splitlines()
    return sum("SafeModeException" in line and what in line for line in lines)


def run_into_safe_mode(hdfs: HdfsServer, stream: Path, spark: Any, met: Mapping[Hook, str]) -> list[list[int]]:
    """Run a stream to its end; at each of these hooks safe mode begins, and ends when such a file was refused.

    Returns what its table had been given when the files were refused.
    """

    def leave(what: str, before: int) -> list[int]:
        until(lambda: refused(hdfs, what) > before, f"{what} to be refused")
        given = published_batches(stream / "raw")
        hdfs.admin("-safemode", "leave")
        return given

    job = f"{place(killed_job.root(stream))}/killed"
    with ThreadPoolExecutor(1) as pool:
        left = []
        for hook in killed_job.hooks(stream, spark):
            if hook in met:
                what = job + met[hook]
                before = refused(hdfs, what)
                hdfs.admin("-safemode", "enter")
                left.append(pool.submit(leave, what, before))
        return [future.result() for future in left]


def windows() -> dict[tuple[str, float], tuple[int, int]]:
    """Return what the stream comes to: rows and the sum of their ids, by user and start of the window."""
    ids: dict[tuple[str, float], list[int]] = defaultdict(list)
    for i in range(killed_job.ROWS):
        second = i - 2.5 if i % 7 == 0 else i
        ids["ab"[i % 2], second // 10 * 10].append(i)
    return {key: (len(numbers), sum(numbers)) for key, numbers in ids.items()}


def is_whole(stream: Path) -> bool:
    """Return whether the tables of a stream have all that it comes to, each batch once."""
    rows = DeltaTable(str(stream / "windows")).to_pyarrow_table().to_pylist()
    windows_shown = {(row["user"], row["window_start"].timestamp()): (row["n"], row["ids"]) for row in rows}
    batches = list(range(killed_job.ROWS // killed_job.A_BATCH))
    return (windows_shown, len(rows), published_batches(stream / "raw")) == (windows(), len(windows()), batches)


@pytest.mark.fault("F25")
def test_safe_mode_is_waited_for_wherever_a_running_stream_meets_it(hdfs: HdfsServer, stream: Path, spark: Any) -> None:
    """By the log, by a task, by the log again, within a call's patience: no row comes out meanwhile, and all after."""
    met = {
        Hook("FixOffsets", "before", 1): "/log/",
        Hook("Compute", "before", 2): "/staged/files/",  # what a task writes first
        Hook("CommitBatch", "before", 2): "/log/",
    }
    assert run_into_safe_mode(hdfs, stream, spark, met) == [[0], [0, 1], [0, 1]]
    assert is_whole(stream)


@pytest.mark.fault("F25")
def test_safe_mode_that_lasts_is_named_and_the_next_driver_goes_on(hdfs: HdfsServer, stream: Path, spark: Any) -> None:
    """With what has a supervisor pause the stream, and nothing of the batch is there."""

    def give_up() -> None:
        for hook in killed_job.hooks(stream, spark):
            if hook == Hook("CommitBatch", "before", 1):
                hdfs.admin("-safemode", "enter")

    hasty = mock.patch.object(killed_job, "root", lambda folder, root=killed_job.root: root(folder).hurried(6.0))
    with hasty, pytest.raises(CheckpointError, match="Name node is in safe mode") as raised:
        give_up()
    assert raised.value.exit_code == 75
    assert published_batches(stream / "raw") == [0]
    hdfs.admin("-safemode", "leave")
    assert run_into_safe_mode(hdfs, stream, spark, {}) == []
    assert is_whole(stream)


@contextmanager
def on_a_small_disk(hdfs: HdfsServer, root: CheckpointFolder) -> Iterator[Path]:
    """Let the DataNode have a disk of its own with little room, and return where others see it; then the old one."""
    hdfs.kill_datanode()
    try:
        held = sum(path.stat().st_size + 4_096 for path in hdfs.blocks.rglob("*"))
        words = mounted(SMALL % (held + ROOM), hdfs.blocks)
        hdfs.start_datanode(*words)
        hdfs.wait()
        yield Path(f"/proc/{hdfs.datanode.pid}/root{hdfs.blocks}")
    finally:
        # Its blocks go with the small disk, and where blocks are missing a NameNode that starts stays in safe mode.
        hdfs.client(SUPERUSER).delete(f"{place(root)}/sums", recursive=True)
        hdfs.kill_datanode()
        hdfs.start_datanode()
        hdfs.wait()


def fill(disk: Path) -> None:
    """Fill a disk to its last byte with a file."""
    with (disk / FILLER).open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4_096)):
            pass
    assert os.statvfs(disk).f_bavail == 0


def room_in(hdfs: HdfsServer) -> int:
    """Return how many bytes a NameNode believes that there is room for."""
    answer = requests.get(f"http://{hdfs.address}/webhdfs/v1/", params={"op": "GETSTATUS"}, timeout=10).json()
    return int(answer["FsStatus"]["remaining"])


@pytest.mark.fault("F27")
def test_a_datanode_whose_disk_is_full_is_named_and_the_batch_is_done_with_room(
    hdfs: HdfsServer, root: CheckpointFolder, tmp_path: Path
) -> None:
    """Before a batch and in its task: the system refuses it bytes while the NameNode knows nothing of it.

    No row comes out, and the driver that comes when there is room again finishes the batch.
    """
    order = tmp_path / "order"
    with on_a_small_disk(hdfs, root) as disk, Harness(sums(order), root) as h:
        assert totals(h, 1) == {"a": 1, "b": 10}
        for n, met, fill_it in (
            (2, "log/0", fill),
            (3, "/(state/sum/0|staged/out)/", lambda disk: order.write_text(str(disk))),
        ):
            before = h.output()
            fill_it(disk)
            with pytest.raises(StorageFull, match=f"no room.*{met}") as raised:
                totals(h, 1)
            assert raised.value.exit_code == 75
            (disk / FILLER).unlink()
            assert h.output() == before
            until(lambda: room_in(hdfs) > ROOM / 2, "the NameNode to be told of the room")
            assert {row["k"]: row["total"] for row in h.restart()["out"]} == {"a": n, "b": 10 * n}
