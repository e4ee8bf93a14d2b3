"""A stream on a real standalone cluster of Spark: submitted, and undisturbed by what dies around it (DESIGN 1, 11)."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator

import pytest
from clusters import Cluster
from project_samples import expected_totals, make_project
from supervised_project import QUICK, Yard

from penstock.checkpoint.log.entries import Restore, Takeover
from penstock.runtime.process.os_processes import argv_of, session_members
from penstock.supervise.launchers.local import log_files
from penstock.supervise.stream import Phase, Stream
from tools.spark_cluster import QUICK_JAVA

pytestmark = pytest.mark.timeout(900)

ON_CLUSTER = """
[checkpoint]
shared = true
keep = 1000

[spark]
master = "{url}"

[spark.conf]
spark.executor.memory = "512m"
spark.executor.extraJavaOptions = '{java}'
spark.hidden = "seen by nobody"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """A master and a worker, for all tests: each leaves them alive."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.end()


@pytest.fixture
def yard(tmp_path, cluster) -> Iterator[Yard]:
    """A project whose jobs run on the cluster."""
    begun = Yard(make_project(tmp_path / "project", more=QUICK + ON_CLUSTER.format(url=cluster.url, java=QUICK_JAVA)))
    yield begun
    begun.end()


def forget_the_launch(yard: Yard) -> None:
    """Leave the record as a supervisor does that is killed between the launch and the note."""

    def forgotten(stream: Stream) -> tuple[Stream, None]:
        assert stream.driver is not None
        return stream.having(driver=stream.driver.model_copy(update={"handle": None})), None

    yard.records.update(forgotten)


@pytest.mark.sample(seconds=260)
@pytest.mark.fault("F03", "F10")
def test_a_stream_on_a_cluster_goes_on_whatever_dies(yard, cluster):
    """Master, supervisor, worker with its executor, and driver are killed: one driver at a time, the table of one run."""
    supervisor = yard.supervise()
    yard.run("start", "orders")
    yard.until_commits(2)
    driver = yard.pid()
    words = argv_of(driver)
    assert "org.apache.spark.deploy.SparkSubmit" in words
    assert "seen by nobody" not in " ".join(words)
    assert yard.until(lambda _: cluster.apps() == ["penstock orders"])

    supervisor.kill()
    supervisor.wait()
    cluster.renew_master()
    forget_the_launch(yard)
    yard.supervise()
    yard.until(lambda s: s.driver is not None and s.driver.handle is not None)
    yard.until_commits(yard.commits() + 1)
    [executor] = cluster.executors()
    cluster.renew_worker()
    yard.until_commits(yard.commits() + 2)
    assert executor not in cluster.executors()
    assert (yard.pid(), yard.stream().generation) == (driver, 1)

    # Not the driver's JVM, which lives on until it has asked after its Python.
    (python,) = [pid for pid in session_members(driver) if argv_of(pid)[1].endswith("__main__.py")]
    os.kill(python, signal.SIGKILL)
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    assert any("was killed" in (stream.reason or "") for _, stream in yard.records.history())
    assert session_members(driver) == []
    drains(yard)
    assert yard.totals() == expected_totals()
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2]
    assert yard.until(lambda _: not cluster.executors())


def drains(yard: Yard) -> None:
    """See the stream drained, and its driver's files say all and nothing else."""
    yard.run("limits", "orders", "--rows", "none")
    assert yard.json("drain", "orders", "--wait")["phase"] == "FINISHED"
    events, errors = log_files(yard.root / "checkpoints" / "_logs" / "orders", yard.stream().generation)
    assert all(line.startswith("{") for line in events.read_text().splitlines())
    assert "Traceback" not in errors.read_text()


# Each day a worker dies with its executor, and on one machine a stream goes back (test_supervise).
@pytest.mark.soak
def test_a_stream_on_a_cluster_loses_an_executor_and_goes_back(yard, cluster):
    """A restart from a batch stops the driver there as it stops elsewhere."""
    yard.supervise()
    yard.run("start", "orders")
    yard.until_commits(4)
    [executor] = cluster.executors()
    os.kill(executor, signal.SIGKILL)
    yard.until_commits(yard.commits() + 2)
    assert executor not in cluster.executors()
    batch = [c["batch"] for c in yard.json("checkpoints", "orders")["checkpoints"] if c["restorable"]][-2]
    assert yard.json("restart", "orders", "--from", f"batch={batch}", "--wait")["phase"] == "RUNNING"
    logs = yard.root / "checkpoints" / "_logs" / "orders"
    stopped = [json.loads(line) for line in log_files(logs, 1)[0].read_text().splitlines()][-1]
    assert (stopped["event"], stopped["ending"]) == ("run.ended", "stopped")
    drains(yard)
    assert [r.batch for r in yard.entries(Restore)] == [batch]
    assert sorted(set(yard.totals())) == expected_totals()
    # The restore takes the log over, and so does the run behind it.
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2, 2]


@pytest.mark.sample(seconds=35)
def test_an_executor_with_another_disk_is_named(yard, cluster):
    """What it writes is on its own disk: refused with the folder and the host before anything stands in the log."""
    with cluster.worker_apart(yard.root / "checkpoints"):
        code, _, err = yard.run("run", "orders", java=True)
    assert (code, "PEN-CKP-023" in err) == (78, True), err
    assert f"host {socket.gethostname()}" in err
    assert str(yard.root / "checkpoints") in err
    assert yard.commits() == 0
