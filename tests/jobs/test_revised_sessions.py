"""Sessions that late rows prolong and join, through the whole engine (SEMANTICS 2.6, 3; issue 20.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock import Job, agg, count, seconds
from penstock.quality import OnFail
from penstock.sinks import Delta, MemorySink, Mode
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import LatenessRule, Session, Tumbling, drop_late, late_to

pytestmark = pytest.mark.sample(1, of="revised windows")


def job_of(table: Path, partitions: int = 2) -> Job:
    """Return a job with a table of sessions by key and window, and discarding panes that a window adds up."""
    job = Job("revised_sessions", partitions=partitions)
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(0))
    spec = Session(seconds(10)).update_late(within=seconds(100), then=late_to("too_late"))
    whole = rows.key_by("k").window("s", spec).aggregate(n=agg.count(), total=agg.sum("v"))
    whole.filter("total >= 0").write("newest", Delta(table, mode=Mode.UPSERT, keys=["k", "window_end"]))
    whole.write("log", MemorySink())
    job.late("too_late").write("late", MemorySink())
    panes = Session(seconds(10)).update_late(within=seconds(100), then=drop_late()).discarding()
    each = rows.key_by("k").window("p", panes).aggregate(n=agg.count())
    each.key_by("k").window("minute", Tumbling(seconds(600)).drop_late()).aggregate(n=agg.sum("n")).write(
        "sums", MemorySink()
    )
    return job


def row(key: str, time: float, value: int = 1) -> dict[str, Any]:
    return {"k": key, "t": time, "v": value}


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    bounds = ("window_start", "window_end")
    return [(r["k"], *(r[b].timestamp() for b in bounds), r["_pane"], r["_revision"], r["n"], r["total"]) for r in rows]


def newest(table: Path) -> list[tuple[Any, ...]]:
    return sorted(plain(DeltaTable(table).to_pyarrow_table().to_pylist()))


@pytest.mark.slow
@pytest.mark.fault("F43")
def test_a_table_of_sessions_follows_late_rows_over_a_crash_and_a_rescale(tmp_path: Path) -> None:
    """2.6, 2.10, 3, 10.5: what others replace is deleted once, after a crash and in other partitions too."""
    table = tmp_path / "table"
    with Harness(job_of(table), tmp_path / "root") as h:
        h.batch({"rows": [row("a", 0, 1), row("a", 18, 2), row("b", 3, 5), row("z", 40, 0)]})
        h.batch({"rows": [row("z", 41, 0)]})
        assert newest(table) == [
            ("a", 0, 10, "ON_TIME", 0, 1, 1),
            ("a", 18, 28, "ON_TIME", 0, 1, 2),
            ("b", 3, 13, "ON_TIME", 0, 1, 5),
        ]
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 9, 10), row("b", 4, 5)]})
        assert plain(h.restart()["log"]) == [
            ("a", 0, 10, "RETRACTED", 0, 1, 1),
            ("b", 3, 13, "RETRACTED", 0, 1, 5),
            ("b", 3, 14, "LATE", 1, 2, 10),
            ("a", 18, 28, "RETRACTED", 0, 1, 2),
            ("a", 0, 28, "LATE", 1, 3, 13),
        ]
        assert newest(table) == [("a", 0, 28, "LATE", 1, 3, 13), ("b", 3, 14, "LATE", 1, 2, 10)]
        held = {(r["k"], r["_revision"], r["_closed"]) for r in h.state("s")}
        assert held == {("a", 1, True), ("b", 1, True), ("z", None, False)}
        assert read(tmp_path / "root", "revised_sessions", "s").num_rows == 3
        h.restore(batch=h.commit().batch, partitions=5, job=job_of(table, 5))
        h.batch({"rows": [row("a", 27, 100), row("b", 13, 0), row("y", 200)]})
        assert newest(table) == [
            ("a", 0, 37, "LATE", 2, 4, 113),
            ("b", 3, 23, "LATE", 2, 3, 10),
            ("z", 40, 51, "ON_TIME", 0, 2, 0),
        ]
        late = h.batch({"rows": [row("a", 1), row("b", 2), row("y", 201)]})
        assert [(r["k"], r["_step"]) for r in h.late("too_late")] == [("a", "s"), ("b", "s")]
        assert late["log"] == []
        counts = h.commit().totals["window:s"]
        assert (counts["rows"], counts["counted"], counts["late"]) == (13, 11, 2)
        h.batch(watermark=601)
        sums = {r["k"]: r["n"] for r in h.output()["sums"]}
        assert sums == {"a": 4, "b": 3, "y": 2, "z": 2}


def chained(name: str) -> Job:
    """Return a job with steps of event time behind sessions, one of them behind a state function too."""
    job = Job(name, partitions=2)
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(0))
    out = rows.key_by("k").window("s", Session(seconds(10)).drop_late()).aggregate(n=agg.count())
    each = Tumbling(seconds(5)).drop_late()
    strict = each.lateness_rule(LatenessRule.WATERMARK)
    passed = out.key_by("k").map_with_state(
        "f", lambda _time, key, row, _state: {"k": key, "n": row["n"]}, state="m int", output="k string, n long",
        unbounded=True,
    )  # fmt: skip
    for step, stream, window in (
        ("windows", out, each),
        ("strict", out, strict),
        ("behind_state", passed, each),
        ("visits", out, Session(seconds(1)).drop_late()),
    ):
        stream.key_by("k").window(step, window).aggregate(n=agg.sum("n")).write(f"of_{step}", MemorySink())
    return job


@pytest.mark.slow
def test_no_step_behind_a_session_takes_it_for_late(tmp_path: Path) -> None:
    """2.1: a session closes when the watermark > end; where it was the end before, end - 1 would be late downstream."""
    with Harness(chained("chained"), tmp_path) as h:
        h.batch({"rows": [row("a", 0), row("b", 0.5), row("c", 30)]}, watermark=9)
        for watermark in (10, 10.000001, 10.4, 10.5, 10.6, 40, 41, 60):
            h.batch(watermark=watermark)
        for step in ("windows", "strict", "behind_state", "visits"):
            assert sorted((r["k"], r["n"]) for r in h.output()[f"of_{step}"]) == [("a", 1), ("b", 1), ("c", 1)]
            counts = h.commit().totals[f"window:{step}"]
            assert (counts["rows"], counts["counted"], counts["late"]) == (3, 3, 0)


def test_a_check_lets_what_is_taken_back_pass(tmp_path: Path) -> None:
    """2.6, 2.10, 11.1: else a row that `mostly` let pass would stay beside the one that replaces it, or be a double.

    A sink that appends beside the table gets nothing that is taken back: the check may have withheld what that was.
    """
    job = Job("checked_sessions", partitions=1)
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(0))
    window = Session(seconds(10)).emit_on(count(1)).drop_late()
    live = rows.key_by("k").window("s", window).aggregate(n=agg.count(), total=agg.sum("v"))
    small = {"column": "total", "max_value": 100, "mostly": 0.5}
    expectations = [
        {"type": "expect_column_values_to_be_between", "kwargs": small},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "k"}},
    ]
    checked = live.check("c", suite={"name": "s", "expectations": expectations}, on_fail=OnFail.DROP)
    table = tmp_path / "table"
    checked.write("all", MemorySink())
    checked.write("newest", Delta(table, mode=Mode.UPSERT, keys=["k", "window_end"]))
    with Harness(job, tmp_path / "root") as h:
        h.batch({"rows": [row("a", 0, 500), row("b", 0)]})
        assert newest(table) == [("a", 0, 10, "EARLY", 0, 1, 500), ("b", 0, 10, "EARLY", 0, 1, 1)]
        h.batch({"rows": [row("a", 5, -450), row("b", -5)]})
        assert newest(table) == [("a", 0, 15, "EARLY", 1, 2, 50), ("b", -5, 10, "EARLY", 1, 2, 2)]
        assert h.commit().accounting["check:c"] == {"in": 4, "published": 4}
        assert [row["_pane"] for row in h.output()["all"]] == ["EARLY"] * 4
        assert {(verdict["unit"], verdict["rows"]) for verdict in h.commit().verdicts} == {(10**7, 1), (15 * 10**6, 1)}
