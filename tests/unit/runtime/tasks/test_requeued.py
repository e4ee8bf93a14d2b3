"""Rows of a requeue are decoded in their places, and those that fail again keep where they were and how often."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import CheckpointCorrupt
from penstock.runtime.tasks.requeued import COLUMNS, REQUEUED, decoded, encoded, originals, parsed_reason
from penstock.sources.base import ERROR, PARTIAL, PARTITION, POSITION, RAW, TaskReader
from penstock.sources.memory import MemoryTaskReader

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])


class Opaque(TaskReader):
    """A reader that cannot decode a text."""


def row(raw: str, *, columns: bool = False, reason: str = "bad", times: int = 1) -> dict:
    place = {"_partition": 3, "_position": 17, "_name": "orders-3", "_first": 5, "_times": times}
    return {"_raw": raw, "_columns": columns, "_reason": reason, **place}


def sent(folder: Path, *rows: dict) -> dict:
    data, checksum = encoded(pa.Table.from_pylist(list(rows), schema=COLUMNS))
    file = LocalFolder(folder) / f"{checksum}.arrow"
    if not file.is_taken():
        file.create(data)
    return {"file": file.address, "checksum": checksum}


def test_both_kinds_of_text_become_rows_in_their_places(tmp_path: Path) -> None:
    """JSON of columns, with microseconds and without nulls; the source's own text; and neither."""
    rows = decoded(
        sent(
            tmp_path,
            row('{"k": "a", "v": 1}'),
            row('{"k": "b", "t": "2026-01-01T00:00:00.123456Z"}', columns=True, reason="null event time"),
            row('{"k": 5}'),
            row('{"v": "x"}', columns=True, reason="null event time"),
        ),
        MemoryTaskReader(SCHEMA),
        SCHEMA,
    )
    assert rows["k"].to_pylist() == ["a", "b", None, None]
    assert str(rows["t"][1]) == "2026-01-01 00:00:00.123456+00:00"
    assert rows[POSITION].to_pylist() == [0, 1, 2, 3]
    assert set(rows[PARTITION].to_pylist()) == {REQUEUED}
    assert [error is None for error in rows[ERROR].to_pylist()] == [True, True, False, False]
    assert rows[ERROR][3].as_py() == "null event time", "it is JSON of columns still"
    assert rows[RAW].to_pylist() == [None, None, '{"k": 5}', '{"v": "x"}']


def test_a_record_without_a_text_fails_again(tmp_path: Path) -> None:
    """As one of Kafka without a value; whatever the source makes of texts, there is none."""
    rows = decoded(
        sent(tmp_path, {**row(""), "_raw": None, "_reason": "no value"}, row('{"k": "a"}')),
        MemoryTaskReader(SCHEMA),
        SCHEMA,
    )
    assert (rows["k"].to_pylist(), rows[ERROR].to_pylist()) == ([None, "a"], ["no value", None])
    assert rows[RAW].to_pylist() == [None, None]


def test_a_source_without_a_way_to_decode_fails_them_again(tmp_path: Path) -> None:
    """With the reason of before."""
    rows = decoded(sent(tmp_path, row("x", reason="what it was")), Opaque(), SCHEMA)
    assert (rows["k"].to_pylist(), rows[ERROR].to_pylist(), rows[RAW].to_pylist()) == ([None], ["what it was"], ["x"])


class Lines(TaskReader):
    """A reader whose texts are numbers."""

    def decoded(self, texts, schema):
        errors = [None if text.isdecimal() else "no number" for text in texts]
        values = [int(text) if text.isdecimal() else None for text in texts]
        return pa.table({"k": pa.nulls(len(texts), pa.string()), "t": pa.nulls(len(texts)), "v": values}), errors


def test_a_text_that_is_not_the_whole_record_is_never_decoded(tmp_path: Path) -> None:
    """Its bytes were no UTF-8, or too many: it would be another row."""
    cut = row("12", reason=f"too long{PARTIAL}")
    rows = decoded(sent(tmp_path, cut, row("12")), Lines(), SCHEMA)
    assert (rows["v"].to_pylist(), rows[ERROR].to_pylist()) == ([None, 12], [f"too long{PARTIAL}", None])


def test_a_record_with_the_error_of_before_keeps_its_reason(tmp_path: Path) -> None:
    """It may name the file and the line; another error stands alone."""
    same, other = row("x", reason="/data/a, line 7: no number"), row("y", reason="/data/a, line 8: no JSON")
    assert decoded(sent(tmp_path, same, other), Lines(), SCHEMA)[ERROR].to_pylist() == [same["_reason"], "no number"]


@given(st.text(), st.integers(1, 10_000), st.integers(0, 10_000))
def test_the_history_in_a_reason_is_read_back(tmp_path_factory, reason, times, first) -> None:
    """Whatever the reason is, also one that reads like a history."""
    folder = tmp_path_factory.getbasetemp() / "requeued"
    folder.mkdir(exist_ok=True)
    said = {**row("x", times=times), "_first": first}
    at = pa.table({POSITION: pa.array([0], pa.int64())})
    of = originals(sent(folder, said), at, pa.chunked_array([pa.array([reason])]))
    assert (of["_partition"][0].as_py(), of["_position"][0].as_py(), of["_name"][0].as_py()) == (3, 17, "orders-3")
    assert parsed_reason(of["_reason"][0].as_py(), 99) == (reason, times, first)


def test_a_reason_without_history_is_of_its_batch() -> None:
    """Sent no times."""
    assert parsed_reason("null event time", 7) == ("null event time", 0, 7)


@pytest.mark.fault("F13")
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """By its checksum in the Offsets."""
    spec = sent(tmp_path, row(json.dumps({"k": "a"})))
    with pytest.raises(CheckpointCorrupt, match="not those that its Offsets name"):
        decoded({**spec, "checksum": spec["checksum"] + 1}, MemoryTaskReader(SCHEMA), SCHEMA)
