"""The pages as people use them: in a browser, on a wide screen and on a phone, with an Airflow behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest
import uvicorn
from browser import PHONE, WIDE, chromium
from fastapi import FastAPI, HTTPException, Request
from project_samples import make_project
from selenium.webdriver import ActionChains
from ui_site import NOW, SECOND, Site

from penstock.checkpoint.log.entries import ManifestRef, SourceProgress, StagedFile
from penstock.cli.ui import listen
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.process.project import find_project
from penstock.supervise.commands import DAGS
from penstock.supervise.commands import Request as StreamRequest
from penstock.supervise.stream import Phase, Wish
from penstock.ui.app import pages

pytestmark = pytest.mark.sample(2, of="pages in a browser")

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
STATE = {"minutely": {"0": ManifestRef(path="m", size=1, checksum="x")}}
SOURCES = {"orders": SourceProgress(position={}, partitions={}, ended=False)}


PARAMS = """
import json, sys
from airflow.sdk.definitions._internal.types import NOTSET
from penstock.airflow import request_dags, restart_dag
dags = {"restart_from_checkpoint": restart_dag(sys.argv[1]), **request_dags(sys.argv[1])}
told = {}
for name, dag in dags.items():
    fields = {field: dag.params.get_param(field) for field in dag.params}
    needed = [field for field, param in fields.items() if param.value is NOTSET]
    told[name] = {"type": "object", "properties": {f: p.schema for f, p in fields.items()}, "required": needed,
                  "additionalProperties": False}
print(json.dumps(told))
"""


class FakeAirflow:
    """Takes runs of the DAGs as Airflow does: what their params refuse is refused; keeps what was asked."""

    def __init__(self, root: Path) -> None:
        printed = subprocess.run(
            [sys.executable, "-c", PARAMS, str(root / "dags" / "restart.py")],
            env={**os.environ, "AIRFLOW_HOME": str(root / "airflow")},
            capture_output=True, text=True, check=True, timeout=240,
        )  # fmt: skip
        self.params = json.loads(printed.stdout.splitlines()[-1])
        self.asked: list[dict] = []

    async def trigger(self, dag: str, request: Request) -> dict[str, str]:
        body = await request.json()
        try:
            jsonschema.validate(body["conf"], self.params[dag])
        except (jsonschema.ValidationError, KeyError) as why:
            raise HTTPException(400, str(why)) from why
        self.asked.append(body["conf"])
        return {"dag_run_id": f"run-{len(self.asked)}", "dag_id": dag}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Six batches; each has put five rows into a table."""
    filled = Site(make_project(tmp_path_factory.mktemp("browser") / "project", rows=10))
    filled.batches(0)
    manifest = filled.root / "checkpoints" / "orders" / "state" / "minutely" / "0" / "m"
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"m")
    facts = {"staged": {"totals": [FILE]}, "held": {"totals": [FILE]}, "state": STATE, "sources": SOURCES}
    totals = {"source:orders": {"read": 9, "quarantined": 2}}
    filled.batches(6, **facts, totals=totals, watermarks_out={"minutely": NOW})
    return filled


@pytest.fixture(scope="module")
def airflow(site):
    return FakeAirflow(site.root)


