"""SEMANTICS 2.5, 2.6: late rows revise windows that have closed, until the allowed lateness is over."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import seconds
from penstock.errors import JobError
from penstock.graph.policies import Accumulation, LatenessRule
from penstock.graph.windows import TimeWindow
from penstock.runtime.tasks.partition_state import main_table
from penstock.windows import Tumbling, drop_late, late_to
from tests.support.slice_disk import SliceDisk
from tests.support.window_partitions import ALL, EXACT, Partitions, assert_right, emitted, model_of, step_of


@st.composite
def windows(draw) -> TimeWindow:
    """Draw windows of up to ten slides; late rows revise most of them, and others are emitted once."""
    every = draw(st.integers(1, 6))
    size = draw(st.integers(1, 10)) * every + draw(st.sampled_from([0, 0, 1]))
    return TimeWindow(
        size=size,
        every=every,
        offset=draw(st.integers(-5, 5)),
        allowed_lateness=draw(st.just(0) | st.integers(1, 40)),
        accumulation=draw(st.sampled_from(Accumulation)),
    )


ROW = st.builds(
    dict, k=st.integers(0, 4), t=st.sampled_from([0, 1, 5]) | st.integers(-50, 12), v=st.none() | st.integers(-99, 99)
)
BATCH = st.tuples(
    st.integers(0, 15),  # how far the watermark moves
    st.lists(ROW, max_size=8),  # with times from the watermark on
    st.sampled_from(["run", "run", "run", "crash", "rescale 1", "rescale 2", "rescale 8"]),
)


@pytest.mark.slow
@pytest.mark.fault("F43")
@pytest.mark.parametrize("aggregates", [EXACT, ALL], ids=["with an inverse", "without"])
@settings(max_examples=examples(12), deadline=None)
@given(window=windows(), batches=st.lists(BATCH, min_size=4, max_size=16), count=st.sampled_from([1, 2, 8]))
def test_revisions_are_those_of_the_definition(aggregates, window: TimeWindow, batches, count: int) -> None:
    """1.6, 2.5, 2.6, 10.5: rows out of order, in random batches and tasks, with restarts, crashes and rescaling."""
    spec, model, mark = step_of(window, aggregates), model_of(window, aggregates), 0
    with tempfile.TemporaryDirectory() as root:
        state = Partitions(spec, Path(root), count, Random(len(batches)))
        before = None
        for moved, given_rows, event in batches:
            mark += moved
            late = mark if before is None or moved % 2 else before  # a chained step judges by the batch before
            rows = [row | {"t": mark + row["t"]} for row in given_rows]
            if event == "crash":
                state.crash(rows, late=late, close=mark)
            elif event.startswith("rescale") and before is not None:
                state.rescale(int(event.split()[1]), before)
            assert_right(state.batch(rows, late=late, close=mark), model.batch(rows, late=late, close=mark))
            before = mark


TEN = TimeWindow(size=10, every=10, allowed_lateness=5)


def run(window: TimeWindow, root: Path, batches: Sequence[tuple[int, Sequence[tuple[int, int, int]]]]):
    """Run batches of (watermark, rows of key, time and value); return what each emitted, and its late times."""
    state, model = Partitions(step_of(window), root, 1), model_of(window)
    answers = []
    for mark, given_rows in batches:
        rows = [{"k": k, "t": t, "v": v} for k, t, v in given_rows]
        actual = state.batch(rows, late=mark, close=mark)
        assert_right(actual, model.batch(rows, late=mark, close=mark))
        answers.append((emitted(actual[0]), [row["t"] for row in actual[1]]))
    return answers, state


@pytest.mark.parametrize(
    ("mark", "rows", "expected", "late"),
    [
        (9, [(1, 9, 7)], [], []),
        (10, [], [("ON_TIME", 0, 10, 1, 1, 1)], []),
        (10, [(1, 9, 7)], [("ON_TIME", 0, 10, 1, 1, 1), ("LATE", 1, 10, 1, 2, 8)], []),
        (10, [(1, 10, 7)], [("ON_TIME", 0, 10, 1, 1, 1)], []),
        (14, [(1, 0, 7)], [("ON_TIME", 0, 10, 1, 1, 1), ("LATE", 1, 10, 1, 2, 8)], []),
        (15, [(1, 9, 7)], [("ON_TIME", 0, 10, 1, 1, 1)], [9]),
        (15, [(1, 14, 7), (1, 15, 9)], [("ON_TIME", 0, 10, 1, 1, 1)], []),
        (12, [(2, 3, 7)], [("ON_TIME", 0, 10, 1, 1, 1), ("LATE", 0, 10, 2, 1, 7)], []),
        (12, [(1, 3, 7), (1, 4, 8), (2, 0, 1)], [
            ("ON_TIME", 0, 10, 1, 1, 1), ("LATE", 0, 10, 2, 1, 1), ("LATE", 1, 10, 1, 3, 16),
        ], []),
    ],
    ids=[
        "before the end",
        "at the end",
        "late in the batch that closes the window",
        "at the end, of the next window",
        "the last microsecond of the lateness",
        "at the bound of the lateness",
        "open windows at the bound",
        "a key that the window had not",
        "once for a batch, key and window",
    ],
)  # fmt: skip
def test_a_revision_by_the_clock(mark, rows, expected, late, tmp_path: Path) -> None:
    """2.5, 2.6: [0, 10) with one row of value 1 closes at watermark 10, and is forgotten at 15."""
    (_, (output, late_times)), _ = run(TEN, tmp_path, [(0, [(1, 5, 1)]), (mark, rows)])
    assert (sorted(output, key=lambda row: (row[0] == "LATE", row[1])), late_times) == (expected, late)


def test_revisions_are_numbered_over_batches_and_forgotten_with_their_window(tmp_path: Path) -> None:
    """2.6: one revision a batch, numbered; then the state has neither slices nor numbers of the window."""
    batches = [
        (0, [(1, 5, 1)]),
        (10, []),
        (11, [(1, 5, 10)]),
        (12, []),
        (13, [(1, 6, 100), (1, 7, 0)]),
        (14, [(1, 8, 5)]),
    ]
    answers, state = run(TEN, tmp_path, batches)
    assert [output for output, _ in answers] == [
        [],
        [("ON_TIME", 0, 10, 1, 1, 1)],
        [("LATE", 1, 10, 1, 2, 11)],
        [],
        [("LATE", 2, 10, 1, 4, 111)],
        [("LATE", 3, 10, 1, 5, 116)],
    ]
    (disk,) = state.disks
    shown = main_table(disk.work, disk.state()).select(["k", "slice_start", "window_end", "_revision"]).to_pylist()
    assert [row["_revision"] for row in shown] == [None, 3]
    disk.batch([], late=15, close=15)
    assert main_table(disk.work, disk.state()).num_rows == 0


@pytest.mark.parametrize("count", [1, 2, 8])
def test_numbers_survive_a_rescale_and_a_crash(count: int, tmp_path: Path) -> None:
    """2.6, 10.1: the tables of a data checkpoint have the numbers; a batch that was not committed leaves none."""
    _, state = run(TEN, tmp_path, [(0, [(1, 5, 1), (2, 5, 1)]), (11, [(1, 5, 10)]), (12, [(1, 5, 10), (3, 1, 1)])])
    state.rescale(count, 12)
    rows = [{"k": key, "t": 6, "v": 100} for key in (1, 2, 3, 4)]
    state.crash(rows, late=13, close=13)
    output, late = state.batch(rows, late=13, close=13)
    assert sorted(row[1:] for row in emitted(output)) == [
        (0, 10, 4, 1, 100), (1, 10, 2, 2, 101), (1, 10, 3, 2, 101), (3, 10, 1, 4, 121)
    ]  # fmt: skip
    assert late == []


def test_a_discarding_revision_has_the_late_rows_alone(tmp_path: Path) -> None:
    """2.6: the late rows' value when discarding, numbered as any other."""
    window = TimeWindow(size=10, every=10, allowed_lateness=5, accumulation=Accumulation.DISCARDING)
    answers, _ = run(window, tmp_path, [(0, [(1, 5, 1)]), (12, [(1, 5, 10)]), (13, [(1, 5, 30), (1, 6, 1)])])
    assert answers[1][0] == [("ON_TIME", 0, 10, 1, 1, 1), ("LATE", 1, 10, 1, 1, 10)]
    assert answers[2][0] == [("LATE", 2, 10, 1, 2, 31)]


