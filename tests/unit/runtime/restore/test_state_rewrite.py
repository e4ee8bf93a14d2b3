"""Restores that write state anew: rescaled, from a snapshot, from a table that somebody has edited (SEMANTICS 10.1)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock import EveryBatches, Job, agg, seconds
from penstock.errors import BadExpression, CannotRestore, PartitionsChanged, StateError, StepsChanged
from penstock.runtime.driver import retention
from penstock.runtime.driver.settings import DriverSettings
from penstock.runtime.snapshots.catalog import versions
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import BATCH, EVENT, event_time, idle
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding, Tumbling

pytestmark = pytest.mark.sample(2, of="rewritten states")

MANY = 10**6
TIMELESS = ("idle", "odd", "whole", "update")


def at(second: float) -> datetime:
    """Return a moment."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def summed(time, key, row, state):
    """Add up; a key of its own is told by a timer, and all that time out."""
    if state.is_timing_out():
        return {"k": key, "n": -1, "why": "idle"}
    if row is None:
        return {"k": key, "n": len(state.fired_timers), "why": "timer"}
    if row["v"] < 0:
        state.remove()
        state.set_timer(time + timedelta(seconds=-8 * row["v"]), clock=BATCH)
        return None
    state.update(n=state.get_or({"n": 0})["n"] + row["v"])
    return {"k": key, "n": state.get()["n"], "why": "row"}


def by_deadline(time, key, row, state):
    """Keep a key until its deadline, in event time; a timer comes before that."""
    if state.is_timing_out():
        return {"k": key, "n": -1, "why": "deadline"}
    if row is None:
        return {"k": key, "n": 0, "why": "timer"}
    state.update(n=row["v"])
    state.set_deadline(row["t"] + timedelta(seconds=4))
    state.set_timer(row["t"] + timedelta(seconds=3), clock=EVENT)
    return None


