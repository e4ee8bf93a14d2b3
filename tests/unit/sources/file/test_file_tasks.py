"""Tasks read the files of a span and no others, and say of each bad record where it is (SEMANTICS 9.1, 9.3)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from folder_files import Numbers, Rows, lines_of, parquet_of, reader_of
from source_reading import end_of_batch

from penstock.errors import BadRecordFound, ColumnsChanged, FileChanged, FileVanished, InputUnreadable
from penstock.graph.policies import BadRecord, OnNewColumn, OnUnreadable
from penstock.sources.base import ERROR, PARTIAL, POSITION, RAW, Span
from penstock.sources.file.reader import FilesReader
from penstock.testing.source_contract import read

METADATA = ["_path", "_modified", "_size", "_row"]


def planned(folder: Path, form: Any = None, **more: Any) -> tuple[FilesReader, Span]:
    reader = reader_of(folder, form, **more)
    return reader, reader.span(None, end_of_batch(reader, None))


def test_rows_follow_the_order_of_files_then_of_rows(tmp_path: Path) -> None:
    """And have what is asked of their file."""
    lines_of(tmp_path / "b", 3, at=1)
    lines_of(tmp_path / "a", 1, "", 2, at=0)
    lines_of(tmp_path / "c/a", 4, at=1)
    reader, span = planned(tmp_path, with_columns=METADATA)
    rows = read(reader, span)
    assert rows["k"].to_pylist() == [1, 2, 3, 4]
    assert rows[POSITION].to_pylist() == [0, 2, 1 << 32, 2 << 32]
    assert rows["_path"].to_pylist() == [f"{tmp_path}/{name}" for name in ("a", "a", "b", "c/a")]
    assert (rows["_row"].to_pylist(), rows["_size"].to_pylist()) == ([1, 3, 1, 1], [5, 5, 2, 2])
    assert [(at - datetime(2023, 11, 14, 22, 13, 20, tzinfo=at.tzinfo)).seconds for at in rows["_modified"].to_pylist()] == [
        0, 0, 1, 1
    ]  # fmt: skip


@pytest.mark.fault("F40")
def test_a_bad_record_has_file_line_text_and_reason(tmp_path: Path) -> None:
    """SEMANTICS 9.3: or it fails the batch, and its line is named."""
    lines_of(tmp_path / "a", 1, "x", 3)
    reader, span = planned(tmp_path)
    rows = read(reader, span)
    assert rows[ERROR].to_pylist() == [None, f"{tmp_path}/a, line 2: no number", None]
    assert rows[RAW].to_pylist() == [None, "x", None]
    reader, span = planned(tmp_path, on_bad_record=BadRecord.FAIL)
    with pytest.raises(BadRecordFound, match=f"line 2: no number .*{tmp_path}/a"):
        read(reader, span)


def test_a_record_is_decoded_from_its_text(tmp_path: Path) -> None:
    """Of a requeue, by the format: lines by theirs, values of columns by their types; the file is null."""
    lines_of(tmp_path / "a", "x")
    schema = pa.schema([("k", pa.int64()), ("_row", pa.int64())])
    for form, texts in ((Numbers(), ["7", "x"]), (Rows(), ['{"k": "7"}', '{"k": "x"}'])):
        reader, _ = planned(tmp_path, form, with_columns=["_row"])
        rows, errors = reader.task_reader().decoded(texts, schema)
        assert rows["_row"].null_count == 2
        assert (rows["k"][0].as_py(), [error is None for error in errors]) == (7, [True, False])


@pytest.mark.fault("F40")
@pytest.mark.remedy("PEN-SRC-024")
@pytest.mark.parametrize("splits", [1, 2, 5])
def test_an_unreadable_file_fails_or_is_one_bad_record(tmp_path: Path, splits: int) -> None:
    """Whatever bad records do; the files beside it are read."""
    parquet_of(tmp_path / "a", pa.table({"k": [1, 2]}), at=0)
    lines_of(tmp_path / "b", "no Parquet", at=1)
    parquet_of(tmp_path / "c", pa.table({"k": [3]}), at=2)
    reader, span = planned(tmp_path, Rows())
    with pytest.raises(InputUnreadable, match=f"magic bytes.*{tmp_path}/b"):
        read(reader, span, splits)
    more = {"on_unreadable": OnUnreadable.QUARANTINE, "on_bad_record": BadRecord.FAIL, "with_columns": ["_path"]}
    reader, span = planned(tmp_path, Rows(), **more)
    rows = read(reader, span, splits)
    assert rows["k"].to_pylist() == [1, 2, None, 3]
    (error,) = [error for error in rows[ERROR].to_pylist() if error]
    assert error.startswith(f"{tmp_path}/b, unreadable from row 1 on: Parquet magic bytes not found")
    assert error.endswith(PARTIAL), "the text is the name of the file"
    assert rows[RAW].to_pylist() == [None, None, f"{tmp_path}/b", None]


@pytest.mark.fault("F42")
@pytest.mark.remedy("PEN-SRC-023")
def test_other_columns_are_named_with_their_file(tmp_path: Path) -> None:
    """And pass where the source says so."""
    parquet_of(tmp_path / "a", pa.table({"k": [1], "w": [2]}))
    reader, span = planned(tmp_path, Rows())
    with pytest.raises(ColumnsChanged, match=f"column 'w' is new .*{tmp_path}/a"):
        read(reader, span)
    reader, span = planned(tmp_path, Rows(), on_new_column=OnNewColumn.IGNORE)
    assert read(reader, span)["k"].to_pylist() == [1]


@pytest.mark.fault("F39")
def test_a_file_that_is_not_the_planned_one_is_never_read(tmp_path: Path) -> None:
    """SEMANTICS 9.1: gone, or written again."""
    lines_of(tmp_path / "a", 1)
    reader, span = planned(tmp_path)
    lines_of(tmp_path / "a", 2, at=9)
    with pytest.raises(FileChanged, match=f"{tmp_path}/a"):
        read(reader, span)
    (tmp_path / "a").unlink()
    with pytest.raises(FileVanished, match=f"{tmp_path}/a"):
        read(reader, span)


@pytest.mark.fault("F39")
def test_a_file_that_changes_while_it_is_read_fails_the_task(tmp_path: Path) -> None:
    """Its last rows may be those of another content."""
    parquet_of(tmp_path / "a", pa.table({"k": range(100_000)}))
    reader, span = planned(tmp_path, Rows())
    tables = reader.task_reader().read(span, 0, 1)
    next(tables)
    with (tmp_path / "a").open("ab") as file:
        file.write(b"x")
    with pytest.raises(FileChanged):
        list(tables)


def test_large_files_are_read_piece_by_piece(tmp_path: Path) -> None:
    """A task holds some of the rows, whatever the file has; splits share its row groups."""
    parquet_of(tmp_path / "a", pa.table({"k": np.arange(300_000)}), row_group_size=100_000)
    reader, span = planned(tmp_path, Rows())
    task = reader.task_reader()
    pieces = [[table.num_rows for table in task.read(span, split, 2)] for split in range(2)]
    assert max(max(sizes) for sizes in pieces) <= 32_768
    assert [sum(sizes) for sizes in pieces] == [100_000, 200_000]
    assert read(reader, span, 2)["k"].to_pylist() == list(range(300_000))


def test_numbers_have_no_unreadable_lines(tmp_path: Path) -> None:
    """Lines of any bytes are records."""
    (tmp_path / "a").write_bytes(bytes(range(256)))
    reader, span = planned(tmp_path, Numbers())
    assert read(reader, span)[ERROR].null_count == 0
