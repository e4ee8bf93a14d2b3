"""The suite of sinks runs in anybody's project, and finds a sink that breaks the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.sinks import MemorySink
from penstock.sinks.base import Publication
from penstock.sinks.memory import MemoryPublisher
from penstock.sinks.staged_files import read_staged
from penstock.testing.sink_contract import APP, DeduplicatingContract, ReadableContract, World

ROOT = Path(__file__).resolve().parents[3]


class Doubling(MemorySink):
    """A sink that shows a batch as often as it is published."""

    def open(self, staging: CheckpointFolder, spark: Any) -> MemoryPublisher:
        """Return a publisher that forgets."""
        return DoublingPublisher(self, staging)


class DoublingPublisher(MemoryPublisher):
    """Show rows beside those that are there."""

    def publish(self, publication: Publication) -> None:
        """Add the rows."""
        if publication.files:
            key, rows = (publication.app, publication.batch), read_staged(self.staging, publication.files)
            there = self.sink.batches.get(key)
            self.sink.batches[key] = rows if there is None else pa.concat_tables([there, rows])


class Consuming(MemorySink):
    """A sink that removes the files that it has published."""

    def open(self, staging: CheckpointFolder, spark: Any) -> MemoryPublisher:
        """Return a publisher that tidies up."""
        return ConsumingPublisher(self, staging)


class ConsumingPublisher(MemoryPublisher):
    """Remove staged files."""

    def publish(self, publication: Publication) -> None:
        """Publish and remove."""
        super().publish(publication)
        for file in publication.files:
            (self.staging / file.path).remove()


def world_of(sink: MemorySink, folder: Path) -> World:
    """Return a sink in memory."""
    return World(sink, folder, lambda: [row["k"] for row in sink.rows()])


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (
            Doubling,
            ["test_a_batch_is_shown_once_however_often_it_is_published", "test_a_batch_behind_the_sink_is_refused"],
        ),
        (Consuming, ["test_staged_files_stay"]),
    ],
)
def test_a_sink_that_breaks_the_contract_fails(tmp_path: Path, kind: type[MemorySink], failing: Sequence[str]) -> None:
    """Each by the test of what it breaks; others pass."""
    suite = DeduplicatingContract()
    for name in failing:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            getattr(suite, name)(world_of(kind(), tmp_path / name))
        getattr(suite, name)(world_of(MemorySink(), tmp_path / f"right-{name}"))
    suite.test_without_files_nothing_is_shown(world_of(kind(), tmp_path))


class Including(MemorySink):
    """A sink that takes the end of a range for a part of it."""

    def read_batches(self, batches: range, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one batch too many."""
        return super().read_batches(range(batches.start, batches.stop + 1), columns)


def test_a_sink_that_reads_other_batches_fails(tmp_path: Path) -> None:
    """Rows of a batch that is read twice would be sent through twice."""
    suite = ReadableContract()
    fill = ReadableContract.quarantine.__wrapped__  # type: ignore[attr-defined]
    for sink, fails in ((MemorySink(), nullcontext()), (Including(), pytest.raises(AssertionError))):
        with fails:
            suite.test_rows_of_a_range_of_batches_are_read(
                fill(suite, world_of(sink, tmp_path / type(sink).__name__)), range(4, 7), [40, 41]
            )


def test_a_world_stages_what_a_publisher_reads(tmp_path: Path) -> None:
    """In a folder of its own, below any path."""
    world = world_of(MemorySink(), Path(str(tmp_path)))
    world.publisher().publish(world.publication(3, world.stage(2, 1)))
    assert (world.shown(), world.publisher().version(APP)) == ([1, 2], 3)


@pytest.mark.slow
def test_the_page_is_a_test_module_that_passes_in_another_project(tmp_path: Path) -> None:
    """With plain pytest and its own fixtures, without anything of this repository's tests."""
    page = (ROOT / "docs" / "testing.md").read_text()
    section = page[page.index("## Sources and sinks of your own") :]
    blocks = [part.partition("```")[0] for part in section.split("```python\n")[1:3]]
    (tmp_path / "test_own.py").write_text("\n".join(blocks))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "37 passed" in done.stdout
