"""`penstock restore`: it restores what is named, runs nothing, and refuses what it cannot restore."""

from __future__ import annotations

import json

import pytest
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli.main import app


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name the checkpoint to restore"),
        (("--from", "batch"), "is none of last, batch=N"),
        (("--from", "batch=1", "--state", "minutely"), "is not STEP=TABLE"),
        (("--from", "batch=1", "--drop", "../x"), "is no name of a step"),
        (("--from", "batch=1", "--command", "a b"), "an id is 1 to 250 letters"),
        (("--truncate-sinks",), "say with --from"),
    ],
    ids=["nothing", "no batch", "no table", "no step", "no id", "no batch for sinks"],
)
def test_a_command_line_that_restores_nothing_is_refused(tmp_path, words, why):
    """Before a project is looked for: there is none here."""
    result = CliRunner().invoke(app, ["restore", "orders", *words, "--project", str(tmp_path)])
    assert (result.exit_code, why in " ".join(result.stderr.split())) == (2, True)


def test_a_restore_without_a_checkpoint_is_an_event_and_an_error(tmp_path):
    """The event is JSON where standard output is no terminal."""
    root = make_project(tmp_path / "project", rows=10)
    result = CliRunner().invoke(app, ["restore", "orders", "--from", "batch=3", "--project", str(root)])
    assert (result.exit_code, json.loads(result.stdout)["event"]) == (78, "run.failed")
    assert "there is no checkpoint to restore batch 3 from" in result.stderr
