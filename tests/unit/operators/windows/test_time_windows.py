"""Time windows against a plain-Python oracle, batch after batch, with a restart and perhaps a compaction between."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg, seconds
from penstock.errors import AccumulatorTooLarge, IntegerOverflow, JobError, StateError
from penstock.graph.aggregates import Aggregate
from penstock.graph.policies import Accumulation, LatenessRule
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import TIME
from penstock.operators.windows.lateness import judge
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.slices import END_OF_TIME
from penstock.operators.windows.time_windows import Strategy, WindowStep, preaggregate, step
from penstock.testing.model import ModelBatch, WindowModel
from penstock.windows import Cumulative, Sliding, Tumbling
from tests.support.slice_memory import Done, SliceMemory, whole_step
from tests.support.window_samples import growing, rows_of_branch

pytestmark = pytest.mark.sample(12, of="time windows")

MANY = importlib.import_module("penstock.operators.windows.window_batch_close")
TIME_WINDOWS = importlib.import_module("penstock.operators.windows.time_windows")


@pytest.fixture(scope="module", autouse=True, params=[0, MANY.COPIES_WORTH_A_WINDOW], ids=["one by one", "together"])
def _both_ways(request):
    """Every claim holds whether many due windows are made one after the other or all at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MANY, "COPIES_WORTH_A_WINDOW", request.param)
        yield


KEYS = pa.schema([("user", pa.string()), ("level", pa.float64())])
TOP = agg.top_k("w", 2, by="d")
TOP_INPUT = pa.struct([("by", pa.float64()), ("value", pa.string())])
TYPES = {
    "v": pa.int64(),
    "d": pa.float64(),
    "m": pa.decimal128(10, 2),
    "w": pa.string(),
    str(TOP.expression): TOP_INPUT,
}
EXACT = {
    "n": agg.count(),
    "some": agg.count("v"),
    "total": agg.sum("v"),
    "money": agg.sum("m"),
    "kinds": agg.count_distinct("d"),
    "middle": agg.approx_quantile("m", 0.5),
}
ALL = EXACT | {
    "sum": agg.sum("d"),
    "mean": agg.mean("d"),
    "price": agg.mean("m"),
    "low": agg.min("d"),
    "high": agg.max("v"),
    "word": agg.max("w"),
    "spread": agg.var_pop("d"),
    "dev": agg.stddev_samp("d"),
    "first": agg.first("w"),
    "last": agg.last("v"),
    "about": agg.approx_count_distinct("w"),
    "most": agg.approx_quantile("d", 0.9),
    "all": agg.collect("w", limit=500),
    "top": TOP,
}
ODD = [float("nan"), float("inf"), float("-inf"), 1e17, 1e17 + 16, -1e17, 1.0]


def with_top(row: dict) -> dict:
    """Return a row with what TOP reads."""
    return row | {TOP.expression: {"by": row["d"], "value": row["w"]}}


ROW = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["a", "b", None]),
        "level": st.sampled_from([0.0, float("nan"), None]),
        "t": st.integers(-40, 60),
        "v": st.none() | st.integers(-(2**40), 2**40),
        "d": st.none() | st.sampled_from(ODD) | st.floats(-100, 100),
        "m": st.none() | st.decimals(-999, 999, places=2),
        "w": st.none() | st.sampled_from(["", "x", "é"]),
    }
).map(with_top)


def step_of(window: TimeWindow, aggregates: dict[str, Aggregate], keys: pa.Schema = KEYS) -> WindowStep:
    types = {name: TYPES.get(a.expression) for name, a in aggregates.items()}
    return WindowStep(window=window, plan=AggregatePlan.build(aggregates, types), keys=keys)


