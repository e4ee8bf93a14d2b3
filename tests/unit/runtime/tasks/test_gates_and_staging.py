"""Rows that a verdict may withhold are staged apart, in as few files as the verdict needs (SEMANTICS 11.3)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.protocol import TIME
from penstock.quality.compile import compile_suite
from penstock.quality.measure import Partial
from penstock.quality.suite import load_suite
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
    items = list(_stage_apart(rows, np.array(masks, np.int64), leaf, TaskFiles(facts, 1, "0b0")))
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
    measured, *staged = [json.loads(item.body) for item in stage_checked(rows, leaf, TaskFiles(facts, 1, "0b0"))]
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
