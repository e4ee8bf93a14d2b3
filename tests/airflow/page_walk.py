"""A walk through the pages in a real Airflow with a real browser: behind its login, in its frame, with its rights."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from browser import PHONE, WIDE, Browser
from cli_runner import PATIENCE
from report_samples import a_month
from supervised_project import Yard

from penstock.checkpoint.log.entries import Restore
from penstock.quality.reports.pages import history_page, run_page, write_page
from penstock.supervise.stream import Phase
from tools.standalone import Standalone

STREAM, BACK = "stream_orders", "restart_from_checkpoint"
HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPTED = "<!doctype html><title>as it was</title><h1>Scripted</h1><script>document.title = 'ran'</script>"


def write_reports(folder: Path) -> None:
    """Write the pages of a month of reports, and one that holds a script."""
    month = a_month(43_200, alternating=False)
    write_page(folder / "index.html", history_page("orders", month, kept=["r29", "scripted"]))
    write_page(folder / "runs" / "r29.html", run_page("orders", month.slice(month.num_rows - 7 * 1_440), run="r29"))
    write_page(folder / "runs" / "scripted.html", SCRIPTED)


def walk(yard: Yard, airflow: Standalone, browser: Browser) -> None:
    """Log in, see it run in Airflow's frame, pick a batch, send the form that is filled in, and see it begin anew."""
    yard.supervise()
    run = airflow.trigger(STREAM, note=HOSTILE)
    log_in(airflow, browser)
    rest(airflow, browser)
    yard.until(lambda s: s.phase is Phase.RUNNING)

    browser.turn(f"{airflow.url}/plugin/penstock")
    browser.inside()
    browser.until(lambda: "RUNNING" in browser.see(".state").text, "the stream to be seen running")
    assert HOSTILE in browser.see("main").text
    look(browser, "streams")
    yard.until_commits(4)
    browser.click("#job-orders")
    browser.see(".plot canvas")
    look(browser, "job")
    browser.run("window.scrollTo(0, 250)")
    when = browser.see(".when").text
    browser.until(lambda: browser.see(".when").text != when, "the page to renew itself")
    assert browser.run("return window.scrollY") == 250

    kept = browser.run("return [...document.querySelectorAll('a[id^=restart-]')].map(link => link.id)")
    wanted = int(kept[1].removeprefix("restart-"))
    browser.click(f"#restart-{wanted}")
    browser.until(lambda: browser.see("select").get_attribute("value") == f"batch={wanted}", "the form to be filled in")
    browser.see("input[name=note]").send_keys("seen in the pages")
    look(browser, "restart")
    portrait(browser, "ui-restart", (1280, 960))
    before = yard.stream().generation
    refused(browser)
    browser.click("#ask button:enabled")
    browser.click("#sure[open] #sure-yes")
    browser.outside()
    page = f"/dags/{BACK}/runs/"
    browser.until(lambda: page in browser.driver.current_url, "the way to the run")
    back = unquote(browser.driver.current_url.partition(page)[2].partition("?")[0].partition("/")[0])
    rest(airflow, browser)
    after = yard.until(lambda s: s.first > before and s.phase is Phase.RUNNING)
    assert (after.note, [r.batch for r in yard.entries(Restore)]) == ("seen in the pages", [wanted])
    begun_anew(yard, airflow, browser, first=after.first)

    restart = lambda: airflow.tasks(BACK, back)["restart"][0]  # noqa: E731
    airflow.until(lambda: restart() in ("success", "failed"), "the restart to end", seconds=PATIENCE)
    assert restart() == "success", airflow.log(BACK, back, "restart")
    for task in (
        f"/dags/{STREAM}/dagRuns/{run}/taskInstances/supervise",
        f"/dags/{BACK}/dagRuns/{back}/taskInstances/restart",
    ):
        assert airflow.call("GET", f"{task}/links")["extra_links"] == {
            "Stream": "/plugin/penstock/penstock/jobs/orders"
        }
    assert airflow.tasks(STREAM, run)["supervise"][0] not in ("success", "failed", "skipped")  # a restart is no end


def log_in(airflow: Standalone, browser: Browser) -> None:
    """Log in as a person does."""
    browser.open(f"{airflow.url}/auth/login/")
    browser.see("input[name=username]").send_keys(airflow.user)
    browser.see("input[name=password]").send_keys(airflow.password)
    browser.click("button[type=submit]")
    browser.until(lambda: "/auth/login" not in browser.driver.current_url, "the login to be done")
    browser.see("#root *")


def rest(airflow: Standalone, browser: Browser) -> None:
    """Go where Airflow shows nothing: its pages take half a core as long as they are open, and ten seconds to load."""
    browser.turn(f"{airflow.url}/nothing")


def refused(browser: Browser) -> None:
    """See that what Airflow says against a restart is shown, and that one can try again."""
    real = browser.run("const form = document.querySelector('#ask'), real = form.dataset.runs;"
                       "form.dataset.runs = real.replace('restart_from', 'nothing_from'); return real")  # fmt: skip
    browser.click("#ask button:enabled")
    browser.click("#sure[open] #sure-yes")
    browser.until(lambda: "Airflow answered with 404" in browser.see("#said").text, "the refusal")
    browser.run("document.querySelector('#ask').dataset.runs = arguments[0]", real)


def begun_anew(yard: Yard, airflow: Standalone, browser: Browser, *, first: int) -> None:
    """See what a button of a task leads to: the new generation, what it has undone, and the job's reports."""
    browser.open(f"{airflow.url}/plugin/penstock/penstock/jobs/orders")
    browser.inside()
    begun = f"of the stream begun with {first}"
    browser.until(lambda: begun in browser.see("dl.facts").text, "the new generation")
    browser.until(lambda: "undone by a restore" in browser.see("main").text, "the batches that were undone")
    portrait(browser, "ui-job", (1280, 1500))
    browser.click("nav a")
    browser.see("#job-orders")
    portrait(browser, "ui-streams", (1280, 480))
    browser.click("#job-orders")

    browser.click("#reports")
    assert "orders" in browser.see("h1").text
    assert "43,200" in browser.see("main").text
    took = browser.run("return performance.getEntriesByType('navigation')[0].duration")
    print(f"the history of 43,200 windows was open after {took:.0f} ms")  # noqa: T201 - measured, not asserted
    look(browser, "history")
    browser.click("a[href='runs/r29.html']")
    assert "1,440" in browser.see("main").text
    look(browser, "report")
    browser.open(f"{airflow.url}/penstock/reports/orders/runs/scripted.html")
    assert browser.see("h1").text == "Scripted"
    assert browser.run("return document.title") == "as it was"
    ours = [complaint for complaint in browser.complaints() if "/penstock/" in complaint]
    assert [complaint for complaint in ours if "/penstock/reports/" not in complaint] == []


def portrait(browser: Browser, name: str, size: tuple[int, int]) -> None:
    """Take a picture for docs/pictures."""
    browser.size(size)
    browser.picture(name)
    browser.size(WIDE)


def look(browser: Browser, name: str) -> None:
    """See that a page is no wider than the screen, light and dark, and keep a picture of each."""
    for scheme in ("light", "dark"):
        for label, size in (("wide", WIDE), ("phone", PHONE)):
            browser.colours(scheme)
            browser.size(size)
            assert browser.overflow() <= 0, (name, label)
            browser.picture(f"airflow-{name}-{scheme}-{label}")
    browser.colours("light")
    browser.size(WIDE)
