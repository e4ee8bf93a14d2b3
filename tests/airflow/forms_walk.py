"""A walk through Airflow's own trigger forms with a real browser: each DAG of a project is triggered as a person does."""

from __future__ import annotations

from dataclasses import dataclass, field

from browser import Browser
from cli_runner import PATIENCE
from page_walk import log_in, rest
from project_samples import expected_totals
from selenium.webdriver.remote.webelement import WebElement
from supervised_project import Yard

from penstock.checkpoint.log.entries import Restore
from penstock.checkpoint.requeue_requests import RequeueRequests
from penstock.checkpoint.storage.local import LocalStore
from penstock.rates.limits import Limits
from penstock.supervise.commands import DAGS, Request
from penstock.supervise.stream import Phase
from tools.standalone import Standalone

BACK, STREAM = "restart_from_checkpoint", "stream_orders"
SAVED = "orders saved=friday"
PICKS = {
    STREAM: {},
    "quality_reports": {},
    "checkpoint_upkeep": {},
    BACK: {"checkpoint": SAVED},
    **{dag: {"job": "orders"} for dag in DAGS.values()},
    DAGS[Request.SAVE]: {"job": "orders", "name": "friday"},
    DAGS[Request.RELEASE]: {"job": "orders", "batch": "7"},
    DAGS[Request.DISCARD]: {"job": "orders", "batch": "7"},
    DAGS[Request.REQUEUE]: {"job": "orders", "source": "orders"},
    DAGS[Request.REDO]: {"job": "orders", "sink": "totals"},
    DAGS[Request.SKIP]: {"job": "orders", "sink": "totals"},
}
"""What each form asks a person for; all else stays as the form opens."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Fills forms in and sends them, and knows which were."""

    yard: Yard
    airflow: Standalone
    browser: Browser
    filled: set[str] = field(default_factory=set)

    def fill(self, dag: str, **other: str) -> None:
        """Open a form, see that what must be picked is all that is missing, and pick it."""
        browser, picks = self.browser, {**PICKS[dag], **other}
        rest(self.airflow, browser)
        browser.until(lambda: not trigger(browser, within="body"), "the last form to be gone")
        browser.turn(f"{self.airflow.url}/dags/{dag}")
        browser.until(lambda: trigger(browser, within="body"), "the button of the DAG").click()
        browser.until(lambda: trigger(browser), "the form")
        asked = PICKS[dag]
        browser.until(lambda: len(missing(browser)) == len(asked), f"{dag} to ask for {asked}, not {missing(browser)}")
        for name, value in picks.items():
            pick(browser, name, value)
        browser.until(lambda: trigger(browser).is_enabled() and not missing(browser), f"{dag} to be ready")
        self.filled.add(dag)

    def send(self, dag: str, **other: str) -> str:
        """Trigger a DAG by its form, and return the run."""
        before = self.runs(dag)
        self.fill(dag, **other)
        trigger(self.browser).click()
        self.browser.until(lambda: self.runs(dag) - before, f"a run of {dag}")
        self.browser.until(lambda: not trigger(self.browser), "the form to close")
        rest(self.airflow, self.browser)
        (run,) = self.runs(dag) - before
        return run

    def runs(self, dag: str) -> set[str]:
        """Return the runs of a DAG."""
        return {run["dag_run_id"] for run in self.airflow.call("GET", f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]}

    def done(self, dag: str, run: str) -> str:
        """Wait for the end of a run, and return how it ended."""
        ends = ("success", "failed")
        self.airflow.until(lambda: self.airflow.state(dag, run) in ends, f"the end of {dag}", seconds=PATIENCE)
        return self.airflow.state(dag, run)

    def does(self, request: Request, **other: str) -> None:
        """Send a request by its form, and see its task succeed."""
        run = self.send(DAGS[request], **other)
        assert self.done(DAGS[request], run) == "success", self.airflow.log(DAGS[request], run, request.value)

    def obeys(self, request: Request, phase: Phase) -> None:
        """Send a request by its form, and see the task succeed when the stream has come to the phase."""
        self.does(request)
        assert self.yard.stream().phase is phase


