"""State functions in real jobs: every call through Spark, segments and the driver loop (SEMANTICS 7)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import Job, agg, seconds
from penstock.errors import StepsChanged
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.state import BATCH, EVENT, OnError, event_time, idle
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(5, of="state functions")

SCHEMA = "k string, t timestamp, v long"


def at(second: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def row(k: str | None, t: float, v: int | None = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


def job_of(fn, *, form="map_with_state", state="n long", output="k string, n long", event=True, **more) -> Job:
    job = Job("stateful", partitions=2)
    if event:
        rows = job.source("rows", MemorySource(schema=SCHEMA), event_time="t", max_out_of_order=seconds(0))
    else:
        rows = job.source("rows", MemorySource(schema=SCHEMA))
    options = {"state": state, **more} if form == "update_state_by_key" else {"state": state, "output": output, **more}
    getattr(rows.key_by("k"), form)("step", fn, **options).write("out", MemorySink())
    return job


def plain(rows, *names) -> list[tuple]:
    return sorted(tuple(r[n] for n in names) for r in rows)


def count(time, key, row, state):
    n = state.get_or({"n": 0})["n"] + 1
    state.update(n=n)
    return {"k": key, "n": n}


def test_7_1_rows_of_a_key_see_what_those_before_have_left(tmp_path):
    """In order of arrival, over batches; a null key is a key of its own."""
    with Harness(job_of(count, unbounded=True), tmp_path) as h:
        first = h.batch({"rows": [row("a", 1), row("b", 1), row("a", 2), row(None, 2)]})["out"]
        assert plain([r for r in first if r["k"]], "k", "n") == [("a", 1), ("a", 2), ("b", 1)]
        assert [r["n"] for r in h.batch({"rows": [row("a", 3), row(None, 3)]})["out"] if r["k"] is None] == [2]
        assert {r["k"]: r["n"] for r in h.state("step")} == {"a": 3, "b": 1, None: 2}
        accounting = h.commit().accounting["function:step"]
        assert accounting == {"rows": 2, "merged": 2}
        h.restart()
        assert plain(h.batch({"rows": [row("b", 4)]})["out"], "k", "n") == [("b", 2)]


def test_7_2_a_key_expires_strictly_behind_its_timeout_and_not_with_a_row(tmp_path):
    """The first batch later than the batch of its last row + 5 s."""

    def watch(time, key, row, state):
        if state.is_timing_out():
            return {"k": key, "n": -state.get()["n"], "at": time}
        state.update(n=state.get_or({"n": 0})["n"] + 1)
        return None

    job = job_of(watch, timeout=idle(seconds(5)), output="k string, n long, at timestamp", event=False)
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 0), row("b", 0)]}, at=1)
        assert {r["k"]: r["_expires"] for r in h.state("step")} == {"a": at(6), "b": at(6)}
        assert h.batch({"rows": [row("c", 0)]}, at=6)["out"] == []
        assert h.batch({"rows": [row("a", 0)]}, at=7)["out"] == [{"k": "b", "n": -1, "at": at(7)}]
        assert {r["k"] for r in h.state("step")} == {"a", "c"}
        assert h.batch({}, at=11)["out"] == []
        assert h.batch({}, at=12)["out"] == [{"k": "c", "n": -1, "at": at(12)}]
        assert h.batch({}, at=40)["out"] == [{"k": "a", "n": -2, "at": at(40)}]
        assert h.state("step") == []
        assert h.commit().due_time == {"step": None}


def test_7_2_an_event_time_deadline(tmp_path):
    """Behind the watermark, strictly; a row in that batch keeps the key, which goes with the next."""

    def watch(time, key, row, state):
        if state.is_timing_out():
            return {"k": key, "n": -1}
        state.update(n=row["v"])
        state.set_deadline(row["t"] + timedelta(seconds=10))
        return None

    with Harness(job_of(watch, timeout=event_time()), tmp_path) as h:
        h.batch({"rows": [row("a", 0), row("b", 5)]})
        assert h.batch({"rows": [row("c", 10)]})["out"] == []  # the watermark is 10, which is not past it
        assert h.batch({"rows": [row("c", 11)]})["out"] == [{"k": "a", "n": -1}]
        assert h.batch({"rows": [row("c", 30)]})["out"] == [{"k": "b", "n": -1}]
        assert {r["k"] for r in h.state("step")} == {"c"}
        h.batch({"rows": [row("d", 3)]}, watermark=None)
        assert {r["k"] for r in h.state("step")} == {"c"}, (
            "its deadline was over, and it went in the batch that followed"
        )


def test_7_8_timers_fire_once_in_the_order_of_their_times(tmp_path):
    """Behind the batch's rows; one that is set while another fires, in the same batch where it is due."""

    def ring(time, key, row, state):
        if row is not None:
            state.set_timer(row["t"] + timedelta(seconds=10))
            state.set_timer(row["t"] + timedelta(seconds=5))
            state.set_timer(at(20), clock=BATCH)
            return None
        (fired,) = state.fired_timers
        if fired.at == at(5):
            state.set_timer(at(6), clock=EVENT)
        return {"k": key, "n": int(fired.at.timestamp())}

    with Harness(job_of(ring, unbounded=True), tmp_path) as h:
        h.batch({"rows": [row("a", 0)]}, at=1)
        assert h.commit().due == {"step": 5_000_000}
        assert h.commit().due_time == {"step": 20_000_000}
        assert [r["n"] for r in h.batch({"rows": [row("z", 7)]}, at=2)["out"]] == [5, 6]
        assert [r["n"] for r in h.batch({}, at=20)["out"]] == [20, 20]
        h.restart()
        out = h.batch({"rows": [row("y", 30)]}, at=21)["out"]
        assert plain(out, "k", "n") == [("a", 10), ("y", 20), ("z", 12), ("z", 17)]


