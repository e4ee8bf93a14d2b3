"""Jobs with session windows: crashes, rescaling, restores, side streams, and state that others read (SEMANTICS 3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from session_disk import KEYS, SessionDisk

from penstock import Job, agg, seconds
from penstock.errors import StateError
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.operators.protocol import HASHED, MAIN, StepFacts
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

SCHEMA = "user string, n int, gap int, t timestamp"
GAPS = "make_dt_interval(0, 0, 0, gap)"


def visits(window: SessionWindow | None = None, *, partitions: int = 2) -> Job:
    """Return a job that counts the rows of each user's sessions, and the sessions of each minute."""
    job = Job("visits", partitions=partitions)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(30))
    window = Session(GAPS).late_to("late_visits") if window is None else window
    sessions = rows.key_by("user").window("visits", window).aggregate(rows=agg.count(), last=agg.last("n"))
    sessions.write("out", MemorySink())
    sessions.window("minutes", Tumbling(seconds(60)).drop_late()).aggregate(visits=agg.count()).write(
        "per_minute", MemorySink()
    )
    if window.late is not None and hasattr(window.late, "stream"):
        job.late("late_visits").write("late", MemorySink())
    if isinstance(window.gap, str):
        job.quarantine("visits").write("aside", MemorySink())
    return job


def row(user: str | None, n: int, t: int, gap: int | None = 10) -> dict[str, Any]:
    """Return a row; times are in seconds."""
    return {"user": user, "n": n, "t": t, "gap": gap}


def told(rows: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return sessions as user, start, end, rows and last."""
    bounds = ("window_start", "window_end")
    return [(r["user"], *(int(r[name].timestamp()) for name in bounds), r["rows"], r["last"]) for r in rows]


@pytest.mark.slow
def test_sessions_go_through_crashes_restores_and_other_partitions(tmp_path: Path) -> None:
    """2.1, 2.6, 2.10, 3, 10.1: merges across batches, a late row, one without a gap, a chained window; state is read."""
    with Harness(visits(), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 0), row("a", 2, 25), row("b", 3, 20, 40), row(None, 4, 5, None)]})
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 5, 18), row("a", 6, 9)]})
        h.restart()
        held = [
            (r["user"], int(r["session_start"].timestamp()), int(r["session_end"].timestamp()))
            for r in h.state("visits")
        ]
        assert sorted(held, key=repr) == [("a", 0, 35), ("b", 20, 60)]
        table = read(tmp_path, "visits", "visits")
        assert sorted(table["_rows"].to_pylist()) == [1, 4]
        assert {"session_start", "session_end", "user"} <= {*table.column_names}
        h.restore(partitions=3, job=visits(partitions=3))
        h.batch({"rows": [row("c", 7, 36, 1)]})
        h.batch({"rows": [row("c", 9, 200)]})
        assert told(h.output()["out"]) == [("a", 0, 35, 4, 2), ("c", 36, 37, 1, 7), ("b", 20, 60, 1, 3)]
        h.batch({"rows": [row("a", 8, 3), row("c", 10, 400)]})
        assert [r["n"] for r in h.late("late_visits")] == [8]
        assert [(r["n"], r["_error"].split(",")[0]) for r in h.output()["aside"]] == [(4, "the gap of 'visits'")]
        totals = h.commit().totals["window:visits"]
        assert {name: totals[name] for name in ("rows", "counted", "late", "quarantined", "in_no_window")} == {
            "rows": 10,
            "counted": 8,
            "late": 1,
            "quarantined": 1,
            "in_no_window": 0,
        }
        assert [r["visits"] for r in h.output()["per_minute"]] == [3, 1]


@pytest.mark.parametrize(
    ("bounds", "match"),
    [([(0, 10), (10, 20)], "touch"), ([(0, 0)], "empty"), ([(0, None)], "without session_end")],
    ids=["touching", "empty", "unbounded"],
)
def test_state_that_is_no_sessions_is_refused(tmp_path: Path, bounds: list[tuple[int, int | None]], match: str) -> None:
    """10.1: an edited table must have sessions that are some."""
    step = SessionDisk(Session(seconds(1)).drop_late(), {"n": agg.count()}, tmp_path).step
    columns = {"k": pa.array(["a"] * len(bounds)), HASHED: pa.array([7] * len(bounds), pa.int64())}
    for place, name in enumerate(("session_start", "session_end")):
        columns[name] = pa.array([pair[place] for pair in bounds], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns["_rows"] = pa.array([1] * len(bounds), pa.int64())
    with pytest.raises(StateError, match=match):
        step.rebuilt({MAIN: pa.table(columns)}, StepFacts(batch=0, time=0, watermark=None))


def test_other_keys_are_refused_and_another_gap_is_not(tmp_path: Path) -> None:
    """F51: what is kept for a session are its partials; held sessions keep their ends when the gap changes."""
    steps = [
        SessionDisk(Session(seconds(gap)).drop_late(), aggregates, tmp_path, keys=keys).step
        for gap, aggregates, keys in (
            (1, {"n": agg.count()}, KEYS),
            (2, {"other": agg.count()}, KEYS),
            (1, {"n": agg.sum("v")}, KEYS),
            (1, {"n": agg.count()}, pa.schema([("k", pa.int64())])),
        )
    ]
    first = steps[0].layout_name
    refused = [bool(step.evolved(first, ["k"], pa.schema([])).refused) for step in steps]
    assert refused == [False, False, False, True]
