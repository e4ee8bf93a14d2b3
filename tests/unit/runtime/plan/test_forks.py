"""A source is read once in a batch, however many branches its graph has, and each branch is right (decision 73)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.base import Span, TaskReader
from penstock.sources.memory import MemoryReader
from penstock.testing import Harness
from penstock.testing.model import WindowModel
from penstock.windows import Tumbling

SCHEMA = "k string, t timestamp, v long, s struct<v: long>"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class CountingTaskReader:
    """Write a line to a file for each reading of a part of a span."""

    inner: TaskReader
    log: Path

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield what the other reader does, half of the rows in each part."""
        with self.log.open("a") as log:
            log.write(f"{span['chunks']} {split}\n")
        for table in self.inner.read(span, 0, 1):
            half = table.num_rows // 2
            yield table.slice(half) if split else table.slice(0, half)


class CountingReader(MemoryReader):
    """Read in two parts."""

    splits = 2

    def __init__(self, source: MemorySource, schema: pa.Schema, log: Path) -> None:
        super().__init__(source, schema)
        self.log = log

    def task_reader(self) -> Any:
        """Return the reader that counts."""
        return CountingTaskReader(super().task_reader(), self.log)


class CountingSource(MemorySource):
    """Count how often a part of a span is read."""

    def __init__(self, log: Path) -> None:
        super().__init__(SCHEMA)
        self.log = log

    def open(self, spark: Any) -> MemoryReader:
        """Return the reader that counts."""
        return CountingReader(self, super().open(spark).schema, self.log)


def summed(time: Any, key: Any, row: Any, state: Any) -> dict[str, Any]:
    total = state.get_or({"n": 0})["n"] + row["v"]
    state.update(n=total)
    return {"k": row["k"], "n": total}


def into_windows(stream: Stream, name: str, late: str | None = None) -> None:
    spec = Tumbling(seconds(10)).late_to(late) if late else Tumbling(seconds(10)).drop_late()
    aggregated = stream.key_by("k").window(f"{name}_step", spec).aggregate(n=agg.count(), total=agg.sum("v"))
    aggregated.write(name, MemorySink())


def into_state(stream: Stream, name: str) -> None:
    options = {"state": "n long", "output": "k string, n long", "unbounded": True}
    stream.key_by("k").map_with_state(f"{name}_step", summed, **options).write(name, MemorySink())


def only_filters(stream: Stream) -> None:
    for name, predicate in (("low", "v < 3"), ("high", "v >= 3"), ("none", "v > 99")):
        stream.filter(predicate).write(name, MemorySink())


def same_columns_beside_others(stream: Stream) -> None:
    stream.select("k", "v").write("two", MemorySink())
    stream.select("v").write("one", MemorySink())
    stream.select("s.*").write("fields", MemorySink())
    stream.write("all", MemorySink())


def steps(stream: Stream) -> None:
    into_windows(stream.filter("v <> 0").with_columns(v="12 DIV v"), "windows", late="late")
    into_state(stream.filter("v > 1"), "state")
    stream.filter("v < 4").select("upper(k) AS v", "v AS k").write("renamed", MemorySink())
    stream.with_columns(k="concat(k, '!')", v="v + 1").write("changed", MemorySink())


def behind_a_filter(stream: Stream) -> None:
    kept = stream.filter("v <> 0")
    kept.filter("12 DIV v > 3").write("large", MemorySink())
    kept.select("12 DIV v AS d").write("divided", MemorySink())


def transforms(stream: Stream) -> None:
    def twice(rows: Any) -> Any:
        return rows.unionAll(rows)

    doubled = stream.filter("v > 1").transform("twice", twice)
    doubled.filter("v < 3").write("some", MemorySink())
    doubled.write("doubled", MemorySink())
    into_windows(stream, "plain")
    stream.transform("only", lambda rows: rows.where("v = 2")).write("less", MemorySink())


GRAPHS: dict[str, Callable[[Stream], None]] = {
    f.__name__: f for f in (only_filters, same_columns_beside_others, steps, behind_a_filter, transforms)
}


def job_of(graph: str, log: Path, partitions: int = 2) -> Job:
    job = Job("forked", partitions=partitions)
    stream = job.source("rows", CountingSource(log), event_time="t", max_out_of_order=seconds(2))
    GRAPHS[graph](stream)
    if graph == "steps":
        job.late("late").write("late_out", MemorySink())
        job.quarantine("rows").write("bad", MemorySink())
    return job


def row(k: str | None, t: float | None, v: int | None) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v, "s": {"v": 7}}


def random_batches(seed: int) -> list[Rows]:
    draw = Random(seed)
    given = [
        [
            row(
                draw.choice(["a", "b", "c", None]),
                draw.choice([None, *([5.0 * batch + draw.randrange(12)] * 7)]),
                draw.choice([None, 0, 1, 2, 3, 4, 5]),
            )
            for _ in range(draw.randrange(5, 15))
        ]
        for batch in range(4)
    ]
    return [*given, [row("a", 100.0, 1)]]


def key(row: Any) -> str:
    return repr(tuple(row.values()) if isinstance(row, dict) else row)


