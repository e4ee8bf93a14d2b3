"""The form of metadata files: whatever is not exactly what was written is refused."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from checkpoint_samples import commit
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.entries import to_bytes
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.format import FORMAT_VERSION, MAX_DEPTH, decode, encode, read_header
from penstock.errors import CheckpointCorrupt, EntryRefused, FormatTooNew

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def forged(payload: bytes, *, version: int = FORMAT_VERSION, kind: str = "status", **other: object) -> bytes:
    """Return a file whose checksums are right, whatever it holds: what an attacker could write."""
    fields = {"kind": kind, "version": version, "length": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    head = json.dumps(fields | other, separators=(",", ":")).encode()[:-1]
    return head + b',"header":"' + hashlib.sha256(head).hexdigest()[:16].encode() + b'"}\n' + payload


@given(body=st.dictionaries(st.text(), json_values, max_size=6))
def test_what_is_encoded_is_decoded(body: dict[str, object]) -> None:
    """Every JSON object comes back equal, under its kind."""
    assert decode(encode("status", body), path="p") == ("status", body)
    assert decode(encode("status", body), kind="status", path="p") == ("status", body)


def test_a_file_is_a_header_line_and_a_body() -> None:
    """The form is what docs/checkpoint-format.md says, readable with `tail -n +2`."""
    header, body = encode("status", {"a": 1}).split(b"\n")
    digest = hashlib.sha256(b'{"a":1}').hexdigest()
    assert body == b'{"a":1}'
    assert list(json.loads(header).items())[:-1] == [
        ("kind", "status"),
        ("version", 1),
        ("length", 7),
        ("sha256", digest),
    ]


@pytest.mark.fault("F13", "F21")
def test_every_flipped_byte_is_detected() -> None:
    """Each byte of an entry, flipped whole or to any other value, is damage and never another entry."""
    data = to_bytes(commit(7))
    rng = random.Random(7)
    for at in range(len(data)):
        for flip in {0xFF, rng.randrange(1, 256), 1, 0x20}:
            damaged = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            with pytest.raises(CheckpointCorrupt) as caught:
                decode(damaged, path="log/7")
            assert (caught.value.fields["path"], bool(caught.value.fields["reason"])) == ("log/7", True)


@pytest.mark.fault("F13")
def test_every_truncation_and_any_tail_is_detected() -> None:
    """A file of any shorter length, empty included, and one with bytes after its end is damage."""
    data = to_bytes(commit(7))
    for damaged in [*(data[:end] for end in range(len(data))), data + b"\n", data + data, b"\n" + data]:
        with pytest.raises(CheckpointCorrupt):
            decode(damaged, path="p")


@pytest.mark.fault("F21")
def test_a_later_format_is_refused_and_named() -> None:
    """A whole header of a later version is told apart from damage, with fields and body not known yet."""
    for data in (forged(b"\xff not even json", version=2), forged(b"{}", version=2, codec="zstd")):
        with pytest.raises(FormatTooNew, match=r"version 2.* up to 1") as caught:
            decode(data, path="p")
        assert (caught.value.fields["found"], caught.value.fields["known"]) == (2, 1)


def test_another_kind_is_refused() -> None:
    """A file that was moved under the name of another is not taken for it."""
    with pytest.raises(CheckpointCorrupt, match="a status file where a metadata file should be"):
        decode(encode("status", {}), kind="metadata", path="p")


@pytest.mark.fault("F49")
@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5_000 + b"}",
        b"[]",
        b"null",
        b"",
        b"{}{}",
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda payload: payload[:12].decode("latin-1") or "empty",
)
def test_bodies_that_penstock_never_writes_are_refused(payload: bytes) -> None:
    """Right checksums do not make a strange body welcome."""
    with pytest.raises(CheckpointCorrupt):
        decode(forged(payload), path="p")


@pytest.mark.fault("F49")
@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"kind": 5},
        {"length": -1},
        {"more": 1},
        {"length": 2.0},
    ],
    ids=str,
)
def test_headers_that_penstock_never_writes_are_refused(fields: dict[str, object]) -> None:
    """The header has exactly its fields, of exactly their types."""
    with pytest.raises(CheckpointCorrupt):
        decode(forged(b"{}", **fields), path="p")  # type: ignore[arg-type]


@pytest.mark.fault("F49")
def test_size_is_bounded_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be refused on reading is never written, and a long header is not searched for its end."""
    monkeypatch.setattr(fileformat, "MAX_BODY", 100)
    with pytest.raises(EntryRefused, match="above 100"):
        encode("status", {"a": "x" * 100})
    with pytest.raises(CheckpointCorrupt, match="above 100"):
        decode(forged(b'{"a":"' + b"x" * 100 + b'"}'), path="p")
    with pytest.raises(CheckpointCorrupt, match="no whole header"):
        decode(forged(b"{}", more="x" * 2_000), path="p")


@pytest.mark.parametrize(
    "body",
    [{"a": float("nan")}, {1: 2}, {"a": {None: 1}}, {"a": b"bytes"}, {"a": {1, 2}}],
    ids=["nan", "int key", "none key", "bytes", "set"],
)
def test_what_could_not_be_read_back_is_not_written(body: dict[str, object]) -> None:
    """Values that JSON would bend are refused when written."""
    with pytest.raises(EntryRefused):
        encode("status", body)


def test_what_is_too_deep_is_not_written() -> None:
    """The greatest depth is written and read; one more is refused on both sides."""
    body: dict[str, object] = {"a": 1}
    for _ in range(MAX_DEPTH - 1):
        body = {"a": body}
    assert decode(encode("status", body), path="p")[1] == body
    with pytest.raises(EntryRefused, match="deeper"):
        encode("status", {"a": body})


@pytest.mark.parametrize("kind", ["", "Status", 'a"b', "a b", "a" * 64])
def test_kinds_are_plain_names(kind: str) -> None:
    """The kind cannot break out of the header."""
    with pytest.raises(EntryRefused):
        encode(kind, {})


def test_the_header_of_a_torn_file_still_tells_its_kind() -> None:
    """Recovery learns from a whole header what was torn."""
    data = to_bytes(commit(7))
    assert read_header(data[:-1], "p")["kind"] == "commit"
