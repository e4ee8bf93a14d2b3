"""Sessions that late rows revise, prolong and join: what is emitted, and what is taken back (SEMANTICS 2.6, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from session_disk import SessionDisk

from penstock import agg, micros
from penstock.graph.specs.session_windows import Session
from penstock.windows import late_to

GAP, WITHIN = 10, 100
REVISED = Session(micros(GAP)).update_late(within=micros(WITHIN), then=late_to("late"))
Batch = tuple[Sequence[int], int | None]
Row = tuple[int, int, int, str, int]


def rows_at(*times: int, gap: int = GAP) -> list[dict[str, Any]]:
    """Return rows of one key, numbered by their times."""
    return [{"k": "a", "t": t, "v": 1, "g": gap, "n": t} for t in times]


def emitted(disk: SessionDisk, batches: Sequence[Batch]) -> list[list[Row]]:
    """Return start, end, rows, pane and revision of what each batch emits."""

    def plain(row: dict[str, Any]) -> Row:
        bounds = (round(row[name].timestamp() * 1e6) for name in ("window_start", "window_end"))
        start, end = bounds
        return start, end, row["rows"], row["_pane"], row["_revision"]

    return [
        [plain(row) for row in disk.batch([rows_at(*times)], late=mark, close=mark).closed] for times, mark in batches
    ]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([([0, 8], None), ([4], 50)], [[], [(0, 18, 2, "ON_TIME", 0), (0, 18, 3, "LATE", 1)]]),
        ([([0], None), ([], 11), ([5], 50)], [[], [(0, 10, 1, "ON_TIME", 0)], [(0, 15, 2, "LATE", 1)]]),
        ([([0], None), ([], 11), ([-5], 50)], [[], [(0, 10, 1, "ON_TIME", 0)], [(-5, 10, 2, "LATE", 1)]]),
        (
            [([0, 18], None), ([], 40), ([9], 50)],
            [[], [(0, 10, 1, "ON_TIME", 0), (18, 28, 1, "ON_TIME", 0)], [(0, 28, 3, "LATE", 1)]],
        ),
        (
            [([0, 18], None), ([], 12), ([9], 20), ([], 29)],
            [[], [(0, 10, 1, "ON_TIME", 0)], [], [(0, 28, 3, "ON_TIME", 1)]],
        ),
        (
            [([0], None), ([], 11), ([5], 12), ([6], 17), ([], 40)],
            [[], [(0, 10, 1, "ON_TIME", 0)], [], [(0, 15, 2, "ON_TIME", 1), (0, 16, 3, "LATE", 2)], []],
        ),
        ([([0], None), ([5], 110)], [[], [(0, 10, 1, "ON_TIME", 0), (0, 15, 2, "LATE", 1)]]),
        ([([0], None), ([5], 111)], [[], [(0, 10, 1, "ON_TIME", 0)]]),
        ([([0], None), ([], 111), ([5], 111)], [[], [(0, 10, 1, "ON_TIME", 0)], []]),
        ([([0], None), ([], 11), ([30], 60)], [[], [(0, 10, 1, "ON_TIME", 0)], []]),
    ],
    ids=[
        "a row inside",
        "a row prolongs it",
        "a row before it",
        "two closed ones become one",
        "a closed and an open one become an open one",
        "prolonged into an open one, which closes, then revised",
        "at the end of its lateness",
        "just forgotten",
        "forgotten in a batch without rows",
        "a row that joins none is late whatever the lateness",
    ],
)
def test_worked_revisions(tmp_path: Path, batches: list[Batch], expected: list[list[Row]]) -> None:
    """2.5, 2.6, 3: rows and the watermark of each batch, and what it emits; gap 10, lateness 100."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path)
    assert emitted(disk, batches) == expected


def test_a_sink_by_keys_is_told_what_was_replaced(tmp_path: Path) -> None:
    """2.6: a row that another window replaces comes again, before that one, as it was and with the pane RETRACTED."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path, retracts=True)
    assert emitted(disk, [([0, 18, 40], None), ([], 60), ([9], 70), ([12], 80), ([45], 90)]) == [
        [],
        [(0, 10, 1, "ON_TIME", 0), (18, 28, 1, "ON_TIME", 0), (40, 50, 1, "ON_TIME", 0)],
        [(0, 10, 1, "RETRACTED", 0), (18, 28, 1, "RETRACTED", 0), (0, 28, 3, "LATE", 1)],
        [(0, 28, 4, "LATE", 2)],
        [(40, 50, 1, "RETRACTED", 0), (40, 55, 2, "LATE", 1)],
    ]


def test_a_session_that_opens_again_is_taken_back_at_once(tmp_path: Path) -> None:
    """2.6: it comes again when the session that it is part of closes."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path, retracts=True)
    assert emitted(disk, [([0], None), ([], 11), ([9], 12), ([], 20)]) == [
        [],
        [(0, 10, 1, "ON_TIME", 0)],
        [(0, 10, 1, "RETRACTED", 0)],
        [(0, 19, 2, "ON_TIME", 1)],
    ]


@pytest.mark.parametrize("retracts", [False, True], ids=["as it is", "for a sink by keys"])
def test_discarding_panes_of_a_session_add_up(tmp_path: Path, *, retracts: bool) -> None:
    """2.6, 3.2: each pane has the rows since the panes of all sessions in it; nothing is taken back."""
    disk = SessionDisk(REVISED.discarding(), {"rows": agg.count()}, tmp_path, retracts=retracts)
    assert emitted(disk, [([0, 18], None), ([], 12), ([9], 20), ([], 29), ([3, 4], 30)]) == [
        [],
        [(0, 10, 1, "ON_TIME", 0)],
        [],
        [(0, 28, 2, "ON_TIME", 1)],
        [(0, 28, 2, "LATE", 2)],
    ]


def test_late_rows_go_on_where_no_session_is_held(tmp_path: Path) -> None:
    """2.5, 2.6: a row that joins no session still held, and whose own has closed, goes where `then` says."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path)
    disk.batch([rows_at(0)], late=None, close=None)
    made = disk.batch([rows_at(5, 30)], late=60, close=60)
    assert (made.late, made.counts["late"], made.counts["counted"]) == ([30], 1, 1)
    made = disk.batch([rows_at(6, 55)], late=116, close=116)
    assert (made.late, made.counts["counted"]) == ([6, 55], 0)
    assert disk.sessions() == []


def test_a_closed_session_asks_for_no_batch(tmp_path: Path) -> None:
    """1.4: it is forgotten by the next batch that runs, and state is bounded by the watermark (7.6)."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path)
    disk.batch([rows_at(0)], late=None, close=None)
    made = disk.batch([[]], late=50, close=50)
    assert (made.due, len(disk.sessions())) == (None, 1)
    disk.batch([[]], late=110, close=110)
    assert len(disk.sessions()) == 1
    disk.batch([[]], late=111, close=111)
    assert disk.sessions() == []


def test_revisions_keep_the_order_that_a_table_by_keys_needs(tmp_path: Path) -> None:
    """1.6, 2.1: of one key and end the newest comes last, also where the closing was moved behind a watermark."""
    disk = SessionDisk(REVISED, {"rows": agg.count()}, tmp_path, retracts=True)
    disk.batch([rows_at(0)], late=None, close=None)
    made = disk.batch([rows_at(-5)], late=20, close=30, judged=20)
    assert [(r["_pane"], r["rows"]) for r in made.closed] == [("ON_TIME", 1), ("RETRACTED", 1), ("LATE", 2)]
    assert made.times == [20, 9, 9]
