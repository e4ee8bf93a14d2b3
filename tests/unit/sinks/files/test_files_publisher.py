"""A batch of files is published once, whatever dies, and whoever was fenced (SEMANTICS 9.4, F54)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.dataset import dataset
from written_files import stage_by_form, staged_of

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import CheckpointCopied, SinkAhead, SinkBehind, SinkRefused, SinkValueRefused, StateMissing
from penstock.sinks.base import Publication, Staged, Target, TaskForm
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.formats import JsonLinesFormat, ParquetFormat
from penstock.sinks.files.manifest import published_files
from penstock.sinks.files.publisher import FilePublisher
from penstock.sinks.files.truncation import put_back
from penstock.sinks.staged_files import read_staged, stage_table

APP = "uuid/out"
SCHEMA = pa.schema([("k", pa.int64()), ("day", pa.string())])
FORM = TaskForm(format="Parquet", partition_by=["day"], few=0)


class Dying(LocalOutput):
    """A folder whose process dies after some files."""

    left = 10**9

    def create(self, path: str, data: bytes | memoryview) -> bool:
        """Create a file, unless the process is dead by then."""
        if type(self).left <= 0:
            raise KeyboardInterrupt
        type(self).left -= 1
        return super().create(path, data)

    def adopt(self, path: str, file: CheckpointFolder) -> bool:
        """Adopt a file, unless the process is dead by then."""
        if type(self).left <= 0:
            raise KeyboardInterrupt
        type(self).left -= 1
        return super().adopt(path, file)


def publisher(root: Path) -> FilePublisher:
    """Return the publisher of another run."""
    return FilePublisher(Dying(str(root / "out")), LocalFolder(root / "staged"), ParquetFormat(), ["day"])


def staged(root: Path, name: str, *ks: int) -> Staged:
    """Stage rows of three days."""
    rows = pa.table([list(ks), [f"d{k % 3}" for k in ks]], schema=SCHEMA)
    return Staged(**stage_table(rows, LocalFolder(root / "staged"), name))


def written(root: Path, name: str, *ks: int, form: TaskForm = FORM) -> list[Staged]:
    """Stage rows of three days as a task does that leaves none."""
    rows = pa.table([list(ks), [f"d{k % 3}" for k in ks]], schema=SCHEMA)
    return [staged_of(file) for file in stage_by_form(rows, form, LocalFolder(root / "staged"), name)]


def publication(batch: int, *files: Staged) -> Publication:
    """Return what the driver asks for."""
    return Publication(app=APP, batch=batch, files=files, schema=SCHEMA)


def listed(root: Path) -> Counter[int]:
    """Return the rows that a listing of the folder shows."""
    return Counter(dataset(root / "out", format="parquet", partitioning="hive").to_table()["k"].to_pylist())


def named(root: Path) -> int:
    """Return how many rows the manifest names."""
    return sum(file.rows for file in published_files(LocalOutput(str(root / "out"))))


@pytest.mark.fault("F01", "F54")
@pytest.mark.parametrize("files", range(5))
def test_a_crash_after_any_file_is_mended_by_publishing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """No row is in the manifest before all are there, and none is listed twice afterwards."""
    batch = publication(0, staged(tmp_path, "a.parquet", 0, 1, 2), staged(tmp_path, "b.parquet", 3, 4))
    monkeypatch.setattr(Dying, "left", files)
    if files < 4:  # three of days, and the manifest
        with pytest.raises(KeyboardInterrupt):
            publisher(tmp_path).publish(batch)
        assert named(tmp_path) == 0
    monkeypatch.setattr(Dying, "left", 10**9)
    publisher(tmp_path).publish(batch)
    assert (named(tmp_path), listed(tmp_path)) == (5, Counter(range(5)))


def test_the_manifest_says_what_was_written(tmp_path: Path) -> None:
    """Sizes and checksums, also of a file that the publisher before has written with other bytes."""
    import hashlib

    (tmp_path / "out" / "day=d0").mkdir(parents=True)
    done = publisher(tmp_path)
    done.publish(publication(0, staged(tmp_path, "a.parquet", 0)))
    (file,) = published_files(LocalOutput(str(tmp_path / "out")))
    data = Path(file.path).read_bytes()
    assert (file.size, file.sha256, file.rows) == (len(data), hashlib.sha256(data).hexdigest(), 1)
    before = file.path.replace("000000000000-", "000000000001-")
    Path(before).write_bytes(b"as another version writes it")
    done.publish(publication(1, staged(tmp_path, "b.parquet", 3)))
    assert published_files(LocalOutput(str(tmp_path / "out")))[1].size == len(b"as another version writes it")


@pytest.mark.fault("F31")
@pytest.mark.parametrize("by_tasks", [False, True], ids=["the driver's", "of tasks"])
def test_a_data_file_of_a_copy_of_the_checkpoint_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_tasks: bool
) -> None:
    """Its driver has written one, and not yet the manifest: nothing of ours is named, and it continues."""

    def batch(name: str, fingerprint: int, *ks: int) -> Publication:
        files = written(tmp_path, name, *ks) if by_tasks else [staged(tmp_path, f"{name}.parquet", *ks)]
        return replace(publication(0, *files), fingerprint=fingerprint)

    theirs, ours = batch("theirs", 1, 0, 1, 2), batch("ours", 2, 3, 4, 5)
    monkeypatch.setattr(Dying, "left", 1)
    with pytest.raises(KeyboardInterrupt):
        publisher(tmp_path).publish(theirs)
    monkeypatch.setattr(Dying, "left", 10**9)
    with pytest.raises(CheckpointCopied, match="day=d"):
        publisher(tmp_path).publish(ours)
    assert named(tmp_path) == 0
    publisher(tmp_path).publish(theirs)
    assert (named(tmp_path), listed(tmp_path)) == (3, Counter([0, 1, 2]))


@pytest.mark.fault("F08")
def test_a_fenced_driver_adds_nothing(tmp_path: Path) -> None:
    """It may wake up with the batch that its follower has published again, or with one that is long past."""
    first, second = staged(tmp_path, "a.parquet", 0, 1), staged(tmp_path, "b.parquet", 2)
    old, new = publisher(tmp_path), publisher(tmp_path)
    new.publish(publication(0, first))
    old.publish(publication(0, first))
    new.publish(publication(2, second))
    with pytest.raises(SinkAhead, match=r"2.*1"):
        old.publish(publication(1, first))
    assert (named(tmp_path), listed(tmp_path)) == (3, Counter(range(3)))


@pytest.mark.fault("F31")
def test_a_manifest_that_is_gone_stops_the_job(tmp_path: Path) -> None:
    """SEMANTICS 9.5: while it runs; a start compares the newest batch with the log."""
    running = publisher(tmp_path)
    running.publish(publication(0, staged(tmp_path, "a.parquet", 0)))
    (tmp_path / "out" / "_penstock").rename(tmp_path / "gone")
    later = publication(1, staged(tmp_path, "b.parquet", 1))
    with pytest.raises(SinkBehind, match="batch -1") as caught:
        running.publish(later)
    assert (caught.value.shown, caught.value.missing) == (-1, [0])
    assert publisher(tmp_path).version(APP) is None
    (tmp_path / "gone").rename(tmp_path / "out" / "_penstock")
    running.publish(later)
    assert listed(tmp_path) == Counter([0, 1])


def test_values_are_refused_before_the_commit(tmp_path: Path) -> None:
    """SEMANTICS 9.6: what the format cannot hold; nothing is written, and what fits is made once."""
    rows = pa.table({"v": [1.0, float("nan")]})
    lines = FilePublisher(Dying(str(tmp_path / "out")), LocalFolder(tmp_path / "staged"), JsonLinesFormat(), [])
    bad = Staged(**stage_table(rows, LocalFolder(tmp_path / "staged"), "bad.parquet"))
    with pytest.raises(SinkValueRefused, match="'v' has NaN"):
        lines.refuse_values([bad])
    assert not (tmp_path / "out").exists()
    good = Staged(**stage_table(rows.slice(0, 1), LocalFolder(tmp_path / "staged"), "good.parquet"))
    lines.refuse_values([good])
    lines.publish(Publication(app=APP, batch=0, files=[good], schema=rows.schema))
    (file,) = published_files(LocalOutput(str(tmp_path / "out")))
    assert Path(file.path).read_text() == '{"v":1}\n'


def test_a_fenced_driver_adds_nothing_that_a_restore_has_taken_back(tmp_path: Path) -> None:
    """F54: it publishes late what its Commit names, and the folder shows nothing of that."""
    first, late = staged(tmp_path, "a.parquet", 0), staged(tmp_path, "b.parquet", 1, 2)
    publisher(tmp_path).publish(publication(0, first))
    put_back(LocalOutput(str(tmp_path / "out")), Target(app=APP, batch=0, slot=3), slot=9, newest=1)
    publisher(tmp_path).publish(publication(1, late))
    assert (listed(tmp_path), named(tmp_path)) == (Counter([0]), 1)


@pytest.mark.fault("F01", "F54")
@pytest.mark.parametrize("files", range(7))
def test_files_of_tasks_have_the_same_names_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """SEMANTICS 9.4: a publisher that dies after any of them is followed by one that adds the others."""
    batch = publication(
        0, *written(tmp_path, "a", 0, 1, 2), staged(tmp_path, "rest.parquet", 5), *written(tmp_path, "b", 3)
    )
    monkeypatch.setattr(Dying, "left", files)
    if files < 6:  # one of rows, four of tasks, and the manifest
        with pytest.raises(KeyboardInterrupt):
            publisher(tmp_path).publish(batch)
        assert named(tmp_path) == 0
    monkeypatch.setattr(Dying, "left", 10**9)
    for _ in range(2):
        publisher(tmp_path).publish(batch)
    assert (named(tmp_path), listed(tmp_path)) == (5, Counter([0, 1, 2, 3, 5]))


def test_the_manifest_has_the_facts_that_the_task_gave(tmp_path: Path) -> None:
    """The driver reads no byte of these files."""
    (file,) = files = written(tmp_path, "a", 0, 3)
    publisher(tmp_path).publish(publication(0, *files))
    (shown,) = published_files(LocalOutput(str(tmp_path / "out")))
    assert (shown.rows, shown.size, shown.sha256) == (2, file.size, file.checksum)
    assert Path(shown.path).samefile(tmp_path / "staged" / file.path)


def test_a_file_of_a_task_that_is_gone_leaves_nothing_visible(tmp_path: Path) -> None:
    """F13: a listing has no half of a batch for ever."""
    files = [staged(tmp_path, "rest.parquet", 5), *written(tmp_path, "a", 0, 1)]
    (tmp_path / "staged" / files[-1].path).unlink()
    with pytest.raises(StateMissing):
        publisher(tmp_path).publish(publication(0, *files))
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").rglob("*.parquet")) == []


@pytest.mark.parametrize("form", [TaskForm(format="JSON lines", few=0), TaskForm(format="Parquet", few=0)])
def test_files_for_another_sink_are_refused(tmp_path: Path, form: TaskForm) -> None:
    """F51: the sink has changed under its name while a batch was waiting for it."""
    files = written(tmp_path, "a", 0, 1, form=form)
    with pytest.raises(SinkRefused, match="for another sink"):
        publisher(tmp_path).publish(publication(0, *files))
    with pytest.raises(SinkRefused, match="takes rows"):
        read_staged(LocalFolder(tmp_path / "staged"), files)
    assert not (tmp_path / "out").exists()
