"""Whole files become rows, and what a file holds is named by its row (SEMANTICS 9.3; F40 to F42)."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import zlib
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folder_files import Numbers, Rows

from penstock.errors import ColumnsChanged
from penstock.graph.policies import OnMissingColumn, OnNewColumn
from penstock.sources.base import PARTIAL
from penstock.sources.file import formats
from penstock.sources.file.formats import FileFormat, HeadedCsv, Lines, Parquet
from penstock.sources.file.parts import ColumnRules, Part, Share, Unreadable
from penstock.sources.formats import Csv, Json, Text

STRICT = ColumnRules(OnNewColumn.FAIL, OnMissingColumn.FAIL)
LENIENT = ColumnRules(OnNewColumn.IGNORE, OnMissingColumn.NULLS)
KV = pa.schema([("k", pa.int64()), ("v", pa.float64())])
WHOLE = Share(0, 100, 100, 0, 1)
HEADED = HeadedCsv(Csv("", header=True))


def parts_of(
    form: FileFormat, data: bytes, schema: pa.Schema = KV, *, name: str = "f", share: Share = WHOLE, rules: Any = STRICT
) -> list[Part]:
    return list(form.parts(io.BytesIO(data), name, schema, share, rules))


def rows_of(parts: list[Part]) -> dict[int, tuple[Any, ...]]:
    """Return by the number of each row its values, or its error and text."""
    rows = {}
    for part in parts:
        errors = [None] * len(part.numbers) if part.errors is None else part.errors.to_pylist()
        raw = [None] * len(part.numbers) if part.raw is None else part.raw.to_pylist()
        for n, row, error, text in zip(part.numbers.tolist(), part.rows.to_pylist(), errors, raw, strict=True):
            rows[n] = tuple(row.values()) if error is None else (error, text)
    return rows


def parquet(table: pa.Table, **more: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **more)
    return sink.getvalue()


# --- lines -----------------------------------------------------------------------------------


def test_lines_are_numbered_as_an_editor_does() -> None:
    """From 1 in errors, the empty ones too; a byte-order mark and carriage returns are no part of them."""
    parts = parts_of(Lines(Numbers()), b"\xef\xbb\xbf1\r\n\n3\nx\xff\n5", Numbers().columns())
    assert rows_of(parts) == {0: (1,), 2: (3,), 3: (f"line 4: no number{PARTIAL}", "x\\xff"), 4: (5,)}


def test_of_text_each_line_is_a_row() -> None:
    """The empty ones as well."""
    parts = parts_of(Lines(Text(), skips_empty=False), b"a\n\nb\n", Text().columns())
    assert rows_of(parts) == {0: ("a",), 1: ("",), 2: ("b",)}


def test_json_lines_have_the_errors_of_json_records() -> None:
    """The format of a record is that of a line."""
    parts = parts_of(Lines(Json("")), b'{"k": 1, "v": 0.5, "new": 3}\n{"k": "1"}\n{}\n[\n', rules=LENIENT)
    rows = rows_of(parts)
    assert (rows[0], rows[2]) == ((1, 0.5), (None, None))
    assert rows[1][0].startswith("line 2: no JSON object of these columns: Expected `int | null`, got `str`")
    assert rows[3][1] == "["


@pytest.mark.fault("F41")
def test_a_line_that_is_too_long_is_a_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """F41: its first bytes are kept, wherever it lies in what is read at a time; the others are rows."""
    monkeypatch.setattr(formats, "_LONGEST", 50)
    monkeypatch.setattr(formats, "_SHOWN", 9)
    monkeypatch.setattr(formats, "_BYTES_A_PART", 7)
    parts = parts_of(Lines(Text(), skips_empty=False), b"a\n" + b"x" * 200 + b"\nb\n" + b"y" * 50, Text().columns())
    assert rows_of(parts) == {0: ("a",), 1: (f"line 2: more than 0 MiB{PARTIAL}", "x" * 9), 2: ("b",), 3: ("y" * 50,)}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_the_same_however_they_are_read(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Their ends lie anywhere in what is read at a time."""
    monkeypatch.setattr(formats, "_BYTES_A_PART", size)
    monkeypatch.setattr(formats, "_ROWS_A_PART", 3)
    text = "\na\n\nbb\nccc\n\nddd ddd"
    rows = rows_of(parts_of(Lines(Text(), skips_empty=False), text.encode(), Text().columns()))
    assert [value for (value,) in rows.values()] == text.split("\n")


