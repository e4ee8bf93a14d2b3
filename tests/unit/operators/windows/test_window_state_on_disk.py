"""Windows over segments on disk: what older versions wrote is read, and no slide writes more than another (DESIGN 7)."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import AccumulatorTooLarge
from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan, BoundAggregate
from penstock.operators.protocol import TIME
from penstock.operators.windows import two_stacks
from penstock.operators.windows.partials import PartialLayout
from penstock.operators.windows.slice_state import SLICES, Slices
from penstock.operators.windows.time_windows import WindowStep, preaggregate
from penstock.operators.windows.window_step import WindowStepWork
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.state import section_reader
from penstock.state.writer import Change, Written
from penstock.testing.model import ModelBatch, WindowModel
from tests.support.slice_disk import Batch, SliceDisk
from tests.support.window_samples import rows_of_branch

pytestmark = pytest.mark.sample(1, of="window state on disk")

STORED = Path(__file__).parent / "stored_windows"
KEYS = pa.schema([("k", pa.int64())])
AGGREGATES = {"n": agg.count(), "total": agg.sum("d"), "low": agg.min("d"), "last": agg.last("d")}
WINDOW = TimeWindow(size=10, every=1)
PAIR = pa.struct([("by", pa.float64()), ("value", pa.float64())])


def pair_of(row: dict) -> dict:
    """Return what the greatest of `d` are found by."""
    return {"by": row["d"] % 1, "value": row["d"]}


def type_of(aggregate: Aggregate | BoundAggregate) -> pa.DataType:
    """Return the type of what an aggregate reads of `d`."""
    return PAIR if aggregate.kind is AggregateKind.TOP_K else pa.float64()


def spec_of(window: TimeWindow = WINDOW, aggregates=AGGREGATES) -> WindowStep:
    types = {name: None if a.expression is None else type_of(a) for name, a in aggregates.items()}
    return WindowStep(window=window, plan=AggregatePlan.build(aggregates, types), keys=KEYS)


def delta(spec: WindowStep, rows: list[dict], batch: int) -> pa.Table:
    table = pa.table(
        {
            "k": pa.array([row["k"] for row in rows], pa.int64()),
            "h": pa.array([(row["k"] * 7046029254386353131) % 2**64 - 2**63 for row in rows], pa.int64()),
            TIME: pa.array([row["t"] for row in rows], pa.int64()),
            "d": pa.array([row["d"] for row in rows], pa.float64()),
            "pair": pa.array([pair_of(row) for row in rows], PAIR),
            "p": pa.array(range(len(rows)), pa.int64()),
        }
    )
    read = {a.expression: "pair" if type_of(a) == PAIR else "d" for a in spec.plan.aggregates if a.expression}
    branch = rows_of_branch(table, ["k"], read)
    return preaggregate(branch, (batch, 0, 0, "p"), plan=spec.plan, window=spec.window)


def rows_of(batch: int) -> list[dict]:
    """Return rows at the batch's time, and such that come late into slices that are aggregated already."""
    times = [batch, batch, *([batch - 3, batch - 8] if batch % 3 == 0 else [])]
    return [{"k": (batch * 5 + i) % 7, "t": t, "d": float(batch + i) / 4} for i, t in enumerate(times)]


def assert_right(batch: Batch, expected) -> None:
    actual = {(row["k"], round(row["window_end"].timestamp() * 1e6)): row for row in batch.output.to_pylist()}
    wanted = {(w.key[0], w.end): w.results for w in expected.windows}
    assert actual.keys() == wanted.keys()
    for place, results in wanted.items():
        assert all(value.matches(actual[place][name]) for name, value in results.items()), place


WRITTEN_BEFORE = 25
"""Batches in `stored_windows`, which commit 2bfac1b wrote (two stacks: its front holds a whole window)."""


@pytest.mark.slow
@pytest.mark.fault("F22")
def test_state_of_two_stacks_goes_on(tmp_path: Path) -> None:
    """3.3, 10.5: what an older version kept for sliding windows is gone on from, and every window is right."""
    shutil.copytree(STORED / "state", tmp_path / "state")
    spec, model = spec_of(), WindowModel(WINDOW, ("k",), AGGREGATES, time=lambda row: row["t"])
    for batch in range(WRITTEN_BEFORE):
        model.batch(rows_of(batch), late=batch - 1, close=batch - 1)
    disk = SliceDisk(spec, tmp_path / "state", json.loads((STORED / "ref.json").read_text()), WRITTEN_BEFORE)
    assert set(disk.state().manifest.chains) == {"slices", "running", "front", "late"}
    for batch in range(WRITTEN_BEFORE, WRITTEN_BEFORE + 30):
        expected = model.batch(rows_of(batch), late=batch - 1, close=batch - 1)
        assert_right(disk.batch([delta(spec, rows_of(batch), batch)], late=batch - 1, close=batch - 1), expected)