class Engine:
    """Run the map side and the state side of a step as the tasks of a batch would."""

    def __init__(self, spec: WindowStep, hashes: int = 1000) -> None:
        self.spec, self.hashes = spec, hashes
        self.memory = SliceMemory(spec)
        self.batches = 0
        self.counts: dict[str, int] = {}

    def table(self, rows: list[dict]) -> pa.Table:
        keys = [tuple(repr(row[name]) for name in self.spec.keys.names) for row in rows]
        return pa.table(
            {
                **{name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()},
                **{f.name: pa.array([row[f.name] for row in rows], f.type) for f in self.spec.keys},
                TIME: pa.array([row["t"] for row in rows], pa.int64()),
                "h": pa.array([hash(key) % self.hashes for key in keys], pa.int64()),
                "p": pa.array(range(len(rows)), pa.int64()),
            }
        )

    def delta(self, rows: list[dict], part: int = 0) -> pa.Table:
        branch = rows_of_branch(self.table(rows), self.spec.keys.names, {sql: sql for sql in TYPES})
        order = (self.batches, 0, part, "p")
        return preaggregate(branch, order, plan=self.spec.plan, window=self.spec.window)

    def batch(self, parts: list[list[dict]], *, late: int | None, close: int | None) -> tuple[Done, list[dict]]:
        deltas, late_rows = [], []
        self.counts = dict.fromkeys(("counted", "partly_late", "no_window"), 0)
        for part, rows in enumerate(parts):
            judged = judge(np.array([row["t"] for row in rows], np.int64), self.spec.window, late)
            for fate in self.counts:
                self.counts[fate] += int(getattr(judged, fate).sum())
            late_rows += [row for row, is_late in zip(rows, judged.late, strict=True) if is_late]
            deltas.append(self.delta([row for row, c in zip(rows, judged.counted, strict=True) if c], part))
        result = whole_step(self.memory, deltas, self.spec, late_watermark=late, close_watermark=close)
        self.memory.write(result)
        self.batches += 1
        return result, late_rows


def oracle_of(spec: WindowStep, aggregates: dict[str, Aggregate]) -> WindowModel:
    return WindowModel(spec.window, spec.keys.names, aggregates, time=lambda row: row["t"])


