"""Each file of a folder is read once, whatever its time, or is named as late (SEMANTICS 1.2, 1.5, 9.1)."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from folder_files import BEGIN, FakeFiles, Numbers, S, fake_reader, lines_of, read_all, reader_of
from hypothesis import given, settings
from hypothesis import strategies as st
from source_reading import end_of_batch, newest
from structlog.testing import capture_logs

from penstock.errors import ConfigError, FileChanged, FileVanished, SourceNotFound
from penstock.graph.policies import Afterwards
from penstock.sources import bytes_, files
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import Position
from penstock.sources.file import positions
from penstock.sources.file.reader import FilesReader
from penstock.sources.file.systems import LocalFiles

MINUTE = 60 * S
MOVES = ("put", "put", "put", "put in order", "wait", "tick", "remove", "look", "batch", "batch", "crash", "restart")


class Follower:
    """Read a fake folder as drivers do, and keep account of it."""

    def __init__(self, seed: int, *, grace: int, **more: Any) -> None:
        self.rng = random.Random(seed)
        self.folder = FakeFiles(times_of_folders=seed % 2 == 0)
        self.grace, self.more = grace, more
        self.position: Position | None = None
        self.read: Counter[str] = Counter()
        self.put: dict[str, int] = {}
        self.owed: set[str] = set()
        self.high = 0
        self.reader = self.started()

    def started(self) -> FilesReader:
        return fake_reader(self.folder, grace=self.grace, **self.more)

    def step(self, move: str) -> None:
        """Do one thing that happens to a folder or to its driver."""
        rng, folder = self.rng, self.folder
        if move.startswith("put"):
            back = 0 if move == "put in order" else rng.choice([0, 0, 1, S, 30 * S, MINUTE, 90 * S, 10_000 * S])
            path = f"{rng.choice(['', 'a/', 'a/b/', 'c/'])}{rng.choice('xyz')}-{len(self.put)}"
            modified = folder.now // S * S - back  # some have the same
            folder.put(path, modified=modified)
            self.put[path] = modified
            if modified >= self.high - self.grace:
                self.owed.add(path)
        elif move in {"wait", "tick"}:
            folder.now += {"wait": rng.randrange(1, 2 * MINUTE), "tick": 4_000_000}[move]
        elif move == "remove" and folder.files:
            gone = rng.choice(sorted(folder.files))
            folder.remove(gone)
            self.owed.discard(gone)
        elif move == "look":
            self.reader.backlog(self.position)
        elif move == "batch":
            self.batch()
        elif move == "crash":  # the batch is planned, and its driver dies before that is durable
            end = end_of_batch(self.reader, self.position)
            if end != self.position:
                self.reader.span(self.position, end)
            self.reader = self.started()
        elif move == "restart":
            self.reader = self.started()

    def batch(self) -> bool:
        """Read a batch, and return whether there was one."""
        end = end_of_batch(self.reader, self.position, ReadLimit(rows=self.rng.choice([None, 1, 2])))
        if end == self.position:
            return False
        span = self.reader.span(self.position, json.loads(json.dumps(end)))
        for path, modified, _ in span["files"]:
            assert self.put[path] == modified
            self.read[path] += 1
            self.high = max(self.high, modified)
        assert len(span["files"]) == end["files"] - (self.position or {"files": 0})["files"]
        self.position = json.loads(json.dumps(end))
        return bool(span["files"])


@pytest.mark.parametrize("most", [2, 2_000])
def test_each_file_is_read_once_or_named_as_late(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Creation in any order, equal times, restarts, batches cut anywhere: nothing twice, and nothing lost in silence.

    A file that is no older than `grace` behind the newest one read is read for certain, where all of those have room in
    the position.
    """
    monkeypatch.setattr(positions, "MOST", most)

    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.integers(0, 2**32),
        st.lists(st.sampled_from(MOVES), min_size=10, max_size=120),
        st.sampled_from([0, S, MINUTE]),
    )
    def law(seed: int, moves: list[str], grace: int) -> None:
        with capture_logs() as logs:
            follower = Follower(seed, grace=grace)
            for move in moves:
                follower.step(move)
            follower.folder.now += 2 * MINUTE
            while follower.batch():
                pass
            named = {log["file"].removeprefix("fake/") for log in logs if log["event"] == "source.file_late"}
        assert set(follower.read.values()) <= {1}
        unread = {path for path in follower.folder.files if not follower.read[path]}
        assert unread <= named
        assert not named & set(follower.read)
        if most > 2:
            assert not unread & follower.owed
        assert follower.position is not None
        assert len(positions.FilePosition.of(follower.position).read) <= most

    law()


