"""What the handle of a folder on HDFS does before it asks HDFS, and when HDFS does not answer (decision 98, F65)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import hdfs_cache, hdfs_folder
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.errors import RootMissing, RootUnsafe, StorageUnavailable

URL = "webhdfs://me@nowhere:9870/root"


@pytest.fixture(autouse=True)
def _process_that_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test see what an earlier one has opened."""
    monkeypatch.setattr(hdfs_cache, "_connections", {})
    hdfs_cache.store_of.cache_clear()


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.read_checked(bytes),
        lambda file: file.map(6),
        lambda file: file.fetch(),
        lambda file: file.signature(),
        lambda file: file.size(),
        lambda file: file.parent.make(),
        lambda file: file.parent.new_file("2-b"),
    ],
    ids=["read", "map", "fetch", "signature", "size", "make", "write"],
)
def test_a_cache_in_which_others_can_write_is_not_used(tmp_path: Path, use: Callable[[HdfsFolder], Any]) -> None:
    """Whoever can could put in a state of his own; nothing of it is believed, and nothing written beside it."""
    folders = tmp_path / "cache"
    file = HdfsFolder(URL, str(folders / "copies")) / "job" / "1-a"
    file.here.parent.mkdir(parents=True)
    file.here.write_bytes(b"forged")
    folders.chmod(0o777)
    with pytest.raises(RootUnsafe):
        use(file)
    assert [path.name for path in file.here.parent.iterdir()] == ["1-a"]


def test_a_root_that_has_gone_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker that has a manifest's copy and not that of its segment: RootMissing is a FileNotFoundError too."""
    calls: list[str] = []

    def gone(*_: Any, **__: Any) -> None:
        calls.append("open")
        if len(calls) > 3:
            raise AssertionError("asked again and again")
        raise RootMissing("there is no such folder on HDFS", where=URL)

    monkeypatch.setattr(hdfs_folder, "store_of", gone)
    with pytest.raises(RootMissing):
        (HdfsFolder(URL, str(tmp_path / "cache" / "copies")) / "job" / "1-a").map(6)
    assert calls == ["open"]


def test_what_cannot_be_opened_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of this machine, or the root: not the file that was wanted, whose remedy would be another."""

    def silent(*_: Any, **__: Any) -> None:
        raise StorageUnavailable("HDFS does not answer", where=URL)

    monkeypatch.setattr(hdfs_folder, "store_of", silent)
    with pytest.raises(StorageUnavailable) as raised:
        (HdfsFolder(URL, str(tmp_path / "cache" / "copies")) / "job" / "1-a").read()
    assert raised.value.where == URL


def test_threads_that_come_at_once_share_one_connection(tmp_path: Path) -> None:
    """Who waits for uploads must see those of all threads."""
    threads = 8
    together = threading.Barrier(threads)

    def ask(_: int) -> hdfs_cache.Connection:
        together.wait()
        return hdfs_cache.connection_of(str(tmp_path / "cache" / "copies"), URL)

    with ThreadPoolExecutor(threads) as pool:
        connections = list(pool.map(ask, range(threads)))
    assert len(set(map(id, connections))) == 1
    folder = HdfsFolder(URL, str(tmp_path / "cache" / "copies"))
    assert folder.connection is folder.hurried(1.0).connection is connections[0]