CHANGED = {
    "blanks and letters": {"n": agg.count(), "total": agg.sum(" D"), "low": agg.min("d "), "last": agg.last("`d`")},
    "another order": {name: AGGREGATES[name] for name in ("last", "low", "total", "n")},
    "other names": {"a": agg.count(), "b": agg.sum("d"), "c": agg.min("d"), "e": agg.last("d")},
    "fewer": {"low": agg.min("d")},
    "more of the same partials": AGGREGATES | {"mean": agg.mean("d"), "some": agg.count("d")},
    "more": AGGREGATES | {"high": agg.max("d"), "first": agg.first("d"), "spread": agg.var_pop("d")},
}
NEW = {"high", "first", "spread"}
"""Counts the rows from the change on."""


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.fault("F51")
@pytest.mark.parametrize("version", ["before", "now"])
@pytest.mark.parametrize("change", CHANGED)
def test_aggregates_are_added_reordered_dropped_and_renamed(change: str, version: str, tmp_path: Path) -> None:
    """DESIGN 5: what is kept of an aggregate is found by what it aggregates; what is new counts from now on."""
    aggregates = {name: Aggregate(a.kind, a.expression) for name, a in CHANGED[change].items()}
    plain = {name: Aggregate(a.kind, a.expression and "d") for name, a in aggregates.items()}
    model = WindowModel(WINDOW, ("k",), {n: a for n, a in plain.items() if n not in NEW}, time=lambda row: row["t"])
    fresh = WindowModel(WINDOW, ("k",), {n: a for n, a in plain.items() if n in NEW}, time=lambda row: row["t"])
    if version == "before":
        shutil.copytree(STORED / "state", tmp_path / "state")
        disk = SliceDisk(spec_of(), tmp_path / "state", json.loads((STORED / "ref.json").read_text()), WRITTEN_BEFORE)
    else:
        disk = SliceDisk(spec_of(), tmp_path / "state")
    for batch in range(WRITTEN_BEFORE):
        model.batch(rows_of(batch), late=batch - 1, close=batch - 1)
        if version == "now":
            disk.batch([delta(spec_of(), rows_of(batch), batch)], late=batch - 1, close=batch - 1)
    spec = spec_of(aggregates=aggregates)
    disk = SliceDisk(spec, tmp_path / "state", disk.ref, WRITTEN_BEFORE)
    assert disk.work.evolution(disk.state()).refused == ()
    for batch in range(WRITTEN_BEFORE, WRITTEN_BEFORE + 40):
        expected = model.batch(rows_of(batch), late=batch - 1, close=batch - 1)
        newer = fresh.batch(rows_of(batch), late=batch - 1, close=batch - 1)
        made = disk.batch([delta(spec, rows_of(batch), batch)], late=batch - 1, close=batch - 1)
        assert_right(made, expected)
        since = {(w.key, w.end): w.results for w in newer.windows}
        at = {((row["k"],), round(row["window_end"].timestamp() * 1e6)): row for row in made.output.to_pylist()}
        for place, results in since.items():
            assert all(value.matches(at[place][name]) for name, value in results.items()), place
        for place in at.keys() - since.keys():  # windows whose rows had all come before
            assert [at[place][name] for name in NEW & aggregates.keys()] == [None] * len(NEW & aggregates.keys())


