"""Panes of open sessions that a table by keys has, until others replace them (SEMANTICS 2.6, 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from session_disk import GAP, BatchOfTimes, EmittedRow, SessionDisk, emitted, plain, rows_at

from penstock import agg, count, micros
from penstock.errors import StateError
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.operators.sessions.session_layout import SessionLayout
from penstock.windows import drop_late

AGGREGATES = {"rows": agg.count(), "all": agg.collect("n", limit=100)}
PLAIN = Session(micros(GAP)).drop_late()
PAIRS = PLAIN.emit_on(count(2))


def given(disk: SessionDisk, *times: int) -> list[tuple[str, int]]:
    """Return pane and rows of what a batch of rows at these times emits."""
    return [(row["_pane"], row["rows"]) for row in disk.batch([rows_at(*times)], late=None, close=None).closed]


@pytest.mark.parametrize(
    ("window", "batches", "expected"),
    [
        (
            PLAIN.emit_on(count(1)),
            [(1, [0, 20], None), (2, [5], None), (3, [12], None), (4, [2], None), (5, [], 31)],
            [
                [(0, 10, 1, "EARLY", 0), (20, 30, 1, "EARLY", 0)],
                [(0, 10, 1, "RETRACTED", 0), (0, 15, 2, "EARLY", 1)],
                [(0, 15, 2, "RETRACTED", 1), (20, 30, 1, "RETRACTED", 0), (0, 30, 4, "EARLY", 2)],
                [(0, 30, 5, "EARLY", 3)],
                [(0, 30, 5, "ON_TIME", 4)],
            ],
        ),
        (
            PLAIN.emit_every(micros(10)),
            [(1, [0, 20], None), (10, [], None), (11, [5], None), (12, [12, 31], None), (13, [], None), (20, [], None)],
            [
                [],
                [(0, 10, 1, "EARLY", 0), (20, 30, 1, "EARLY", 0)],
                [],
                [],
                [],
                [
                    (0, 10, 1, "RETRACTED", 0),
                    (20, 30, 1, "RETRACTED", 0),
                    (0, 30, 4, "EARLY", 1),
                    (31, 41, 1, "EARLY", 0),
                ],
            ],
        ),
        (
            PAIRS,
            [(1, [0, 1], None), (2, [8], None), (3, [], 19), (4, [100], 19)],
            [[(0, 11, 2, "EARLY", 0)], [], [(0, 11, 2, "RETRACTED", 0), (0, 18, 3, "ON_TIME", 1)], []],
        ),
        (
            PAIRS,
            [(1, [0, 1], None), (2, [-5], None), (3, [], 12)],
            [[(0, 11, 2, "EARLY", 0)], [], [(0, 11, 2, "RETRACTED", 0), (-5, 11, 3, "ON_TIME", 1)]],
        ),
        (
            Session(micros(GAP)).update_late(within=micros(100), then=drop_late()).emit_on(count(2)),
            [(1, [0, 1], None), (2, [], 12), (3, [8], 13), (4, [9], 14), (5, [40], 14)],
            [
                [(0, 11, 2, "EARLY", 0)],
                [(0, 11, 2, "ON_TIME", 1)],
                [(0, 11, 2, "RETRACTED", 1)],
                [(0, 19, 4, "EARLY", 2)],
                [],
            ],
        ),
    ],
    ids=[
        "by rows, two become one",
        "by time, two become one before it",
        "closed before another pane",
        "a start that moves",
        "closed, opened again",
    ],
)
def test_a_table_by_keys_is_told_which_panes_are_replaced(
    tmp_path: Path, window: SessionWindow, batches: list[BatchOfTimes], expected: list[list[EmittedRow]]
) -> None:
    """2.6, 3.2: a pane with other bounds comes again before the one that replaces it, as it was, and RETRACTED."""
    assert emitted(SessionDisk(window, AGGREGATES, tmp_path, retracts=True), batches) == expected


def test_a_pane_is_taken_back_long_after_its_end_and_is_not_late_downstream(tmp_path: Path) -> None:
    """2.1: it has the event time that downstream judges by, where that is later; a deduplicate would drop it else."""
    disk = SessionDisk(PLAIN.emit_on(count(9)), AGGREGATES, tmp_path, retracts=True)
    disk.batch([rows_at(0, 0, 0, 0, 0, 0, 0, 0, 1)], late=None, close=None)
    for at in range(10, 80, 10):
        disk.batch([rows_at(at)], late=None, close=None)
    made = disk.batch([[]], late=80, close=81, judged=80)
    assert [(*plain(row)[:2], row["_pane"]) for row in made.closed] == [(0, 11, "RETRACTED"), (0, 80, "ON_TIME")]
    assert min(made.times) >= 80


@pytest.mark.parametrize("rescaled", [False, True], ids=["as they are", "in other partitions"])
def test_a_standing_pane_is_a_row_of_the_state(tmp_path: Path, *, rescaled: bool) -> None:
    """10.1: a session with rows since its pane has one more row, which says so; without such rows none is needed."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, retracts=True)
    disk.batch([rows_at(0, 1)], late=None, close=None)
    assert [row["_standing"] for row in disk.sessions()] == [False]
    disk.batch([rows_at(5)], late=None, close=None)
    if rescaled:
        disk.rescale(8)
    shown = [(row["_rows"], row["_revision"], row["_new_rows"], row["_standing"]) for row in disk.sessions()]
    assert sorted(shown) == [(2, 0, 0, True), (3, 0, 1, False)]
    made = disk.batch([rows_at(6)], late=None, close=None)
    assert [(row["_pane"], row["rows"]) for row in made.closed] == [("RETRACTED", 2), ("EARLY", 4)]
    assert [row["_standing"] for row in disk.sessions()] == [False]


