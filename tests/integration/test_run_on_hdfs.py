"""A job of a project whose checkpoint is on HDFS, run and looked at as people do, and what happens to HDFS meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import PATIENCE, Shell
from clusters import Cluster
from mounts import APART, mounted
from project_samples import JOB, expected_totals, make_project
from supervised_project import QUICK, Yard

import penstock.state
from penstock.checkpoint.log.entries import Takeover
from penstock.checkpoint.storage.locate import root_of
from penstock.supervise.stream import Phase
from tools.hdfs_server import HdfsServer
from tools.spark_cluster import QUICK_JAVA
from tools.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def url(tmp_path: Path, hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(tmp_path.name)


def project(folder: Path, url: str, more: str = "", *, every: str = "2 batches", **named: Any) -> Path:
    """Make a project with its checkpoints on HDFS, whose copies are kept in it; data checkpoints come `every` so often.

    They are made where the driver is, and tasks elsewhere fetch what becomes of them.
    """
    more += f'\n[checkpoint]\nroot = "{url}"\ncache = "machine/cache"\nevery = "{every}"\n'
    return make_project(folder, more=more, **named)


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    """Return a stream of that project with a supervisor."""
    root = project(tmp_path, url, QUICK, rows=400)
    # A look is some calls of HDFS: ten a second would cost as much as the driver.
    begun = Yard(root, root_of(url, project=root, cache="machine/cache"), every=1.0)
    yield begun
    begun.end()


@pytest.mark.sample(seconds=180)
def test_a_stream_on_hdfs_does_what_is_there_is_looked_at_gone_back_in_and_found_damaged(
    yard: Yard, hdfs: HdfsServer, url: str
) -> None:
    """Nothing but copies is in the project, and on a machine without them all is the same."""
    does_what_is_there_and_ends(yard)
    assert not (yard.root / "checkpoints" / "orders").exists()

    shutil.rmtree(yard.root / "machine")
    assert yard.json("status", "orders")["state"] == "finished"
    assert {checkpoint["trouble"] for checkpoint in yard.json("checkpoints", "orders")["checkpoints"]} == {None}
    kept = penstock.state.read(url, "orders", "minutely", at=1)
    assert kept.num_rows > 0
    assert yard.run("save", "orders", "before")[0] == 0
    code, _, err = yard.run("run", "orders", "--available-now", "--from", "batch=1", "--partitions", "2")
    assert code == 0, err
    assert sorted(set(yard.totals())) == expected_totals(400)
    assert yard.run("fsck", url)[0] == 0

    client, place = hdfs.client(), "/" + url.split("/", 3)[3] + "/orders/state/minutely/0"
    segment = f"{place}/{next(name for name in client.list(place) if name.endswith('.arrow'))}"
    with client.read(segment) as file:
        whole = file.read()
    client.write(segment, whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:], overwrite=True)
    code, out, err = yard.run("fsck", url)
    assert (code, segment.rsplit("/", 1)[1] in out) == (78, True), out + err
    assert url in out


def does_what_is_there_and_ends(yard: Yard) -> None:
    """See a run close nothing early, and one that finds nothing change nothing (SEMANTICS 1.5)."""
    toml = yard.root / "conf" / "jobs" / "orders.toml"
    text = toml.read_text().replace("rows = 4", "rows = 200")
    toml.write_text(text.replace('order_by = "t"', 'order_by = "t"\non_end = "keep_open"'))
    supervisor = yard.supervise()
    yard.json("start", "orders", "--available-now", "--command", "schedule/monday")
    monday = yard.until(lambda s: s.phase is Phase.FINISHED)
    shown, commits = yard.totals(), yard.commits()
    windows = sorted({window for _, window, *_ in expected_totals(400)})
    closed = {window for _, window, *_ in shown}
    assert set(shown) <= set(expected_totals(400))
    assert closed == set(windows[: len(closed)])
    assert 0 < len(closed) < len(windows)
    yard.json("start", "orders", "--available-now", "--command", "schedule/tuesday")
    tuesday = yard.until(lambda s: s.phase is Phase.FINISHED and s.generation > monday.generation)
    assert (tuesday.launches, tuesday.failures) == (1, ())
    assert (yard.totals(), yard.commits()) == (shown, commits)
    assert [t.command for t in yard.entries(Takeover)] == ["schedule/monday", "schedule/tuesday"]
    supervisor.terminate()
    assert supervisor.wait(PATIENCE) == 0
    toml.write_text(text)


# An outage of minutes. Each day test_hdfs_faults has safe mode that lasts, and servers that are started again, meet a
# stream in this process; that a driver which storage has ended is paused and started again, test_machine says.
@pytest.mark.soak
@pytest.mark.fault("F25")
def test_a_stream_whose_hdfs_is_in_safe_mode_and_goes_is_paused_and_goes_on(yard: Yard, hdfs: HdfsServer) -> None:
    """Longer than a driver waits: it ends, no failure is counted, and when HDFS is back a driver starts by itself.

    Safe mode ends with a NameNode that dies and is started again, under the supervisor whose records are there too.
    """
    yard.supervise()
    yard.json("start", "orders")
    yard.until_commits(3)
    hdfs.admin("-safemode", "enter")
    try:
        until(lambda: not yard.drivers(), "the driver to give up", seconds=PATIENCE)
    finally:
        hdfs.kill_namenode()
        hdfs.start_namenode()
        hdfs.wait()
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    [paused] = [stream for _, stream in yard.records.history() if stream.phase is Phase.PAUSED]
    assert "safe mode" in (paused.reason or "")
    assert yard.stream().failures == ()
    yard.json("limits", "orders", "--rows", "none")
    yard.until(lambda s: s.phase is Phase.FINISHED)
    assert yard.totals() == expected_totals(400)
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2]


def on_cluster(cluster: Cluster) -> str:
    """Return the settings of a project whose jobs run on a cluster."""
    master = f'\n[spark]\nmaster = "{cluster.url}"\n[spark.conf]\nspark.executor.memory = "512m"\n'
    return master + f"spark.executor.extraJavaOptions = '{QUICK_JAVA}'\n"


def fetched(shell: Shell, *words: str) -> list[int]:
    """Run the job, and return how many bytes of state each batch had to bring from HDFS."""
    code, out, err = shell.run("run", "orders", "--json", *words, java=True)
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    return [event["fetched_bytes"] for event in events if event["event"] == "batch.committed"]


TOLD_IN_FILES = JOB.replace(
    "def build(conf):",
    """def build(conf):
    from penstock.runtime.tasks import batch_context

    batch_context._MOST_TOLD = 0""",
)
"""The driver tells tasks of their state in a file from the first reference on, as it does where there are many."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers, each with a folder of its own at `project/machine`."""
    (tmp_path / "cluster").mkdir()
    apart = mounted(APART, tmp_path / "project" / "machine")
    started = Cluster(tmp_path / "cluster", workers=2, cores=1, before=apart)
    yield started
    started.end()


