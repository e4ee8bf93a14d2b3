"""A checkpoint is moved by the command, and its tables take each batch once at the new place (SEMANTICS 10.2)."""

from __future__ import annotations

import json
from functools import partial

import pytest
from deltalake import DeltaTable
from test_truncate_sinks import ALL, ROWS, make_job, shown
from typer.testing import CliRunner

from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.errors import CheckpointMoved
from penstock.runtime.process import takeover_policy
from penstock.runtime.process.takeover_policy import HolderWatch
from penstock.testing import Crashed, Harness

JOB = """
from pathlib import Path
from test_truncate_sinks import make_job

def build(conf):
    return make_job(Path("tables"))
"""


@pytest.fixture
def project(tmp_path):
    """A project with jobs and no checkpoint."""
    for folder in ("conf/jobs", "jobs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text('[checkpoint]\nroot = "checkpoints"\n')
    for name in ("taken_back", "other"):
        (tmp_path / "jobs" / f"{name}.py").write_text(JOB)
    return tmp_path


def asked(project, *words):
    """Run a command in the project."""
    return CliRunner().invoke(app, [*map(str, words), "--project", str(project)])


@pytest.mark.fault("F01", "F31")
def test_a_moved_checkpoint_goes_on_with_tables_that_take_each_batch_once(project, tmp_path, monkeypatch):
    """A batch that was committed and not published, a name, kept batches and open windows are all there."""
    monkeypatch.setattr(
        takeover_policy, "HolderWatch", partial(HolderWatch, runs=lambda _pid, _start: False)
    )  # it is killed
    old, tables = tmp_path / "old", tmp_path / "tables"
    with Harness(make_job(tables), old) as h:
        h.batch({"orders": ROWS[0]})
        h.save("first")
        h.crash_before("PublishSinks")
        with pytest.raises(Crashed):
            h.batch({"orders": ROWS[1]})
    uuid = read_metadata(LocalStore(old / "taken_back")).uuid
    missing = DeltaTable(str(tables / "raw")).to_pyarrow_table().num_rows
    assert missing == 2
    done = asked(project, "import", old / "taken_back", "taken_back", "--move", "--json")
    report = json.loads(done.output)
    assert (done.exit_code, report["already"], report["uuid"], report["next_batch"]) == (0, False, uuid, 2), done.output
    job = make_job(tables)
    job.graph().sources[0].source.continue_from(h.job.graph().sources[0].source)
    with Harness(job, project / "checkpoints") as there:
        for rows in ROWS[2:]:
            there.batch({"orders": rows})
        assert shown(there) == ALL
        there.restore(saved="first")
        assert there.commit().batch == 0
    with pytest.raises(CheckpointMoved), Harness(make_job(tables), old):
        pass


def test_the_command_says_what_it_did_and_what_cannot_be_moved(project, tmp_path):
    """Done again it says so; nothing goes on at the old place, and what is no checkpoint is not moved."""
    with Harness(make_job(tmp_path / "tables"), tmp_path / "old") as h:
        h.batch({"orders": ROWS[0]})
    move = ("import", tmp_path / "old" / "taken_back", "taken_back", "--move")
    for words in ("has moved here from", "was moved here from"):
        done = asked(project, *move)
        assert (done.exit_code, words in done.output, "it resumes at batch 1" in done.output) == (0, True, True), done
    for words, code in (
        (("import", tmp_path / "old" / "taken_back", "other", "--move"), "PEN-CKP-026 the job has moved to"),
        (("import", tmp_path / "tables", "other", "--move"), "PEN-CKP-025 no checkpoint: a move takes the folder"),
        (("import", project / "checkpoints" / "taken_back", "taken_back", "--move"), "there is a checkpoint already"),
    ):
        refused = asked(project, *words)
        assert (refused.exit_code, code in refused.output) == (78, True), refused.output
    (project / "conf" / "jobs" / "taken_back.toml").write_text(f'[checkpoint]\nroot = "{tmp_path / "old"}"\n')
    report = json.loads(asked(project, "status", "taken_back", "--json").output)
    assert (report["state"], report["moved_to"]) == ("moved", str(project / "checkpoints" / "taken_back"))
    refused_there = ("run", "restore --from batch=0", "start", "restart --from batch=0", "save a", "diff", "held list")
    for command in ((word, "taken_back", *more) for word, *more in map(str.split, refused_there)):
        refused = asked(project, *command)
        assert (refused.exit_code, "PEN-CKP-026" in refused.output) == (78, True), (command, refused.output)
