"""Tasks write the files of a folder, and leave the driver few rows of each folder (decision 119)."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from written_files import stage_by_form

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.sinks import JsonLines, Parquet
from penstock.sinks.base import TaskForm
from penstock.sinks.files.task_form import FOLDER, WrittenPart, files_of
from penstock.sinks.staged_files import read_staged, schema_of
from penstock.time.arrival import ARRIVAL, of_source

DAYS = st.sampled_from(["mon", "tue", None, "a/b", "x" * 300])
"""The last can name no folder."""


def table(days: list[Any]) -> pa.Table:
    """Return a row for each day, with numbers that rise."""
    return pa.table({"day": pa.array(days, pa.string()), "v": pa.array(range(len(days)), pa.int64())})


def rows_of(part: WrittenPart | pa.Table) -> list[int]:
    """Return the numbers of a part."""
    if isinstance(part, pa.Table):
        return part["v"].to_pylist()
    return pq.read_table(io.BytesIO(part.data))["v"].to_pylist()


@given(st.lists(DAYS, min_size=1, max_size=30), st.integers(0, 400))
@settings(max_examples=examples(20), deadline=None)
def test_each_row_is_in_one_file_of_its_folder_or_is_left(days: list[Any], few: int) -> None:
    """SEMANTICS 2.10: files have `few` bytes at least, and what is left of each folder has less, or cannot be there."""
    rows = table(days)
    parts = list(files_of(TaskForm(format="Parquet", partition_by=["day"], few=few), rows))
    assert Counter(v for part in parts for v in rows_of(part)) == Counter(range(len(days)))
    assert sum(isinstance(part, pa.Table) for part in parts) <= 1
    for part in parts:
        if isinstance(part, WrittenPart):
            (day,) = {days[v] for v in rows_of(part)}
            assert (
                part.stats[FOLDER] == f"day={'__HIVE_DEFAULT_PARTITION__' if day is None else day.replace('/', '%2F')}"
            )
            assert part.rows == len(rows_of(part))
        elif "x" * 300 not in days:
            for day in {days[v] for v in rows_of(part)}:
                assert rows.filter(pa.array([known == day for known in days])).nbytes < few


def test_few_rows_are_left_as_they_came() -> None:
    """A batch of a row for each task is one file, which the driver writes."""
    rows = table(["mon", "tue"])
    assert list(files_of(Parquet("out", partition_by=["day"]).task_form(), rows)) == [rows]
    many = pa.table({"day": ["mon"] * 200_000, "v": range(200_000)})
    (part,) = files_of(Parquet("out", partition_by=["day"]).task_form(), many)
    assert isinstance(part, WrittenPart)


def test_lines_of_a_file_are_in_order_of_arrival() -> None:
    """SEMANTICS 1.6: in the order in which the source has them, whatever the order in the task."""
    order = of_source(0, pa.array([0, 0, 0], pa.int32()), pa.array([7, 3, 5], pa.int64()))
    rows = pa.table({"v": [7, 3, 5], ARRIVAL: order})
    (part,) = files_of(TaskForm(format="JSON lines", few=0), rows)
    assert isinstance(part, WrittenPart)
    assert [json.loads(line)["v"] for line in bytes(part.data).splitlines()] == [3, 5, 7]
    assert b"_penstock" not in bytes(part.data)


def test_values_that_no_file_can_hold_are_left_to_the_driver() -> None:
    """SEMANTICS 9.6: a gate may withhold these rows; where it does not, the driver refuses them before the Commit."""
    nan = pa.table({"v": [1.0, float("nan")]})
    (left,) = files_of(TaskForm(format="JSON lines", few=0), nan)
    assert isinstance(left, pa.Table)
    assert left.num_rows == 2
    (part,) = files_of(TaskForm(format="Parquet", few=0), nan)
    assert isinstance(part, WrittenPart)


@pytest.mark.parametrize("sink", [Parquet("out", partition_by=["day"]), JsonLines("out")])
def test_a_file_says_which_columns_its_rows_have(sink: Any, tmp_path: Any) -> None:
    """`penstock sinks JOB redo` makes the target again by the files of a Commit alone."""
    folder, rows = LocalFolder(tmp_path), table(["mon", None])
    form = TaskForm(format=sink.format.name, partition_by=sink.partition_by, few=0)
    written, plain = stage_by_form(rows, form, folder, "a"), stage_by_form(rows, sink.task_form(), folder, "b")
    assert {schema_of(folder, file) for file in (*written, *plain)} == {rows.schema}
    assert read_staged(folder, list(stage_by_form(rows, sink.task_form(), folder, "c"))).equals(rows)
