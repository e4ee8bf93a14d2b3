"""The store on local disk: durability, links, permissions, left-overs, disk full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system_errors import OF_WRITES, name_of

from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    CommitUnknown,
    NotExclusive,
    PathEscapes,
    RootUnsafe,
    StorageUnavailable,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "checkpoint"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def files(root: Path) -> list[str]:
    """Return every file below the root, left-overs included."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, *, at: int = 1) -> Callable[[], int]:
    """Make the `at`-th call of `os.<call>` fail; return a counter of calls."""
    real, calls = getattr(os, call), 0

    def fails(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(number, os.strerror(number))
        return real(*args, **named)

    monkeypatch.setattr(os, call, fails)
    return lambda: calls


@pytest.mark.fault("F64", "F65")
def test_the_root_and_its_folders_are_private(root: Path) -> None:
    """Folders are made with 0700 and files with 0600, also where the umask would open them to all."""
    umask = os.umask(0)
    try:
        LocalStore(root).create("log/000000000000", b"x")
    finally:
        os.umask(umask)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (root, *root.rglob("*"))}
    assert modes == {"checkpoint": "0o700", "log": "0o700", "000000000000": "0o600"}


@pytest.mark.fault("F64", "F65")
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_root_that_others_can_write_is_refused(root: Path, mode: int) -> None:
    """Whoever may write there could forge a Takeover."""
    root.mkdir(parents=True)
    root.chmod(mode)
    with pytest.raises(RootUnsafe, match="group or others"):
        LocalStore(root)


@pytest.mark.fault("F64", "F65")
def test_a_root_of_another_user_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can write it."""
    LocalStore(root)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(RootUnsafe, match="belongs to user"):
        LocalStore(root)


@pytest.mark.fault("F65")
def test_a_root_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    """A link may point elsewhere tomorrow."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_bytes(b"")
    for name in ("link", "file"):
        with pytest.raises(RootUnsafe):
            LocalStore(tmp_path / name)


@pytest.mark.fault("F65")
def test_links_inside_are_never_followed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    """Neither a linked folder nor a linked file is read, written, listed or deleted through."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_bytes(b"secret")
    (root / "state").symlink_to(outside)
    store.create("log/1", b"x")
    (root / "log" / "0").symlink_to(outside / "0")
    for call in (
        lambda: store.read("log/0"),
        lambda: store.exists("log/0"),
        lambda: store.read("state/0"),
        lambda: store.exists("state/0"),
        lambda: store.delete("state/0"),
        lambda: store.create("state/1", b"x"),
    ):
        with pytest.raises(RootUnsafe):
            call()
    with pytest.raises(AlreadyExists):
        store.create("log/0", b"x")
    assert store.list("") == ["log/1"]
    assert files(outside) == ["0"]


def test_what_is_not_a_plain_file_is_not_read(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe does not block the reader, a folder and a giant are damage, and a folder is not deleted.

    All of them take a name: who looked for a free one would try to create it for ever.
    """
    store.create("log/0", b"0123456789")
    os.mkfifo(root / "log" / "pipe")
    for path in ("log/pipe", "log"):
        assert store.exists(path)
        with pytest.raises(AlreadyExists):
            store.create(path, b"x")
        with pytest.raises(CheckpointCorrupt, match="not a plain file"):
            store.read(path)
    with pytest.raises(PathEscapes):
        store.delete("log")
    monkeypatch.setattr("penstock.checkpoint.storage.local.READ_CAP", 9)
    with pytest.raises(CheckpointCorrupt, match="10 bytes"):
        store.read("log/0")


@pytest.mark.remedy("PEN-CKP-009")
def test_a_root_that_went_away_is_not_an_empty_checkpoint(store: LocalStore, root: Path) -> None:
    """An unmounted root must not look like a new job, and is not made again."""
    root.rmdir()
    for call in (lambda: store.exists("log/0"), lambda: store.read("log/0"), lambda: store.create("log/0", b"x")):
        with pytest.raises(StorageUnavailable, match="gone"):
            call()
    assert not root.exists()
    root.mkdir(mode=0o700)  # it is mounted again
    store.create("log/0", b"x")
    assert store.read("log/0") == b"x"


