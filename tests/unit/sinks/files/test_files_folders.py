"""The folder that a sink writes into creates each file once and whole, on this machine and on HDFS."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import ConfigError, OutputDenied, SinkUnavailable, StateMissing, StorageFull
from penstock.sinks import JsonLines
from penstock.sinks.base import Needed, Upkeep
from penstock.sinks.files.folders import HdfsOutput, LocalOutput, OutputFolder, output_folder


@pytest.fixture(params=["local", pytest.param("hdfs", marks=pytest.mark.integration)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> OutputFolder:
    """Return a folder that is not there yet."""
    if request.param == "local":
        return output_folder(tmp_path / "deep" / "out")
    server: Any = request.getfixturevalue("hdfs")
    return output_folder(server.url(secrets.token_hex(8)))


def test_a_file_is_created_once(folder: OutputFolder) -> None:
    """The first writer's bytes stay, and each other writer hears that the name is taken."""
    assert folder.create("day=1/Größe %2F/a.jsonl", b"first")
    assert not folder.create("day=1/Größe %2F/a.jsonl", b"second")
    assert folder.read("day=1/Größe %2F/a.jsonl") == b"first"
    assert folder.names("") == ["day=1"]
    assert folder.names("day=1/Größe %2F") == ["a.jsonl"]


def test_what_is_not_there_has_no_bytes_and_no_names(folder: OutputFolder) -> None:
    """Nothing is made by looking, and to remove nothing is no error."""
    assert (folder.read("a"), folder.names("a"), folder.read("a/b")) == (None, [], None)
    folder.delete("a")
    assert folder.create("a", b"")
    assert folder.read("a") == b""
    folder.delete("a")
    assert folder.names("") == []


def test_entries_are_files_and_folders_with_sizes_and_times(folder: OutputFolder) -> None:
    """Upkeep goes by them: what is right in a folder, in seconds since 1970; of no folder none."""
    assert folder.entries("") == []
    begun = time.time()
    for path, data in (("a.jsonl", b"four"), ("day=1/b.jsonl", b""), ("day=1/hour=2/c.jsonl", b"c")):
        folder.create(path, data)
    listed = {entry.name: entry for entry in folder.entries("")}
    assert {name: (entry.is_folder, entry.size) for name, entry in listed.items() if not entry.is_folder} == {
        "a.jsonl": (False, 4)
    }
    assert {name for name, entry in listed.items() if entry.is_folder} == {"day=1"}
    assert {(entry.name, entry.is_folder) for entry in folder.entries("day=1")} == {
        ("b.jsonl", False),
        ("hour=2", True),
    }
    assert folder.entries("day=2") == []
    hour = 3_600  # a NameNode has a clock of its own
    assert begun - hour < listed["a.jsonl"].modified < time.time() + hour


def test_upkeep_deletes_what_a_killed_process_left(folder: OutputFolder) -> None:
    """On HDFS as on disk: an hour later, and with its size, while files of others stay."""
    temporary = f"day=1/.tmp-{'0123456789abcdef' * 2}"
    for path in (temporary, "day=1/a.jsonl", "other/.tmp-0123"):
        folder.create(path, b"rows")
    sink = JsonLines(folder.root)
    assert sink.maintain(Needed(), now=time.time()) == Upkeep()
    assert sink.maintain(Needed(), now=time.time() + 8_000) == Upkeep(deleted=1, size=4)
    assert folder.names("day=1") == ["a.jsonl"]
    assert folder.names("other") == [".tmp-0123"]


def test_files_may_be_read_by_others(tmp_path: Path) -> None:
    """They have the rights of any file of the process, and not those of a checkpoint."""
    before = os.umask(0o022)
    try:
        output_folder(tmp_path / "out").create("a", b"x")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "out", tmp_path / "out" / "a")] == [0o755, 0o644]


@pytest.mark.integration
def test_files_on_hdfs_may_be_read_by_others(hdfs: Any) -> None:
    """They have the rights that its umask leaves."""
    from penstock.checkpoint.storage.webhdfs import WebHdfs

    url = hdfs.url(secrets.token_hex(8))
    output_folder(url).create("a", b"x")
    urls, user, place = hdfs_parts(url)
    calls = WebHdfs(urls, user, patience=30.0).calls(url)
    modes = [status.mode for path in (place, f"{place}/a") if (status := calls.status(path)) is not None]
    assert modes == [0o755, 0o644]


def hdfs_parts(url: str) -> tuple[list[str], str | None, str]:
    """Return the NameNodes, the user and the path of a URL."""
    from penstock.checkpoint.storage.hdfs import parse_root

    return parse_root(url)