def output_of(result: Done, spec: WindowStep) -> dict[tuple, dict]:
    """Return the output by bounds, key and pane; none may stand in it twice."""
    assert result.output.schema == spec.output
    bounds = [result.output[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    if spec.window.has_panes:
        panes = [result.output[name].to_pylist() for name in ("_pane", "_revision")]
    else:
        assert bounds[1] == sorted(bounds[1])
        panes = []
    keys = [[repr(v) for v in result.output[name].to_pylist()] for name in spec.keys.names]
    values = result.output.select([f.name for f in spec.plan.result_fields]).to_pylist()
    by_identity = {
        identity: row
        for *identity, row in zip(*bounds, *keys, *panes, values, strict=True)
        for identity in [tuple(identity)]
    }
    assert len(by_identity) == len(values)
    return by_identity


def assert_same(result: Done, late_rows: list[dict], expected: ModelBatch, spec: WindowStep) -> None:
    actual = output_of(result, spec)
    paned = spec.window.has_panes
    wanted = {
        (w.start, w.end, *map(repr, w.key), *((w.pane.value, w.revision) if paned else ())): w.results
        for w in expected.windows
    }
    assert actual.keys() == wanted.keys()
    for identity, results in wanted.items():
        wrong = {n: (actual[identity][n], r) for n, r in results.items() if not r.matches(actual[identity][n])}
        assert not wrong, identity
    assert late_rows == expected.late
    assert result.rows == expected.counted


@st.composite
def windows(draw, most: int):
    """Draw windows of up to `most` slides, odd sizes and gaps included; some are revised."""
    every = draw(st.integers(1, 9))
    size = max(1, every * draw(st.integers(0, most)) + draw(st.integers(0, every - 1)))
    lateness = draw(st.just(0) | st.integers(1, 30))
    return TimeWindow(
        size=size,
        every=every,
        offset=draw(st.integers(-10, 10)),
        rule=LatenessRule.WINDOW if lateness else draw(st.sampled_from(LatenessRule)),
        allowed_lateness=lateness,
        accumulation=draw(st.sampled_from(Accumulation)),
    )


@st.composite
def cumulative(draw, most: int):
    """Draw cumulative windows of up to `most` steps."""
    lateness = draw(st.just(0) | st.integers(1, 30))
    rule = LatenessRule.WINDOW if lateness else draw(st.sampled_from(LatenessRule))
    window = growing(draw(st.integers(1, 9)), draw(st.integers(1, most)), rule)
    return replace(window, allowed_lateness=lateness, accumulation=draw(st.sampled_from(Accumulation)))


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.fault("F43")
@pytest.mark.parametrize("hashes", [1, 3, 1000], ids=lambda n: f"{n} hashes")
@pytest.mark.parametrize(
    ("aggregates", "drawn"),
    [(EXACT, windows(2)), (EXACT, windows(9)), (ALL, windows(9)), (ALL, cumulative(12))],
    ids=["merge", "subtract", "blocks", "grow"],
)
@settings(max_examples=examples(16))
@given(data=st.data())
def test_every_batch_gives_what_the_definition_gives(aggregates, drawn, hashes, data):
    """2.3, 2.5, 2.6, 2.10, 3, 3.1, 3.3, 3.4: random rows, cuts, watermarks, restarts; windows, late rows and counts."""
    spec = step_of(data.draw(drawn), aggregates)
    engine, oracle = Engine(spec, hashes), oracle_of(spec, aggregates)
    chained = data.draw(st.booleans(), label="chained step")
    watermark: int | None = None
    for _ in range(data.draw(st.integers(1, 7))):
        parts = data.draw(st.lists(st.lists(ROW, max_size=5), max_size=2))
        moved = data.draw(st.sampled_from([None, 0, 1, 3, 7, 20, 70]))
        late = watermark
        if moved is not None:
            watermark = data.draw(st.integers(-40, 20)) if watermark is None else watermark + moved
        if not chained:
            late = watermark
        result, late_rows = engine.batch(parts, late=late, close=watermark)
        expected = oracle.batch([row for part in parts for row in part], late=late, close=watermark)
        assert_same(result, late_rows, expected, spec)
        counts = (expected.counted, expected.partly_late, expected.in_no_window)
        assert tuple(engine.counts.values()) == counts
        assert sum(map(len, parts)) == expected.counted + len(expected.late) + expected.in_no_window
        assert result.next_due == min((end for _, end in oracle._held), default=None)
        if data.draw(st.booleans()):
            engine.memory.compact(sweep=data.draw(st.booleans()))
    result, _ = engine.batch([], late=watermark, close=END_OF_TIME)
    assert_same(result, [], oracle.batch([], late=watermark, close=END_OF_TIME), spec)
    assert result.next_due is None


@pytest.mark.parametrize(
    ("window", "aggregates", "strategy"),
    [
        (Tumbling(seconds(5)), ALL, Strategy.MERGE),
        (Sliding(seconds(4), every=seconds(1)), ALL, Strategy.MERGE),
        (Sliding(seconds(5), every=seconds(2)), ALL, Strategy.MERGE),
        (Sliding(seconds(7), every=seconds(2)), ALL, Strategy.BLOCKS),
        (Sliding(seconds(5), every=seconds(2)), EXACT, Strategy.SUBTRACT),
        (Sliding(seconds(60), every=seconds(1)), EXACT, Strategy.SUBTRACT),
        (Sliding(seconds(60), every=seconds(1)), {"s": agg.sum("d")}, Strategy.BLOCKS),
        (Sliding(seconds(60), every=seconds(1)), EXACT | {"low": agg.min("v")}, Strategy.BLOCKS),
        (Sliding(seconds(1), every=seconds(60)), ALL, Strategy.MERGE),
        (Cumulative(seconds(4), step=seconds(1)), ALL, Strategy.MERGE),
        (Cumulative(seconds(60), step=seconds(1)), ALL, Strategy.GROW),
        (Cumulative(seconds(60), step=seconds(1)), EXACT, Strategy.GROW),
    ],
    ids=str,
)
def test_windows_are_made_the_way_their_aggregates_allow(window, aggregates, strategy):
    """DESIGN 7: subtract where the inverse is exact, blocks otherwise, plain merge for few slices."""
    assert step_of(window, aggregates).strategy is strategy


def long_run(
    aggregates: dict[str, Aggregate],
    rows: dict[int, list[dict]],
    batches: int,
    window: TimeWindow = TimeWindow(size=8, every=1),  # noqa: B008 - a frozen value
) -> tuple[Engine, list]:
    """Run a window of 8 by 1, one batch a slide, each compared with the oracle; return all windows by end."""
    spec = step_of(window, aggregates)
    engine, oracle, outputs = Engine(spec), oracle_of(spec, aggregates), []
    for n in range(batches):
        given_rows = rows.get(n, [])
        result, late_rows = engine.batch([given_rows], late=n, close=n)
        assert_same(result, late_rows, oracle.batch(given_rows, late=n, close=n), spec)
        outputs.append(output_of(result, spec))
    return engine, outputs


def row(t: int, **values: object) -> dict:
    return with_top({"user": "a", "level": 0.0, "t": t, "v": 1, "d": 1.0, "m": Decimal(1), "w": "x"} | values)


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_value_that_has_left_leaves_no_trace(odd):
    """3.3: a NaN, an infinity or 1e17 that has left a sliding window is gone, however long it has run."""
    rows = {n: [row(n, d=odd if n == 5 else float(n))] for n in range(40)}
    _, outputs = long_run(ALL, rows, 45)
    last = outputs[40][(32, 40, "'a'", "0.0")]
    assert last["sum"] == sum(range(32, 40))
    assert last["mean"] == 35.5
    assert last["low"] == 32.0


@pytest.mark.sample(2)
@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["subtract", "blocks"])
def test_keys_come_and_go(aggregates):
    """3.1: one row for each key and window that held at least one row, and none for a key whose rows have left."""
    rows = {n: [row(n, user=f"u{n}"), *([row(n, user="always")] if n % 3 == 0 else [])] for n in range(30)}
    engine, outputs = long_run(aggregates, rows, 45)
    assert len(outputs[29]) == 9
    assert outputs[44] == {}
    engine.memory.compact(sweep=True)
    assert sum(run.num_rows for runs in engine.memory.runs.values() for run in runs) == 0


@pytest.mark.sample(2)
def test_the_limit_of_a_list_is_of_one_window():
    """Issue 20: slices, blocks and what windows share never count rows that are in no window together."""
    rows = {n: [row(n)] for n in range(40)}
    _, outputs = long_run({"all": agg.collect("w", limit=8)}, rows, 45)
    assert outputs[20][(12, 20, "'a'", "0.0")]["all"] == ["x"] * 8
    with pytest.raises(AccumulatorTooLarge, match="limit"):
        long_run({"all": agg.collect("w", limit=7)}, rows, 45)


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["subtract", "blocks"])
def test_rows_late_for_some_windows_count_in_the_others(aggregates):
    """2.5: a row counts for each of its windows that is not forgotten, also in slices already aggregated."""
    rows = {n: [row(n), row(n - 3, v=100 + n), row(n - 7, v=1000 + n)] for n in range(7, 40)}
    engine, outputs = long_run(aggregates, rows, 50)
    # At watermark 20 came t = 17 and t = 13: the window [13, 21) holds both, [12, 20) had closed before them.
    assert outputs[21][(13, 21, "'a'", "0.0")]["n"] > outputs[20][(12, 20, "'a'", "0.0")]["n"] - 3
    assert engine.memory.groups("late").size == 0


