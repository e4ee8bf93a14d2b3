"""Open sessions that are emitted early, by rows and by batch time (SEMANTICS 3.2), also against a plain-Python model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from session_disk import GAP, BatchOfTimes, EmittedRow, SessionDisk, emitted, plain, rows_at
from session_model import ModelRow, SessionModel

from penstock import agg, count, micros
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.time.clock import END_OF_TIME
from penstock.windows import drop_late

AGGREGATES = {"rows": agg.count(), "all": agg.collect("n", limit=100)}
PLAIN = Session(micros(GAP)).drop_late()
ROW = st.fixed_dictionaries(
    {"k": st.sampled_from(["a", "b", None]), "t": st.integers(-40, 60), "v": st.just(1), "g": st.just(GAP)}
)


@pytest.mark.parametrize(
    ("window", "batches", "expected"),
    [
        (
            PLAIN.emit_on(count(1)),
            [(1, [0], None), (2, [5], None), (3, [20], None), (4, [12], None), (5, [], 31)],
            [
                [(0, 10, 1, "EARLY", 0)],
                [(0, 15, 2, "EARLY", 1)],
                [(20, 30, 1, "EARLY", 0)],
                [(0, 30, 4, "EARLY", 2)],
                [(0, 30, 4, "ON_TIME", 3)],
            ],
        ),
        (
            PLAIN.emit_on(count(2)).discarding(),
            [(1, [0], None), (2, [1, 2], None), (3, [3], None), (4, [], 14)],
            [[], [(0, 12, 3, "EARLY", 0)], [], [(0, 13, 1, "ON_TIME", 1)]],
        ),
        (
            PLAIN.emit_on(count(1)).discarding(),
            [(1, [0], None), (2, [], 11), (3, [50], 11)],
            [[(0, 10, 1, "EARLY", 0)], [], [(50, 60, 1, "EARLY", 0)]],
        ),
        (
            PLAIN.emit_every(micros(5)),
            [(1, [0], None), (4, [1], None), (6, [2], None), (7, [3], None), (10, [], None), (12, [], 14)],
            [
                [],
                [],
                [(0, 12, 3, "EARLY", 0)],
                [],
                [(0, 13, 4, "EARLY", 1)],
                [(0, 13, 4, "ON_TIME", 2)],
            ],
        ),
        (
            PLAIN.emit_every(micros(5)).emit_on(count(3)),
            [(1, [0, 1, 2], None), (5, [], None), (10, [3], None), (11, [4], None), (15, [40], None)],
            [
                [(0, 12, 3, "EARLY", 0)],
                [],
                [(0, 13, 4, "EARLY", 1)],
                [],
                [(0, 14, 5, "EARLY", 2), (40, 50, 1, "EARLY", 0)],
            ],
        ),
        (
            Session(micros(GAP)).update_late(within=micros(100), then=drop_late()).emit_on(count(1)),
            [(1, [0], None), (2, [], 11), (3, [4], 12), (4, [5], 30)],
            [
                [(0, 10, 1, "EARLY", 0)],
                [(0, 10, 1, "ON_TIME", 1)],
                [(0, 14, 2, "EARLY", 2)],
                [(0, 14, 2, "ON_TIME", 3), (0, 15, 3, "LATE", 4)],
            ],
        ),
        (PLAIN.emit_on(count(1)), [(1, [0], 11)], [[]]),
        (PLAIN.emit_on(count(1)), [(1, [2], 11), (2, [], 13)], [[(2, 12, 1, "EARLY", 0)], [(2, 12, 1, "ON_TIME", 1)]]),
    ],
    ids=[
        "by rows, two become one",
        "discarding",
        "discarding with nothing new at the end",
        "by time",
        "by time or rows",
        "with revisions",
        "a late row",
        "closed in the next batch",
    ],
)
def test_worked_early_sessions(
    tmp_path: Path, window: SessionWindow, batches: list[BatchOfTimes], expected: list[list[EmittedRow]]
) -> None:
    """3.2: times, rows and watermarks of batches, and what each emits; the gap is 10."""
    assert emitted(SessionDisk(window, AGGREGATES, tmp_path), batches) == expected


def test_a_pane_by_time_makes_a_batch_due(tmp_path: Path) -> None:
    """1.4, 3.2: a batch without rows runs at the multiple, and then nothing is due by time."""
    disk = SessionDisk(PLAIN.emit_every(micros(5)), AGGREGATES, tmp_path)
    assert disk.batch([rows_at(0)], late=None, close=None, time=2).due_time == 5
    made = disk.batch([[]], late=None, close=None, time=5)
    assert [plain(row) for row in made.closed] == [(0, 10, 1, "EARLY", 0)]
    assert made.due_time is None
    assert made.due == 11


def write(newest: dict[tuple[Any, ...], Any], rows: Sequence[dict[str, Any]]) -> None:
    """Have a table by key and window end take rows; what is taken back stands in it as it was."""
    for row in rows:
        key = row["k"], plain(row)[1]
        if row["_pane"] == "RETRACTED":
            assert newest.pop(key) == row["all"]
        else:
            newest[key] = row["all"]


def of_model(row: ModelRow) -> tuple[Any, ...]:
    """Return what the output has of a row of the model."""
    return row.key, row.start, row.end, [r["n"] for r in row.rows], row.pane, row.revision


def window_of(lateness: int, every: int | None, rows: int | None, *, discarding: bool) -> SessionWindow:
    """Return sessions with these early panes and allowed lateness."""
    window = Session(micros(GAP))
    window = window.update_late(within=micros(lateness), then=drop_late()) if lateness else window.drop_late()
    window = window if every is None else window.emit_every(micros(every))
    window = window if rows is None else window.emit_on(count(rows))
    return window.discarding() if discarding else window


@pytest.mark.parametrize("rescaled", [False, True], ids=["a restart", "other partitions"])
@pytest.mark.parametrize("was", [PLAIN.emit_every(micros(100)), PLAIN.emit_on(count(9))], ids=["time", "rows only"])
def test_another_time_reaches_waiting_sessions_at_once(tmp_path: Path, was: SessionWindow, *, rescaled: bool) -> None:
    """3.2, F51: a restart and other partitions do the same; what waited is due at the next multiple of the new time."""
    disk = SessionDisk(was, AGGREGATES, tmp_path)
    disk.batch([rows_at(0, 30)], late=None, close=None, time=3)
    disk.become(PLAIN.emit_every(micros(5)), AGGREGATES)
    if rescaled:
        assert disk.rescale(2, None, time=3).time == 5
    made = disk.batch([[]], late=None, close=None, time=4)
    assert (made.closed, made.due_time) == ([], 5)
    made = disk.batch([[]], late=None, close=None, time=7)
    assert sorted(map(plain, made.closed)) == [(0, 10, 1, "EARLY", 0), (30, 40, 1, "EARLY", 0)]
    assert made.due_time is None


def test_a_restart_that_gives_up_emit_every_asks_for_no_batch(tmp_path: Path) -> None:
    """1.4: what waited for its time is emitted by rows, or when it closes."""
    disk = SessionDisk(PLAIN.emit_every(micros(5)), AGGREGATES, tmp_path)
    disk.batch([rows_at(0)], late=None, close=None, time=3)
    disk.become(PLAIN.emit_on(count(2)), AGGREGATES)
    made = disk.batch([[]], late=None, close=None, time=6)
    assert (made.closed, made.due_time) == ([], None)
    assert [plain(row) for row in disk.batch([rows_at(1)], late=None, close=None, time=7).closed] == [
        (0, 11, 2, "EARLY", 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 2, 8])
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_early_panes_are_those_of_the_definition(partitions: int, data: st.DataObject) -> None:
    """2.5, 2.6, 3.2: random rows, tasks, cuts, batch times and watermarks; restarts, crashes of attempts, rescaling."""
    lateness = data.draw(st.sampled_from([0, 3, 30]), label="lateness")
    every = data.draw(st.sampled_from([None, 1, 5]), label="every")
    most = data.draw(st.sampled_from([1, 3] if every is None else [None, 1, 3]), label="rows")
    discarding = data.draw(st.booleans(), label="discarding")
    retracts = data.draw(st.booleans(), label="for a table by keys")
    model = SessionModel(
        gap=lambda row: GAP,
        lateness=lateness,
        discarding=discarding,
        every=every,
        early_rows=most,
        retracts=retracts,
    )
    watermark, time, numbered = None, 0, 0
    newest: dict[tuple[Any, ...], Any] = {}
    with tempfile.TemporaryDirectory() as root:
        window = window_of(lateness, every, most, discarding=discarding)
        disk = SessionDisk(window, AGGREGATES, root, partitions=partitions, retracts=retracts)
        disk.crashes = Random(data.draw(st.integers(0, 10**9), label="crashes"))
        for _ in range(data.draw(st.integers(1, 8))):
            tasks = data.draw(st.lists(st.lists(ROW, max_size=5), max_size=2))
            late, time = watermark, time + data.draw(st.integers(1, 7))
            moved = data.draw(st.sampled_from([None, 0, 1, 4, 15, 80]))
            if moved is not None:
                watermark = data.draw(st.integers(-40, 20)) if watermark is None else watermark + moved
            rows = [row for task in tasks for row in task]
            for row in rows:
                row["n"] = row["at"] = numbered
                numbered += 1
            made = disk.batch(tasks, late=late, close=watermark, time=time)
            expected = model.batch(rows, late=late, close=watermark, time=time)
            shown = [(row["k"], *plain(row)[:2], row["all"], row["_pane"], row["_revision"]) for row in made.closed]
            assert sorted(shown, key=repr) == sorted(map(of_model, expected.closed), key=repr)
            if retracts and not discarding:
                write(newest, made.closed)
                of_open = [row for s in model.held if not s.closed for row in s.standing]
                assert {(row.key, row.end): [r["n"] for r in row.rows] for row in of_open}.items() <= newest.items()
            waits = [s.since for s in model.held if s.since is not None and not s.closed]
            if every is None or not waits:
                assert every is not None or made.due_time is None
            else:
                assert made.due_time == min(-(-since // every) * every for since in waits)
            if data.draw(st.integers(0, 4)) == 0:
                disk.rescale(data.draw(st.sampled_from([1, 2, 8])), watermark, time=time)
            if data.draw(st.integers(0, 4)) == 0:
                every = data.draw(st.sampled_from([1, 5, 12] if most is None else [None, 1, 5, 12]), label="now every")
                model.become(every, time)
                disk.become(window_of(lateness, every, most, discarding=discarding), AGGREGATES)
        made = disk.batch([], late=watermark, close=END_OF_TIME, time=time + 1)
        write(newest, made.closed)
        expected = model.batch([], late=watermark, close=END_OF_TIME, time=time + 1)
        assert len(made.closed) == len(expected.closed)
        assert disk.sessions() == []
