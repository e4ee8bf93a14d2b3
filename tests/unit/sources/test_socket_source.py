"""Lines of a socket become the columns of a format when they are read (SEMANTICS 9.3, F40)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from received_blocks import Pushed
from source_reading import end_of_batch

from penstock import Job, millis
from penstock.errors import ConfigError
from penstock.receivers.blocks import encoded
from penstock.receivers.socket_lines import SocketLines, records
from penstock.runtime.inspect.explain import guarantees
from penstock.sinks import MemorySink
from penstock.sources import Json, Raw, Socket, Text
from penstock.sources.base import ERROR, PARTIAL, RAW
from penstock.sources.socket_source import RecordRows, as_they_are
from penstock.testing.source_contract import read

SCHEMA = pa.schema([("k", pa.int64())])


def test_lines_are_decoded_in_tasks(tmp_path: Path) -> None:
    """Those that came in half, or are too long, stay bad records, with their text."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    table = records([(b'{"k": 1}', None), (b'{"k": 2', "half"), (b"\xff", None), (b'{"k": 3}', None)])
    pushed.writers[0].write(encoded(as_they_are(table)), table.num_rows)
    reader = pushed.reader(schema=SCHEMA, form=RecordRows(Json("k long"), SCHEMA))
    rows = read(reader, reader.span(None, end_of_batch(reader, None)))
    assert rows["k"].to_pylist() == [1, None, None, 3]
    assert rows[ERROR].to_pylist()[1] == f"half{PARTIAL}"
    assert "no JSON object" in rows[ERROR].to_pylist()[2]
    assert rows[ERROR].to_pylist()[2].endswith(PARTIAL), "a text cannot say which bytes they were"
    assert rows[RAW].to_pylist() == [None, '{"k": 2', "\\xff", None]


def test_a_line_is_decoded_from_its_text(tmp_path: Path) -> None:
    """Of a requeue, by the format that the code has by now."""
    reader = Pushed(tmp_path / "job", receivers=1).reader(schema=SCHEMA, form=RecordRows(Json("k long"), SCHEMA))
    rows, errors = reader.task_reader().decoded(['{"k": 5}', "k=6"], SCHEMA)
    assert rows["k"].to_pylist() == [5, None]
    assert [error is None for error in errors] == [True, False]


def test_good_lines_have_no_errors() -> None:
    """The usual case makes no columns for them."""
    schema = Text().columns()
    rows, errors, raw = RecordRows(Text(), schema).fitted(records([(b"a", None), (b"", None)]))
    assert (rows.to_pylist(), errors, raw) == ([{"value": "a"}, {"value": ""}], None, None)


@pytest.mark.parametrize(("form", "skips"), [(Text(), False), (Raw(), False)], ids=["text", "raw"])
def test_a_source_opens_with_the_columns_of_its_format(form: Text | Raw, skips: bool) -> None:  # noqa: FBT001
    """And connects to its server; empty lines count where the line is the record."""
    reader = Socket("localhost", 9999, format=form).open(None)
    assert reader.schema == form.columns()
    receiver = reader.receiving.receiver
    assert isinstance(receiver, SocketLines)
    assert (receiver.host, receiver.port, receiver.skips_empty) == ("localhost", 9999, skips)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"host": ""}, "host is empty"),
        ({"port": 0}, "no port of TCP"),
        ({"port": 65_536}, "no port of TCP"),
        ({"max_record": 0}, "max_record"),
        ({"splits": 0}, "splits"),
        ({"block_interval": millis(0)}, "block_interval"),
    ],
    ids=str,
)
def test_a_setting_that_no_socket_can_have_is_refused(settings: dict, reason: str) -> None:
    """When the job is built."""
    with pytest.raises(ConfigError, match=reason):
        Socket(**{"host": "localhost", "port": 9999, **settings})


def test_explain_says_that_a_socket_acknowledges_nothing() -> None:
    """F47: it is exactly once from the block on, and no more is promised."""
    job = Job("lines")
    job.source("s", Socket("localhost", 9999)).write("out", MemorySink())
    ((_, promise),) = guarantees(job.graph())
    assert "may be lost" in promise
