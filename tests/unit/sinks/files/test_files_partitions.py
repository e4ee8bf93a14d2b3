"""Rows are divided among folders that Hive, Spark and Arrow read back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.dataset import HivePartitioning, dataset

from penstock.errors import SinkSchemaMismatch, SinkValueRefused
from penstock.sinks.files.partitions import check_partitions, divided

SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("f", pa.float64()),
        ("v", pa.int64()),
    ]
)
VALUES = st.tuples(
    st.none()
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
    | st.sampled_from(["a/b", "x=1%", ".."]),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.booleans(),
    st.none() | st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows with numbers that rise."""
    numbered = [(*row, 0.5, n) for n, row in enumerate(rows)]
    return pa.table(
        [pa.array([row[i] for row in numbered], field.type) for i, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def written(rows: pa.Table, by: list[str], folder: Path) -> None:
    """Write each part into its folder."""
    for name, part in divided(rows, by):
        (folder / name).mkdir(parents=True)
        pq.write_table(part, folder / name / "0.parquet")


def plain(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Return rows in a form that can be compared; an empty text is null."""
    return sorted(repr([row[name] if row[name] != "" else None for name in names]) for row in rows)


def test_arrow_reads_back_any_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a law, for any columns; an empty text comes back as null, and rows of a folder keep their order."""

    @settings(max_examples=examples(25))
    @given(st.lists(VALUES, min_size=1, max_size=12), st.permutations(["s", "n", "b", "d"]), st.integers(1, 4))
    def law(values: list[tuple[Any, ...]], names: list[str], count: int) -> None:
        by, folder, rows = list(names[:count]), tmp_path_factory.mktemp("out"), table(values)
        for _, part in divided(rows, by):
            assert part["v"].to_pylist() == sorted(part["v"].to_pylist())
        written(rows, by, folder)
        hive = HivePartitioning(pa.schema([SCHEMA.field(name) for name in by]))
        read = dataset(folder, schema=SCHEMA, format="parquet", partitioning=hive).to_table()
        assert plain(read.to_pylist(), SCHEMA.names) == plain(rows.to_pylist(), SCHEMA.names)

    law()


def test_spark_reads_back_odd_texts(tmp_path: Path, spark: Any) -> None:
    """Letters that no path may have, or that Hive writes as a code, and those beyond ASCII."""
    texts = [
        "a/b",
        "x=1",
        "50%",
        "Größe",
        "日本",
        "a b",
        "..",
        "q'\"",
        "#?*",
        "c:\\d",
        "[x]{y}^",
        "~<>|",
        None,
        "",
        "_x",
        ".y",
    ]
    written(table([(text, 1, True, None) for text in texts]), ["s"], tmp_path)
    read = spark.read.schema("s string, v bigint").parquet(str(tmp_path)).collect()
    assert sorted((row.v, row.s) for row in read) == [(n, text or None) for n, text in enumerate(texts)]


def test_without_columns_all_rows_are_in_the_folder_itself() -> None:
    """One part, with all columns."""
    rows = table([("a", 1, True, None)])
    assert list(divided(rows, [])) == [("", rows)]


@pytest.mark.parametrize(
    "text",
    ["x" * 254, "é" * 127, "/" * 85, "a\0b", "__HIVE_DEFAULT_PARTITION__"],
    ids=["long", "long in UTF-8", "long as a code", "NUL", "the name of null"],
)
def test_a_text_that_no_folder_can_be_named_is_refused(text: str) -> None:
    """SEMANTICS 9.6: before its batch is committed."""
    with pytest.raises(SinkValueRefused, match="'s' names folders"):
        list(divided(table([(text, 1, True, None)]), ["s"]))
    assert list(divided(table([(text[:20].replace("\0", ""), 1, True, None)]), ["s"]))


@pytest.mark.fault("F74")
def test_a_date_that_no_python_object_holds_is_refused() -> None:
    """As a text that is no UTF-8 is."""
    far = pa.table({"d": pa.array([2**31 - 1], pa.date32()), "v": [1]})
    torn = pa.table({"d": pa.array([b"\xff"]).view(pa.string()), "v": [1]})
    for rows in (far, torn):
        with pytest.raises(SinkValueRefused, match="'d' names folders"):
            list(divided(rows, ["d"]))


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (["x"], "names 'x', and the stream has"),
        (["f"], "is double"),
        (["_h"], "readers pass over"),
        (["s", "n", "_h", "f"], "is double|readers pass over"),
    ],
    ids=str,
)
def test_columns_that_cannot_name_folders_are_refused(by: list[str], why: str) -> None:
    """Before the first batch."""
    schema = pa.schema([SCHEMA.field("s"), SCHEMA.field("n"), SCHEMA.field("f"), pa.field("_h", pa.string())])
    with pytest.raises(SinkSchemaMismatch, match=why):
        check_partitions(schema, by)


def test_one_column_must_be_left() -> None:
    """A file without columns has no rows."""
    schema = pa.schema([SCHEMA.field("s"), SCHEMA.field("n")])
    check_partitions(schema, ["s"])
    with pytest.raises(SinkSchemaMismatch, match="leaves none"):
        check_partitions(schema, ["n", "s"])