def test_7_1_a_vectorised_function_sees_a_row_of_state_for_each_key(tmp_path):
    """In the order of info.keys, null where absent; all null removes."""

    def total(rows, state, info):
        sums = rows.append_column("key", info.key_index).group_by("key").aggregate([("v", "sum")]).sort_by("key")
        old = pc.fill_null(state["n"], 0)
        new = pc.add(old, sums["v_sum"])
        kept = pc.if_else(pc.equal(new, 0), None, new)
        return info.keys.append_column("n", new), pa.table({"n": kept})

    with Harness(job_of(total, form="map_with_state_arrow", unbounded=True), tmp_path) as h:
        assert plain(h.batch({"rows": [row("a", 1, 3), row("b", 1, 2), row("a", 1, 4)]})["out"], "k", "n") == [
            ("a", 7),
            ("b", 2),
        ]
        assert plain(h.batch({"rows": [row("b", 2, -2), row("c", 2, 1)]})["out"], "k", "n") == [("b", 0), ("c", 1)]
        assert {r["k"]: r["n"] for r in h.state("step")} == {"a": 7, "c": 1}


def test_7_1_a_vectorised_function_is_called_for_keys_that_time_out(tmp_path):
    """Without rows; their state goes, whatever is returned."""

    def last(rows, state, info):
        out = info.keys.append_column("n", state["n"]) if info.timing_out else None
        return out, pa.table({"n": pc.add(pc.fill_null(state["n"], 0), 1)})

    job = job_of(last, form="map_with_state_arrow", timeout=idle(seconds(5)), event=False)
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 0), row("b", 0)]}, at=1)
        h.batch({"rows": [row("a", 0)]}, at=5)
        assert h.batch({}, at=7)["out"] == [{"k": "b", "n": 1}]
        assert {r["k"]: (r["n"], r["_expires"]) for r in h.state("step")} == {"a": (2, at(10))}


def test_7_5_update_state_by_key_calls_for_every_key_in_every_batch(tmp_path):
    """Also without rows, where batches come at ticks; None removes."""

    def keep(values, old):
        new = (old or 0) + sum(values)
        return None if new > 5 else new

    with Harness(job_of(keep, form="update_state_by_key", value="v"), tmp_path) as h:
        assert plain(h.batch({"rows": [row("a", 1, 2), row("b", 1, 3), row("a", 1, 2)]})["out"], "k", "n") == [
            ("a", 4),
            ("b", 3),
        ]
        assert plain(h.batch({})["out"], "k", "n") == [("a", 4), ("b", 3)]
        assert plain(h.batch({"rows": [row("a", 1, 2)]})["out"], "k", "n") == [("b", 3)]
        assert {r["k"]: r["n"] for r in h.state("step")} == {"b": 3}


