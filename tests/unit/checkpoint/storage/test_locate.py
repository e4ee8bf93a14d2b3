"""The folder that a setting means (SEMANTICS 10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import folder_at, root_of, store_at
from penstock.errors import ConfigError, RootMissing

LONG = "webhdfs://me@nn1,nn2:9870/" + "/".join("x" * 100 for _ in range(4))


@pytest.mark.parametrize("url", ["webhdfs://nn/a", "swebhdfs://nn:9871/a/b.c=d", LONG])
def test_a_url_is_a_folder_on_hdfs_with_a_cache_of_its_own(url: str) -> None:
    """Of whatever length it is; a slash at its end says nothing."""
    root = root_of(f"{url}/", project=Path("/project"), cache="made/cache")
    assert isinstance(root, HdfsFolder)
    assert str(root / "job" / "log") == f"{url}/job/log"
    assert root.here.parent == Path("/project/made/cache")
    assert len(root.here.name) <= 255


def test_the_cache_of_a_root_has_the_name_that_it_had() -> None:
    """A supervisor keeps the logs, versions and reports of its drivers there, from earlier versions too."""
    root = root_of("webhdfs://me@nn1,nn2:9870/a/b.c=d", project=Path("/project"), cache="cache")
    assert root.here == Path("/project/cache/webhdfs~3A~2F~2Fme~40nn1~2Cnn2~3A9870~2Fa~2Fb.c~3Dd")


def test_roots_that_end_alike_share_no_copies() -> None:
    """Neither of two servers nor of two users."""
    urls = [
        LONG,
        LONG.replace("nn2", "nn3"),
        "webhdfs://nn/a",
        "webhdfs://nn/b/a",
        "webhdfs://other/a",
        "webhdfs://me@nn/a",
        "swebhdfs://nn/a",
    ]
    assert len({root_of(url).here for url in urls}) == len(urls)


def test_a_path_is_a_folder_of_this_machine() -> None:
    """Below the project where it is relative; what is a folder already stays one."""
    assert root_of("checkpoints", project=Path("/project")) == LocalFolder("/project/checkpoints")
    assert root_of(Path("/elsewhere"), project=Path("/project")) == LocalFolder("/elsewhere")
    known = root_of("webhdfs://nn/a")
    assert root_of(known) is known


@pytest.mark.parametrize("wrong", ["hdfs://nn:8020/x", "webhdfs://nn:9870", "webhdfs://nn:9870/a/../b"])
def test_a_url_that_is_none_is_refused(wrong: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(ConfigError):
        root_of(wrong)


@pytest.mark.parametrize(
    "folder",
    [
        LocalFolder("/a/b#c") / "d",
        LocalFolder("relative"),
        HdfsFolder("webhdfs://me@nn:9870/a", "/cache/#1/a") / "job" / "state",
        HdfsFolder("webhdfs://nn/a", "/cache/a"),
    ],
)
def test_the_address_of_a_folder_is_enough_to_have_it(folder: LocalFolder | HdfsFolder) -> None:
    """Tasks are told of folders so."""
    again = folder_at(folder.address)
    assert (again, type(again)) == (folder, type(folder))


def test_a_disk_keeps_one_copy_whatever_is_said(tmp_path: Path) -> None:
    """The store of an address is that of its folder, which has to be there."""
    store = store_at(str(tmp_path), replication=3)
    store.create("a", b"x")
    assert store.read("a") == LocalFolder(tmp_path).store().read("a") == b"x"
    with pytest.raises(RootMissing):
        store_at(str(tmp_path / "none"), replication=None)