@pytest.mark.sample(seconds=120)
def test_a_partition_stays_on_its_machine_and_one_that_comes_to_another_finds_its_state(
    tmp_path: Path, hdfs: HdfsServer, url: str, machines: Cluster
) -> None:
    """Of two machines that share nothing but HDFS, neither fetches what the other wrote, unless too busy for its own.

    Left to chance, one batch in two would have its partitions the other way round. What an executor has not written
    itself it fetches, and that is told. Both fetch the file that tells a task of the state of its own partition.
    """
    settings = on_cluster(machines) + "[limits]\nrows = 10\n"
    shell = Shell(project(tmp_path / "project", url, settings, every="never", rows=240, job=TOLD_IN_FILES))
    took = fetched(shell, "--available-now")
    assert len(took) >= 24
    assert sum(size > 0 for size in took) <= 6, took
    copies = [own / "cache" for own in (tmp_path / "project").glob("machine.*")]
    kept = [list(own.glob("*/orders/state/minutely/*")) for own in copies]
    assert sum(map(bool, kept)) == 2, kept  # both work
    files_told = [list(own.glob("*/orders/staged/_told/*.refs")) for own in copies]
    assert sum(map(bool, files_told)) == 2, files_told
    assert shell.totals() == expected_totals(240)
    for own in copies:
        shutil.rmtree(own, ignore_errors=True)
    toml = shell.root / "conf" / "jobs" / "orders.toml"
    toml.write_text(toml.read_text().replace("rows = 10", "rows = 100"))
    took = fetched(shell, "--available-now", "--from", "batch=10")
    assert took[0] > 0
    assert sorted(set(shell.totals())) == expected_totals(240)
