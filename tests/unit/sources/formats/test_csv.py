"""Lines of CSV become rows, as Python's csv module splits them (SEMANTICS 9.3)."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from format_contract import decoded_as_if_alone
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.sources.formats.base import NO_VALUE
from penstock.sources.formats.csv import Csv

UTC_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.float32()), ("at", UTC_TIME), ("day", pa.date32()), ("price", pa.decimal128(10, 2)),
     ("yes", pa.bool_()), ("s", pa.string()), ("b", pa.binary())]
)  # fmt: skip
TEXTS = pa.schema([("a", pa.string()), ("b", pa.string())])


def decoded(line: str | bytes | None, schema: pa.Schema = TEXTS, form: Csv | None = None) -> Any:
    """Return the fields of one line, or its error."""
    made = (form or Csv("")).decode([line.encode() if isinstance(line, str) else line], schema)
    return tuple(made.rows.to_pylist()[0].values()) if made.errors is None else made.errors[0].as_py()


def test_a_line_becomes_a_row_of_the_types_of_its_columns() -> None:
    """Without a header; an empty field is null, and a time without a zone is UTC."""
    line = "9223372036854775807,0.5,2026-02-28T23:59:59.123456789+02:00,2024-02-29,-1.25,true,é,x"
    assert decoded(line, SCHEMA) == (
        2**63 - 1, 0.5, datetime(2026, 2, 28, 21, 59, 59, 123456, UTC), date(2024, 2, 29), Decimal("-1.25"), True, "é", b"x"
    )  # fmt: skip
    assert decoded(",,1969-12-31 23:59:59.5,,,,,", SCHEMA)[2] == datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)


FIELDS: dict[str, tuple[tuple[str | None, ...], dict[str, Any]]] = {
    "a,b": (("a", "b"), {}),
    "a,b\n": (("a", "b"), {}),
    "a,b\r\n": (("a", "b"), {}),
    " a , b ": ((" a ", " b "), {}),
    ",": ((None, None), {}),
    '"",""': ((None, None), {}),
    "NULL,": ((None, ""), {"nulls": ["NULL"]}),
    '"a,b","c""d"': (("a,b", 'c"d'), {}),
    "\"two\nlines\",'x'": (("two\nlines", "'x'"), {}),
    'a"b,c"': (('a"b', 'c"'), {}),
    '"";b': ((None, "b"), {"delimiter": ";"}),
    "'a|b'|''''": (("a|b", "'"), {"delimiter": "|", "quote": "'"}),
    '"a,b"': (('"a', 'b"'), {"quote": ""}),
    "a.b": (("a", "b"), {"delimiter": "."}),
    f'{"x" * 200_000},"{"y" * 200_000}"': (("x" * 200_000, "y" * 200_000), {}),
}


@pytest.mark.parametrize(("line", "fields"), FIELDS.items(), ids=[repr(line)[:20] for line in FIELDS])
def test_a_line_is_split_by_delimiters_outside_of_quotes(line: str, fields: Any) -> None:
    """Whatever its length: no limit of the csv module holds."""
    values, arguments = fields
    assert decoded(line, form=Csv("", **arguments)) == values


BAD: dict[str | bytes | None, str] = {
    None: NO_VALUE, b"\xff,b": "no UTF-8", "": "1 fields where there are 2 columns", "a": "1 fields", "a,b,c": "3 fields",
    "a,b\nc,d": "more than one line", 'a,"b"\nc,d': "character 6 follows a closed quote", "a\r,b": "more than one line",
    '"a,b': "a quote is not closed", 'a,"b""': "a quote is not closed", 'a,"b"c': "character 6 follows a closed quote",
    '"a" ,b': "character 4 follows", 'a\n,"b"': "more than one line", '"': "not closed", '"""': "not closed",
    "a,b\n\n": "more than one line",
}  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BAD.items(), ids=[repr(line) for line in BAD])
def test_what_is_no_line_of_these_columns_is_an_error(line: Any, words: str) -> None:
    """The error says what is wrong; the lines beside it are as they would be alone."""
    assert words in decoded(line)
    made = Csv("").decode([b"1,2", line.encode() if isinstance(line, str) else line, b"3,4"], TEXTS)
    assert made.rows.to_pylist() == [{"a": "1", "b": "2"}, {"a": None, "b": None}, {"a": "3", "b": "4"}]
    assert made.errors is not None
    assert made.errors.is_valid().to_pylist() == [False, True, False]


