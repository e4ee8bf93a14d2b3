"""Rows whose SQL is simple go from their source to their step in Python: with the same results (2.7, 2.10, 9.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.errors import UserFunctionError
from penstock.graph.job import Stream
from penstock.quality import OnFail
from penstock.runtime.plan.arrow_path import ArrowBranch, plain_rows
from penstock.runtime.plan.job_plan import plan_job
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.base import Source, SplitReader, Waiting, with_hidden
from penstock.sources.records import arrow_schema
from penstock.state import idle
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(4, of="ways into Python")

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


def begins(build: Callable[[Stream], Any], *, aside: bool = False, **source: Any) -> ArrowBranch | None:
    """Return what the one branch of a job that leads somewhere is said to read."""
    job = Job("asked", partitions=1)
    given = {"event_time": "t", **({"max_out_of_order": seconds(0)} if source.get("event_time", "t") else {}), **source}
    build(job.source("rows", MemorySource("user string"), **given))
    branch = next(b for b in plan_job(job.graph()).branches() if b.leaves)
    return plain_rows(branch, COLUMNS, aside=aside, computing=True, stem=len(branch.chain))


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
    "a filter": lambda s: sink(s.filter("n > 0 AND user IS NOT NULL")),
    "a new column": lambda s: sink(s.with_columns(y="n", x="x * 2.5")),
    "an expression": lambda s: sink(s.select("*", "n + 1 AS m2")),
    "a window over what a filter has left": lambda s: total(s.filter("n % 2 = 0").with_columns(z="n div 2"), "z"),
}
NOT_PLAIN: dict[str, Callable[[Stream], Any]] = {
    "a function of SQL": lambda s: sink(s.filter("length(user) > 1")),
    "a long list": lambda s: sink(s.filter(f"n IN ({', '.join(map(str, range(1_000)))})")),
    "a filter over decimals": lambda s: sink(s.filter("m > 0")),
    "a filter that is no boolean": lambda s: sink(s.filter("n + 1")),
    "a new column of other letters": lambda s: sink(s.with_columns(N="n + 1")),
    "a new column with a name of Penstock's": lambda s: sink(s.with_columns(_penstock_x="n + 1")),
    "a function of frames": lambda s: sink(s.transform("same", lambda rows: rows)),
    "an expression without a name": lambda s: sink(s.select("n + 1")),
    "an integer beside a fraction": lambda s: sink(s.select("n + 0.5 AS y")),
    "a comment": lambda s: sink(s.filter("n > 1 --")),
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
def test_names_of_columns_and_simple_expressions_need_no_java(name: str) -> None:
    """Whatever follows them."""
    assert begins(PLAIN[name]) is not None


def test_what_only_one_of_several_branches_computes_is_left_to_spark() -> None:
    """A column of one name would have two meanings; and where nothing is to be computed, all is."""
    job = Job("asked", partitions=1)
    rows = job.source("rows", MemorySource("user string"), event_time=None).filter("n > 0")
    rows.write("raw", MemorySink())
    sink(rows.with_columns(n="n + 1"))
    (fork,) = plan_job(job.graph()).ingest
    asked = {"aside": False, "stem": len(fork.stem)}
    for computing, plain in ((True, ["filter"]), (False, [])):
        starts = [(b, plain_rows(b, COLUMNS, computing=computing, **asked)) for b in fork.branches]
        assert ["filter" for b, start in starts if start is not None and len(b.chain) == 1] == plain
        assert all(start is None for b, start in starts if len(b.chain) == 2)


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_all_else_is_left_to_spark(name: str) -> None:
    """Other expressions, and what is wrong or may mean something else: it is taken, or refused, as it was."""
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
    [
        row("b", -0.0, 9, 40.0),
        {**row("a", 1.5, 3, 41.0), "n": "no number"},
        row("a", 1.5, 10, 2.0),
        row("é" * 40, -0.0, 11, 41.0),
    ],
]


def is_plain(job: Job) -> list[bool]:
    """Return which branches of a job over `SCHEMA` read rows as they are."""
    columns = arrow_schema(SCHEMA)
    plan = plan_job(job.graph())
    return [
        plain_rows(b, columns, aside=False, computing=True, stem=len(fork.stem)) is not None
        for fork in plan.ingest
        for b in fork.branches
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
    options = {"state": "n int", "output": "what string, rows int", "timeout": idle(seconds(1))}
    rows.key_by(*keyed).map_with_state("f", seen, **options).write("f_out", MemorySink())
    return job


def shown(harness: Harness) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows)) for name, rows in harness.output().items()}


def through_sql(stream: Stream) -> Stream:
    return stream.filter("length('a') = 1")


LISTED = ", ".join(map(str, range(50, 130)))
COMPUTED = (
    f"n > 1 AND NOT (x = 0.0 OR user IS NULL) OR unix_seconds(t) > 11 AND n NOT IN ({LISTED})",
    "n * 2 % 5 - unix_millis(t) div 1000",
)


def computed(stream: Stream) -> Stream:
    """Lead rows through a filter and a new column, and replace another one."""
    return stream.filter(COMPUTED[0]).with_columns(y=COMPUTED[1], n="n % 4").select("*", "x / 2.0 AS h")


def computed_by_spark(stream: Stream) -> Stream:
    """Lead rows through the same, which a function of SQL leaves to Spark."""
    return through_sql(computed(stream))


def as_they_are(stream: Stream) -> Stream:
    return stream


WAYS = {
    "as they are": (as_they_are, as_they_are),
    "then through SQL": (as_they_are, through_sql),
    "through SQL before": (through_sql, as_they_are),
}


@pytest.mark.sample(3)
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("keyed", [("user",), ("x",), ("user", "x"), ("t",)], ids="-".join)
@pytest.mark.parametrize("way", WAYS)
def test_both_ways_give_the_same(tmp_path: Path, keyed: tuple[str, ...], way: str) -> None:
    """Keys of NaN and of both zeros, null keys, null and far event times, late rows; and state finds its keys again.

    A job that gets its first expression, or loses its last, goes on with the state that the other way has made.
    """
    assert is_plain(job_of(as_they_are, keyed=keyed)) == [True]
    assert is_plain(job_of(through_sql, keyed=keyed)) == [False]
    results = []
    for before, after in ((through_sql, through_sql), WAYS[way]):
        root = tmp_path / f"{before.__name__}-{after.__name__}"
        output: dict[str, list[str]] = {}
        for step, batches in ((before, BATCHES[:2]), (after, BATCHES[2:])):
            with Harness(job_of(step, keyed=keyed), root) as harness:
                for batch in batches:
                    harness.batch({"rows": batch})
                for name, rows in shown(harness).items():
                    output.setdefault(name, []).extend(rows)
                commit = harness.commit()
        counted = {what: count for what, count in commit.accounting.items() if not what.startswith("filter")}
        results.append((output, commit.sources["rows"].partitions, commit.watermarks_out, counted))
    assert results[0] == results[1]
    assert all(results[0][0][name] for name in ("raw", "w_out", "late_out", "f_out"))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_tasks_compute_what_spark_computes(tmp_path: Path) -> None:
    """A filter counts its rows (2.10), and what it drops does not fail what follows; null times stay in quarantine."""
    assert is_plain(job_of(computed, keyed=("user",))) == [True]
    assert is_plain(job_of(computed_by_spark, keyed=("user",))) == [False]
    results = []
    for step in (computed, computed_by_spark):
        with Harness(job_of(step, keyed=("user", "x")), tmp_path / step.__name__) as harness:
            filters = []
            for batch in BATCHES:
                harness.batch({"rows": batch})
                counted = harness.commit().accounting
                filters.append([count for name, count in sorted(counted.items()) if name.startswith("filter")][:1])
            results.append((shown(harness), filters, harness.commit().sources["rows"].partitions))
    assert results[0] == results[1]
    assert any(count["filtered"] for counts in results[0][1] for count in counts)
    assert len(results[0][0]["raw"]) > 3


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_value_that_no_task_finds_is_sparks_to_find_or_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum beyond its type, where SQL would not have looked, goes through Spark; otherwise its error is raised.

    Spark computes a batch after it as well, and then the tasks do again.
    """
    monkeypatch.setattr("penstock.runtime.spark.expression_turns._FIRST", 1)
    job = Job("beyond", partitions=1)
    rows = job.source("rows", MemorySource("n int, m int"), event_time=None)
    rows.filter("n = 0 OR m % n = 0").with_columns(s="m + 1").write("out", MemorySink())
    with Harness(job, tmp_path / "root") as harness:
        harness.batch({"rows": [{"n": 2, "m": 4}]})
        turns = harness._running().engine._turns
        assert turns.in_tasks
        assert harness.batch({"rows": [{"n": 0, "m": 4}, {"n": 2, "m": 3}]})["out"] == [{"n": 0, "m": 4, "s": 5}]
        for in_tasks in (False, True):
            assert turns.in_tasks == in_tasks
            assert harness.batch({"rows": [{"n": 2, "m": 6}]})["out"] == [{"n": 2, "m": 6, "s": 7}]
        with pytest.raises(UserFunctionError, match=r"ARITHMETIC_OVERFLOW.*m \+ 1"):
            harness.batch({"rows": [{"n": 1, "m": 2**31 - 1}]})


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_branches_of_one_source_go_their_own_ways_and_meet_again(tmp_path: Path) -> None:
    """One with an expression, one without, into the same step: each row counts once on each, in order of arrival."""
    job = Job("meet", partitions=2)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
    both = rows.select("user", "n", "t").union(rows.filter("n > 1").select("user", "n", "t"))
    assert sorted(is_plain(job_with(both, job))) == [False, True]
    with Harness(job, tmp_path / "root") as harness:
        harness.batch({"rows": [row("a", None, n, float(n)) for n in (1, 2, 3)]})
        closed = harness.batch({"rows": [row("b", None, 1, 30.0)]})["w_out"]
    assert [(window["user"], window["c"], window["s"], window["first"], window["last"]) for window in closed] == [
        ("a", 5, 11, 1, 3)
    ]


