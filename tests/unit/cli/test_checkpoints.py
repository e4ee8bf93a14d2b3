"""`penstock checkpoints`: what can be restored, for people and for programs."""

from __future__ import annotations

import json

from checkpoint_samples import commit, offsets, own
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Release, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app


def test_a_kept_batch_is_a_line_and_an_object(tmp_path):
    """With its rows, verdicts and watermark; a job without a checkpoint has none."""
    root = make_project(tmp_path / "project", rows=10)

    def penstock(*words: str):
        return CliRunner().invoke(app, [*words, "--project", str(root)])

    assert penstock("checkpoints", "orders").stdout == "orders has no checkpoint yet\n"
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store), holder="elsewhere:1:1")
    file = StagedFile(path="x", size=2**20, rows=4, checksum="", stats={})
    verdicts = [{"check": "quality", "action": "hold", "status": "failed"}]
    owned.append(offsets(0))
    owned.append(
        commit(
            0, accounting={"source:orders": {"read": 50}}, staged={"totals": [file]},
            watermarks_out={"minutely": 60_000_000}, verdicts=verdicts, held={"totals": [file]},
        )
    )  # fmt: skip
    owned.append(Release(epoch=1, writer="w1", reason="finished"))
    row = penstock("checkpoints", "orders").stdout.splitlines()[1].split()
    assert row == [
        "0",
        "1970-01-01",
        "00:00:00Z",
        "50",
        "4",
        "1",
        "hold",
        "4",
        "2.00",
        "0",
        "0.00",
        "1970-01-01",
        "00:01:00Z",
        "yes",
    ]
    listed = json.loads(penstock("checkpoints", "orders", "--json").stdout)
    assert [(c["batch"], c["restorable"]) for c in listed["checkpoints"]] == [(0, True)]