def with_intervals(time, key, row, state):
    """Keep spans of time, also inside of others; keys have two columns."""
    old = state.get_or({"a b": timedelta(0), "inner": {"x": []}})
    span = old["a b"] + timedelta(days=1, microseconds=row["v"])
    state.update(**{"a b": span, "inner": {"x": [*(old["inner"]["x"] or [])[-2:], span]}})
    return {"k": f"{key.at} {key.Clock}", "n": span // timedelta(microseconds=1), "why": str(state.get()["inner"])}


def in_one(time, key, row, state):
    """Count all rows, whatever their key; a timer tells."""
    if row is None:
        return {"k": str(key), "n": state.get()["n"], "why": "timer"}
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    state.set_timer(time + timedelta(seconds=15), clock=BATCH)
    return {"k": str(key), "n": state.get()["n"], "why": "row"}


def job_of(form: str, *, partitions: int, every: int = MANY) -> Job:
    """Return a job with a step `step` of this form."""
    job = Job("restored", partitions=partitions)
    job.checkpoint(every=EveryBatches(every))
    timed = {"event_time": "t", "max_out_of_order": seconds(2)} if form not in TIMELESS else {}
    stream = job.source("rows", MemorySource("k string, t timestamp, v long"), **timed)
    rows = stream.key_by("k")
    match form:
        case "idle":
            options = {"state": "n long", "output": "k string, n long, why string", "timeout": idle(seconds(35))}
            out = rows.map_with_state("step", summed, **options)
        case "deadline":
            options = {"state": "n long", "output": "k string, n long, why string", "timeout": event_time()}
            out = rows.map_with_state("step", by_deadline, **options)
        case "both":
            options = {
                "state": "n long",
                "output": "k string, n long, why string",
                "timeout": idle(seconds(60)) | event_time(),
            }
            out = rows.map_with_state("step", by_deadline, **options)
        case "odd":
            keyed = stream.with_columns(at="k", Clock="v % 2 = 0").key_by("at", "Clock")
            options = {"state": "`a b` interval day to second, inner struct<x: array<interval day to second>>"}
            options |= {"output": "k string, n long, why string", "unbounded": True}
            out = keyed.map_with_state("step", with_intervals, **options)
        case "whole":
            options = {"state": "n long", "output": "k string, n long, why string", "unbounded": True}
            out = stream.map_with_state("step", in_one, **options)
        case "update":
            out = rows.update_state_by_key(
                "step", lambda values, old: (old or 0) + sum(values), value="v", state="n long"
            )
        case "tumbling":
            out = rows.window("step", Tumbling(seconds(4)).drop_late()).aggregate(n=agg.count(), s=agg.sum("v"))
        case "sliding":
            window = rows.window("step", Sliding(seconds(8), every=seconds(1)).drop_late())
            out = window.aggregate(n=agg.count(), s=agg.sum("v"))
        case "stacks":
            window = rows.window("step", Sliding(seconds(8), every=seconds(1)).drop_late())
            out = window.aggregate(top=agg.max("v"), first=agg.first("v"), some=agg.stddev_pop("v"))
    out.write("out", MemorySink())
    return job


FORMS = ["idle", "deadline", "both", "odd", "whole", "update", "tumbling", "sliding", "stacks"]


def feeds(form: str, count: int, seed: int = 1) -> list[list[dict]]:
    """Return the rows of some batches."""
    draw = random.Random(seed)
    least = -4 if form == "idle" else 0
    return [
        [
            {"k": f"k{draw.randrange(12)}", "t": 20 + batch - 3 * draw.random(), "v": draw.randrange(least, 9)}
            for _ in range(draw.randrange(7))
        ]
        for batch in range(count)
    ]


def rows_of(output: dict[str, list[dict]]) -> list[tuple]:
    """Return rows in an order that partitions have no part in."""
    return sorted((tuple(sorted(row.items())) for row in output["out"]), key=str)


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("whole", "deadline", "tumbling")])
def test_a_restore_with_other_partitions_changes_no_result(tmp_path, form):
    """State, timers, deadlines, open windows and running aggregates of all keys go on where they stood."""
    fed = feeds(form, 7)
    with (
        Harness(job_of(form, partitions=2), tmp_path / "a") as h,
        Harness(job_of(form, partitions=2), tmp_path / "b") as plain,
    ):
        for batch, rows in enumerate(fed):
            if batch == 3:
                h.restore(partitions=5, job=job_of(form, partitions=5))
                assert set(h.commit().state["step"]) <= set("01234")
            if batch == 5:
                h.restore(partitions=1, job=job_of(form, partitions=1))
                assert set(h.commit().state["step"]) == {"0"}
            clock = {"at": 10 * (batch + 1)}
            assert rows_of(h.batch({"rows": rows}, **clock)) == rows_of(plain.batch({"rows": rows}, **clock)), batch
        ends = {"at": 500, "watermark": 900} if form not in TIMELESS else {"at": 500}
        assert rows_of(h.batch({}, **ends)) == rows_of(plain.batch({}, **ends))


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["both", "odd", "whole", "stacks"])
def test_a_restore_to_a_snapshot_is_one_to_its_batch_whatever_was_purged(tmp_path, form, monkeypatch):
    """State from the tables, positions from what their commit says; the batches behind it come again."""
    monkeypatch.setattr(retention, "EVERY", 2)
    fed = feeds(form, 8, seed=2)
    keep = DriverSettings(keep=2)
    with (
        Harness(job_of(form, partitions=3, every=3), tmp_path / "a", settings=keep) as h,
        Harness(job_of(form, partitions=3), tmp_path / "b", settings=DriverSettings(keep=100)) as plain,
    ):
        for batch, rows in enumerate(fed):
            clock = {"at": 10 * (batch + 1)}
            h.batch({"rows": rows}, **clock)
            plain.batch({"rows": rows}, **clock)
        snapshot = versions(h.root / "restored", "step")[0]
        assert snapshot.commit.batch < h.commit().floor
        h.restore(snapshot=str(snapshot.version))
        plain.restore(batch=snapshot.commit.batch)
        assert rows_of({"out": h.state("step")}) == rows_of({"out": plain.state("step")})
        for batch in range(3):
            clock = {"at": 100 + 20 * batch}
            assert rows_of(h.batch({}, **clock)) == rows_of(plain.batch({}, **clock))