def test_7_5_touched_only_and_the_form_with_time_and_key(tmp_path):
    """State of several columns is a dict."""

    def keep(time, key, values, old):
        return {"n": (old["n"] if old else 0) + len(values), "seen": f"{key}@{time.timestamp():g}"}

    job = job_of(
        keep, form="update_state_by_key", value="v", state="n long, seen string", touched_only=True, with_key_time=True
    )
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1), row("b", 1)]}, at=1)
        assert h.batch({"rows": [row("b", 1), row("b", 1)]}, at=2)["out"] == [{"k": "b", "n": 3, "seen": "b@2"}]
        assert {r["k"]: r["seen"] for r in h.state("step")} == {"a": "a@1", "b": "b@2"}


def test_7_5_a_list_that_is_returned_may_be_used_again(tmp_path):
    """For the next key: what was kept and put out for the one before stays as it was."""
    seen: list[int] = []

    def keep(values, old):
        seen[:] = values
        return seen

    job = job_of(keep, form="update_state_by_key", state="n array<long>", touched_only=True)
    with Harness(job, tmp_path) as h:
        out = h.batch({"rows": [row(k, 1, v) for v, k in enumerate("abcdef")]})["out"]
        assert sorted((r["k"], r["n"]) for r in out) == [(k, [v]) for v, k in enumerate("abcdef")]
        assert {r["k"]: r["n"] for r in h.state("step")} == {k: [v] for v, k in enumerate("abcdef")}


def test_windows_stand_behind_state_functions_and_before_them(tmp_path):
    """A row keeps its event time; the output of a window has its end's."""

    def twice(time, key, row, state):
        state.update(n=1)
        return {"k": key, "v": row["v"] * 2, "t": row["t"]}

    job = Job("chained", partitions=2)
    rows = job.source("rows", MemorySource(schema=SCHEMA), event_time="t", max_out_of_order=seconds(0))
    doubled = rows.key_by("k").map_with_state(
        "twice", twice, state="n long", output="k string, v long, t timestamp", unbounded=True
    )
    sums = doubled.key_by("k").window("w", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("v"))
    sums.key_by("k").map_with_state(
        "ends",
        lambda t, k, r, s: {"k": k, "total": r["total"]},
        state="n long",
        output="k string, total long",
        unbounded=True,
    ).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1, 1), row("a", 5, 2), row("b", 12, 4)]})
        out = h.batch({"rows": [row("b", 25, 1)]})["out"]
        assert plain(h.output()["out"], "k", "total") == [("a", 6), ("b", 8)], out


def forever(time, key, row, state):
    """Set a timer that always sets the next, and a deadline."""
    state.update(n=state.get_or({"n": 0})["n"] + 1) if not state.is_timing_out() else None
    if row is not None:
        state.set_deadline(row["t"] + timedelta(days=9))
    if not state.is_timing_out():
        last = row["t"] if row is not None else state.fired_timers[0].at
        state.set_timer(last + timedelta(hours=1))
    return {"k": key, "n": state.get()["n"]} if row is None else None