def test_a_row_of_this_batch_is_not_in_a_window_its_watermark_has_passed():
    """2.2, 2.5: a window with end <= the watermark of the batch is forgotten for its rows, though it closes now."""
    engine = Engine(step_of(TimeWindow(size=4, every=2), EXACT))
    engine.batch([[row(1)]], late=None, close=None)
    result, late = engine.batch([[row(3), row(1)]], late=4, close=4)
    assert {key[:2]: results["n"] for key, results in output_of(result, engine.spec).items()} == {(-2, 2): 1, (0, 4): 1}
    assert [r["t"] for r in late] == [1]
    result, _ = engine.batch([], late=6, close=6)
    assert {key[:2]: results["n"] for key, results in output_of(result, engine.spec).items()} == {(2, 6): 1}


def test_a_chained_step_closes_with_the_rows_of_its_batch():
    """2.1: a downstream step judges lateness by the watermark of the batch before, and closes by this batch's."""
    engine = Engine(step_of(TimeWindow(size=4, every=2), EXACT))
    result, late = engine.batch([[row(3), row(1)]], late=None, close=4)
    assert {key[:2]: results["n"] for key, results in output_of(result, engine.spec).items()} == {(-2, 2): 1, (0, 4): 2}
    assert late == []


@pytest.mark.slow
@pytest.mark.sample(2)
def test_rows_that_come_late_into_a_growing_window_count_in_its_longer_ones():
    """2.5, 3: a row counts in each of its cumulative windows that is not forgotten, also while one grows."""
    rows = {n: [row(n), row(n - 3, v=100 + n), row(n - 7, v=1000 + n)] for n in range(7, 40)}
    engine, outputs = long_run(ALL, rows, 50, growing(1, 8))
    # The window [8, 13) held a row of each time from 8 to 12, and those of 8 and 9 that came three batches later.
    assert outputs[13][(8, 13, "'a'", "0.0")]["n"] == 7
    assert [key[:2] for n in range(41, 50) for key in outputs[n]] == []
    assert engine.memory.groups("late").size == engine.memory.groups("running").size == 0