def test_a_table_that_somebody_has_edited_is_gone_on_with(tmp_path):
    """Keys changed, added and taken away; what the table does not say is as of the batch gone back to."""
    with Harness(job_of("idle", partitions=2, every=2), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "timer", "v": -9}]}, at=10)
        h.batch({"rows": []}, at=20)
        h.batch({"rows": [{"k": "c", "v": 3}]}, at=30)
        table = DeltaTable(h.root / "restored" / "snapshots" / "step").to_pyarrow_table()
        assert sorted(table["k"].to_pylist()) == ["a", "b"]
        edited = pa.table({"k": ["a", "new"], "n": pa.array([100, 200], pa.int32())})
        write_deltalake(tmp_path / "edited", edited)
        h.restore(state={"step": tmp_path / "edited"})
        assert {row["k"]: (row["n"], row["_expires"]) for row in h.state("step")} == {
            "a": (100, at(65)),
            "new": (200, at(65)),
        }
        assert rows_of(h.batch({"rows": [{"k": "a", "v": 1}, {"k": "b", "v": 1}]}, at=40)) == [
            (("k", "a"), ("n", 101), ("why", "row")),
            (("k", "b"), ("n", 1), ("why", "row")),
        ]
        assert rows_of(h.batch({}, at=70)) == [(("k", "new"), ("n", -1), ("why", "idle"))]
        assert (("k", "timer"), ("n", 1), ("why", "timer")) in rows_of(h.batch({}, at=90))


@pytest.mark.remedy("PEN-CKP-015")
def test_partitions_that_changed_without_a_restore_are_refused_with_both_numbers(tmp_path):
    """By a start, and by a restore that does not say it."""
    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "v": 1}]})
        h.batch({"rows": [{"k": "a", "v": 1}]})
        other = job_of("idle", partitions=4)
        with pytest.raises(PartitionsChanged, match="4 partitions and its state has 2"):
            h.restart(other)
        with pytest.raises(PartitionsChanged, match="has 4 partitions in the job and its state has 2"):
            h.restore(batch=0, job=other)
        with pytest.raises(
            PartitionsChanged, match="--partitions 3 is the number of no step; the job's code says step 4"
        ):
            h.restore(batch=0, partitions=3)
        h.restore(batch=0, partitions=4)
        assert h.state("step")[0]["n"] == 1
        h.restart()
        rows = rows_of(h.batch({"rows": [{"k": "a", "v": 5}]}))
        assert rows[-1] == (("k", "a"), ("n", 7), ("why", "row")), "with the row of batch 1, which came again"


@pytest.mark.sample(1)
@pytest.mark.fault("F13")
@pytest.mark.parametrize(
    ("lost", "reason"),
    [((0,), "its state has 2"), ((0, 1), "its state has a number that cannot be read any more")],
    ids=["the Takeover", "the Offsets as well"],
)
def test_a_number_of_partitions_that_is_lost_is_not_guessed(tmp_path, lost, reason):
    """Keys would be looked for where their state is not: the batch's Offsets say it, or else a person."""
    rows = [{"k": f"k{n}", "v": 1} for n in range(9)]
    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        h.batch({"rows": rows})
        h.batch({"rows": rows})
        for slot in lost:
            path = h.root / "restored" / "log" / f"{slot:012d}"
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:-9])
        other = job_of("idle", partitions=4)
        with pytest.raises(PartitionsChanged, match=reason):
            h.restore(batch=0, job=other)
        h.restore(batch=0, partitions=4, job=other)
        assert [row["n"] for row in h.state("step")] == [1] * 9
        h.restart()
        assert {dict(row)["n"] for row in rows_of(h.batch({"rows": rows}))} == {2, 3}


