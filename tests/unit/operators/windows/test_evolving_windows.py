"""Aggregates come, go and come back while windows are open: all strategies keep one rule (docs/compatibility.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import HASHED, MAIN, TIME, StepFacts
from penstock.operators.schema_evolution import Evolution
from penstock.operators.windows.time_windows import WindowStep, preaggregate
from penstock.operators.windows.window_step import WindowStepWork
from penstock.runtime.tasks.partition_state import main_table
from penstock.state.full_compaction import fold
from penstock.state.references import segment_name
from penstock.testing.model import windows_at
from tests.support.slice_disk import SliceDisk
from tests.support.window_samples import rows_of_branch

KEYS = pa.schema([("k", pa.int64())])
TUMBLING, HOPPING, SLIDING = (TimeWindow(size=12, every=every) for every in (12, 4, 1))
AS_DECIMAL, AS_DOUBLE = "cast(i as decimal(38, 0))", "cast(i as double)"
COLUMNS = {"i": ("i", pa.int64()), "j": ("j", pa.int64()), "d": ("d", pa.float64()), "n": ("n", pa.int64())} | {
    AS_DECIMAL: ("i_decimal", pa.decimal128(38, 0)),
    AS_DOUBLE: ("i_double", pa.float64()),
}
"""By expression, the column that has its values, and its type; the columns of casts are those of `i`."""
EXACT = ["count()", "count(i)", "sum(i)", "sum(j)", f"sum({AS_DECIMAL})", "count(n)", "sum(n)"]
INEXACT = [
    *("sum(d)", "mean(d)", "mean(i)", "mean(n)", "count(d)", "min(i)", "max(d)", "var_pop(d)", "stddev_samp(d)"),
    *("count_distinct(n)", "approx_count_distinct(i)"),
    *("first(i)", "first(j)", "first(n)", "last(i)", "last(d)", "last(n)", f"sum({AS_DOUBLE})", "mean(j)"),
]


def bound(text: str) -> Aggregate:
    """Return an aggregate of `kind(expression)`."""
    kind, _, inner = text.partition("(")
    return Aggregate(AggregateKind(kind), inner.removesuffix(")") or None)


def spec_of(window: TimeWindow, aggregates: Sequence[str]) -> WindowStep:
    """Return a step whose aggregates are named by what they are."""
    named = {text: bound(text) for text in aggregates}
    types = {text: None if a.expression is None else COLUMNS[a.expression][1] for text, a in named.items()}
    return WindowStep(window=window, plan=AggregatePlan.build(named, types), keys=KEYS)


def hash_of(key: int) -> int:
    """Return a hash that is spread over all there are."""
    return (key * 7046029254386353131) % 2**64 - 2**63


def delta(spec: WindowStep, rows: Sequence[Mapping[str, Any]], batch: int) -> pa.Table:
    """Return what the map side makes of rows."""
    table = pa.table(
        {
            "k": pa.array([row["k"] for row in rows], pa.int64()),
            "h": pa.array([hash_of(row["k"]) for row in rows], pa.int64()),
            TIME: pa.array([row["t"] for row in rows], pa.int64()),
            "p": pa.array(range(len(rows)), pa.int64()),
        }
        | {name: pa.array([row[name] for row in rows], kind) for name, kind in COLUMNS.values()}
    )
    branch = rows_of_branch(table, ["k"], {sql: column for sql, (column, _) in COLUMNS.items()})
    return preaggregate(branch, (batch, 0, 0, "p"), plan=spec.plan, window=spec.window)


def row_of(key: int, time: int, value: int, batch: int) -> dict[str, Any]:
    """Return a row; every third has a null, and its batch stands beside it."""
    row = {"k": key, "t": time, "i": value, "j": -3 * value, "d": value / 4, "n": value if value % 3 else None}
    return row | {"i_decimal": Decimal(value), "i_double": float(value), "batch": batch}


# --- the rule, in plain Python ---------------------------------------------------------------
KEPT_BY = {
    "sum(d)": ["mean(d)"],
    "mean(d)": ["sum(d)"],
    "var_pop(d)": ["stddev_samp(d)"],
    "stddev_samp(d)": ["var_pop(d)"],
    "mean(i)": ["sum(i)"],
    "mean(j)": ["sum(j)"],
    "mean(n)": ["sum(n)"],
    "count(i)": ["sum(i)", "mean(i)"],
    "count(n)": ["sum(n)", "mean(n)"],
    "count(d)": ["sum(d)", "mean(d)", "var_pop(d)", "stddev_samp(d)"],
    f"sum({AS_DECIMAL})": ["sum(i)"],
    f"sum({AS_DOUBLE})": ["sum(i)", "mean(i)"],
}
"""What an aggregate that is new goes on from, where one of these is kept: the best first."""


def known_since(aggregates: Sequence[str], before: Mapping[str, int] | None, batch: int) -> dict[str, int]:
    """Return from which batch on each aggregate counts rows: kept ones as before, new ones from this batch on."""
    since = {}
    for text in aggregates:
        if before is None or text == "count()":
            since[text] = 0
        else:
            since[text] = next((before[kept] for kept in [text, *KEPT_BY.get(text, [])] if kept in before), batch)
    return since


def squares(values: list[float]) -> float:
    """Return the sum of squared distances from the mean."""
    return sum((value - sum(values) / len(values)) ** 2 for value in values)


EDGES = (AggregateKind.FIRST, AggregateKind.LAST)
RESULTS = {
    AggregateKind.COUNT: len,
    AggregateKind.FIRST: lambda values: values[0] if values else None,
    AggregateKind.LAST: lambda values: values[-1] if values else None,
    AggregateKind.SUM: lambda values: sum(values) if values else None,
    AggregateKind.MEAN: lambda values: sum(values) / len(values) if values else None,
    AggregateKind.MIN: lambda values: min(values, default=None),
    AggregateKind.MAX: lambda values: max(values, default=None),
    AggregateKind.COUNT_DISTINCT: lambda values: len({*values}),
    AggregateKind.APPROX_COUNT_DISTINCT: lambda values: len({*values}),
    AggregateKind.VAR_POP: lambda values: squares(values) / len(values) if values else None,
    AggregateKind.STDDEV_SAMP: lambda values: (squares(values) / (len(values) - 1)) ** 0.5 if values[1:] else None,
}


def result(text: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return an aggregate of rows, in order of time and arrival."""
    aggregate = bound(text)
    if aggregate.expression is None:
        return len(rows)
    column = COLUMNS[aggregate.expression][0]
    everything = [row[column] for row in rows]
    values = [value for value in everything if value is not None]
    return RESULTS[aggregate.kind](everything if aggregate.kind in EDGES else values)


