"""Jobs read the files that appear in a folder: each row once, through crashes, moves and files that change."""

from __future__ import annotations

import json
import random
import secrets
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from folder_files import lines_of
from harness_jobs import plain

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Offsets
from penstock.errors import FileChanged, FileVanished
from penstock.graph.policies import Afterwards, OnUnreadable
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import Files, Json, files
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling
from tools.hdfs_server import HdfsServer

pytestmark = pytest.mark.spark

HOOKS = [
    ("FixOffsets", "after"), ("Compute", "before"), ("Compute", "after"), ("CommitBatch", "after"),
    ("PublishSinks", "after"), ("AckSources", "before"), ("AckSources", "after"),
]  # fmt: skip


def job_of(folder: Path | str, tables: Path, **more: Any) -> Job:
    """Return a job that copies orders into Delta, counts them by user in windows, and keeps what is undecodable."""
    job = Job("orders", partitions=2)
    settings = {"settle": seconds(0), "at_most": files(2), "splits": 2, **more}
    source = Files(folder, format=Json("user string, at timestamp, n int"), with_columns=["_path", "_row"], **settings)
    orders = job.source("orders", source, event_time="at", max_out_of_order=seconds(5))
    orders.write("copy", Delta(tables / "copy"))
    windows = orders.key_by("user").window("by_user", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count(), total=agg.sum("n")).write("sums", MemorySink())
    job.quarantine("orders").select("_reason", "_raw").write("bad", MemorySink())
    return job


def order(user: str, second: float, n: int = 1) -> str:
    return json.dumps({"user": user, "at": f"1970-01-01T00:{second // 60:02.0f}:{second % 60:06.3f}Z", "n": n})


