"""A walk through Airflow's own trigger forms with a real browser: each DAG of a project is triggered as a person does."""

from __future__ import annotations

from browser import Browser
from page_walk import log_in
from shells import PATIENCE
from yards import Yard

from penstock.checkpoint.entries import Restore
from penstock.supervise.requests import DAGS, Request
from penstock.supervise.stream import Limits, Phase
from tools.standalone import Standalone

PICKS = {
    "stream_orders": {},
    "quality_reports": {},
    "checkpoint_upkeep": {},
    "restart_from_checkpoint": {"checkpoint": "orders last"},
    **{dag: {"job": "orders"} for dag in DAGS.values()},
    DAGS[Request.SAVE]: {"job": "orders", "name": "friday"},
    DAGS[Request.RELEASE]: {"job": "orders", "batch": "7"},
    DAGS[Request.DISCARD]: {"job": "orders", "batch": "7"},
}
"""What each form asks a person for; all else stays as the form opens."""
REQUIRED = "This field is required"


def forms(yard: Yard, airflow: Standalone, browser: Browser) -> None:
    """See every form ask for what must be picked and for nothing else, and command a stream by those that do."""
    log_in(airflow, browser)
    yard.supervise()
    known = {dag["dag_id"] for dag in airflow.call("GET", "/dags?tags=penstock&limit=100")["dags"]}
    assert known - {"new_windows"} == set(PICKS)
    for dag, picks in PICKS.items():
        fill(airflow, browser, dag, picks)

    followers = [send(airflow, browser, "stream_orders")]
    yard.until(lambda s: s.phase is Phase.RUNNING)
    # More than Airflow has slots for workers here: what follows streams keeps no command waiting.
    followers += [airflow.trigger("stream_orders") for _ in range(4)]
    for run in followers:
        airflow.until(lambda r=run: airflow.tasks("stream_orders", r)["supervise"][0] == "deferred", "it to be followed",
                      seconds=PATIENCE)  # fmt: skip
    yard.until_commits(3)
    limit = send(airflow, browser, DAGS[Request.LIMITS])
    assert done(airflow, DAGS[Request.LIMITS], limit) == "success"
    assert yard.stream().limits is None
    save = send(airflow, browser, DAGS[Request.SAVE])
    assert done(airflow, DAGS[Request.SAVE], save) == "success", airflow.log(DAGS[Request.SAVE], save, "save")
    back = send(airflow, browser, "restart_from_checkpoint", checkpoint="orders saved=friday")
    yard.until(lambda s: s.first == 2 and s.phase is Phase.RUNNING)
    assert [(r.saved, r.command.split("/")[1]) for r in yard.entries(Restore)] == [("friday", back)]
    obeys(yard, airflow, browser, Request.SUSPEND, Phase.SUSPENDED)
    obeys(yard, airflow, browser, Request.RESUME, Phase.RUNNING)
    obeys(yard, airflow, browser, Request.STOP, Phase.STOPPED)
    limits = airflow.trigger(DAGS[Request.LIMITS], job="orders", rows=50_000)
    assert done(airflow, DAGS[Request.LIMITS], limits) == "success"
    assert yard.stream().limits == Limits(rows=50_000)  # or it would drain for an hour
    obeys(yard, airflow, browser, Request.DRAIN, Phase.FINISHED)
    for run in followers:  # each has followed the stream through a restart, a resume and a drain
        airflow.until(
            lambda r=run: airflow.state("stream_orders", r) in ("success", "failed"), "its end", seconds=PATIENCE
        )
    nothing = send(airflow, browser, DAGS[Request.RELEASE])
    assert done(airflow, DAGS[Request.RELEASE], nothing) == "failed"
    assert "PEN-QLT" in airflow.log(DAGS[Request.RELEASE], nothing, "release")


def obeys(yard: Yard, airflow: Standalone, browser: Browser, request: Request, phase: Phase) -> None:
    """Send a request by its form, and see the task succeed when the stream has come to the phase."""
    run = send(airflow, browser, DAGS[request])
    assert done(airflow, DAGS[request], run) == "success", airflow.log(DAGS[request], run, request.value)
    assert yard.stream().phase is phase


def fill(airflow: Standalone, browser: Browser, dag: str, picks: dict[str, str]) -> None:
    """Open a form, see that what must be picked is all that is missing, and pick it."""
    browser.open(f"{airflow.url}/dags/{dag}")
    browser.until(lambda: trigger(browser, within="body"), "the button of the DAG").click()
    browser.until(lambda: trigger(browser), "the form")
    browser.until(lambda: len(missing(browser)) == len(picks), f"{dag} to ask for {picks}, not {missing(browser)}")
    for name, value in picks.items():
        pick(browser, name, value)
    browser.until(lambda: trigger(browser).is_enabled() and not missing(browser), f"{dag} to be ready")


def send(airflow: Standalone, browser: Browser, dag: str, **other: str) -> str:
    """Trigger a DAG by its form, and return the run."""
    before = runs(airflow, dag)
    fill(airflow, browser, dag, {**PICKS[dag], **other})
    trigger(browser).click()
    browser.until(lambda: runs(airflow, dag) - before, f"a run of {dag}")
    (run,) = runs(airflow, dag) - before
    return run


def runs(airflow: Standalone, dag: str) -> set[str]:
    """Return the runs of a DAG."""
    return {run["dag_run_id"] for run in airflow.call("GET", f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]}


def done(airflow: Standalone, dag: str, run: str) -> str:
    """Wait for the end of a run, and return how it ended."""
    airflow.until(lambda: airflow.state(dag, run) in ("success", "failed"), f"the end of {dag}", seconds=PATIENCE)
    return airflow.state(dag, run)


def trigger(browser: Browser, *, within: str = "[role=dialog]"):
    """Return the button that triggers, of a form or of the page of a DAG; None while there is none."""
    return next((b for b in browser.all(f"{within} button") if b.text.strip() == "Trigger"), None)


def missing(browser: Browser) -> list[str]:
    """Return what a form says is missing or wrong."""
    return [found.text for found in browser.all("[role=dialog] [data-part=error-text]") if found.text]


def pick(browser: Browser, name: str, value: str) -> None:
    """Fill one field in: one that is a list of options by clicking one."""
    field = browser.see(f"#element_{name}, [name=element_{name}]")
    if field.tag_name == "input" and field.get_attribute("type") != "hidden":
        field.send_keys(value)
        return
    inner = browser.see(f"#element_{name} input")
    inner.send_keys(value)
    browser.until(lambda: [o for o in browser.all("[role=option]") if o.text == value], f"the option {value}")[
        0
    ].click()
