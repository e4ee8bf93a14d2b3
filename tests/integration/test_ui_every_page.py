"""Every page as people see it: on a wide screen and on a phone, in light and dark, with a keyboard."""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import closing
from itertools import pairwise

import pytest
import uvicorn
from browser import PICTURES, chromium
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from project_samples import JOB, job_toml, make_project
from report_samples import a_month
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from ui_site import NOW, SECOND, Site

from penstock.checkpoint.log.entries import ManifestRef, PartitionProgress, SourceProgress, StagedFile
from penstock.checkpoint.roots import REPORTED
from penstock.cli.ui import listen
from penstock.quality.reports.pages import history_page, run_page
from penstock.quality.reports.summary import noted
from penstock.runtime.process.project import find_project
from penstock.supervise.launchers.local import log_files
from penstock.supervise.stream import Phase, Wish
from penstock.supervise.watching import logs_of
from penstock.ui.app import pages

pytestmark = pytest.mark.sample(4, of="every page")

DAY = 86_400 * SECOND
FILE = StagedFile(path="a", size=2_048, rows=5_000, checksum="x", stats={})
SOURCE = SourceProgress(
    position={str(n): 1_234_567 * (n + 1) for n in range(6)},
    partitions={str(n): PartitionProgress(highest=NOW, seen_at=NOW, idle=n == 5) for n in range(6)},
    ended=False,
)
VERDICTS = [
    {"check": "hourly_quality", "unit": NOW, "status": "failed", "rows": 3_456, "action": "quarantine",
     "results": [{"rule": f"hourly_quality:{n}:expect_column_values_to_be_between(mean_delay_{n})", "severity": "critical", "success": False} for n in range(3)]},
    {"check": "hourly_quality", "unit": NOW - 60 * SECOND, "status": "passed", "rows": 12, "action": "publish", "results": []},
]  # fmt: skip
GRAPH = [
    ("source", "departures", []), ("filter", "filter_1", [0]), ("window", "hourly", [1]), ("check", "hourly_quality", [2]), ("sink", "hourly_delays", [3]),
    ("late", "late_departures", [2]), ("sink", "late", [5]), ("quarantine", "hourly_quality", [3]), ("sink", "hourly_quarantine_of_all_carriers", [7]),
]  # fmt: skip
TRACEBACK = 'Traceback (most recent call last):\n  File "jobs/orders.py", line 12, in score\n    return float(row["delay_in_minutes_of_the_flight"]) / 0.0\nValueError: could not convert\n'
REASON = "PEN-OPR-002 The function score() of step 'score' raised ValueError: could not convert string to float: 'NA'"
ORIGIN = "/jobs/orders"
LONG = "orders_of_the_northern_warehouses_by_minute_and_customer_class"
"""As long a name as a job may have, and no place to break it."""
PAGES = {
    "streams": "/", "streams-none": "/?job=zzz", "job": ORIGIN, "job-failed": "/jobs/failed", "job-empty": "/jobs/empty", "job-damaged": "/jobs/damaged",
    "restart": "/jobs/orders/restart?start=batch=2&rows=100&note=seen", "restart-refused": "/jobs/orders/restart?start=batch=99", "restart-anew": "/jobs/orders/restart?start=empty",
    "ask-stop": "/jobs/orders/ask/stop", "ask-save": "/jobs/orders/ask/save", "ask-limits": "/jobs/orders/ask/limits", "ask-requeue": "/jobs/orders/ask/requeue", "ask-release": "/jobs/orders/ask/release?batch=2",
    "ask-gone": "/jobs/empty/ask/drain", "reports": "/reports", "report-history": "/reports/orders/index.html", "report-run": "/reports/orders/runs/r1.html",
    "report-docs": "/reports/orders/docs/index.html", "report-none": "/reports/orders/runs/none.html", "no-job": "/jobs/nothing", "broken": "/jobs/broken", "login": "/closed/jobs/orders",
    "long": f"/jobs/{LONG}", "long-restart": f"/jobs/{LONG}/restart", "long-save": f"/jobs/{LONG}/ask/save",
    "long-history": f"/reports/{LONG}/index.html", "long-run": f"/reports/{LONG}/runs/r1.html", "gone": "/jobs/gone",
}  # fmt: skip
SCREENS = {"wide": (1280, 900), "phone": (390, 844)}