def copied(tables: Path, folder: Path | str) -> list[tuple[str, int]]:
    """Return path below the folder and row of all that is in the table."""
    table = DeltaTable(str(tables / "copy")).to_pyarrow_table()
    paths = (path.removeprefix(f"{folder}/") for path in table["_path"].to_pylist())
    return sorted(zip(paths, table["_row"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "afterwards", [Afterwards.LEAVE, Afterwards.MOVE, pytest.param(Afterwards.DELETE, marks=pytest.mark.soak)]
)
def test_each_row_is_once_in_the_table_through_crashes(tmp_path: Path, afterwards: Afterwards) -> None:
    """Files appear while the job runs, some older than what was read, some with a bad line (crashes at each stage)."""
    folder, rng = tmp_path / "in", random.Random(3)
    folder.mkdir()
    more: dict[str, Any] = {"afterwards": afterwards}
    more |= {"move_to": folder / "_done"} if afterwards is Afterwards.MOVE else {}
    every: set[tuple[str, int]] = set()
    bad = 0
    limit = DriverSettings(limits=lambda: Limits(rows=12))
    with Harness(job_of(folder, tmp_path, **more), tmp_path / "root", settings=limit) as h:
        for turn, (stage, when) in enumerate([*HOOKS, *HOOKS]):
            for n in range(rng.randrange(1, 4)):
                name = f"day={rng.randrange(3)}/{turn}-{n}.json"
                lines = [order(rng.choice("abc"), 10 * turn + i) for i in range(rng.randrange(1, 6))]
                if rng.random() < 0.5:
                    lines[0], bad = '{"user": 5}', bad + 1
                lines_of(folder / name, *lines, at=turn - rng.choice([0, 0, 7]))
                every |= {(name, i + 1) for i, line in enumerate(lines) if line != '{"user": 5}'}
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch()
            h.restart()
        for _ in range(20):
            h.batch()
        sums, quarantined = h.output()["sums"], h.output()["bad"]
        position = h.commit().sources["orders"].position
    assert copied(tmp_path, folder) == sorted(every)
    assert len({(user, start) for user, start, *_ in plain(sums)}) == len(sums), "no window twice"
    assert len(quarantined) == bad
    assert {row["_raw"] for row in quarantined} == {'{"user": 5}'}
    assert all(row["_reason"].startswith(f"{folder}/day=") and ", line 1: " in row["_reason"] for row in quarantined)
    left = [path for path in folder.glob("day=*/*") if path.is_file()]
    done = [path for path in folder.glob("_done/day=*/*") if path.is_file()]
    written = position["files"]
    expected = {Afterwards.LEAVE: (written, 0), Afterwards.MOVE: (0, written), Afterwards.DELETE: (0, 0)}
    assert (len(left), len(done)) == expected[afterwards]


def test_files_and_bytes_of_a_batch_are_limited_while_the_job_runs(tmp_path: Path) -> None:
    """SEMANTICS 8.5: the first batch that uses a limit records it, and says which rule bound it."""
    folder, limits = tmp_path / "in", [Limits()]
    folder.mkdir()
    for n in range(9):
        lines_of(folder / f"{n}.json", *(order("a", n) for _ in range(1 if n else 60)), at=n)
    size = (folder / "8.json").stat().st_size
    job = job_of(folder, tmp_path, at_most=files(4))
    with Harness(job, tmp_path / "root", settings=DriverSettings(limits=lambda: limits[-1])) as h:
        read = []
        for limit in [
            Limits(files=2),
            Limits(files=1),
            Limits(bytes=2 * size + 1),
            Limits(files=9),
            Limits(files=None),
        ]:
            limits.append(limit)
            h.batch(follow=False)
            read.append(h.commit().sources["orders"].position["files"])
        assert read == [2, 3, 5, 9, 9]
        log = h._running().driver.log
        entries = [entry for _, entry in log.entries_back(log.find_tail())][::-1]
        recorded = [entry.limits for entry in entries if isinstance(entry, Offsets)]
        assert recorded[:4] == [
            {"files": 2, "bound": {"orders": "files"}},
            {"files": 1, "bound": {"orders": "files"}},
            {"bytes": 2 * size + 1, "bound": {"orders": "bytes"}},
            {"files": 9},
        ]


def test_a_folder_is_one_partition(tmp_path: Path) -> None:
    """SEMANTICS 2.1: one watermark for all files; a window closes when any has moved it on."""
    folder = tmp_path / "in"
    lines_of(folder / "a", order("x", 1), order("x", 9))
    with Harness(job_of(folder, tmp_path), tmp_path / "root") as h:
        assert h.batch()["sums"] == []
        lines_of(folder / "b", order("y", 16), at=1)
        assert plain(h.batch()["sums"]) == [("x", 0.0, 10.0, 2, 2)]
        assert list(h.commit().sources["orders"].partitions) == ["0"]


@pytest.mark.fault("F39")
@pytest.mark.remedy("PEN-SRC-021")
@pytest.mark.remedy("PEN-SRC-022")
@pytest.mark.parametrize("gone", [False, True])
def test_a_file_of_a_fixed_batch_that_changed_or_vanished(tmp_path: Path, *, gone: bool) -> None:
    """SEMANTICS 9.1: put back, the batch is run; or a restore plans it again, the first one from nothing."""
    folder = tmp_path / "in"
    folder.mkdir()
    error = FileVanished if gone else FileChanged
    with Harness(job_of(folder, tmp_path), tmp_path / "root") as h:
        for name, by_restore in (("0", True), ("b", False), ("c", True)):
            file = lines_of(folder / name, order("x", 2), at=1)
            h.crash_at("Compute", "before")
            with pytest.raises(Crashed):
                h.batch()
            file.unlink()
            if not gone:
                lines_of(file, order("x", 2), order("x", 3), at=5)
            with pytest.raises(error, match=f"{file}"):
                h.restart()
            if by_restore:
                h.restore(empty=name == "0", batch=None if name == "0" else h.commit().batch)
            else:
                lines_of(file, order("x", 2), at=1)
                h.restart()
            h.batch()
    assert copied(tmp_path, folder) == ([("b", 1)] if gone else [("0", 1), ("0", 2), ("b", 1), ("c", 1), ("c", 2)])


@pytest.mark.fault("F40")
def test_an_unreadable_file_is_one_bad_record(tmp_path: Path) -> None:
    """And the job reads on; nothing is skipped in silence."""
    folder = tmp_path / "in"
    lines_of(folder / "a.json.gz", "no gzip")
    lines_of(folder / "b.json", order("x", 2), at=1)
    with Harness(job_of(folder, tmp_path, on_unreadable=OnUnreadable.QUARANTINE), tmp_path / "root") as h:
        (bad,) = h.batch()["bad"]
    assert bad["_raw"] == f"{folder}/a.json.gz"
    assert "unreadable from row 1 on" in bad["_reason"]
    assert copied(tmp_path, folder) == [("b.json", 1)]


@pytest.mark.integration
@pytest.mark.sample(seconds=25)
def test_a_job_reads_a_folder_of_hdfs(hdfs: HdfsServer, tmp_path: Path) -> None:
    """Through two restarts, and what is read is moved there."""
    url, client = hdfs.url(secrets.token_hex(8)), hdfs.client()
    place = "/" + url.split("/", 3)[3]
    more = {"afterwards": Afterwards.MOVE, "move_to": f"{url}/_done"}
    client.write(f"{place}/a", f"{order('x', 1)}\n".encode())
    with Harness(job_of(url, tmp_path, **more), tmp_path / "root") as h:
        h.batch()
        for name, (stage, when) in {"b": ("Compute", "before"), "c": ("AckSources", "before")}.items():
            client.write(f"{place}/{name}", f"{order('x', 1)}\n".encode())
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch()
            h.restart()
        client.write(f"{place}/d", f"{order('x', 1)}\n".encode())
        h.batch()
    assert copied(tmp_path, url) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    assert (client.list(place), sorted(client.list(f"{place}/_done"))) == (["_done"], ["a", "b", "c", "d"])