@pytest.mark.slow
def test_lists_go_on_with_another_limit_and_begin_with_another_k(tmp_path: Path) -> None:
    """1.6, 3.3, DESIGN 5: lists in files merge with those of later batches; what another k needs was not kept."""
    top = {k: agg.top_k("d", k, by="d % 1") for k in (2, 3)}
    before = {"all": agg.collect("d", limit=20), "top": top[2]}
    after = {"all": agg.collect("d", limit=25), "top": top[2], "more": top[3]}
    kept, fresh = (
        WindowModel(WINDOW, ("k",), chosen, time=lambda row: row["t"]) for chosen in (before, {"more": top[3]})
    )
    disk = SliceDisk(spec_of(aggregates=before), tmp_path)
    for batch in range(50):
        if batch == 20:
            disk = SliceDisk(spec_of(aggregates=after), tmp_path, disk.ref, batch)
            evolution = disk.work.evolution(disk.state())
            assert evolution.refused == ()
            assert [text.partition(" is ")[2].partition(",")[0] for text in evolution.accepted] == ["new"]
        given_rows = [row | {top[2].expression: pair_of(row)} for row in rows_of(batch)]
        expected = kept.batch(given_rows, late=batch - 1, close=batch - 1)
        aggregates = before if batch < 20 else after
        sent = delta(spec_of(aggregates=aggregates), rows_of(batch), batch)
        made = disk.batch([sent], late=batch - 1, close=batch - 1)
        assert_right(made, expected)
        if batch >= 20:
            assert_right_so_far(made, fresh.batch(given_rows, late=batch - 1, close=batch - 1))


def assert_right_so_far(batch: Batch, expected: ModelBatch) -> None:
    """Compare the windows that have rows since the change."""
    actual = {(row["k"], round(row["window_end"].timestamp() * 1e6)): row for row in batch.output.to_pylist()}
    for w in expected.windows:
        assert all(value.matches(actual[w.key[0], w.end][name]) for name, value in w.results.items())


@st.composite
def sliding(draw) -> TimeWindow:
    """Draw windows of three slides and more, odd ones too."""
    every = draw(st.integers(1, 4))
    size = draw(st.integers(3 * every, 14 * every))
    return TimeWindow(size=size, every=every, offset=draw(st.integers(-5, 5)))


BATCH = st.tuples(
    st.integers(0, 9),  # how far the watermark moves
    st.lists(st.tuples(st.integers(0, 12), st.integers(-30, 6), st.integers(-99, 99)), max_size=8),
)


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(window=sliding(), batches=st.lists(BATCH, min_size=10, max_size=40))
def test_blocks_give_every_window_whatever_comes_late(window: TimeWindow, batches) -> None:
    """2.5, 3.3, 10.5: rows late into each block, before and after its suffixes are made; a restart at every batch."""
    spec, model, mark = spec_of(window), WindowModel(window, ("k",), AGGREGATES, time=lambda row: row["t"]), 0
    with tempfile.TemporaryDirectory() as root:
        disk = SliceDisk(spec, LocalFolder(root))
        for number, (moved, given_rows) in enumerate(batches):
            mark += moved
            # Only rows that some window still counts: what is late is judged before the shuffle.
            oldest = next(
                s
                for s in range(mark - 99, mark + 9)
                if (s - window.offset) % window.every == 0 and s + window.size > mark
            )
            rows = [{"k": k, "t": max(mark + t, oldest), "d": v / 4} for k, t, v in given_rows]
            expected = model.batch(rows, late=mark, close=mark)
            assert expected.late == []
            assert_right(disk.batch([delta(spec, rows, number)], late=mark, close=mark), expected)


class Work:
    """Counts the rows that a step merges; not those of compaction, which has a budget of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, merged, front = 0, PartialLayout._merged, two_stacks.front_table
        write = PartitionState.write

        def count_merged(layout, tables, *arguments, **more):
            self.rows += sum(table.num_rows for table in tables)
            return merged(layout, tables, *arguments, **more)

        def count_front(layout, tables):
            self.rows += sum(table.num_rows for table in tables)
            return front(layout, tables)

        def count_nothing(state, *arguments, **more):
            before = self.rows
            written = write(state, *arguments, **more)
            self.rows = before
            return written

        monkeypatch.setattr(PartitionState, "write", count_nothing)
        monkeypatch.setattr(PartialLayout, "_merged", count_merged)
        monkeypatch.setattr(two_stacks, "front_table", count_front)

    def taken(self) -> int:
        rows, self.rows = self.rows, 0
        return rows


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("keys_a_slide", [300, 40], ids=["every key in every slide", "some keys in a slide"])
def test_no_slide_pays_for_a_window(keys_a_slide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 12, P14: over three window lengths no slide merges, or writes, 1.5 times what the median does."""
    keys, window = 300, TimeWindow(size=60, every=1)
    spec, work = spec_of(window, {"total": agg.sum("d"), "low": agg.min("d")}), Work(monkeypatch)
    disk, merged, written = SliceDisk(spec, tmp_path), [], []
    for slide in range(240):
        rows = [{"k": (slide * 17 + i) % keys, "t": slide, "d": float(i)} for i in range(keys_a_slide)]
        batch = disk.batch([delta(spec, rows, slide)], late=slide, close=slide)
        if slide >= 60:
            merged.append(work.taken())
            written.append(batch.written.written)
        work.taken()
    assert max(merged) <= 1.5 * statistics.median(merged)
    assert max(written) <= 1.5 * statistics.median(written)


