"""A sorted copy belongs to the user, is whole or made anew, and is deleted when nobody holds it."""

from __future__ import annotations

import errno
import gc
import os
import resource
import stat
import tempfile
from pathlib import Path

import pytest
from source_reading import csv, rows

from penstock.errors import RootUnsafe, SortedCopyDamaged, StorageDenied, StorageFull, StorageUnavailable
from penstock.sources import FileReplay
from penstock.sources import replay as replay_module


@pytest.fixture(autouse=True)
def private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the sorted copies of a test apart from those of others."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_sorted_copy_is_made_once_in_a_private_folder(tmp_path: Path, private_temporary_folder: Path) -> None:
    """F65: only the user who runs the job can read or fill the folder; another spec has another copy."""
    path = csv(tmp_path, "k,s\n2,a\n1,b\n")
    first = FileReplay(path, order_by="k").open(None).prepared
    (folder,) = private_temporary_folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert first.parent == folder
    made = first.stat().st_ino
    assert FileReplay(path, order_by="k").open(None).prepared.stat().st_ino == made
    assert FileReplay(path, order_by="s").open(None).prepared != first
    assert {p.suffix for p in folder.iterdir()} == {".arrow"}


@pytest.mark.fault("F65")
@pytest.mark.parametrize("trick", ["symbolic link", "file", "open to the group", "another owner"])
def test_a_folder_that_others_could_have_filled_is_refused(
    trick: str, tmp_path: Path, private_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F65: rows are read from the copy, so whoever can write it writes the stream."""
    path = csv(tmp_path, "k\n1\n")
    folder = private_temporary_folder / f"penstock-replay-{os.getuid()}"
    if trick == "symbolic link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif trick == "file":
        folder.touch(mode=0o600)
    elif trick == "open to the group":
        folder.mkdir()
        folder.chmod(0o750)
    else:
        folder.mkdir(mode=0o700)
        monkeypatch.setattr(replay_module.os, "getuid", _other_user_after(os.getuid()))
    with pytest.raises(RootUnsafe, match="not private") as caught:
        FileReplay(path, order_by="k").open(None)
    assert caught.value.where == str(folder)
    assert list(folder.iterdir() if folder.is_dir() else []) == []


def _other_user_after(me: int) -> object:
    """Return a getuid that names the folder of this user and then is another: the folder is not theirs."""
    answers = iter([me])
    return lambda: next(answers, me + 1)


@pytest.mark.fault("F14")
def test_a_byte_of_the_sorted_copy_that_has_changed_is_an_error(tmp_path: Path) -> None:
    """F14: whichever it is, no task reads another value; the remedy, to start again, makes the copy anew."""
    replay = FileReplay(csv(tmp_path, "k,s\n2,a\n1,b\n"), order_by="k")
    reader = replay.open(None)
    whole = reader.prepared.read_bytes()
    for place in range(0, len(whole), 7):
        reader.prepared.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(SortedCopyDamaged, match="Start again") as raised:
            rows(reader)
        assert raised.value.exit_code == 75
    again = replay.open(None)
    assert rows(again)["k"].to_pylist() == [1, 2]
    assert again.prepared.read_bytes() == whole


def test_copies_that_nobody_holds_are_deleted_after_an_hour(tmp_path: Path) -> None:
    """Also what a crash has left of one; what a process holds stays, however old it is."""
    path = csv(tmp_path, "k,s\n2,a\n1,b\n")
    held = FileReplay(path, order_by="k").open(None)
    left, young = (FileReplay(path, order_by=by, nulls=("", by)).open(None).prepared for by in ("k", "s"))
    torn = left.with_suffix(".0.tmp")
    torn.touch()
    gc.collect()
    for old in (held.prepared, left, torn):
        os.utime(old, (0, 0))
    other = FileReplay(path, order_by="s").open(None)
    assert set(left.parent.iterdir()) == {held.prepared, young, other.prepared}
    assert rows(held)["k"].to_pylist() == [1, 2]


@pytest.mark.parametrize("damage", ["empty", "torn", "zeros"])
def test_a_sorted_copy_that_cannot_be_read_is_made_again(damage: str, tmp_path: Path) -> None:
    """A power cut may have left its name to less than was written; no start may fail on that for ever."""
    replay = FileReplay(csv(tmp_path, "k,s\n2,a\n1,b\n"), order_by="k")
    copy = replay.open(None).prepared
    whole = copy.read_bytes()
    copy.write_bytes({"empty": b"", "torn": whole[:-7], "zeros": bytes(len(whole))}[damage])
    assert rows(replay.open(None))["k"].to_pylist() == [1, 2]
    assert copy.read_bytes() == whole


def test_a_sorted_copy_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name must not outlive a power cut that the rows do not."""
    synced: list[tuple[int, int]] = []
    named: list[tuple[int, int]] = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(descriptor: int) -> None:
        facts = os.fstat(descriptor)
        synced.append((facts.st_ino, facts.st_size))
        sync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        facts = self.stat()
        named.append((facts.st_ino, facts.st_size))
        assert named == synced
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    FileReplay(csv(tmp_path, "k\n1\n"), order_by="k").open(None)
    assert len(named) == 1


@pytest.mark.fault("F27")
def test_a_sorted_copy_that_has_no_room_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """F27: with the name of the copy; it is made once there is room."""
    replay = FileReplay(csv(tmp_path, "k\n1\n"), order_by="k")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageFull, match=r"\.arrow"):
            replay.open(None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    (folder,) = (tmp_path / "tmp").iterdir()
    assert list(folder.iterdir()) == []
    assert rows(replay.open(None))["k"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EROFS, StorageDenied), (errno.EIO, StorageUnavailable)]
)
@pytest.mark.parametrize("call", ["fsync", "mkdir"])
def test_a_sorted_copy_that_cannot_be_written_is_told(
    call: str, number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the system said, and not in its words alone."""
    path = csv(tmp_path, "k\n1\n")

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*((os, "fsync", failing) if call == "fsync" else (Path, "mkdir", failing)))
    with pytest.raises(error, match="penstock-replay-"):
        FileReplay(path, order_by="k").open(None)
    assert [p for p in (tmp_path / "tmp").rglob("*") if p.is_file()] == []


def test_a_temporary_folder_that_is_gone_is_told(tmp_path: Path, private_temporary_folder: Path) -> None:
    """Python says the same where it finds no folder that it can write."""
    private_temporary_folder.rmdir()
    with pytest.raises(StorageUnavailable, match="penstock-replay-"):
        FileReplay(csv(tmp_path, "k\n1\n"), order_by="k").open(None)


def test_a_machine_without_a_temporary_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python says where all temporary folders are full."""

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(StorageUnavailable, match="No usable temporary directory"):
        FileReplay(csv(tmp_path, "k\n1\n"), order_by="k").open(None)