PACKED = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_files(suffix: str) -> None:
    """By their suffix, also several streams in one file; a truncated one is unreadable behind its last whole rows."""
    data = b"".join(b"%d,%d\n" % (k, k * 7919 % 1009) for k in range(50_000))
    packed = PACKED[suffix](b"k,v\n" + data)
    assert len(rows_of(parts_of(HEADED, packed, name=f"a.csv{suffix}"))) == 50_000
    both = PACKED[suffix](b"1\n") + PACKED[suffix](b"2\n")
    assert rows_of(parts_of(Lines(Numbers()), both, Numbers().columns(), name=f"a{suffix}")) == {0: (1,), 1: (2,)}
    parts = HEADED.parts(io.BytesIO(packed[:-20]), f"a{suffix}", KV, WHOLE, STRICT)
    read: list[Part] = []
    with pytest.raises(Unreadable, match="Truncated") as cut:
        read.extend(parts)
    assert cut.value.row == sum(len(part.numbers) for part in read)
    with pytest.raises(Unreadable):
        parts_of(Lines(Text()), b"no such thing", Text().columns(), name=f"a{suffix}")


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("rows", [400, 400_000])
def test_the_lines_before_the_damage_of_a_compressed_file_are_rows(suffix: str, rows: int) -> None:
    """All that can be decompressed counts, and not only whole pieces of the reader's."""
    packed = PACKED[suffix](b"".join(b"%d\n" % (k * 7919 % 1_000_003) for k in range(rows)))
    cut = packed[: len(packed) // 2]
    read: list[Part] = []
    with pytest.raises(Unreadable, match="Truncated") as caught:
        read.extend(Lines(Numbers()).parts(io.BytesIO(cut), f"a{suffix}", Numbers().columns(), WHOLE, STRICT))
    whole = [value for part in read for value in part.rows.column(0).to_pylist()]
    assert whole == [k * 7919 % 1_000_003 for k in range(len(whole))]
    assert caught.value.row == len(whole)
    if suffix == ".gz":
        there = zlib.decompressobj(31).decompress(cut).count(b"\n")
        assert len(whole) == there > rows // 4


def test_of_a_file_with_a_wrong_checksum_no_line_counts() -> None:
    """It decompresses on behind a bit that was changed, and nobody knows where that is."""
    packed = bytearray(gzip.compress(b"".join(b"%d\n" % k for k in range(100_000)), 1))
    packed[-8] ^= 1
    read: list[Part] = []
    with pytest.raises(Unreadable, match="check") as caught:
        read.extend(Lines(Numbers()).parts(io.BytesIO(packed), "a.gz", Numbers().columns(), WHOLE, STRICT))
    assert (read, caught.value.row) == ([], 0)


def test_a_truncated_file_that_becomes_shorter_ends_the_read() -> None:
    """As one that is written again meanwhile: an error, and no search without end."""

    class Shrinking(io.BytesIO):
        def seek(self, *at: int) -> int:
            self.truncate(0)
            return super().seek(*at)

    packed = gzip.compress(b"".join(b"%d\n" % (k * 7919 % 1_000_003) for k in range(2_000_000)))
    with pytest.raises(Unreadable, match="shorter"):
        list(Lines(Numbers()).parts(Shrinking(packed[:-100]), "a.gz", Numbers().columns(), WHOLE, STRICT))


# --- CSV -------------------------------------------------------------------------------------


def test_csv_has_the_columns_of_its_header() -> None:
    """In any order; quoted fields may have delimiters and line ends; a bad record has its number and its text."""
    data = b'v;k\n0.5;1\n"1\n";2\n0,5;3\n1;2;3\n;\n'
    rows = rows_of(parts_of(HeadedCsv(Csv("", delimiter=";", header=True)), data))
    assert rows[0] == (1, 0.5)
    assert rows[4] == (None, None)
    assert rows[1][0] == "record 2 of the file: column 'v': '1\\n' does not fit double"
    assert rows[2][0] == "record 3 of the file: column 'v': '0,5' does not fit double"
    assert rows[3] == ("record 4 of the file: 3 fields where the header has 2", "1;2;3")


def test_csv_with_another_quote_or_none() -> None:
    """In the header too."""
    single = HeadedCsv(Csv("", quote="'", header=True))
    assert rows_of(parts_of(single, b"'k','v'\n'1','0.5'\n")) == {0: (1, 0.5)}
    none = HeadedCsv(Csv("", quote="", nulls=['"'], header=True))
    assert rows_of(parts_of(none, b'k,v\n1,"\n')) == {0: (1, None)}


@pytest.mark.parametrize("shift", [0, 1])
def test_csv_is_text_wherever_a_piece_of_it_ends(shift: int) -> None:
    """A character of two bytes may lie across the end of the piece that the header is looked for in (F40)."""
    text = "x" * shift + "é" * 40_000
    data = f"name\n{text}\nb\n".encode()
    assert rows_of(parts_of(HEADED, data, pa.schema([("name", pa.string())]))) == {0: (text,), 1: ("b",)}


@pytest.mark.parametrize("rules", [STRICT, LENIENT], ids=["strict", "lenient"])
def test_a_header_that_is_no_text_is_no_new_column(rules: ColumnRules) -> None:
    """F41: the file is in another encoding. A lenient job left its column out, and read nulls in silence."""
    schema = pa.schema([("k", pa.int64()), ("größe", pa.int64())])
    with pytest.raises(Unreadable, match="header is no UTF-8"):
        parts_of(HEADED, "k,größe\n1,5\n".encode("latin-1"), schema, rules=rules)
    named = pa.schema([("\ufffd", pa.int64())])
    assert rows_of(parts_of(HEADED, "\ufffd\n5\n".encode(), named)) == {0: (5,)}, "a character as any other"


def test_csv_that_is_no_csv() -> None:
    """An empty file, and one with a header alone."""
    with pytest.raises(Unreadable, match="no header"):
        parts_of(HEADED, b"")
    assert rows_of(parts_of(HEADED, b"k,v\n")) == {}


# --- Parquet ---------------------------------------------------------------------------------


def test_parquet_is_cast_to_the_columns() -> None:
    """F42: a value that does not fit is a bad record, a type that cannot is an unreadable file."""
    rows = rows_of(parts_of(Rows(), parquet(pa.table({"v": pa.array([1, 2]), "k": ["7", "x"]}))))
    assert rows == {0: (7, 1.0), 1: ("row 2: column 'k': 'x' does not fit bigint", '{"k": "x", "v": 2}')}
    with pytest.raises(Unreadable, match=r"column 'k' is list<.*> in the file, and the schema says bigint"):
        parts_of(Rows(), parquet(pa.table({"k": [[1]], "v": [0.5]})))


def test_parquet_that_is_none() -> None:
    """No footer, and a damaged page: what was read before stays read."""
    with pytest.raises(Unreadable) as none:
        parts_of(Rows(), b"no Parquet at all")
    assert none.value.row == 0
    table = pa.table({"k": range(3000), "v": [k / 2 for k in range(3000)]})
    data = bytearray(parquet(table, row_group_size=1000, compression="zstd", use_dictionary=False))
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1).column(0)
    at = group.data_page_offset
    data[at + 40 : at + 80] = bytes(40)
    parts, read = Rows().parts(io.BytesIO(bytes(data)), "f", KV, WHOLE, STRICT), list[Part]()
    with pytest.raises(Unreadable) as damaged:
        read.extend(parts)
    assert damaged.value.row == 1000 == sum(len(part.numbers) for part in read)


