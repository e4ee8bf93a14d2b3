"""The pages themselves: what they say, whom they let in, and that nothing on them is anybody else's script."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi import Depends, HTTPException
from join_disk import JoinDisk
from project_samples import JOB, job_toml, make_project
from slice_disk import SliceDisk
from ui_site import NOW, SECOND, Site, ask, read, words_of
from window_samples import rows_of_branch

from penstock import agg
from penstock.checkpoint.log.entries import ManifestRef, SourceProgress, StagedFile
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import TIME
from penstock.operators.windows.time_windows import WindowStep, preaggregate
from penstock.rates.limits import Limits, SourceLimits
from penstock.supervise.stream import Phase, Wish
from penstock.ui import app as app_module
from penstock.ui import reading
from penstock.ui.app import pages
from penstock.ui.reading import Remembered
from penstock.ui.rendering import CHART_JS

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
CSS = Path(app_module.__file__).with_name("static") / "penstock.css"


def slices_of(spec, times):
    """Return what a task sends of rows of one key."""
    ones = pa.array([1] * len(times), pa.int64())
    table = pa.table({"k": ones, "h": ones, TIME: pa.array(times, pa.int64())})
    return preaggregate(rows_of_branch(table, ["k"], {}), (), plan=spec.plan, window=spec.window)


@pytest.fixture
def site(tmp_path):
    return Site(make_project(tmp_path / "project", rows=10))


@pytest.fixture
def full(site):
    """A stream about which there is everything to say."""
    file = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
    verdict = {"check": "gate", "unit": NOW, "status": "failed", "rows": 3, "action": "quarantine",
               "results": [{"rule": "v_is_positive", "severity": "critical", "success": False}]}  # fmt: skip
    site.batches(
        3, staged={"totals": [file]}, held={"totals": [file]}, verdicts=[verdict], watermarks_out={"minutely": NOW - 65 * SECOND},
        due={"minutely": NOW}, timings={"Compute": 12.5},
    )  # fmt: skip
    site.says(rows_per_second=4_321, left={"orders": 1_000_000})
    site.stream(
        wish=Wish.RUN, phase=Phase.BACKOFF, reason="it broke", since=NOW - 90 * SECOND, until=NOW + 5 * SECOND, generation=3,
        first=1, launches=3, failures=(NOW - SECOND,), note="why not", limits=Limits(rows=7_000, files=90), version="v2", stable="v1",
        rolled_back="v3",
    )  # fmt: skip
    return site


def test_streams_that_nobody_started_are_told_how_to_start(site):
    """An empty page says what to do, and looking makes nothing."""
    assert "No stream was started yet: penstock start orders." in site.text("/")
    assert "No stream was started yet: penstock start orders." in site.text("/jobs/orders")
    assert "or trigger the DAG stream_orders." in site.text("/", mounted="/penstock")
    assert not (site.root / "checkpoints").exists()


def test_a_project_without_jobs_is_told_what_a_job_is(site):
    """The first page of all."""
    (site.root / "jobs" / "orders.py").unlink()
    assert "This project has no jobs yet" in site.text("/")


def test_the_streams_page_says_how_a_stream_stands(full):
    """State, generation, batch, rows a second, lag, watermark, verdict, restarts, and what is to be noted."""
    text = full.text("/")
    for phrase in ("orders ▲ BACKOFF for 1 minute 30 seconds it broke", "version v3 was rolled back", "3 batches held", "Note: why not",
                 "4,321", "1,000,000 rows left", "1 minute 5 seconds behind", "▲ 1 quarantine batch 2",
                 "2 1 failure within the hour generation 3",
                 "Nobody supervises", "All times are UTC"):  # fmt: skip
        assert phrase in text, phrase


def test_the_page_of_a_job_says_it_all(full):
    """Batches, windows, checkpoints, limits and history."""
    text = full.text("/jobs/orders")
    for phrase in ("BACKOFF for 1 minute 30 seconds it broke", "Next try in 5 seconds", "Version v3 did not become healthy; v1 runs again",
                 "3 batches held by a gate", "Batch duration by phase", "The newest 3 of 3 kept batches",
                 "12 ms", "minutely 2023-11-14 22:12:15Z", "▲ failed, quarantine", "v_is_positive", "4.0 KiB",
                 "A batch reads at most 7,000 rows of each source.", "Somebody has set: rows a batch, files a batch. The rest",
                 "At most 90 files a batch of each source.", "penstock restart orders --from batch=2"):  # fmt: skip
        assert phrase in text, phrase


def test_the_page_of_a_job_lists_open_windows_and_rows_that_wait(site, tmp_path, monkeypatch):
    """Issue 20.8: the largest windows of a step, what a join holds, and of a step that cannot be read why."""
    folder = site.root / "checkpoints" / "orders" / "state"
    site.batches(0)
    folder.mkdir()
    plan, window = AggregatePlan.build({"n": agg.count()}, {"n": None}), TimeWindow(size=60 * SECOND, every=60 * SECOND)
    windows = SliceDisk(WindowStep(window=window, plan=plan, keys=pa.schema([("k", pa.int64())])), LocalFolder(folder))
    windows.batch([slices_of(windows.work, [NOW, NOW + SECOND, NOW + 90 * SECOND])], late=0, close=0)
    join = JoinDisk((0, 10), "left", folder)
    join.batch([[("a", 20, 0), ("b", 21, 1)], [("a", 22, 2)]], late=0, close=0)
    refs = {"w": windows.ref, "j": join.refs[0], "gone": {"path": "m", "size": 1, "checksum": "x"}}
    site.batches(1, state={step: {"0": ManifestRef(**ref)} for step, ref in refs.items()}, watermarks_out={"w": NOW})
    text = site.text("/jobs/orders")
    assert "gone the state cannot be read: " in text
    assert "j waiting for a match: 1 3 w 2023-11-14 22:13:00Z 2023-11-14 22:14:00Z 2 w" in text
    assert "2023-11-14 22:14:00Z 2023-11-14 22:15:00Z 1" in text
    monkeypatch.setattr(reading, "_ENTRIES", 1)
    assert "w too many windows for this page: penstock status orders --watermarks" in site.text("/jobs/orders")
    assert "too many windows" not in site.text("/")


def test_the_page_of_a_job_says_which_rule_bound_the_newest_batch(site):
    """SEMANTICS 8: the rate, the limits that hold, and for each source the rule that left rows of it."""
    site.batches(1)
    bound = {"orders": "max_rate_per_partition", "clicks": "rate"}
    site.says(limits={"rate": 1_234.4, "max_rate": 50, "bound": bound})
    site.stream(limits=Limits(max_rate=50, max_rate_per_partition=7, paused=True))
    text = site.text("/jobs/orders")
    for phrase in ("At most 50 rows a second of each source.", "At most 7 rows a second of each partition.",
                 "Paused: batches read nothing, except those of a drain.", "The rate is 1,234 rows a second, by what batches cost.",
                 "The newest batch left rows of orders that wait, because of max_rate_per_partition.",
                 "The newest batch left rows of clicks that wait, because of rate."):  # fmt: skip
        assert phrase in text, phrase
    assert "but paused" not in text, "a driver that drains heeds no pause, and says so in its record"
    site.says(limits={"paused": True})
    for page in ("/jobs/orders", "/"):
        assert "running, but paused: batches read nothing" in site.text(page)
    site.says(limits={"max_rate": 50})
    text = site.text("/jobs/orders")
    assert "The rate is" not in text
    assert "The newest batch left rows" not in text


def test_a_job_whose_sources_have_ended_says_that_a_start_reads_nothing(site):
    """After a drain a start would look like a success."""
    ended, open_ = (SourceProgress(position={}, partitions={}, ended=ended) for ended in (True, False))
    site.batches(1, sources={"orders": ended, "clicks": open_})
    assert "A start reads nothing more" not in site.text("/jobs/orders")
    site.batches(1, sources={"orders": ended, "clicks": ended})
    assert "All its sources have ended, by a drain or by themselves. A start reads nothing more" in site.text(
        "/jobs/orders"
    )


def test_each_source_may_have_limits_of_its_own(site):
    """The page says them, and leads to a form that has them; one that the job has not is none."""
    one = SourceProgress(position={}, partitions={}, ended=False)
    site.batches(1, sources={"orders": one, "clicks": one})
    own = {"orders": SourceLimits(rows=7, max_rate=None), "gone": SourceLimits(rows=8)}
    site.stream(limits=Limits(rows=50, sources=own))
    assert "Of orders: at most 7 rows a batch, no limit of rows a second." in site.text("/jobs/orders")
    assert "Somebody has set: rows a batch, those of orders, those of gone." in site.text("/jobs/orders")
    links = re.findall(r'ask/limits\?source=(\w+)"', site.get("/jobs/orders").text)
    assert links == ["orders", "clicks", "gone"], "also where they can only be taken back"
    page = site.get("/jobs/orders/ask/limits?source=orders", mounted="/penstock").text
    assert "Limit source orders of orders" in words_of(page)
    assert '<input name="source" type="hidden" value="orders">' in page
    assert re.search(r'name="rows"[^>]*value="7"', page)
    assert 'name="paused"' not in page
    assert "penstock limits orders --rows N" in site.text("/jobs/orders/ask/limits?source=orders")
    assert "--max-rate-per-partition N --source orders" in site.text("/jobs/orders/ask/limits?source=orders")
    unknown = site.get("/jobs/orders/ask/limits?source=nope", mounted="/penstock")
    assert (unknown.status_code, "The job has no such source." in words_of(unknown.text)) == (404, True)
    of_each = site.get("/jobs/orders/ask/limits", mounted="/penstock").text
    assert 'name="source"' not in of_each
    assert re.search(r'name="rows"[^>]*value="50"', of_each)


def test_the_page_of_a_job_says_how_many_cores_it_needs(site):
    """1,000 rows a second arrive, and cost a second and a half of a core (decision 125)."""
    counts, load = {"source:orders": {"read": 1_000}}, {"late_ms": 40.4, "waiting": 1_000, "task_ms": 1_500.0}
    site.batches(3, apart=SECOND, accounting=counts, load=load)
    text = site.text("/jobs/orders")
    assert "1,000 rows a second arrive, and a busy core processes 667: the job needs 2 cores." in text
    assert "The last batch began 40 ms late." in text
    assert "to disk" not in text
    site.batches(1, apart=SECOND, accounting=counts, load=load | {"spilled_bytes": 3 * 2**19})
    assert "In the newest batches Spark moved 1.5 MiB of memory to disk." in site.text("/jobs/orders")


def test_the_page_of_a_job_warns_of_wrong_clocks(site):
    """F44: rows in all beside the newest batch, and in how many batches most rows were late."""
    late, batches = {"rows": 900, "late": 800}, {"batches": 9, "mostly_late": 8}
    site.batches(1, totals={"source:s": {"read": 900, "quarantined": 5}, "window:w": late, "batches": batches})
    text = site.text("/jobs/orders")
    assert "▲ Most rows were late in 8 batches" in text
    assert "Rows in all 900 800 late, 5 quarantined, 0 filtered" in text
    assert "requeued" not in text


def test_the_page_of_a_job_says_what_became_of_a_requeue(site):
    """Its task has ended by then: what the driver has sent again is in the Commits alone."""
    sent = {"read": 56, "quarantined": 6, "passed": 50}
    site.batches(1, totals={"source:s": {"read": 900, "quarantined": 5}, "requeue:s": sent})
    assert "5 quarantined, 0 filtered; 56 requeued, 6 of them failed again" in site.text("/jobs/orders")


def test_a_batch_whose_state_is_gone_cannot_be_picked(site):
    """It says which file, and has no button."""
    ref = ManifestRef(path="manifest-0", size=1, checksum="x")
    site.batches(1, state={"minutely": {"0": ref}})
    assert "no: state/minutely/0/manifest-0 is gone" in site.text("/jobs/orders")
    assert "batch=0" not in site.text("/jobs/orders/restart")
    refused = site.text("/jobs/orders/restart?start=batch=0")
    assert "This would be refused batch 0 cannot be restored: state/minutely/0/manifest-0 is gone" in refused


def test_damage_of_one_job_is_its_own(full):
    """Its row says what is wrong, whatever it is; the others are shown."""
    for job in ("broken", "torn", "odd", "wrong"):
        (full.root / "jobs" / f"{job}.py").write_text(JOB.replace("orders", job))
        (full.root / "conf" / "jobs" / f"{job}.toml").write_text(job_toml())
    (full.root / "conf" / "jobs" / "broken.toml").write_text("keep = ")
    full.batches(2, "torn")
    (full.root / "checkpoints" / "torn" / "log" / "000000000002").write_bytes(b"torn")
    full.batches(1, "wrong")
    (full.root / "checkpoints" / "_control" / "streams" / "wrong").write_text("a file where a folder belongs")
    full.stream("odd", note="x")
    record = next((full.root / "checkpoints" / "_control" / "streams" / "odd").iterdir())
    record.write_bytes(record.read_bytes()[:-5])
    text = full.text("/")
    assert "broken ✖ This job cannot be shown PEN-CNF-001" in text
    assert "wrong ✖ This job cannot be shown PEN-" in text
    assert "its log is damaged" in text
    assert "BACKOFF" in text
    answer = full.get("/jobs/wrong")
    assert (answer.status_code, "This cannot be shown" in words_of(answer.text)) == (503, True)
    torn = full.text("/jobs/torn")
    assert "PEN-CKP-001" in torn
    assert "log/000000000002" in torn


@pytest.mark.parametrize("path", ["/", "/jobs/orders", "/jobs/orders/restart", "/jobs/orders/ask/save", "/reports"])
@pytest.mark.parametrize("mounted", [None, "/penstock"])
def test_hostile_text_is_text(site, path, mounted):
    """What a person, an error or a check said is shown as it was said, and never run."""
    verdict = {"check": HOSTILE, "unit": NOW, "status": HOSTILE, "rows": 3, "action": HOSTILE,
               "results": [{"rule": HOSTILE, "success": False}]}  # fmt: skip
    site.batches(2, verdicts=[verdict], watermarks_out={HOSTILE: NOW}, due={HOSTILE: None})
    site.says(
        error={"code": HOSTILE, "what": HOSTILE, "where": HOSTILE, "remedy": HOSTILE}, state="failed", exit_code=78
    )
    words = dict.fromkeys(("reason", "note", "rolled_back", "version", "stable"), HOSTILE)
    site.stream(phase=Phase.FAILED, generation=1, since=NOW, **words)
    answer = site.get(path, mounted=mounted, root_path=mounted or "")
    reader = read(answer.text)
    scripts = [attrs for tag, attrs in reader.tags if tag == "script"]
    assert len({attrs["nonce"] for attrs in scripts}) == 1
    assert len(scripts) <= 2
    assert "img" not in {tag for tag, _ in reader.tags}
    assert not [name for _, attrs in reader.tags for name in attrs if name.startswith("on")]
    if path in ("/", "/jobs/orders"):
        assert HOSTILE in "".join(reader.words)


@pytest.mark.parametrize("path", ["/", "/jobs/orders", "/jobs/orders/restart", "/reports", "/jobs/nope"])
def test_a_page_lets_only_its_own_script_run(full, path):
    """By a number that is another one for each answer; no form sends anything, nobody else frames it."""
    first, second = full.get(path), full.get(path)
    policy = first.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]{20,})'", policy)[1]
    assert {attrs.get("nonce") for tag, attrs in read(first.text).tags if tag in ("script", "style")} == {nonce}
    assert nonce not in second.headers["Content-Security-Policy"]
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert (first.headers["X-Content-Type-Options"], first.headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "frame-ancestors 'self'" in full.get(path, mounted="/penstock").headers["Content-Security-Policy"]
    assert not [attrs for _, attrs in read(first.text).tags if "style" in attrs]
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", first.text)


def test_every_route_is_guarded_and_takes_nothing_but_a_look():
    """Also the files that a page is made of; nothing but GET, and no description of the interface."""

    def nobody():
        raise HTTPException(401)

    app = pages(lambda: None, dependencies=[Depends(nobody)])
    assert {method for route in app.routes for method in route.methods} == {"GET"}
    paths = [
        re.sub(r"\{path:path\}", "docs/static/x.css", r.path)
        .replace("{job}", "orders")
        .replace("{name}", CHART_JS.name)
        for r in app.routes
    ]
    codes = [ask(app, path).status_code for path in paths]
    assert (len(codes), set(codes), ask(app, "/openapi.json").status_code) == (7, {401}, 404)


def test_people_who_are_not_logged_in_are_shown_the_way_to_the_login():
    """A bookmark is opened by a person, whom raw JSON tells nothing; programs get Airflow's own answer, nobody data."""

    def nobody():
        raise HTTPException(401, "Not authenticated")

    app = pages(lambda: None, mounted="/penstock", dependencies=[Depends(nobody)])
    wanted = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = ask(app, "/air/penstock/jobs/orders", root_path="/air/penstock", headers=wanted)
    assert (answer.status_code, "orders" in words_of(answer.text)) == (401, False)
    assert 'href="/air/api/v2/auth/login?next=%2Fair%2Fpenstock%2Fjobs%2Forders"' in answer.text
    plain = ask(app, "/jobs/orders", headers={"accept": "application/json"})
    assert (plain.status_code, plain.json()) == (401, {"detail": "Not authenticated"})


