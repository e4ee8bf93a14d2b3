"""A look asks for what may be new, and not for what is old; nothing new is passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from examples import examples
from folder_files import BEGIN, FakeFiles, S, lines_of
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from penstock.errors import FolderUnreadable, SourceNotFound
from penstock.sources.file import listings
from penstock.sources.file.listings import Listing
from penstock.sources.file.patterns import Pattern
from penstock.sources.file.systems import LocalFiles


def listing_of(files: FakeFiles, *, settle: int = 0) -> Listing:
    return Listing(files, Pattern("**/*"), settle=settle, wall=lambda: files.now, monotonic=lambda: files.now / S)


def paths(listing: Listing) -> list[str]:
    return sorted(entry.path for entry in listing.look())


def test_a_folder_that_has_not_changed_is_not_listed_again() -> None:
    """Ten folders with ten files each, and one new file: one folder is listed, and one file asked for."""
    files = FakeFiles()
    for n in range(100):
        files.put(f"{n % 10}/{n}")
    listing = listing_of(files)
    assert len(paths(listing)) == 100
    files.now += 3 * S
    assert paths(listing) == []  # once more, for what came within the tick of the first look
    files.now += 3 * S
    files.listings = 0
    assert paths(listing) == []
    assert files.listings == 0
    files.put("3/new")
    assert paths(listing) == ["3/new"]
    assert files.listings == 1


def test_a_name_that_comes_within_a_tick_of_the_clock_is_seen() -> None:
    """The time of the folder is as before: a look that may have missed it is not the last one."""
    files = FakeFiles()
    files.put("a")
    listing = listing_of(files)
    assert paths(listing) == ["a"]
    before = files.folders[""]
    files.put("b")
    files.folders[""] = before  # a coarse clock
    files.now += 3 * S
    assert paths(listing) == ["b"]


def test_of_a_large_folder_only_new_names_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once a minute all, because a name may be that of another file with the same inode."""
    monkeypatch.setattr(listings, "_LARGE", 50)
    files = FakeFiles()
    for n in range(100):
        files.put(f"{n}")
    listing = listing_of(files)
    assert len(paths(listing)) == 100
    files.asked = 0
    files.put("new")
    assert paths(listing) == ["new"]
    assert files.asked == 1
    inode = files.inodes["7"]
    files.put("7", length=9)
    files.inodes["7"] = inode
    assert paths(listing) == []
    files.now += 61 * S
    assert paths(listing) == ["7"]


@settings(max_examples=examples(60))
@given(
    moves=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["put", "empty", "remove", "look", "wait"])), max_size=40
    ),
    hdfs=st.booleans(),
)
def test_each_state_of_a_file_is_yielded_once(moves: list[tuple[str, str]], *, hdfs: bool) -> None:
    """Whatever happens to files between looks, and also where the times of folders are coarse."""
    files = FakeFiles(times_of_folders=hdfs)
    listing, seen = listing_of(files), []
    for name, move in moves:
        path = f"{name}/{name}"
        if move in {"put", "empty"}:
            files.put(path, length=int(move == "put"))
            files.folders[name] = files.folders[name] // S * S
        elif move == "remove" and path in files.files:
            files.remove(path)
        elif move == "wait":
            files.now += 3 * S
        else:
            seen += [(entry.path, entry.modified) for entry in listing.look()]
    for _ in range(3):
        files.now += 3 * S
        seen += [(entry.path, entry.modified) for entry in listing.look()]
    assert len(set(seen)) == len(seen)
    assert {(entry.path, entry.modified) for entry in files.files.values() if entry.length} <= set(seen)


def test_young_and_empty_files_and_those_of_the_future_wait() -> None:
    """Until they have had their content for the settle time; without another change of their folder."""
    files = FakeFiles()
    listing = listing_of(files, settle=5 * S)
    young, empty = files.put("young"), files.put("empty", length=0)
    files.put("ahead", modified=files.now + 3_600 * S)
    with capture_logs() as logs:
        assert paths(listing) == []
        files.now += 4 * S
        assert paths(listing) == []
    assert [(log["event"], log["file"]) for log in logs] == [("source.file_from_future", "fake/ahead")]
    files.now = young.modified + 5 * S
    assert paths(listing) == ["young"]
    files.now += 100 * S
    assert paths(listing) == []
    files.files["empty"] = type(empty)("empty", files.now, 8, files.now)  # written in place
    assert paths(listing) == []
    files.now += 5 * S
    assert paths(listing) == ["empty"]
    files.now += 3_600 * S
    assert paths(listing) == ["ahead"]


def test_local_folders(tmp_path: Path) -> None:
    """Hidden names, links to folders and names that go are passed over; a link to a file is one."""
    for path in ("a", "b/c", "_hidden/d", ".e", "b/f.tmp"):
        lines_of(tmp_path / path, 1)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "nothing").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe")
    listing = Listing(LocalFiles(str(tmp_path)), Pattern("**/*"), settle=0)
    assert paths(listing) == ["a", "b/c", "link"]
    (tmp_path / "b" / "c").unlink()
    lines_of(tmp_path / "new/g", 1, at=3)
    assert paths(listing) == ["new/g"]


def test_a_folder_that_is_not_there_or_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user who runs tests may read all, so the system's answer is made up."""
    with pytest.raises(SourceNotFound, match="gone"):
        paths(Listing(LocalFiles(str(tmp_path / "gone")), Pattern("**/*"), settle=0))

    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(FolderUnreadable, match=f"Permission denied .*{tmp_path}"):
        paths(Listing(LocalFiles(str(tmp_path)), Pattern("**/*"), settle=0))


def test_a_file_that_is_forgotten_is_yielded_again() -> None:
    """As the reader wants it, for one that has changed since."""
    files = FakeFiles(now=BEGIN)
    entry = files.put("a/b")
    listing = listing_of(files)
    assert paths(listing) == ["a/b"]
    listing.forget(entry)
    assert paths(listing) == ["a/b"]