def test_the_columns_of_a_parquet_file_as_spark_has_them() -> None:
    """Times in microseconds, dictionaries as what they hold, all nullable."""
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("ns", tz="Europe/Paris"))
    table = pa.table(
        [at, pa.array(["x"]).dictionary_encode(), pa.array([1])],
        schema=pa.schema([
            ("at", at.type), ("word", pa.dictionary(pa.int32(), pa.string())), pa.field("n", pa.int64(), nullable=False)
        ]),
    )  # fmt: skip
    form, data = Parquet(), parquet(table)
    assert form.columns() is None
    columns = form.columns_of(io.BytesIO(data))
    assert columns == pa.schema([("at", pa.timestamp("us", tz="UTC")), ("word", pa.string()), ("n", pa.int64())])
    assert rows_of(parts_of(form, data, columns)) == {0: (datetime(2026, 1, 1, tzinfo=UTC), "x", 1)}
    with pytest.raises(Unreadable):
        form.columns_of(io.BytesIO(b"none"))


# --- columns that change ---------------------------------------------------------------------

FILES = {
    "csv": (HEADED, lambda names: ",".join(names).encode() + b"\n" + b",".join([b"1"] * len(names)) + b"\n"),
    "parquet": (Rows(), lambda names: parquet(pa.table({name: [1] for name in names}))),
}


@pytest.mark.fault("F42")
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("names", "what"),
    [(("k", "v", "w"), "column 'w' is new"), (("k", "v", ""), "column '' is new"), (("k",), "column 'v' is missing")],
)
def test_a_column_that_is_new_or_missing_by_policy(kind: str, names: tuple[str, ...], what: str) -> None:
    """The batch fails, or the file is one bad record, or the column is left out or null."""
    form, make = FILES[kind]
    data = make(names)
    with pytest.raises(ColumnsChanged, match=what):
        parts_of(form, data)
    quarantine = ColumnRules(OnNewColumn.QUARANTINE, OnMissingColumn.QUARANTINE)
    with pytest.raises(Unreadable, match=what):
        parts_of(form, data, rules=quarantine)
    assert rows_of(parts_of(form, data, rules=LENIENT)) == {0: (1, 1.0 if "v" in names else None)}