def test_the_folder_of_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, a relative path, or a URL of WebHDFS; other URLs of HDFS are refused."""
    monkeypatch.chdir(tmp_path)
    assert output_folder("out") == LocalOutput(str(tmp_path / "out"))
    assert output_folder("webhdfs://nn/out/") == HdfsOutput("webhdfs://nn/out")
    with pytest.raises(ConfigError):
        output_folder("hdfs://nn:8020/out")


@pytest.mark.fault("F27", "F28")
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EACCES, OutputDenied),
        (errno.EROFS, OutputDenied),
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EIO, SinkUnavailable),
        (errno.ESTALE, SinkUnavailable),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else value.__name__,
)
def test_what_the_system_refuses_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """And the place; no part of a file keeps the name."""
    folder = output_folder(tmp_path / "out")
    folder.create("before", b"x")

    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(error, match=r"out/a"):
            folder.create("a", b"x" * 10)
    assert folder.names("") == ["before"]


@pytest.mark.remedy("PEN-SNK-020")
@pytest.mark.parametrize(
    "ask",
    [
        lambda folder: folder.create("file/a", b"x"),
        lambda folder: folder.names("file") or folder.create("file/a", b"x"),
    ],
)
def test_a_file_where_a_folder_belongs_is_refused(tmp_path: Path, ask: Callable[[OutputFolder], Any]) -> None:
    """Before anything is written; once it is out of the way, the file is created."""
    folder = output_folder(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises((OutputDenied, SinkUnavailable), match="file"):
        ask(folder)
    (tmp_path / "file").unlink()
    assert ask(folder)


def test_hdfs_that_does_not_answer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """F57: a pause, and no failure."""
    monkeypatch.setattr("penstock.sinks.files.folders.PATIENCE", 0.1)
    folder = HdfsOutput("webhdfs://127.0.0.1:1/out")
    for ask in (lambda: folder.names(""), lambda: folder.read("a"), lambda: folder.create("a", b"x")):
        with pytest.raises(SinkUnavailable, match="127"):
            ask()


@pytest.fixture(params=["local", pytest.param("hdfs", marks=pytest.mark.integration)])
def staging(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFolder:
    """Return a folder in which tasks stage files, on disk and on HDFS."""
    if request.param == "local":
        return LocalFolder(tmp_path / "staged")
    server: Any = request.getfixturevalue("hdfs")
    root = root_of(server.url(secrets.token_hex(8)), cache=str(tmp_path / "cache"))
    root.store()
    return root / "staged"


def test_a_staged_file_is_adopted_once(folder: OutputFolder, staging: CheckpointFolder) -> None:
    """From disk and HDFS to disk and HDFS: the first stays, and so do the staged ones."""
    for name, data in (("a", b"first"), ("b", b"second")):
        (staging / name).stage(memoryview(data))
    assert folder.adopt("day=1/x.jsonl", staging / "a")
    assert not folder.adopt("day=1/x.jsonl", staging / "b")
    assert folder.read("day=1/x.jsonl") == b"first"
    assert folder.names("day=1") == ["x.jsonl"]
    assert [(staging / name).read() for name in "ab"] == [b"first", b"second"]
    with pytest.raises(StateMissing):
        folder.adopt("day=1/y.jsonl", staging / "gone")


def test_a_file_of_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a link is an error of the operating system, whichever."""
    staged, folder = LocalFolder(tmp_path / "staged"), output_folder(tmp_path / "out")
    (staged / "a").stage(memoryview(b"rows"))
    link = os.link

    def refuse(source: Any, target: Any, **more: Any) -> None:
        if "src_dir_fd" not in more:
            raise OSError(errno.EXDEV, "other file system")
        link(source, target, **more)

    monkeypatch.setattr(os, "link", refuse)
    assert folder.adopt("day=1/x.jsonl", staged / "a")
    assert not folder.adopt("day=1/x.jsonl", staged / "a")
    assert not (tmp_path / "out" / "day=1" / "x.jsonl").samefile(staged / "a")
    assert folder.read("day=1/x.jsonl") == b"rows"


def test_an_adopted_file_may_be_read_by_others(tmp_path: Path) -> None:
    """It has the rights of any file of the process, though a checkpoint is its user's alone."""
    staged = LocalFolder(tmp_path / "root" / "staged")
    before = os.umask(0o022)
    try:
        (tmp_path / "root").mkdir(mode=0o700)
        (staged / "a").stage(memoryview(b"x"))
        output_folder(tmp_path / "out").adopt("a", staged / "a")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "out", tmp_path / "out" / "a")] == [0o755, 0o644]
