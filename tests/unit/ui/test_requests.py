"""The pages of requests: what can be asked of a stream as it stands, what it does, and the command that does the same."""

from __future__ import annotations

import re
import shlex
from html import unescape

import pytest
from checkpoint_samples import commit, offsets, own, restore_entry
from project_samples import make_project
from typer.testing import CliRunner
from ui_site import NOW, Site, words_of

from penstock.checkpoint.log.entries import SourceProgress, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.supervise.commands import DAGS, Request
from penstock.supervise.stream import Phase, Wish

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})


@pytest.fixture
def site(tmp_path):
    filled = Site(make_project(tmp_path / "project", rows=10))
    sources = {"orders": SourceProgress(position={}, partitions={}, ended=False)}
    totals = {"source:orders": {"read": 9, "quarantined": 2}}
    filled.batches(2, held={"totals": [FILE]}, sources=sources, totals=totals)
    return filled


def buttons(site, **more):
    """Return what the page of a job leads to."""
    page = site.get("/jobs/orders", **more).text
    return set(re.findall(r'href="[^"]*/jobs/orders/ask/([^"]+)"', page))


@pytest.mark.parametrize(
    ("phase", "offered"),
    [(Phase.RUNNING, {"stop", "drain", "suspend"}), (Phase.BACKOFF, {"stop", "drain", "suspend"}),
     (Phase.SUSPENDED, {"resume"}), (Phase.STOPPED, set()), (Phase.FAILED, set())],
)  # fmt: skip
@pytest.mark.parametrize("mounted", [None, "/penstock"], ids=["alone", "in Airflow"])
def test_what_can_be_asked_follows_how_the_stream_stands(site, phase, offered, mounted):
    """Nothing is offered that would be refused; limits and held batches stand where they are told (finding 7)."""
    site.stream(wish=Wish.RUN, phase=phase, generation=1)
    held = {f"{word}?batch={n}" for word in ("release", "discard") for n in (0, 1)}
    assert buttons(site, mounted=mounted) == offered | held | {"limits", "save", "requeue"}


@pytest.mark.parametrize(
    ("code", "helps"),
    [("PEN-SNK-006", {"redo", "skip"}), ("PEN-SNK-007", {"skip"}), ("PEN-SNK-003", {"skip"}), ("PEN-SNK-009", set())],
)
def test_a_sink_that_lost_batches_can_be_reconciled(site, code, helps):
    """An operator of Airflow has no shell for the remedy. It is offered where it helps, and not while a driver runs."""
    site.stream(wish=Wish.RUN, phase=Phase.FAILED, generation=1)
    error = {"code": code, "what": "it lost some", "where": None, "remedy": None}
    site.says(generation=1, state="failed", error=error)
    assert buttons(site) & {"redo", "skip"} == helps
    page = site.get("/jobs/orders/ask/skip", mounted="/penstock")
    assert page.status_code == (200 if helps else 404)
    if helps:
        assert '<option value="totals">totals</option>' in page.text
        assert "penstock sinks orders skip SINK" in site.text("/jobs/orders/ask/skip")
    site.says(generation=1, error=error)
    assert not buttons(site) & {"redo", "skip"}


def test_a_driver_that_somebody_runs_by_hand_can_be_stopped_only(site):
    """To drain or to suspend would begin a stream of the supervisor's, whose driver takes the job over at once."""
    site.stream(wish=Wish.STOP, phase=Phase.STOPPED, generation=1)
    site.says(generation=0)
    assert "● running" in site.text("/jobs/orders")
    assert buttons(site) & {"stop", "drain", "suspend", "resume"} == {"stop"}
    for word in ("drain", "suspend"):
        why = words_of(site.get(f"/jobs/orders/ask/{word}").text)
        assert "The driver was started by hand, and can only be stopped." in why


def test_a_driver_that_ends_is_not_asked_to_drain(site):
    """It runs until its batch is done, and the page says whose end that is."""
    site.stream(wish=Wish.STOP, phase=Phase.RUNNING, generation=1)
    site.says(generation=1)
    for word in ("drain", "suspend"):
        why = words_of(site.get(f"/jobs/orders/ask/{word}").text)
        assert "The driver ends after its batch, because stop was asked for." in why


@pytest.mark.parametrize("request_", list(Request), ids=lambda request: request.value)
def test_each_request_says_what_it_does_and_names_its_dag(site, request_):
    """What it triggers is the DAG that the supervision names for it."""
    site.stream(wish=Wish.RUN, phase=Phase.SUSPENDED if request_ is Request.RESUME else Phase.RUNNING, generation=1)
    settles = request_ in (Request.REDO, Request.SKIP)
    if settles:
        site.says(generation=1, state="failed", error={"code": "PEN-SNK-006", "what": "it lost some"})
    path = f"/jobs/orders/ask/{request_.value}?batch=1"
    page = site.get(path, mounted="/penstock").text
    assert f'data-runs="/api/v2/dags/{DAGS[request_]}/dagRuns"' in page
    decides = request_ in (Request.RELEASE, Request.DISCARD)
    assert ("totals</strong>: 5 rows" in page) == decides
    alone = site.get(path).text
    assert "<form" not in alone
    command = shlex.split(unescape(re.search(r"<pre[^>]*>(.*?)</pre>", alone)[1]))
    assert command[0] == "penstock"
    # The program has this command, with these words.
    words = ["7" if word == "N|none|default" else word.lower() for word in command[1:]]
    words = [word for word in words if word != "orders"]
    result = CliRunner().invoke(app, [*words[: 2 if decides or settles else 1], "--help"])
    assert result.exit_code == 0, result.output


