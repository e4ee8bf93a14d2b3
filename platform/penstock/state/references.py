"""Name segments, their files, and what they hold of each part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.state.group_ranges import Steps
from penstock.state.row_layout import Bound

__all__ = [
    "MERGED",
    "Piece",
    "SegmentRef",
    "batch_of",
    "bytes_of",
    "file_name",
    "is_file_name",
    "is_part_name",
    "is_segment_name",
    "segment_name",
]

_NAME = re.compile(r"\d{12}(?:-[0-9a-z]{1,64}){1,8}")
_FILE = re.compile(_NAME.pattern + r"(?:\.\d{3,})?\.arrow")
_PART = re.compile(r"[a-z][a-z0-9_]{0,62}(?:~\d+)?")
MERGED = "~"
"""What follows the name of a part in the names of its merged rows, before a number."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The place of a section, and its content.

    `head` and `tail` are the bytes before and after its blocks, `checksum` the crc32 of both.
    `first` and `last` are group and hash of its first and last row.
    `groups` are its distinct groups, where they are few or regular; else None.
    """

    file: str
    offset: int
    size: int
    head: int
    tail: int
    checksum: int
    rows: int
    first: Bound
    last: Bound
    groups: Steps | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """Name a segment: its files with their sizes in bytes, and the pieces of each part that has rows, in order."""

    name: str
    batch: int
    files: Mapping[str, int]
    parts: Mapping[str, tuple[Piece, ...]]


def bytes_of(pieces: Iterable[Piece]) -> int:
    """Return the size of pieces in bytes."""
    return sum(piece.size for piece in pieces)


def segment_name(batch: int, *, epoch: int, attempt: int, run: str) -> str:
    """Return the name of a segment: batch, epoch, task attempt id and the random hex id of the run (F04)."""
    return f"{batch:012d}-{epoch}-{attempt}-{run}"


def file_name(name: str, number: int) -> str:
    """Return the name of a segment's file; `number` counts the files of a segment from 0."""
    return f"{name}.{number:03d}.arrow" if number else f"{name}.arrow"


def is_file_name(name: str) -> bool:
    """Return whether a segment's file can have this name; all others in a folder are never read (F15)."""
    return _FILE.fullmatch(name) is not None


def batch_of(name: str) -> int | None:
    """Return the batch in the name of a state file; None in a name that no state file has."""
    batch, dash, _ = name.partition("-")
    return int(batch) if dash and batch.isdecimal() else None


def is_segment_name(name: str) -> bool:
    """Return whether a segment can have this name: the batch in 12 digits, then what makes it unique."""
    return _NAME.fullmatch(name) is not None


def is_part_name(name: str) -> bool:
    """Return whether a part, or its merged rows, can have this name."""
    return _PART.fullmatch(name) is not None
