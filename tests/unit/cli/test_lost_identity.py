"""Each command that opens a checkpoint names a metadata.json that is missing or torn (F13, F17)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets, own
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Release
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app

COMMANDS = [
    "status orders",
    "status orders --watermarks",
    "checkpoints orders",
    "held orders list",
    "held orders release 0",
    "held orders discard 0",
    "sinks orders list",
    "sinks orders redo totals",
    "sinks orders skip totals",
    "requeue orders --source orders",
    "save orders friday",
    "save orders friday --delete",
    "restore orders --from batch=0",
    "restore orders --from empty",
    "run orders --available-now",
    "diff orders",
    "state orders totals",
    "export orders elsewhere",
    "import former/orders orders --move",
    "upkeep orders",
    "fsck checkpoints",
    "fsck checkpoints/orders",
]
"""All but those that read a job or the records of streams, and no checkpoint."""


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a job that has committed a batch; the working folder is in its project."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    project = make_project(tmp_path / "project", rows=10)
    monkeypatch.chdir(project)
    store = LocalStore(project / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store), holder="elsewhere:1:1")
    owned.append(offsets(0))
    owned.append(commit(0))
    owned.append(Release(epoch=1, writer="w1", reason="finished"))
    return project / "checkpoints" / "orders" / "metadata.json"


@pytest.mark.fault("F17")
@pytest.mark.fault("F13")
@pytest.mark.parametrize("torn", [False, True], ids=["missing", "torn"])
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_names_the_lost_identity_and_changes_nothing(words: str, *, torn: bool, metadata: Path) -> None:
    """`status` ended with 0, and `held list` looked for decisions under the wrong names."""
    whole = metadata.read_bytes()
    metadata.unlink()
    if torn:
        metadata.write_bytes(whole[:40])
    if words.startswith("import"):
        Path("former").mkdir()
        metadata = metadata.parent.rename("former/orders").resolve() / "metadata.json"
    log = {path: path.read_bytes() for path in (metadata.parent / "log").iterdir()}
    ended = CliRunner().invoke(app, words.split())
    assert (ended.exit_code, "metadata.json" in ended.stdout + ended.stderr) == (78, True), ended.output
    assert ended.stderr.count("PEN-") == 1
    assert ("PEN-CKP-040" if torn else "PEN-CKP-004") in ended.stderr
    assert "Put metadata.json back from a backup" in ended.stderr
    assert {path: path.read_bytes() for path in (metadata.parent / "log").iterdir()} == log
    assert metadata.exists() is torn
