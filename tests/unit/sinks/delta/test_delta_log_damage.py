"""A damaged log of a Delta table is named with a way out, and never read as a table with fewer rows (F13, 9.5)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import Upserts
from deltalake import DeltaTable, write_deltalake
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EXIT_PERSON, SinkRefused
from penstock.sinks import Delta
from penstock.sinks.base import Needed
from penstock.sinks.delta.log_entry import entry_name
from penstock.sinks.delta.table import load

pytestmark = pytest.mark.fault("F13")

VERSIONS, FOLDED = 6, 3
CHECKPOINT, HINT = f"{FOLDED:020}.checkpoint.parquet", "_last_checkpoint"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table whose version N has added the row N, with a checkpoint of its log in the middle."""
    path = tmp_path_factory.mktemp("table")
    for number in range(VERSIONS):
        write_deltalake(str(path), pa.table({"k": [number]}), mode="append")
        if number == FOLDED:
            DeltaTable(str(path)).create_checkpoint()
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """Return a table of its own."""
    return shutil.copytree(whole, tmp_path / "table")


def rows(path: Path) -> list[int]:
    """Return the rows of a table as a sink loads it."""
    table = load(path)
    assert table is not None
    return sorted(table.to_pyarrow_table()["k"].to_pylist())


def emptied(file: Path) -> None:
    """Leave nothing of a file."""
    file.write_bytes(b"")


def halved(file: Path) -> None:
    """Leave the first half of a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def folder(file: Path) -> None:
    """Put a folder in the place of a file."""
    file.unlink()
    file.mkdir()


DAMAGES: list[Callable[[Path], None]] = [emptied, halved, folder, Path.unlink]


def refused(path: Path, match: str) -> None:
    """Expect a table to be refused, for a person."""
    with pytest.raises(SinkRefused, match=match) as caught:
        load(path)
    assert (caught.value.exit_code, caught.value.where) == (EXIT_PERSON, str(path))


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_a_table_shows_whole_versions_or_is_refused(whole: Path, data: st.DataObject) -> None:
    """9.5: whatever two files of the log are damaged, rows of a version in the middle are never missing."""
    with TemporaryDirectory() as made:
        path = shutil.copytree(whole, Path(made) / "table")
        files = sorted((path / "_delta_log").iterdir())
        for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
            data.draw(st.sampled_from(DAMAGES))(file)
        try:
            shown = rows(path)
        except SinkRefused:
            return
        assert shown == list(range(len(shown))), "the newest version, or an older one, which its sink is behind"


@pytest.mark.parametrize("damage", [emptied, halved, folder])
def test_without_an_unreadable_checkpoint_the_entries_say_the_same(path: Path, damage: Callable[[Path], None]) -> None:
    """Each start failed anew with an error of delta-rs, and a supervisor tried for ever."""
    log = path / "_delta_log"
    damage(log / CHECKPOINT)
    refused(path, f"{CHECKPOINT} .* cannot be read.* Or move it and {HINT} out of the log: older files say the same")
    for name in (CHECKPOINT, HINT):
        (log / name).rename(path.parent / name)
    assert rows(path) == list(range(VERSIONS))


def test_a_checkpoint_whose_entries_were_cleaned_comes_from_a_copy(path: Path) -> None:
    """No other file has what it says, and the error does not tell to move it away."""
    log = path / "_delta_log"
    copy = (log / CHECKPOINT).read_bytes()
    halved(log / CHECKPOINT)
    for version in range(FOLDED):
        (log / entry_name(version)).unlink()
    refused(path, "Put it back from a copy. No other file says the same")
    (log / CHECKPOINT).write_bytes(copy)
    assert rows(path) == list(range(VERSIONS))


def test_a_checkpoint_that_is_gone_is_not_looked_for_without_its_hint(path: Path) -> None:
    """The entries are all there."""
    (path / "_delta_log" / CHECKPOINT).unlink()
    refused(path, f"{HINT} .* names a checkpoint of version {FOLDED}, and there is none")
    (path / "_delta_log" / HINT).unlink()
    assert rows(path) == list(range(VERSIONS))


def test_a_missing_entry_ends_a_log_without_the_later_ones(path: Path) -> None:
    """What the table then shows its sink compares with the job's log, as ever."""
    log = path / "_delta_log"
    (log / entry_name(FOLDED + 1)).unlink()
    refused(path, f"{entry_name(FOLDED + 1)} is missing in the table's log.* move all files of the same and later")
    for version in range(FOLDED + 1, VERSIONS):
        (log / entry_name(version)).unlink(missing_ok=True)
    assert rows(path) == list(range(FOLDED + 1))


