"""`penstock streams` and commands on streams whose files are in trouble: one job's trouble is that job's."""

from __future__ import annotations

import json
import shutil

import pytest
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.runtime.roots import control_store


@pytest.fixture
def root(tmp_path):
    """A project with two jobs."""
    root = make_project(tmp_path / "project", rows=10)
    shutil.copy(root / "jobs" / "orders.py", root / "jobs" / "second.py")
    return root


def run(root, *words):
    """Run a command of the project; return its exit code, what it said and what it complained of."""
    found = CliRunner().invoke(app, [*words, "--project", str(root)])
    return found.exit_code, found.stdout, found.stderr


def test_all_jobs_are_listed_where_nothing_was_ever_started(root):
    """And looking makes no control root."""
    code, said, _ = run(root, "streams", "--json")
    assert (code, [(s["job"], s["phase"]) for s in json.loads(said)]) == (
        0,
        [("orders", "STOPPED"), ("second", "STOPPED")],
    )
    assert not (root / "checkpoints").exists()


def test_a_command_without_a_control_root_is_refused(root):
    """Nobody would ever read what it writes."""
    code, _, err = run(root, "start", "orders")
    assert (code, "PEN-SUP-004" in err, "penstock supervise" in err) == (75, True, True)
    assert not (root / "checkpoints").exists()


@pytest.mark.fault("F66")
def test_a_job_whose_file_is_wrong_hides_no_other(root):
    """Its row says what is wrong, and where."""
    control_store(root / "checkpoints")
    assert run(root, "start", "orders")[0] == 0
    (root / "conf" / "jobs" / "second.toml").write_text("[sources\n")
    code, said, _ = run(root, "streams", "--json")
    rows = {s["job"]: s for s in json.loads(said)}
    assert (code, rows["orders"]["phase"]) == (0, "SUBMITTING")
    assert "second.toml" in rows["second"]["reason"]
    assert "second.toml" in run(root, "streams")[1]


def test_a_stream_whose_code_is_gone_is_seen_and_stopped(root):
    """It runs from a copy; a job that never had a stream is still no job."""
    control_store(root / "checkpoints")
    assert run(root, "start", "second")[0] == 0
    (root / "jobs" / "second.py").unlink()
    assert "second" in run(root, "streams")[1]
    assert run(root, "stop", "second")[0] == 0
    assert "PEN-JOB" in run(root, "stop", "third")[2]


def test_a_start_of_a_stream_that_runs_says_what_it_set(root):
    """Limits and note; the generation stays."""
    control_store(root / "checkpoints")
    assert "generation 1" in run(root, "start", "orders")[1]
    code, said, _ = run(root, "start", "orders", "--rows", "7")
    assert (code, said) == (0, "orders: it runs (generation 1), with these limits and this note from now on\n")
    assert "nothing to do" in run(root, "start", "orders", "--rows", "7")[1]
