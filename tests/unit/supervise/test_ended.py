"""Where nobody supervises, `penstock streams` shows how a driver ended (decision 229)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time

import pytest
from checkpoint_samples import own, run_batch
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Release
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.runtime.process.takeover_policy import holder_name
from penstock.supervise.records import LeaseWatch, StreamRecords
from penstock.supervise.stream import Phase


@pytest.fixture
def root(tmp_path):
    """A project whose stream `orders` is RUNNING, as its supervisor last wrote."""
    root = make_project(tmp_path / "project", rows=10)
    store = control_store(root / "checkpoints")
    StreamRecords(store, "orders").update(lambda stream: (stream.having(phase=Phase.RUNNING, since=1), None))
    return root


def driver(root, holder):
    """Own the log as a driver, and run a batch."""
    log = Log(LocalStore(root / "checkpoints" / "orders"))
    open_or_create(log.store, now=0)
    owned = own(log, holder=holder)
    run_batch(owned, 0)
    return owned


def listed(root):
    """Return phase and end of the stream in the JSON, and the table."""
    results = [CliRunner().invoke(app, ["streams", *more, "--project", str(root)]) for more in (["--json"], [])]
    assert [result.exit_code for result in results] == [0, 0]
    (row,) = json.loads(results[0].stdout)
    return row["phase"], row["driver_end"], results[1].stdout


DEAD = f"{socket.gethostname()}:{os.getpid()}:1"


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DRAINING])
def test_a_stream_whose_driver_and_supervisor_died_is_not_listed_as_running(root, phase):
    """The JSON keeps what was recorded; no moment is shown, because nobody wrote down when it ended."""
    StreamRecords(control_store(root / "checkpoints"), "orders").update(lambda s: (s.having(phase=phase), None))
    driver(root, DEAD)
    recorded, end, table = listed(root)
    assert (recorded, end) == (phase.value, "died")
    assert "its driver died" in table
    assert phase.value not in table
    assert "1970" not in table


def test_a_driver_that_has_finished_is_listed_so(root):
    """It may end while nobody supervises."""
    owned = driver(root, holder_name())
    owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason="finished"))
    assert listed(root)[1] == "finished"


def test_a_supervisor_has_the_last_word(root):
    """It takes seconds to write down that a driver died, or to start the next one."""
    driver(root, DEAD)
    lease = LeaseWatch(control_store(root / "checkpoints"), writer="s", place="here", patience=10)
    assert lease.hold(wall=time.time_ns() // 1000, monotonic=0.0)
    recorded, end, table = listed(root)
    assert (recorded, end, "RUNNING" in table) == ("RUNNING", None, True)


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.STOPPED, Phase.FAILED])
def test_a_record_that_claims_no_driver_at_work_is_shown_as_it_is(root, phase):
    """Such a record is true without a supervisor, too."""
    StreamRecords(control_store(root / "checkpoints"), "orders").update(lambda s: (s.having(phase=phase), None))
    driver(root, DEAD)
    assert listed(root)[:2] == (phase.value, None)


def test_a_stream_whose_code_is_gone_is_listed_by_its_record(root):
    """Where its checkpoint is, only its code says."""
    driver(root, DEAD)
    shutil.rmtree(root / "jobs")
    (root / "jobs").mkdir()
    assert listed(root)[:2] == ("RUNNING", None)
