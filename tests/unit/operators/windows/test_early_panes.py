"""SEMANTICS 3.2: open windows are emitted early, by batch time and by rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.policies import Accumulation, LatenessRule
from penstock.graph.windows import Extent, TimeWindow
from penstock.operators.windows import early_panes
from penstock.runtime.tasks.partition_state import main_table
from tests.support.slice_disk import SliceDisk
from tests.support.window_partitions import ALL, EXACT, Partitions, assert_right, emitted, model_of, step_of


@st.composite
def windows(draw) -> TimeWindow:
    """Draw windows of up to ten slides with early panes, some of which late rows revise."""
    every = draw(st.integers(1, 6))
    lateness = draw(st.sampled_from([0, 0, 1, 5, 40]))
    growing = draw(st.booleans())
    early = draw(st.sampled_from([(None, 1), (None, 3), (1, None), (4, None), (7, 2)]))
    return TimeWindow(
        size=draw(st.integers(1, 10)) * every + (0 if growing else draw(st.sampled_from([0, 0, 1]))),
        every=every,
        offset=0 if growing else draw(st.integers(-5, 5)),
        extent=Extent.GROWING if growing else Extent.FIXED,
        allowed_lateness=lateness,
        rule=LatenessRule.WINDOW if lateness else draw(st.sampled_from(LatenessRule)),
        accumulation=draw(st.sampled_from(Accumulation)),
        early_every=early[0],
        early_rows=early[1],
    )


ROW = st.builds(
    dict, k=st.integers(0, 4), t=st.sampled_from([0, 1, 5]) | st.integers(-30, 25), v=st.none() | st.integers(-99, 99)
)
BATCH = st.tuples(
    st.integers(0, 9),  # how far the watermark moves
    st.integers(1, 5),  # how far batch time moves
    st.lists(ROW, max_size=8),  # with times from the watermark on
    st.sampled_from(["run", "run", "run", "crash", "rescale 1", "rescale 2", "rescale 8"]),
)


@pytest.mark.slow
@pytest.mark.fault("F43")
@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["with an inverse", "without"])
@settings(max_examples=examples(20), deadline=None)
@given(
    window=windows(),
    batches=st.lists(BATCH, min_size=4, max_size=14),
    partitions=st.sampled_from([1, 2, 8]),
    piece=st.sampled_from([2, 262_144]),
)
def test_panes_are_those_of_the_definition(
    aggregates, window: TimeWindow, batches, partitions: int, piece: int
) -> None:
    """1.6, 2.5, 2.6, 3.2, 10.5: rows out of order, in random batches and tasks, with crashes and rescaling."""
    spec, model, mark, time = step_of(window, aggregates), model_of(window, aggregates), 0, 0
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patched:
        patched.setattr(early_panes, "PIECE_ROWS", piece)
        state = Partitions(spec, Path(root), partitions, Random(len(batches)))
        before = None
        for moved, passed, given_rows, event in batches:
            mark += moved
            late = mark if before is None or moved % 2 else before  # a chained step judges by the batch before
            rows = [row | {"t": mark + row["t"]} for row in given_rows]
            if event.startswith("rescale") and before is not None:
                state.rescale(int(event.split()[1]), before, time)
            time += passed
            if event == "crash":
                state.crash(rows, late=late, close=mark, at=time)
            actual = state.batch(rows, late=late, close=mark, at=time)
            assert_right(actual, model.batch(rows, late=late, close=mark, at=time))
            assert all(due is None or due > time for _, due in state.due.values())
            before = mark


TEN = TimeWindow(size=10, every=10, early_rows=2)


def run(window: TimeWindow, root: Path, batches: Sequence[tuple[int, int, Sequence[tuple[int, int, int]]]]):
    """Run batches of (batch time, watermark, rows of key, time and value); return what each emitted, and the state."""
    state, model = Partitions(step_of(window), root, 1), model_of(window)
    answers = []
    for at, mark, given_rows in batches:
        rows = [{"k": k, "t": t, "v": v} for k, t, v in given_rows]
        actual = state.batch(rows, late=mark, close=mark, at=at)
        assert_right(actual, model.batch(rows, late=mark, close=mark, at=at))
        answers.append(emitted(actual[0]))
    return answers, state


def test_emit_on_counts_the_rows_since_the_pane_before(tmp_path: Path) -> None:
    """3.2: judged once a batch, key and window, after its rows, so that a pane has more than n."""
    answers, _ = run(
        TEN,
        tmp_path,
        [
            (1, 0, [(1, 1, 1)]),
            (2, 0, [(1, 2, 2), (1, 3, 4), (2, 1, 1)]),
            (3, 0, [(1, 4, 8)]),
            (4, 0, []),
            (5, 0, [(1, 5, 16), (2, 1, 1)]),
            (6, 10, [(1, 11, 1)]),
        ],
    )
    assert answers == [
        [],
        [("EARLY", 0, 10, 1, 3, 7)],
        [],
        [],
        [("EARLY", 1, 10, 1, 5, 31), ("EARLY", 0, 10, 2, 2, 2)],
        [("ON_TIME", 2, 10, 1, 5, 31), ("ON_TIME", 1, 10, 2, 2, 2)],
    ]


def test_a_discarding_pane_has_the_rows_since_the_pane_before(tmp_path: Path) -> None:
    """3.2: panes add up; the final one has what came since, and is not there where nothing has."""
    answers, _ = run(
        replace(TEN, accumulation=Accumulation.DISCARDING),
        tmp_path,
        [
            (1, 0, [(1, 1, 1), (1, 2, 2), (2, 2, 5), (2, 3, 5), (3, 3, 7)]),
            (2, 0, [(1, 1, 4)]),
            (3, 10, []),
        ],
    )
    assert answers == [
        [("EARLY", 0, 10, 1, 2, 3), ("EARLY", 0, 10, 2, 2, 10)],
        [],
        [("ON_TIME", 0, 10, 3, 1, 7), ("ON_TIME", 1, 10, 1, 1, 4)],
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1, 4, [[], []]),
        (1, 5, [[], [("EARLY", 0, 10, 1, 2, 3)]]),
        (4, 7, [[], [("EARLY", 0, 10, 1, 2, 3)]]),
        (5, 6, [[("EARLY", 0, 10, 1, 1, 1)], []]),
        (6, 9, [[], []]),
        (6, 23, [[], [("EARLY", 0, 10, 1, 2, 3)]]),
    ],
    ids=["before", "at a multiple", "after", "the first rows at a multiple", "after one, before the next", "far after"],
)
def test_emit_every_fires_at_multiples_from_the_zero_time(first, second, expected, tmp_path: Path) -> None:
    """3.2: the first batch at or after a multiple that is not before the first new row's batch."""
    window = replace(TEN, early_rows=None, early_every=5)
    answers, _ = run(window, tmp_path, [(first, 0, [(1, 1, 1)]), (second, 0, [(1, 2, 2)])])
    assert answers == expected


