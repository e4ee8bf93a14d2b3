"""The operators that run `penstock` in a process of its own: what they make of how it ends.

Airflow is loaded once, in a process of its own as well: when it is, it configures the logging of all of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow]

SCRIPT = """
import json, os, sys, threading, time
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from penstock.airflow import CheckpointUpkeep, QualityReport, RedoSink, RequeueRows, SkipSink

def end(case):
    kind = {"report": QualityReport, "upkeep": CheckpointUpkeep, "requeue": RequeueRows, "redo": RedoSink, "skip": SkipSink}[case["operator"]]
    operator = kind(task_id="t", project=case["project"], python=case["python"], **{"job": "orders", **case["more"]})
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=case["map_index"])
    took = []
    def kill():
        while not os.path.exists(case["project"] + "/begun"):
            time.sleep(0.02)
        began = time.monotonic()
        operator.on_kill()
        took.append(time.monotonic() - began)
    if case["kill"]:
        threading.Thread(target=kill).start()
    try:
        return "said", operator.execute({"ti": ti}), took
    except AirflowFailException as why:
        return "hopeless", str(why), took
    except AirflowException as why:
        return "again", str(why), took

print(json.dumps({name: end(case) for name, case in json.load(open(sys.argv[1])).items()}))
"""
MADE = '{"check": "sane", "verdict": "%s", "windows": %d, "failed": 1, "noted": 0, "page": "p", "more": %s}'
TABLE = {"job": "orders", "sink": "out", "joined": 8, "made": 1, "deleted": 2, "size": 10, "left_alone": ""}
READ = {"job": "orders", "batches": 2, "files": 3, "bytes": 4, "problems": [], "swept": 0}
THREE = (
    'n=$(wc -l < "$(dirname "$0")/calls"); if [ "$n" -lt 3 ]; then '
    f"echo '{MADE % ('failed', 5, 'true')}'; else echo '{MADE % ('passed', 2, 'false')}'; fi"
)
FAILED = f"echo '{MADE % ('failed', 3, 'false')}'"
ASKED = {"job": "orders", "source": "taps", "command": "d/r/t", "done": False}
STAND = {"job": "orders", "sinks": [{"sink": "clean", "missing": {"4": 9}, "waiting": {}}]}
SLEEPS = 'touch "$(dirname "$0")/begun"\nsleep 4 & wait $!\nsleep 1'
CASES = {
    "three": ("report", THREE, {"more": {"check": "sane", "newest": ""}}),
    "three again": ("report", THREE, {}),
    "another task": ("report", THREE, {"map_index": 1}),
    "a window failed": ("report", FAILED, {}),
    "a window failed, and fail": ("report", FAILED, {"more": {"fail": True}}),
    "read": ("upkeep", f"echo warning; echo '{json.dumps(READ)}'; echo '{json.dumps(TABLE)}'", {}),
    "rows": ("requeue", f"echo '{json.dumps(ASKED)}'", {"more": {"source": "taps", "from_batch": ""}}),
    "rows of batch 0": (
        "requeue",
        f"echo '{json.dumps(ASKED)}'",
        {"more": {"source": "taps", "from_batch": 0, "wait": True}},
    ),
    "a redo": ("redo", f"echo '{json.dumps(STAND)}'", {"more": {"sink": "clean"}}),
    "a skip": ("skip", f"echo '{json.dumps(STAND)}'", {"more": {"sink": "clean"}}),
    "an option for a sink": ("skip", FAILED, {"more": {"sink": "--help"}}),
    "an option for a source": ("requeue", FAILED, {"more": {"source": "--help"}}),
    "no number of a batch": ("requeue", FAILED, {"more": {"source": "taps", "from_batch": "-1"}}),
    "killed": ("upkeep", SLEEPS, {"kill": True}),
    "killed, and deaf": ("upkeep", f"trap '' TERM\n{SLEEPS}", {"kill": True}),
    "an option for a job": ("report", FAILED, {"more": {"job": "--help"}}),
    "a path for a job": ("upkeep", FAILED, {"more": {"job": "../orders"}}),
    **{f"code {n}": ("upkeep", f"echo 'PEN-XYZ-001 it' >&2; exit {n}", {}) for n in (2, 70, 75, 77, 78)},
    "warned": ("upkeep", "printf 'WARNING: of Java\\nPEN-XYZ-001 it\\n  do: that\\n' >&2; exit 78", {}),
    "no code": ("upkeep", "printf 'one\\ntwo\\n' >&2; exit 78", {}),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Run every case, its command a shell script; return how each ended, and the words of its calls."""
    root = tmp_path_factory.mktemp("operators")
    asked = {}
    for number, (name, (operator, script, more)) in enumerate(CASES.items()):
        folder = root / str(number)
        folder.mkdir()
        command = folder / "python"
        command.write_text(f'#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\n{script}\n')
        command.chmod(0o755)
        plain = {"operator": operator, "project": str(folder), "python": str(command)}
        asked[name] = {**plain, "more": {}, "map_index": -1, "kill": False, **more}
    (root / "cases.json").write_text(json.dumps(asked))
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root / "cases.json")],
        env={**os.environ, "AIRFLOW_HOME": str(root / "airflow")},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout.splitlines()[-1])
    files = {name: root / str(n) / "calls" for n, name in enumerate(CASES)}
    calls = {name: file.read_text().splitlines() if file.exists() else [] for name, file in files.items()}
    return {name: (*results[name], calls[name], asked[name]["project"]) for name in CASES}


