"""Write and read the one form that every metadata file of a checkpoint has.

One header line, then a JSON body, and nothing after it::

    {"kind":"commit","version":1,"length":1234,"sha256":"9f…","header":"03c1…"}
    {"epoch":7,…}

`length` and `sha256` are those of the body; `header` is the start of the sha256 of the line up to its own comma.
The header is checked before any of it is believed, so that a flipped version digit is damage and not a newer format.
Nothing here is ever executed on reading, and size and depth are bounded (F49).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn

from penstock.checkpoint.storage.store import corrupt
from penstock.errors import EntryRefused, FormatTooNew

FORMAT_VERSION = 1
_ENTRIES = ("takeover", "offsets", "commit", "restore", "save", "unsave", "compaction", "void", "release")
LATER_KINDS = {**dict.fromkeys((*_ENTRIES, "moved", "arrival", "skip", "manifest", "seal"), 2), "takeover": 3}
"""Kinds that have a later version: a Penstock that does not know it refuses, and writes nothing after them.

Entries of version 1 know no Compaction: a reader without it would take the holes that one leaves for a loss.
A Takeover of version 2 does not name its checkpoint.
A manifest is of version 1 unless a part of its state appends.
A seal of version 1 does not say that the folder of the next epoch was there before it."""
MAX_BODY = 64 * 2**20
MAX_DEPTH = 32
_MAX_HEADER = 1_024
_HEADER = re.compile(rb'(\{.*),"header":"([0-9a-f]{16})"\}')
_KIND = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NESTED = (dict, list, tuple)
_PLAIN = frozenset({bool, float, int, str, type(None)})
_FIELDS = {"kind": str, "version": int, "length": int, "sha256": str}


def encode(kind: str, body: dict[str, Any], *, version: int | None = None) -> bytes:
    """Return the file for a body of plain JSON values; without a `version` it is of the latest of its kind.

    Raises `EntryRefused` for what could not be read back: NaN, keys that are no strings, too deep, too large.
    """
    if not _KIND.fullmatch(kind):
        raise EntryRefused(f"{kind!r} is no kind of file")
    _check(body, lambda reason: EntryRefused(f"a {kind} body cannot be written: {reason}", kind=kind))
    try:
        payload = json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise EntryRefused(f"a {kind} body cannot be written: {error}", kind=kind) from error
    if len(payload) > MAX_BODY:
        raise EntryRefused(f"a {kind} body of {len(payload)} bytes is above {MAX_BODY}", kind=kind)
    digest = hashlib.sha256(payload).hexdigest()
    version = LATER_KINDS.get(kind, FORMAT_VERSION) if version is None else version
    head = f'{{"kind":"{kind}","version":{version},"length":{len(payload)},"sha256":"{digest}"'.encode("ascii")
    return b'%s,"header":"%s"}\n%s' % (head, _short(head), payload)


def decode(data: bytes, *, kind: str | None = None, path: str) -> tuple[str, dict[str, Any]]:
    """Return the kind and body of a file; `kind`, when given, is the only one accepted.

    Raises `CheckpointCorrupt` (with `path` and `reason`) for anything but the exact bytes that were written, and
    `FormatTooNew` (with `found` and `known`) for an undamaged header of a later version (F21).
    """
    header = read_header(data, path)
    if kind is not None and header["kind"] != kind:
        raise corrupt(path, f"a {header['kind']} file where a {kind} file should be")
    payload = data[data.index(b"\n") + 1 :]
    if len(payload) != header["length"]:
        raise corrupt(path, f"{len(payload)} bytes of body instead of {header['length']}")
    if hashlib.sha256(payload).hexdigest() != header["sha256"]:
        raise corrupt(path, "the checksum of the body does not match")
    body = parse(payload, path)
    _check(body, lambda reason: corrupt(path, reason))
    return header["kind"], body


def read_header(data: bytes, path: str) -> dict[str, Any]:
    """Return kind, version, length and sha256 of the body, from a header that is whole; errors as in `decode`.

    It works also for a file whose body is torn, and shows which kind of entry that was.
    """
    end = data.find(b"\n", 0, _MAX_HEADER)
    match = _HEADER.fullmatch(data, 0, end) if end >= 0 else None
    if not match:
        raise corrupt(path, "no whole header line" if data else "the file is empty")
    head, check = match.groups()
    if _short(head) != check:
        raise corrupt(path, "the checksum of the header does not match")
    fields = parse(head + b"}", path)
    version, known = fields.get("version"), LATER_KINDS.get(str(fields.get("kind")), FORMAT_VERSION)
    if type(version) is int and version > known:
        problem = f"format version {version}; this Penstock reads up to {known}"
        raise FormatTooNew(problem, where=path, path=path, found=version, known=known)
    if {name: type(value) for name, value in fields.items()} != _FIELDS or not 1 <= fields["version"] <= known:
        raise corrupt(path, "the header has not the fields of its version")
    if fields["length"] > MAX_BODY:
        raise corrupt(path, f"a body of {fields['length']} bytes is above {MAX_BODY}")
    return fields


def _short(head: bytes) -> bytes:
    return hashlib.sha256(head).hexdigest()[:16].encode("ascii")


def parse(text: bytes, path: str) -> dict[str, Any]:
    """Read a JSON object of the form that Penstock writes; raises `CheckpointCorrupt`."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(items)
        if len(fields) != len(items):
            raise ValueError("a key stands twice")
        return fields

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    try:
        body = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"not the JSON that Penstock writes: {type(error).__name__}") from error
    if not isinstance(body, dict):
        raise corrupt(path, "not a JSON object")
    return body


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def _check(body: dict[str, Any], refuse: Any) -> None:
    """Walk level by level, so that a deep body cannot exhaust the stack."""
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            inner = value
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        raise refuse("a key is no string")
                inner = value.values()
            if not _PLAIN.issuperset(map(type, inner)):  # most are rows of numbers, and told so at once
                below += [inner_value for inner_value in inner if isinstance(inner_value, _NESTED)]
        if not below:
            return
        level = below
    raise refuse(f"deeper than {MAX_DEPTH}")
