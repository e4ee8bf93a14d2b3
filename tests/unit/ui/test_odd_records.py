"""No record on disk turns a page into an answer without a page, whatever stands in it; and one job's is its own."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from checkpoint_samples import own
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from project_samples import JOB, job_toml, make_project
from ui_site import NOW, SECOND, Site, ask, words_of

from penstock.checkpoint.log.entries import ManifestRef, PartitionProgress, Release, Restore, SourceProgress, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.roots import REPORTED
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.local import LocalStore
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.supervise.launchers.local import log_files
from penstock.supervise.stream import Phase, Wish
from penstock.supervise.watching import logs_of

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
SOURCE = SourceProgress(
    position={"row": 7}, partitions={"0": PartitionProgress(highest=NOW, seen_at=NOW, idle=False)}, ended=False
)
VERDICT = {"check": "gate", "unit": NOW, "status": "failed", "rows": 3, "action": "quarantine",
           "results": [{"rule": "v_is_positive", "severity": "critical", "success": False}]}  # fmt: skip
EVENTS = [
    {"event": "batch.committed", "level": "info", "timestamp": "t", "batch": 1, "timings": {"Compute": 1.5}, "rows_left": {"orders": 3}},
    {"event": "run.failed", "level": "error", "timestamp": "t", "traceback": "Traceback"},
]  # fmt: skip
FOUND = {"runs": [{"at": NOW, "check": "gate", "verdict": "failed", "windows": 4, "failed": 1}],
         "checks": [{"check": "gate", "windows": 8, "failed": 1, "noted": 2}]}  # fmt: skip
PAGES = ("/", "/jobs/orders", "/jobs/orders/restart", "/jobs/orders/restart?start=batch=1&truncate=on", "/jobs/orders/restart?start=saved=friday",
         "/jobs/orders/ask/save", "/jobs/orders/ask/release?batch=0", "/reports", "/reports/orders/index.html", "/reports/orders/runs/r1.html",
         "/reports/orders/docs/index.html")  # fmt: skip
ODD = (
    None,
    True,
    -1,
    0,
    2**63,
    10**30,
    10**400,
    1e308,
    "",
    "\ud800",
    "<b>'\"&",
    "x" * 3_000,
    [],
    {},
    [[]],
    {"x": None},
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A job of which there is a record of each kind, and another one beside it."""
    filled = Site(make_project(tmp_path_factory.mktemp("odd") / "project", rows=10))
    (filled.root / "jobs" / "other.py").write_text(JOB.replace('"orders"', '"other"', 1))
    (filled.root / "conf" / "jobs" / "other.toml").write_text(job_toml())
    facts = {
        "staged": {"totals": [FILE]}, "held": {"totals": [FILE]}, "verdicts": [VERDICT], "watermarks_out": {"minutely": NOW}, "due": {"minutely": NOW},
        "timings": {"Compute": 12.5}, "sources": {"orders": SOURCE}, "published": {"totals": 0}, "written": {"state:minutely": 9},
        "state": {"minutely": {"0": ManifestRef(path="m", size=1, checksum="x")}}, "totals": {"source:orders": {"read": 9}, "check:gate": {"held": 2}},
    }  # fmt: skip
    filled.batches(3, **facts)
    log = own(Log(LocalStore(filled.root / "checkpoints" / "orders")), writer="w2")
    log.append(Restore(epoch=log.epoch, writer=log.writer, batch=1, source="batch", saved=None, partitions=None))
    log.append(Release(epoch=log.epoch, writer=log.writer, reason="stopped"))
    filled.batches(2, "other")
    filled.says("other")  # nobody supervises, so its driver has to say that it runs
    filled.says(
        writer="w2", rows_per_second=4_321, left={"orders": 9}, judged={"batch": 1, "verdicts": {"passed": 2}}, held=[0], last={},
        error={"code": "PEN-X", "what": "it broke", "where": "there", "remedy": "mend it"}, state="failed", exit_code=78,
        graph=[{"kind": k, "name": n, "reads": r} for k, n, r in (("source", "orders", []), ("window", "minutely", [0]), ("sink", "totals", [1]))], sinks={"totals": "t"}, receivers=[{"receiver": "orders-0", "state": "running", "rows": 9, "restarts": 1, "error": "e", "host": "h", "address": "a:1"}],
    )  # fmt: skip
    filled.stream(
        wish=Wish.RUN, phase=Phase.BACKOFF, reason="it broke", since=NOW, until=NOW + SECOND, generation=1, launches=1
    )
    filled.stream("other", wish=Wish.RUN, phase=Phase.RUNNING, since=NOW, generation=1, launches=1)
    records = HeldRecords(filled.store(), "orders")
    records.decide(2, Decision.DISCARD, {"totals": 5}, by="t")
    reports = filled.root / "checkpoints" / "_reports" / "orders"
    for name, text in {
        "index.html": "<body>History",
        "runs/r1.html": "<body>Run",
        "docs/index.html": "",
        REPORTED: json.dumps(FOUND),
    }.items():
        (reports / name).parent.mkdir(parents=True, exist_ok=True)
        (reports / name).write_text(text)
    events, complaints = log_files(logs_of(filled.root / "checkpoints", "orders"), 1)
    events.parent.mkdir(parents=True)
    events.write_text("\n".join(json.dumps(event) for event in EVENTS))
    complaints.write_text("it broke\n")
    (filled.root / "checkpoints").chmod(0o700)
    return filled