MISFITS = {0: "1.5", 1: "1e39", 2: "yesterday", 3: "2026-02-30", 4: "0.001", 5: "perhaps"}


@pytest.mark.parametrize(("column", "value"), MISFITS.items())
def test_a_field_that_does_not_fit_its_column_is_an_error(column: int, value: str) -> None:
    """It names column and value."""
    fields = [""] * len(SCHEMA)
    fields[column] = value
    error = decoded(",".join(fields), SCHEMA)
    assert SCHEMA.names[column] in error
    assert value in error


ALPHABET = st.text(alphabet="ab ,;\"'\r\n\0é", max_size=12)


@given(line=ALPHABET, quote=st.sampled_from(['"', "'", ""]), delimiter=st.sampled_from(",; "))
@settings(max_examples=examples(500))
def test_lines_are_split_as_the_csv_module_splits_them(line: str, quote: str, delimiter: str) -> None:
    """What it refuses is an error. It takes several line ends for one, and an empty line for none."""
    without = line.removesuffix("\r\n") if line.endswith("\r\n") else line[: len(line) - line.endswith(("\r", "\n"))]
    quoting: Any = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    fields: list[str] = [] if without else [""]
    if without and not without.endswith(("\r", "\n")):
        try:
            (fields,) = csv.reader([without], delimiter=delimiter, strict=True, **quoting)
        except csv.Error:
            fields = []
    schema = pa.schema([(f"c{i}", pa.string()) for i in range(len(fields) or 1)])
    made = decoded(line, schema, Csv("", delimiter, nulls=[], quote=quote))
    assert made == tuple(fields) if fields else isinstance(made, str)


VALUES = ALPHABET | st.sampled_from(
    ["", "1", "0.5", "2026-01-01", "2026-01-01T00:00Z", "true", "9" * 40, "nan", "-inf"]
)
LINES = st.lists(VALUES, min_size=8, max_size=8).map(",".join).map(str.encode)


@given(records=st.lists(st.none() | st.binary(max_size=12) | LINES, max_size=8))
@settings(max_examples=examples(200))
def test_records_are_decoded_as_if_each_were_alone(records: list[bytes | None]) -> None:
    """Nothing raises, whatever they hold, and a bad one changes no other."""
    decoded_as_if_alone(Csv(""), records, SCHEMA)


WRONG: dict[str, dict[str, Any]] = {
    "delimiter='' is not one character": {"delimiter": ""}, "delimiter='ab'": {"delimiter": "ab"},
    "quote='ab'": {"quote": "ab"}, "is a line end": {"delimiter": "\n"}, "are both ','": {"quote": ","},
    "write nulls=": {"nulls": "NULL"},
}  # fmt: skip


@pytest.mark.parametrize(("words", "arguments"), WRONG.items(), ids=list(WRONG))
def test_settings_that_cannot_be_meant_are_refused(words: str, arguments: dict[str, Any]) -> None:
    """Where the job is written."""
    with pytest.raises(ConfigError, match=words):
        Csv("a int", **arguments)


def test_a_record_has_no_header() -> None:
    """As one of Kafka."""
    with pytest.raises(ConfigError, match="a record has no header"):
        Csv("id long", header=True).columns()


@pytest.mark.spark
def test_columns_are_those_of_the_ddl(spark: Any) -> None:
    """A type that a field has no values of is refused by name."""
    assert Csv("id long, at timestamp").columns() == pa.schema([("id", pa.int64()), ("at", UTC_TIME)])
    for ddl, word in (("a array<int>", "'a' is list"), ("i interval day", "'i'"), ("", "needs a column")):
        with pytest.raises(ConfigError, match=word):
            Csv(ddl).columns()
