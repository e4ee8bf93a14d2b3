"""Files of a folder on this machine and on a real HDFS are listed, read, moved and deleted alike."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folder_files import Rows, lines_of, read_all, reader_of
from source_reading import end_of_batch

from penstock.errors import (
    ConfigError,
    FileChanged,
    FileVanished,
    FolderUnreadable,
    SourceNotFound,
    SourceUnavailable,
)
from penstock.graph.policies import Afterwards
from penstock.sources import files
from penstock.sources.base import SourceReader
from penstock.sources.file import systems
from penstock.sources.file.systems import HdfsFiles, LocalFiles, file_system
from penstock.testing.source_contract import Feed, Grow, SourceContract, read
from tools.hdfs_server import SUPERUSER, HdfsServer


def test_a_local_file_is_moved_once_and_replaces_none(tmp_path: Path) -> None:
    """Also where a crash has left both names."""
    here, there = LocalFiles(str(tmp_path / "in")), LocalFiles(str(tmp_path / "done"))
    source = lines_of(tmp_path / "in/a/b", 1)
    assert here.move("a/b", there, "a/b")
    assert (tmp_path / "done/a/b").read_text() == "1\n"
    lines_of(source, 2)
    assert not here.move("a/b", there, "a/b")
    (tmp_path / "done/half").hardlink_to(source)
    assert here.move("a/b", there, "half")
    assert not source.exists()
    here.delete("a/b")
    with pytest.raises(FileVanished, match="in/a/b"):
        here.open("a/b")


def test_known_names_are_not_asked_for(tmp_path: Path) -> None:
    """The tokens of a listing are those of its files; another file of the same name has another."""
    for name in ("a", "b"):
        lines_of(tmp_path / name, 1)
    (tmp_path / "sub").mkdir()
    here = LocalFiles(str(tmp_path))
    first = here.listed("")
    assert first is not None
    assert sorted(entry.path for entry in first.files) == ["a", "b"]
    lines_of(tmp_path / "b", 2)
    lines_of(tmp_path / "c", 3)
    second = here.listed("", first.tokens)
    assert second is not None
    assert sorted(entry.path for entry in second.files) == ["b", "c"]
    assert [entry.path for entry in second.folders] == ["sub"]
    assert len(np.intersect1d(first.tokens, second.tokens)) == 1
    assert here.listed("gone") is None


def test_trouble_of_the_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is started again may find it mended."""

    def broken(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(SourceUnavailable, match="Input/output error"):
        LocalFiles(str(tmp_path)).look(["a"])


def test_a_url_is_one_of_hdfs() -> None:
    """As roots of checkpoints are; others are refused."""
    assert file_system("webhdfs://host:9870/landing/") == HdfsFiles("webhdfs://host:9870/landing")
    assert file_system("landing") == LocalFiles("landing")
    with pytest.raises(ConfigError, match="webhdfs"):
        file_system("hdfs://host:9000/landing")


# --- HDFS ------------------------------------------------------------------------------------


@pytest.fixture
def landing(hdfs: HdfsServer) -> str:
    """Return the URL of a new folder."""
    url = hdfs.url(secrets.token_hex(8))
    hdfs.client().makedirs(path_of(url))
    return url


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def put(hdfs: HdfsServer, url: str, text: str, at: int) -> None:
    """Write a file with a time in seconds."""
    path = path_of(url)
    hdfs.client().write(path, text.encode(), overwrite=True)
    hdfs.client(SUPERUSER).set_times(path, modification_time=1_700_000_000_000 + at * 1_000)


@pytest.mark.integration
@pytest.mark.soak
class TestFilesOnHdfs(SourceContract):
    """A folder of HDFS with files of one line each."""

    @pytest.fixture
    def feed(self, hdfs: HdfsServer, landing: str) -> Feed:
        def make(rows: int) -> SourceReader:
            hdfs.client().delete(path_of(landing), recursive=True)
            hdfs.client().makedirs(path_of(landing))
            self.hdfs, self.landing, self.written = hdfs, landing, 0
            self.add(rows)
            return reader_of(landing, at_most=files(4))  # type: ignore[arg-type]

        return make

    @pytest.fixture
    def grow(self) -> Grow:
        return lambda reader, rows: self.add(rows)

    def add(self, rows: int) -> None:
        """Write more files, k going on."""
        for k in range(self.written, self.written + rows):
            put(self.hdfs, f"{self.landing}/{k % 3}/{k}.txt", f"{k:04}\n", k // 2)
        self.written += rows


@pytest.mark.integration
def test_a_file_that_is_open_on_hdfs_is_left_alone(hdfs: HdfsServer, landing: str) -> None:
    """Its time is that of its creation, and its length that of its whole blocks, for as long as it is written."""
    put(hdfs, f"{landing}/a", "1\n", 1)
    reader, client, place = reader_of(landing), hdfs.client(), f"{path_of(landing)}/b"  # type: ignore[arg-type]
    with client.write(place) as writer:
        writer.write(b"2\n" * (3 << 19))  # more than a block of a megabyte
        numbers, position = read_all(reader)
        assert numbers == [1]
    assert len(read_all(reader, position)[0]) == 3 << 19


@pytest.mark.integration
def test_hdfs_lists_part_by_part(hdfs: HdfsServer, landing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are as long as the NameNode makes them; here they are cut shorter."""
    for n in range(7):
        put(hdfs, f"{landing}/{n}", f"{n}\n", n)
    whole = HdfsFiles(landing).listed("")
    calls = type(systems._web(("http://x",), None, 0).calls("x"))
    some = calls.some_children

    def fewer(self: Any, folder: str, after: str) -> Any:
        listed, left = some(self, folder, after)
        return listed[:3], left + len(listed[3:])

    monkeypatch.setattr(calls, "some_children", fewer)
    parts = HdfsFiles(landing).listed("")
    assert whole is not None
    assert parts is not None
    assert parts.files == whole.files
    assert len(whole.files) == 7


@pytest.mark.integration
@pytest.mark.parametrize("afterwards", [Afterwards.MOVE, Afterwards.DELETE])
def test_files_of_hdfs_go_when_they_are_read(hdfs: HdfsServer, landing: str, afterwards: Afterwards) -> None:
    """Moved to a folder that the source passes over, or deleted; a name that is taken there is left."""
    more = {"move_to": f"{landing}/_done"} if afterwards is Afterwards.MOVE else {}
    put(hdfs, f"{landing}/_done/day=1/a", "0\n", 0)
    put(hdfs, f"{landing}/day=1/a", "1\n", 1)
    reader = reader_of(landing, afterwards=afterwards, **more)  # type: ignore[arg-type]
    end = end_of_batch(reader, None)
    span = reader.span(None, end)
    assert read(reader, span)["k"].to_pylist() == [1]
    reader.ack(end)
    reader.ack(end)
    assert hdfs.client().list(f"{path_of(landing)}/day=1") == []
    done = ["a", "a-1700000001000000000"] if afterwards is Afterwards.MOVE else ["a"]
    assert hdfs.client().list(f"{path_of(landing)}/_done/day=1") == done


@pytest.mark.integration
@pytest.mark.fault("F39")
def test_changed_and_vanished_files_of_hdfs_are_named(hdfs: HdfsServer, landing: str) -> None:
    """As on this machine."""
    put(hdfs, f"{landing}/a", "1\n", 1)
    reader = reader_of(landing)  # type: ignore[arg-type]
    span = reader.span(None, end_of_batch(reader, None))
    put(hdfs, f"{landing}/a", "2\n", 2)
    with pytest.raises(FileChanged, match=f"{landing}/a"):
        reader.verify(span)
    hdfs.client().delete(f"{path_of(landing)}/a")
    with pytest.raises(FileVanished, match=f"{landing}/a"):
        read(reader, span)


@pytest.mark.integration
def test_parquet_of_hdfs_is_read_by_its_parts(hdfs: HdfsServer, landing: str, tmp_path: Path) -> None:
    """Each split brings the row groups that it reads."""
    pq.write_table(pa.table({"k": range(50_000)}), tmp_path / "a.parquet", row_group_size=9_000)
    hdfs.client().upload(f"{path_of(landing)}/a.parquet", str(tmp_path / "a.parquet"))
    reader = reader_of(landing, Rows())  # type: ignore[arg-type]
    span = reader.span(None, end_of_batch(reader, None))
    assert read(reader, span, 3)["k"].to_pylist() == list(range(50_000))


@pytest.mark.integration
def test_a_folder_of_hdfs_that_is_not_there_or_may_not_be_read(hdfs: HdfsServer, landing: str) -> None:
    """Named when the source is opened, with its URL."""
    with pytest.raises(SourceNotFound, match=f"{landing}/none"):
        reader_of(f"{landing}/none")  # type: ignore[arg-type]
    hdfs.client().set_permission(path_of(landing), "700")
    foreign = landing.replace("penstock@", "alice@")
    with pytest.raises(FolderUnreadable, match="not permitted"):
        reader_of(foreign)  # type: ignore[arg-type]