def windows_of(
    rows: Sequence[Mapping[str, Any]], window: TimeWindow, passed: int, mark: int, since: Mapping[str, int]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return, by key and end, the windows that end after one watermark and not after the next."""
    held: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["t"]):
        for _, end in windows_at(row["t"], window):
            # A window that had closed before the row came does not count it.
            if passed < end <= mark and end > row["late"]:
                held.setdefault((row["k"], end), []).append(row)
    return {
        place: {text: result(text, [row for row in counted if row["batch"] >= batch]) for text, batch in since.items()}
        for place, counted in held.items()
    }


# --- the engine against it -------------------------------------------------------------------
class Job:
    """One partition of a window step whose code changes, and all rows that it was ever given."""

    def __init__(self, window: TimeWindow, root: Path) -> None:
        self.window, self.root, self.rows, self.mark, self.batches = window, root, [], 0, 0
        self.since: dict[str, int] | None = None
        self.disk: SliceDisk | None = None
        self.kept: list[tuple[Any, ...]] = []

    def version(self, aggregates: Sequence[str], way: str) -> None:
        """Go on with other code, in one of the ways that there are."""
        if way == "restore" and self.kept:
            ref, self.rows, self.mark, self.since, root = self.kept[len(self.kept) // 2]
            self.rows, self.root = list(self.rows), root
        else:
            ref = None if self.disk is None else self.disk.ref
        self.disk = SliceDisk(spec_of(self.window, aggregates), self.root, ref, self.batches)
        assert self.disk.work.evolution(self.disk.state()).refused == ()
        self.since = known_since(aggregates, self.since, self.batches)
        if way == "rescale" and ref is not None:
            self.rewrite()
        if way == "fold" and ref is not None:
            self.fold()

    def rewrite(self) -> None:
        """Write the state anew, as for another number of partitions; a later restore finds the old one in its place."""
        work, state = self.disk.work, self.disk.state()
        shown = main_table(work, state)
        shown = shown.append_column(HASHED, pa.array([hash_of(k) for k in shown["k"].to_pylist()], pa.int64()))
        made = work.rebuilt({MAIN: shown}, StepFacts(batch=self.batches, time=0, watermark=self.mark))
        self.root = self.root.with_name(f"{self.root.name}x")
        self.disk = SliceDisk(work, self.root, None, self.batches)
        self.disk.write(0, self.disk.state(), made.change)
        self.batches += 1
        self.disk.batches = self.batches

    def fold(self) -> None:
        """Let a data checkpoint that this version's driver makes stand in the place of the runs."""
        state = self.disk.state()
        name = segment_name(self.batches - 1, epoch=9, attempt=self.batches, run="fedcba987654")
        folding = fold(state, name, batch=self.batches - 1, parts=self.disk.work.parts, at_once=4096)
        while True:
            try:
                next(folding)
            except StopIteration as end:
                base = end.value
                break
        self.disk.base = {"path": base.path, "size": base.size, "checksum": base.checksum}

    def batch(self, moved: int, given_rows: Sequence[tuple[int, int, int]]) -> None:
        """Run a batch, and look at every window that closes."""
        before, self.mark = self.mark, self.mark + moved
        oldest = next(t for t in range(self.mark - 30, self.mark + 30) if windows_at(t, self.window)[-1][1] > self.mark)
        rows = [row_of(k, max(self.mark + t, oldest), v, self.batches) for k, t, v in given_rows]
        self.rows += [row | {"late": self.mark} for row in rows]
        spec, since = self.disk.work, self.since
        expected = windows_of(self.rows, self.window, before, self.mark, since)
        output = self.disk.batch([delta(spec, rows, self.batches)], late=self.mark, close=self.mark).output.to_pylist()
        self.batches += 1
        self.kept.append((self.disk.ref, list(self.rows), self.mark, self.since, self.root))
        self.facts = dict(self.disk.state().facts)
        assert {(row["k"], round(row["window_end"].timestamp() * 1e6)) for row in output} == expected.keys()
        for row in output:
            place = (row["k"], round(row["window_end"].timestamp() * 1e6))
            assert {text: row[text] for text in since} == pytest.approx(expected[place]), place


def pool(draw, names: list[str]) -> list[str]:
    return draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))


