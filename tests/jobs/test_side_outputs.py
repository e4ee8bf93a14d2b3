"""What a state function has beside its output: snapshots, a quarantine, caps; and streams without a key (SEMANTICS 7)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.errors import JobError, MissingSink, StateRowTooLarge, UserFunctionError
from penstock.runtime.driver.settings import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import EVENT, OnError, event_time, idle
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="side outputs")

SCHEMA = "k string, t timestamp, v long"


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def row(k: str | None, t: float, v: int | None = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


def source(job: Job):
    return job.source("rows", MemorySource(schema=SCHEMA), event_time="t", max_out_of_order=seconds(0))


def plain(rows, *names) -> list[tuple]:
    return sorted(tuple(r[n] for n in names) for r in rows)


def total(time, key, row, state):
    """Sum up; forget a key at a null; cannot take negative numbers."""
    if row is None:
        return {"k": key, "n": -state.get()["n"]}
    if row["v"] is None:
        state.remove()
        return None
    state.update(n=state.get_or({"n": 0})["n"] + row["v"])
    if row["v"] < 0:
        raise ValueError("below nothing")
    return {"k": key, "n": state.get()["n"]}


def totals(rows, state, info):
    if (negative := [v for v in rows["v"].to_pylist() if v < 0]) or info.timing_out:
        raise ValueError(f"below nothing: {negative}")
    n = [s or 0 for s in state["n"].to_pylist()]
    for at, v in zip(info.key_index.to_pylist(), rows["v"].to_pylist(), strict=True):
        n[at] += v
    return None, pa.table({"n": pa.array(n, pa.int64())})


def summed(values, old):
    if any(v < 0 for v in values):
        raise ValueError("below nothing")
    return (old or 0) + sum(values)


# --- snapshots (7.4) ------------------------------------------------------------------------------


def test_a_snapshot_is_the_whole_state_after_each_batch(tmp_path):
    """Keys that the batch has not touched too, none that it removed or that timed out, also in a batch without rows."""
    job = Job("snapshots", partitions=2)
    kept = source(job).key_by("k").map_with_state("step", total, state="n long", output="k string, n long",
                                                  timeout=idle(seconds(10)))  # fmt: skip
    kept.write("out", MemorySink())
    kept.snapshots().write("whole", MemorySink())
    with Harness(job, tmp_path) as h:
        assert h.batch({})["whole"] == []
        given = h.batch({"rows": [row("a", 1), row("b", 1, 5), row(None, 1, 7)]}, at=2, follow=False)
        assert sorted(given["whole"], key=str) == [{"k": "a", "n": 1}, {"k": "b", "n": 5}, {"k": None, "n": 7}]
        given = h.batch({"rows": [row("a", 2), row(None, 2, None)]}, at=3, follow=False)
        assert plain(given["whole"], "k", "n") == [("a", 2), ("b", 5)]
        assert plain(h.batch({}, at=4, follow=False)["whole"], "k", "n") == [("a", 2), ("b", 5)]
        h.restart()
        # "b" had its last row in the batch at 2: it goes in the first batch later than 12.
        assert plain(h.batch({}, at=13, follow=False)["whole"], "k", "n") == [("a", 2)]


def test_snapshots_of_each_form_are_read_on_as_any_stream(tmp_path):
    """By filters, windows and other state functions; the step's own output need not be written."""
    job = Job("read_on", partitions=2)
    keyed = source(job).key_by("k")
    whole = keyed.map_with_state_arrow(
        "arrow", totals, state="n long", output="k string, n long", unbounded=True
    ).snapshots()
    windows = whole.key_by("k").window("w", Tumbling(seconds(10)).drop_late())
    windows.aggregate(seen=agg.count(), last=agg.last("n")).write("windows", MemorySink())
    whole.filter("n > 3").select("k", "n * 10 AS tens").write("tens", MemorySink())
    updated = keyed.update_state_by_key("update", summed, state="n long", touched_only=True).snapshots()
    updated.key_by("k").map_with_state(
        "counted", total_of_snapshots, state="seen long", output="k string, seen long", unbounded=True
    ).write("behind", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1, 1), row("b", 1, 4)]})
        given = h.batch({"rows": [row("a", 2, 2)]})
        assert plain(given["tens"], "k", "tens") == [("b", 40)]
        assert plain(given["behind"], "k", "seen") == [("a", 2), ("b", 2)]
        # A snapshot has the time of the watermark by which its batch closes: 1 and 1, then 2, which is the third's.
        given = h.batch({"rows": [row("c", 10, 1)]})
        assert plain(given["windows"], "k", "window_start", "seen", "last") == [
            ("a", at(0), 3, 3), ("b", at(0), 3, 4), ("c", at(0), 1, 1),
        ]  # fmt: skip
        # At 10 that of the batch that has closed the window, and that of the rows at 40.
        given = h.batch({"rows": [row("c", 40, 1)]})
        assert plain(given["windows"], "k", "window_start", "seen", "last") == [
            ("a", at(10), 2, 3), ("b", at(10), 2, 4), ("c", at(10), 2, 2),
        ]  # fmt: skip