def test_at_the_end_of_event_time_all_that_waits_comes_to_an_end(tmp_path):
    """A bounded source that ends closes: each timer that stands fires once, each deadline passes, and the job is done."""
    table = pa.table({"k": ["a", "b"], "t": pa.array([at(1), at(2)], pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, tmp_path / "rows.parquet")
    job = Job("bounded", partitions=2)
    rows = job.source(
        "rows",
        FileReplay(tmp_path / "rows.parquet", order_by="t", rows_per_batch=1),
        event_time="t",
        max_out_of_order=seconds(0),
    )
    made = rows.key_by("k").map_with_state(
        "step", forever, state="n long", output="k string, n long", timeout=event_time()
    )
    made.write("out", MemorySink())
    with Harness(job, tmp_path / "root") as h:
        assert plain(h.run()["out"], "k", "n") == [("a", 2), ("a", 2), ("b", 2), ("b", 2)]
        assert h.state("step") == []


def test_a_bounded_job_that_calls_for_every_key_ends(tmp_path):
    """Every tick calls for every key while a source may still give rows, and no longer."""
    table = pa.table({"k": ["a", "b"], "t": pa.array([at(1), at(2)], pa.timestamp("us", tz="UTC")), "v": [1, 2]})
    pq.write_table(table, tmp_path / "rows.parquet")
    job = Job("bounded", partitions=1)
    rows = job.source("rows", FileReplay(tmp_path / "rows.parquet", order_by="t", rows_per_batch=1))
    rows.key_by("k").update_state_by_key("step", lambda values, old: (old or 0) + sum(values), state="n long").write(
        "out", MemorySink()
    )
    with Harness(job, tmp_path / "root") as h:
        assert plain(h.run()["out"], "k", "n") == [("a", 1), ("a", 1), ("b", 2)]
        assert h.batch()["out"] == []


def test_keys_are_told_apart_by_all_their_columns(tmp_path):
    """Null, NaN and -0.0 as in Spark's grouping; several columns are a tuple."""

    def seen(time, key, row, state):
        state.update(n=state.get_or({"n": 0})["n"] + 1)
        return {"key": str(tuple(key)), "n": state.get()["n"]}

    job = Job("keys", partitions=3)
    rows = job.source("rows", MemorySource("a double, b string"))
    rows.key_by("a", "b").map_with_state(
        "step", seen, state="n long", output="key string, n long", unbounded=True
    ).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        pairs = [(0.0, "x"), (-0.0, "x"), (float("nan"), None), (float("nan"), None), (None, None), (0.0, None)]
        out = h.batch({"rows": [{"a": a, "b": b} for a, b in pairs]})["out"]
    assert sorted((r["key"], r["n"]) for r in out) == [
        ("(0.0, 'x')", 1), ("(0.0, 'x')", 2), ("(0.0, None)", 1), ("(None, None)", 1), ("(nan, None)", 1), ("(nan, None)", 2),
    ]  # fmt: skip


def test_state_of_any_type_comes_back_as_it_was_put(tmp_path):
    """Nested types, decimals, dates, times, bytes and maps, which are dicts, over a restart."""
    whole = {
        "l": [1, None, 3], "s": {"x": 1.5, "y": None}, "m": {"a": 1, "b": None}, "d": date(2024, 2, 29),
        "t": at(1.5), "c": Decimal("1.25"), "b": b"\x00\xff", "f": True,
    }  # fmt: skip
    ddl = "l array<int>, s struct<x:double,y:string>, m map<string,int>, d date, t timestamp, c decimal(9,2), b binary, f boolean"

    def keep(time, key, row, state):
        if not state.exists():
            state.update(whole)
            return None
        return {"same": state.get() == whole}

    with Harness(job_of(keep, state=ddl, output="same boolean", unbounded=True), tmp_path) as h:
        h.batch({"rows": [row("a", 1)]})
        h.restart()
        assert h.batch({"rows": [row("a", 2)]})["out"] == [{"same": True}]


def test_maps_of_rows_are_dicts_also_in_quarantine(tmp_path):
    """API: a row is a dict, so are its maps; one that names a key twice has no dict, and is an error of its row."""
    job = Job("mapped", partitions=1)
    rows = job.source("rows", MemorySource(schema="k string, m map<date,int>"))

    def look(time, key, row, state):
        if state.exists():
            raise ValueError(row["m"])
        state.update(m=row["m"])
        return {"n": sum(row["m"].values())}

    made = rows.key_by("k").map_with_state(
        "step", look, state="m map<date,int>", output="n long", unbounded=True, on_error=OnError.QUARANTINE
    )
    made.write("out", MemorySink())
    job.quarantine("step").write("aside", MemorySink())
    with Harness(job, tmp_path) as h:
        fed = [[(date(2024, 1, 1), 1), (date(2024, 1, 2), 2)], {date(2024, 1, 3): 3}]
        made = h.batch({"rows": [{"k": "a", "m": of} for of in [*fed, [(date(2024, 1, 1), 1)] * 2]]})
        assert made["out"] == [{"n": 3}]
        first, second = made["aside"]
        assert "{datetime.date(2024, 1, 3): 3}" in first["_error"]
        assert json.loads(first["_state"]) == {"m": {"2024-01-01": 1, "2024-01-02": 2}}
        assert "which no Python object holds" in second["_error"]


CHANGED = {
    "another type": ("n string", "column n was int32 and is string"),
    "a narrower type": ("n smallint", "column n was int32 and is int16"),
    "a column that is gone": ("m int", "column n int32 is gone"),
}


def remember(time, key, row, state):
    """Keep the row's value in `n`, whatever else the state has."""
    kept = state.get_or(None)
    state.update(n=row["v"])
    return {"k": key, "n": -1 if kept is None else kept["n"]}


@pytest.mark.parametrize("what", CHANGED)
def test_state_that_does_not_fit_its_columns_any_more_is_refused_with_the_difference(tmp_path, what):
    """Before anything is written; the code of before goes on."""
    ddl, message = CHANGED[what]
    with Harness(job_of(remember, unbounded=True, state="n int"), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 5), row("b", 1, 6)]})
        with pytest.raises(StepsChanged, match=message):
            h.restart(job_of(remember, unbounded=True, state=ddl))
        h.restart(job_of(remember, unbounded=True, state="n int"))
        assert plain(h.batch({"rows": [row("a", 2, 7)]})["out"], "k", "n") == [("a", 5)]