def write_reports(site, job, pages):
    """Write the pages of a job's reports."""
    for name, text in pages.items():
        file = site.root / "checkpoints" / "_reports" / job / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A stream about which there is everything to say, and others that failed, wait, are damaged, or never ran."""
    filled = Site(make_project(tmp_path_factory.mktemp("every") / "project", rows=10))
    for job in ("failed", "empty", "damaged", "broken", "by_hand", "gone", LONG):
        (filled.root / "jobs" / f"{job}.py").write_text(JOB.replace('"orders"', f'"{job}"', 1))
        (filled.root / "conf" / "jobs" / f"{job}.toml").write_text(job_toml() if job != "broken" else "keep = ")
    filled.batches(0)
    manifest = filled.root / "checkpoints" / "orders" / "state" / "hourly" / "0" / "m"
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"m")
    facts = {
        "staged": {"hourly_delays": [FILE], "late": [FILE]}, "held": {"hourly_quarantine_of_all_carriers": [FILE]}, "verdicts": VERDICTS, "sources": {"departures": SOURCE},
        "watermarks_out": {"hourly": NOW - 65 * SECOND}, "due": {"hourly": NOW}, "timings": {"FixOffsets": 8.0, "Compute": 412.5}, "published": {"hourly_delays": 2, "late": 2},
        "written": {"state:hourly": 123_456_789}, "state": {"hourly": {"0": ManifestRef(path="m", size=1, checksum="x")}},
        "totals": {"source:departures": {"read": 987_654_321, "quarantined": 5}, "window:hourly": {"rows": 900, "late": 800}, "batches": {"batches": 9, "mostly_late": 8},
                   "check:hourly_quality": {"in": 900, "published": 800, "quarantined": 100}},
        "accounting": {"source:departures": {"read": 123_456}, "window:hourly": {"rows": 123_456, "counted": 100_000, "late": 2_345}},
    }  # fmt: skip
    filled.batches(40, apart=90 * SECOND, **facts)
    filled.batches(3, "failed", **{**facts, "state": {}})
    filled.batches(3, "by_hand")
    filled.batches(3, LONG)
    filled.says("gone", next_batch=3)
    filled.batches(2, "damaged")
    (filled.root / "checkpoints" / "damaged" / "log" / "000000000002").write_bytes(b"torn")
    shape = [{"kind": kind, "name": name, "reads": reads} for kind, name, reads in GRAPH]
    filled.says(
        rows_per_second=4_321.5, left={"departures": 1_234_567}, graph=shape, sinks={"hourly_delays": "Delta table /data/warehouse/tables/hourly_delays, append"},
        error={"code": "PEN-OPR-002", "what": REASON, "where": "jobs/orders.py:12", "remedy": "Look at the row, and mend the function."},
    )  # fmt: skip
    filled.stream(
        wish=Wish.RUN, phase=Phase.BACKOFF, reason=REASON, since=NOW - 90 * SECOND, until=NOW + 5 * SECOND, generation=3, first=1, launches=3,
        failures=(NOW - SECOND,), note="after the incident of Friday, see the ticket", version="0ef3bfd7fbaa", stable="0ef3bfd7fbaa", rolled_back="9d81c2e4aa10",
        asked_by="restart_from_checkpoint/manual__2026-11-23T10:15:00+00:00/restart",
    )  # fmt: skip
    filled.stream("failed", wish=Wish.RUN, phase=Phase.FAILED, reason=REASON, since=NOW - DAY, generation=9, launches=9)
    logs = log_files(logs_of(filled.root / "checkpoints", "orders"), 3)
    logs[0].parent.mkdir(parents=True)
    lines = [{"event": "batch.committed", "level": "info", "timestamp": "2023-11-14T22:13:20Z", "batch": n, "rows_left": {"departures": 90_000 - 2_000 * n},
              "timings": {"FixOffsets": 8 + n % 3, "Compute": 380 + 7 * (n % 11), "CommitBatch": 22, "PublishSinks": 60 + n % 7}} for n in range(40)]  # fmt: skip
    lines.append({"event": "run.failed", "level": "error", "timestamp": "2023-11-14T22:13:21Z", "traceback": TRACEBACK})
    logs[0].write_text("\n".join(json.dumps(line) for line in lines))
    logs[1].write_text("WARN a complaint of the virtual machine about something that nobody reads\n" * 5)
    month = a_month(1_440 * 3, alternating=False)
    short = a_month(1_440, alternating=True)
    of_long = {"index.html": history_page(LONG, short, kept=["r1"]), "runs/r1.html": run_page(LONG, short, run="r1")}
    write_reports(filled, LONG, of_long)
    write_reports(filled, "orders", {
        "index.html": history_page("orders", month, kept=["r1", "r2"], docs=True), REPORTED: noted(month), "docs/index.html": "",
        "runs/r1.html": run_page("orders", a_month(1_440, alternating=True), run="r1", notes=("Newer windows wait.",)),
        "docs/validations/hourly_quality/r1/t/window 2024-01-01 00.00.html": "<h1>Window</h1>",
    })  # fmt: skip
    (filled.root / "checkpoints").chmod(0o700)
    return filled


@pytest.fixture(scope="module")
def urls(site):
    """The pages as Airflow mounts them, alone, without a login, and of a project without jobs."""

    def nobody():
        raise HTTPException(401, "Not authenticated")

    outer = FastAPI()
    find = lambda: find_project(given=site.root)  # noqa: E731 - one line says it
    outer.mount("/penstock", pages(find, mounted="/penstock", clock=site.clock))
    outer.mount("/closed", pages(find, mounted="/closed", dependencies=[Depends(nobody)]))
    outer.get("/airflow")(lambda: HTMLResponse('<iframe src="/penstock/jobs/orders"></iframe>'))
    outer.mount("/", pages(find, clock=site.clock))
    with closing(listen(0)) as listening:
        server = uvicorn.Server(uvicorn.Config(outer, log_level="warning", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
        opened.colours("")


def whole(browser, width: int) -> None:
    """Make the screen as high as the page, so that a picture has all of it."""
    browser.size((width, min(9_000, browser.run("return document.documentElement.scrollHeight"))))


CUT = """
return [...document.querySelectorAll("main *")].filter((one) => {
  if (one.closest("svg, .box, pre, .canvas, .clamp, [hidden], dialog, select, thead")) return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120));
