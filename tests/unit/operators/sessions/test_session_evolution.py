"""Changed session windows resume from the state that is there, or are refused (F51)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from session_disk import KEYS, SessionDisk

from penstock import agg, count, micros
from penstock.checkpoint.log.entries import Commit, ManifestRef
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.operators.protocol import MAIN
from penstock.operators.sessions.session_layout import SESSIONS
from penstock.runtime.inspect.state_reader import readers
from penstock.state.full_compaction import live_rows
from penstock.windows import drop_late

GAP = 10
ONCE = Session(micros(GAP)).drop_late()
REVISED = Session(micros(GAP)).update_late(within=micros(100), then=drop_late())


@pytest.mark.parametrize(
    ("now", "refused"),
    [
        (Session(micros(GAP)).update_late(within=micros(300), then=drop_late()), False),
        (Session(micros(GAP)).update_late(within=micros(3), then=drop_late()), False),
        (Session(micros(GAP)).drop_late(), True),
        (REVISED.discarding(), True),
    ],
    ids=["longer", "shorter", "none", "other panes"],
)
def test_another_lateness_is_taken_up(tmp_path: Path, now: SessionWindow, *, refused: bool) -> None:
    """F51: rows that join no held session are late, so a longer lateness loses nothing; without it panes are gone."""
    was, step = (SessionDisk(window, {"rows": agg.count()}, tmp_path).step for window in (REVISED, now))
    evolution = step.evolved(was.layout_name, ["k"], was.tables[MAIN])
    assert bool(evolution.refused) is refused
    assert bool(evolution.accepted) is not refused


def test_early_panes_do_not_come_or_go_with_a_restart(tmp_path: Path) -> None:
    """F51: state without them does not say which rows no pane has had; their number and time may change."""
    windows = (ONCE, ONCE.emit_on(count(1)), ONCE.emit_on(count(2)).emit_every(micros(5)))
    steps = [SessionDisk(window, {"rows": agg.count()}, tmp_path).step for window in windows]
    was = steps[1]
    refused = [bool(step.evolved(was.layout_name, ["k"], was.tables[MAIN]).refused) for step in steps]
    assert refused == [True, False, False]


def rows_at(*pairs: tuple[int, int | None]) -> list[dict[str, object]]:
    """Return rows of one key with these times and values."""
    return [{"k": "a", "t": t, "v": v, "g": GAP, "n": t} for t, v in pairs]


@pytest.mark.parametrize("rescaled", [False, True], ids=["from state", "from a table"])
@pytest.mark.parametrize("window", [ONCE, REVISED], ids=["once", "revised"])
def test_aggregates_come_and_go_while_sessions_are_open(
    tmp_path: Path, window: SessionWindow, *, rescaled: bool
) -> None:
    """docs/compatibility.md: a new aggregate counts from now on, one that is gone and comes back is new."""
    disk = SessionDisk(window, {"n": agg.count(), "total": agg.sum("v"), "low": agg.min("v")}, tmp_path)
    disk.batch([rows_at((0, 4), (5, 6), (500, 1))], late=None, close=None)
    if rescaled:
        disk.rescale(2, None)
    disk.become(window, {"n": agg.count(), "mean": agg.mean("v"), "high": agg.max("v"), "total": agg.sum("v")})
    disk.batch([rows_at((8, 2))], late=None, close=None)
    disk.become(window, {"low": agg.min("v"), "total": agg.sum("v"), "n": agg.count(), "top": agg.first("n")})
    made = disk.batch([rows_at((9, 3))], late=None, close=None)
    (row,) = disk.batch([], late=20, close=20).closed
    assert made.closed == []
    assert {name: row[name] for name in ("n", "total", "low", "top")} == {"n": 4, "total": 15, "low": 3, "top": 9}
    (row,) = disk.batch([], late=600, close=600).closed
    assert {name: row[name] for name in ("n", "total", "low", "top")} == {"n": 1, "total": 1, "low": None, "top": None}


def test_a_mean_of_what_is_kept_is_complete_at_once(tmp_path: Path) -> None:
    """docs/compatibility.md: an aggregate that needs stored partials only goes on from these."""
    disk = SessionDisk(ONCE, {"total": agg.sum("v")}, tmp_path)
    disk.batch([rows_at((0, 4), (5, 6))], late=None, close=None)
    disk.become(ONCE, {"values": agg.count("v")})
    disk.batch([rows_at((8, None), (9, 1))], late=None, close=None)
    assert [row["values"] for row in disk.batch([], late=20, close=20).closed] == [3]


@pytest.mark.parametrize(
    ("aggregates", "accepted", "refused"),
    [
        ({"n": agg.count(), "low": agg.min("v")}, "min(v) is new, and counts the rows that come from now on", ""),
        ({"n": agg.count()}, "sum(v) is gone", ""),
        ({"other": agg.count("v"), "total": agg.sum("v")}, "count(v) is new, and goes on from what is kept", ""),
    ],
    ids=["new", "gone", "derived"],
)
def test_a_comparison_says_what_becomes_of_each_aggregate(
    tmp_path: Path, aggregates: dict[str, Aggregate], accepted: str, refused: str
) -> None:
    """F51: `penstock diff` shows it before a start."""
    was = SessionDisk(ONCE, {"n": agg.count(), "total": agg.sum("v")}, tmp_path).step
    now = SessionDisk(ONCE, aggregates, tmp_path).step
    evolution = now.evolved(was.layout_name, ["k"], was.tables[MAIN])
    assert accepted in "; ".join(evolution.accepted)
    assert refused == "; ".join(evolution.refused)


def test_other_keys_are_refused(tmp_path: Path) -> None:
    """F51: sessions of other keys are not sessions of these."""
    was = SessionDisk(ONCE, {"n": agg.count()}, tmp_path).step
    now = SessionDisk(ONCE, {"n": agg.count()}, tmp_path, keys=pa.schema([("k", pa.int64())])).step
    (refused,) = now.evolved(was.layout_name, ["k"], was.tables[MAIN]).refused
    assert refused == "its keys were [k string] and are [k int64]"
    assert was.evolved("rows", KEYS.names, KEYS).refused


def test_others_read_the_aggregates_as_they_are_now(tmp_path: Path) -> None:
    """docs/compatibility.md: state that is read without the job's code has what the job reads of it."""
    disk = SessionDisk(ONCE, {"n": agg.count(), "low": agg.min("v")}, tmp_path)
    disk.batch([rows_at((0, 4), (500, 6))], late=None, close=None)
    disk.become(ONCE, {"n": agg.count(), "total": agg.sum("v")})
    disk.batch([rows_at((5, 3))], late=None, close=None)
    disk.become(ONCE, {"n": agg.count(), "low": agg.min("v")})
    disk.batch([rows_at((8, 2))], late=None, close=None)
    refs = {"0": ManifestRef(**disk.refs[0])}
    ((reader, _),) = readers(LocalFolder(tmp_path), "s", Commit.model_construct(state={"s": refs}))
    (table,) = live_rows(reader, SESSIONS, disk.step.parts)
    shown = [{name: row[name] for name in disk.step.tables[MAIN].names} for row in table.to_pylist()]
    assert shown == disk.sessions()
    (low,) = {*disk.step.tables[MAIN].names} - {"k", "session_start", "session_end", "_rows"}
    assert sorted((row["_rows"], row[low]) for row in shown if row["_rows"] > 1) == [(3, 2)]
    assert [row[low] for row in shown if row["_rows"] == 1] == [None]