def test_only_jobs_of_the_project_are_looked_at(site):
    """A name that is a way elsewhere is no job (F61)."""
    for name in ("nope", "..%2f..%2fetc", "%2e%2e", "_control", "Orders", "a%00b"):
        assert site.get(f"/jobs/{name}").status_code == 404, name
    assert "PEN-JOB-009" in words_of(site.get("/jobs/nope").text)


def test_no_project_is_said_clearly(tmp_path):
    """In Airflow the folder of DAGs may lie anywhere."""
    answer = Site(tmp_path).get("/", mounted="/penstock")
    assert answer.status_code == 503
    assert "there is no conf/penstock.toml in the folder" in words_of(answer.text)


def test_a_folder_that_cannot_be_read_is_said(full):
    """The pages may run as another user than the streams."""

    def denied():
        raise PermissionError(13, "Permission denied", "conf")

    answer = ask(pages(denied), "/")
    assert (answer.status_code, "Permission denied: 'conf'" in words_of(answer.text)) == (503, True)
    (full.root / "checkpoints").chmod(0o777)
    assert "orders ✖ This job cannot be shown PEN-CKP" in full.text("/")


def test_links_lead_into_the_airflow_that_the_pages_are_in(full):
    """Also where Airflow answers below a path of its own."""
    for base in ("", "/air"):
        root = f"{base}/penstock"
        job = full.get(f"{root}/jobs/orders", mounted="/penstock", root_path=root).text
        assert f'href="{root}/jobs/orders/restart?start=batch%3D2"' in job
        assert f'href="{base}/dags/stream_orders" target="_top"' in job
        form = full.get(f"{root}/jobs/orders/restart?start=batch=1", mounted="/penstock", root_path=root).text
        assert f'data-runs="{base}/api/v2/dags/restart_from_checkpoint/dagRuns"' in form
        assert '<option value="batch=1" selected>' in form
    assert "penstock restart orders --from batch=1" in full.text("/jobs/orders/restart?start=batch=1")