"""


@pytest.mark.sample(16)
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("size", SCREENS)
def test_nothing_is_wider_than_the_screen(browser, urls, page, size):
    """No page is to be swiped sideways; tables that are wider scroll in their own box."""
    for base in ("/penstock", ""):
        browser.size(SCREENS[size])
        browser.open(f"{urls}{base if page != 'login' else ''}{PAGES[page]}")
        browser.see("h1")
        assert browser.overflow() <= 0, base
        assert browser.run(CUT) == []
        for scheme in ("light", "dark") if PICTURES in os.environ else ():
            browser.colours(scheme)
            whole(browser, SCREENS[size][0])
            browser.picture(f"{page}-{size}-{scheme}{'-alone' if not base else ''}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("page", ["streams", "job", "restart", "ask-save", "reports", "report-history"])
def test_the_keyboard_reaches_all_in_order_and_shows_where_it_is(browser, urls, page):
    """Tab goes from the top to the bottom, and what has the focus wears an outline."""
    browser.size(SCREENS["wide"])
    browser.open(f"{urls}/penstock{PAGES[page]}")
    browser.see("h1")
    seen = []
    for _ in range(12):
        browser.see("body").send_keys(Keys.TAB) if not seen else browser.driver.switch_to.active_element.send_keys(
            Keys.TAB
        )
        outline = browser.run(
            "const e = document.activeElement, s = getComputedStyle(e), b = e.getBoundingClientRect();"
            "return [e.tagName, b.top + window.scrollY, s.outlineStyle, parseFloat(s.outlineWidth)]"
        )
        if outline[0] == "BODY":
            break
        seen.append(outline)
    assert len(seen) >= 3
    assert all(style != "none" and width >= 2 for _, _, style, width in seen), seen
    tops = [top for _, top, _, _ in seen]
    assert all(after >= before - 40 for before, after in pairwise(tops)), seen


AXES = """
return [...document.querySelectorAll(".axis")].map((axis) => [...axis.querySelectorAll("span")].map((one) => {
  const box = one.getBoundingClientRect();
  return [one.textContent, box.left, box.right, parseFloat(getComputedStyle(one).fontSize), one.closest(".box") !== null];
}));
"""
DATE, NUMBER = r"\d{4}-\d\d-\d\d \d\d:\d\d", r"to|< 0\.1 %|[\d,.]+( %| windows)?"


@pytest.mark.parametrize("page", ["report-history", "report-run"])
@pytest.mark.parametrize("size", SCREENS)
def test_dates_and_numbers_on_axes_can_be_read(browser, urls, page, size):
    """Each says a date or a number, in letters that are large enough, and none lies on the next or beside the screen."""
    browser.size(SCREENS[size])
    browser.open(f"{urls}{PAGES[page]}")
    browser.see("h1")
    axes = browser.run(AXES)
    assert sum(len(ticks) for ticks in axes) >= 14
    for ticks in axes:
        assert ticks
        for text, left, right, points, scrolls in ticks:
            assert re.fullmatch(f"{DATE}|{NUMBER}", text), text
            assert points >= 11
            assert right > left
            assert scrolls or 0 <= left < right <= SCREENS[size][0]
        assert all(after[1] >= before[2] + 4 for before, after in pairwise(ticks)), ticks
    dated = [ticks for ticks in axes if re.fullmatch(DATE, ticks[0][0])]
    assert [len(ticks) for ticks in dated] == ([3] if page == "report-history" else [2] * 7)


@pytest.mark.parametrize("job", ["damaged", "failed"])
def test_batches_of_one_moment_stand_in_the_middle_of_their_chart(browser, urls, job):
    """A first batch alone, or several within a second: the axis shows their minute, and not years."""
    browser.open(f"{urls}/jobs/{job}")
    box = browser.see("#plot-rows .u-over")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", box)
    ActionChains(browser.driver).move_to_element(box).perform()
    point = browser.until(lambda: browser.all("#plot-rows .u-cursor-pt"), "the point to be seen")[0].rect
    assert abs(point["x"] + point["width"] / 2 - box.rect["x"] - box.rect["width"] / 2) < 10


ZONES = [
    ("Australia/Adelaide", "2023-11-15 08:43:20"),
    ("America/St_Johns", "2023-11-14 18:43:20"),
    ("UTC", "2023-11-14 22:13:20"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("zone", "shown"), ZONES, ids=[zone for zone, _ in ZONES])
def test_times_are_those_of_who_reads(browser, urls, zone, shown):
    """On the page and on the axes of its pictures; UTC and the age stand where one points, also after a renewal."""
    browser.size(SCREENS["wide"])
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
    try:
        browser.open(f"{urls}/jobs/orders")
        for _ in range(2):
            browser.see(".when time[title]")
            text, utc, says = browser.run(
                "const one = document.querySelector('.when time'); return [one.textContent, one.dateTime, one.title]"
            )
            assert (text, utc) == (shown, "2023-11-14T22:13:20Z")
            assert re.fullmatch(r"2023-11-14 22:13:20 UTC, [\d,]+ days ago", says)
            browser.run("document.querySelector('.when').dataset.old = ''")
            browser.until(lambda: not browser.all(".when[data-old]"), "the page to renew itself")
        assert zone in browser.see("#zone").text
        assert browser.run(
            "return [...document.querySelectorAll('main time')].every((one) => !one.textContent.endsWith('Z'))"
        )
        browser.open(f"{urls}/jobs/orders/restart?start=batch%3D39")
        form = (
            "return [...document.querySelectorAll('option[value^=batch], #plan strong')].map((one) => one.textContent)"
        )
        browser.until(lambda: shown[:13] in browser.run(form)[0], "the newest batch in the form")
        assert not [text for text in browser.run(form) if re.search(r"\dZ", text)]
        browser.run(
            "document.querySelector('#plan').dataset.old = '';document.querySelector('input[name=truncate]').click()"
        )
        browser.until(lambda: not browser.all("#plan[data-old]"), "what the restart does to be counted again")
        assert shown[:13] in browser.see("#plan strong").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_a_time_zone_that_was_chosen_in_airflow_goes_before_the_machines(browser, urls):
    """The pages stand in its frame, and show what its own switch says."""
    browser.open(f"{urls}/airflow")
    browser.run("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")
    try:
        browser.open(f"{urls}/airflow")
        browser.inside()
        browser.see(".when time[title]")
        assert browser.run("return document.querySelector('.when time').textContent") == "2023-11-15 07:13:20"
        assert "Asia/Tokyo" in browser.see("#zone").text
    finally:
        browser.outside()
        browser.run("localStorage.clear()")