def total_of_snapshots(time, key, row, state):
    state.update(seen=state.get_or({"seen": 0})["seen"] + 1)
    return {"k": key, "seen": state.get()["seen"]}


def test_only_what_keeps_state_has_snapshots():
    job = Job("none")
    rows = source(job)
    for stream in (
        rows,
        rows.filter("v > 1"),
        rows.key_by("k").window("w", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count()),
    ):
        with pytest.raises(JobError, match=r"snapshots\(\) is there for"):
            stream.snapshots()


# --- functions that raise -------------------------------------------------------------------------


def failing(form: str, fn, **more: Any) -> Job:
    job = Job("failing", partitions=2)
    options = {"state": "n long", "on_error": OnError.QUARANTINE, **more}
    if form != "update_state_by_key":
        options = {"output": "k string, n long", "timeout": idle(seconds(10)), **options}
    getattr(source(job).key_by("k"), form)("step", fn, **options).write("out", MemorySink())
    job.quarantine("step").write("aside", MemorySink())
    return job


def test_a_row_that_the_function_raises_for_goes_to_quarantine(tmp_path):
    """With its columns, why, and the key's state before it; the state stays as it was, and each row is accounted for."""
    with Harness(failing("map_with_state", total), tmp_path) as h:
        given = h.batch({"rows": [row("a", 1, 2), row("a", 2, -1), row("a", 3, 3), row("b", 3, -7)]})
        assert plain(given["out"], "k", "n") == [("a", 2), ("a", 5)]
        (first, second) = sorted(given["aside"], key=lambda r: r["k"])
        assert (first["k"], first["v"], first["_batch"]) == ("a", -1, 0)
        assert first["t"] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
        assert json.loads(first["_state"]) == {"n": 2}
        assert "ValueError: below nothing (key 'a') in" in first["_error"]
        assert "test_side_outputs.py:" in first["_error"]
        assert (second["v"], second["_state"]) == (-7, None)
        assert h.commit().accounting["function:step"] == {"rows": 4, "merged": 2, "quarantined": 2}
        assert plain(h.state("step"), "k", "n") == [("a", 5)]


def test_a_timeout_that_raises_is_told_of_with_the_state_that_goes(tmp_path):
    """Otherwise the key would come again in every batch; the row in quarantine has the key and nothing else."""

    def refuses(time, key, row, state):
        if row is None:
            raise RuntimeError("not now")
        state.update(n=row["v"])

    with Harness(failing("map_with_state", refuses), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 9)]}, at=1)
        given = h.batch({}, at=12)
        assert [(r["k"], r["v"], r["t"], json.loads(r["_state"])) for r in given["aside"]] == [
            ("a", None, None, {"n": 9})
        ]
        assert h.state("step") == []
        assert h.batch({}, at=13)["aside"] == []
        assert h.commit().accounting.get("function:step", {}).get("quarantined", 0) == 0


def test_a_call_for_many_rows_puts_all_of_them_aside(tmp_path):
    """All of a key where it is called for a key, all of a partition where it is called for one."""
    with Harness(failing("update_state_by_key", summed), tmp_path / "update") as h:
        given = h.batch({"rows": [row("a", 1, 1), row("b", 1, 2), row("a", 1, -1), row("b", 1, 3)]}, follow=False)
        assert plain(given["aside"], "k", "v") == [("a", -1), ("a", 1)]
        assert plain(given["out"], "k", "n") == [("b", 5)]
    job = failing("map_with_state_arrow", totals, partitions=1)
    with Harness(job, tmp_path / "arrow") as h:
        h.batch({"rows": [row("a", 1, 1), row("b", 1, 2)]}, at=1)
        given = h.batch({"rows": [row("b", 2, 5), row("c", 2, -1), row("b", 2, 6)]}, at=2, follow=False)
        assert plain(given["aside"], "k", "v") == [("b", 5), ("b", 6), ("c", -1)]
        assert plain(h.state("step"), "k", "n") == [("a", 1), ("b", 2)]
        given = h.batch({}, at=13)
        assert sorted((r["k"], r["v"], r["_state"]) for r in given["aside"]) == [
            ("a", None, '{"n": 1}'), ("b", None, '{"n": 2}'),
        ]  # fmt: skip
        assert h.state("step") == []


def test_what_a_function_has_changed_before_it_raised_is_undone(tmp_path):
    """Also in a list of the old state, which it was handed."""

    def appends(values, old):
        seen = old or []
        seen += values
        if 3 in values:
            raise ValueError("no threes")
        return seen

    job = failing("update_state_by_key", appends, state="seen array<long>")
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1, 1)]})
        given = h.batch({"rows": [row("a", 2, 3)]}, follow=False)
        assert [json.loads(r["_state"]) for r in given["aside"]] == [{"seen": [1]}]
        assert plain(h.state("step"), "k", "seen") == [("a", [1])]
        assert h.batch({"rows": [row("a", 3, 2)]}, follow=False)["out"] == [{"k": "a", "seen": [1, 2]}]