@pytest.mark.parametrize("parts", [2, 3])
def test_a_checkpoint_that_lacks_a_part_hides_no_emptied_entry(path: Path, parts: int) -> None:
    """Readers pass over it and read the entries before it, so an empty one took its rows away in silence."""
    log, newest = path / "_delta_log", VERSIONS - 1
    (log / CHECKPOINT).rename(log / f"{newest:020}.checkpoint.{1:010}.{parts:010}.parquet")
    (log / HINT).unlink()
    assert rows(path) == list(range(VERSIONS))
    emptied(log / entry_name(FOLDED))
    refused(path, f"{entry_name(FOLDED)} of the table's log is torn or empty")


def test_a_checkpoint_in_parts_needs_no_older_entry(path: Path) -> None:
    """All parts are there, and an emptied entry from before it stops nobody."""
    log = path / "_delta_log"
    whole = pq.read_table(log / CHECKPOINT)
    for number, piece in enumerate((whole.slice(0, 2), whole.slice(2)), 1):
        pq.write_table(piece, log / f"{FOLDED:020}.checkpoint.{number:010}.{2:010}.parquet")
    for name in (CHECKPOINT, HINT):
        (log / name).unlink()
    emptied(log / entry_name(FOLDED - 1))
    assert rows(path) == list(range(VERSIONS))


def appended(table: Upserts) -> None:
    """Have a batch of two files appended."""
    sink = Delta(table.path)
    table.staging = table.path
    sink.open(sink.staging(table.path), None).publish(table.batch(1, (5, "b", 5), (6, "b", 6), files=2))


def merged(table: Upserts) -> None:
    """Have a batch merged that rewrites a file."""
    table.publisher().publish(table.batch(1, (1, "b", 5), (6, "b", 6)))


def joined(table: Upserts) -> None:
    """Have small files joined."""
    table.publisher().publish(table.batch(1, (7, "a", 7)))
    table.sink.maintain(Needed(), now=time.time() + 100)


@pytest.mark.parametrize("commit", [appended, merged, joined], ids=lambda commit: commit.__name__)
def test_an_entry_of_ours_that_lost_its_last_lines_is_named(commit: Callable[[Upserts], None], tmp_path: Path) -> None:
    """9.5: each line is whole, so delta-rs read a version without some files, and the batch as published."""
    table = Upserts(tmp_path).made()
    table.publisher().publish(table.batch(0, (1, "a", 1), (2, "a", 2)))
    commit(table)
    shown, newest = table.shown(), DeltaTable(str(table.path)).version()
    entry = table.path / "_delta_log" / entry_name(newest)
    lines = entry.read_bytes().splitlines(keepends=True)
    assert len(lines) > 3
    for kept in range(1, len(lines)):
        entry.write_bytes(b"".join(lines[:kept]))
        refused(table.path, f"{entry.name} of the table's log is torn or empty.* move all files of the same and later")
    entry.write_bytes(b"".join(lines))
    assert load(table.path) is not None
    assert table.shown() == shown


@pytest.mark.parametrize("commit", [appended, merged], ids=lambda commit: commit.__name__)
def test_a_flipped_byte_in_the_first_line_of_our_entry_is_named_or_harmless(
    commit: Callable[[Upserts], None], tmp_path: Path
) -> None:
    """9.6: readers of a table look at no commitInfo, so only the comparison of files meets the damage."""
    table = Upserts(tmp_path).made()
    table.publisher().publish(table.batch(0, (1, "a", 1), (2, "a", 2)))
    commit(table)
    shown, newest = table.shown(), DeltaTable(str(table.path)).version()
    entry = table.path / "_delta_log" / entry_name(newest)
    whole = entry.read_bytes()
    first, refusals = whole.index(b"\n"), []
    for at in range(first):
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            assert load(table.path) is not None
            assert table.shown() == shown
        except SinkRefused as why:
            refusals.append(str(why))
    assert len(refusals) > first // 4
    assert all(f"{entry.name} of the table's log is torn or empty" in refusal for refusal in refusals)
