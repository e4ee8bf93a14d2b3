"""Bodies of requests become rows, and a row that does not fit is a bad record of its request (SEMANTICS 9.3, F40)."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock import Job
from penstock.errors import ConfigError
from penstock.receivers.http_push import ERRORS, BadBody, HttpPush
from penstock.runtime.inspect.explain import guarantees
from penstock.sinks import MemorySink
from penstock.sources import Http, Json
from penstock.sources.base import ERROR, RAW
from penstock.sources.http_source import Bodies, PostedRows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
BODIES = Bodies(Json("k long, s string"), SCHEMA, ())
LINES, JSON, ARROW = "application/x-ndjson", "application/json", "application/vnd.apache.arrow.stream"
TOKEN = "sixteen letters."  # noqa: S105 - of this test
ROWS = [{"k": 1, "s": "a"}, {"k": 2, "s": None}]


def stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (LINES, b'{"k": 1, "s": "a"}\r\n\n{"k": 2}\n'),
        (JSON, json.dumps(ROWS).encode()),
        (ARROW, stream(pa.table({"s": ["a", None], "k": pa.array([1, 2], pa.int32())}))),
    ],
    ids=["lines", "array", "arrow"],
)
def test_each_kind_of_body_has_the_same_rows(kind: str, body: bytes) -> None:
    """The columns of the schema, and flags that are all null."""
    table = BODIES(kind, body, None)
    assert table.select(SCHEMA.names).to_pylist() == ROWS
    assert table.schema.names == [*SCHEMA.names, ERROR, RAW]
    assert table[ERRORS].null_count == 2


def test_one_object_is_one_row() -> None:
    """As senders of single events have it."""
    assert BODIES(JSON, b'{"k": 5}', None)["k"].to_pylist() == [5]
    assert BODIES(LINES, b"", None).num_rows == BODIES(JSON, b"[]", None).num_rows == 0


@pytest.mark.parametrize("kind", [LINES, JSON])
def test_a_number_keeps_all_its_digits(kind: str) -> None:
    """A double has 17 of them, and a decimal up to 38."""
    text = "12345678901234567890.1234567891"
    bodies = Bodies(Json("x decimal(38, 10)"), pa.schema([("x", pa.decimal128(38, 10))]), ())
    assert bodies(kind, b' {"x": %s}' % text.encode(), None)["x"].to_pylist() == [Decimal(text)]
    if kind == JSON:
        assert bodies(kind, b'\n[{"x": %s}, 5]' % text.encode(), None)["x"].to_pylist() == [Decimal(text), None]


@pytest.mark.parametrize(
    ("kind", "body"),
    [(LINES, b'{"k": 1}\n{"k": "x"}'), (JSON, b'[{"k": 1}, {"k": "x"}]'), (ARROW, stream(pa.table({"k": ["1", "x"]})))],
    ids=["lines", "array", "arrow"],
)
def test_a_row_that_does_not_fit_is_a_bad_record(kind: str, body: bytes) -> None:
    """The other row of the request is kept as it is."""
    table = BODIES(kind, body, None)
    assert table["k"].to_pylist() == [1, None]
    assert table[ERROR].is_null().to_pylist() == [True, False]
    assert "x" in table[RAW].to_pylist()[1]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b"{"),
        (JSON, b"\xff"),
        (JSON, b"[" * 100_000),
        (ARROW, b"no arrow"),
        (ARROW, stream(pa.table({"z": [1]}))),
        (ARROW, stream(pa.table({"k": [[1]]}))),
    ],
    ids=["half", "no UTF-8", "deep", "no arrow", "another column", "another type"],
)
def test_a_body_that_is_none_is_refused(kind: str, body: bytes) -> None:
    """The sender learns of it, and nothing is kept."""
    with pytest.raises(BadBody):
        BODIES(kind, body, None)
    with pytest.raises(LookupError):
        BODIES("text/html", body, None)


def test_rows_know_their_request() -> None:
    """So deduplication drops what a sender sends again."""
    table = Bodies(Json("k long, s string"), SCHEMA, ("_request", "_row"))(LINES, b'{"k": 1}\n{"k": 2}', "r7")
    assert table.select(["_request", "_row"]).to_pylist() == [{"_request": "r7", "_row": n} for n in (0, 1)]


def test_requests_without_an_id_are_not_one_request() -> None:
    """Deduplication by id and row would drop all of them but the first, which were answered with 200."""
    bodies = Bodies(Json("k long, s string"), SCHEMA, ("_request", "_row"))
    ids = [bodies(LINES, b'{"k": 1}\n{"k": 2}', none)["_request"].to_pylist() for none in (None, "", None)]
    assert [len({*rows}) for rows in ids] == [1, 1, 1]
    assert len({rows[0] for rows in ids} - {None, ""}) == 3


def test_a_row_is_decoded_from_its_text() -> None:
    """Of a requeue; what a row has of its request is null."""
    texts = BODIES(LINES, b'{"k": "7"}', None)[RAW].to_pylist()
    schema = pa.schema([("k", pa.string()), ("_request", pa.string())])
    rows, errors = PostedRows(schema, Json("k string"), schema.remove(1)).decoded([*texts, '{"k": 8}'])
    assert rows.to_pylist() == [{"k": "7", "_request": None}, {"k": None, "_request": None}]
    assert [error is None for error in errors] == [True, False]


@pytest.mark.spark
def test_a_source_opens_with_a_receiver_on_loopback(spark: object) -> None:
    """Unless it says another address."""
    reader = Http(port=8080, token=TOKEN, schema="k long", with_columns=["_row"]).open(spark)
    assert reader.schema == pa.schema([("k", pa.int64()), ("_row", pa.int32())])
    receiver = reader.receiving.receiver
    assert isinstance(receiver, HttpPush)
    assert (receiver.host, receiver.port) == ("127.0.0.1", 8080)
    with pytest.raises(ConfigError, match="as well as with_columns"):
        Http(port=8080, token=TOKEN, schema="_row int", with_columns=["_row"]).open(spark)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": 0}, "no port of TCP"),
        ({"token": "short"}, "fewer than 16"),
        ({"token": "sixteen letters\n"}, "no header can hold"),
        ({"host": ""}, "host is empty"),
        ({"max_body": 2**30}, "max_body"),
        ({"at_once": 0}, "at_once"),
        ({"with_columns": ["_path"]}, "a request has _request, _row"),
    ],
    ids=str,
)
def test_a_setting_that_no_server_can_have_is_refused(settings: dict, reason: str) -> None:
    """When the job is built, and without the token in words."""
    with pytest.raises(ConfigError, match=reason):
        Http(**{"port": 8080, "token": TOKEN, "schema": "k long", **settings})


def test_explain_says_what_an_answer_means() -> None:
    """F47; the token is not part of it (F62)."""
    job, source = Job("pushed"), Http(port=8080, token=TOKEN, schema="k long")
    job.source("s", source).write("out", MemorySink())
    ((_, promise),) = guarantees(job.graph())
    assert promise.endswith("counted from what a request was answered with 200 for")
    assert "sixteen" not in repr(source)