def test_a_batch_fails_where_the_step_says_nothing_else(tmp_path):
    job = failing("map_with_state", total)
    job2 = Job("failing", partitions=2)
    source(job2).key_by("k").map_with_state(
        "step", total, state="n long", output="k string, n long", timeout=idle(seconds(10))
    ).write("out", MemorySink())
    with Harness(job2, tmp_path) as h:
        with pytest.raises(UserFunctionError, match=r"step 'step': ValueError: below nothing \(key 'a'\)"):
            h.batch({"rows": [row("a", 2, -1)]})
        h.restart(job)  # corrected so that it puts such rows aside
        assert plain(h.output()["aside"], "k", "v") == [("a", -1)]


def test_a_quarantine_needs_a_sink_and_names_that_are_free(tmp_path):
    job = Job("nowhere")
    kept = (
        source(job)
        .key_by("k")
        .map_with_state(
            "step", total, state="n long", output="k string, n long", unbounded=True, on_error=OnError.QUARANTINE
        )
    )
    kept.write("out", MemorySink())
    with pytest.raises(MissingSink, match=r"step 'step' puts rows in quarantine, but job.quarantine\('step'\) has no"):
        job.graph()
    with pytest.raises(JobError, match=r"on_error= of step 'other' is 'quarantine'; write OnError.FAIL or"):
        source(Job("words")).key_by("k").map_with_state(
            "other", total, state="n long", output="k string", unbounded=True, on_error="quarantine"
        )
    job = Job("taken", partitions=2)
    rows = source(job).with_columns(_error="'mine'")
    rows.key_by("k").map_with_state(
        "step", total, state="n long", output="k string, n long", unbounded=True, on_error=OnError.QUARANTINE
    ).write("out", MemorySink())
    job.quarantine("step").write("aside", MemorySink())
    with pytest.raises(JobError, match="'_error' has the name of one that step 'step' adds"), Harness(job, tmp_path):
        pass


# --- caps, keys -----------------------------------------------------------------------------------


def test_a_key_that_keeps_too_much_stops_the_job(tmp_path):
    """By name, before anything of the batch is committed; what was there before is still there."""

    def collect(time, key, row, state):
        state.update(seen=[*state.get_or({"seen": []})["seen"], "x" * row["v"]])

    job = Job("grows", partitions=2)
    source(job).key_by("k").map_with_state(
        "step", collect, state="seen array<string>", output="k string", unbounded=True
    ).write("out", MemorySink())
    with Harness(job, tmp_path, settings=DriverSettings(row_cap=10_000)) as h:
        h.batch({"rows": [row("a", 1, 4_000), row("b", 1, 7_000)]})
        h.batch({"rows": [row("a", 2, 4_000)]})
        with pytest.raises(StateRowTooLarge, match=r"step 'step' keeps 12,[0-9]+ bytes .*'k': 'a'.* cap of 10,000"):
            h.batch({"rows": [row("a", 3, 4_000)]})
        assert {r["k"]: len(r["seen"]) for r in h.state("step")} == {"a": 2, "b": 1}


def test_a_stream_without_a_key_keeps_one_state(tmp_path):
    """Every keyed operator exists on a whole stream: one partition, and () for the key."""

    def last(time, key, row, state):
        assert key == ()
        state.update(n=state.get_or({"n": 0})["n"] + 1)
        state.set_timer(datetime(1970, 1, 1, 0, 0, 20, tzinfo=UTC), clock=EVENT)
        state.set_deadline(datetime(1970, 1, 1, 0, 0, 30, tzinfo=UTC))
        return {"n": state.get()["n"]} if row is not None else {"n": 100}

    job = Job("whole")
    rows = source(job)
    rows.map_with_state("rows_of_all", last, state="n long", output="n long", timeout=event_time()).write(
        "out", MemorySink()
    )
    rows.map_with_state_arrow("all_at_once", totals, state="n long", output="n long", unbounded=True).snapshots().write(
        "arrow", MemorySink()
    )
    rows.update_state_by_key("sums", summed, state="n long", with_key_time=False).write("updated", MemorySink())
    with Harness(job, tmp_path) as h:
        given = h.batch({"rows": [[row("a", 1, 5), row("b", 2, 6)], [row("c", 2, 7)]]})
        assert [r["n"] for r in given["out"]] == [1, 2, 3]
        assert given["arrow"][-1] == given["updated"][-1] == {"n": 18}
        assert {len(h.commit().state[step]) for step in ("rows_of_all", "all_at_once", "sums")} == {1}
        assert h.state("rows_of_all")[0]["n"] == 3


def test_a_key_of_several_columns_is_a_named_tuple(tmp_path):
    seen = []

    def named(time, key, row, state):
        assert (key.k, key.v) == (row["k"], row["v"]) == tuple(key)
        state.update(n=1)
        return {"said": repr(key)}

    job = Job("named", partitions=2)
    source(job).key_by("k", "v").map_with_state(
        "step", named, state="n long", output="said string", unbounded=True
    ).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        seen = h.batch({"rows": [row("a", 1, 5)]})["out"]
    assert seen == [{"said": "Key(k='a', v=5)"}]