def test_a_row_revises_each_of_its_windows_that_is_not_forgotten(tmp_path: Path) -> None:
    """2.5, 2.6: a sliding window: forgotten ones are left alone, closed ones revised, open ones count the row."""
    window = TimeWindow(size=10, every=5, allowed_lateness=5)
    answers, _ = run(window, tmp_path, [(0, [(1, 8, 1)]), (15, [(1, 8, 10)]), (20, [(1, 12, 3)])])
    # At 15 the window [0, 10) is forgotten and [5, 15) has just closed.
    assert answers[1][0] == [("ON_TIME", 0, 10, 1, 1, 1), ("ON_TIME", 0, 15, 1, 1, 1), ("LATE", 1, 15, 1, 2, 11)]
    # At 20 the window [5, 15) is forgotten: the row at 12 counts for [10, 20) only, which had no rows before.
    assert answers[2][0] == [("LATE", 0, 20, 1, 1, 3)]


@pytest.mark.parametrize(("least", "last"), [(-25, -20), (-5, 0), (1_582_934_400_000_000 - 1, 1_583_020_800_000_000)])
def test_windows_before_1970_and_over_a_leap_day_are_revised(least: int, last: int, tmp_path: Path) -> None:
    """3: bounds are plain numbers, whatever the calendar says."""
    window = TimeWindow(size=last - least, every=last - least, offset=least, allowed_lateness=2)
    answers, _ = run(
        window, tmp_path, [(least, [(1, least, 1)]), (last, [(1, last - 1, 2)]), (last + 2, [(1, least, 9)])]
    )
    assert answers[1][0] == [("ON_TIME", 0, last, 1, 1, 1), ("LATE", 1, last, 1, 2, 3)]
    assert answers[2] == ([], [least])


