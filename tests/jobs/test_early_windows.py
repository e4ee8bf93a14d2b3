"""Windows that are emitted before they close, through the whole engine (SEMANTICS 2.5, 2.6, 3.2; issue 20.2, 20.7)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pane_rows import in_order, plain, row
from session_model import SessionModel

from penstock import Job, agg, count, seconds
from penstock.sinks import Delta, MemorySink, Mode
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Session, Sliding, Tumbling, drop_late, late_to

pytestmark = pytest.mark.sample(1, of="windows with early panes")


def job_of(table: Path, partitions: int = 2, rows: int = 3) -> Job:
    """Return a job with panes that contain all rows, and panes that a window downstream adds up."""
    job = Job("early", partitions=partitions)
    source = MemorySource("k string, t timestamp, v int")
    keyed = job.source("rows", source, event_time="t", max_out_of_order=seconds(0)).key_by("k")
    spec = Tumbling(seconds(10)).emit_every(seconds(3)).emit_on(count(rows))
    late = spec.update_late(within=seconds(10), then=late_to("too_late"))
    whole = keyed.window("w", late).aggregate(n=agg.count(), total=agg.sum("v"))
    whole.write("log", MemorySink())
    whole.write("newest", Delta(table, mode=Mode.UPSERT, keys=["k", "window_end"]))
    job.late("too_late").write("late", MemorySink())
    parts = Sliding(seconds(10), every=seconds(5)).drop_late().emit_on(count(2)).discarding()
    panes = keyed.window("p", parts).aggregate(n=agg.count())
    panes.write("panes", MemorySink())
    panes.key_by("k").window("minute", Tumbling(seconds(60)).drop_late()).aggregate(n=agg.sum("n")).write(
        "minutes", MemorySink()
    )
    return job


@pytest.mark.slow
@pytest.mark.fault("F43")
@pytest.mark.fault("F51")
def test_open_windows_are_emitted_over_a_crash_and_a_rescale(tmp_path: Path) -> None:
    """1.4, 2.6, 3.2, 10.5: numbers and new rows go on after a crash and in other partitions."""
    table = tmp_path / "table"
    with Harness(job_of(table), tmp_path / "root") as h:
        first = h.batch({"rows": [row("a", 1, 1), row("a", 2, 2), row("a", 2, 4), row("b", 3, 1)]}, at=1)
        assert plain(first["log"]) == [("a", 10, "EARLY", 0, 3, 7)]
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 4, 8)]}, at=2)
        assert plain(h.restart()["log"]) == []
        # Batch time 3 is a multiple of emit_every: the partitions run without rows.
        assert plain(h.batch(at=3)["log"]) == [("a", 10, "EARLY", 1, 4, 15), ("b", 10, "EARLY", 0, 1, 1)]
        h.batch({"rows": [row("b", 4, 2)]}, at=4)
        shown = {r["k"]: (r["_pane"], r["_revision"], r["_new_rows"]) for r in h.state("w")}
        assert shown == {"a": ("EARLY", 1, 0), "b": ("EARLY", 0, 1)}
        offline = read(tmp_path / "root", "early", "w").to_pylist()
        assert in_order(offline) == in_order(h.state("w")), "the state is read without the job's code"
        h.restore(batch=h.commit().batch, partitions=5, job=job_of(table, 5))
        assert plain(h.batch(at=6)["log"]) == [("b", 10, "EARLY", 1, 2, 3)]
        h.restart(job_of(table, 5, rows=1))
        assert plain(h.batch({"rows": [row("a", 12, 16)]}, at=7)["log"]) == [
            ("a", 10, "ON_TIME", 2, 4, 15), ("a", 20, "EARLY", 0, 1, 16), ("b", 10, "ON_TIME", 2, 2, 3)
        ]  # fmt: skip
        late = h.batch({"rows": [row("b", 5, 4)]}, at=9)
        assert plain(late["log"]) == [("b", 10, "LATE", 3, 3, 7)]
        h.batch(watermark=70, at=20)
        kept = DeltaTable(table).to_pyarrow_table().to_pylist()
        assert plain(kept) == [
            ("a", 10, "ON_TIME", 2, 4, 15), ("a", 20, "ON_TIME", 1, 1, 16), ("b", 10, "LATE", 3, 3, 7)
        ]  # fmt: skip
        panes = sorted((r["k"], r["window_end"].timestamp(), r["_pane"], r["n"]) for r in h.output()["panes"])
        assert panes == [
            ("a", 5, "EARLY", 3), ("a", 5, "ON_TIME", 1), ("a", 10, "EARLY", 3), ("a", 10, "ON_TIME", 1),
            ("a", 15, "ON_TIME", 1), ("a", 20, "ON_TIME", 1),
            ("b", 5, "EARLY", 2), ("b", 10, "EARLY", 2), ("b", 15, "ON_TIME", 1),
        ]  # fmt: skip
        # The row of b at 5 s is late for [0, 10) of the sliding windows only.
        assert {r["k"]: r["n"] for r in h.output()["minutes"]} == {"a": 10, "b": 5}


@pytest.mark.slow
def test_open_sessions_are_emitted_over_a_crash_and_a_rescale(tmp_path: Path) -> None:
    """3.2, 10.5: keyed sessions and those of a whole stream; what waits is counted on in other partitions."""

    def sessions(partitions: int = 2) -> Job:
        job = Job("visits", partitions=partitions)
        source = MemorySource("k string, t timestamp, v int")
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
        spec = Session(seconds(10)).emit_every(seconds(3)).emit_on(count(2)).drop_late()
        rows.key_by("k").window("w", spec).aggregate(n=agg.count(), total=agg.sum("v")).write("log", MemorySink())
        each = Session(seconds(10)).emit_on(count(1)).discarding().drop_late()
        rows.window("all", each).aggregate(n=agg.count()).write("panes", MemorySink())
        return job

    with Harness(sessions(), tmp_path) as h:
        first = h.batch({"rows": [row("a", 0, 1), row("a", 1, 2), row("b", 1, 4)]}, at=1)
        assert plain(first["log"]) == [("a", 11, "EARLY", 0, 2, 3)]
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 8, 8)]}, at=2)
        assert plain(h.restart()["log"]) == []
        h.restore(batch=h.commit().batch, partitions=5, job=sessions(5))
        assert plain(h.batch(at=3)["log"]) == [("a", 18, "EARLY", 1, 3, 11), ("b", 11, "EARLY", 0, 1, 4)]
        assert {r["k"]: (r["_revision"], r["_new_rows"]) for r in h.state("w")} == {"a": (1, 0), "b": (0, 0)}
        assert plain(h.batch(watermark=30, at=4)["log"]) == [
            ("a", 18, "ON_TIME", 2, 3, 11),
            ("b", 11, "ON_TIME", 1, 1, 4),
        ]
        panes = [(r["window_end"].timestamp(), r["_pane"], r["n"]) for r in h.output()["panes"]]
        assert panes == [(11, "EARLY", 3), (18, "EARLY", 1)], "without new rows a pane that discards does not come"


def live_sessions(table: Path, partitions: int) -> Job:
    """Return a job that keeps a row for each session in a table, while it is open and after."""
    job = Job("live", partitions=partitions)
    source = MemorySource("k string, t timestamp, v int")
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(8))
    spec = Session(seconds(3)).emit_every(seconds(4)).emit_on(count(2))
    late = spec.update_late(within=seconds(12), then=drop_late())
    live = rows.key_by("k").window("w", late).aggregate(n=agg.count(), total=agg.sum("v"))
    once = live.deduplicate("d", by=["k", "window_end", "_revision", "_pane"], within=seconds(60))
    once.write("newest", Delta(table, mode=Mode.UPSERT, keys=["k", "window_end"]))
    return job


@pytest.mark.slow
@pytest.mark.fault("F43")
def test_a_table_has_a_row_for_each_open_session_over_a_crash_and_a_rescale(tmp_path: Path) -> None:
    """2.6, 3.2, 10.5: its rows are the newest panes of the model, in whatever partitions, and each is there once."""
    table, root, drawn = tmp_path / "table", tmp_path / "root", Random(20)
    model = SessionModel(gap=lambda _: 3_000_000, lateness=12_000_000, every=4_000_000, early_rows=2, retracts=True)
    newest: dict[tuple[str, float], tuple[Any, ...]] = {}
    taken_back: list[tuple[str, float]] = []

    def judge(rows: list[dict[str, Any]], mark: int | None, time: int) -> None:
        """Have the model do a batch, and write what it emits."""
        arrived = [{**r, "t": r["t"] * 1_000_000, "n": place, "at": place} for place, r in enumerate(rows)]
        for of in model.batch(arrived, late=mark, close=mark, time=time).closed:
            key, values = (of.key, of.end / 1e6), (of.pane, of.revision, len(of.rows), sum(r["v"] for r in of.rows))
            if of.pane == "RETRACTED":
                assert newest.pop(key)[3:] == values[1:]
                taken_back.append(key)
            else:
                newest[key] = (*key, *values)

    with Harness(live_sessions(table, 2), root) as h:
        mark = None
        for number in range(1, 12):
            times = [max(0, 3 * number + drawn.randrange(-9, 7)) for _ in range(4)] if number < 11 else []
            rows = [row(drawn.choice("ab"), time, 2**place) for place, time in enumerate(times)]
            if crash := {4: "CommitBatch", 7: "Compute"}.get(number):
                h.crash_after(crash)
                with pytest.raises(Crashed):
                    h.batch({"rows": rows}, at=5 * number)
                h.restart()
            else:
                closing = 1_000 if number == 11 else None
                h.batch({"rows": rows} if rows else {}, at=5 * number, watermark=closing, follow=False)
            judge(rows, mark, 5_000_000 * number)
            commit = h.commit()
            if commit.time > 5_000_000 * number:  # what a restart finishes includes the batch that this made due
                judge([], commit.watermarks_in["w"], commit.time)
            mark = commit.watermarks_out["w"]
            if number == 8:
                h.restore(batch=commit.batch, partitions=5, job=live_sessions(table, 5))
            kept = DeltaTable(table).to_pyarrow_table().to_pylist() if newest else []
            assert plain(kept) == sorted(newest.values())
        h.batch(follow=False)
        judge([], mark, h.commit().time)
        assert plain(DeltaTable(table).to_pyarrow_table().to_pylist()) == sorted(newest.values())
        assert {values[2] for values in newest.values()} <= {"ON_TIME", "LATE"}
        assert len(taken_back) > 5
