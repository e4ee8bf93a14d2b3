"""Rows that no expression of SQL reads go from their source to their step in Python: with the same results (2.7, 9.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.graph.job import Stream
from penstock.quality import OnFail
from penstock.runtime.plain_rows import PlainRows, plain_rows
from penstock.runtime.plan import plan_job
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import idle
from penstock.testing import Harness
from penstock.windows import Tumbling

SCHEMA = "user string, x double, n int, t timestamp, m decimal(10,2), a array<int>"
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(10, 2)),
        ("true", pa.int32()),
        ("two words", pa.int32()),
    ]
)


def begins(build: Callable[[Stream], Any], *, aside: bool = False, **source: Any) -> PlainRows | None:
    """Return what the one branch of a job that leads somewhere is said to read."""
    job = Job("asked", partitions=1)
    given = {"event_time": "t", **({"max_out_of_order": seconds(0)} if source.get("event_time", "t") else {}), **source}
    build(job.source("rows", MemorySource("user string"), **given))
    branch = next(b for b in plan_job(job.graph()).ingest if b.leaves)
    return plain_rows(branch, COLUMNS, aside=aside)


def sink(stream: Any) -> None:
    stream.write("out", MemorySink())


def total(stream: Stream, *keys: str, of: str = "n") -> None:
    """Sum in windows."""
    sink(stream.key_by(*keys).window("w", Tumbling(seconds(10)).drop_late()).aggregate(s=agg.sum(of), c=agg.count()))


PLAIN: dict[str, Callable[[Stream], Any]] = {
    "rows into a sink": sink,
    "a selection of columns": lambda s: sink(s.select("user", "t").select("user")),
    "a window": lambda s: total(s, "user", "x"),
    "a window behind a selection": lambda s: total(s.select("user", "n", "t"), "user"),
}
NOT_PLAIN: dict[str, Callable[[Stream], Any]] = {
    "a filter": lambda s: sink(s.filter("n > 0")),
    "a new column": lambda s: sink(s.with_columns(y="n")),
    "a function of frames": lambda s: sink(s.transform("same", lambda rows: rows)),
    "an expression": lambda s: sink(s.select("n + 1 AS n")),
    "a column by other letters": lambda s: sink(s.select("N")),
    "a word of SQL that is also a column": lambda s: sink(s.select("true")),
    "a name in quotes": lambda s: sink(s.select("`two words`")),
    "a column twice": lambda s: sink(s.select("n", "n")),
    "a column that is not there": lambda s: sink(s.select("z")),
    "an aggregate of an expression": lambda s: total(s, "user", of="n * 2"),
    "a key that Spark alone hashes": lambda s: total(s, "m"),
    "a check": lambda s: sink(s.check("c", suite={"expectations": []}, on_fail=OnFail.WARN)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_names_of_columns_alone_need_no_sql(name: str) -> None:
    """Whatever stands behind them."""
    assert begins(PLAIN[name]) is not None


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_all_else_is_left_to_spark(name: str) -> None:
    """Expressions, and what is wrong or may mean something else: it is taken, or refused, as it was."""
    assert begins(NOT_PLAIN[name]) is None


def test_the_event_time_is_a_column_of_instants_or_there_is_none() -> None:
    """A text, a local time and an expression are for Spark to refuse or compute."""
    assert begins(sink, event_time=None) is not None
    assert begins(sink, event_time="t", max_future=seconds(9)) is not None
    assert [begins(sink, event_time=text) for text in ("user", "T", "t + INTERVAL 1 SECOND")] == [None] * 3


def test_bad_rows_that_somebody_reads_are_written_by_spark() -> None:
    """As JSON, which is Spark's to make."""
    assert begins(sink, aside=True) is None


# --- the same results -----------------------------------------------------------------------------


def instant(t: float) -> datetime:
    return datetime.fromtimestamp(t, tz=UTC)


def row(user: str | None, x: float | None, n: int | None, t: float | None) -> dict[str, Any]:
    return {"user": user, "x": x, "n": n, "t": t, "m": None, "a": [1, None]}


BATCHES = [
    [row("a", 1.5, 1, 1.0), row(None, math.nan, 2, 2.0), row("b", -0.0, None, 3.0), row("é" * 40, 0.0, 4, 3.5)],
    [row("a", None, 5, None), row(None, math.nan, 6, 1e9), row("b", 0.0, 7, 12.0), row("a", 1.5, 8, 11.0)],
    [],
    [row("b", -0.0, 9, 40.0), row("a", 1.5, 10, 2.0), row("é" * 40, -0.0, 11, 41.0)],
]


def seen(_time: Any, _key: Any, given: dict[str, Any] | None, state: Any) -> dict[str, Any] | None:
    """Count the rows of a key, and tell when it is forgotten."""
    held = state.get_or(None) or {"n": 0}
    if given is None:
        return {"what": "gone", "rows": held["n"]}
    state.update({"n": held["n"] + 1})
    return {"what": "seen", "rows": held["n"] + 1}


def job_of(step: Callable[[Stream], Stream], *, keyed: tuple[str, ...]) -> Job:
    """Return a job with each kind of leaf, its rows led through `step`."""
    job = Job("same", partitions=3)
    source = MemorySource(SCHEMA)
    rows = step(job.source("rows", source, event_time="t", max_out_of_order=seconds(2), max_future=seconds(1_000)))
    rows.write("raw", MemorySink())
    window = rows.key_by(*keyed).window("w", Tumbling(seconds(10)).late_to("late"))
    window.aggregate(c=agg.count(), s=agg.sum("n"), first=agg.first("n"), most=agg.max("x")).write(
        "w_out", MemorySink()
    )
    job.late("late").write("late_out", MemorySink())
    said = {"state": "n int", "output": "what string, rows int", "timeout": idle(seconds(1))}
    rows.key_by(*keyed).map_with_state("f", seen, **said).write("f_out", MemorySink())
    return job


def shown(harness: Harness) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows)) for name, rows in harness.output().items()}


def through_sql(stream: Stream) -> Stream:
    return stream.filter("true")


def as_they_are(stream: Stream) -> Stream:
    return stream


WAYS = {"as they are": as_they_are, "through SQL": through_sql}


@pytest.mark.spark
@pytest.mark.parametrize("keyed", [("user",), ("x",), ("user", "x"), ("t",)], ids="-".join)
@pytest.mark.parametrize("later", ["as they are", "through SQL"])
def test_both_ways_give_the_same(tmp_path: Path, keyed: tuple[str, ...], later: str) -> None:
    """Keys of NaN and of both zeros, null keys, null and far event times, late rows; and state finds its keys again.

    A job that gets its first expression, or loses its last, goes on with the state that the other way has made.
    """
    results = []
    for before, after in ((through_sql, through_sql), (as_they_are, WAYS[later])):
        root = tmp_path / f"{before.__name__}-{after.__name__}"
        found: dict[str, list[str]] = {}
        for step, batches in ((before, BATCHES[:2]), (after, BATCHES[2:])):
            with Harness(job_of(step, keyed=keyed), root) as harness:
                for batch in batches:
                    harness.batch({"rows": batch})
                for name, rows in shown(harness).items():
                    found.setdefault(name, []).extend(rows)
                commit = harness.commit()
        counted = {what: count for what, count in commit.accounting.items() if not what.startswith("filter")}
        results.append((found, commit.sources["rows"].partitions, commit.watermarks_out, counted))
    assert results[0] == results[1]
    assert all(results[0][0][name] for name in ("raw", "w_out", "late_out", "f_out"))
