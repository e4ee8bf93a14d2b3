"""Issue 20.8: `penstock status JOB --watermarks`, from a checkpoint and the record of its last driver."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets, own
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import PartitionProgress, Release, SourceProgress
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.runtime.inspect import watermark_view
from penstock.runtime.inspect.open_windows import HeldRows
from penstock.runtime.process.heartbeat import StatusRecords

GRAPH = [
    {"kind": "source", "name": "orders", "reads": []},
    {"kind": "window", "name": "minutely", "reads": [0]},
    {"kind": "sink", "name": "minutely", "reads": [1]},
]
PARTS = {
    "0": PartitionProgress(highest=90_000_000, seen_at=95_000_000, idle=False),
    "1": PartitionProgress(highest=60_000_000, seen_at=70_000_000, idle=False),
    "2": PartitionProgress(highest=1_000_000, seen_at=1_000_000, idle=True),
    "3": PartitionProgress(highest=None, seen_at=65_000_000, idle=True),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a job `orders` of one commit, whose partition 1 is behind."""
    return checkpoint(tmp_path / "project")


def checkpoint(folder: Path) -> Path:
    """Return a project with such a job in a folder, whose partitions are PARTS."""
    root = make_project(folder, rows=10)
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store), holder="elsewhere:1:1")
    owned.append(offsets(0))
    source = SourceProgress(position={"offset": 3}, partitions=PARTS, ended=False)
    owned.append(
        commit(
            0,
            time=95_000_000,
            sources={"orders": source},
            watermarks_out={"minutely": 55_000_000},
            due={"minutely": None},
        )
    )
    owned.append(Release(epoch=1, writer="w1", reason="finished"))
    known = {"orders": {"max_out_of_order": 5_000_000, "idle_after": None}}
    StatusRecords(LocalStore(root / "checkpoints"), "orders").put(
        {
            "writer": "w1", "at": 0, "state": "finished", "graph": GRAPH, "event_time": known,
            "limits": {"bound": {"orders": "max_rate"}}, "held_back": {"orders": ["1"]},
        }
    )  # fmt: skip
    return root


def penstock(project: Path, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--project", str(project)], env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_partition_that_holds_a_watermark_back_is_named(project: Path) -> None:
    """Which source and partition, since when, idle or limited; times as people read them."""
    text = penstock(project, "status", "orders", "--watermarks")
    (step,) = [line for line in text.splitlines() if line.lstrip().startswith("minutely")]
    assert "orders 1: limited: it has rows that the newest batch left, since 1970-01-01 00:01:10" in step
    assert "limited by max_rate" in step
    parts = {line.split()[1]: line for line in text.splitlines() if line.lstrip().startswith("orders")}
    assert "idle: holds nothing back" in parts["2"]
    assert list(parts) == ["1", "0", "3", "2"], "the slowest first, then those that hold nothing"
    assert "never" in parts["3"], "it had no row, and a time would name one"


def test_a_watermark_that_stays_for_want_of_rows_is_said_to_stay(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.1: where all partitions are idle nothing holds the watermark, and nothing moves it."""
    monkeypatch.setitem(PARTS, "0", PARTS["2"])
    monkeypatch.setitem(PARTS, "1", PARTS["2"])
    checkpoint(project.parent / "quiet")
    text = penstock(project.parent / "quiet", "status", "orders", "--watermarks")
    assert "nothing: all is idle, and it stays until a row comes" in text


def test_the_watermark_of_a_partition_is_unknown_until_a_driver_has_run(project: Path) -> None:
    """After an import: its rows have event times, and no record says how much out of order they may be."""
    shutil.rmtree(project / "checkpoints" / "_control")
    text = penstock(project, "status", "orders", "--watermarks")
    parts = {line.split()[1]: line for line in text.splitlines() if line.lstrip().startswith("orders")}
    assert ["unknown" in parts[part] for part in "012"] == [True, True, True]
    assert (parts["3"].count("beginning of time"), "unknown" in parts["3"]) == (2, False), "it had no row"


def test_programs_get_the_same_as_json(project: Path) -> None:
    """Times are ISO text in UTC."""
    shown = json.loads(penstock(project, "status", "orders", "--watermarks", "--json"))
    (step,) = shown["steps"]
    assert (step["step"], step["watermark"]) == ("minutely", "1970-01-01T00:00:55Z")
    assert (step["held_by"]["source"], step["held_by"]["partition"]["name"]) == ("orders", "1")
    assert step["held_by"]["partition"]["watermark"] == "1970-01-01T00:00:55Z"
    assert [part["reading"] for part in shown["sources"][0]["partitions"]] == ["limited", "read", "idle", "idle"]
    assert (shown["largest_windows"], shown["held_rows"]) == ([], [])


def test_the_plain_status_says_it_in_a_line(project: Path) -> None:
    """Where most people look first."""
    text = penstock(project, "status", "orders")
    assert "held back by orders 1: limited" in text


def test_outer_rows_that_wait_are_a_line_of_their_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those that the join holds; of a step in which none waits there is no such line."""
    held = [HeldRows(step="pairs", rows=1_200, waiting=1_000), HeldRows(step="once", rows=7, waiting=0)]
    monkeypatch.setattr(watermark_view, "held_rows", lambda *_: held)
    lines = [line.split() for line in penstock(project, "status", "orders", "--watermarks").splitlines()]
    assert [line for line in lines if line[:1] in (["pairs"], ["once"])] == [
        ["pairs", "1,200"],
        ["pairs", "wait", "for", "a", "match", "1,000"],
        ["once", "7"],
    ]
    shown = json.loads(penstock(project, "status", "orders", "--watermarks", "--json"))
    assert shown["held_rows"][0] == {"step": "pairs", "rows": 1_200, "waiting": 1_000}


def test_a_job_without_a_checkpoint_has_no_watermarks(tmp_path: Path) -> None:
    """A named error, not an empty table."""
    root = make_project(tmp_path / "project", rows=10)
    result = CliRunner().invoke(app, ["status", "orders", "--watermarks", "--project", str(root)])
    assert result.exit_code != 0
    assert "there is no checkpoint" in result.output
