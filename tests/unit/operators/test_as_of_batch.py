"""An as-of join settles rows once, keeps one right row of a key, and emits by pieces (SEMANTICS 7.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.graph.join_arguments import JoinKind
from penstock.operators import as_of_batch
from penstock.time.clock import END_OF_TIME
from tests.support.as_of_disk import AsOfDisk


def test_of_a_key_only_the_newest_settled_right_row_stays(tmp_path: Path) -> None:
    """However many came within the bound, and until no left row can take it."""
    disk = AsOfDisk(tmp_path, within=1_000)
    for at in range(0, 200, 10):
        disk.batch([], [{"k": 1.0, "t": at + n, "y": n} for n in range(10)], late=at, close=at)
    disk.batch([], [], late=200, close=200)
    assert [(row["_side"], row["y"]) for row in disk.held()] == [("right", 9)]
    disk.batch([{"k": 1.0, "t": 1_199, "x": 0}], [], late=1_199, close=1_199)
    assert disk.batch([], [], late=1_200, close=1_200).pairs == [(1_199, 0, 9)]
    assert disk.held() == []
    assert disk.rows_in("deadlines") == 0


def test_a_key_has_one_entry_however_often_its_row_is_replaced(tmp_path: Path) -> None:
    """An entry that is due while the key stays gets another one in its place."""
    disk = AsOfDisk(tmp_path, within=25)
    for at in range(0, 400, 10):
        disk.batch([], [{"k": 1.0, "t": at, "y": at}], late=at, close=at)
        assert disk.rows_in("deadlines") <= 1
    assert [row["y"] for row in disk.held()] == [390, 380]
    disk.batch([], [], late=1_000, close=1_000)
    assert disk.held() == []


def test_a_jump_of_the_watermark_settles_all_at_once(tmp_path: Path) -> None:
    """To the end of time: every left row takes its own, and nothing is left of the right ones but by the bound."""
    disk = AsOfDisk(tmp_path, within=3)
    left = [{"k": 1.0, "t": t, "x": t} for t in range(0, 50, 5)]
    right = [{"k": 1.0, "t": t, "y": t} for t in range(0, 50, 3)]
    disk.batch(left, right, late=None, close=None)
    made = disk.batch([], [], late=END_OF_TIME, close=END_OF_TIME)
    assert made.pairs == [(t, t, t // 3 * 3) for t in range(0, 50, 5)]
    assert (made.due, disk.held()) == (None, [])


def test_hours_of_empty_batches_write_nothing(tmp_path: Path) -> None:
    """A watermark that moves past no row leaves the state as it is."""
    disk = AsOfDisk(tmp_path, within=1_000)
    disk.batch([{"k": 1.0, "t": 500, "x": 1}], [{"k": 1.0, "t": 400, "y": 1}], late=None, close=None)
    disk.batch([], [], late=450, close=450)
    before = list(disk.refs)
    for close in range(451, 500):
        assert disk.batch([], [], late=close, close=close).due == 501
    assert disk.refs == before


def test_no_row_is_older_than_what_downstream_judges_by(tmp_path: Path) -> None:
    """Where the sources of the join are idle, a step that reads others too may be ahead of it."""
    disk = AsOfDisk(tmp_path, within=5)
    disk.batch([{"k": 1.0, "t": t, "x": t} for t in (3, 8, 9)], [], late=None, close=None)
    made = disk.batch([], [], late=20, close=20, judged=8)
    assert (made.times, [x for _, x, _ in made.pairs]) == ([8, 8, 9], [3, 8, 9])


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_BYTES"])
def test_rows_come_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The pieces are the rows in order, those without a match among them."""
    rows = [{"k": float(n % 3), "t": n, "x": n} for n in range(100)]
    whole = AsOfDisk(tmp_path / "whole", within=1)
    pieces = AsOfDisk(tmp_path / "pieces", within=1)
    made = []
    for disk, most in ((whole, 1_000_000), (pieces, 30)):
        disk.root.mkdir()
        monkeypatch.setattr(as_of_batch, limit, most)
        disk.batch(rows, [{"k": 0.0, "t": n, "y": n} for n in range(0, 100, 2)], late=None, close=None)
        made.append(disk.batch([], [], late=100, close=100).pairs)
    assert made[0] == made[1]
    assert len(made[0]) == 100
    assert {y is None for _, _, y in made[0]} == {True, False}


def test_one_key_with_all_rows_and_many_with_one(tmp_path: Path) -> None:
    """Each left row has its right row, by key."""
    disk = AsOfDisk(tmp_path, within=0, how=JoinKind.INNER, partitions=2, hashes=100)
    keys = [1.0] * 500 + [float(n) for n in range(500)]
    left = [{"k": k, "t": n, "x": n} for n, k in enumerate(keys)]
    disk.batch(left, [{"k": k, "t": n, "y": n} for n, k in enumerate(keys)], late=None, close=None)
    made = disk.batch([], [], late=5_000, close=5_000)
    assert sorted(made.pairs) == [(n, n, n) for n in range(1_000)]
