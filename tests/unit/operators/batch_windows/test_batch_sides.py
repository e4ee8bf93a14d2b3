"""The map sides of windows of batch time: rows, values, or counts (SEMANTICS 2.10, 4)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from batch_window_disk import VISIBLE, BatchWindowDisk

from penstock import micros
from penstock.errors import DuplicateName, JobError
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindows, Form
from penstock.operators.batch_windows.batch_sides import CountSide
from penstock.operators.batch_windows.batch_window_step import bind_side
from penstock.operators.protocol import BoundSide, RowsOfBranch, Send, StepFacts, Tally

WINDOW = BatchWindow(micros(2), slide=micros(5))


def test_counts_travel_as_one_row_for_each_key_of_a_task(tmp_path: Path) -> None:
    """4.4: rows are counted before the shuffle; NaN is one value, and null is a value of its own."""
    disk = BatchWindowDisk(WINDOW, Form.COUNT_BY_VALUE, tmp_path, value="x")
    rows = [{"k": "a", "x": value} for value in (float("nan"), None, float("nan"), 1.0, None)]
    made = disk.batch(5, [rows])
    assert sorted((repr(r["x"]), r["count"]) for r in made) == [("1.0", 1), ("None", 2), ("nan", 2)]


@pytest.mark.parametrize("form", [Form.ROWS, Form.COUNT, Form.GROUP], ids=lambda form: form.value)
def test_rows_that_no_window_has_stay_behind(tmp_path: Path, form: Form) -> None:
    """2.10: they are counted as in no window, and nothing is sent."""
    disk = BatchWindowDisk(WINDOW, form, tmp_path, value="v" if form is Form.GROUP else None)
    branch = RowsOfBranch(
        table=pa.table({"k": ["a"], "v": [1]}),
        visible=("k", "v"),
        keys={"k": "k"},
        inputs={"v": "v"},
        hash_column="h",
        place=0,
        way=0,
        ways=1,
    )
    pieces = list(disk.side.prepare(branch, StepFacts(batch=0, time=3, watermark=None, interval=1)))
    assert pieces == [Tally({"rows": 1, "counted": 0, "in_no_window": 1})]
    assert not any(isinstance(piece, Send) for piece in pieces)


def test_branches_with_other_columns_share_no_state() -> None:
    """The streams of a union send alike, or the step is refused."""
    sides = [
        CountSide(window=WINDOW, keys=pa.schema([("k", kind)]), values=pa.schema([]), expression=None)
        for kind in (pa.string(), pa.string(), pa.int64())
    ]
    assert sides[0].differs(sides[1]) is None
    assert sides[0].differs(sides[2]) == "other types"


@pytest.mark.parametrize(
    ("name", "error"), [("window_end", DuplicateName), ("_rows", JobError), ("batch_time", JobError)]
)
def test_names_that_the_step_gives_are_taken(name: str, error: type[Exception]) -> None:
    """A column of rows with the name of a bound, or of the state, is refused by name."""
    columns = pa.schema([*VISIBLE, (name, pa.int64())])
    side = BoundSide(name="w", side=0, keys=pa.schema([]), columns=(), visible=columns, inputs={})
    with pytest.raises(error, match=name):
        bind_side(BatchWindows(window=WINDOW, form=Form.ROWS), side)
