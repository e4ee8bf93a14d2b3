"""Folders of a checkpoint that this machine sees."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import RootUnsafe, StateMissing, StorageDenied, StorageUnavailable


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    """Return a folder that is not there yet."""
    return LocalFolder(tmp_path / "root" / "job")


def test_what_is_derived_of_a_folder_is_one() -> None:
    """Else a path would lose on the way what it can do."""
    folder = LocalFolder("/a/b")
    derived = [folder / "c", folder.parent, folder.resolve(), folder.with_name("d"), *folder.parents]
    assert {type(path) for path in derived} == {LocalFolder}
    assert folder == Path("/a/b")
    assert hash(folder) == hash(Path("/a/b"))


def test_state_is_for_its_user_and_output_for_others_too(folder: LocalFolder) -> None:
    """A table's files are read by whoever may read the table."""
    folder.make()
    (folder / "state").create(b"x")
    old = os.umask(0o022)
    try:
        (folder / "out" / "staged").stage(memoryview(b"x"))
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "state", folder / "out" / "staged")]
    assert modes == [0o700, 0o600, 0o644]


def test_a_staged_name_that_is_taken_is_left(folder: LocalFolder) -> None:
    """It may be that of a task which has told the driver of it."""
    (folder / "out").stage(memoryview(b"first"))
    with pytest.raises(StorageUnavailable):
        (folder / "out").stage(memoryview(b"second"))
    assert (folder / "out").read() == b"first"


def test_no_folder_is_made_where_a_file_is_created(folder: LocalFolder) -> None:
    """An executor that sees another disk would make one there."""
    with pytest.raises(StateMissing):
        (folder / "x").create(b"x")
    assert folder.is_missing()


def test_a_symbolic_link_is_not_followed(folder: LocalFolder, tmp_path: Path) -> None:
    """Whoever could make one could show another file (F65)."""
    folder.make()
    (tmp_path / "theirs").write_bytes(b"theirs")
    (folder / "link").symlink_to(tmp_path / "theirs")
    assert (folder / "link").size() is None
    for read in ((folder / "link").read, lambda: (folder / "link").map(6)):
        with pytest.raises(RootUnsafe):
            read()


def test_a_folder_that_cannot_be_shared_is_named_by_the_one_above(tmp_path: Path) -> None:
    """That is what the user has configured."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageDenied) as raised:
        LocalFolder(tmp_path / "file" / "mark").make_shared()
    assert raised.value.where == str(tmp_path / "file")


def test_a_file_is_adopted_by_a_link_where_that_is_wanted(folder: LocalFolder, tmp_path: Path) -> None:
    """A copy has a time of its own, and is a file of its own."""
    given = tmp_path / "given"
    given.write_bytes(b"x")
    (folder / "linked").adopt(given, link=True)
    (folder / "copied").adopt(given, link=False)
    assert (folder / "linked").samefile(given)
    assert not (folder / "copied").samefile(given)
    assert (folder / "copied").read() == b"x"


def test_more_files_are_mapped_than_a_process_may_have_open(folder: LocalFolder) -> None:
    """A worker maps thousands, of which many systems let it open 1,024."""
    folder.make()
    names = [f"{number}.arrow" for number in range(200)]
    for name in names:
        (folder / name).create(name.encode())
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 50, hard))
    try:
        maps = [(folder / name).map(len(name)).data for name in names]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    for name in names:
        (folder / name).unlink()
    assert [data.to_pybytes().decode() for data in maps] == names