def test_another_type_of_key_is_refused(tmp_path):
    """Its hash is another, so nothing would be found."""
    with Harness(job_of(remember, unbounded=True), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 5)]})
        other = Job("stateful", partitions=2)
        rows = other.source("rows", MemorySource(schema=SCHEMA), event_time="t", max_out_of_order=seconds(0))
        rows = rows.with_columns(k="CAST(ascii(k) AS INT)")
        made = rows.key_by("k").map_with_state("step", remember, state="n long", output="k int, n long", unbounded=True)
        made.write("out", MemorySink())
        with pytest.raises(StepsChanged, match="key column k was string and is int32"):
            h.restart(other)
        h.restart(job_of(remember, unbounded=True))


def test_state_goes_on_with_a_new_a_wider_and_a_moved_column(tmp_path):
    """Old rows have null in what is new, also those that nothing has touched since."""
    with Harness(job_of(remember, unbounded=True, state="n int, s string"), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 5), row("b", 1, 6)]})
        h.restart(job_of(remember, unbounded=True, state="extra array<int>, s string, n long"))
        assert plain(h.batch({"rows": [row("a", 2, 2**40)]})["out"], "k", "n") == [("a", 5)]
        assert {r["k"]: (r["n"], r["extra"]) for r in h.state("step")} == {"a": (2**40, None), "b": (6, None)}
        with pytest.raises(StepsChanged, match="column n was int64 and is int32"):
            h.restart(job_of(remember, unbounded=True, state="n int, s string, extra array<int>"))
        h.restart(job_of(remember, unbounded=True, state="extra array<int>, s string, n long"))
        assert plain(h.batch({"rows": [row("a", 3, 1), row("b", 3, 1)]})["out"], "k", "n") == [("a", 2**40), ("b", 6)]


def test_a_timeout_that_was_added_is_refused_with_both(tmp_path):
    """No key that is there would ever be looked at."""
    with Harness(job_of(remember, unbounded=True), tmp_path) as h:
        h.batch({"rows": [row("a", 1)]})
        with pytest.raises(StepsChanged, match="timeout none before, and timeout idle now"):
            h.restart(job_of(remember, timeout=idle(seconds(5))))
        h.restart(job_of(remember, unbounded=True))


def test_what_a_function_does_with_a_list_later_changes_nothing(tmp_path):
    """Neither what it has put out, nor what the state is in the next call."""

    def gather(time, key, row, state):
        seen = state.get_or({"seen": []})["seen"]
        seen.append(row["v"])
        state.update(seen=seen)
        out = {"seen": seen}
        seen = state.get()["seen"]
        seen.append(-1)
        return out

    with Harness(job_of(gather, state="seen array<long>", output="seen array<long>", unbounded=True), tmp_path) as h:
        out = h.batch({"rows": [row("a", 1, 1), row("a", 1, 2), row("a", 1, 3)]})["out"]
        assert [r["seen"] for r in out] == [[1], [1, 2], [1, 2, 3]]
        assert h.state("step")[0]["seen"] == [1, 2, 3]


