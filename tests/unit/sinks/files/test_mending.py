"""A file of a manifest that somebody has deleted is written again, and named (9.5, decision 188)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs
from written_files import stage_by_form, staged_of

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import ManifestDamaged
from penstock.sinks.base import Publication, Staged, TaskForm
from penstock.sinks.files import manifest as module
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.formats import FORMATS, FileFormat
from penstock.sinks.files.manifest import Manifest, key_of, published_files
from penstock.sinks.files.publisher import FilePublisher
from penstock.sinks.staged_files import stage_table

APP = "uuid/out"
SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.string())])


class World:
    """A folder, whose batches have two rows by the driver and two by a task."""

    def __init__(self, root: Path, form: FileFormat) -> None:
        self.root, self.form = root, form
        self.folder = LocalOutput(str(root / "out"))
        self.run()

    def run(self) -> None:
        """Begin another run."""
        self.publisher = FilePublisher(self.folder, LocalFolder(self.root / "staged"), self.form, ["day"])

    def publish(self, batch: int) -> None:
        rows = pa.table([[4 * batch, 4 * batch + 1], ["a", "b"]], schema=SCHEMA)
        place = LocalFolder(self.root / "staged")
        few = Staged(**stage_table(rows, place, f"{batch}-few"))
        by_task = TaskForm(format=self.form.name, partition_by=["day"], few=0)
        many = [staged_of(file) for file in stage_by_form(rows, by_task, place, f"{batch}-many")]
        self.publisher.publish(Publication(app=APP, batch=batch, files=[few, *many], schema=SCHEMA))

    def entry(self, batch: int) -> Path:
        return self.root / "out" / "_penstock" / "batches" / key_of(APP) / f"{batch:012d}"

    def named(self) -> set[tuple[int, str, int, int, str]]:
        files = published_files(self.folder)
        return {(file.batch, file.path, file.rows, file.size, file.sha256) for file in files}


@pytest.mark.fault("F13")
@pytest.mark.remedy("PEN-SNK-021")
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_file_of_the_manifest_is_named_and_the_next_batch_writes_it_again(
    tmp_path: Path, form: FileFormat, *, restarted: bool
) -> None:
    """Readers missed its rows in silence, and nobody noticed."""
    world = World(tmp_path, form)
    for batch in range(4):
        world.publish(batch)
    before = world.named()
    for batch in (0, 2):
        world.entry(batch).unlink()
    with pytest.raises(ManifestDamaged, match="the file is gone, of 2 that later ones name") as caught:
        published_files(world.folder)
    assert caught.value.where == str(world.entry(0))
    if restarted:
        world.run()
    with capture_logs() as events:
        world.publish(4)
    assert {each for each in world.named() if each[0] < 4} == before
    assert [(event["event"], event["batch"], event["files"], event["rows"]) for event in events] == [
        ("sink.manifest_mended", batch, 4, 4) for batch in (0, 2)
    ]


def test_what_was_folded_is_not_missed_and_what_went_before_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a law of one run and of many: a publisher that knows what it has folded mends the others alone."""
    monkeypatch.setattr(module, "FOLD", 3)
    monkeypatch.setattr(module, "KEEP", 2)
    world = World(tmp_path, FORMATS["JSON lines"])
    with capture_logs() as events:
        for batch in range(14):
            if batch % 5 == 4:
                world.run()
            world.publish(batch)
            assert {each[0] for each in world.named()} == set(range(batch + 1))
    assert events == []
    recent = Manifest(world.folder, APP).recent()
    world.entry(recent[-2]).unlink()
    world.publish(14)
    assert {each[0] for each in world.named()} == set(range(15))


def test_a_manifest_of_a_former_version_misses_nothing(tmp_path: Path) -> None:
    """Its files name no others, so nobody knows what there was."""
    world = World(tmp_path, FORMATS["JSON lines"])
    manifest = Manifest(world.folder, APP)
    manifest.add(0, [])
    assert (manifest.named_by(0), manifest.lost([], [0])) == ([], [])
    world.publish(1)
    assert {each[0] for each in world.named()} == {1}
