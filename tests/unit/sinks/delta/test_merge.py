"""A merge opens few files, rewrites those with a key, and leaves the others as they are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_tables import Upserts
from deltalake import DeltaTable, write_deltalake
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sinks.delta.data_files import TableFiles
from penstock.sinks.delta.merge import KeySet, by_partition, last_of_keys, merge, split_by_partition
from penstock.sinks.delta.unique_keys import repeated_key

COLUMNS: dict[str, Any] = {"a": pa.int64(), "b": pa.string()}
PAIRS = st.lists(st.tuples(st.integers(-2, 2), st.sampled_from(["", "x", "é"])), max_size=8)


def table_of(pairs: list[Any]) -> pa.Table:
    """Return a table of pairs."""
    return pa.table([[a for a, _ in pairs], [b for _, b in pairs]], schema=pa.schema(COLUMNS))


@settings(max_examples=examples(40))
@given(PAIRS)
def test_the_last_row_of_each_key_stays_in_its_place(pairs: list[Any]) -> None:
    """`last_of_keys`, against a dict: the rows keep their order."""
    last = {a: place for place, (a, _) in enumerate(pairs)}
    expected = [pairs[place] for place in sorted(last.values())]
    assert [tuple(row.values()) for row in last_of_keys(table_of(pairs), ["a"]).to_pylist()] == expected


@pytest.mark.parametrize("keys", [["a"], ["b"], ["a", "b"]], ids="-".join)
def test_keys_are_found_among_rows_and_nowhere_else(keys: list[str]) -> None:
    """`KeySet.among`, against a set; null is no key."""

    @settings(max_examples=examples(40))
    @given(PAIRS, PAIRS)
    def law(ours: list[Any], others: list[Any]) -> None:
        wanted = {tuple(row[key] for key in keys) for row in table_of(ours).to_pylist()}
        rows = pa.concat_tables([table_of(others), pa.table([[None], [None]], schema=pa.schema(COLUMNS))])
        key_set = KeySet(last_of_keys(table_of(ours), keys), keys)
        expected = [tuple(row[key] for key in keys) in wanted for row in rows.to_pylist()]
        assert key_set.among(rows).to_pylist() == expected

    law()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("keys", [["a"], ["a", "b"]], ids="-".join)
def test_floating_numbers_are_keys_as_to_spark(tmp_path: Path, keys: list[str], kind: pa.DataType) -> None:
    """3.4: NaN is one key, and 0.0 and -0.0 are one; null is none, and footers with their bounds exclude no such row."""

    def rows_of(*numbers: float | None) -> pa.Table:
        names = {"a": pa.array(numbers, kind), "b": pa.array(["x"] * len(numbers))}
        return pa.table({**names, "n": pa.array(range(len(numbers)), pa.int64())})

    new = last_of_keys(rows_of(math.nan, -0.0, math.nan, 0.0, 1.5, 7.0), keys)
    assert new["n"].to_pylist() == [2, 3, 4, 5]
    assert KeySet(new, keys).among(rows_of(-0.0, 0.0, math.nan, 1.5, 2.5, None)).to_pylist() == [True] * 4 + [False] * 2
    path = tmp_path / "t"
    repeated = []
    for numbers in ((math.nan, 3.0), (-0.0,), (0.0,), (2.5, None)):
        write_deltalake(str(path), rows_of(*numbers), mode="append")
        repeated.append(repeated_key(TableFiles(DeltaTable(str(path)), path), keys))
    assert repeated[:2] == [None, None]
    assert repeated[2] == repeated[3] == {key: {"a": 0.0, "b": "x"}[key] for key in keys}
    for fresh, replaced in ((rows_of(0.0), 2), (rows_of(math.nan), 1), (rows_of(math.nan, -0.0), 3)):
        rewrite = merge(TableFiles(DeltaTable(str(path)), path), fresh, keys, path, "x", 2**20)
        kept = sum(file.rows for file in rewrite.added) - fresh.num_rows
        assert sum(file.rows for file in rewrite.removed) - kept == replaced


def test_rows_are_split_by_the_texts_of_the_log() -> None:
    """Rows of a partition keep their order."""
    parts = list(split_by_partition(table_of([(1, "x"), (2, "y"), (3, "x")]), ["b"]))
    assert [(values, part["a"].to_pylist()) for values, part in parts] == [({"b": "x"}, [1, 3]), ({"b": "y"}, [2])]
    assert [values for values, _ in split_by_partition(table_of([]), [])] == [{}]


def test_files_without_a_key_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Footers exclude a file whose keys lie apart: it is not read. Rows that stay and rows that are new lie apart."""
    table = Upserts(tmp_path).made()
    for start in (0, 10, 20):
        table.append(*((start + n, "a", 0) for n in range(5)))
    files = TableFiles(DeltaTable(str(table.path)), table.path)
    read: list[Any] = []
    batches = TableFiles.batches
    monkeypatch.setattr(TableFiles, "batches", lambda self, *asked: read.append(asked) or batches(self, *asked))
    rewrite = merge(files, table.rows((12, "b", 1), (17, "b", 1)), ["k"], table.path, "new", 2**20)
    assert ([file.rows for file in rewrite.removed], [file.rows for file in rewrite.added]) == ([5], [4, 2])
    assert len(read) == 2, "the keys of one file, and then its rows"
    rewrite.discard(table.path)
    assert table.left() == set()


def test_rows_that_stay_go_into_files_of_about_the_size_that_the_table_wants(tmp_path: Path) -> None:
    """Small files of a partition are joined, and a large one is divided."""
    table = Upserts(tmp_path, partition_by=["p"]).made()
    for part in "ab":
        table.append(*((n + 100_000 * (part == "b"), part, n) for n in range(70_000)))
        table.append((300_000 + ord(part), part, 1))
    files = TableFiles(DeltaTable(str(table.path)), table.path)
    keys = [(7, "a", 0), (300_097, "a", 0), (100_007, "b", 0)]
    rewrite = merge(files, table.rows(*keys), ["k"], table.path, "new", 300_000)
    groups = {values["p"]: sorted(f.rows for f in group) for values, group in by_partition(rewrite.added)}
    assert {part: (len(rows), sum(rows)) for part, rows in groups.items()} == {"a": (3, 70_001), "b": (3, 70_000)}
    assert len(rewrite.removed) == 3, "the small file of the other partition has no key"