@pytest.fixture(scope="module")
def url(site, airflow):
    """The pages as Airflow mounts them."""
    outer = FastAPI()
    outer.post("/api/v2/dags/{dag}/dagRuns")(airflow.trigger)
    outer.get("/dags/{rest:path}")(lambda: {"shown": "by Airflow"})
    outer.mount("/penstock", pages(lambda: find_project(given=site.root), mounted="/penstock"))
    with closing(listen(0)) as listening:
        server = uvicorn.Server(uvicorn.Config(outer, log_level="warning", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/penstock"
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(params=[WIDE, PHONE], ids=["wide", "phone"])
def screen(browser, request):
    browser.size(request.param)
    return request.param


WORST = {
    "wish": Wish.RUN, "phase": Phase.FAILED, "generation": 12_345, "launches": 1_234, "failures": (9_000_000_000_000_000,) * 17,
    "reason": "PEN-OPR-002 The function score() of step 'score' raised ValueError: " + "could not convert it " * 20,
    "note": "seen " * 90, "version": "0ef3bfd7fbaa" * 5, "since": NOW - 400 * 86_400 * SECOND,
}  # fmt: skip


def test_all_columns_fit_the_screen(site, url, browser, screen):
    """Also those of a job about which there is much to say: nothing is cut off, nothing is to be swiped."""
    site.stream(**WORST)
    browser.open(f"{url}/")
    browser.see("#job-orders")
    assert browser.overflow() <= 0
    wider = "return [...document.querySelectorAll('.box')].filter((box) => box.scrollWidth > box.clientWidth).length"
    assert browser.run(wider) == 0
    browser.open(f"{url}/jobs/orders")
    browser.see("dl.facts")
    browser.size((screen[0] - 64, screen[1]))  # Airflow's own navigation stands beside its frame
    assert browser.overflow() <= 0
    browser.size(screen)
    browser.open(f"{url}/")
    assert "17 failures within the hour" in browser.see("tbody td:last-child").text


def test_jobs_are_found_by_a_part_of_their_name(url, browser):
    """While one types; what was typed outlives the page's renewals, and is part of its address."""
    browser.open(f"{url}/")
    browser.see("#filter").send_keys("ord")
    browser.until(lambda: "job=ord" in browser.driver.current_url, "the address to have it")
    browser.see("#job-orders")
    browser.see("#filter").send_keys("x")
    browser.until(lambda: not browser.all("#job-orders"), "the job to be gone")
    assert browser.see("#filter").get_attribute("value") == "ordx"


LINES = "return document.querySelectorAll('.plot canvas').length"


def test_pictures_are_drawn_by_what_the_pages_bring(url, browser, screen):
    """No policy forbids anything, nothing is fetched from elsewhere; what is pointed at is told, also after a renewal."""
    browser.complaints()
    browser.open(f"{url}/jobs/orders")
    browser.until(lambda: browser.run(LINES) == len(browser.all(".plot")) >= 1, "the pictures")
    box = browser.see("#plot-rows .u-over")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", box)
    ActionChains(browser.driver).move_to_element(box).perform()
    legend = browser.until(lambda: "1,234" in browser.see("#plot-rows .u-legend").text, "what is pointed at")
    assert legend
    when = browser.see(".when").text
    browser.until(lambda: browser.see(".when").text != when, "the page to renew itself")
    assert browser.run(LINES) == len(browser.all(".plot"))
    assert browser.overflow() <= 0
    assert browser.complaints() == []


def test_a_restart_can_be_reached_without_swiping(url, browser, screen):
    """The button beside a checkpoint is within the screen."""
    browser.open(f"{url}/jobs/orders")
    place = browser.see("#restart-3").rect
    assert 0 <= place["x"] <= place["x"] + place["width"] <= screen[0]


def test_a_restart_is_counted_confirmed_once_and_sent(url, airflow, browser, screen):
    """Nothing is asked of Airflow before the question is answered; then all fields are (issue 17, finding 6)."""
    before = len(airflow.asked)
    browser.open(f"{url}/jobs/orders")
    browser.click("#restart-3")
    browser.until(lambda: "duplicates" in browser.see("#plan").text, "what comes again")
    browser.click("input[name=truncate]")
    browser.until(lambda: ", removed" in browser.see("#plan").text, "it to be counted anew")
    for field, text in (("note", "seen"), ("bytes", "64 MiB"), ("files", "9")):
        browser.see(f"input[name={field}]").send_keys(text)
    browser.click("#more summary")
    browser.see("input[name=partitions]").send_keys("4")
    browser.click("#ask button:enabled")
    assert "10 rows of 2 batches, removed" in browser.see("#sure[open]").text
    browser.click("#sure[open] #sure-no")
    assert browser.all("#sure[open]") == []
    assert len(airflow.asked) == before
    browser.click("#ask button:enabled")
    browser.click("#sure[open] #sure-yes")
    browser.until(lambda: "/dags/restart_from_checkpoint/runs/run-" in browser.driver.current_url, "the way to the run")
    assert airflow.asked[before:] == [
        {"checkpoint": "orders batch=3", "truncate_sinks": True, "partitions": 4, "state": [], "drop": [],
         "rows": None, "bytes": "64 MiB", "files": 9, "note": "seen"}
    ]  # fmt: skip


def test_what_would_be_refused_leaves_the_button_dead(url, browser):
    """And alive again once it is put right."""
    browser.open(f"{url}/jobs/orders/restart")
    browser.see("#ask button:enabled")
    browser.click("input[name=truncate]")
    browser.until(lambda: "This would be refused" in browser.see("#plan").text, "the refusal")
    assert browser.all("#ask button:enabled") == []
    browser.click("input[name=truncate]")
    browser.see("#ask button:enabled")


def test_beginning_anew_is_sent_as_such(url, airflow, browser, screen):
    """By its own way, from the page of the job on."""
    browser.open(f"{url}/jobs/orders")
    browser.click("#restart")
    browser.click("#anew")
    browser.until(lambda: "6 batches" in browser.see("#plan").text, "what comes again")
    browser.click("#ask button:enabled")
    browser.click("#sure[open] #sure-yes")
    browser.until(lambda: "/runs/run-" in browser.driver.current_url, "the way to the run")
    assert airflow.asked[-1]["checkpoint"] == "orders empty"


REQUESTS = [
    ("stop", {}), ("drain", {}), ("suspend", {}), ("limits", {"rows": 700, "bytes": "64 MiB", "files": 9, "max_rate": 50, "max_rate_per_partition": None, "paused": False}), ("save", {"name": "friday"}),
    ("release", {"batch": 0}), ("discard", {"batch": 0}), ("requeue", {"source": "orders", "from_batch": None}),
]  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("word", "more"), REQUESTS, ids=[word for word, _ in REQUESTS])
def test_a_request_is_sent_to_its_dag(site, url, airflow, browser, screen, word, more):
    """From the page of the job, over a page that says what it does, to the run (issue 17, finding 7)."""
    site.stream(wish=Wish.RUN, phase=Phase.RUNNING, generation=1)
    browser.open(f"{url}/jobs/orders")
    browser.click(f"a[href*='/ask/{word}']")
    browser.see("#request button:enabled")
    assert browser.overflow() <= 0
    for name in {"rows", "bytes", "files", "name", "max_rate"} & more.keys():
        field = browser.see(f"input[name={name}]")
        field.clear()
        field.send_keys(str(more[name]))
    browser.click("#request button")
    browser.until(
        lambda: f"/dags/{DAGS[StreamRequest(word)]}/runs/" in browser.driver.current_url, "the way to the run"
    )
    assert airflow.asked[-1] == {"job": "orders", **more}


def test_a_limit_is_lifted_by_an_empty_field(site, url, airflow, browser):
    """The configuration's holds again."""
    site.stream(limits=Limits(rows=5))
    browser.open(f"{url}/jobs/orders/ask/limits")
    browser.see("#request button:enabled")
    browser.see("input[name=rows]").clear()
    browser.click("#request button")
    browser.until(lambda: "/runs/run-" in browser.driver.current_url, "the way to the run")
    lifted = {
        "rows": None,
        "bytes": "",
        "files": None,
        "max_rate": None,
        "max_rate_per_partition": None,
        "paused": False,
    }
    assert airflow.asked[-1] == {"job": "orders", **lifted}


def test_a_stream_is_paused_by_a_tick(site, url, airflow, browser):
    """The page shows limits that hold, and sends the pause beside them."""
    site.stream(limits=Limits(max_rate=40))

    def shown() -> bool:
        browser.open(f"{url}/jobs/orders/ask/limits")
        browser.see("#request button:enabled")
        return browser.see("input[name=max_rate]").get_attribute("value") == "40"

    browser.until(shown, "the limit on the page, which shows what was read a moment ago")
    browser.click("input[name=paused]")
    browser.click("#request button")
    browser.until(lambda: "/runs/run-" in browser.driver.current_url, "the way to the run")
    assert (airflow.asked[-1]["max_rate"], airflow.asked[-1]["paused"]) == (40, True)


def test_limits_of_one_source_are_sent_with_its_name(site, url, airflow, browser):
    """From the page of the job; what the form leaves empty of this source is lifted, and those of each stay."""
    site.stream(limits=Limits(rows=5, sources={"orders": SourceLimits(max_rate=40)}))

    def shown() -> bool:
        browser.open(f"{url}/jobs/orders/ask/limits?source=orders")
        browser.see("#request button:enabled")
        values = [browser.see(f"input[name={name}]").get_attribute("value") for name in ("rows", "max_rate")]
        return values == ["", "40"]

    browser.until(shown, "the limits of the source on the page, which shows what was read a moment ago")
    browser.see("input[name=rows]").send_keys("7")
    browser.click("#request button")
    browser.until(lambda: "/runs/run-" in browser.driver.current_url, "the way to the run")
    assert airflow.asked[-1] == {
        "job": "orders", "source": "orders", "rows": 7, "bytes": "", "files": None, "max_rate": 40,
        "max_rate_per_partition": None,
    }  # fmt: skip
