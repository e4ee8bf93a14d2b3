"""`penstock fsck` reads staged output that is still to be shown, and says what its damage means (F13, 11.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_samples import commit, offsets, own

from penstock.checkpoint.log.entries import Release, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.runtime.inspect.fsck import verify
from penstock.sinks.files.folders import output_folder
from penstock.sinks.files.manifest import Manifest
from penstock.sinks.staged_files import stage_table


class Job:
    """A checkpoint with rows of batch 0 held, and of batch 1 to be published; its driver has died."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.folder = LocalFolder(root / "job")
        self.log = Log(self.folder.store())
        open_or_create(self.log.store, now=0)
        self.owned = own(self.log, **more)
        self.files: list[Path] = []
        for batch, word in enumerate(("held", "staged")):
            folder = self.folder / "staged" / "out"
            facts = stage_table(pa.table({"v": [batch]}), folder, f"{batch:012d}-out.parquet")
            self.files.append(folder / facts["path"])
            self.owned.append(offsets(batch))
            self.owned.append(commit(batch, **{word: {"out": [StagedFile(**facts, stats={})]}}))
        self.records = HeldRecords(control_store(LocalFolder(root)), "job")

    def found(self) -> dict[str, str]:
        """Return what is found, without the place, and what it means."""
        return {finding.what.partition(" (")[0]: finding.means for finding in verify(self.log, self.folder).findings}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return one."""
    return Job(tmp_path)


def damage(path: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.fault("F13")
def test_a_deleted_file_of_a_folders_manifest_is_found(tmp_path: Path) -> None:
    """With its place; the manifest of another job in the folder is not this one's."""
    folder = LocalFolder(tmp_path / "job")
    log, out = Log(folder.store()), output_folder(tmp_path / "out")
    uuid = open_or_create(log.store, now=0).uuid
    sinks = {"files": str(tmp_path / "out"), "topic": "kafka://localhost:1/topic", "table": str(tmp_path / "table")}
    owned = own(log, sinks=sinks)
    for batch in range(3):
        owned.append(offsets(batch))
        owned.append(commit(batch))
        for app in (f"{uuid}/files", "another/files"):
            Manifest(out, app).add(batch, [], range(batch))
    assert verify(log, folder).findings == ()
    Path(out.full(Manifest(out, "another/files").path(1))).unlink()
    assert verify(log, folder).findings == ()
    gone = Path(out.full(Manifest(out, f"{uuid}/files").path(1)))
    gone.unlink()
    (found,) = verify(log, folder).findings
    assert found.what == f"batch 1: sink files lacks a file of its manifest ({gone})"
    assert "the next batch for the sink writes the file again" in found.means


@pytest.mark.fault("F13")
def test_damaged_output_that_is_to_be_shown_is_found(job: Job) -> None:
    """With its batch, and what one can do."""
    assert job.found() == {}
    for path in job.files:
        damage(path)
    assert job.found() == {
        "batch 0: the staged file is not what the Commit names": "held batch 0 cannot be released: "
        "put the file back from a copy, or discard the batch",
        "batch 1: the staged file is not what the Commit names": "the next start stops if sink out does not show "
        "batch 1: restore the batch before it",
    }


@pytest.mark.fault("F13")
@pytest.mark.parametrize("place", ["a table", "postgresql://server/db/out"])
def test_a_held_file_that_is_gone_is_found(tmp_path: Path, place: str) -> None:
    """11.5: a release names it, and whoever asks before learned nothing. An older Penstock left it in its table."""
    table = tmp_path / "table"
    job = Job(tmp_path, sinks={"out": str(table) if place == "a table" else place})
    table.mkdir()
    left = job.files[0].rename(table / job.files[0].name)
    if place == "a table":
        assert job.found() == {}
    left.unlink()
    assert job.found() == {
        "batch 0: the staged file is gone": "held batch 0 cannot be released: put the file back from a copy, or "
        "discard the batch"
    }
    ruling = job.records.decide(0, Decision.DISCARD, {"out": 1}, by="me")
    job.records.carried_out(0, ruling, by="me")
    assert job.found() == {}


def test_output_that_nobody_needs_any_more_is_not_read(job: Job) -> None:
    """After the decision, and once a driver has left with everything published; a file elsewhere is its table's."""
    for path in job.files:
        damage(path)
    ruling = job.records.decide(0, Decision.DISCARD, {"out": 1}, by="me")
    job.records.carried_out(0, ruling, by="me")
    assert [*job.found()] == ["batch 1: the staged file is not what the Commit names"]
    job.files[1].unlink()
    assert job.found() == {}


def test_a_copy_without_the_decisions_is_verified_as_if_none_was_made(job: Job, tmp_path: Path) -> None:
    """The folder beside it may be any."""
    damage(job.files[0])
    ruling = job.records.decide(0, Decision.RELEASE, {"out": 1}, by="me")
    job.records.carried_out(0, ruling, by="me")
    assert job.found() == {}
    tmp_path.chmod(0o777)
    assert [*job.found()] == ["batch 0: the staged file is not what the Commit names"]


def test_a_published_batch_is_not_read(job: Job) -> None:
    """Its driver has left and said so."""
    damage(job.files[1])
    job.owned.append(Release(epoch=1, writer="w1", reason="done", published={"out": 1}))
    assert job.found() == {}
