"""A real Airflow: streams that it commands and that outlive all of it, and the pages in it (DESIGN 11, FACTS 6)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import Browser, chromium
from cli_runner import PATIENCE
from forms_walk import PICKS, forms
from page_walk import walk, write_reports
from project_samples import JOB, expected_totals, make_project
from supervised_project import QUICK, Yard

from penstock.checkpoint.log.entries import Restore, Takeover
from penstock.checkpoint.roots import reports_folder
from penstock.quality.reports.results import Results
from penstock.quality.reports.summary import runs
from penstock.runtime.process.os_processes import argv_of
from penstock.supervise.stream import Phase, StartOptions
from penstock.ui.app import pages
from tools.standalone import Standalone

pytestmark = [pytest.mark.timeout(1_500), pytest.mark.integration]
DAGS = Path(__file__).resolve().parents[2] / "dags"
STREAM, EXAMPLE = "stream_orders", "new_windows"
IN_WORKERS = "\n[airflow]\ndeferrable = false\n"
"""So that tasks which wait for a stream have workers that can be killed."""
KEEP_ALL = "\n[checkpoint]\nkeep = 10000\n"
SUITE = {
    "name": "sane",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 8, "max_value": 9}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 7, "max_value": 7}},
    ],
}
CHECKED = JOB.replace("totals.write(", f'totals.check("sane", suite={SUITE!r}, on_fail=OnFail.WARN).write(').replace(
    "from penstock.sinks", "from penstock.quality import OnFail\nfrom penstock.sinks"
)
"""The last minute is cut off after 40 seconds, so its window fails."""
HOLDING = CHECKED.replace(repr(SUITE), repr({"name": "small", "expectations": [
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 700}}
]})).replace("OnFail.WARN", "OnFail.HOLD").replace(
    "    return job", '    job.quarantine("orders").write("bad", Delta(f"{conf.table(\'totals\')}_bad"))\n    return job'
)  # fmt: skip
"""All windows behind the first minute are held, and the quarantine of the source can be sent again."""
A_MINUTE = QUICK.replace("rows = 4", "rows = 60")
"""A window, and no more, is closed by a batch."""


ENDS = """
from airflow.sdk import DAG, Param
from penstock.airflow import StopStream

SAID = {"generation": Param(None, type=["null", "integer"])}
with DAG("ends", schedule=None, is_paused_upon_creation=False, params=SAID) as ends:
    StopStream(task_id="stop", job="orders", project=PROJECT, generation="{{ params.generation or '' }}")
"""


def begin(root: Path, **project: Any) -> Yard:
    """Begin a project anew, under the eyes of Airflow: other orders and code, nothing in tables and checkpoints."""
    for name in ("checkpoints", "tables"):
        shutil.rmtree(root / name, ignore_errors=True)
    return Yard(make_project(root, **project))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The root of a project with the DAG files of this one."""
    root = make_project(tmp_path_factory.mktemp("in-airflow") / "project")
    shutil.copytree(DAGS, root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "dags" / "ends.py").write_text(ENDS.replace("PROJECT", repr(str(root))))
    example = root / "dags" / "examples" / "new_windows.py"
    example.write_text(example.read_text().replace("flights", "orders"))
    return root


@pytest.fixture(scope="module")
def airflow(root) -> Iterator[Standalone]:
    """Airflow with those DAGs and the plugin of the installed package; all its processes are in one session."""
    # Tests that want a DAG file read again say so, and what outnumbers the slots are few.
    with Standalone(root.parent / "airflow", root / "dags", env=os.environ, slots=2, parse_every=3_600) as standalone:
        for dag in (STREAM, "ends", EXAMPLE, *PICKS):
            standalone.until(lambda d=dag: standalone.has_dag(d), f"the DAG {dag}", seconds=PATIENCE)
        yield standalone


@pytest.fixture
def yard(root, airflow) -> Iterator[Yard]:
    """1,000 orders in 250 small batches, with a check."""
    begun = begin(root, rows_per_batch=100, job=CHECKED, more=QUICK + KEEP_ALL + IN_WORKERS)
    with (root / "conf" / "penstock.toml").open("a") as shared:
        shared.write(IN_WORKERS)
    yield begun
    begun.end()
    give_up(airflow)


