"""`penstock upkeep` verifies a checkpoint, and maintains the tables of the job unless something is damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from checkpoint_samples import commit, leave, offsets, own
from deltalake import DeltaTable, write_deltalake
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.sinks.delta import compaction

ROWS = pa.table({"k": [1], "v": [2]})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose job has a checkpoint of four batches, and a table of four files with one that is left."""
    root = make_project(tmp_path, rows=10)
    monkeypatch.setattr(compaction, "_YOUNG", -60.0)
    folder = root / "checkpoints" / "orders"
    folder.mkdir(parents=True, mode=0o700)
    store = LocalStore(folder)
    open_or_create(store, now=0)
    owned = own(Log(store))
    for batch in range(4):
        owned.append(offsets(batch))
        owned.append(commit(batch))
    leave(owned)
    return root


def filled(table: Path) -> None:
    """Write four files, and one that no version names."""
    for _ in range(4):
        write_deltalake(str(table), ROWS, mode="append")
    (table / "left.parquet").write_bytes(b"x")
    os.utime(table / "left.parquet", (0, 0))


def upkeep(project: Path, *more: str) -> tuple[int, str]:
    """Return the exit code of the command, and what it prints."""
    ran = CliRunner().invoke(app, ["upkeep", "orders", "--project", str(project), *more])
    return ran.exit_code, ran.output


def test_it_says_what_it_did_to_each_table(project: Path) -> None:
    """For people, and as a line of JSON behind that of the checkpoint; a second run has nothing to do."""
    table = project / "tables" / "totals"
    code, out = upkeep(project)
    assert (code, "totals: left alone, there is no table yet" in out) == (0, True)
    filled(table)
    code, out = upkeep(project)
    assert code == 0
    assert "orders: 4 batches that can be restored" in out
    assert "totals: 4 small files became 1, 1 files deleted, 0.0 MiB" in out
    assert len(DeltaTable(str(table)).file_uris()) == 1
    code, out = upkeep(project, "--json")
    checkpoint, done = map(json.loads, out.splitlines())
    assert (code, checkpoint["batches"]) == (0, 4)
    assert done == {
        "job": "orders", "sink": "totals", "joined": 0, "made": 0, "deleted": 0, "size": 0, "left_alone": "",
    }  # fmt: skip


def test_a_table_is_left_where_the_checkpoint_is_damaged(project: Path) -> None:
    """What the log needs of the table is not known then."""
    table = project / "tables" / "totals"
    filled(table)
    entry = max((project / "checkpoints" / "orders" / "log").rglob("*[0-9]"))
    entry.write_bytes(entry.read_bytes()[:-5])
    code, _ = upkeep(project)
    assert code == 78
    assert len(DeltaTable(str(table)).file_uris()) == 4
    assert (table / "left.parquet").exists()


def test_a_table_that_asks_for_more_is_left_to_spark(project: Path) -> None:
    """It is named, and no error."""
    table = project / "tables" / "totals"
    write_deltalake(str(table), ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    code, out = upkeep(project)
    assert code == 0
    assert "totals: left alone, the table has a change data feed" in out
