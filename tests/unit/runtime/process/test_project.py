"""A project is found from any folder in it, and a job is loaded with errors that name the user's line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from project_samples import JOB, make_project

from penstock.errors import ConfigError, JobError, JobNotFound, MissingLatePolicy
from penstock.runtime.process.project import Project, code_version, find_project


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project with the job `orders`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    return make_project(tmp_path / "project", rows=10)


def test_the_root_is_the_nearest_parent_with_the_file(root):
    """Also from a folder below, and not where no parent has one."""
    below = root / "deep" / "down"
    below.mkdir(parents=True)
    assert find_project(below).root == root
    assert find_project(root).root == root
    assert find_project(given=root).root == root
    with pytest.raises(ConfigError, match=r"neither this folder nor one above it has a conf/penstock.toml"):
        find_project(root.parent)
    with pytest.raises(ConfigError, match=r"there is no conf/penstock.toml") as caught:
        find_project(given=below)
    assert caught.value.where == str(below)


def test_a_job_is_built_with_its_configuration(root):
    """`jobs/orders.py` is called with what `conf/jobs/orders.toml` says; workers find it by its name."""
    loaded = find_project(root).load("orders")
    assert loaded.job.name == "orders"
    assert loaded.job.graph().sources[0].source.path == root / "orders.parquet"
    assert loaded.conf.unused() == []
    assert sys.modules["jobs.orders"].__file__ == str(root / "jobs" / "orders.py")
    assert sys.path[0] == str(root)


def test_the_module_is_read_anew_and_may_import_its_neighbours(root):
    """Two projects in one process do not see each other's jobs."""
    (root / "jobs" / "_names.py").write_text("NAME = 'orders'\n")
    (root / "jobs" / "orders.py").write_text(
        JOB.replace("def build", "from jobs._names import NAME\n\ndef build").replace('Job("orders"', "Job(NAME")
    )
    assert find_project(root).load("orders").job.name == "orders"
    assert find_project(root).job_names() == ["orders"]


@pytest.mark.remedy("PEN-JOB-009")
@pytest.mark.fault("F61")
@pytest.mark.parametrize("name", ["order", "../orders", "Orders", "", "orders.py", "a" * 64, "conf/../orders"])
def test_what_is_no_job_is_refused_before_a_path_is_made_of_it(root, name):
    """The name comes from a command line or a form."""
    with pytest.raises(JobNotFound) as caught:
        find_project(root).settings(name)
    assert "'orders'" in caught.value.what
    find_project(root).settings("orders")


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("def build(conf):", "def build(conf:"), 7, "not Python"),
        (('conf.source("orders")', "conf.orders"), 9, "AttributeError"),
        (("from penstock import Job", "from penstock import Jobb"), 2, "ImportError"),
        (("return job", "return None"), None, "returned NoneType, not a Job"),
        (("def build", "def built"), None, "no function build(conf)"),
        (('Job("orders"', 'Job("other"'), None, "the job is named 'other' and its module 'orders'"),
    ],
)
def test_code_that_does_not_build_is_refused_at_its_line(root, monkeypatch, change, line, message):
    """One error, with the user's line where there is one."""
    monkeypatch.chdir(root)
    (root / "jobs" / "orders.py").write_text(JOB.replace(*change, 1))
    with pytest.raises(JobError) as caught:
        find_project(root).load("orders")
    assert message in caught.value.what
    assert caught.value.where == ("jobs/orders.py" if line is None else f"jobs/orders.py:{line}")


def test_errors_of_the_graph_pass_through(root):
    """They name the user's line already."""
    (root / "jobs" / "orders.py").write_text(JOB.replace(".drop_late()", ""))
    with pytest.raises(MissingLatePolicy) as caught:
        find_project(root).load("orders")
    assert caught.value.where == f"{root / 'jobs' / 'orders.py'}:12"


def test_the_code_version_names_commit_and_configuration(root):
    """Without git it says so; with other settings it is another one."""
    first = code_version(Project(root), "orders")
    assert first.startswith("no-git+conf.")
    (root / "conf" / "jobs" / "orders.toml").write_text("[run]\ntrigger = 'as_fast'\n")
    assert code_version(Project(root), "orders") != first
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    commit = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True
    )
    assert code_version(Project(root), "orders").startswith(f"{commit.stdout.strip()}+conf.")
    (root / "jobs" / "orders.py").write_text("changed = True\n")
    assert code_version(Project(root), "orders").startswith(f"{commit.stdout.strip()}-dirty+conf.")