@pytest.fixture
def long_yard(root, airflow) -> Iterator[Yard]:
    """Orders for many small batches, and reports of a month."""
    begun = begin(root, rows=40_000, rows_per_batch=40_000, more=QUICK + KEEP_ALL)
    write_reports(root / "checkpoints" / "_reports" / "orders")
    yield begun
    begun.end()
    give_up(airflow)


@pytest.fixture
def held_yard(root, airflow) -> Iterator[Yard]:
    """Orders for many batches, most of whose windows a gate holds back."""
    begun = begin(root, rows=80_000, rows_per_batch=80_000, job=HOLDING, more=A_MINUTE + KEEP_ALL)
    yield begun
    begun.end()
    give_up(airflow)


@pytest.fixture
def browser(tmp_path) -> Iterator[Browser]:
    """A browser that nobody has logged in with."""
    with chromium(tmp_path / "chromium") as opened:
        yield opened


def give_up(airflow: Standalone) -> None:
    """End the runs that still wait for a stream, so that they do not attach to that of the next test."""
    for dag in (STREAM, "restart_from_checkpoint"):
        for run in airflow.call("GET", f"/dags/{dag}/dagRuns?state=running")["dag_runs"]:
            airflow.call("PATCH", f"/dags/{dag}/dagRuns/{run['dag_run_id']}", {"state": "failed"})


def reaches(airflow: Standalone, dag: str, run: str, task: str, *states: str, attempt: int | None = None) -> None:
    """Wait until a task is in one of these states, in a try if one is named."""

    def there() -> bool:
        state, tried = airflow.tasks(dag, run)[task]
        return state in states and attempt in (None, tried)

    airflow.until(there, f"{task} to be {states}", seconds=PATIENCE)


def clear(airflow: Standalone, dag: str, run: str, *tasks: str, downstream: bool = False) -> None:
    """Clear tasks of a run, as a person does in the UI."""
    body = {"dry_run": False, "dag_run_id": run, "task_ids": list(tasks), "only_failed": False}
    airflow.call("POST", f"/dags/{dag}/clearTaskInstances", {**body, "include_downstream": downstream})


def workers(airflow: Standalone, doing: str) -> list[int]:
    """Return the processes of Airflow whose words hold a text."""
    return [pid for pid in airflow.members() if doing in " ".join(argv_of(pid))]


def kill(airflow: Standalone, dag: str, run: str, task: str) -> None:
    """Kill the process that runs a task, as a machine that is out of memory does."""
    name = airflow.call("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}")["id"]
    processes: list[int] = []

    def there() -> bool:
        processes[:] = workers(airflow, f"airflow worker -- {name}")
        return len(processes) == 1

    airflow.until(there, "its process", seconds=PATIENCE)
    os.kill(processes[0], signal.SIGKILL)