def job_with(stream: Stream, job: Job) -> Job:
    """End a stream in a window."""
    window = stream.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
    sums = window.aggregate(c=agg.count(), s=agg.sum("n"), first=agg.first("n"), last=agg.last("n"))
    sums.write("w_out", MemorySink())
    return job


class Sliced(Source, SplitReader):
    """A source of its own kind: chunks that are slices of one array, lists whose items have Arrow's name, metadata."""

    schema = pa.schema(
        [pa.field("k", pa.string(), metadata={"delta.invariants": "k > 0"}), ("a", pa.list_(pa.int32()))],
        metadata={"made by": "somebody else"},
    )
    splits = 2

    def open(self, _spark: Any) -> Sliced:
        """Return the reader."""
        return self

    def backlog(self, after: Any) -> dict[str, Waiting]:
        """Return all rows at once."""
        return {"0": Waiting.of_rows(after["at"] if after else 0, 60)}

    def position(self, _after: Any, ends: Any) -> dict[str, int]:
        """Return the number of rows that are read."""
        return {"at": ends["0"]}

    def span(self, start: Any, end: Any) -> dict[str, int]:
        """Return all rows, or none."""
        return {"first": 60 if start else 0}

    def verify(self, span: Any) -> None:
        """It cannot change."""

    def ended(self, position: Any) -> bool:
        """Return whether all was read."""
        return position is not None

    def rows(self, span: Any) -> int:
        """Return how many rows a span has."""
        return 60 - int(span["first"])

    def partitions(self, _span: Any) -> tuple[str, ...]:
        """Return the one partition."""
        return ("0",)

    def task_reader(self) -> Sliced:
        """Return the reader."""
        return self

    def read(self, span: Any, split: int, splits: int) -> Any:
        """Yield the rows of a split, in three tables, one of them empty."""
        keys = pa.array([f"{'long ' * (n % 9)}{n % 7}" for n in range(60)])
        lists = pa.array([[n] for n in range(60)], pa.list_(pa.int32()))
        if span["first"]:
            return
        for first, size in ((split * 30, 11), (0, 0), (split * 30 + 11, 19)):
            table = pa.table([keys.slice(first, size), lists.slice(first, size)], schema=self.schema)
            yield with_hidden(table, 0, pa.array(range(first, first + size), pa.int64()))


@pytest.mark.spark
def test_what_a_source_of_another_kind_yields_is_as_spark_would_have_it(tmp_path: Path) -> None:
    """Types down to the names inside, which state is kept under, no metadata; and each key finds its rows."""
    outcomes = []
    for step in (as_they_are, through_sql):
        job = Job("sliced", partitions=3)
        options = {"state": "n int", "output": "k string, n int, last array<int>", "unbounded": True}
        rows = step(job.source("rows", Sliced()))
        rows.write("raw", MemorySink())
        rows.key_by("k").map_with_state("f", numbered, **options).write("f_out", MemorySink())
        with Harness(job, tmp_path / step.__name__) as harness:
            harness.batch()
            schemas = harness._running().engine.built.sink_schemas
            outcomes.append((shown(harness), {name: (str(s), s.metadata) for name, s in schemas.items()}))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][0]["f_out"]) == 60


def numbered(_time: Any, key: str, given: dict[str, Any] | None, state: Any) -> dict[str, Any] | None:
    """Number the rows of a key."""
    if given is None:
        return None
    held = state.get_or(None) or {"n": 0}
    state.update({"n": held["n"] + 1})
    return {"k": key, "n": held["n"] + 1, "last": given["a"]}