def test_a_key_that_a_timer_brings_back_as_it_times_out_begins_anew(tmp_path):
    """With an expiry of its own, at which it goes."""

    def again(time, key, row, state):
        if state.is_timing_out():
            state.set_timer(at(0), clock=BATCH)
            return {"k": key, "n": -1}
        state.update(n=state.get_or({"n": 0})["n"] + 1)
        return None

    with Harness(job_of(again, timeout=idle(seconds(5)), event=False), tmp_path) as h:
        h.batch({"rows": [row("a", 0)]}, at=1)
        assert h.batch({}, at=7)["out"] == [{"k": "a", "n": -1}]
        assert [(r["n"], r["_expires"]) for r in h.state("step")] == [(1, at(12))]
        assert h.batch({}, at=12)["out"] == []
        assert h.batch({}, at=13)["out"] == [{"k": "a", "n": -1}]


def deadlines(time, key, row, state):
    """Tell a key's last value when its deadline is over."""
    if state.is_timing_out():
        return {"k": key, "v": state.get()["n"]}
    state.update(n=row["v"] if "v" in row else row["total"])
    state.set_deadline(row["t"] if "t" in row else row["window_end"])
    return None


def chain(source, *, chained: bool) -> Job:
    """Return a job with windows behind the timeouts of a function, and with `chained` before it as well."""
    job = Job("chain", partitions=2)
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
    before = rows
    if chained:
        before = rows.key_by("k").window("first", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("v"))
    ended = before.key_by("k").map_with_state(
        "ends", deadlines, state="n long", output="k string, v long", timeout=event_time()
    )
    sums = ended.key_by("k").window("last", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("v"))
    sums.write("out", MemorySink())
    return job


ALL_FOUR = [("a", 101), ("b", 115), ("c", 131), ("d", 152)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("chained", [False, True], ids=["rows", "windows"])
def test_what_timeouts_put_out_counts_in_the_windows_behind(tmp_path, chained):
    """However far event time is ahead of batch time."""
    with Harness(chain(MemorySource(schema=SCHEMA), chained=chained), tmp_path) as h:
        for key, second in ALL_FOUR:
            h.batch({"rows": [row(key, second, second)]})
        for mark in (160, 10_000, 20_000):
            h.batch(watermark=mark)
        assert plain(h.output()["out"], "k", "total") == ALL_FOUR


@pytest.mark.sample(1)
@pytest.mark.parametrize("chained", [False, True], ids=["rows", "windows"])
def test_what_times_out_at_the_end_of_event_time_is_not_late_for_the_windows_behind(tmp_path, chained):
    """The last windows come with the end, the deadlines that they set are over then, and no batch comes behind."""
    times = pa.array([at(second) for _, second in ALL_FOUR], pa.timestamp("us", tz="UTC"))
    table = pa.table({"k": [k for k, _ in ALL_FOUR], "t": times, "v": [v for _, v in ALL_FOUR]})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = FileReplay(tmp_path / "rows.parquet", order_by="t", rows_per_batch=1)
    with Harness(chain(source, chained=chained), tmp_path / "root") as h:
        assert plain(h.run()["out"], "k", "total") == ALL_FOUR


def test_names_of_the_users_columns_are_free(tmp_path):
    """Also those that the state has for itself."""
    job = Job("names", partitions=2)
    rows = job.source("rows", MemorySource("k string, _hash long, _place string, _key_k int, _group int"))
    made = rows.key_by("k").map_with_state(
        "step",
        lambda t, k, r, s: {"h": r["_hash"], "p": r["_place"]},
        state="n long",
        output="h long, p string",
        unbounded=True,
    )
    made.write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        out = h.batch({"rows": [{"k": "a", "_hash": 7, "_place": "x", "_key_k": 1, "_group": 2}]})["out"]
    assert out == [{"h": 7, "p": "x"}]