BATCHES = st.lists(
    st.tuples(
        st.integers(0, 4), st.lists(st.tuples(st.integers(0, 5), st.integers(-14, 4), st.integers(-9, 9)), max_size=6)
    ),
    max_size=6,
)


WAYS = ["restart", "restart", "restore", "rescale", "fold"]


@st.composite
def histories(draw) -> tuple[TimeWindow, list[tuple[str, list[str], list]]]:
    """Draw a window, and versions: how each starts, its aggregates, and the batches that it runs."""
    window = draw(st.sampled_from([TUMBLING, HOPPING, SLIDING]))
    names = draw(st.sampled_from([EXACT, EXACT + INEXACT]))
    versions = st.tuples(st.sampled_from(WAYS), st.just(None), BATCHES)
    return window, [
        (way, pool(draw, names), batches) for way, _, batches in draw(st.lists(versions, min_size=2, max_size=6))
    ]


def run(window: TimeWindow, versions: Sequence[tuple[str, Sequence[str], Sequence[Any]]]) -> Job:
    """Run the versions of a job, each for a batch at least: one that runs none has changed nothing."""
    with tempfile.TemporaryDirectory() as root:
        job = Job(window, LocalFolder(root) / "state")
        for way, aggregates, batches in versions:
            job.version(aggregates, way)
            for moved, rows in batches or [(0, [])]:
                job.batch(moved, rows)
        job.batch(40, [])
        return job