JUDGED = {
    "check": "sane", "unit": 60_000_000, "status": "failed", "rows": 5, "action": "hold",
    "results": [{"rule": "sane:0:at_most(worst)", "success": False}, {"rule": "sane:1:exists(user)", "success": True}],
}  # fmt: skip


@pytest.mark.parametrize("undone", [False, True])
def test_a_decision_on_a_held_batch_is_made_with_what_the_gate_found(tmp_path, undone):
    """Its Commit stays as long as nobody has decided, however many batches came since and whatever is restored."""
    site = Site(make_project(tmp_path / "project", rows=10))
    site.store()
    checkpoint = LocalStore(site.root / "checkpoints" / "orders")
    open_or_create(checkpoint, now=0)
    log = own(Log(checkpoint))
    passed = JUDGED | {"unit": 120_000_000, "action": "publish", "status": "passed", "rows": 77}
    for batch in range(4):
        log.append(offsets(batch, log.epoch, log.writer))
        facts = {"held": {"totals": [FILE]}, "verdicts": [JUDGED, passed]} if batch == 1 else {}
        log.append(commit(batch, log.epoch, log.writer, time=NOW, **facts))
    if undone:
        log.append(restore_entry(log, batch=0))
    site.stream(wish=Wish.RUN, phase=Phase.RUNNING, generation=1)
    release, discard = (site.text(f"/jobs/orders/ask/{word}?batch=1", mounted="/p") for word in ("release", "discard"))
    for page in (release, discard):
        assert "totals: 5 rows" in page
        assert "1970-01-01 00:01:00" in page
        assert "sane:0:at_most(worst)" in page
        assert "exists(user)" not in page
        assert ("A restore has rewound past this batch" in page) == undone
    assert ("release?batch=1" in buttons(site)) != undone
    assert "discard?batch=1" in buttons(site)
    assert ("batch 1 undone by a restore" in site.text("/jobs/orders")) == undone
    assert ("1 batch held by a gate" in site.text("/jobs/orders")) != undone
    assert ("1 held batch undone by a restore" in site.text("/jobs/orders")) == undone
    assert ("1 batch held" in site.text("/")) != undone  # what nobody can publish any more waits for nobody
    assert ("This triggers the DAG release_held_batch" in release) != undone
    assert "This triggers the DAG discard_held_batch" in discard


def test_a_requeue_is_offered_where_a_source_has_quarantined_rows(site, tmp_path):
    """By the names of the job's sources; elsewhere nothing is offered that would be refused."""
    page = site.get("/jobs/orders/ask/requeue", mounted="/penstock").text
    assert re.findall(r'<option value="(.*?)">', page) == ["orders"]
    clean = Site(make_project(tmp_path / "clean", rows=10))
    clean.batches(2, totals={"source:orders": {"read": 9, "quarantined": 0}})
    assert "requeue" not in buttons(clean)
    assert clean.get("/jobs/orders/ask/requeue").status_code == 404


NOT_NOW = {
    "stop": "The stream is STOPPED, so nothing runs that could end.",
    "resume": "The stream is STOPPED, and only a suspended one resumes. Start it, or restart it.",
    "nonsense": "There is no such request.", "RELEASE?batch=1": "There is no such request.",
    "release?batch=0": "Batch 0 is not held: somebody has decided on it, or no gate has held it.",
    "discard?batch=7777": "Batch 7,777 is not held", "release?batch=x": "That batch is not held",
    "release?batch=²": "That batch is not held", f"release?batch={'9' * 9_999}": "That batch is not held",
    "discard": "That batch is not held",
}  # fmt: skip


def test_what_cannot_be_asked_is_said(site):
    """A stream that has ended meanwhile, a batch that was decided on, a word that is no request."""
    site.stream(wish=Wish.STOP, phase=Phase.STOPPED, generation=1)
    records = HeldRecords(site.store(), "orders")
    records.carried_out(0, records.decide(0, Decision.DISCARD, {"totals": 5}, by="t"), by="t")
    for path, why in NOT_NOW.items():
        answer = site.get(f"/jobs/orders/ask/{path}", mounted="/penstock")
        assert answer.status_code == 404, path
        assert why in words_of(answer.text), path
        assert 'href="/jobs/orders">Back to orders</a>' in answer.text
    assert site.get("/jobs/orders/ask/release?batch=1").status_code == 200