def kinds_of(site) -> dict[str, list[Path]]:
    """Return the files that tell of the job, by what they are: entries by their kind, records by theirs."""
    root = site.root / "checkpoints"
    by_kind: dict[str, list[Path]] = {}
    for path in sorted([*root.rglob("*"), site.root / "conf" / "jobs" / "orders.toml"]):
        if path.is_file() and "other" not in path.parts:
            first, _, _ = path.read_bytes().partition(b"\n")
            kind = json.loads(first)["kind"] if first.startswith(b'{"kind"') else path.suffix or path.name
            by_kind.setdefault(kind, []).append(path)
    return by_kind


def places(value, path=()):
    """Yield the way to each value within a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, nested in inner:
        yield from places(nested, (*path, key))


def put(value, path, odd):
    """Return a JSON value with another one at a place of it."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], odd)
    return copy


def altered(data, text: bytes) -> bytes:
    """Return a well-formed file with one odd value in it: sealed as the original, or a line of a log, or plain JSON."""
    first, _, rest = text.partition(b"\n")
    if first.startswith(b'{"kind"'):
        body = json.loads(rest)
        changed = put(body, data.draw(st.sampled_from(list(places(body))[1:])), data.draw(st.sampled_from(ODD)))
        return fileformat.encode(json.loads(first)["kind"], changed)
    lines = text.split(b"\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    try:
        body = json.loads(lines[at])
    except ValueError:
        return data.draw(st.binary(max_size=60))
    odd = data.draw(st.sampled_from((*ODD, float("nan"), float("inf"))))
    lines[at] = json.dumps(put(body, data.draw(st.sampled_from(list(places(body)))), odd)).encode()
    return b"\n".join(lines)


def damaged(data, text: bytes) -> bytes | None:
    """Return a file that is torn, or whose bytes are others; None for one that is gone."""
    how = data.draw(st.sampled_from(["gone", "empty", "torn", "flipped", "more"]))
    at = data.draw(st.integers(0, max(0, len(text) - 1)))
    match how:
        case "gone":
            return None
        case "empty":
            return b""
        case "torn":
            return text[:at]
        case "flipped":
            return text[:at] + bytes([text[at] ^ data.draw(st.integers(1, 255))]) + text[at + 1 :] if text else b"\xff"
        case _:
            return text + b"\xff\x00"


KINDS = (
    "takeover",
    "offsets",
    "commit",
    "restore",
    "release",
    "status",
    "streams",
    "held",
    ".jsonl",
    ".log",
    ".json",
    ".html",
    ".toml",
)


def test_there_is_a_record_of_each_kind(site):
    """So that the test below leaves none out."""
    assert set(KINDS) <= set(kinds_of(site)), sorted(kinds_of(site))


SURROGATE = {"what": "half a \ud800 character", "code": "PEN-X"}


def test_half_a_character_is_a_question_mark(site):
    """JSON can hold it, and no page can: the rest is shown (a failed driver tells what a user's function said)."""
    path = kinds_of(site)["status"][-1]
    whole = path.read_bytes()
    body = json.loads(whole.partition(b"\n")[2])
    body["body"]["error"] = SURROGATE
    try:
        path.write_bytes(fileformat.encode("status", body))
        for page in ("/", "/jobs/orders", "/jobs/orders/restart", "/jobs/orders/ask/save"):
            assert site.get(page).status_code == 200, page
        assert "half a ? character" in site.text("/jobs/orders")
    finally:
        path.write_bytes(whole)


NUMBERS = [10**400, -(10**400), float("nan"), float("inf"), "1", None, True]


@pytest.mark.parametrize("odd", NUMBERS, ids=["huge", "least", "nan", "inf", "text", "none", "truth"])
def test_a_number_that_is_none_is_left_out(site, odd):
    """Of a driver's log and of its record: what can be drawn is drawn, and the page's script can read it."""
    events = kinds_of(site)[".jsonl"][0]
    status = kinds_of(site)["status"][-1]
    before = events.read_text(), status.read_bytes()
    try:
        line = {**EVENTS[0], "timings": {"Compute": odd, "FixOffsets": 2.5}}
        events.write_text(json.dumps(line))
        if not isinstance(odd, float):  # no record holds them
            body = json.loads(before[1].partition(b"\n")[2])
            body["body"] |= {"at": odd, "rows_per_second": odd, "state": "running"}
            status.write_bytes(fileformat.encode("status", body))
        answer = site.get("/jobs/orders")
        assert answer.status_code == 200, answer.text
        drawn = re.findall(r'data-plot="([^"]+)"', answer.text)
        assert drawn
        for plot in drawn:
            json.loads(unescape(plot), parse_constant=pytest.fail)
    finally:
        events.write_text(before[0])
        status.write_bytes(before[1])


@pytest.mark.parametrize("page", PAGES)
def test_what_nobody_foresaw_is_a_page_too(site, monkeypatch, page):
    """Whatever it was: it names itself, leads back, and has the headers that every page has."""

    def broken(*_, **__):
        raise ValueError("an hour without minutes")

    for place in ("charts.charts_of", "restarting.plan_of",
                  "stream_pages.charts_of", "stream_pages.plan_of", "stream_pages.ask_of", "stream_pages.listing_of",
                  "report_pages.read_reported", "report_pages.with_bar", "report_pages.docs_pages"):  # fmt: skip
        monkeypatch.setattr(f"penstock.ui.{place}", broken)
    answer = site.get(page)
    assert (answer.status_code, "PEN-000" in answer.text) == (503, True)
    assert "ValueError: an hour without minutes" in words_of(answer.text)
    assert 'href="/">All streams</a>' in answer.text
    assert (
        answer.headers["X-Content-Type-Options"],
        "default-src 'none'" in answer.headers["Content-Security-Policy"],
    ) == ("nosniff", True)


def test_gates_that_cannot_be_told_take_no_report_away(site, monkeypatch):
    """The list and the history are shown without them."""

    def broken(_):
        raise KeyError("published")

    monkeypatch.setattr("penstock.ui.reading.gates_of", broken)
    assert "orders" in site.text("/reports")
    assert site.get("/reports/orders/index.html").text.endswith("History")


def test_a_driver_log_that_cannot_be_read_takes_no_page_away(site, monkeypatch):
    """The rest of the job is shown, and what is wrong with the log in its place."""

    def broken(*_):
        raise PermissionError(13, "Permission denied", "_logs")

    monkeypatch.setattr("penstock.ui.stream_pages.read_driver_log", broken)
    text = site.text("/jobs/orders")
    assert "The log cannot be read [Errno 13] Permission denied" in text
    assert "Batches and savepoints that can be restored" in text


def main_of(text: str) -> str:
    return words_of(text[text.index("<main>") : text.index("</main>")])


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=examples(8))
def test_no_record_takes_a_page_away(site, kind, data):
    """Each page says what it can, or what is wrong; the list has all jobs, and the other one as if nothing were."""
    path = data.draw(st.sampled_from(kinds_of(site)[kind]))
    whole = path.read_bytes()
    try:
        changed = altered(data, whole) if data.draw(st.booleans()) else damaged(data, whole)
        path.unlink() if changed is None else path.write_bytes(changed)
        app = site.app()
        for page in data.draw(st.lists(st.sampled_from(PAGES), min_size=2, max_size=2, unique=True)):
            answer = ask(app, page)
            assert answer.status_code in (200, 404, 503), (page, answer.text)
            assert "content-security-policy" in answer.headers, page
        text = ask(app, "/").text
        assert {"orders", "other"} <= set(words_of(text).split())
        assert "other ● RUNNING" in main_of(text)
    finally:
        path.write_bytes(whole)
