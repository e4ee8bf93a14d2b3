"""A command is one module and one name in a list: this one is not in Penstock, and works as those that are."""

from __future__ import annotations

import json
import sys

import pytest
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli.main import COMMANDS, app, make_app

MODULE = '''
"""`penstock sources JOB`: count the sources of a job."""

from __future__ import annotations

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, write_json

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def sources(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Count the sources of a job."""
    with outcome(debug=debug):
        count = len(project_at(project).load(job).job.graph().sources)
        if json:
            write_json({"job": job, "sources": count})
        else:
            print(f"{job}: {count} sources")
'''


@pytest.fixture
def penstock(tmp_path, monkeypatch):
    """Return what runs the command that has one more module, in a project."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "made_up_sources.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    larger = make_app((*COMMANDS, "made_up_sources"))
    monkeypatch.chdir(make_project(tmp_path / "project", rows=10))
    return lambda *words: CliRunner().invoke(larger, [*words])


def test_it_has_help_beside_the_others(penstock):
    """As the last of them; the command that users have is as it was."""
    first, second = (CliRunner().invoke(app, ["--help"]).stdout, penstock("--help").stdout)
    assert " ".join(second.removeprefix(first.rstrip()).split()) == "sources Count the sources of a job."
    text = penstock("sources", "--help").stdout
    assert all(option in text for option in ("{JOB}", "--json", "--project", "--debug"))


def test_it_runs_for_people_and_for_programs(penstock):
    """In the project that is there."""
    assert penstock("sources", "orders").stdout == "orders: 1 sources\n"
    assert json.loads(penstock("sources", "orders", "--json").stdout) == {"job": "orders", "sources": 1}


def test_its_errors_become_exit_codes(penstock):
    """With what, where and what to do."""
    refused = penstock("sources", "nowhere")
    assert (refused.exit_code, "PEN-JOB-009" in refused.stderr, "\n  do: " in refused.stderr) == (78, True, True)
    assert penstock("sources").exit_code == 2
