"""Jobs with global windows: crashes, rescaling, side streams, batches without rows, a trigger of the user's (SEMANTICS 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Job, agg, count, seconds
from penstock.errors import BadExpression
from penstock.evictors import KeepDelta, KeepLast
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.triggers import AfterCount, AfterFirst, AfterProcessingTime, AtEnd, Every, Moment, Purging, TriggerResult
from penstock.windows import GlobalWindow, Tumbling, WindowView

KEYS = ("0.0", "-0.0", "NaN", "", "1.5", "NaN", "")
SCHEMA = "user string, n int, v double, t timestamp"


class Total:
    """Fires when the values since the last firing come to 10."""

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Add up."""
        state["total"] = state.get("total", 0.0) + row["v"]

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Fire where it is enough, and begin with 0."""
        if state.get("total", 0.0) < 10:
            return TriggerResult.CONTINUE
        state["total"] = 0.0
        return TriggerResult.FIRE_AND_PURGE


def listed(key: str, view: WindowView) -> list[dict[str, Any]]:
    """Return the key and the rows of the window."""
    assert (view.start, view.end, view.new, view.expired) == (None, None, None, None)
    return [{"user": key, "rows": view.current["n"].to_pylist()}]


def triggered(*, partitions: int = 2) -> Job:
    """Return a job with four global windows, one of which a time window reads."""
    job = Job("triggered", partitions=partitions)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0)).key_by("user")
    output = "user string, rows array<int>"
    threes = rows.window("threes", GlobalWindow().trigger(Purging(Every(count(3))))).apply(listed, output=output)
    threes.write("threes_out", MemorySink())
    threes.window("minutes", Tumbling(seconds(60)).drop_late()).aggregate(fired=agg.count()).write(
        "minutes_out", MemorySink()
    )
    rows.window("last", GlobalWindow().trigger(Every(seconds(5))).evict(KeepLast(2))).aggregate(
        rows=agg.collect("n", limit=10), total=agg.sum("v * 2")
    ).write("last_out", MemorySink())
    once = GlobalWindow().trigger(AfterFirst(AfterCount(4), AfterProcessingTime(seconds(60)))).late_to("after")
    rows.window("once", once).aggregate(n=agg.count()).write("once_out", MemorySink())
    job.late("after").write("after_out", MemorySink())
    rows.window("own", GlobalWindow(unbounded=True).trigger(Total()).evict(KeepDelta("v + 0", 100))).aggregate(
        rows=agg.collect("n", limit=10)
    ).write("own_out", MemorySink())
    return job


def row(user: str | None, n: int, v: float = 1.0) -> dict[str, Any]:
    """Return a row of second n."""
    return {"user": user, "n": n, "v": v, "t": n}


@pytest.mark.slow
@pytest.mark.sample(3, of="jobs of windows")
def test_windows_go_through_crashes_restores_and_other_partitions(tmp_path: Path) -> None:
    """1.4, 2.1, 2.10, 6, 10.1: panes of four triggers, rows after a finish, a chained window; state is read offline."""
    with Harness(triggered(), tmp_path) as h:
        out = h.batch({"rows": [row("a", 1), row("a", 2), row(None, 3, 4.0)]}, at=1)
        assert not any(out.values())
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 4, 9.0), row("b", 5)]}, at=2)
        h.restart()
        assert h.output()["threes_out"] == [{"user": "a", "rows": [1, 2, 4]}]
        assert h.output()["own_out"] == [{"user": "a", "rows": [1, 2, 4]}]
        table = read(tmp_path, "triggered", "threes")
        assert {"user", "_trigger", "_held", "_row", "n"} <= {*table.column_names}
        held = {r["user"]: r["_held"] for r in h.state("threes") if r["_row"] is None}
        assert held == {"b": 1, None: 1}
        h.restore(partitions=3, job=triggered(partitions=3))
        # A batch without rows: the multiples of five seconds are due.
        out = h.batch({}, at=5)
        assert sorted(out["last_out"], key=repr) == [
            {"user": "a", "rows": [2, 4], "total": 20.0},
            {"user": "b", "rows": [5], "total": 2.0},
            {"user": None, "rows": [3], "total": 8.0},
        ]
        out = h.batch({"rows": [row("a", 100), row("a", 101), row(None, 102), row(None, 103, 5.0)]}, at=6)
        assert out["once_out"] == [{"user": "a", "n": 5}]
        assert out["threes_out"] == [{"user": None, "rows": [3, 102, 103]}]
        assert out["own_out"] == [{"user": None, "rows": [3, 102, 103]}]
        h.batch({"rows": [row("a", 104)]}, at=8)
        assert [r["n"] for r in h.late("after")] == [104]
        out = h.batch({"rows": [row("c", 400)]}, at=62)
        assert sorted(out["once_out"], key=repr) == [{"user": "b", "n": 1}, {"user": None, "n": 3}]
        assert [r["fired"] for r in h.output()["minutes_out"]] == [2, 1]
        totals = h.commit().totals["window:once"]
        assert {name: totals[name] for name in ("rows", "counted", "late", "fired")} == {
            "rows": 11,
            "counted": 10,
            "late": 1,
            "fired": 3,
        }


def test_the_end_of_a_bounded_source_fires_at_end(tmp_path: Path) -> None:
    """2.1, 1.4: the watermark moves to the end of time, which runs a batch without rows; a null key, -0.0 and NaN."""
    path = tmp_path / "rows.csv"
    path.write_text("k,t\n" + "".join(f"{k},2024-01-01T00:00:{s:02}Z\n" for s, k in enumerate(KEYS)))
    job = Job("ending", partitions=2)
    rows = job.source(
        "rows",
        FileReplay(path, order_by="t", schema="k double, t timestamp", rows_per_batch=3),
        event_time="t",
        max_out_of_order=seconds(0),
    )
    window = GlobalWindow(unbounded=True).trigger(AtEnd())
    rows.key_by("k").window("w", window).aggregate(n=agg.count()).write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        made = {str(row["k"]): row["n"] for row in h.run()["out"]}
        assert made == {"0.0": 2, "nan": 2, "None": 2, "1.5": 1}
        assert h.commit().totals["window:w"]["fired"] == 4


def test_a_text_cannot_be_compared(tmp_path: Path) -> None:
    """Refused before anything is written, as unfit DDL is."""
    job = Job("texts")
    rows = job.source("rows", MemorySource(SCHEMA)).key_by("n")
    rows.window("w", GlobalWindow(unbounded=True).trigger(Every(count(2))).evict(KeepDelta("user", 1))).apply(
        listed, output="user string, rows array<int>"
    ).write("out", MemorySink())
    with pytest.raises(BadExpression, match="no number"), Harness(job, tmp_path):
        pass
