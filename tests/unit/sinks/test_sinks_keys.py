"""Keys by which rows replace others are named, there and not null, whatever the sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, SinkSchemaMismatch, SinkValueRefused
from penstock.sinks.keys import (
    Mode,
    checked_keys,
    how_written,
    refuse_missing_keys,
    refuse_null_keys,
    without_retracted,
)


@pytest.mark.parametrize(
    ("mode", "keys", "message"),
    [
        pytest.param(Mode.UPSERT, [], "each needs the other", id="no keys"),
        pytest.param(Mode.APPEND, ["k"], "each needs the other", id="keys of an append"),
        pytest.param(Mode.UPSERT, ["k", "k"], "twice", id="a key twice"),
    ],
)
def test_keys_and_mode_go_together(mode: Mode, keys: Any, message: str) -> None:
    """ConfigError, at the line of the job."""
    with pytest.raises(ConfigError, match=message):
        checked_keys(mode, keys, "table")


def test_explain_says_how_rows_are_written() -> None:
    """The mode, and the keys."""
    assert (how_written(checked_keys(Mode.UPSERT, ["a", "b"], "t")), how_written(())) == ("upsert by a, b", "append")


def test_a_key_that_the_stream_lacks_is_named() -> None:
    """SinkSchemaMismatch, before the first batch."""
    with pytest.raises(SinkSchemaMismatch, match="keys names 'x', and the stream has"):
        refuse_missing_keys(["k", "x"], pa.schema([("k", pa.int64())]), "table")


def test_a_key_that_is_null_is_refused() -> None:
    """SinkValueRefused: before the Commit; other columns may be null."""
    rows = pa.table({"k": [1, None], "v": [None, 1]})
    refuse_null_keys(["k"], rows.slice(0, 1), "table")
    with pytest.raises(SinkValueRefused, match="key 'k' is null"):
        refuse_null_keys(["k"], rows, "table")


def test_a_row_that_is_taken_back_is_not_written() -> None:
    """2.6: its keys delete the row that a session had; rows of anything else stay as they are."""
    panes = pa.table({"n": [1, 2, 3, 4], "_pane": ["ON_TIME", "RETRACTED", None, "LATE"]})
    assert without_retracted(panes)["n"].to_pylist() == [1, 3, 4]
    for others in (pa.table({"n": [1]}), pa.table({"_pane": [1]})):
        assert without_retracted(others) is others