@pytest.mark.parametrize("path", ["/", "/jobs/orders", "/jobs/orders/restart", "/jobs/orders/ask/save", "/reports"])
def test_pages_can_be_used_by_ear_and_by_keyboard(full, path):
    """Headings in order, heads of tables with their scope, boxes that scroll can be reached, ids are unique."""
    for mounted in (None, "/penstock"):
        tags = read(full.get(path, mounted=mounted).text).tags
        levels = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert all(attrs.get("scope") for tag, attrs in tags if tag == "th")
        boxes = [attrs for _, attrs in tags if "box" in (attrs.get("class") or "").split()]
        assert all(box.get("tabindex") == "0" and box.get("aria-label") for box in boxes)
        ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
        assert len(ids) == len(set(ids))
        assert ("html", {"lang": "en"}) in tags


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["page", "panel"])
def test_every_text_stands_out_from_what_is_behind_it(scheme, behind):
    """By 4.5 to 1, as WCAG AA asks; bars and lines of pictures by 3 to 1."""
    pairs = {name: pair for name, *pair in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", CSS.read_text())}
    ground = luminance(pairs[behind][scheme])
    for name, least in {**dict.fromkeys(("text", "muted", "link", "good", "waits", "bad"), 4.5), "bar": 3.0}.items():
        light = luminance(pairs[name][scheme])
        ratio = (max(light, ground) + 0.05) / (min(light, ground) + 0.05)
        assert ratio >= least, (name, ratio)


def test_a_page_says_of_when_it_is(full):
    """What is remembered is as old as its reading, and is not shown as if it were of now."""
    app = full.app()
    before = words_of(ask(app, "/").text)
    full.clock.now += 60 * SECOND
    assert "As of 2023-11-14 22:13:20Z." in before
    assert words_of(ask(app, "/").text) == before


def test_what_was_read_is_remembered_for_as_long_as_it_was_worth():
    """A second at least; five times as long as reading took; an error is not kept."""
    now = [100.0]
    remembered = Remembered(lambda: now[0])
    reads = []

    def reading(takes=0.0, error=None):
        reads.append(now[0])
        now[0] += takes
        if error is not None:
            raise error
        return len(reads)

    assert remembered.get("a", reading) == remembered.get("a", reading) == 1
    now[0] += 1.0
    assert remembered.get("a", lambda: reading(takes=2.0)) == 2
    now[0] += 9.9
    assert remembered.get("a", reading) == 2
    assert remembered.get("b", reading) == 3
    now[0] += 0.2
    with pytest.raises(OSError, match="gone"):
        remembered.get("a", lambda: reading(error=OSError("gone")))
    assert remembered.get("a", reading) == 5
