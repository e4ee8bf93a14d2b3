"""Which project DAG files, tasks and pages are of, with a folder of DAGs and with DAG bundles."""

from __future__ import annotations

import pytest
from apart import run_apart

pytestmark = [pytest.mark.slow]

SCRIPT = """
import json, os, shutil, sys
from pathlib import Path
from types import SimpleNamespace
PROJECT = Path(sys.argv[1])
BUNDLES = PROJECT.parent / "bundles"
VERSION = BUNDLES / "git" / "versions" / "abc"
(PROJECT / "dags").mkdir()
(PROJECT.parent / "empty").mkdir()
shutil.copytree(PROJECT, VERSION, symlinks=True, ignore=shutil.ignore_patterns("checkpoints", "airflow"))
os.environ["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH"] = str(BUNDLES)
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(PROJECT.parent / "empty")
LOCAL = {"name": "local", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
         "kwargs": {"path": str(PROJECT / "dags")}}
os.environ["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"] = json.dumps([LOCAL])
from airflow.sdk.exceptions import AirflowFailException
from penstock.airflow import StartStream
from penstock.airflow.projects import project_of, project_of_pages

def starts(project):
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
    try:
        return StartStream(task_id="t", job="orders", project=str(project)).execute({"ti": ti})["outcome"]
    except AirflowFailException as why:
        return str(why)

said = {"file": str(project_of(str(VERSION / "dags" / "streams.py")).root), "version": str(VERSION.resolve()),
        "pages": str(project_of_pages().root), "moving": starts(VERSION), "made": (VERSION / "checkpoints").exists()}
conf = VERSION / "conf" / "penstock.toml"
conf.write_text(conf.read_text().replace('"checkpoints"', json.dumps(str(PROJECT / "checkpoints"))))
said["absolute"] = starts(VERSION)
os.environ["AIRFLOW__PENSTOCK__PROJECT"] = str(PROJECT)
said["named"] = [str(project_of(str(VERSION / "dags" / "streams.py")).root), str(project_of_pages().root)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What was found."""
    project, by_case = run_apart(SCRIPT, tmp_path_factory.mktemp("projects"))
    return {"project": str(project.resolve()), **by_case}


def test_a_dag_file_is_of_the_project_it_lies_in_and_pages_find_that_of_a_bundle(answers):
    """The folder of DAGs is in no project here."""
    assert (answers["file"], answers["pages"]) == (answers["version"], answers["project"])


def test_a_checkpoint_root_that_moves_with_each_version_of_a_bundle_is_refused(answers):
    """Nothing is made there; an absolute root is what the error asks for, and it works."""
    assert "the checkpoint root lies in a DAG bundle" in answers["moving"]
    assert not answers["made"]
    assert answers["absolute"] == "done"


def test_a_project_that_airflow_is_told_counts_for_all(answers):
    """`project` in `[penstock]` of airflow.cfg, or its variable."""
    assert answers["named"] == [answers["project"]] * 2
