"""The files of a block log are read as they were written, or named as damage (F13, F14)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage import format as fileformat
from penstock.errors import CheckpointCorrupt, FormatTooNew
from penstock.receivers.blocks import Block, Place, Seal, block_file, encoded, parse, rows_in, seal_file

AT = Place(3, 17)
WHERE = {"receiver": "orders-0", "place": AT, "path": "blocks/orders-0/000003/000000000017"}
ROWS = pa.table({"k": [1, 2, None], "s": ["a", "", None]})


def block(rows: pa.Table = ROWS) -> bytes:
    """Return a block of these rows."""
    return block_file("orders-0", AT, writer="w", rows=rows.num_rows, stream=encoded(rows))


def test_a_block_has_the_rows_that_were_written() -> None:
    """Values, nulls and types."""
    assert rows_in(block(), **WHERE).equals(ROWS)
    assert rows_in(block(ROWS.slice(0, 0)), **WHERE).equals(ROWS.slice(0, 0))


def test_the_head_says_how_much_there_is() -> None:
    """The driver counts rows without a look at them."""
    assert parse(block(), **WHERE) == Block("w", 3, len(block()))
    assert parse(seal_file("orders-0", AT, writer="w"), **WHERE) == Seal("w")


@pytest.mark.fault("F13", "F14")
@given(at=st.integers(0, len(block()) - 1), bit=st.integers(0, 7))
@settings(max_examples=examples(150))
def test_a_flipped_bit_is_named_with_the_block(at: int, bit: int) -> None:
    """Checksums cover the head and the rows."""
    data = bytearray(block())
    data[at] ^= 1 << bit
    with pytest.raises((CheckpointCorrupt, FormatTooNew)) as raised:
        rows_in(bytes(data), **WHERE)
    assert raised.value.where == WHERE["path"]


@pytest.mark.fault("F13")
@given(length=st.integers(0, len(block()) - 1))
@settings(max_examples=examples(50))
def test_a_torn_block_is_damage(length: int) -> None:
    """No prefix of a block is one."""
    with pytest.raises(CheckpointCorrupt):
        rows_in(block()[:length], **WHERE)


def test_what_follows_the_rows_is_damage() -> None:
    """The length is that of the file."""
    with pytest.raises(CheckpointCorrupt, match="bytes of rows"):
        rows_in(block() + b"x", **WHERE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (seal_file("orders-0", AT, writer="w"), "a seal where a block should be"),
        (block_file("orders-1", AT, writer="w", rows=3, stream=encoded(ROWS)), "another place"),
        (block_file("orders-0", AT.next, writer="w", rows=3, stream=encoded(ROWS)), "another place"),
        (block_file("orders-0", AT, writer="w", rows=4, stream=encoded(ROWS)), "3 rows instead of 4"),
        (fileformat.encode("block", {"receiver": "orders-0"}), "not the fields"),
        (fileformat.encode("commit", {}), "a commit file"),
    ],
    ids=["a seal", "another receiver", "another number", "another count", "no fields", "another kind"],
)
def test_a_file_that_is_none_of_this_place_is_damage(data: bytes, reason: str) -> None:
    """A copy under another name is never taken for its rows."""
    with pytest.raises(CheckpointCorrupt, match=reason):
        rows_in(data, **WHERE)


def test_places_follow_the_chain() -> None:
    """Numbers continue from epoch to epoch."""
    assert sorted([Place(2, 5), Place(1, 5), Place(1, 4)]) == [Place(1, 4), Place(1, 5), Place(2, 5)]
    assert Place(2, 5).next == Place(2, 6)


def test_the_head_is_json_that_other_tools_read() -> None:
    """docs/checkpoint-format.md."""
    head = json.loads(block().split(b"\n")[1])
    assert head.keys() == {"receiver", "epoch", "number", "writer", "rows", "length", "sha256"}
