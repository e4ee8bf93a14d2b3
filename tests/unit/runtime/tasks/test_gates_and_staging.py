"""Rows that a verdict may withhold are staged apart, in as few files as the verdict needs (SEMANTICS 11.3)."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import StorageFull
from penstock.operators.protocol import TIME
from penstock.quality.compile import compile_suite
from penstock.quality.measure import Partial
from penstock.quality.suite import load_suite
from penstock.runtime.tasks.functions import _with
from penstock.runtime.tasks.gates import UNIT, _stage_apart, stage_checked
from penstock.runtime.tasks.specs import SinkLeafSpec
from penstock.runtime.tasks.staging import Outlet, TaskFiles
from penstock.sinks.base import TaskForm
from penstock.sinks.files.task_form import FOLDER

STRICT = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 10}}
MOSTLY = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "min_value": 0, "mostly": 0.5}}
WINDOWS = 200
SCHEMA = pa.schema([("v", pa.int64())])


def staged(masks: list[int], folder: Path, *, apart: bool, written: bool = False) -> list[dict[str, Any]]:
    """Stage a row a window, and return what the receipts say, with the values of each file.

    With `written` the task writes the files of the sink itself.
    """
    gate = compile_suite(load_suite({"name": "s", "expectations": [STRICT, MOSTLY]}, where="here"), {"v": "bigint"})
    assert gate.certain == 1
    outlet = Outlet(sinks=("bad",), lanes=(), schema=SCHEMA, place=0)
    leaf = SinkLeafSpec(
        order=0, sinks=("out",), visible=("v",), check="c", gate=gate, by_window=True, separate=True, quarantine=outlet
    )
    facts = SimpleNamespace(
        apart=apart,
        batch=7,
        epoch=1,
        run="ab",
        staging={"out": str(folder / "out"), "bad": str(folder / "bad")},
        forms={"out": asdict(TaskForm(format="Parquet", few=0))} if written else {},
    )
    n = len(masks)
    rows = pa.table({"v": pa.array(range(n)), UNIT: pa.array([100 + i for i in range(n)])})
    files = TaskFiles(facts, 1, "0b0")
    items = list(_stage_apart(rows, np.array(masks, np.int64), leaf, files))
    files.settle()
    bodies = [json.loads(item.body) for item in items]
    for body in bodies:
        body["v"] = pq.read_table(folder / body["sink"] / body["file"]["path"])["v"].to_pylist()
    return bodies


@pytest.mark.parametrize("written", [False, True], ids=["rows", "files of tasks"])
def test_rows_that_are_withheld_for_certain_are_one_file(tmp_path: Path, *, written: bool) -> None:
    """P10: 200 windows with a bad row each wrote 400 files; without `mostly` nothing depends on the window."""
    bodies = staged([1] * WINDOWS, tmp_path, apart=False, written=written)
    assert [body["file"].get("stats", {}).get(FOLDER) for body in bodies] == ["" if written else None, None]
    assert [(body["sink"], body["v"], body["file"]["unit"]) for body in bodies] == [
        ("out", list(range(WINDOWS)), 100),
        ("bad", list(range(WINDOWS)), 100),
    ]


def test_rows_that_mostly_may_forgive_are_apart_by_window(tmp_path: Path) -> None:
    """11.3: a rule with `mostly` fails in one window and not in another."""
    bodies = [body for body in staged([2, 2, 3, 1, 3, 2], tmp_path, apart=False) if body["sink"] == "out"]
    assert [(body["v"], body["file"]["unit"], len(body["file"]["fails"])) for body in bodies] == [
        ([0], 100, 1),
        ([1], 101, 1),
        ([5], 105, 1),
        ([3], 103, 1),
        ([2, 4], 102, 2),
    ]


@pytest.mark.parametrize("masks", [[0, 1, 1], [0]])
def test_what_a_person_said_to_drop_is_apart_by_window(masks: list[int], tmp_path: Path) -> None:
    """11.5: where a unit may be dropped as a whole, its rows are in files of their own."""
    bodies = [body for body in staged(masks, tmp_path, apart=True) if body["sink"] == "out"]
    assert [body["v"] for body in bodies] == [[i] for i in range(len(masks))]


def test_no_rows_no_files(tmp_path: Path) -> None:
    """11.1: without a row there is nothing to stage."""
    assert staged([], tmp_path, apart=True) == []


@pytest.mark.parametrize(
    ("apart", "deleting", "files"),
    [
        (False, (), [("out", [12, 5]), ("log", [12, 5]), ("out", [99]), ("log", [99])]),
        (False, ("out",), [("out", [12]), ("out", [5]), ("log", [5]), ("out", [99]), ("log", [99])]),
        (True, ("out",), [("out", [12]), ("out", [5]), ("log", [5]), ("out", [99]), ("log", [99])]),
    ],
)
def test_what_is_taken_back_is_not_judged(
    tmp_path: Path, *, apart: bool, deleting: tuple[str, ...], files: list[tuple[str, list[int]]]
) -> None:
    """2.6, 2.10, 11.5: no verdict withholds it, nor who drops the unit of its window; it counts among the rows.

    A sink that appends beside one that deletes gets none: the row that is taken back may have been withheld.
    """
    gate = compile_suite(load_suite({"name": "s", "expectations": [STRICT]}, where="here"), {"v": "bigint"})
    ((hidden, _),) = gate.row_columns()
    leaf = SinkLeafSpec(
        order=0,
        sinks=("out", "log"),
        deleting=deleting,
        visible=("v", "_pane"),
        check="c",
        gate=gate,
        judged={hidden: hidden},
        by_window=True,
        separate=True,
    )
    facts = SimpleNamespace(
        apart=apart, batch=7, epoch=1, run="ab", staging=dict.fromkeys(("out", "log"), str(tmp_path)), forms={}
    )
    rows = pa.table(
        {
            "v": [12, 5, 99],
            "_pane": ["RETRACTED", "LATE", "LATE"],
            TIME: [19, 19, 29],
            hidden: pa.array([1, 0, 1], pa.int8()),
        }
    )
    files_of_task = TaskFiles(facts, 1, "0b0")
    measured, *staged = [json.loads(item.body) for item in stage_checked(rows, leaf, files_of_task)]
    files_of_task.settle()
    assert measured["rows"] == 3
    assert [
        (unit[UNIT], verdict.rows) for unit, verdict in gate.decide_units([Partial.from_json(measured["partial"])])
    ] == [
        (20, 1),
        (30, 1),
    ]
    written = [(body["sink"], pq.read_table(tmp_path / body["file"]["path"])["v"].to_pylist()) for body in staged]
    assert written == files
    assert (staged[0]["file"]["fails"], staged[0]["file"]["unit"]) == ([], None)


def _staging(folder: Path, sinks: Sequence[str]) -> TaskFiles:
    facts = SimpleNamespace(batch=7, epoch=1, run="ab", staging={sink: str(folder / sink) for sink in sinks}, forms={})
    return TaskFiles(facts, 1, "0b0")  # type: ignore[arg-type]


def test_a_task_computes_on_while_a_file_is_written_and_keeps_one_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 4: the task ends when all its files are durable, and not before."""
    goes, began, sync = threading.Event(), threading.Event(), os.fsync

    def waits(descriptor: int) -> None:
        began.set()
        assert goes.wait(60)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", waits)
    files = _staging(tmp_path, ("one", "two"))
    staged = files.stage(pa.table({"k": [1]}), ("one", "two"))
    assert json.loads(next(staged).body)["sink"] == "one", "while the disk is busy"
    assert began.wait(60)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(lambda: [json.loads(item.body)["sink"] for item in staged])
        assert not wait([second], 0.1).done, "the second file waits for the first"
        goes.set()
        assert second.result() == ["two"]
    assert list(_with(files, iter(()))) == []
    assert {path.parent.name for path in tmp_path.rglob("*.parquet")} == {"one", "two"}


@pytest.mark.fault("F27")
@pytest.mark.parametrize("sinks", [("out",), ("out", "other")], ids=["at its end", "at the next file"])
def test_a_task_whose_file_cannot_be_written_does_not_end_well(
    sinks: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 4: a receipt of a file that is not there reaches no Commit."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    files = _staging(tmp_path, sinks)
    with pytest.raises(StorageFull, match=r"out/.*\.parquet"):
        for _ in _with(files, (pa.record_batch({"k": [1]}) for _ in files.stage(pa.table({"k": [1]}), sinks))):
            pass