@pytest.mark.fault("F15")
def test_left_over_temporary_files_are_never_seen_and_go_after_a_grace(store: LocalStore, root: Path) -> None:
    """Only files that a store itself left, in any folder, older than the grace."""
    store.create("log/0", b"x")
    old, new, other = (root / "log" / name for name in (f".tmp-{'a' * 32}", f".tmp-{'b' * 32}", ".tmp-mine"))
    for path, age in ((old, 5_000), (new, 4_000), (other, 1_000)):
        path.write_bytes(b"half")
        os.utime(path, (age, age))
    (root / f".tmp-{'c' * 32}").symlink_to(root / "log" / "0")
    os.utime(old, (1_000, 1_000))
    assert store.list("") == ["log/0"]
    assert store.janitor(600, now=4_500.0) == 1
    assert files(root) == [f".tmp-{'c' * 32}", f"log/.tmp-{'b' * 32}", "log/.tmp-mine", "log/0"]


@pytest.mark.fault("F15")
def test_a_write_whose_temporary_file_was_taken_away_fails_whole(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that slept longer than the grace has written nothing and says so."""
    store.create("log/0", b"x")
    real = os.link

    def swept(*args: Any, **named: Any) -> None:
        assert store.janitor(0, now=2e10) == 1
        real(*args, **named)

    monkeypatch.setattr(os, "link", swept)
    with pytest.raises(StorageUnavailable):
        store.create("log/1", b"y")
    assert files(root) == ["log/0"]


@pytest.mark.fault("F27")
@pytest.mark.parametrize(("number", "error"), OF_WRITES, ids=name_of)
@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_write_that_fails_leaves_nothing(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: type[Exception]
) -> None:
    """At each step the error is named with the path, no part stands under the name, and the next try works."""
    store.create("log/0", b"x")
    with monkeypatch.context() as patch:
        failing(patch, call, number)
        with pytest.raises(error, match="log/1"):
            store.create("log/1", b"y" * 5_000)
    assert files(root) == ["log/0"]
    store.create("log/1", b"y")
    assert store.read("log/1") == b"y"


@pytest.mark.fault("F23")
def test_a_folder_that_cannot_be_synced_leaves_the_outcome_open(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is there now and may be gone after a power cut: unknown, not failed, also for who finds it taken."""
    store.create("log/0", b"x")
    for at, name in ((2, "log/1"), (2, "log/0")):
        with monkeypatch.context() as patch:
            failing(patch, "fsync", errno.EIO, at=at)
            with pytest.raises(CommitUnknown):
                store.create(name, b"y")
    assert files(root) == ["log/0", "log/1"]


def test_a_create_syncs_file_and_folder_and_new_folders_with_their_parents(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File and folder each time; each folder and its parent once for each store object, whoever made it."""
    first, second = LocalStore(root), LocalStore(root)
    calls = failing(monkeypatch, "fsync", errno.EIO, at=-1)
    counts = []
    for store, path in ((first, "a/b/0"), (first, "a/b/1"), (first, "c"), (second, "a/b/2")):
        before = calls()
        store.create(path, b"x")
        counts.append(calls() - before)
    assert counts == [6, 2, 2, 6]


def test_a_file_system_without_links_is_refused(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No link, no exclusive create."""
    failing(monkeypatch, "link", errno.EOPNOTSUPP)
    with pytest.raises(NotExclusive):
        store.create("log/0", b"x")


FILLS = """
import resource, sys
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import StorageFull
store = LocalStore(sys.argv[1])
store.create("log/000000000000", b"x" * 4096)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
try:
    store.create("log/000000000001", b"y" * 100_000)
except StorageFull as error:
    assert "log/000000000001" in str(error) and error.exit_code == 75, error
else:
    raise SystemExit("the write was not stopped")
assert store.list("") == ["log/000000000000"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.create("log/000000000001", b"y" * 100_000)
"""


@pytest.mark.fault("F27")
def test_a_real_limit_on_file_size_leaves_no_half_file(root: Path) -> None:
    """The system stops the write in the middle of the file; once there is room the same write works."""
    done = subprocess.run([sys.executable, "-c", FILLS, str(root)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(root) == ["log/000000000000", "log/000000000001"]
