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
from penstock.cli.requeue import _answered
from penstock.errors import RequeueRefused

UNWRITTEN = """
from penstock import Job
from penstock.sinks import Delta


def build(conf):
    job = Job("orders")
    job.source("orders", conf.source("orders")).write("totals", Delta(conf.table("totals")))
    return job
"""
COUNTS = "; penstock status counts those that failed again"
WRITTEN = UNWRITTEN.replace("    return", '    job.quarantine("orders").write("bad", Delta("bad"))\n    return')


@pytest.fixture
def root(tmp_path):
    """Return a project whose job writes its quarantine into a table."""
    return make_project(tmp_path / "project", rows=10, job=WRITTEN)


@pytest.fixture
def penstock(root):
    """Return what runs the command on a job with one committed batch, and the job's requests."""
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
    assert run(*words, "--wait").stdout == f"orders: 1,200 rows of orders were sent again: up to batch 3{COUNTS}\n"


@pytest.mark.fault("F13")
def test_a_request_whose_file_was_emptied_is_named_by_status_and_by_the_next_request(penstock, root):
    """Whoever waits for it is told as well, instead of waiting for ever."""
    run, requests = penstock
    assert run("orders", "--source", "orders", "--command", "a").exit_code == 0
    file = root / "checkpoints" / "_control" / "requeues" / "orders" / "000000000000"
    file.write_bytes(b"")
    with pytest.raises(RequeueRefused, match="request a can no longer be read"):
        _answered(requests, "a")

    def status(*words: str) -> str:
        return CliRunner().invoke(app, ["status", "orders", *words, "--project", str(root)]).stdout

    assert f"a request to requeue rows cannot be read, and is lost ({file}); ask again" in " ".join(status().split())
    assert json.loads(status("--json"))["unreadable_requests"] == [str(file)]
    assert str(file) in run("orders", "--source", "orders", "--command", "a").stderr
    assert json.loads(status("--json"))["unreadable_requests"] == []
    assert requests.open() == [Requeue(id="a", source="orders")]


def test_a_range_is_asked_for_again(penstock):
    """From a batch on; where nothing was found, the answer says so."""
    run, requests = penstock
    words = ("orders", "--source", "orders", "--from-batch", "0", "--command", "b")
    assert run(*words).exit_code == 0
    assert requests.open() == [Requeue(id="b", source="orders", from_batch=0)]
    requests.reply("b", RequeueAnswer(rows=0, batch=None))
    assert "nothing is in quarantine" in run(*words).stdout


def test_a_batch_that_has_not_begun_has_nothing_to_send_again(penstock):
    """Who mistypes a number, in a form that waits for nothing, hears of it before anything is asked."""
    run, requests = penstock
    refused = run("orders", "--source", "orders", "--from-batch", "99999", "--json")
    assert refused.exit_code == 78
    assert "batch 99999 has not begun, and the newest that has is 0" in " ".join(refused.stderr.split())
    assert requests.open() == []


@pytest.mark.parametrize(
    "job",
    [UNWRITTEN, WRITTEN.replace("write(", 'select("_raw").write(')],
    ids=["nothing has the quarantine", "a table has a part of it"],
)
def test_a_quarantine_without_a_table_is_refused_before_anything_is_asked(penstock, root, job):
    """As the driver would refuse it; what was asked while there was a table keeps its answer."""
    run, requests = penstock
    words = ("orders", "--source", "orders", "--command")
    assert run(*words, "before").exit_code == 0
    requests.reply("before", RequeueAnswer(rows=2, batch=1))
    (root / "jobs" / "orders.py").write_text(job)
    refused = run(*words, "after")
    assert refused.exit_code == 78
    assert "no sink that can be read has the quarantine of source 'orders'" in " ".join(refused.stderr.split())
    assert (requests.open(), requests.has("after")) == ([], False)
    assert "2 rows of orders were sent again" in run(*words, "before").stdout


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


def test_rows_that_the_job_would_take_for_duplicates_are_not_sent(penstock, root):
    """They have no number of a request, so all would be dropped but one; nothing is asked for."""
    run, requests = penstock
    source = 'Http(port=18_999, schema="user string, t timestamp, v int", token="0123456789abcdef", with_columns=["_request", "_row"])'
    once = '.deduplicate("once", by=["_request", "_row"], within=minutes(5))'
    code = WRITTEN.replace('conf.source("orders"))', f'{source}, event_time="t", max_out_of_order=minutes(1)){once}')
    imports = "from penstock import Job, minutes\nfrom penstock.sources import Http"
    (root / "jobs" / "orders.py").write_text(code.replace("from penstock import Job", imports))
    answer = run("orders", "--source", "orders")
    assert (answer.exit_code, "PEN-OPR-025" in answer.stderr) == (78, True), answer.stderr
    assert "deduplicate 'once' is by _request, _row" in answer.stderr
    assert not list(requests.open())
    (root / "jobs" / "orders.py").write_text(
        code.replace("from penstock import Job", imports).replace('by=["_request", "_row"]', 'by=["v", "_row"]')
    )
    assert run("orders", "--source", "orders").exit_code == 0, "these differ by v"


def test_a_wait_without_a_driver_says_so(penstock, monkeypatch):
    """The rows wait for a driver, and the command with them."""
    run, requests = penstock
    reply = lambda *_: requests.reply("c", RequeueAnswer(rows=3, batch=1))  # noqa: E731
    monkeypatch.setattr("penstock.time.clock.SystemClock.sleep", reply)
    answer = run("orders", "--source", "orders", "--wait", "--command", "c")
    assert (answer.exit_code, "no driver of orders runs" in answer.stderr) == (0, True)
    assert "3 rows of orders were sent again" in answer.stdout
