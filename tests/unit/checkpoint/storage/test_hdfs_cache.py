"""The folder of this machine for copies of files on a real HDFS (DESIGN 6, FAULTS 4)."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest

from penstock.checkpoint.storage import hdfs_cache
from penstock.checkpoint.storage.hdfs_folder import HdfsFolder
from tools.hdfs_server import HdfsServer

pytestmark = pytest.mark.integration


@pytest.fixture
def url(hdfs: HdfsServer) -> str:
    """Return a root on HDFS."""
    return hdfs.url(secrets.token_hex(8))


def test_what_nobody_has_used_for_long_is_swept_once_a_day(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what a supervisor keeps there of its drivers."""
    folder = HdfsFolder(url, str(tmp_path / "cache" / "copies"))
    folder.store()
    root = folder.here
    (root / "job").mkdir()
    (root / "_logs").mkdir()
    old = {root / "job" / "1-a": 8 * 86_400, root / "job" / ".tmp-1": 2 * 86_400, root / "_logs" / "1.log": 90 * 86_400}
    young = {root / "job" / "2-b": 86_400, root / "job" / ".tmp-2": 7_200}
    for path, age in (old | young).items():
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    monkeypatch.setattr(hdfs_cache, "_connections", {})
    hdfs_cache.store_of.cache_clear()
    (folder / "x").size()
    assert all(path.exists() for path in old)  # it was done when the root was opened
    os.utime(root / ".swept", (0, 0))
    monkeypatch.setattr(hdfs_cache, "_connections", {})
    hdfs_cache.store_of.cache_clear()
    (folder / "x").size()
    assert [path for path in old | young if not path.exists()] == list(old)[:2]