@pytest.mark.sample(1)
@pytest.mark.parametrize("hook", [("Restore", "before"), ("Restore", "after")], ids=" ".join)
def test_a_restore_that_is_cut_short_is_done_or_not_done(tmp_path, hook):
    """Before its entry the job stands where it stood, with its old partitions; behind it with the new."""
    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        for n in range(3):
            h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(5)]}, at=n + 1)
        h.crash_at(*hook)
        with pytest.raises(Crashed):
            h.restore(batch=1, partitions=3, job=job_of("idle", partitions=3))
        if hook == ("Restore", "before"):
            with pytest.raises(PartitionsChanged):
                h.restart()
            h.restart(job_of("idle", partitions=2))
            assert h.state("step")[-1]["n"] in range(13)
            assert sum(row["n"] for row in h.state("step")) == 30
        else:
            h.restart()
            assert sum(row["n"] for row in h.state("step")) == 20
        assert len(h.state("step")) == 5


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("table", "error", "reason"),
    [
        ({"k": ["a", "a"], "n": [1, 2]}, StateError, "1 more rows than keys"),
        ({"k": ["a"], "m": [1]}, BadExpression, "has no column 'n'; it has k, m"),
        (None, CannotRestore, "there is no Delta table"),
    ],
    ids=["a key twice", "a column is missing", "no table"],
)
def test_state_that_cannot_be_gone_on_from_is_refused_and_nothing_changes(tmp_path, table, error, reason):
    """The log stands as it stood."""
    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "v": 7}]})
        if table is not None:
            write_deltalake(tmp_path / "given", pa.table(table))
        with pytest.raises(error, match=reason):
            h.restore(state={"step": tmp_path / "given"})
        h.restart()
        assert h.state("step")[0]["n"] == 7
        with pytest.raises(CannotRestore, match="no step 'other' with state; there is \\['step'\\]"):
            h.restore(state={"other": tmp_path / "given"})


def test_slices_that_no_window_has_are_refused(tmp_path):
    """Of a table made by hand."""
    with Harness(job_of("tumbling", partitions=1), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "t": 1, "v": 7}, {"k": "a", "t": 2, "v": 1}]})
        (row,) = h.state("step")
        row["slice_start"] = at(1)
        write_deltalake(tmp_path / "given", pa.Table.from_pylist([row]))
        with pytest.raises(StateError, match="no slice of these windows begins at 1000000"):
            h.restore(state={"step": tmp_path / "given"})


def test_a_snapshot_that_is_not_kept_is_refused_with_those_there_are(tmp_path):
    """By version and batch."""
    with Harness(job_of("idle", partitions=2, every=2), tmp_path) as h:
        for n in range(5):
            h.batch({"rows": [{"k": "a", "v": n}]})
        with pytest.raises(CannotRestore, match=r"snapshot 9 is not kept; there is batch 1: step@0; batch 3: step@1"):
            h.restore(snapshot="9")
        assert h.state("step")[0]["n"] == 10
        h.restore(snapshot="step@0")
        assert h.state("step")[0]["n"] == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["partitions", "snapshot"])
def test_state_of_other_windows_is_not_rewritten_and_of_other_aggregates_is(tmp_path, way):
    """It would carry the new layout, and nobody could tell it from state that was always so; aggregates may change."""

    def job(size, what, partitions):
        made = Job("restored", partitions=partitions)
        made.checkpoint(every=EveryBatches(1))
        rows = made.source(
            "rows", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=seconds(2)
        )
        windows = rows.key_by("k").window("step", Tumbling(seconds(size)).drop_late())
        windows.aggregate(n=agg.sum(what)).write("out", MemorySink())
        return made

    with Harness(job(4, "v", 2), tmp_path) as h:
        for n in range(3):
            h.batch({"rows": [{"k": "a", "t": 10 + n / 10, "v": 5}]})
        start = {"partitions": 3} if way == "partitions" else {"snapshot": "0"}
        with pytest.raises(StepsChanged, match="step 'step' cannot resume from its state"):
            h.restore(**start, job=job(2, "v", 3))
        kept = 3 if way == "partitions" else 1
        h.restore(**start, job=job(4, "CAST(v AS DECIMAL(9, 1))", 3))
        (row,) = h.state("step")
        (total,) = (row[name] for name in row if name.startswith("_decimal_"))
        assert (row["_rows"], total) == (kept, 5 * kept)