def expected(graph: str, rows: Rows) -> dict[str, Rows]:
    """Return what plain Python makes of all rows that are not in quarantine, but for windows and state."""
    return {
        "only_filters": {
            "low": [r for r in rows if r["v"] is not None and r["v"] < 3],
            "high": [r for r in rows if r["v"] is not None and r["v"] >= 3],
            "none": [],
        },
        "same_columns_beside_others": {
            "two": [{"k": r["k"], "v": r["v"]} for r in rows],
            "one": [{"v": r["v"]} for r in rows],
            "fields": [{"v": 7} for _ in rows],
            "all": rows,
        },
        "steps": {
            "renamed": [
                {"v": r["k"] and r["k"].upper(), "k": r["v"]} for r in rows if r["v"] is not None and r["v"] < 4
            ],
            "changed": [{**r, "k": r["k"] and r["k"] + "!", "v": None if r["v"] is None else r["v"] + 1} for r in rows],
        },
        "behind_a_filter": {
            "large": [r for r in rows if r["v"] and 12 // r["v"] > 3],
            "divided": [{"d": 12 // r["v"]} for r in rows if r["v"]],
        },
        "transforms": {
            "some": [r for r in rows if r["v"] == 2 for _ in range(2)],
            "doubled": [r for r in rows if r["v"] is not None and r["v"] > 1 for _ in range(2)],
            "less": [r for r in rows if r["v"] == 2],
        },
    }[graph]


def states(batches: list[Rows]) -> Rows:
    totals: dict[str | None, int] = {}
    emitted = []
    for r in (r for batch in batches for r in batch if r["t"] is not None and r["v"] is not None and r["v"] > 1):
        totals[r["k"]] = totals.get(r["k"], 0) + r["v"]
        emitted.append({"k": r["k"], "n": totals[r["k"]]})
    return emitted


def windows(batches: list[Rows], passes: Callable[[dict[str, Any]], bool], value: Callable[[int], int]) -> list[Any]:
    """Return windows and late rows of the model, with the watermark that all rows of the source make."""
    model = WindowModel(
        Tumbling(seconds(10)), ("k",), {"n": agg.count(), "total": agg.sum("v")}, lambda r: round(r["t"] * 1_000_000)
    )
    mark = None
    closed, late = [], []
    for batch in batches:
        timed = [r for r in batch if r["t"] is not None]
        taken = [{**r, "v": None if r["v"] is None else value(r["v"])} for r in timed if passes(r)]
        for part in (taken, []):
            model_batch = model.batch(part, late=mark, close=mark)
            closed += model_batch.windows
            late += model_batch.late
            if part is taken and timed:
                highest = max(round((r["t"] - 2) * 1_000_000) for r in timed)
                mark = highest if mark is None else max(mark, highest)
    return [closed, late]


STATELESS = ("only_filters", "same_columns_beside_others", "behind_a_filter")


CASES = [
    *((graph, 2) for graph in GRAPHS),
    *(pytest.param(g, p, marks=pytest.mark.soak) for g in GRAPHS if g not in STATELESS for p in (1, 8)),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("graph", "partitions"), CASES)
def test_every_branch_of_a_fork_gives_what_the_model_gives(tmp_path: Path, graph: str, partitions: int) -> None:
    """Rows that one branch drops, names that another gives, late rows and state: through restarts (SEMANTICS 1.6, 2).

    Each part of the source is read once in a batch (P6), also where a transform takes the rows, even twice.
    """
    batches, log = random_batches(partitions), tmp_path / "log"
    with Harness(job_of(graph, log, partitions), tmp_path / "root") as h:
        for number, batch in enumerate(batches):
            h.batch({"rows": batch})
            if number == 1:
                h.restart()
        shown = {
            name: [{**r, "t": r["t"].timestamp()} if "t" in r else r for r in rows] for name, rows in h.output().items()
        }
        passed = [r for batch in batches for r in batch if r["t"] is not None]
        for name, rows in expected(graph, passed).items():
            assert sorted(map(key, shown[name])) == sorted(map(key, rows)), name
        if graph == "steps":
            assert sorted(map(key, shown["state"])) == sorted(map(key, states(batches)))
            assert len(shown["bad"]) == sum(r["t"] is None for batch in batches for r in batch)
            check_windows(
                shown["windows"], shown["late_out"], windows(batches, lambda r: bool(r["v"]), lambda v: 12 // v)
            )
        read = Counter(log.read_text().splitlines())
        assert len(read) >= 2 * len(batches)
        assert set(read.values()) == {1}
        if graph == "transforms":
            check_windows(shown["plain"], None, windows(batches, lambda r: True, lambda v: v))


def check_windows(shown: Rows, late: Rows | None, made: list[Any]) -> None:
    closed, late_rows = made
    places = {(w.start, w.end, w.key[0]): w.results for w in closed}
    assert len(shown) == len(places) > 0
    for row in shown:
        start, end = (round(row[c].timestamp() * 1e6) for c in ("window_start", "window_end"))
        results = places[start, end, row["k"]]
        assert all(value.matches(row[name]) for name, value in results.items())
    if late is not None:
        assert sorted((r["k"] or "", r["t"], r["v"]) for r in late) == sorted(
            (r["k"] or "", r["t"], r["v"]) for r in late_rows
        )
