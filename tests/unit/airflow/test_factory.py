"""The DAG files: what the factory makes of a project, and what reading them loads.

They are read in a process of its own, as Airflow does: once it is loaded it configures the logging of all of it.
One such process reads the files of all tests; it ends with its input.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import checkpoint_samples
import pytest
from checkpoint_samples import run_batch, saved_as
from project_samples import job_toml, make_project

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import HeldNotFound, RequeueRefused, StepsChanged
from penstock.supervise.commands import DAGS as REQUESTS
from penstock.supervise.commands import Request
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Wish

pytestmark = [pytest.mark.slow]
DAGS = Path(__file__).resolve().parents[3] / "dags"
SCRIPT_OF_THE_PAGES = Path(__file__).resolve().parents[3] / "platform" / "penstock" / "ui" / "static" / "penstock.js"

SCRIPT = """
import json, runpy, sys, threading
from pathlib import Path
import airflow.sdk
import penstock.airflow.form_values
for folder, before in map(json.loads, sys.stdin):
    found, known = {}, penstock.airflow.form_values.job_log
    exec(before)
    for path in sorted(Path(folder).rglob("*.py")):
        made = runpy.run_path(str(path)).values()
        for dag in {id(one): one for one in made if isinstance(one, airflow.sdk.DAG)}.values():
            found[dag.dag_id] = {
                "file": path.name, "lines": len(path.read_text().splitlines()), "tasks": sorted(dag.task_dict),
                "schedule": str(dag.schedule), "params": sorted(dag.params),
                "required": sorted(n for n in dag.params if not dag.params.get_param(n).has_value
                                   and "null" not in dag.params.get_param(n).schema["type"]),
                "runs": dag.max_active_runs,
                "placed": {t.task_id: [t.pool, t.priority_weight, t.queue, t.owner, getattr(t, "deferrable", None)]
                           for t in dag.tasks},
                "now": [t.available_now for t in dag.tasks if hasattr(t, "available_now")],
                "assets": sorted(a.uri for a in getattr(dag.schedule, "objects", [])),
                "offers": {n: dag.params.get_param(n).schema.get("examples") for n in ("start", "checkpoint")
                           if n in dag.params},
                "titles": [dag.params.get_param(n).schema.get("title") for n in dag.params],
            }
    penstock.airflow.form_values.job_log = known
    heavy = {"pyspark", "great_expectations", "pandas", "pyarrow", "deltalake"} & sys.modules.keys()
    print(ANSWER, json.dumps({"dags": found, "heavy": sorted(heavy)}), flush=True)
