"""A file is replayed in a chosen order, and a file that is not what it was is refused (SEMANTICS 9)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_reading import csv, end_of_batch, rows

from penstock.errors import (
    BadRecordFound,
    ConfigError,
    FileUnreadable,
    ReadOtherwise,
    SourceChanged,
    SourceNotFound,
)
from penstock.sources import BadRecord, FileReplay, csv_records
from penstock.sources import replay as replay_module
from penstock.sources.base import ERROR, POSITION, RAW
from penstock.sources.csv_records import csv_parts

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


@pytest.fixture(autouse=True)
def private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the sorted copies of a test apart from those of others."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def read_csv(
    path: Path, schema: pa.Schema | None, nulls: tuple[str, ...]
) -> tuple[pa.Table, pa.Array | None, pa.Array | None]:
    """Return all parts of a CSV file as one."""
    parts = list(csv_parts(path, schema, nulls))
    if not any(errors is not None for _, errors, _ in parts):
        return pa.concat_tables([table for table, _, _ in parts]), None, None
    columns_of_parts = [
        [pa.nulls(t.num_rows, pa.string()) if c is None else c for c in columns] for t, *columns in parts
    ]
    return pa.concat_tables([t for t, _, _ in parts]), *(
        pa.concat_arrays([columns[i] for columns in columns_of_parts]) for i in (0, 1)
    )


def test_rows_come_in_the_order_of_the_column_ties_by_file_row_nulls_last(tmp_path: Path) -> None:
    """FileReplay: order_by."""
    path = csv(tmp_path, "k,s\n3,a\n1,b\n,c\n3,d\n1,e\n,f\n2,g\n")
    table = rows(FileReplay(path, order_by="k").open(None))
    assert "".join(table["s"].to_pylist()) == "begadcf"
    assert table[POSITION].to_pylist() == list(range(7))


def test_many_ties_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """FileReplay: Arrow's sort promises nothing about ties, so the row number is a key of its own."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": [i % 3 for i in range(3000)], "i": range(3000)}), path)
    values = rows(FileReplay(path, order_by="k").open(None))["i"].to_pylist()
    assert values == sorted(range(3000), key=lambda i: (i % 3, i))


@pytest.mark.fault("F43")
def test_odd_times_are_kept_as_they_are(tmp_path: Path) -> None:
    """F43: before 1970, leap days, the hour that summer time skips, the last year; a time without a zone is UTC."""
    times = ["1969-12-31 23:59:59", "2024-02-29 12:00:00", "2024-03-31 02:30:00", "9999-12-31 23:59:59"]
    path = csv(tmp_path, "t\n" + "\n".join(reversed(times)))
    times_read = rows(FileReplay(path, order_by="t").open(None))["t"]
    assert times_read.type == pa.timestamp("us", tz="UTC")
    assert [t.strftime("%Y-%m-%d %H:%M:%S") for t in times_read.to_pylist()] == times


def test_nanoseconds_and_other_zones_become_microseconds_in_utc(tmp_path: Path) -> None:
    """Spark holds no others; a Parquet time without a zone stays one."""
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "t": pa.array([1_000_000_000], pa.timestamp("ns", tz="Europe/Berlin")),
            "n": pa.array([1000], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, path, coerce_timestamps=None)
    reader = FileReplay(path, order_by="t").open(None)
    assert reader.schema.types == [pa.timestamp("us", tz="UTC"), pa.timestamp("us")]
    assert rows(reader)["t"][0].as_py().timestamp() == 1


def test_null_texts_are_those_that_are_named(tmp_path: Path) -> None:
    """FileReplay: `nulls` are the CSV texts that mean null, and no others do."""
    path = csv(tmp_path, "k,s\n1,NA\n2,-\n3,\n4,null\n")
    assert rows(FileReplay(path, order_by="k").open(None))["s"].to_pylist() == ["NA", "-", None, "null"]
    chosen = FileReplay(path, order_by="k", nulls=("NA", "-")).open(None)
    assert rows(chosen)["s"].to_pylist() == [None, None, "", "null"]