def test_a_step_without_new_rows_repeats_a_growing_window():
    """3.1: a cumulative window has a row for each key that came since its start, whether or not new ones come."""
    _, outputs = long_run(EXACT, {1: [row(0)]}, 20, growing(1, 6))
    assert {bounds[:2]: results["n"] for output in outputs for bounds, results in output.items()} == {
        (0, end): 1 for end in range(1, 7) if end > 1
    }


@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["subtract", "blocks"])
def test_a_year_without_rows_closes_no_windows_on_the_way(aggregates):
    """3.1: no row, no window; a jump costs what it holds."""
    window = Sliding(seconds(8), every=seconds(1)).drop_late()
    year = 365 * 86_400_000_000
    engine = Engine(step_of(window, aggregates))
    engine.batch([[row(0), row(year)]], late=None, close=None)
    result, _ = engine.batch([], late=2 * year, close=2 * year)
    assert result.output.num_rows == 16
    assert result.next_due is None


@pytest.mark.slow
def test_a_jump_of_the_watermark_makes_so_many_windows_at_a_time(monkeypatch):
    """2.5, 3.1: ten rows in a window of an hour by 10 ms close 360,009 windows, of which some thousands are held."""
    monkeypatch.setattr(MANY, "COPIES_WORTH_A_WINDOW", 10_000)
    monkeypatch.setattr(MANY, "_MOST_COPIES", 20_000)
    monkeypatch.setattr(TIME_WINDOWS, "OUTPUT_BYTES", 2**20)
    spec = step_of(TimeWindow(size=360_000, every=1), {"n": agg.count(), "s": agg.sum("d")})
    engine = Engine(spec)
    engine.batch([[row(n) for n in range(10)]], late=None, close=None)
    made = step(engine.memory, [], spec, late_watermark=10**6, close_watermark=10**6)
    held, rows, counted, before = [], 0, 0, None
    for piece in made:
        if not isinstance(piece, pa.Table):
            continue
        ends = piece["window_end"].cast(pa.int64()).to_numpy()
        assert (np.diff(np.r_[ends if before is None else (before, *ends)]) == 1).all()
        before, rows, counted = int(ends[-1]), rows + piece.num_rows, counted + int(piece["n"].to_numpy().sum())
        held.append((piece.num_rows, piece.nbytes))
    assert (rows, counted) == (360_009, 10 * 360_000)
    assert max(size for _, size in held) <= 2**20
    assert max(rows for rows, _ in held) < 30_000


def test_windows_are_sent_on_before_the_next_are_made(monkeypatch):
    """2.5: the output of a jump is yielded as it is made; dense windows, which are made one by one, as well."""
    monkeypatch.setattr(TIME_WINDOWS, "OUTPUT_BYTES", 1)
    engine = Engine(step_of(TimeWindow(size=8, every=1), ALL))
    engine.batch([[row(n) for n in range(40)]], late=None, close=None)
    finished, made = [], TIME_WINDOWS.finished
    monkeypatch.setattr(TIME_WINDOWS, "finished", lambda *arguments: finished.append(1) or made(*arguments))
    for pieces, _ in enumerate(step(engine.memory, [], engine.spec, late_watermark=50, close_watermark=50)):
        assert len(finished) <= pieces + 2


def test_a_transient_overflow_of_the_running_sum_does_not_raise():
    """3.3: what counts is the sum over the window's rows; slices enter before others leave."""
    big = 2**62
    rows = {n: [row(n, v=big)] if n in (8, 16) else [row(n, v=0)] for n in range(30)}
    rows[9] = [row(9, v=big - 1)]
    rows[17] = [row(17, v=big - 1)]
    long_run(EXACT, rows, 40)