def test_a_slide_reads_what_enters_and_leaves_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 12, P11: a batch that closes one window of an aggregate with an inverse reads no slices between."""
    keys, read, part = 20, [0], Slices.part

    def counted(slices: Slices, *arguments, **more):
        tables = part(slices, *arguments, **more)
        read[-1] += sum(table.num_rows for table in tables)
        return tables

    monkeypatch.setattr(Slices, "part", counted)
    spec = spec_of(TimeWindow(size=60, every=1), {"n": agg.count()})
    disk = SliceDisk(spec, tmp_path)
    for slide in range(80):
        rows = [{"k": key, "t": slide, "d": float(key)} for key in range(keys)]
        disk.batch([delta(spec, rows, slide)], late=slide, close=slide)
        read.append(0)
    assert max(read[61:-1]) <= 3 * keys, "the last window, a slice that enters it, and one that leaves it"


def test_a_batch_that_is_not_committed_yet_unmaps_nothing_that_it_would_read_again(tmp_path: Path) -> None:
    """A gate may stop it, or another task may fail: its next try reads what the last Commit names."""
    dropped: set[str] = set()

    class Watched(SliceDisk):
        def write(self, number: int, state: PartitionState, change: Change) -> Written:
            mapped = set(section_reader._open.get(state.folder, ()))
            written = super().write(number, state, change)
            state.at(written)
            assert mapped <= set(section_reader._open.get(state.folder, ()))
            dropped.update(mapped - written.manifest.sizes.keys())
            return written

    spec, disk = spec_of(), Watched(spec_of(), LocalFolder(tmp_path) / "state")
    for batch in range(30):
        disk.batch([delta(spec, rows_of(batch), batch)], late=batch - 1, close=batch - 1)
    assert dropped


def test_what_reads_the_state_before_a_batch_reads_it_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where aggregates are new; to make it again takes half a millisecond in each partition of each batch."""
    made: list[object] = []
    adapters = WindowStepWork.adapters
    monkeypatch.setattr(WindowStepWork, "adapters", lambda work, facts: made.append(work) or adapters(work, facts))

    class Watched(SliceDisk):
        def write(self, number: int, state: PartitionState, change: Change) -> Written:
            written = super().write(number, state, change)
            made.clear()
            left = state.at(written)
            assert not made
            assert left.scan(SLICES) == self.state().scan(SLICES)
            return written

    fewer, more = (spec_of(aggregates={name: AGGREGATES[name] for name in names}) for names in (["n"], AGGREGATES))
    disk = Watched(fewer, LocalFolder(tmp_path) / "state")
    for batch in range(20):
        if batch == 10:
            disk = Watched(more, disk.root, disk.ref, disk.batches)
        spec = fewer if batch < 10 else more
        disk.batch([delta(spec, rows_of(batch), batch)], late=batch - 1, close=batch - 1)


@pytest.mark.remedy("PEN-STA-009")
def test_a_greater_limit_goes_on_with_the_batch_that_was_refused(tmp_path: Path) -> None:
    """Issue 20: what is over its limit stops the job, loses nothing, and is what the next attempt gives."""
    rows = [{"k": 1, "t": 5, "d": 1.0}, {"k": 1, "t": 5, "d": 2.0}]
    few, more = (spec_of(TimeWindow(size=10, every=10), {"all": agg.collect("d", limit=limit)}) for limit in (3, 4))
    disk = SliceDisk(few, tmp_path)
    disk.batch([delta(few, rows, 0)], late=0, close=0)
    with pytest.raises(AccumulatorTooLarge, match="limit is 3"):
        disk.batch([delta(few, rows, 1)], late=0, close=15)
    disk = SliceDisk(more, tmp_path, disk.ref, 1)
    made = disk.batch([delta(more, rows, 1)], late=0, close=15)
    assert made.output["all"].to_pylist() == [[1.0, 2.0, 1.0, 2.0]]