"""
ANSWER = "DAGS READ: "


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A process that has loaded Airflow, and reads the DAG files of one project after another."""
    home = tmp_path_factory.mktemp("reader")
    with (home / "said").open("w") as errors, subprocess.Popen(
        [sys.executable, "-c", f"ANSWER = {ANSWER!r}\n{SCRIPT}"],
        env={**os.environ, "AIRFLOW_HOME": str(home)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as process:  # fmt: skip
        yield process, home / "said"


@pytest.fixture
def read(reader, project):
    """Read the DAG files of the project; return what was made, and which heavy modules are loaded."""
    process, log = reader

    def once(before="pass"):
        process.stdin.write(f"{json.dumps([str(project / 'dags'), before])}\n")
        process.stdin.flush()
        answer = next((line for line in process.stdout if line.startswith(ANSWER)), None)
        assert answer is not None, log.read_text()
        answer_values = json.loads(answer.removeprefix(ANSWER))
        return answer_values["dags"], answer_values["heavy"]

    return once


def own(project, job):
    """Own the log of a job's checkpoint, as its driver does."""
    store = LocalStore(project / "checkpoints" / job)
    open_or_create(store, now=0)
    return checkpoint_samples.own(Log(store))


@pytest.fixture
def project(tmp_path):
    """A project with one job and the DAG files of this one, but the examples, which name another job."""
    root = make_project(tmp_path / "project")
    shutil.copytree(DAGS, root / "dags", ignore=shutil.ignore_patterns("__pycache__", "examples"))
    return root


def test_a_project_has_a_dag_for_each_job_and_one_for_each_request(project, read):
    """Files of about ten lines, which load nothing heavy; a restart is followed, and a request is one task."""
    dags, heavy = read()
    assert heavy == []
    assert {name: dag["tasks"] for name, dag in dags.items()} == {
        **{REQUESTS[request]: [request.value] for request in Request},
        "stream_orders": ["deploy", "healthy", "supervise"],
        "restart_from_checkpoint": ["restart", "supervise"],
        "quality_reports": ["pick", "report"],
        "checkpoint_upkeep": ["pick", "verify"],
    }
    assert all(dag["lines"] <= 10 for dag in dags.values())
    assert dags["stream_orders"]["params"] == ["bytes", "files", "note", "restart", "rows", "start"]
    begins = ["bytes", "checkpoint", "drop", "files", "note", "partitions", "rows", "state", "truncate_sinks"]
    assert dags["restart_from_checkpoint"]["params"] == begins
    sent = re.findall(r"^      (\w+): (?:`|data|numbered)", SCRIPT_OF_THE_PAGES.read_text(), re.MULTILINE)
    assert sorted(sent) == begins
    assert dags["quality_reports"]["assets"] == ["penstock://orders/windows"]
    assert [dags[name]["schedule"] for name in ("stream_orders", "checkpoint_upkeep")] == ["None", "@daily"]
    assert dags["stream_orders"]["now"] == [False]


def test_a_form_asks_for_nothing_but_what_somebody_must_choose(project, read):
    """Airflow's form sends nothing while a field is empty that takes no null; no job is chosen for anybody."""
    dags, _ = read()
    for name, dag in dags.items():
        beside = {
            "save_checkpoint": ["name"],
            "release_held_batch": ["batch"],
            "discard_held_batch": ["batch"],
            "requeue_rows": ["source"],
            "redo_sink": ["sink"],
            "skip_sink": ["sink"],
        }
        chosen = {"restart_from_checkpoint": ["checkpoint"], **{setting: ["job"] for setting in REQUESTS.values()}}
        assert dag["required"] == sorted([*chosen.get(name, []), *beside.get(name, [])])


@pytest.mark.parametrize(
    ("error", "dag", "titles"),
    [
        (StepsChanged, "restart_from_checkpoint", ["Steps and sources to drop", "Job and checkpoint"]),
        (RequeueRefused, "requeue_rows", ["From batch"]),
    ],
)
def test_a_remedy_that_airflow_shows_names_the_field_of_its_form(error, dag, titles, project, read):
    """A browser takes no words of a shell, so what they do is said by the title that the form has for it."""
    dags, _ = read()
    assert [title for title in titles if title not in dags[dag]["titles"]] == []
    assert [title for title in titles if title not in error.remedy] == []


def test_held_batches_are_listed_in_the_browser_too():
    """Their remedy names the page that lists them, beside the command."""
    assert "the page of the stream" in HeldNotFound.remedy


def test_tasks_run_where_the_configuration_says_and_no_stream_keeps_a_command_waiting(project, read):
    """What waits for a stream is deferred; what follows it has a pool, and commands go before it, in Airflow's own."""
    dags, _ = read()
    assert dags["stream_orders"]["placed"]["supervise"] == ["default_pool", 1, "default", "airflow", True]
    assert dags["stream_orders"]["placed"]["healthy"] == ["default_pool", 101, "default", "airflow", True]
    assert dags["stream_orders"]["placed"]["deploy"] == ["default_pool", 101, "default", "airflow", None]
    conf = project / "conf" / "penstock.toml"
    conf.write_text(conf.read_text() + '\n[airflow]\npool = "streams"\nqueue = "spark"\nowner = "ann"\npriority = 7\n')
    (project / "conf" / "jobs" / "orders.toml").write_text(
        job_toml(more="\n[airflow]\ndeferrable = false\npriority = 9\n")
    )
    dags, _ = read()
    assert dags["stream_orders"]["placed"]["supervise"] == ["streams", 9, "spark", "ann", False]
    assert dags["stream_orders"]["placed"]["healthy"] == ["default_pool", 109, "spark", "ann", False]
    assert dags["restart_from_checkpoint"]["placed"] == {
        "restart": ["default_pool", 107, "spark", "ann", True], "supervise": ["streams", 7, "spark", "ann", True]
    }  # fmt: skip
    assert dags["stop_stream"]["placed"] == {"stop": ["default_pool", 107, "spark", "ann", True]}
    assert dags["save_checkpoint"]["placed"] == {"save": ["default_pool", 107, "spark", "ann", None]}
    own = "import os; os.environ['AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE'] = 'False'"
    assert read(own)[0]["restart_from_checkpoint"]["placed"]["supervise"][-1] is False
    assert read("os.environ.pop('AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE')")[0] == dags


@pytest.mark.fault("F78")
def test_a_store_that_does_not_answer_takes_no_dag_away_and_changes_none(project, read):
    """25 jobs on an HDFS that cannot be reached, or on a disk that hangs: forms offer what they did before.

    Each file waits once for all of its stores; a wait for each job would exceed the time that Airflow gives a file.
    """
    for number in range(25):
        shutil.copy(project / "jobs" / "orders.py", project / "jobs" / f"job_{number}.py")
        (project / "conf" / "jobs" / f"job_{number}.toml").write_text(job_toml())
    owned = own(project, "job_7")
    for batch in range(3):
        run_batch(owned, batch)
    before, _ = read()
    assert "batch=2" in before["stream_job_7"]["offers"]["start"]
    named = (project / "conf" / "penstock.toml").read_text()
    (project / "conf" / "penstock.toml").write_text(named.replace('"checkpoints"', '"webhdfs://10.255.255.1/penstock"'))
    after, _ = read()
    assert after == before
    silent = "penstock.airflow.form_values.job_log = lambda folder: threading.Event().wait()"
    hung, _ = read(silent)
    assert hung == before
    assert len([name for name in after if name.startswith("stream_")]) == 26


def test_forms_offer_what_can_be_restored_and_a_dag_of_a_stream_that_runs_stands_still(project, read):
    """The newest batches and no more; Airflow keeps every version of a DAG, and a stream commits all day."""
    records = StreamRecords(control_store(project / "checkpoints"), "orders")
    owned = own(project, "orders")
    offered = []
    for batches, phase in ((range(30), Phase.STOPPED), (range(30, 32), Phase.RUNNING)):
        for batch in batches:
            run_batch(owned, batch)
        wish = Wish.RUN if phase is Phase.RUNNING else Wish.STOP
        records.update(lambda stream, p=phase, w=wish: (stream.having(phase=p, wish=w), None))
        dags, _ = read()
        offered.append(
            (dags["stream_orders"]["offers"]["start"], dags["restart_from_checkpoint"]["offers"]["checkpoint"])
        )
    newest = [[f"batch={batch}" for batch in range(29, 9, -1)]]
    assert offered[0] == (["last", *newest[0], "empty"], [f"orders {s}" for s in ("last", *newest[0], "empty")])
    assert offered[1] == (["last", "empty"], ["orders last", "orders empty"])


def test_forms_offer_saved_checkpoints_also_of_a_stream_that_runs(project, read):
    """They change when a person saves or deletes one; a stream that runs goes back to them by its restart."""
    records = StreamRecords(control_store(project / "checkpoints"), "orders")
    records.update(lambda stream: (stream.having(phase=Phase.RUNNING, wish=Wish.RUN), None))
    owned = own(project, "orders")
    owned.append(saved_as("friday", run_batch(owned, 0)))
    run_batch(owned, 1)
    offers = {name: dag["offers"] for name, dag in read()[0].items()}
    assert offers["stream_orders"]["start"] == ["last", "saved=friday", "empty"]
    assert offers["restart_from_checkpoint"]["checkpoint"] == [f"orders {s}" for s in ("last", "saved=friday", "empty")]


ARGUMENTS = """
[airflow.default_args]
retries = 7
retry_delay = "2 minutes"
email = "ops@example.org"
email_on_failure = true
execution_timeout = "1 hours"
"""
BAG = """
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(folder)
found["bag"] = {"errors": bag.import_errors, "dags": {name: {t.task_id: [
    t.retries, t.retry_delay.total_seconds(), t.email, t.email_on_failure,
    t.execution_timeout and t.execution_timeout.total_seconds(), t.owner] for t in dag.tasks}
    for name, dag in bag.dags.items()}}
"""


def test_arguments_of_tasks_come_from_the_configuration(project, read):
    """All DAGs have the project's; a job says its own, key by key; who follows a stream has no limit of time."""
    conf = project / "conf" / "penstock.toml"
    conf.write_text(f"{conf.read_text()}\n[airflow]\nowner = 'ann'\n{ARGUMENTS}")
    own_job = "\n[airflow.default_args]\nretries = 200\n"
    (project / "conf" / "jobs" / "orders.toml").write_text(job_toml(more=own_job))
    bag = read(BAG)[0]["bag"]
    assert bag["errors"] == {}
    arguments = [120.0, "ops@example.org", True]
    assert bag["dags"]["stream_orders"] == {
        "deploy": [200, *arguments, 3_600.0, "ann"],
        "healthy": [200, *arguments, 3_600.0, "ann"],
        "supervise": [200, *arguments, None, "ann"],
    }
    assert bag["dags"]["restart_from_checkpoint"] == {
        "restart": [7, *arguments, 3_600.0, "ann"], "supervise": [100, *arguments, None, "ann"]
    }  # fmt: skip
    for dag in ("stop_stream", "quality_reports", "checkpoint_upkeep"):
        assert list(bag["dags"][dag].values()) == [[7, *arguments, 3_600.0, "ann"]] * len(bag["dags"][dag])


def test_reading_the_dag_files_makes_nothing(project, read):
    """A control root that is not there may be on a disk that is not mounted."""
    read()
    assert not (project / "checkpoints").exists()


def test_a_job_with_a_schedule_runs_until_what_is_there_is_done(project, read):
    """One run at a time; a job without a file in conf has no DAG."""
    (project / "conf" / "jobs" / "orders.toml").write_text(job_toml(more='\n[airflow]\nschedule = "15 * * * *"\n'))
    (project / "jobs" / "other.py").write_text("")
    dags, _ = read()
    mine = dags["stream_orders"]
    assert (mine["schedule"], mine["now"], mine["runs"]) == ("15 * * * *", [True], 1)
    assert "stream_other" not in dags


@pytest.mark.fault("F66")
def test_a_job_whose_file_is_wrong_hides_no_other(project, read):
    """It has its DAG, whose run says what is wrong."""
    shutil.copy(project / "jobs" / "orders.py", project / "jobs" / "second.py")
    (project / "conf" / "jobs" / "second.toml").write_text("[sources\n")
    dags, _ = read()
    assert {"stream_orders", "stream_second"} <= set(dags)


def test_a_project_without_jobs_has_dags_that_can_be_read(project, read):
    """There is nothing to wait for then."""
    (project / "conf" / "jobs" / "orders.toml").unlink()
    dags, _ = read()
    for_all = ["checkpoint_upkeep", "quality_reports", "restart_from_checkpoint"]
    assert sorted(dags) == sorted([*for_all, *REQUESTS.values()])