@pytest.mark.parametrize(
    "aggregates", [EXACT, {"total": agg.sum("v"), "low": agg.min("v")}], ids=["subtract", "blocks"]
)
def test_a_window_whose_sum_overflows_raises_and_names_the_aggregate(aggregates):
    """3.3: integer overflow raises, as in Spark."""
    with pytest.raises(IntegerOverflow, match=r"total = sum\(v\)"):
        long_run(aggregates, {n: [row(n, v=2**61)] for n in range(20)}, 20)


def test_rows_of_closed_windows_are_refused():
    """2.10: a row that no window can count any more was to be judged late; losing it in silence is a fault."""
    engine = Engine(step_of(TimeWindow(size=4, every=2), EXACT))
    with pytest.raises(StateError, match="slice at 6"):
        whole_step(engine.memory, [engine.delta([row(7)])], engine.spec, late_watermark=10, close_watermark=10)
    engine.batch([[row(7)]], late=None, close=10)
    with pytest.raises(StateError, match="slice at 6"):
        whole_step(engine.memory, [engine.delta([row(7)])], engine.spec, late_watermark=None, close_watermark=10)


def test_state_of_another_strategy_is_rebuilt_from_slices(monkeypatch):
    """DESIGN 5: running aggregates and indexes are rebuilt; slices are the state."""
    monkeypatch.setattr(MANY, "COPIES_WORTH_A_WINDOW", 0)
    window = TimeWindow(size=8, every=1)
    stacks = step_of(window, {"n": agg.count(), "total": agg.sum("v"), "low": agg.min("v")})
    memory = Engine(stacks)
    memory.batch([[row(n, v=n) for n in range(12)]], late=None, close=9)
    subtract = step_of(window, {"n": agg.count(), "total": agg.sum("v")})
    other = Engine(subtract)
    other.memory.runs = {part: list(runs) for part, runs in memory.memory.runs.items()}
    other.memory.text = memory.memory.text
    result = whole_step(other.memory, [], subtract, late_watermark=10, close_watermark=10)
    assert output_of(result, subtract) == {(2, 10, "'a'", "0.0"): {"n": 8, "total": sum(range(2, 10))}}
    assert {part: table.num_rows for part, table in result.replace.items()} == {"running": 1, "front": 0, "total": 0}


@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["subtract", "blocks"])
def test_an_empty_batch_changes_nothing_and_writes_nothing(aggregates):
    """1.4, DESIGN 6: a partition without changes writes nothing."""
    engine = Engine(step_of(TimeWindow(size=8, every=1), aggregates))
    before, _ = engine.batch([[row(3)]], late=None, close=4)
    assert before.output.num_rows == 1
    for watermark in (4, 20):
        if watermark == 20:
            before, _ = engine.batch([], late=19, close=19)
        result, _ = engine.batch([[]], late=watermark, close=watermark)
        assert (dict(result.append), dict(result.replace), result.output.num_rows) == ({}, {}, 0)
        assert (result.facts, result.floor, result.next_due) == (before.facts, before.floor, before.next_due)
        assert result.output.schema == engine.spec.output


def test_a_stream_without_keys_has_one_row_a_window():
    """API: every keyed operator exists on Stream too."""
    engine = Engine(step_of(TimeWindow(size=4, every=4), EXACT, pa.schema([])))
    result, _ = engine.batch([[row(1), row(2, user="b")]], late=None, close=4)
    assert result.output.select(["n", "total"]).to_pylist() == [{"n": 2, "total": 2}]


def test_a_key_column_named_like_one_of_the_state_is_refused():
    """DESIGN 3: names are checked before anything is written."""
    plan = AggregatePlan.build({"n": agg.count()}, {"n": None})
    with pytest.raises(JobError, match="'_rows'"):
        PartialLayout(plan=plan, keys=pa.schema([("_rows", pa.int64())]))


def test_an_aggregate_named_like_a_key_or_a_bound_is_refused():
    """3.1: the output has keys, window_start, window_end and aggregates, each once."""
    for name in ("user", "window_start"):
        with pytest.raises(JobError, match=name):
            step_of(TimeWindow(size=4, every=2), {name: agg.count()})


def test_a_step_travels():
    """A step goes to the tasks as a plain value."""
    spec = step_of(TimeWindow(size=8, every=1), ALL)
    assert pickle.loads(pickle.dumps(spec)) == spec
