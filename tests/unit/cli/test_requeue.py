"""`penstock requeue`: leaves one request for each id, and says what the driver answered."""

from __future__ import annotations

import json

import pytest
from checkpoint_samples import commit, offsets, own
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Release, SourceProgress
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.requeue_requests import Requeue, RequeueAnswer, RequeueRequests
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app


@pytest.fixture
def penstock(tmp_path):
    """Return what runs the command on a job with one committed batch, and the job's requests."""
    root = make_project(tmp_path / "project", rows=10)
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store), holder="elsewhere:1:1")
    owned.append(offsets(0))
    owned.append(commit(0, sources={"orders": SourceProgress(position={}, partitions={}, ended=False)}))
    owned.append(Release(epoch=1, writer="w1", reason="finished"))

    def run(*words: str):
        return CliRunner().invoke(app, ["requeue", *words, "--project", str(root)])

    return run, RequeueRequests(LocalStore(root / "checkpoints"), "orders")


def test_a_request_waits_for_the_driver_and_its_repetition_has_the_answer(penstock):
    """The same id leaves no second request."""
    run, requests = penstock
    words = ("orders", "--source", "orders", "--command", "try/1")
    assert "goes into the next batches of its driver (request try/1)" in run(*words).stdout
    assert json.loads(run(*words, "--json").stdout) == {
        "job": "orders", "source": "orders", "command": "try/1", "done": False,
    }  # fmt: skip
    assert requests.open() == [Requeue(id="try/1", source="orders")]
    requests.reply("try/1", RequeueAnswer(rows=1_200, batch=3))
    assert run(*words, "--wait").stdout == "orders: 1,200 rows of orders were sent again: up to batch 3\n"


def test_a_range_is_asked_for_again(penstock):
    """From a batch on; where nothing was found, the answer says so."""
    run, requests = penstock
    assert run("orders", "--source", "orders", "--from-batch", "2", "--command", "b").exit_code == 0
    assert requests.open() == [Requeue(id="b", source="orders", from_batch=2)]
    requests.reply("b", RequeueAnswer(rows=0, batch=None))
    assert (
        "nothing is in quarantine" in run("orders", "--source", "orders", "--from-batch", "2", "--command", "b").stdout
    )


def test_an_unknown_source_and_a_job_without_a_batch_are_refused(penstock, tmp_path):
    """With the names that there are, before anything is asked."""
    run, requests = penstock
    refused = run("orders", "--source", "order")
    assert refused.exit_code == 78
    assert "no source 'order'; there is 'orders'" in " ".join(refused.stderr.split())
    assert requests.open() == []
    fresh = make_project(tmp_path / "fresh", rows=10)
    never = CliRunner().invoke(app, ["requeue", "orders", "--source", "orders", "--project", str(fresh)])
    assert "committed no batch" in " ".join(never.stderr.split())
