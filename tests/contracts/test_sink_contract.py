"""What every publisher promises the driver loop (sinks/base.py; SEMANTICS 9.4).

A sink of your own: subclass `PublisherContract`, give the fixture `world`, and run it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from system_errors import OF_WRITES, name_of

from penstock.errors import SinkAhead, StorageUnavailable
from penstock.sinks import Console, Delta, MemorySink
from penstock.sinks.base import Publication, Publisher, Staged
from penstock.sinks.staged_files import stage_table

SCHEMA = pa.schema([("k", pa.int64())])
APP, OTHER = "uuid/out", "uuid/other"


@dataclass
class World:
    """A sink, prepared, and where its files are staged."""

    sink: Any
    staging: Path
    names: int = field(default=0)

    def publisher(self) -> Publisher:
        """Return the publisher of another run."""
        return self.sink.open(self.staging, None)  # type: ignore[no-any-return]

    def stage(self, *ks: int) -> Staged:
        """Return a staged file of rows."""
        self.names += 1
        name = f"{self.names:04d}.parquet"
        return Staged(**stage_table(pa.table({"k": list(ks)}, schema=SCHEMA), self.staging, name))

    def publication(self, batch: int, *files: Staged, app: str = APP) -> Publication:
        """Return what the driver asks for."""
        return Publication(app=app, batch=batch, files=files, schema=SCHEMA)

    def shown(self) -> list[int]:
        """Return the rows that the sink shows, sorted."""
        if isinstance(self.sink, MemorySink):
            return sorted(row["k"] for row in self.sink.rows())
        return sorted(DeltaTable(str(self.sink.path)).to_pyarrow_table()["k"].to_pylist())


def opened(sink: Any, folder: Path) -> World:
    """Return the world of a sink after what the driver does at its start."""
    staging = sink.staging(folder / "staged")
    sink.prepare(SCHEMA, None)
    return World(sink, staging)


class PublisherContract:
    """The suite for publishers that dedupe; subclasses say which."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        """Return the sink to look at."""
        raise AssertionError("a subclass gives this")

    def test_it_says_that_it_dedupes(self, world: World) -> None:
        """The guarantee of a path is derived from this."""
        assert world.publisher().idempotent

    def test_rows_are_shown_after_publishing_and_not_before(self, world: World) -> None:
        """DESIGN 4: staged rows are nobody's."""
        publisher, file = world.publisher(), world.stage(1, 2)
        assert world.shown() == []
        publisher.publish(world.publication(0, file, world.stage(3)))
        assert world.shown() == [1, 2, 3]

    def test_a_batch_is_shown_once_however_often_it_is_published(self, world: World) -> None:
        """SEMANTICS 9.4: by the same publisher, and by that of another run."""
        publisher, publication = world.publisher(), world.publication(4, world.stage(1, 2))
        for each in (publisher, publisher, world.publisher()):
            each.publish(publication)
        assert world.shown() == [1, 2]
        assert publisher.version(APP) == 4

    def test_no_files_no_version(self, world: World) -> None:
        """DESIGN 4: no rows, no commit."""
        publisher = world.publisher()
        publisher.publish(world.publication(0))
        assert publisher.version(APP) is None
        publisher.publish(world.publication(1, world.stage(1)))
        publisher.publish(world.publication(2))
        assert (publisher.version(APP), world.shown()) == (1, [1])

    def test_batches_may_be_left_out_and_apps_do_not_meet(self, world: World) -> None:
        """SEMANTICS 9.4: the version is by app; two jobs, or a checkpoint begun anew, share a sink."""
        publisher = world.publisher()
        for batch, app in ((3, APP), (1, OTHER), (7, APP), (2, OTHER)):
            publisher.publish(world.publication(batch, world.stage(batch), app=app))
        assert world.shown() == [1, 2, 3, 7]
        assert (publisher.version(APP), publisher.version(OTHER), publisher.version("nobody")) == (7, 2, None)
        assert world.publisher().version(APP) == 7

    @pytest.mark.fault("F31")
    def test_a_batch_behind_the_sink_is_refused(self, world: World) -> None:
        """F31: a checkpoint older than the sink; both numbers are told and nothing is shown."""
        world.publisher().publish(world.publication(7, world.stage(7)))
        with pytest.raises(SinkAhead, match=r"7.*6") as caught:
            world.publisher().publish(world.publication(6, world.stage(6)))
        assert (caught.value.fields, caught.value.exit_code) == ({"seen": 7, "batch": 6}, 78)
        assert world.shown() == [7]

    def test_another_run_goes_on(self, world: World) -> None:
        """A restart publishes what the former run left."""
        files: Sequence[Staged] = [world.stage(n) for n in range(4)]
        for batch, file in enumerate(files):
            world.publisher().publish(world.publication(batch, file))
        assert world.shown() == [0, 1, 2, 3]


class TestMemorySink(PublisherContract):
    """Rows in the process."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return opened(MemorySink(), tmp_path)


class TestDelta(PublisherContract):
    """A Delta table, committed by delta-rs."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return opened(Delta(tmp_path / "table"), tmp_path)


def test_the_console_says_that_it_cannot_dedupe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEMANTICS 9.4: at least once; what was printed cannot be told."""
    world = opened(Console(rows=2), tmp_path)
    publisher = world.publisher()
    assert not publisher.idempotent
    for _ in range(2):
        publisher.publish(world.publication(0, world.stage(11, 12, 13)))
    publisher.publish(world.publication(1))
    said = capsys.readouterr().out
    assert said.count("batch 0") == said.count("11") == said.count("1 more rows") == 2
    assert "13" not in said
    assert publisher.version(APP) is None


# --- files that are staged -------------------------------------------------------------------


@pytest.mark.fault("F27")
@pytest.mark.parametrize(("number", "error"), [*OF_WRITES, (errno.ENOENT, StorageUnavailable)], ids=name_of)
def test_a_file_that_cannot_be_staged_is_told_by_its_cause(
    number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stage_table`: only a full disk is called full, since a retry helps there; no part keeps the name."""

    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(error, match=r"a\.parquet"):
        stage_table(pa.table({"k": [1]}), tmp_path / "staged", "a.parquet")
    assert list((tmp_path / "staged").iterdir()) == []


def test_a_file_that_stands_in_the_way_is_left(tmp_path: Path) -> None:
    """`stage_table`: somebody else's rows may be in it, and be named by a Commit."""
    stage_table(pa.table({"k": [1]}), tmp_path, "a.parquet")
    before = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(StorageUnavailable, match="File exists"):
        stage_table(pa.table({"k": [2]}), tmp_path, "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == before