def test_without_such_a_table_the_state_has_sessions_only(tmp_path: Path) -> None:
    """Decision 170: a job that appends its panes keeps no row more."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path)
    disk.batch([rows_at(0, 1)], late=None, close=None)
    disk.batch([rows_at(5)], late=None, close=None)
    assert [row["_standing"] for row in disk.sessions()] == [False]


def test_panes_stay_known_while_no_table_needs_them(tmp_path: Path) -> None:
    """F51: a restart may leave the table out and have it again; what is replaced meanwhile is not taken back."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, retracts=True)
    disk.batch([rows_at(0, 1, 100, 101)], late=None, close=None)
    disk.batch([rows_at(5, 105)], late=None, close=None)
    for retracts, time, panes in ((False, 6, ["EARLY"]), (True, 106, ["RETRACTED", "EARLY"])):
        disk.retract(retracts=retracts)
        assert [row["_pane"] for row in disk.batch([rows_at(time)], late=None, close=None).closed] == panes
    assert [row["_standing"] for row in disk.sessions()] == [False, False]


def test_state_without_standing_panes_is_read_as_having_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F51: no table that rows are taken back from had panes of that state; what is emitted from now on is taken back."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, retracts=True)
    with monkeypatch.context() as before:
        before.setattr(SessionLayout, "stands", property(lambda _: False))
        assert given(disk, 0, 1) == [("EARLY", 2)]
        assert given(disk, 5) == []
        assert "_standing" not in disk.sessions()[0]
    evolution = disk.step.evolution(disk.opened())
    assert (evolution.accepted, evolution.refused) == ((), ())
    assert given(disk, 6) == [("EARLY", 4)]
    assert given(disk, 9) == []
    disk.rebuild(disk.shown().drop_columns(["_standing"]).slice(0, 1), 1)
    assert given(disk, 10) == [("EARLY", 6)]
    assert given(disk, 12, 13) == [("RETRACTED", 6), ("EARLY", 8)]


def test_new_aggregates_count_in_a_standing_pane_from_now_on(tmp_path: Path) -> None:
    """F51: a pane is taken back under the same key, with what the state has of the new column; it has none."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, retracts=True)
    given(disk, 0, 1)
    given(disk, 5)
    disk.become(PAIRS, {**AGGREGATES, "total": agg.sum("n")})
    made = disk.batch([rows_at(6)], late=None, close=None)
    assert [(row["_pane"], row["all"], row["total"]) for row in made.closed] == [
        ("RETRACTED", [0, 1], None),
        ("EARLY", [0, 1, 5, 6], 6),
    ]


def test_a_pane_without_its_session_is_refused(tmp_path: Path) -> None:
    """10.1: an edited table has for each standing pane the session in which it lies."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, retracts=True)
    given(disk, 0, 1)
    given(disk, 5)
    rows = disk.shown()
    with pytest.raises(StateError, match="touch"):
        disk.rebuild(rows.filter(rows["_standing"]), 1)


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_standing_panes_of_many_keys_are_their_own(tmp_path: Path, partitions: int) -> None:
    """1.6: with several sessions a key, in any number of partitions, each pane is taken back by its session."""
    disk = SessionDisk(PAIRS, AGGREGATES, tmp_path, partitions=partitions, hashes=3, retracts=True)

    def rows(*times: int) -> list[dict[str, Any]]:
        return [{**row, "k": key} for key in "abcdefg" for row in rows_at(*times)]

    disk.batch([rows(0, 1, 100, 101)], late=None, close=None)
    disk.batch([rows(5, 105)], late=None, close=None)
    made = disk.batch([rows(106)], late=None, close=None)
    assert sorted((row["k"], *plain(row)) for row in made.closed) == sorted(
        (key, *row) for key in "abcdefg" for row in ((100, 111, 2, "RETRACTED", 0), (100, 116, 4, "EARLY", 1))
    )
    made = disk.batch([], late=200, close=200)
    assert sorted({plain(row) for row in made.closed}) == [
        (0, 11, 2, "RETRACTED", 0),
        (0, 15, 3, "ON_TIME", 1),
        (100, 116, 4, "ON_TIME", 2),
    ]
    assert disk.sessions() == []