@pytest.mark.parametrize(
    ("now", "accepted", "refused"),
    [
        (5, (), ()),
        (3, ("windows are forgotten 0.003 ms after their end, not 0.005 ms",), ()),
        (7, (), ("its allowed lateness was 0.005 ms and is 0.007 ms, and windows are forgotten already",)),
        (0, (), ("its allowed lateness was 0.005 ms and is 0 ms, and windows are forgotten already",)),
    ],
    ids=["the same", "shorter", "longer", "none"],
)
def test_windows_may_be_forgotten_sooner_and_not_later(now: int, accepted, refused, tmp_path: Path) -> None:
    """2.5: a revision is of all rows of its window, so none may be of one whose slices are gone."""
    _, state = run(TEN, tmp_path, [(0, [(1, 5, 1)]), (12, [(1, 6, 2)])])
    (disk,) = state.disks
    other = SliceDisk(step_of(replace(TEN, allowed_lateness=now)), disk.root, disk.ref, disk.batches)
    evolution = other.work.evolution(other.state())
    assert (evolution.accepted, evolution.refused) == (accepted, refused)


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: Tumbling(seconds(1)).update_late(within=seconds(0), then=drop_late()), "within="),
        (lambda: Tumbling(seconds(1)).update_late(within=5, then=drop_late()), "within="),
        (lambda: Tumbling(seconds(1)).update_late(within=seconds(1), then=None), "then="),
        (lambda: Tumbling(seconds(1)).update_late(within=seconds(1), then=late_to("No")), "late stream"),
        (lambda: Tumbling(seconds(1)).drop_late().update_late(within=seconds(1), then=drop_late()), "one late policy"),
        (
            lambda: (
                Tumbling(seconds(1))
                .update_late(within=seconds(1), then=drop_late())
                .lateness_rule(LatenessRule.WATERMARK)
            ),
            "update_late revises",
        ),
    ],
)
def test_a_lateness_that_revises_nothing_is_refused(build, problem: str) -> None:
    """Bad input: refused when the window is built, with what is wrong."""
    with pytest.raises(JobError, match=problem):
        build()