def forms_refuse(airflow: Standalone) -> None:
    """See that what is no start, no number and no checkpoint is answered with 400."""
    for conf in ({"start": "batch=../../etc"}, {"start": "empty; rm -r /"}, {"rows": 0}, {"rows": "1 OR 1=1"},
                 {"note": "x" * 501}, {"restart": "yes"}):  # fmt: skip
        answer = airflow.ask("POST", f"/dags/{STREAM}/dagRuns", {"logical_date": None, "conf": conf})
        assert answer.status_code == 400, (conf, answer.text)
    picked = {"checkpoint": "orders empty"}
    for conf in ({"checkpoint": "../orders batch=1"}, *({**picked, **rubbish} for rubbish in (
        {"truncate_sinks": "yes"}, {"partitions": 0}, {"partitions": "8; rm"}, {"state": "minutely=t"},
        {"state": ["minutely=/etc/passwd"]}, {"state": ["minutely"]}, {"drop": ["../x"]}, {"drop": ["x"] * 51},
    ))):  # fmt: skip
        answer = airflow.ask("POST", "/dags/restart_from_checkpoint/dagRuns", {"logical_date": None, "conf": conf})
        assert answer.status_code == 400, (conf, answer.text)


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Return the addresses, as the system writes them, and ports of TCP on which processes listen."""
    sockets = set()
    for fd in (fd for pid in pids for fd in Path("/proc").glob(f"{pid}/fd/*")):
        with suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(str(fd.readlink()))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    heard = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    return {(address, int(port, 16)) for address, port in heard}


@pytest.mark.sample(seconds=50)
def test_airflow_listens_on_one_port_of_loopback(airflow):
    """A free one, and none that is fixed: two of them may run on a machine, and nobody else sees either."""
    assert listening(airflow.members()) == {("0100007F", airflow.port)}


@pytest.mark.sample(seconds=50)
def test_nobody_without_a_login_gets_anything(airflow):
    """Every route answers 401 without a login, and 403 with a forged one; what is no route gives nothing away."""
    routes = [route.path.replace("{job}", "orders") for route in pages(lambda: None).routes]
    assert len(routes) >= 5
    for path in [
        *(path.replace("{path:path}", "index.html") for path in routes),
        "/reports/orders/docs/static/x.css",
        "/jobs/nope",
        "/jobs/orders/restart?batch=1",
    ]:
        for headers in ({}, {"Cookie": "_token=forged"}, {"Authorization": "Bearer forged"}):
            answer = httpx.get(f"{airflow.url}/penstock{path}", headers=headers, timeout=PATIENCE)
            assert answer.status_code == (403 if headers else 401), (path, headers, answer.text)
            assert "orders" not in answer.text
    assert httpx.get(f"{airflow.url}/penstock/nothing/penstock.css", timeout=PATIENCE).status_code == 404
    plugins = airflow.call("GET", "/plugins")
    assert [p["source"] for p in plugins["plugins"] if p["name"] == "penstock"] != []
    assert airflow.call("GET", "/plugins/importErrors")["import_errors"] == []


@pytest.mark.sample(seconds=110)
def test_a_stream_is_seen_and_restarted_from_a_batch_that_is_clicked(long_yard, airflow, browser):
    """Log in, see it run in Airflow's frame, pick a batch, send the form that is filled in, and see it begin anew."""
    walk(long_yard, airflow, browser)


@pytest.mark.sample(seconds=260)
def test_every_trigger_form_of_airflow_sends_what_it_opens_with_and_what_was_picked(held_yard, airflow, browser):
    """Nothing but a choice that a person must make keeps a form from being sent (review 17.1); requests are tasks."""
    forms(held_yard, airflow, browser)


