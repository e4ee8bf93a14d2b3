"""What every kind of folder of a checkpoint can do, of this machine and on a real HDFS alike."""

from __future__ import annotations

import os
import pickle
import secrets
from pathlib import Path

import pytest

from penstock.checkpoint.storage.folder import CheckpointFolder, corrupt
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.store import prove_exclusive
from penstock.errors import AlreadyExists, CheckpointCorrupt, RootMissing, SegmentExists, StateMissing

pytestmark = pytest.mark.integration

NAME = "000000000012-1-0-abc.arrow"


@pytest.fixture(params=["local", "hdfs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFolder:
    """Return the root of a store, which is there."""
    if request.param == "local":
        folder: CheckpointFolder = LocalFolder(tmp_path / "root")
    else:
        url = request.getfixturevalue("hdfs").url(secrets.token_hex(8))
        folder = HdfsFolder(url, str(tmp_path / "cache" / "copies"))
    prove_exclusive(folder.store())
    return folder


def publish(folder: CheckpointFolder, name: str, data: bytes) -> None:
    """Write a file as state is written."""
    folder.make()
    with folder.new_file(name) as file:
        file.write(data)
        file.publish()
    folder.sync()


def test_a_published_file_is_mapped_read_and_found(root: CheckpointFolder) -> None:
    """By every way there is to it."""
    folder, data = root / "job" / "state", os.urandom(1_000)
    publish(folder, NAME, data)
    file = folder / NAME
    assert file.map(1_000).data[:] == file.read() == file.read_checked(bytes) == file.fetch().read_bytes() == data
    assert file.map(1_000).signature == file.signature()
    assert (file.size(), file.is_taken(), folder.is_missing()) == (1_000, True, False)
    assert root.files() == folder.files() == [file]
    assert ((root / "job").folders(), str(file.relative_to(root))) == (["state"], f"job/state/{NAME}")
    assert [folder.presence()(folder / name) for name in (NAME, "other")] == [True, False]
    assert pickle.loads(pickle.dumps(file)).read() == data
    with file.uncached() as bare:
        assert bare.read_checked(bytes) == data
    with pytest.raises(CheckpointCorrupt, match="1000 bytes instead of 999, in a file of batch 12") as raised:
        file.map(999)
    assert raised.value.where == str(file)


def test_a_name_that_is_taken_keeps_its_file(root: CheckpointFolder) -> None:
    """Whoever comes second is told, or left alone where the same was meant."""
    folder = root / "job"
    publish(folder, NAME, b"first")
    with pytest.raises(SegmentExists):
        publish(folder, NAME, b"second")
    with pytest.raises((SegmentExists, AlreadyExists)):
        (folder / NAME).create(b"third")
    assert (folder / NAME).read() == b"first"


def test_what_is_not_there_is_missing_by_name(root: CheckpointFolder) -> None:
    """To remove it changes nothing."""
    file = root / "job" / NAME
    for read in (file.read, lambda: file.read_checked(bytes), lambda: file.map(3), file.fetch):
        with pytest.raises(StateMissing, match="no such state file") as raised:
            read()
        assert raised.value.where == str(file)
    file.remove()
    assert (file.size(), file.signature(), file.is_taken(), (root / "job").files()) == (None, None, False, [])
    with pytest.raises(RootMissing):
        (root / "job").store(make=False)


def test_files_are_made_and_removed(root: CheckpointFolder, tmp_path: Path) -> None:
    """In the ways that callers need."""
    (tmp_path / "given").write_bytes(b"given")
    folder = root / "job"
    folder.make()
    (folder / "created").create(b"created")
    (folder / "fleeting").create_fleeting(b"fleeting")
    (folder / "out" / "staged").stage(memoryview(b"staged"))
    for _ in range(2):
        (folder / "given").adopt(tmp_path / "given", link=False)
    assert {file.name: file.read() for file in folder.files()} == {
        name: name.encode() for name in ("created", "fleeting", "given", "staged")
    }
    folder.remove_files([folder / "created", folder / "given"])
    (folder / "fleeting").remove()
    assert [file.name for file in folder.files()] == ["staged"]
    folder.move_to(root / "moved")
    assert [file.name for file in (root / "moved").files()] == ["staged"]
    (root / "moved").remove_all()
    assert root.files() == []


def test_a_damaged_file_is_named_with_its_batch() -> None:
    """Where its name says one."""
    raised = corrupt(LocalFolder("/checkpoints") / NAME, "bent")
    assert (raised.what, raised.where) == ("bent, in a file of batch 12", f"/checkpoints/{NAME}")
    assert corrupt(LocalFolder("/checkpoints/odd"), "bent").what == "bent"
