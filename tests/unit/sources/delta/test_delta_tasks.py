"""Tasks read rows of files by their numbers: any range, in any number of splits, with what the log adds to them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.base import POSITION
from penstock.sources.delta.columns import FEED
from penstock.sources.delta.tasks import DeltaTaskReader, Piece, pieces_of
from penstock.sources.file.systems import LocalFiles

K = pa.schema([("k", pa.int64())])


def piece(path: str, rows: int, first: int, last: int, **more: Any) -> Piece:
    facts = {"place": 0, "version": 3, "index": 0, "size": 9, "values": {}, "kind": "insert", "time": 1_700_000_000_000}
    return Piece(path=path, rows=rows, first=first, last=last, **{**facts, **more})


def read(reader: DeltaTaskReader, pieces: list[Piece], splits: int = 1) -> pa.Table:
    span = {"pieces": [each.as_json for each in pieces]}
    assert pieces_of(span) == pieces
    return pa.concat_tables(table for split in range(splits) for table in reader.read(span, split, splits))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of 100 rows in groups of 7."""
    folder = tmp_path_factory.mktemp("numbers")
    pq.write_table(pa.table({"k": range(100)}), folder / "a", row_group_size=7)
    return folder


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 100)), min_size=1, max_size=4), st.integers(1, 9))
def test_any_ranges_in_any_splits_are_the_rows_of_the_ranges(
    numbers: Path, ranges: list[tuple[int, int]], splits: int
) -> None:
    """In their order, with their places."""
    pieces, place = [], 10
    for first, count in ranges:
        last = min(100, first + count)
        pieces.append(piece("a", 100, first, last, place=place))
        place += last - first
    table = read(DeltaTaskReader(LocalFiles(str(numbers)), K, (), changes=False), pieces, splits)
    assert table["k"].to_pylist() == [k for p in pieces for k in range(p.first, p.last)]
    assert table[POSITION].to_pylist() == list(range(10, place))


def test_a_feed_says_of_each_row_what_it_is(tmp_path: Path) -> None:
    """By the file, or in files of changes by the row; with version and time."""
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a")
    pq.write_table(pa.table({"k": [2, 3], "_change_type": ["update_preimage", "delete"]}), tmp_path / "c")
    reader = DeltaTaskReader(LocalFiles(str(tmp_path)), pa.schema([*K, *FEED]), (), changes=True)
    assert reader.of_table == K
    table = read(reader, [piece("a", 1, 0, 1, kind="delete"), piece("c", 2, 0, 2, kind="cdc", time=None)])
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert [tuple(row.values())[:4] for row in table.to_pylist()] == [
        (1, "delete", 3, at), (2, "update_preimage", 3, None), (3, "delete", 3, None)
    ]  # fmt: skip


def test_old_times_of_spark_and_columns_that_came_later(tmp_path: Path) -> None:
    """Years beyond 2262 fit as well; a file without a column has nulls in it."""
    times = [datetime(1500, 1, 1, 0, 0, 0, 7, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC), None]
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    pq.write_table(pa.table({"at": times}, schema=schema), tmp_path / "a", use_deprecated_int96_timestamps=True)
    reader = DeltaTaskReader(LocalFiles(str(tmp_path)), pa.schema([*schema, ("s", pa.string())]), (), changes=False)
    table = read(reader, [piece("a", 3, 0, 3)])
    assert table["at"].to_pylist() == times
    assert table["s"].null_count == 3