@pytest.mark.sample(seconds=300)
@pytest.mark.fault("F09", "F12", "F63")
def test_a_stream_outlives_everything_in_airflow(yard, airflow, monkeypatch):
    """Forms that are refused, no supervisor, a task killed, marked and cleared; scheduler, supervisor and driver killed."""
    settings = {"AIRFLOW": airflow.url, "USER": airflow.user, "PASSWORD_ENV": "YARD_PASSWORD"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PENSTOCK_EVENTS_{name}", value)
    monkeypatch.setenv("YARD_PASSWORD", airflow.password)
    pause(airflow, "quality_reports", EXAMPLE)

    hostile = "<script>alert(1)</script> {{ 7 * 7 }} $(id)"
    run = airflow.trigger(STREAM, note=hostile)
    forms_refuse(airflow)  # while it waits for a supervisor
    reaches(airflow, STREAM, run, "healthy", "failed")
    # Cleared before that, the scheduler may still mark `supervise` for the failure that is no more.
    airflow.until(lambda: airflow.state(STREAM, run) == "failed", "the run to fail", seconds=PATIENCE)
    log = airflow.log(STREAM, run, "healthy")
    assert "PEN-SUP-003" in log
    assert "Start one with `penstock supervise`" in log
    assert (yard.stream().note, yard.stream().phase) == (hostile, Phase.SUBMITTING)

    supervisor = yard.supervise()
    clear(airflow, STREAM, run, "healthy", downstream=True)
    reaches(airflow, STREAM, run, "supervise", "running")
    yard.until_commits(3)
    driver = yard.pid()

    attempt = airflow.tasks(STREAM, run)["supervise"][1]
    kill(airflow, STREAM, run, "supervise")
    reaches(airflow, STREAM, run, "supervise", "running", attempt=attempt + 1)
    assert (yard.pid(), yard.stream().generation) == (driver, 1)
    yard.undisturbed()

    path = f"/dags/{STREAM}/dagRuns/{run}/taskInstances/supervise"
    airflow.call("PATCH", path, {"new_state": "failed"})
    reaches(airflow, STREAM, run, "supervise", "failed")
    airflow.until(lambda: airflow.state(STREAM, run) == "failed", "the run to fail", seconds=PATIENCE)
    clear(airflow, STREAM, run, "deploy", downstream=True)
    reaches(airflow, STREAM, run, "supervise", "running")
    assert (yard.pid(), yard.stream().generation, yard.stream().phase) == (driver, 1, Phase.RUNNING)
    yard.undisturbed()

    outlives_its_keepers(yard, airflow, supervisor, driver)
    assert yard.json("limits", "orders", "--rows", "none")["outcome"] == "done"
    yard.until(lambda s: s.phase is Phase.FINISHED)
    assert yard.totals() == expected_totals()
    assert [t.generation for t in yard.entries(Takeover)] == [1, 2]
    reaches(airflow, STREAM, run, "supervise", "success")

    pause(airflow, "quality_reports", paused=False)
    reports_that_count_once(yard, airflow)
    pause(airflow, "quality_reports")
    upkeep_that_finds_damage(yard, airflow)
    goes_back_once(yard, airflow)
    windows_that_come_again_are_reported(yard, airflow)
    pause(airflow, "quality_reports", EXAMPLE)
    assert not [t for t in airflow.tasks(STREAM, run).values() if t[0] != "success"]


def pause(airflow: Standalone, *dags: str, paused: bool = True) -> None:
    """Have events of assets begin runs of DAGs only while these are looked at: each costs as much as a driver."""
    for dag in dags:
        airflow.call("PATCH", f"/dags/{dag}", {"is_paused": paused})


def outlives_its_keepers(yard: Yard, airflow: Standalone, supervisor: subprocess.Popen[str], driver: int) -> None:
    """See the scheduler, the supervisor and the driver die, and one driver go on each time."""
    (scheduler,) = workers(airflow, "airflow scheduler")
    os.kill(scheduler, signal.SIGKILL)
    yard.until_commits(yard.commits() + 2)
    yard.undisturbed()
    supervisor.kill()
    yard.until_commits(yard.commits() + 2)
    yard.undisturbed()
    yard.supervise()
    os.kill(driver, signal.SIGKILL)
    yard.until(lambda s: s.generation == 2 and s.phase is Phase.RUNNING)
    yard.undisturbed()
    airflow.run("scheduler")


def goes_back_once(yard: Yard, airflow: Standalone) -> None:
    """See a restore that neither the death of its task nor a clear repeats; what is meant is stopped, and nothing else."""
    dag = "restart_from_checkpoint"
    # So few rows that the stream outlasts the three tries, and is there to be stopped.
    back = airflow.trigger(dag, checkpoint="orders batch=2", truncate_sinks=True, drop=["gone"], rows=6, note="again")
    reaches(airflow, dag, back, "restart", "running")
    kill(airflow, dag, back, "restart")
    reaches(airflow, dag, back, "restart", "success", attempt=2)
    reaches(airflow, dag, back, "supervise", "running", "deferred")  # the restart is followed
    clear(airflow, dag, back, "restart")
    reaches(airflow, dag, back, "restart", "success", attempt=3)
    assert [(r.batch, bool(r.truncate)) for r in yard.entries(Restore)] == [(2, True)]
    assert yard.stream().options == StartOptions(truncate_sinks=True, drop=("gone",))
    pause(airflow, "quality_reports", EXAMPLE, paused=False)
    yard.until_commits(yard.commits() + 15)  # some windows are published again
    began = yard.stream().first
    stale = airflow.trigger("ends", generation=1)
    reaches(airflow, "ends", stale, "stop", "success")
    assert "stale" in airflow.log("ends", stale, "stop")
    assert (yard.stream().phase, yard.stream().first) == (Phase.RUNNING, began)
    stop = airflow.trigger("ends", generation=began)
    reaches(airflow, "ends", stop, "stop", "success")
    assert (yard.stream().phase, yard.stream().first, yard.drivers()) == (Phase.STOPPED, began, [])
    reaches(airflow, dag, back, "supervise", "success")
    gone = airflow.trigger(dag, checkpoint="orders batch=99999")
    reaches(airflow, dag, gone, "restart", "failed")
    assert "PEN-CKP-014" in airflow.log(dag, gone, "restart")
    assert yard.stream().phase is Phase.STOPPED


def reports_that_count_once(yard: Yard, airflow: Standalone) -> None:
    """See the windows judged, and a clear of the task judge nothing again."""
    for conf in ({"job": "../orders"}, {"newest": 0}, {"newest": "all"}):
        answer = airflow.ask("POST", "/dags/quality_reports/dagRuns", {"logical_date": None, "conf": conf})
        assert answer.status_code == 400, (conf, answer.text)
    run = airflow.trigger("quality_reports", job="orders")
    # Cleared before its run has ended, the task would be left to the end of its first try.
    airflow.until(lambda: airflow.state("quality_reports", run) == "success", "the report", seconds=PATIENCE)
    results = Results(reports_folder(yard.root / "checkpoints", "orders") / "results")
    rows = results.read()
    (summary,) = runs(rows)
    assert (summary.check, summary.windows, summary.failed, summary.verdict) == ("sane", 17, 1, "failed")
    link = airflow.call("GET", f"/dags/quality_reports/dagRuns/{run}/taskInstances/report/links?map_index=0")
    assert link["extra_links"] == {"Stream": "/plugin/penstock/penstock/jobs/orders"}
    clear(airflow, "quality_reports", run, "report")
    reaches(airflow, "quality_reports", run, "report", "success", attempt=2)
    assert results.read().num_rows == rows.num_rows == 34


def windows_that_come_again_are_reported(yard: Yard, airflow: Standalone) -> None:
    """See the event of the asset begin a run by itself, which judges what the restore has published again."""
    results = Results(reports_folder(yard.root / "checkpoints", "orders") / "results")
    airflow.until(lambda: results.read().num_rows > 34, "a report on what came again", seconds=PATIENCE)
    listed = airflow.call("GET", "/dags/quality_reports/dagRuns")["dag_runs"]
    assert "asset_triggered" in {run["run_type"] for run in listed}
    (asset,) = airflow.call("GET", "/assets?uri_pattern=penstock://orders/windows")["assets"]
    events = airflow.call("GET", f"/assets/events?asset_id={asset['id']}&limit=100")["asset_events"]
    posted = [event["extra"] for event in events]
    assert {(event["job"], event["step"]) for event in posted} == {("orders", "minutely")}
    assert len({event["batch"] for event in posted}) == len(posted)
    assert all(event["windows"]["until"] and "verdicts" in event for event in posted)
    assert {path for event in posted for path in event["tables"]} == {str(yard.root / "tables" / "totals")}
    example = next(run for run in airflow.call("GET", f"/dags/{EXAMPLE}/dagRuns")["dag_runs"])["dag_run_id"]
    airflow.until(lambda: airflow.state(EXAMPLE, example) == "success", "who waits for windows", seconds=PATIENCE)
    assert "minutely: windows until" in airflow.log(EXAMPLE, example, "tell")
    assert sum(event["rows"].get("totals", 0) for event in posted) >= len(expected_totals())
    assert "YARD_PASSWORD" not in str(posted)
    assert airflow.password not in "".join(p.read_text(errors="replace") for p in yard.root.rglob("*.jsonl"))


def upkeep_that_finds_damage(yard: Yard, airflow: Standalone) -> None:
    """See a flipped byte found and named; it is put back, and all is read."""
    segment = next((yard.root / "checkpoints" / "orders" / "state").glob("*/*/*.arrow"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    run = airflow.trigger("checkpoint_upkeep", job="orders")
    # Cleared before its run has ended, the task would be left to the end of its first try.
    airflow.until(lambda: airflow.state("checkpoint_upkeep", run) == "failed", "the damage", seconds=PATIENCE)
    assert segment.name in airflow.log("checkpoint_upkeep", run, "verify", place=0)
    segment.write_bytes(whole)
    clear(airflow, "checkpoint_upkeep", run, "verify")
    reaches(airflow, "checkpoint_upkeep", run, "verify", "success", attempt=2)