def test_a_position_does_not_grow_with_the_files_that_were_read() -> None:
    """A thousand files and two thousand make the same: it has those of the last minute, and of the last batch."""
    folder = FakeFiles()
    reader = fake_reader(folder, at_most=files(10))
    position: Position | None = None
    sizes: list[int] = []
    for n in range(2_000):
        folder.now += S
        folder.put(f"day={n // 100}/part-{n:05}")
        if n % 10 == 9:
            before, position = position, end_of_batch(reader, position)
            reader.span(before, position)
            sizes.append(len(json.dumps(position)))
    assert max(sizes[100:]) < 1.1 * max(sizes[10:20])
    assert position is not None
    assert position["files"] == 2_000


def test_files_of_one_time_are_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an archive that was unpacked has them; the position has no more than MOST of them."""
    monkeypatch.setattr(positions, "MOST", 5)
    folder = FakeFiles()
    for n in random.Random(1).sample(range(100), 100):
        folder.put(f"f-{n}", modified=BEGIN)
    position, read = None, []
    while True:
        reader = fake_reader(folder, at_most=files(7))
        end = end_of_batch(reader, position)
        if end == position:
            break
        read += [path for path, *_ in reader.span(position, end)["files"]]
        position = end
        assert len(positions.FilePosition.of(position).read) <= 5
    assert read == sorted(f"f-{n}" for n in range(100))


def test_a_file_that_waits_is_read_however_far_the_floor_rises_meanwhile() -> None:
    """It appeared in time behind files that are newer, and its driver dies before its turn."""
    folder = FakeFiles()
    folder.put("a-1", modified=BEGIN)
    for n in range(2, 6):
        folder.put(f"a-{n}", modified=BEGIN + n * 100 * S)
    folder.now += 1_000 * S
    reader = fake_reader(folder, at_most=files(1), grace=60 * S)
    position = end_of_batch(reader, None)
    reader.span(None, position)
    folder.put("late-6", modified=BEGIN - 50 * S)
    before, position = position, end_of_batch(reader, position)
    assert reader.span(before, position)["files"][0][0] == "a-2"
    assert position["floor"] == [BEGIN + 140 * S, ""]
    assert read_all(fake_reader(folder, at_most=files(1), grace=60 * S), position)[0] == [6, 3, 4, 5]


def test_a_question_between_plan_and_commit_changes_no_plan(tmp_path: Path) -> None:
    """`penstock run` asks for what is left, to show it; a file of the batch that is being read has gone meanwhile."""
    for n in range(4):
        lines_of(tmp_path / f"{n}", n, at=n)
    reader = reader_of(tmp_path, at_most=files(2))
    end = end_of_batch(reader, None)
    reader.span(None, end)
    (tmp_path / "1").unlink()
    assert reader.backlog(None)["0"].latest == 3
    assert read_all(reader, end)[0] == [2, 3]


def test_a_bounded_run_reads_the_files_that_were_there(tmp_path: Path) -> None:
    """SEMANTICS 1.5: a file that appears meanwhile with an older time waits for the next run."""
    for n in range(6):
        lines_of(tmp_path / f"{n}", n, at=100 + n)
    reader = reader_of(tmp_path, at_most=files(2))
    target, position, seen = newest(reader), None, []
    for turn in range(3):
        lines_of(tmp_path / f"later-{turn}", 100 + turn, at=turn)
        end = end_of_batch(reader, position, target=target)
        seen += [path for path, *_ in reader.span(position, end)["files"]]
        position = end
    assert seen == [f"{n}" for n in range(6)]
    assert end_of_batch(reader, position, target=target) == position
    assert read_all(reader, position)[0] == [100, 101, 102]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_too_late_is_named_and_counted(tmp_path: Path, *, restarted: bool) -> None:
    """Its time is more than `grace` before that of the newest file read: also where no driver was there."""
    lines_of(tmp_path / "a", 1, at=10_000)
    reader = reader_of(tmp_path)
    _, position = read_all(reader)
    lines_of(tmp_path / "in time", 2, at=7_000)
    lines_of(tmp_path / "late", 3, at=6_000)
    with capture_logs() as logs:
        if restarted:
            reader = reader_of(tmp_path)
        numbers, position = read_all(reader, position)
    assert numbers == [2]
    assert [log["file"] for log in logs if log["event"] == "source.file_late"] == [f"{tmp_path}/late"]
    assert position is not None
    assert position["late"] == 1
    with capture_logs() as logs:
        assert read_all(reader_of(tmp_path), position)[0] == []


def test_a_file_that_was_written_again_is_named_and_not_read_again(tmp_path: Path) -> None:
    """A path is read once, for as long as it is remembered; also after a restart."""
    lines_of(tmp_path / "a", 1, at=10)
    lines_of(tmp_path / "b", 2, at=11)
    reader = reader_of(tmp_path)
    _, position = read_all(reader)
    lines_of(tmp_path / "a", 1, 5, at=20)
    lines_of(tmp_path / "c", 3, at=12)
    with capture_logs() as logs:
        numbers, position = read_all(reader, position)
        assert numbers == [3]
        assert position is not None
        assert position["rewritten"] == 1
        lines_of(tmp_path / "d", 4, at=21)
        assert read_all(reader_of(tmp_path), position)[0] == [4]
    assert [log["file"] for log in logs if log["event"] == "source.file_rewritten"] == [f"{tmp_path}/a"]


def test_bytes_bound_a_batch_and_one_file_is_always_read(tmp_path: Path) -> None:
    """at_most: a file above the bound is a batch of its own."""
    for n, length in enumerate([10, 10, 50, 10]):
        lines_of(tmp_path / f"{n}", "1" * (length - 1), at=n)
    reader, position, batches = reader_of(tmp_path, at_most=bytes_(25)), None, []
    while (end := end_of_batch(reader, position)) != position:
        batches.append([path for path, *_ in reader.span(position, end)["files"]])
        position = end
    assert batches == [["0", "1"], ["2"], ["3"]]
    for wrong in (files, bytes_):
        with pytest.raises(ConfigError, match="reads nothing"):
            wrong(0)


@pytest.mark.fault("F39")
def test_a_planned_file_that_changed_or_vanished_is_named(tmp_path: Path) -> None:
    """SEMANTICS 9.1: at the start of the next driver, before a task reads it."""
    for n in range(2):
        lines_of(tmp_path / f"{n}", n, at=n)
    reader = reader_of(tmp_path)
    span = reader.span(None, end_of_batch(reader, None))
    reader.verify(span)
    lines_of(tmp_path / "0", 7, 7, at=9)
    with pytest.raises(FileChanged, match=f"had 2 bytes of {BEGIN // S}.000 when .* and has 4 .*{tmp_path}/0"):
        reader_of(tmp_path).verify(span)
    (tmp_path / "0").unlink()
    with pytest.raises(FileVanished, match=f"{tmp_path}/0"):
        reader_of(tmp_path).verify(span)


def test_a_file_that_changes_before_it_is_planned_is_planned_as_it_is_then(tmp_path: Path) -> None:
    """The files of a batch are looked at once more when it is planned."""
    for n in range(3):
        lines_of(tmp_path / f"{n}", n, at=n)
    reader = reader_of(tmp_path, at_most=files(1))
    position = end_of_batch(reader, None)
    reader.span(None, position)
    (tmp_path / "1").unlink()
    lines_of(tmp_path / "2", 22, at=5)
    assert read_all(reader, position)[0] == [22]


def test_a_folder_that_goes_is_named(tmp_path: Path) -> None:
    """Also while the job runs."""
    reader = reader_of(tmp_path)
    reader.listing.files = LocalFiles(str(tmp_path / "gone"))
    with pytest.raises(SourceNotFound, match="gone"):
        reader.backlog(None)


# --- afterwards ------------------------------------------------------------------------------


@pytest.mark.parametrize("afterwards", [Afterwards.MOVE, Afterwards.DELETE])
def test_files_go_when_their_batch_is_acknowledged(tmp_path: Path, afterwards: Afterwards) -> None:
    """And not before; a crash before that leaves them for the next acknowledgement (crash between commit and ack)."""
    source, done = tmp_path / "in", tmp_path / "done"
    more = {"afterwards": afterwards, "at_most": files(1)}
    more |= {"move_to": done} if afterwards is Afterwards.MOVE else {}
    for n in range(4):
        lines_of(source / "day=1" / f"{n}", n, at=n)

    def left() -> list[str]:
        return sorted(path.name for path in source.rglob("*") if path.is_file())

    reader = reader_of(source, **more)
    first = end_of_batch(reader, None)
    reader.span(None, first)
    assert left() == ["0", "1", "2", "3"]
    reader.ack(first)
    reader.ack(first)
    assert left() == ["1", "2", "3"]
    second = end_of_batch(reader, first)
    reader.span(first, second)
    reader = reader_of(source, **more)  # the driver died before it acknowledged
    third = end_of_batch(reader, second)
    reader.span(second, third)
    reader = reader_of(source, **more)  # and again
    fourth = end_of_batch(reader, third)
    reader.span(third, fourth)
    assert left() == ["1", "2", "3"]
    reader.ack(fourth)
    assert left() == []
    moved = sorted(path.relative_to(done).as_posix() for path in done.rglob("*") if path.is_file())
    assert moved == ([f"day=1/{n}" for n in range(4)] if afterwards is Afterwards.MOVE else [])
    last = end_of_batch(reader, fourth)
    assert last == fourth


def test_a_file_that_changed_after_it_was_read_is_left(tmp_path: Path) -> None:
    """Nothing that was not read is deleted."""
    lines_of(tmp_path / "a", 1)
    reader = reader_of(tmp_path, afterwards=Afterwards.DELETE)
    end = end_of_batch(reader, None)
    reader.span(None, end)
    lines_of(tmp_path / "a", 1, 2, at=5)
    with capture_logs() as logs:
        reader.ack(end)
    assert (tmp_path / "a").exists()
    assert [log["file"] for log in logs] == [f"{tmp_path}/a"]


def test_a_file_that_is_to_stay_by_now_is_left(tmp_path: Path) -> None:
    """A start acknowledges what the driver before has committed, which may have been told to delete it."""
    lines_of(tmp_path / "a", 1)
    reader = reader_of(tmp_path, afterwards=Afterwards.DELETE)
    end = end_of_batch(reader, None)
    reader.span(None, end)
    reader_of(tmp_path).ack(end)
    assert (tmp_path / "a").exists()
    reader.ack(end)
    assert not (tmp_path / "a").exists()


def test_no_moved_file_replaces_another(tmp_path: Path) -> None:
    """A name that comes again gets its time behind it; the move that a crash left half done is finished."""
    source, done = tmp_path / "in", tmp_path / "done"
    lines_of(done / "a", 0)
    lines_of(source / "a", 1, at=1)
    reader = reader_of(source, afterwards=Afterwards.MOVE, move_to=done)
    end = end_of_batch(reader, None)
    reader.span(None, end)
    (done / f"a-{BEGIN + S}").hardlink_to(source / "a")
    reader.ack(end)
    assert sorted(path.name for path in done.iterdir()) == ["a", f"a-{BEGIN + S}"]
    assert (done / "a").read_text() == "0\n"
    assert not (source / "a").exists()


def test_the_format_of_numbers_has_no_rows_of_its_own() -> None:
    """What these tests read with: a row a line, an error for what is no number."""
    decoded = Numbers().decode([b"1", b"x", None], Numbers().columns())
    assert decoded.rows["k"].to_pylist() == [1, None, None]