def names_of(calls):
    """Return the names of the reports that were asked for."""
    return [call.split("--run ")[1].split()[0] for call in calls]


def test_reports_are_made_until_nothing_waits(ended):
    """Each under a name of its own, the same in every try of the task, another for another task."""
    kind, reports, _, calls, project = ended["three"]
    assert (kind, [report["windows"] for report in reports]) == ("said", [5, 5, 2])
    names = names_of(calls)
    assert [name.rpartition("-")[2] for name in names] == ["0", "1", "2"]
    assert len({name.rpartition("-")[0] for name in names}) == 1
    assert all(call.startswith("-m penstock report orders --if-any --run ") for call in calls)
    assert all(call.endswith(f"--check sane --json --project {project}") for call in calls)
    assert names_of(ended["three again"][3]) == names
    assert not set(names_of(ended["another task"][3])) & set(names)


@pytest.mark.parametrize(
    "what",
    [
        "an option for a job",
        "a path for a job",
        "an option for a sink",
        "an option for a source",
        "no number of a batch",
    ],
)
def test_what_is_no_name_of_a_job_reaches_no_command(ended, what):
    """Whatever a template has made of a form: the task fails for good, and nothing was run."""
    kind, error, _, calls, _ = ended[what]
    assert (kind, calls) == ("hopeless", [])
    noun = {
        "job": "name of a job",
        "sink": "name of a sink",
        "source": "name of a source",
        "batch": "number of a batch",
    }[what.split()[-1]]
    assert f"is not the {noun}" in error


@pytest.mark.parametrize("repair", ["redo", "skip"])
def test_a_sink_is_reconciled_by_its_command(ended, repair):
    """An operator of Airflow has no shell in which the remedy could be typed."""
    kind, answer, _, calls, project = ended[f"a {repair}"]
    command = f"-m penstock sinks orders {repair} clean --json --project {project}"
    assert (kind, answer, calls) == ("said", STAND["sinks"][0], [command])


def test_rows_are_requeued_once_for_each_task(ended):
    """The request has the id of the task, so a try again leaves no second one; a template's empty field asks for none."""
    kind, answer, _, calls, project = ended["rows"]
    command = "-m penstock requeue orders --source taps --command d/r/t"
    end = f"--json --project {project}"
    assert (kind, answer, calls) == ("said", ASKED, [f"{command} {end}"])
    again = ended["rows of batch 0"]
    assert again[3] == [f"{command} --from-batch 0 --wait --json --project {again[4]}"]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("code", "kind"), [(78, "hopeless"), (2, "hopeless"), (75, "again"), (70, "again"), (77, "again")]
)
def test_what_a_person_must_mend_is_not_tried_again(ended, code, kind):
    """The rest is; both say what the command has said."""
    assert ended[f"code {code}"][:2] == (kind, "PEN-XYZ-001 it")
    assert len(ended[f"code {code}"][3]) == 1


def test_a_failure_begins_with_the_error(ended):
    """Airflow shows its first line: what Java has warned of before it stays in the log."""
    assert ended["warned"][:2] == ("hopeless", "PEN-XYZ-001 it\n  do: that")
    assert ended["no code"][:2] == ("hopeless", "one\ntwo")


def test_a_failed_window_fails_the_task_where_that_is_wanted(ended):
    """Else the task has done its work."""
    assert ended["a window failed"][0] == "said"
    assert ended["a window failed, and fail"][:2] == ("hopeless", "windows failed: sane")


def test_upkeep_gives_what_was_read(ended):
    """And what was done to each table; lines that are no JSON are passed over."""
    assert ended["read"][:2] == ("said", {**READ, "sinks": [TABLE]})


@pytest.mark.fault("F11")
@pytest.mark.parametrize("name", ["killed", "killed, and deaf"])
def test_a_kill_of_the_task_ends_the_command_and_waits_for_nothing(ended, name):
    """A command that does not hear cannot hold the worker."""
    kind, error, took, calls, _ = ended[name]
    assert len(took) == len(calls) == 1
    assert kind == "again"
    assert error.endswith("has said nothing") == (name == "killed, and deaf")