def test_a_pane_is_due_by_batch_time_without_rows_and_once(tmp_path: Path) -> None:
    """1.4, 3.2: the step says when it is due; a batch without rows emits then, and nothing is due after that."""
    window = replace(TEN, early_rows=3, early_every=5)
    _, state = run(window, tmp_path, [(1, 0, [(1, 1, 1), (2, 1, 1)]), (2, 0, [(2, 1, 1), (2, 1, 1)])])
    assert state.due[0] == (10, 5)
    assert emitted(state.batch([], late=0, close=0, at=5)[0]) == [("EARLY", 0, 10, 1, 1, 1)]
    assert state.due[0] == (10, None)
    assert emitted(state.batch([], late=0, close=0, at=10)[0]) == []


def test_late_panes_follow_early_ones(tmp_path: Path) -> None:
    """2.6, 3.2: emit_on does not judge late rows; numbers count all panes of a key and window."""
    window = replace(TEN, early_rows=2, allowed_lateness=5)
    batches = [
        (1, 0, [(1, 1, 1), (1, 2, 2)]),
        (2, 10, [(1, 3, 4)]),
        (3, 11, [(1, 4, 8), (2, 4, 1)]),
        (4, 12, [(1, 4, 16), (1, 5, 32)]),
    ]
    answers, _ = run(window, tmp_path / "whole", batches)
    assert [sorted(batch, key=lambda pane: pane[1]) for batch in answers] == [
        [("EARLY", 0, 10, 1, 2, 3)],
        [("ON_TIME", 1, 10, 1, 2, 3), ("LATE", 2, 10, 1, 3, 7)],
        [("LATE", 0, 10, 2, 1, 1), ("LATE", 3, 10, 1, 4, 15)],
        [("LATE", 4, 10, 1, 6, 63)],
    ]
    answers, _ = run(replace(window, accumulation=Accumulation.DISCARDING), tmp_path / "parts", batches)
    assert [sorted(batch, key=lambda pane: pane[1]) for batch in answers] == [
        [("EARLY", 0, 10, 1, 2, 3)],
        [("LATE", 1, 10, 1, 1, 4)],
        [("LATE", 0, 10, 2, 1, 1), ("LATE", 2, 10, 1, 1, 8)],
        [("LATE", 3, 10, 1, 2, 48)],
    ]