def forms(yard: Yard, airflow: Standalone, browser: Browser) -> None:
    """See every form ask for what must be picked and for nothing else, and command a stream by those that do."""
    walk = Walk(yard, airflow, browser)
    log_in(airflow, browser)
    yard.supervise()
    known = {dag["dag_id"] for dag in airflow.call("GET", "/dags?tags=penstock&limit=100")["dags"]}
    assert known - {"new_windows"} == set(PICKS)

    followers = [walk.send(STREAM)]
    for dag in ("quality_reports", "checkpoint_upkeep"):  # what they do is seen elsewhere
        walk.fill(dag)
    rest(airflow, browser)
    yard.until(lambda s: s.phase is Phase.RUNNING)
    # More than Airflow has slots for workers here: what follows streams keeps no command waiting.
    followers += [airflow.trigger(STREAM) for _ in range(airflow.slots)]
    for run in followers:
        airflow.until(lambda r=run: airflow.tasks(STREAM, r)["supervise"][0] == "deferred", "it to be followed",
                      seconds=PATIENCE)  # fmt: skip
    yard.until_commits(3)
    refused_number(walk)
    walk.does(Request.LIMITS)
    assert yard.stream().limits is None
    walk.does(Request.SAVE)
    airflow.until(lambda: is_offered(airflow, SAVED), f"{SAVED} to be offered", seconds=PATIENCE)
    walk.obeys(Request.STOP, Phase.STOPPED)
    for run in followers:
        assert walk.done(STREAM, run) == "success"

    back = walk.send(BACK)
    yard.until(lambda s: s.first == 2 and s.phase is Phase.RUNNING)
    assert [(r.saved, r.command.split("/")[1]) for r in yard.entries(Restore)] == [("friday", back)]
    refused(walk)
    decided(walk)
    requeued(walk)
    walk.obeys(Request.SUSPEND, Phase.SUSPENDED)
    walk.obeys(Request.RESUME, Phase.RUNNING)
    limits = airflow.trigger(DAGS[Request.LIMITS], job="orders", rows=50_000, max_rate=9e6)
    assert walk.done(DAGS[Request.LIMITS], limits) == "success"
    assert yard.stream().limits == Limits(rows=50_000, max_rate=9e6)  # or it would drain for an hour
    walk.obeys(Request.DRAIN, Phase.FINISHED)
    assert walk.done(BACK, back) == "success"  # it has followed the stream through a resume and a drain
    walk.does(Request.REDO)
    skips = walk.send(DAGS[Request.SKIP])
    assert walk.done(DAGS[Request.SKIP], skips) == "success"
    assert "rows by batch none" in airflow.log(DAGS[Request.SKIP], skips, Request.SKIP.value)  # it lacks nothing
    assert walk.filled == set(PICKS)


def is_offered(airflow: Standalone, picked: str) -> bool:
    """Return whether the form of a restart suggests something; if not, the DAG file is to be read again."""
    suggested = airflow.call("GET", f"/dags/{BACK}/details")["params"]["checkpoint"]["schema"]["examples"]
    if picked not in suggested:
        airflow.parse(BACK)
    return picked in suggested


def refused_number(walk: Walk) -> None:
    """See a number that the field does not take refused with its reason: Airflow sends 1 for 0 where it may."""
    walk.fill(DAGS[Request.LIMITS], rows="0")
    trigger(walk.browser).click()
    dialogs = lambda: "".join(dialog.text for dialog in walk.browser.all("[role=dialog]"))  # noqa: E731
    walk.browser.until(lambda: "param rows: 0 is less than" in dialogs(), "the reason of the refusal")
    walk.browser.open(walk.airflow.url + "/nothing")  # what says so beside the form covers the button of the next one


def refused(walk: Walk) -> None:
    """See requests that cannot be done fail with their reasons, and the driver go on (review 17.2)."""
    yard, airflow = walk.yard, walk.airflow
    before = yard.pid(), yard.stream().generation
    release = DAGS[Request.RELEASE]
    back = airflow.trigger(BACK, checkpoint="orders last", partitions=7)
    nothing = airflow.trigger(release, job="orders", batch=10**9)
    assert (walk.done(BACK, back), walk.done(release, nothing)) == ("failed", "failed")
    assert "PEN-CKP-015" in airflow.log(BACK, back, "restart")
    assert "PEN-QLT" in airflow.log(release, nothing, "release")
    assert (yard.pid(), yard.stream().generation, yard.stream().phase) == (*before, Phase.RUNNING)
    yard.until_commits(yard.commits() + 1)


def decided(walk: Walk) -> None:
    """See a batch that a gate holds published by its form, and another dropped; the driver that runs does both."""
    yard = walk.yard
    yard.until_commits(yard.commits() + 4)  # a window each
    first, second = held(yard)[:2]
    walk.does(Request.RELEASE, batch=str(first))
    walk.does(Request.DISCARD, batch=str(second))
    assert not {first, second} & {*held(yard)}
    assert yard.totals() == [row for row in expected_totals() if row[1].minute < 2]
    assert yard.stream().phase is Phase.RUNNING


def requeued(walk: Walk) -> None:
    """See a request to send quarantined rows again reach the driver, which has none; the driver goes on."""
    run = walk.send(DAGS[Request.REQUEUE])
    assert walk.done(DAGS[Request.REQUEUE], run) == "success", walk.airflow.log(DAGS[Request.REQUEUE], run, "requeue")
    requests = RequeueRequests(LocalStore(walk.yard.root / "checkpoints"), "orders")
    walk.yard.until(lambda _: not requests.open())
    assert walk.yard.stream().phase is Phase.RUNNING


def held(yard: Yard) -> list[int]:
    """Return the held batches that can be decided on: a restore has undone those that it went back behind."""
    return [entry["batch"] for entry in yard.json("held", "orders", "list")["held"] if not entry["undone"]]


def trigger(browser: Browser, *, within: str = "[role=dialog]") -> WebElement | None:
    """Return the button that triggers, of a form or of the page of a DAG; None while there is none."""
    return next((b for b in browser.all(f"{within} button") if b.text.strip() == "Trigger"), None)


def missing(browser: Browser) -> list[str]:
    """Return what a form says is missing or wrong."""
    return [element.text for element in browser.all("[role=dialog] [data-part=error-text]") if element.text]


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