# --- bad records -----------------------------------------------------------------------------

TYPES = pa.schema([("k", pa.int32()), ("t", pa.timestamp("us", tz="UTC")), ("b", pa.bool_())])
BAD = [
    ("text in a number", "x,2024-01-01T00:00:00Z,true", "column 'k': 'x' does not fit int"),
    ("a fraction", "1.5,2024-01-01T00:00:00Z,true", "column 'k': '1.5' does not fit int"),
    ("too large", "3000000000,2024-01-01T00:00:00Z,true", "column 'k': '3000000000' does not fit int"),
    ("no time", "1,yesterday,true", "column 't': 'yesterday' does not fit timestamp"),
    ("no boolean", "1,2024-01-01T00:00:00Z,maybe", "column 'b': 'maybe' does not fit boolean"),
    ("a field too many", "1,2024-01-01T00:00:00Z,true,9", "4 fields where the header has 3"),
    ("a field too few", "1,2024-01-01T00:00:00Z", "2 fields where the header has 3"),
]


@pytest.mark.fault("F40")
@pytest.mark.parametrize(("record", "reason"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_record_is_a_null_row_with_its_text_and_reason(record: str, reason: str, tmp_path: Path) -> None:
    """SEMANTICS 9.3: with its place in the file; the records around it are read."""
    good = "7,2024-01-01T00:00:00Z,false"
    path = csv(tmp_path, f"k,t,b\n{good}\n{record}\n{good}\n")
    table, errors, raw = read_csv(path, TYPES, ("",))
    assert table["k"].to_pylist() == [7, None, 7]
    assert table["t"].null_count == table["b"].null_count == 1
    assert errors is not None
    assert errors.to_pylist() == [None, f"record 2 of the file: {reason}", None]
    assert raw is not None
    assert [bool(r) for r in raw.to_pylist()] == [False, True, False]
    assert all(field in raw[1].as_py() for field in record.split(","))


@pytest.mark.fault("F40")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_null_where_the_schema_says_not_null_is_a_bad_record(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEMANTICS 9.3: in the words of a MemorySource, also beside a value that does not fit; other nulls are kept."""
    path = csv(tmp_path, "id,k,s\n1,1,a\n,2,b\n,x,c\n4,4,\n")
    if suffix == "parquet":
        table = pa.table({"id": pa.array([1, None, None, 4]), "k": ["1", "2", "x", "4"], "s": ["a", "b", "c", None]})
        path = tmp_path / "rows.parquet"
        pq.write_table(table, path)
    schema = pa.schema([pa.field("k", pa.int32()), pa.field("id", pa.int32(), nullable=False), ("s", pa.string())])
    monkeypatch.setattr(replay_module, "arrow_schema", lambda _: schema)
    parsed = rows(FileReplay(path, order_by="k", schema="k int, id int NOT NULL, s string").open(None))
    reason = "column 'id' is null, and the schema says NOT NULL"
    reasons = [f"record {n} of the file: {reason}" if suffix == "csv" else reason for n in (2, 3)]
    assert parsed[ERROR].to_pylist() == [None, None, *reasons]
    assert parsed["id"].to_pylist() == [1, 4, None, None]
    assert parsed["k"].to_pylist() == [1, 4, None, None]
    assert parsed["s"].to_pylist() == ["a", None, None, None]
    assert [None if r is None else json.loads(r) for r in parsed[RAW].to_pylist()] == [
        None,
        None,
        {"k": "2", "id": None, "s": "b"},
        {"k": "x", "id": None, "s": "c"},
    ]


UNREADABLE = [
    ("text as a list", pa.array(["[1]"]), pa.list_(pa.int32()), "column 'k' is string in the file, .* array<int>"),
    ("a number as a date", pa.array([1.5]), pa.date32(), "column 'k' is double in the file, .* date"),
    (
        "a struct without what it must have",
        pa.array([{"a": 1}]),
        pa.struct([pa.field("b", pa.int64(), nullable=False)]),
        "column 'k' is struct<a: int64> in the file, .* struct<b:bigint>",
    ),
]


@pytest.mark.parametrize(("values", "kind", "reason"), [u[1:] for u in UNREADABLE], ids=[u[0] for u in UNREADABLE])
def test_a_type_that_no_value_of_the_file_can_become_is_refused(
    values: pa.Array, kind: pa.DataType, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FileReplay: schema. That is not a bad record: it is said with the column and both types."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": values}), path)
    monkeypatch.setattr(replay_module, "arrow_schema", lambda _: pa.schema([("k", kind)]))
    with pytest.raises(ConfigError, match=reason) as caught:
        FileReplay(path, order_by="k", schema="as above").open(None)
    assert caught.value.where == str(path)
    if pa.types.is_string(values.type):
        with pytest.raises(ConfigError, match=reason) as caught:
            read_csv(csv(tmp_path, "k\n[1]\n"), pa.schema([("k", kind)]), ("",))
        assert caught.value.where == str(tmp_path / "rows.csv")


def test_bad_records_of_both_kinds_keep_their_places(tmp_path: Path) -> None:
    """SEMANTICS 9.3: a record that cannot be split and one that cannot be typed, in one file."""
    path = csv(tmp_path, "k,t,b\n1,,\n2\n3,,\nx,,\n5,6,7,8\n6,,\n")
    table, errors, _ = read_csv(path, TYPES, ("",))
    assert errors is not None
    assert table["k"].to_pylist() == [1, None, 3, None, None, 6]
    assert [None if e is None else int(e.split()[1]) for e in errors.to_pylist()] == [None, 2, None, 4, 5, None]


def test_times_with_and_without_a_zone_in_one_column(tmp_path: Path) -> None:
    """A time without a zone is UTC, also beside others."""
    path = csv(tmp_path, "t\n1970-01-01 00:00:01\n1970-01-01T02:00:01+02:00\n1970-01-01 00:00:01.5\n")
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    table, errors, _ = read_csv(path, schema, ("",))
    assert errors is None
    assert [t.timestamp() for t in table["t"].to_pylist()] == [1, 1, 1.5]


@pytest.mark.fault("F40")
def test_bad_records_without_a_schema_are_quarantined_or_fail(tmp_path: Path) -> None:
    """SEMANTICS 9.3: never skipped in silence; with FAIL the record is named."""
    path = csv(tmp_path, "k,s\n2,a\n1\n0,c\n")
    table = rows(FileReplay(path, order_by="k").open(None))
    assert table["k"].to_pylist() == [0, 2, None]
    assert table[ERROR].to_pylist() == [None, None, "record 2 of the file: 1 fields where the header has 2"]
    assert table[RAW].to_pylist() == [None, None, "1"]
    with pytest.raises(BadRecordFound, match="record 2 of the file: 1 fields") as caught:
        FileReplay(path, order_by="k", on_bad_record=BadRecord.FAIL).open(None)
    assert caught.value.where == str(path)


def test_text_that_is_not_utf8_is_never_taken_for_text(tmp_path: Path) -> None:
    """SEMANTICS 9.3: where the schema says text it is a bad record; where nothing says so the column is bytes."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"k,s\n1,\xff\xfe\n")
    assert FileReplay(path, order_by="k").open(None).schema.field("s").type == pa.binary()
    table, errors, raw = read_csv(path, pa.schema([("s", pa.string())]), ("",))
    assert table["s"].to_pylist() == [None]
    assert errors is not None
    assert errors[0].as_py().startswith("record 1 of the file: column 's' is no UTF-8")
    assert raw is not None
    assert raw.to_pylist() == [r'{"s": "\\xff\\xfe"}']


# --- the file itself -------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """SourceNotFound is a FileNotFoundError with the path."""
    with pytest.raises(SourceNotFound, match=r"no\.csv") as caught:
        FileReplay(tmp_path / "no.csv", order_by="k").open(None)
    assert isinstance(caught.value, FileNotFoundError)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(SourceNotFound):
        FileReplay(tmp_path / "folder.csv", order_by="k").open(None)


def test_only_parquet_and_csv_are_read(tmp_path: Path) -> None:
    """A file of another kind is refused by its suffix."""
    (tmp_path / "rows.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"rows\.json' is neither \.parquet nor \.csv"):
        FileReplay(tmp_path / "rows.json", order_by="k")


def test_a_parquet_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """A damaged file is named with Arrow's reason."""
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BadRecordFound, match="cannot be read"):
        FileReplay(path, order_by="k").open(None)


@pytest.mark.parametrize("rows_per_batch", [0, -5])
def test_a_batch_needs_a_row(rows_per_batch: int) -> None:
    """A replay of no rows a batch would never end."""
    with pytest.raises(ConfigError, match=str(rows_per_batch)):
        FileReplay("rows.csv", order_by="k", rows_per_batch=rows_per_batch)


def test_a_file_without_rows_has_ended(tmp_path: Path) -> None:
    """SEMANTICS 2.1: zero rows are an end too."""
    reader = FileReplay(csv(tmp_path, "k,s\n"), order_by="k").open(None)
    assert reader.ended(None)
    assert reader.ended(end_of_batch(reader, None))


@pytest.mark.fault("F39")
@pytest.mark.parametrize("change", ["longer", "same length", "gone"])
def test_a_file_that_changed_is_refused(change: str, tmp_path: Path) -> None:
    """F39, SEMANTICS 9.1: rows fixed by length and time are read again from that file only, and so are later rows."""
    path = csv(tmp_path, "k,s\n1,a\n2,b\n3,c\n")
    replay = FileReplay(path, order_by="k", rows_per_batch=2)
    reader = replay.open(None)
    position = end_of_batch(reader, None)
    span = reader.span(None, position)
    reader.verify(span)
    if change == "gone":
        path.unlink()
    else:
        path.write_text("k,s\n0,z\n1,a\n2,b\n3,c\n" if change == "longer" else "k,s\n1,a\n2,B\n3,c\n")
        os.utime(path, ns=(0, 12345))
    with pytest.raises(SourceChanged, match="rows 0 to 2 were fixed"):
        reader.verify(span)
    if change != "gone":
        again = replay.open(None)
        with pytest.raises(SourceChanged, match="rows 0 to 2 were fixed"):
            again.verify(span)
        with pytest.raises(SourceChanged, match="the first 2 rows were read"):
            end_of_batch(again, position)


@pytest.mark.fault("F39")
@pytest.mark.parametrize("other", [{"order_by": "s"}, {"nulls": ("", "a")}])
def test_a_file_that_is_read_in_another_way_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    """F39, SEMANTICS 9.1: in another order, or with other rows null, the same numbers mean other rows."""
    path = csv(tmp_path, "k,s\n1,b\n2,a\n3,c\n")
    reader = FileReplay(path, order_by="k", rows_per_batch=2).open(None)
    position = end_of_batch(reader, None)
    span = reader.span(None, position)
    changed = FileReplay(path, **{"order_by": "k", **other}, rows_per_batch=1).open(None)
    with pytest.raises(SourceChanged, match="another order_by, schema or nulls"):
        changed.verify(span)
    with pytest.raises(SourceChanged, match="the first 2 rows were read with another order_by"):
        end_of_batch(changed, position)
    slower = FileReplay(path, order_by="k", rows_per_batch=1).open(None)
    slower.verify(span)
    assert end_of_batch(slower, position)["row"] == 3


@pytest.mark.fault("F39")
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F39: no sorted copy is kept that is neither the old file nor the new one."""
    path = csv(tmp_path, "k\n1\n")
    order = replay_module._order

    def slow(*args: Any) -> pa.ChunkedArray:
        path.write_text("k\n1\n2\n")
        return order(*args)

    monkeypatch.setattr(replay_module, "_order", slow)
    with pytest.raises(SourceChanged, match="while it was read"):
        FileReplay(path, order_by="k").open(None)
    monkeypatch.undo()


# --- positions and records -------------------------------------------------------------------


@pytest.mark.fault("F39")
def test_the_same_bytes_are_the_same_file(tmp_path: Path) -> None:
    """F39, SEMANTICS 9.1: a copy of the file with another time is read on, beside a reader that runs and after it."""
    path = csv(tmp_path, "k,s\n1,a\n2,b\n3,c\n")
    replay = FileReplay(path, order_by="k", rows_per_batch=2)
    reader = replay.open(None)
    position = end_of_batch(reader, None)
    span = reader.span(None, position)
    os.utime(path, ns=(0, 12345))
    for opened in (reader, replay.open(None)):
        opened.verify(span)
        assert end_of_batch(opened, position)["row"] == 3


@pytest.mark.fault("F22", "F39")
def test_a_position_of_an_older_release_is_read_on(tmp_path: Path) -> None:
    """F22: it has the file's time and no digest; another time, or another way to read, is refused as it was."""
    path = csv(tmp_path, "k,s\n1,a\n2,b\n3,c\n")
    os.utime(path, ns=(0, 12345))
    read_as = hashlib.sha256(json.dumps(["k", None, [""]]).encode()).hexdigest()[:16]
    known = {"row": 2, "length": path.stat().st_size, "modified_ns": 12345, "read_as": read_as}
    reader = FileReplay(path, order_by="k").open(None)
    assert end_of_batch(reader, known)["row"] == 3
    with pytest.raises(ReadOtherwise, match="the first 2 rows"):
        end_of_batch(reader, {**known, "read_as": "0" * 16})
    with pytest.raises(SourceChanged, match="modified_ns"):
        end_of_batch(reader, {**known, "modified_ns": 5})


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_line_breaks_in_quotes_are_part_of_the_value(
    schema: pa.Schema | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: however many blocks the file has; records that cannot be split keep their places among them."""
    monkeypatch.setattr(csv_records, "_BLOCK", 1_000)
    count, broken = 3_000 if schema is not None else 60_000, {7, 1_500, 2_999}
    lines = [f'{i},"a\nb{i}"' if i not in broken or schema is None else f"{i}" for i in range(count)]
    table, errors, raw = read_csv(csv(tmp_path, "k,s\n" + "\n".join(lines) + "\n"), schema, ("",))
    assert table["s"].to_pylist() == [None if schema is not None and i in broken else f"a\nb{i}" for i in range(count)]
    if schema is not None:
        assert errors is not None
        assert raw is not None
        refused = {int(e.split()[1]) - 1 for e in errors.to_pylist() if e is not None}
        assert refused == {int(r) for r in raw.to_pylist() if r is not None} == broken


@pytest.mark.remedy("PEN-SRC-006")
def test_a_file_that_cannot_be_split_is_told_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: the remedy names no option that is there already, or that there is not; a file corrected by it is read."""
    monkeypatch.setattr(csv_records, "_BLOCK", 1_000)
    path = tmp_path / "rows.csv"
    path.write_text("k,s\n" + '1,"never closed' + "x" * 5_000)
    monkeypatch.setattr(replay_module, "arrow_schema", lambda _: SCHEMA)
    replay = FileReplay(path, order_by="k", schema="k long, s string")
    with pytest.raises(FileUnreadable, match="each quote is closed") as raised:
        replay.open(None)
    assert "on_bad_record" not in raised.value.remedy
    path.write_text('k,s\n1,"closed"\n')
    assert rows(replay.open(None))["s"].to_pylist() == ["closed"]


def test_an_order_that_is_drawn_is_refused(tmp_path: Path) -> None:
    """SEMANTICS 9.1: replaying a file gives its rows in the same order, so no function may draw it."""
    with pytest.raises(ConfigError, match="order_by: rand in 'rand"):
        FileReplay(csv(tmp_path, "k\n1\n"), order_by="rand(7)", schema="k int")