SOME = [(1, [(0, 0, 5), (1, 0, 2), (0, -6, 1)])] * 4
BACK = [("restart", ["sum(i)", "count()"]), ("restart", ["count()"]), ("restart", ["count()", "sum(i)"])]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.fault("F51")
@pytest.mark.parametrize("window", [TUMBLING, HOPPING, SLIDING], ids=["tumbling", "hopping", "sliding"])
@pytest.mark.parametrize("beside", [[], ["max(d)"]], ids=["exact", "inexact"])
@pytest.mark.parametrize("way", ["restart", "rescale", "fold"])
def test_an_aggregate_that_was_away_begins_anew(window: TimeWindow, beside: list[str], way: str) -> None:
    """DESIGN 5: what is dropped is gone; added again it counts the rows from then on, and no slide takes off more."""
    versions = [(way, [*aggregates, *beside], SOME[:1]) for _, aggregates in BACK]  # too few to be merged
    run(window, [*versions, ("restart", [*BACK[-1][1], *beside], SOME * 5)])


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["count(n)"], ["count(n)", "mean(n)"]),
        (["count(n)"], ["sum(n)"]),
        (["mean(i)"], ["sum(i)", "mean(i)"]),
        (["first(i)"], ["first(j)", "first(i)"]),
        (["last(n)"], ["last(n)", "last(d)"]),
        (["sum(i)"], [f"sum({AS_DECIMAL})", "mean(i)"]),
    ],
)
@pytest.mark.parametrize("window", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_an_aggregate_is_new_as_a_whole(window: TimeWindow, before: list[str], after: list[str]) -> None:
    """DESIGN 5: a mean never divides the sum of some rows by the count of others; a first has its own first row."""
    run(window, [("restart", before, SOME), ("restart", after, SOME * 4)])


@pytest.mark.slow
def test_what_is_said_of_older_versions_goes_with_their_rows() -> None:
    """DESIGN 5: the facts do not grow with each change of the code, nor do segments say what is theirs."""
    job = run(SLIDING, [("restart", aggregates, SOME * 6) for _, aggregates in BACK * 3])
    facts = job.facts
    assert facts["generation"] == 6
    assert "older" not in facts


def test_state_that_never_changed_says_nothing_of_it() -> None:
    """DESIGN 7: what a change needs costs nothing where there is none."""
    assert run(SLIDING, [("restart", ["sum(i)"], SOME)]).facts.keys() & {"generation", "older"} == {"generation"}


@pytest.mark.slow
@pytest.mark.fault("F51")
@settings(max_examples=examples(24), deadline=None)
@given(history=histories())
def test_an_aggregate_counts_the_rows_since_it_was_added_last(history) -> None:
    """DESIGN 5: whatever is added, dropped, moved and added again, with batches between, in every strategy."""
    run(*history)


@pytest.mark.parametrize(
    ("kind", "form"),
    [(AggregateKind.COUNT_DISTINCT, "{}"), (AggregateKind.APPROX_COUNT_DISTINCT, "{} in theta sketches")],
    ids=["exact", "about"],
)
@pytest.mark.parametrize(
    ("was", "now"),
    [(pa.int32(), pa.int64()), (pa.int64(), pa.string()), (pa.float64(), pa.decimal128(10, 2))],
    ids=["wider", "text", "decimal"],
)
def test_values_of_another_type_are_refused(kind, form, was, now) -> None:
    """3.3: the hash of a number depends on its type, so a value of both types would count twice."""
    before, after = (
        WindowStepWork(
            window=TUMBLING,
            plan=AggregatePlan.build({"n": agg.count(), "x": Aggregate(kind, "v")}, {"x": of}),
            keys=KEYS,
        )
        for of in (was, now)
    )
    evolution = after.evolved(before.layout_name, KEYS.names, before.layout.schema)
    assert evolution.refused == (
        f"{kind.value}(v) counted values of {form.format(was)}, and is to count those of {form.format(now)}",
    )
    assert before.evolved(before.layout_name, KEYS.names, before.layout.schema) == Evolution()
    less = WindowStepWork(window=TUMBLING, plan=AggregatePlan.build({"n": agg.count()}, {}), keys=KEYS)
    assert after.evolved(less.layout_name, KEYS.names, less.layout.schema).refused == ()
    assert less.evolved(after.layout_name, KEYS.names, after.layout.schema).refused == ()


def test_lists_of_hashes_are_refused() -> None:
    """Decision 185: sketches were lists of hashes, of which no theta sketch can be made."""
    plan = AggregatePlan.build({"n": agg.count(), "x": agg.approx_count_distinct("v")}, {"x": pa.int64()})
    work = WindowStepWork(window=TUMBLING, plan=plan, keys=KEYS)
    before = work.layout_name.replace(" in theta sketches", "")
    assert before != work.layout_name
    assert work.evolved(before, KEYS.names, work.layout.schema).refused == (
        "approx_count_distinct(v) counted values of int64, and is to count those of int64 in theta sketches",
    )
