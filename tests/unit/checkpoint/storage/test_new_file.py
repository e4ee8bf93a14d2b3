"""Files that get their names when they are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.storage.new_file import NewFile, state_errors
from penstock.errors import SegmentExists, StateMissing, StorageFull


def test_a_file_is_seen_when_it_is_published(tmp_path: Path) -> None:
    """Not before, and nothing else is left."""
    with NewFile(tmp_path / "a", "the file") as file:
        file.write(b"so")
        file.write(b"me")
        assert not (tmp_path / "a").exists()
        file.publish()
    assert (file.name, file.size) == ("a", 4)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"some"}


def test_an_unpublished_file_leaves_nothing(tmp_path: Path) -> None:
    """Nobody has seen it."""
    with NewFile(tmp_path / "a", "the file") as file:
        file.write(b"half")
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_is_refused_and_kept(tmp_path: Path) -> None:
    """The error names the file as people know it."""
    (tmp_path / "a").write_bytes(b"first")
    with NewFile(tmp_path / "a", "the file") as file:
        file.write(b"second")
        with pytest.raises(SegmentExists) as raised:
            file.publish()
    assert raised.value.where == "the file"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"first"}


def test_a_folder_that_is_gone_is_missing_state(tmp_path: Path) -> None:
    """A reader may ask again."""
    with pytest.raises(StateMissing) as raised:
        NewFile(tmp_path / "none" / "a", "the file")
    assert raised.value.where == "the file"


def test_a_full_disk_keeps_its_name() -> None:
    """It is not taken for a missing file."""
    with pytest.raises(StorageFull) as raised, state_errors("the file"):
        raise OSError(28, "No space left on device")
    assert raised.value.where == "the file"