def test_a_snapshot_of_before_a_column_was_added_has_nulls_in_it(tmp_path):
    """As its batch would have; a key's type must be the same."""

    def job(state, key="k"):
        made = Job("restored", partitions=2)
        made.checkpoint(every=EveryBatches(1))
        rows = made.source("rows", MemorySource("k string, v long")).key_by(key)

        def keep(values, old):
            return {**(old or {"w": 1}), "n": sum(values)}

        rows.update_state_by_key("step", keep, value="v", state=state, touched_only=True).write("out", MemorySink())
        return made

    with Harness(job("n int, w int"), tmp_path) as h:
        for n in range(3):
            h.batch({"rows": [{"k": "a", "v": n + 5}]})
        h.restore(snapshot="0", job=job("m string, w int, n long"))
        assert h.state("step") == [{"k": "a", "m": None, "w": 1, "n": 5, "_expires": None}]
        with pytest.raises(StepsChanged, match="key column k was string and is none"):
            h.restore(snapshot="0", job=job("n long, w int", key="v"))


def test_what_was_rescaled_can_be_saved_exported_and_gone_back_to_at_once(tmp_path):
    """Its Commit is of the driver that restored, with the partitions that hold from there."""
    from penstock.runtime.restore.export import export_checkpoint
    from penstock.runtime.restore.target import RestoreTarget

    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        for n in range(3):
            h.batch({"rows": [{"k": f"k{i}", "v": n} for i in range(9)]}, at=10 * (n + 1))
        h.restore(partitions=5, job=job_of("idle", partitions=5))
        h.save("rescaled")
        made = export_checkpoint(tmp_path / "restored", tmp_path / "export", RestoreTarget(), job="restored", now=1)
        assert made.partitions == {"step": 5}
        h.batch({"rows": [{"k": "k1", "v": 100}]}, at=50)
        h.restore(saved="rescaled")
        assert sorted(row["n"] for row in h.state("step")) == [3] * 9
        with pytest.raises(PartitionsChanged, match="2 partitions in the job and its state has 5"):
            h.restore(saved="rescaled", job=job_of("idle", partitions=2))


def test_two_steps_are_rescaled_together_whatever_their_numbers(tmp_path):
    """The number given is that of one of them; chained windows go on."""

    def job(first, second):
        made = Job("restored")
        rows = made.source(
            "rows", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=seconds(1)
        )
        inner = rows.key_by("k").window("inner", Tumbling(seconds(2)).drop_late(), partitions=first)
        totals = inner.aggregate(n=agg.sum("v")).key_by("k")
        outer = totals.window("outer", Tumbling(seconds(6)).drop_late(), partitions=second)
        outer.aggregate(n=agg.sum("n")).write("out", MemorySink())
        return made

    fed = feeds("chained", 12, seed=5)
    with Harness(job(2, 3), tmp_path / "a") as h, Harness(job(2, 3), tmp_path / "b") as plain:
        for batch, rows in enumerate(fed):
            if batch == 7:
                h.restore(partitions=4, job=job(4, 7))
            clock = {"at": 10 * (batch + 1)}
            assert rows_of(h.batch({"rows": rows}, **clock)) == rows_of(plain.batch({"rows": rows}, **clock)), batch
        ends = {"at": 500, "watermark": 900}
        output = rows_of(h.batch({}, **ends))
        assert output == rows_of(plain.batch({}, **ends))
        assert output


def test_a_table_with_a_column_that_cannot_be_is_refused_and_the_log_released(tmp_path):
    """What Spark says of it is told at the step's line."""
    with Harness(job_of("idle", partitions=2), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "v": 7}]})
        write_deltalake(tmp_path / "given", pa.table({"k": ["a"], "n": pa.array([[1]], pa.list_(pa.int64()))}))
        with pytest.raises(BadExpression, match="cannot|CAST|cast"):
            h.restore(state={"step": tmp_path / "given"})
        assert h._run.driver.owned is None
        h.restart()
        assert h.state("step")[0]["n"] == 7
