"""A job of a project whose checkpoint is on HDFS, run and looked at as people do, and what happens to HDFS meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hdfs_server import HdfsServer
from project_samples import expected_totals, make_project
from shells import PATIENCE, Shell
from waiting import until
from yards import QUICK, Yard

import penstock.state
from penstock.checkpoint.entries import Takeover
from penstock.checkpoint.mirror import root_of
from penstock.supervise.stream import Phase

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def url(tmp_path: Path, hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(tmp_path.name)


def project(folder: Path, url: str, more: str = "", **named: int) -> Path:
    """Make a project with its checkpoints on HDFS, whose copies are kept in it."""
    more += f'\n[checkpoint]\nroot = "{url}"\ncache = "cache"\nevery = "2 batches"\n'
    return make_project(folder, more=more, **named)


def test_a_run_on_hdfs_is_looked_at_gone_back_in_and_found_damaged(tmp_path: Path, hdfs: HdfsServer, url: str) -> None:
    """Nothing but copies is in the project, and on a machine without them all is the same."""
    shell = Shell(project(tmp_path, url, rows=400))
    assert shell.run("run", "orders", "--available-now")[0] == 0
    assert shell.totals() == expected_totals(400)
    assert not (tmp_path / "checkpoints").exists()

    shutil.rmtree(tmp_path / "cache")
    assert shell.json("status", "orders")["state"] == "finished"
    assert [one["trouble"] for one in shell.json("checkpoints", "orders")["checkpoints"]] == [None] * 5
    kept = penstock.state.read(url, "orders", "minutely", at=1)
    assert kept.num_rows > 0
    assert shell.run("save", "orders", "before")[0] == 0
    code, _, err = shell.run("run", "orders", "--available-now", "--from", "batch=1", "--partitions", "2")
    assert code == 0, err
    assert sorted(set(shell.totals())) == expected_totals(400)
    assert shell.run("fsck", url)[0] == 0

    client, place = hdfs.client(), "/" + url.split("/", 3)[3] + "/orders/state/minutely/0"
    segment = f"{place}/{next(name for name in client.list(place) if name.endswith('.arrow'))}"
    with client.read(segment) as file:
        whole = file.read()
    client.write(segment, whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:], overwrite=True)
    code, out, err = shell.run("fsck", url)
    assert (code, segment.rsplit("/", 1)[1] in out) == (78, True), out + err
    assert url in out


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    """Return a stream of that project with a supervisor."""
    root = project(tmp_path, url, QUICK, rows=600)
    found = Yard(root, root_of(url, project=root, cache="cache"))
    yield found
    found.end()


@pytest.mark.fault("F25")
def test_a_stream_whose_hdfs_goes_is_paused_and_goes_on(yard: Yard, hdfs: HdfsServer) -> None:
    """Longer than a driver waits: it ends, no failure is counted, and when HDFS is back a driver starts by itself."""
    yard.supervise()
    yard.json("start", "orders")
    yard.until_commits(3)
    hdfs.kill_namenode()
    try:
        until(lambda: not yard.drivers(), "the driver to give up", seconds=PATIENCE)
    finally:
        hdfs.start_namenode()
        hdfs.wait()
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    assert Phase.PAUSED in [stream.phase for _, stream in yard.records.history()]
    assert yard.stream().failures == ()
    yard.json("limits", "orders", "--rows", "none")
    yard.until(lambda s: s.phase is Phase.FINISHED)
    assert yard.totals() == expected_totals(600)
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2]