def test_the_state_shows_panes_and_forgets_them_with_their_window(tmp_path: Path) -> None:
    """2.5: a row for each key and window that is not forgotten, and none after that."""
    _, state = run(TEN, tmp_path, [(1, 0, [(1, 1, 1), (1, 2, 2), (2, 5, 1), (1, 15, 3)])])
    (disk,) = state.disks
    columns = ["k", "_rows", "window_end", "_pane", "_revision", "_new_rows"]
    rows = main_table(disk.work, disk.state()).select(columns).to_pylist()
    assert sorted((r["k"], r["window_end"].microsecond, r["_pane"], r["_revision"], r["_new_rows"]) for r in rows) == [
        (1, 10, "EARLY", 0, 0), (1, 20, None, None, 1), (2, 10, None, None, 1)
    ]  # fmt: skip
    disk.batch([], late=20, close=20)
    assert main_table(disk.work, disk.state()).num_rows == 0


def test_a_watermark_that_jumps_over_many_windows_closes_them_all(tmp_path: Path) -> None:
    """2.5: every window that has rows, in the order of their ends; the last microsecond of one is not the next's."""
    rows = [(1, t, 1) for t in (-1_000_001, -10, -1, 0, 9, 10, 1_582_934_400_000_000)]
    answers, state = run(TEN, tmp_path, [(1, -2_000_000, rows), (2, 2**62, []), (3, 2**62, [])])
    assert [(pane, end, n) for pane, _, end, _, n, _ in answers[0]] == [("EARLY", 0, 2), ("EARLY", 10, 2)]
    assert [(pane, end, n) for pane, _, end, _, n, _ in answers[1]] == [
        ("ON_TIME", -1_000_000, 1),
        ("ON_TIME", 0, 2),
        ("ON_TIME", 10, 2),
        ("ON_TIME", 20, 1),
        ("ON_TIME", 1_582_934_400_000_010, 1),
    ]
    assert answers[2] == []
    assert state.due[0] == (None, None)


def test_a_batch_without_news_writes_nothing(tmp_path: Path) -> None:
    """1.4: hours of empty batches leave the state as it is."""
    _, state = run(replace(TEN, early_every=5), tmp_path, [(1, 0, [(1, 1, 1)])])
    (disk,) = state.disks
    before = disk.ref
    for at in (2, 3, 4):
        disk.batch([], late=at, close=at, time=at)
    assert disk.ref == before


@pytest.mark.parametrize("keys", [pa.schema([]), pa.schema([("k", pa.float64())])], ids=["none", "NaN and null"])
def test_keys_that_are_no_numbers_have_panes(keys: pa.Schema, tmp_path: Path) -> None:
    """3.4: a stream without keys, NaN and null."""
    import numpy as np

    from penstock.operators.windows.time_windows import preaggregate
    from tests.support.window_samples import rows_of_branch

    spec = replace(step_of(TEN), keys=keys)
    disk = SliceDisk(spec, tmp_path)
    values = pa.array([float("nan"), None, float("nan")], pa.float64())
    table = pa.table(
        {"k": values, "h": pa.array([7, 7, 7]), "_penstock_time": pa.array([1, 2, 3]), "v": pa.array([1, 2, 4])}
    )

    def delta(rows: pa.Table) -> pa.Table:
        branch = rows_of_branch(rows, keys.names, {"v": "v"})
        return preaggregate(branch, (0, 0, 0, 0), plan=spec.plan, window=TEN)

    assert disk.batch([delta(table.slice(0, 1))], late=0, close=0).output.num_rows == 0
    out = disk.batch([delta(table.slice(1))], late=0, close=0).output.to_pylist()
    expected = [(3, 7)] if not keys.names else [(2, 5)]
    assert [(row["n"], row["total"]) for row in out] == expected
    assert keys.names == [] or np.isnan(out[0]["k"])
