"""A sink that is written by the outline in sinks/base.py alone keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import SinkAhead, SinkSchemaMismatch
from penstock.sinks.base import CreatingSink, Publication, Publisher, SchemaCheckingSink, Sink, TruncatableSink
from penstock.sinks.staged_files import read_staged
from penstock.testing.sink_contract import CreatingContract, DeduplicatingContract, World

SCHEMA = "schema.parquet"


class Folder(CreatingSink):
    """A folder with one file a batch, which gets its name when it is whole."""

    deduplicates = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, schema: pa.Schema, spark: Any) -> None:
        """Make the folder, with a file without rows."""
        self.check(schema)
        self.path.mkdir(exist_ok=True)
        if not (self.path / SCHEMA).exists():
            pq.write_table(schema.empty_table(), self.path / SCHEMA)

    def check(self, schema: pa.Schema) -> None:
        """Compare the columns with those of the file without rows."""
        if (self.path / SCHEMA).exists() and not pq.read_schema(self.path / SCHEMA).equals(schema):
            raise SinkSchemaMismatch("the folder has other columns", where=str(self.path))

    def open(self, staging: CheckpointFolder, spark: Any) -> FolderPublisher:
        """Return the publisher."""
        return FolderPublisher(self, staging)

    def describe(self) -> str:
        """Return the path."""
        return f"folder {self.path}"

    def batches(self, app: str) -> list[int]:
        """Return the batches of an app that are there."""
        return sorted(int(path.stem.split("@")[1]) for path in self.path.glob(f"{quote(app, safe='')}@*.parquet"))


class FolderPublisher(Publisher):
    """Write a batch under a temporary name, and rename it."""

    def __init__(self, sink: Folder, staging: CheckpointFolder) -> None:
        self.sink = sink
        self.staging = staging

    def publish(self, publication: Publication) -> None:
        """Write the file, unless it is there."""
        known = self.sink.batches(publication.app)
        if not publication.files or publication.batch in known:
            return
        if known and known[-1] > publication.batch:
            raise SinkAhead(
                f"the folder has batch {known[-1]} and is asked to take {publication.batch}",
                seen=known[-1],
                batch=publication.batch,
            )
        rows = read_staged(self.staging, publication.files)
        path = self.sink.path / f"{quote(publication.app, safe='')}@{publication.batch}.parquet"
        pq.write_table(rows, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)

    def version(self, app: str) -> int | None:
        """Return the newest file's batch."""
        return max(self.sink.batches(app), default=None)


def folder_world(root: Path) -> World:
    """Return a folder that is not there yet."""
    path = root / "folder"
    return World(
        Folder(path), root, lambda: [k for file in path.glob("*.parquet") for k in pq.read_table(file)["k"].to_pylist()]
    )


class TestFolder(CreatingContract, DeduplicatingContract):
    """The suites, as a test module of a new sink has them."""

    @pytest.fixture
    def another(self) -> Callable[[Path], World]:
        return folder_world

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return folder_world(tmp_path)


@pytest.mark.parametrize(
    ("base", "method"), [(SchemaCheckingSink, "check"), (CreatingSink, "create"), (TruncatableSink, "put_back")]
)
def test_a_sink_that_says_what_it_cannot_do_cannot_be_made(base: type[Sink], method: str) -> None:
    """A misspelt method is an error where the sink is written, and not an ability less."""
    with pytest.raises(TypeError, match=method):
        type("Lacking", (base,), {})()
