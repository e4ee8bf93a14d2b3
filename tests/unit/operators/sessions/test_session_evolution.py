"""Changed session windows resume from the state that is there, or are refused (F51)."""

from __future__ import annotations

from pathlib import Path

import pytest
from session_disk import SessionDisk

from penstock import agg, micros
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.operators.protocol import MAIN
from penstock.windows import drop_late

GAP = 10
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
