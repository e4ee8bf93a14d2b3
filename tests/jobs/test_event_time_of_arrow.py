"""Rows of a vectorised function have the event time that it names, or are refused where it names none (7.1)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.errors import BadExpression, EventTimeMissing, JobError, NoEventTime, WrongOutput
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import OnError, event_time, idle
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="event time of vectorised steps")

COLUMNS = "k string, t timestamp, v long"
Made = tuple[pa.Table | None, pa.Table]


def passing(rows: pa.Table, state: pa.Table, info: Any) -> Made:
    return rows, state


def keyed(job: Job) -> Any:
    rows = job.source("rows", MemorySource(COLUMNS), event_time="t", max_out_of_order=seconds(0))
    return rows.key_by("k")


def counted(stream: Stream, name: str = "w") -> None:
    windows = stream.key_by("k").window(name, Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count()).write(f"out_{name}", MemorySink())


def window_job(fn: Callable[..., Made] = passing, *, output: str = COLUMNS, **options: Any) -> Job:
    job = Job("arrow", partitions=2)
    counted(keyed(job).map_with_state_arrow("step", fn, state="n long", output=output, unbounded=True, **options))
    return job


def row(k: str, t: float, v: int = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


def starts(out: list[dict[str, Any]]) -> list[tuple[str, float, int]]:
    return sorted((r["k"], r["window_start"].timestamp(), r["n"]) for r in out)


TWELVE = [row("ab"[n % 2], 5.0 * n) for n in range(12)]
SIX = [(k, 10.0 * n, 1) for k in "ab" for n in range(6)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "options",
    [{"same_rows": True}, {"event_time": "t"}, {"event_time": "t + INTERVAL 0 SECONDS"}],
    ids=["same rows", "a column", "an expression"],
)
def test_a_window_behind_has_the_rows_of_its_time(tmp_path: Path, options: dict[str, Any]) -> None:
    """Twelve rows from 0 to 55 s fall into six windows of 10 s, as behind the row form (SEMANTICS 7.1)."""
    with Harness(window_job(**options), tmp_path) as h:
        out = h.batch({"rows": TWELVE})["out_w"] + h.batch({"rows": [row("z", 90)]})["out_w"]
    assert starts(out) == SIX


def test_a_filter_behind_may_drop_all_rows_of_a_batch(tmp_path: Path) -> None:
    """No row is left to be given its event time; the batch goes on all the same."""
    job = Job("arrow", partitions=2)
    step = keyed(job).map_with_state_arrow(
        "step", passing, state="n long", output=COLUMNS, event_time="t + INTERVAL 0 SECONDS", unbounded=True
    )
    counted(step.filter("v > 0"))
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1, -1), row("b", 2, -1)]})
        out = h.batch({"rows": TWELVE})["out_w"] + h.batch({"rows": [row("z", 90)]})["out_w"]
    assert starts(out) == SIX


def test_event_time_may_be_another_than_the_rows(tmp_path: Path) -> None:
    """An expression over the output says the time, not the input (SEMANTICS 7.1)."""

    def hours(rows: pa.Table, state: pa.Table, info: Any) -> Made:
        return pa.table({"k": rows["k"], "hour": pa.array([v * 10 for v in rows["v"].to_pylist()])}), state

    options = {"output": "k string, hour long", "event_time": "timestamp_seconds(hour)"}
    with Harness(window_job(hours, **options), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 0), row("a", 1, 1), row("a", 1, 1)]})
        assert starts(h.batch({"rows": [row("a", 40, 100)]})["out_w"]) == [("a", 0.0, 1), ("a", 10.0, 2)]


@pytest.mark.remedy("PEN-JOB-020")
@pytest.mark.parametrize("behind", ["window", "row function", "timeout"])
def test_event_time_that_nobody_names_is_refused_at_the_line(behind: str) -> None:
    """A step of event time behind a vectorised function that says neither is refused when built (SEMANTICS 7.1)."""
    job = Job("arrow", partitions=2)
    made = keyed(job).map_with_state_arrow("step", passing, state="n long", output=COLUMNS, unbounded=True)
    if behind == "timeout":
        again = made.key_by("k").map_with_state(
            "again", lambda *_: None, state="n long", output="k string", timeout=event_time()
        )
        again.write("out", MemorySink())
    else:
        if behind == "row function":
            made = made.key_by("k").map_with_state(
                "again", lambda *_: None, state="n long", output=COLUMNS, unbounded=True
            )
        counted(made.filter("v > 0"))
    with pytest.raises(NoEventTime, match="'step'.*does not say") as met:
        job.graph()
    assert __file__ in str(met.value.where)
    assert "event_time=" in met.value.remedy
    assert "same_rows=True" in met.value.remedy
    window_job(event_time="t").graph()
    window_job(same_rows=True).graph()


def test_same_rows_behind_an_unnamed_time_is_refused_as_well() -> None:
    """same_rows passes on what came in, and that is nothing (SEMANTICS 7.1)."""
    job = Job("arrow")
    options = {"state": "n long", "output": COLUMNS, "unbounded": True}
    first = keyed(job).map_with_state_arrow("one", passing, **options)
    counted(first.key_by("k").map_with_state_arrow("two", passing, same_rows=True, **options))
    with pytest.raises(NoEventTime, match="'one'"):
        job.graph()


def test_both_answers_are_one_too_many() -> None:
    """event_time and same_rows exclude each other (SEMANTICS 7.1)."""
    with pytest.raises(JobError, match="keep one"):
        window_job(event_time="t", same_rows=True)


def test_an_event_time_that_is_no_timestamp_is_refused(tmp_path: Path) -> None:
    """The expression is analysed before anything runs, also where no step reads it (SEMANTICS 7.1)."""
    for expression in ("v", "nothing_like_it"):
        job = Job("arrow")
        step = keyed(job).map_with_state_arrow(
            "step", passing, state="n long", output=COLUMNS, event_time=expression, unbounded=True
        )
        step.write("out", MemorySink())
        with pytest.raises(BadExpression, match=expression), Harness(job, tmp_path / expression):
            pass


def test_another_number_of_rows_is_a_clear_error(tmp_path: Path) -> None:
    """same_rows with a row less is refused with both numbers (SEMANTICS 7.1)."""

    def fewer(rows: pa.Table, state: pa.Table, info: Any) -> Made:
        return rows.slice(1), state

    with Harness(window_job(fewer, same_rows=True), tmp_path) as h, pytest.raises(WrongOutput, match="2 rows for 3"):
        h.batch({"rows": [row("a", t) for t in (1, 2, 3)]})


def untimed(rows: pa.Table, state: pa.Table, info: Any) -> Made:
    """Put out what came in, without the time of rows whose v is 0; count what was put out so far."""
    times = pa.array([t if v else None for t, v in zip(rows["t"].to_pylist(), rows["v"].to_pylist(), strict=True)])
    seen = [n or 0 for n in state["n"].to_pylist()]
    for key in info.key_index.to_pylist():
        seen[key] += 1
    return rows.set_column(1, "t", times.cast(rows.schema.field("t").type)), pa.table({"n": seen})


@pytest.mark.sample(2)
@pytest.mark.remedy("PEN-OPR-021")
@pytest.mark.parametrize("expression", ["t", "t + INTERVAL 0 SECONDS"])
@pytest.mark.parametrize("remedy", ["given a time", "filtered behind the step", "quarantine"])
def test_a_row_without_event_time_is_told_where_it_is_read_and_each_remedy_works(
    tmp_path: Path, expression: str, remedy: str
) -> None:
    """A null where event_time= looks is named, with step, column and row (SEMANTICS 2.9, 7.1)."""
    more = {"on_error": OnError.QUARANTINE} if remedy == "quarantine" and expression != "t" else {}
    job = window_job(untimed, event_time=expression, **more)
    if more:
        job.quarantine("step").write("aside", MemorySink())
    with Harness(job, tmp_path) as h:
        with pytest.raises(EventTimeMissing) as met:
            h.batch({"rows": [row("a", 1), row("a", 3, 0)]})
        assert "step 'step' emitted rows without event time, 1 of 2" in met.value.what
        assert f"event_time={expression!r} is null in " in met.value.what
        assert '"k": "a"' in met.value.what
        if remedy == "given a time":
            other = window_job(passing, event_time=expression)
        elif remedy == "filtered behind the step" or expression != "t":
            other = Job("arrow", partitions=2)
            step = keyed(other).map_with_state_arrow(
                "step", untimed, state="n long", output=COLUMNS, unbounded=True, event_time=expression
            )
            counted(step.filter("v > 0"))
        else:
            other = window_job(untimed, event_time=expression, on_error=OnError.QUARANTINE)
            other.quarantine("step").write("aside", MemorySink())
        h.restart(other)
        h.batch({"rows": [row("z", 90)]})
        h.batch({"rows": [row("z", 190)]})
        out = h.output()
        assert (
            starts(out["out_w"])[:-1]
            == {
                "given a time": [("a", 0.0, 2)],
                "filtered behind the step": [("a", 0.0, 1)],
                "quarantine": [] if expression == "t" else [("a", 0.0, 1)],
            }[remedy]
        )
        assert starts(out["out_w"])[-1:] == [("z", 90.0, 1)]
        if remedy == "quarantine" and expression == "t":
            assert [(r["k"], r["v"], r["_error"][:11]) for r in out["aside"]] == [
                ("a", 1, "step 'step'"),
                ("a", 0, "step 'step'"),
            ]
            assert "is null in" in out["aside"][0]["_error"]


def test_rows_without_event_time_are_put_aside_with_the_call_and_its_state_stays(tmp_path: Path) -> None:
    """With quarantine the batch goes on: what the function was called with is aside, and counted (2.9, 7.1)."""
    job = Job("arrow", partitions=1)
    kept = {"state": "n long", "output": COLUMNS, "unbounded": True, "on_error": OnError.QUARANTINE}
    counted(keyed(job).map_with_state_arrow("step", untimed, event_time="`T`", **kept))
    job.quarantine("step").write("aside", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [row("a", 1), row("b", 2)]})
        h.batch({"rows": [row("a", 3), row("a", 4, 0)]})
        assert [(r["k"], r["v"]) for r in h.output()["aside"]] == [("a", 1), ("a", 0)]
        assert h.commit().accounting["function:step"]["quarantined"] == 2
        assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", 1), ("b", 1)]
        h.batch({"rows": [row("a", 5)]})
        assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", 2), ("b", 1)]
        assert starts(h.batch({"rows": [row("z", 90)]})["out_w"]) == [("a", 0.0, 2), ("b", 0.0, 1)]


def test_rows_without_event_time_that_only_sinks_read_are_written(tmp_path: Path) -> None:
    """Nobody asks when they were: also with quarantine."""
    job = Job("arrow", partitions=1)
    kept = {"state": "n long", "output": COLUMNS, "unbounded": True, "on_error": OnError.QUARANTINE}
    keyed(job).map_with_state_arrow("step", untimed, event_time="t", **kept).write("out", MemorySink())
    job.quarantine("step").write("aside", MemorySink())
    with Harness(job, tmp_path) as h:
        out = h.batch({"rows": [row("a", 1), row("a", 4, 0)]})
        assert sorted((r["v"], r["t"] is None) for r in out["out"]) == [(0, True), (1, False)]
        assert not out.get("aside")


def test_keys_that_time_out_have_a_row_each_with_the_watermark(tmp_path: Path) -> None:
    """In the call for timeouts same_rows speaks of the keys; their rows count as what time has caused (7.1, 7.2)."""

    def last(rows: pa.Table, state: pa.Table, info: Any) -> Made:
        if info.timing_out:
            n = info.keys.num_rows
            t = pa.array([info.watermark] * n, pa.timestamp("us", tz="UTC"))
            return pa.table({"k": info.keys["k"], "t": t, "v": pa.array([-1] * n, pa.int64())}), state
        return rows, pa.table({"n": pa.array([1] * info.keys.num_rows, pa.int64())})

    job = Job("arrow", partitions=2)
    made = keyed(job).map_with_state_arrow(
        "step", last, state="n long", output=COLUMNS, same_rows=True, timeout=idle(seconds(3))
    )
    made.write("all", MemorySink())
    counted(made)
    with Harness(job, tmp_path, interval=seconds(1)) as h:
        h.batch({"rows": [row("a", 12), row("b", 13)]}, at=1)
        out = h.batch({"rows": [row("z", 15)]}, at=10)
        assert [(r["k"], r["v"]) for r in out["all"]] == [("z", 1), *((k, -1) for k in _by_hash("ab"))]
        later = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=13)
        assert [r["t"] for r in out["all"][1:]] == [later, later]
        assert starts(h.batch({"rows": [row("z", 90)]}, at=11)["out_w"]) == [
            ("a", 10.0, 2),
            ("b", 10.0, 2),
            ("z", 10.0, 1),
        ]


def _by_hash(keys: str) -> list[str]:
    from penstock.state.hashing import hash_columns

    hashes = hash_columns([pa.array(list(keys))], len(keys)).tolist()
    return [key for _, key in sorted(zip(hashes, keys, strict=True))]