@pytest.mark.fault("F42")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"k": 1, "v": 2.0, "w": 3}', "column 'w' is new"),
        (b'{"v": 2.0}', "column 'k' is missing"),
        (b"{}", "column 'k' is missing"),
        (b'{"v": 2.0, "w": 1}', "column '[wk]' is"),
    ],
    ids=["new", "missing", "nothing", "both"],
)
def test_a_line_of_json_with_more_members_or_fewer_by_policy(line: bytes, what: str) -> None:
    """The batch fails with the line, or the line is a bad record, or its member is left out or null."""
    form = Lines(Json("k long, v double"))
    data = b'{"k": 5, "v": 1.5}\n\n' + line + b'\n{"v": 0.5, "k": null}\nno object\n'
    with pytest.raises(ColumnsChanged, match=f"line 3: {what}"):
        parts_of(form, data)
    quarantine = ColumnRules(OnNewColumn.QUARANTINE, OnMissingColumn.QUARANTINE)
    (part,) = parts_of(form, data, rules=quarantine)
    assert part.errors is not None
    assert part.raw is not None
    first, bad, null, other = part.errors.to_pylist()
    assert (first, null) == (None, None), "what is null is there"
    assert re.fullmatch(f"line 3: {what}.*", bad)
    assert "no JSON object" in other
    assert part.raw.to_pylist()[1] == line.decode()
    assert part.rows.to_pydict() == {"k": [5, None, None, None], "v": [1.5, None, 0.5, None]}
    (part,) = parts_of(form, b"\n".join([line, line, b""]), rules=quarantine)
    assert part.rows.to_pydict() == {"k": [None, None], "v": [None, None]}, "also where no line is good"
    (part,) = parts_of(form, b'{"k": 1, "v": 2.0, "\xff": 3}', rules=quarantine)
    assert part.errors is not None
    assert part.errors.to_pylist() == ["line 1: the name of a column is no UTF-8 (the text is not the whole record)"]
    (part,) = parts_of(form, data, rules=LENIENT)
    assert part.rows["v"].to_pylist() == [1.5, None if line == b"{}" else 2.0, 0.5, None]
    is_new = b"w" in line
    fails = ColumnRules(OnNewColumn.FAIL, OnMissingColumn.QUARANTINE)
    with pytest.raises(ColumnsChanged, match="column 'w' is new" if is_new else "column 'k' is missing"):
        parts_of(form, data, rules=fails if is_new else ColumnRules(OnNewColumn.QUARANTINE, OnMissingColumn.FAIL))


def test_a_column_that_is_there_twice() -> None:
    """Nobody knows which is meant."""
    with pytest.raises(Unreadable, match="'k' is there twice"):
        parts_of(HEADED, b"k,k\n1,2\n")


# --- shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("form", [Rows(), Lines(Numbers())])
def test_each_row_is_in_one_share(form: FileFormat, splits: int) -> None:
    """Row groups of Parquet are shared, other files are not; the shares follow one another."""
    schema = Numbers().columns()
    table = pa.table({"k": range(100)})
    lines = b"".join(b"%d\n" % k for k in range(100))
    data = parquet(table, row_group_size=9) if isinstance(form, Parquet) else lines
    total, numbers = 3 * len(data), []
    for split in range(splits):
        for start in (0, len(data), 2 * len(data)):
            share = Share(start, len(data), total, split, splits)
            parts = parts_of(form, data, schema, share=share) if share.has_any else []
            numbers += [(start, n) for part in parts for n in part.numbers.tolist()]
    assert numbers == [(start, n) for start in (0, len(data), 2 * len(data)) for n in range(100)]


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_an_unreadable_file_is_named_by_one_share(splits: int) -> None:
    """So that it is one bad record."""
    shares = [Share(10, 80, 100, split, splits) for split in range(splits)]
    raised = 0
    for share in shares:
        try:
            parts_of(Rows(), b"no Parquet", share=share)
        except Unreadable:
            raised += 1
    assert raised == 1


def test_a_guess_of_how_long_rows_are() -> None:
    """Parquet says it, of lines the first ones."""
    data = b"12345\n" * 1000
    assert Lines(Text()).bytes_a_row(io.BytesIO(data), "f", len(data)) == pytest.approx(6, rel=0.1)
    packed = gzip.compress(data)
    assert Lines(Text()).bytes_a_row(io.BytesIO(packed), "f.gz", len(packed)) < 1
    table = parquet(pa.table({"k": range(1000)}))
    assert Parquet().bytes_a_row(io.BytesIO(table), "f", len(table)) == len(table) / 1000
    assert HEADED.bytes_a_row(io.BytesIO(b""), "f", 0) == 1
