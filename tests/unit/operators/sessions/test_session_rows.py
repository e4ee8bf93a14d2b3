"""The map side of sessions: gaps, quarantine, and what goes through the shuffle (SEMANTICS 3)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from session_disk import KEYS, VISIBLE, SessionDisk

from penstock import agg, micros
from penstock.errors import BadExpression, JobError
from penstock.graph.specs.session_windows import Session, SessionWindow, SessionWindows
from penstock.operators.protocol import BoundSide, Emit, Send, StepFacts, Tally
from penstock.operators.sessions.session_rows import SessionSide

ROWS = [
    {"k": key, "t": t, "v": 1, "g": g, "n": n}
    for n, (key, t, g) in enumerate([("a", 0, 5), ("a", 5, 2), ("b", 0, None), ("b", 1, 0), ("b", 2, -3), ("b", 9, 1)])
]
NOW = StepFacts(batch=0, time=0, watermark=None, read=frozenset({"late", "quarantine"}))


def pieces(window: SessionWindow, root, late: int | None = None) -> list[Send | Emit | Tally]:
    """Return what the map side yields for the rows of one task."""
    disk = SessionDisk(window, {"n": agg.count()}, root)
    facts = StepFacts(batch=0, time=0, watermark=late, late=late, read=NOW.read)
    return list(disk.side.prepare(disk.branch(ROWS), facts))


def test_a_task_sends_one_row_a_session(tmp_path):
    """DESIGN 6: rows are merged where they are made; a row without a gap goes to quarantine, with why."""
    tally, aside, sent = pieces(Session("g").drop_late(), tmp_path)
    assert tally.counts == {"rows": 6, "in_no_window": 0, "quarantined": 3, "sent": 3}
    assert aside.rows["n"].to_pylist() == [2, 3, 4]
    assert set(aside.rows["_error"].to_pylist()) == {"the gap of 's', g, is null, not above 0, or longer than time"}
    sessions = zip(*(sent.rows[name].to_pylist() for name in ("k", "_rows", "_penstock_end")), strict=True)
    assert sorted(sessions) == [("a", 2, 7), ("b", 1, 10)]


def test_rows_that_may_be_late_are_sent_whole_where_a_stream_takes_them(tmp_path):
    """2.6: a late row keeps its columns; one that is dropped needs none."""
    sent = pieces(Session(micros(4)).late_to("late"), tmp_path, late=9)[-1].rows
    assert sorted(sent["_penstock_row_n"].to_pylist(), key=repr) == [0, 2, 3, 4, None, None]
    folder = tmp_path / "dropped"
    folder.mkdir()
    assert pieces(Session(micros(4)).drop_late(), folder, late=9)[-1].rows.num_rows == 4


def side(window: SessionWindow, kind: pa.DataType, visible: pa.Schema = VISIBLE) -> SessionSide:
    """Return the map side of sessions whose gap has a type."""
    bound = BoundSide(name="s", side=0, keys=KEYS, columns=("k",), visible=visible, inputs={"g": kind})
    return SessionSide.of(SessionWindows(window=window, aggregates={"n": agg.count()}), bound)


def test_a_gap_is_an_interval_or_microseconds():
    """API: anything else has no unit, and is refused when the job is bound."""
    window = Session("g").drop_late()
    assert side(window, pa.duration("us")).window == side(window, pa.int32()).window
    with pytest.raises(BadExpression, match="the gap of window 's' is g, a string"):
        side(window, pa.string())


@pytest.mark.parametrize("name", ["_error", "_watermark", "_event_time"])
def test_columns_of_side_streams_are_taken(name):
    """A column that a side stream adds cannot be one of the user's."""
    with pytest.raises(JobError, match=f"column '{name}' has the name"):
        side(Session("g").late_to("late"), pa.int64(), pa.schema([*VISIBLE, (name, pa.string())]))
