"""Folders of files to read, with times of one's own, and the reader of them without Spark."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from source_reading import end_of_batch

from penstock import seconds
from penstock.graph.policies import BadRecord, OnMissingColumn, OnNewColumn, OnUnreadable
from penstock.sources import Files, Parquet
from penstock.sources.base import Position
from penstock.sources.file.formats import Lines
from penstock.sources.file.listings import Listing
from penstock.sources.file.parts import ColumnRules
from penstock.sources.file.patterns import Pattern
from penstock.sources.file.positions import Entry
from penstock.sources.file.reader import AtMost, FilesReader
from penstock.sources.file.systems import Listed
from penstock.sources.file.tasks import FilesTaskReader
from penstock.sources.formats import Decoded, Format
from penstock.testing.source_contract import read

__all__ = [
    "BEGIN",
    "FakeFiles",
    "Numbers",
    "Rows",
    "S",
    "fake_reader",
    "lines_of",
    "parquet_of",
    "read_all",
    "reader_of",
]

S = 1_000_000_000
BEGIN = 1_700_000_000 * S
"""When the first files were written; long ago, so that none is too young."""
_THREE = AtMost(files=3)
K = pa.schema([("k", pa.int64())])


@dataclass(frozen=True)
class Numbers(Format):
    """A number a line."""

    def columns(self) -> pa.Schema:
        """Return k."""
        return K

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the numbers."""
        numbers = [int(value) if value and value.isdigit() else None for value in values]
        errors = [None if number is not None else "no number" for number in numbers]
        rows = pa.table([pa.array(numbers, pa.int64())], schema=schema)
        return Decoded(rows, pa.array(errors, pa.string()) if any(errors) else None)


@dataclass(frozen=True, slots=True)
class Rows(Parquet):
    """Parquet with columns that no Spark has to parse."""

    fixed: pa.Schema = K

    def columns(self) -> pa.Schema:
        """Return them."""
        return self.fixed


def lines_of(path: Path, *lines: object, at: float = 0) -> Path:
    """Write lines into a file, whole at once, with a time in seconds after BEGIN."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("".join(f"{line}\n" for line in lines))
    return dated(hidden, path, at)


def parquet_of(path: Path, table: pa.Table, at: float = 0, **more: Any) -> Path:
    """Write a Parquet file likewise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    pq.write_table(table, hidden, **more)
    return dated(hidden, path, at)


def dated(hidden: Path, path: Path, at: float) -> Path:
    """Give a file its time, and then its name."""
    when = BEGIN + round(at * S)
    os.utime(hidden, ns=(when, when))
    hidden.rename(path)
    return path


def reader_of(folder: Path, form: Any = None, **more: Any) -> FilesReader:
    """Return the reader of a folder of numbers."""
    settings = {"settle": seconds(0), **more}
    return Files(folder, format=form or Numbers(), **settings).open(None)


def read_all(reader: FilesReader, after: Position | None = None) -> tuple[list[int], Position | None]:
    """Return k of all rows behind a position, batch by batch, and the position behind them."""
    numbers: list[int] = []
    while (end := end_of_batch(reader, after)) != after:
        numbers += read(reader, reader.span(after, end))["k"].to_pylist()
        if after is None and not end["files"]:
            return numbers, end
        after = end
    return numbers, after


@dataclass
class FakeFiles:
    """A file system in memory, whose clocks a test moves; it counts the files and folders that it is asked for."""

    times_of_folders: bool = False
    now: int = BEGIN
    root: str = "fake"

    def __post_init__(self) -> None:
        self.files: dict[str, Entry] = {}
        self.inodes: dict[str, int] = {}
        self.folders: dict[str, int] = {"": self.now}
        self.asked = self.listings = 0

    def put(self, path: str, *, modified: int | None = None, length: int = 1) -> Entry:
        """Give a file its name now; no two at once."""
        self.now += 1
        parts = path.split("/")
        for depth in range(len(parts)):
            folder = "/".join(parts[:depth])
            is_changed = depth == len(parts) - 1 or "/".join(parts[: depth + 1]) not in self.folders
            self.folders[folder] = self.now if is_changed else self.folders[folder]
        when = self.now if modified is None else modified
        self.files[path] = Entry(path, when, length, self.now)
        self.inodes[path] = self.now
        return self.files[path]

    def remove(self, path: str) -> None:
        """Take a file away."""
        del self.files[path]
        self.folders[path.rpartition("/")[0]] = self.now

    def folder(self, path: str) -> Entry | None:
        """Return a folder."""
        return Entry(path, self.folders[path], 0) if path in self.folders else None

    def listed(self, path: str, known: np.ndarray | None = None) -> Listed | None:
        """Return what is in a folder."""
        if path not in self.folders:
            return None
        self.listings += 1
        inside = [f for f in self.files.values() if f.path.rpartition("/")[0] == path]
        tokens = {f.path: hash((f.path, self.inodes[f.path])) for f in inside}
        shown = [f for f in inside if known is None or tokens[f.path] not in known]
        self.asked += len(shown)
        below = [f for f in self.folders if f and f.rpartition("/")[0] == path]
        folders = [Entry(f, self.folders[f] if self.times_of_folders else 0, 0) for f in below]
        of_files = [tokens[f.path] for f in shown]
        if self.times_of_folders:
            return Listed(inside, folders)
        return Listed(shown, folders, np.sort(np.array([*tokens.values()], np.int64)), of_files)

    def look(self, paths: Sequence[str]) -> list[Entry | None]:
        """Return files as they are now."""
        return [self.files.get(path) for path in paths]

    def open(self, path: str) -> IO[bytes]:
        """Return a file with a number that its path ends in."""
        return io.BytesIO(path.rpartition("-")[2].encode() + b"\n")

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.remove(path)


def fake_reader(files: FakeFiles, *, at_most: AtMost = _THREE, grace: int = 60 * S, **more: Any) -> FilesReader:
    """Return the reader of a fake file system, as a driver that starts makes it."""
    listing = Listing(
        files, Pattern("**/*"), settle=0, wall=lambda: files.now, monotonic=lambda: files.now / S
    )  # fmt: skip
    rules = ColumnRules(OnNewColumn.FAIL, OnMissingColumn.FAIL)
    task = FilesTaskReader(files, Lines(Numbers()), K, (), rules, BadRecord.FAIL, OnUnreadable.FAIL)
    return FilesReader(listing, task, at_most=at_most, grace=grace, **more)
