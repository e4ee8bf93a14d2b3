"""Issue 20.8: the largest open windows of a step, and the rows that others hold, from its state alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import agg, count, micros
from penstock.checkpoint.log.entries import Commit, ManifestRef
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.policies import Accumulation
from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.protocol import TIME
from penstock.operators.windows.slices import slice_starts
from penstock.operators.windows.time_windows import WindowStep, preaggregate
from penstock.runtime.inspect.open_windows import HeldRows, held_rows, largest_windows, open_windows, what_waits
from penstock.windows import Session, drop_late
from tests.support.as_of_disk import AsOfDisk
from tests.support.join_disk import JoinDisk
from tests.support.session_disk import SessionDisk
from tests.support.slice_disk import SliceDisk
from tests.support.window_samples import WINDOWS, by_definition, rows_of_branch


def delta(spec: WindowStep, times: list[int]) -> pa.Table:
    ones = pa.array([1] * len(times), pa.int64())
    table = pa.table({"k": ones, "h": ones, TIME: pa.array(times, pa.int64())})
    return preaggregate(rows_of_branch(table, ["k"], {}), (), plan=spec.plan, window=spec.window)


def committed(disk: SliceDisk, watermark: int) -> Commit:
    return Commit.model_construct(
        state={"w": {"0": ManifestRef(**disk.ref)}}, watermarks_in={"w": watermark}, watermarks_out={"w": watermark}
    )


def test_windows_that_have_not_closed_are_listed_by_their_rows(tmp_path: Path) -> None:
    """Closed windows that wait for late rows are not open, though the state has their slices (2.5)."""
    window = TimeWindow(size=10, every=5, allowed_lateness=50)
    spec = WindowStep(
        window=window, plan=AggregatePlan.build({"n": agg.count()}, {"n": None}), keys=pa.schema([("k", pa.int64())])
    )
    disk = SliceDisk(spec, LocalFolder(tmp_path))
    disk.batch([delta(spec, [1, 2, 3, 11, 17, 18])], late=0, close=0)
    disk.batch([delta(spec, [16])], late=12, close=12)
    shown = open_windows(LocalFolder(tmp_path), committed(disk, 12), 2)
    assert [(window.start, window.end, window.rows) for window in shown] == [(10, 20, 4), (15, 25, 3)]
    assert held_rows(LocalFolder(tmp_path), committed(disk, 12)) == []


def test_rows_that_wait_for_a_match_are_counted_apart(tmp_path: Path) -> None:
    """7.6: an outer row waits until a match of any batch, or its time without one; an inner join has none."""
    for how, waiting in (("left", [2, 1, 0]), ("full", [4, 2, 0]), ("inner", [0, 0, 0])):
        disk = JoinDisk((0, 10), how, tmp_path / how, partitions=2)
        (tmp_path / how).mkdir(exist_ok=True)
        batches = [
            ([("a", 20, 0), ("b", 21, 1), ("c", 22, 2)], [("c", 22, 3), ("d", 30, 4), ("e", 31, 5)]),
            ([("d", 25, 6)], [("a", 24, 7)]),
            ([], []),
        ]
        counts, close = [], 0
        for batch, watermark in zip(batches, (0, 0, 32), strict=True):
            disk.batch(batch, late=close, close=watermark)
            close = watermark
            state = {"j": {str(n): ManifestRef(**ref) for n, ref in enumerate(disk.refs) if ref is not None}}
            held = held_rows(LocalFolder(tmp_path / how), Commit.model_construct(state=state))
            counts.append(sum(of.waiting or 0 for of in held))
            if len(counts) == 1:
                assert [(of.step, of.rows) for of in held] == [("j", 6)]
        assert counts == waiting


def test_what_repeats_the_keys_of_rows_is_not_counted(tmp_path: Path) -> None:
    """Deadlines are no rows that a step holds: as many as `penstock state` shows (issue 20.8)."""
    disk = AsOfDisk(tmp_path, within=1_000)
    disk.batch([], [{"k": float(key), "t": 20, "y": key} for key in range(4)], late=0, close=0)
    disk.batch([], [], late=200, close=200)  # the rows become the newest of their keys, each with a deadline
    (ref,) = disk.refs
    assert ref is not None
    (held,) = held_rows(LocalFolder(tmp_path), Commit.model_construct(state={"s": {"0": ManifestRef(**ref)}}))
    assert (held.rows, len(disk.held()), disk.rows_in("deadlines")) == (4, 4, 4)


def test_a_page_looks_at_windows_where_there_are_few(tmp_path: Path) -> None:
    """What the command lists, or nothing where a step has more rows of windows in its files than the page may read."""
    window = TimeWindow(size=10, every=10, allowed_lateness=0)
    plan = AggregatePlan.build({"n": agg.count()}, {"n": None})
    disk = SliceDisk(WindowStep(window=window, plan=plan, keys=pa.schema([("k", pa.int64())])), LocalFolder(tmp_path))
    disk.batch([delta(disk.work, [1, 2, 11])], late=0, close=0)
    folder, commit = LocalFolder(tmp_path), committed(disk, 0)
    waits = what_waits(folder, commit, "w", most=1, entries=2)
    assert waits.windows == tuple(open_windows(folder, commit, 1))
    assert [(window.start, window.rows) for window in waits.windows or ()] == [(0, 2)]
    assert what_waits(folder, commit, "w", most=1, entries=1).windows is None


def test_a_page_counts_what_joins_hold(tmp_path: Path) -> None:
    """As the command does; which rows of a large join wait is not looked at, and the manifests have their number."""
    disk = JoinDisk((0, 10), "left", tmp_path)
    disk.batch([[("a", 20, 0), ("b", 21, 1)], [("a", 22, 2)]], late=0, close=0)
    (ref,) = disk.refs
    assert ref is not None
    commit = Commit.model_construct(state={"j": {"0": ManifestRef(**ref)}})
    waits = what_waits(LocalFolder(tmp_path), commit, "j", most=1, entries=2)
    assert waits.windows == ()
    assert waits.held == HeldRows(step="j", rows=3, waiting=1)
    assert [waits.held] == held_rows(LocalFolder(tmp_path), commit)
    assert what_waits(LocalFolder(tmp_path), commit, "j", most=1, entries=1).held == replace(waits.held, waiting=None)


@pytest.mark.parametrize(
    ("accumulation", "expected"),
    [(Accumulation.ACCUMULATING, [(5, 15, 5), (10, 20, 3)]), (Accumulation.DISCARDING, [(10, 20, 3), (5, 15, 2)])],
    ids=["all rows", "the rows of the newest pane"],
)
def test_windows_with_early_panes_are_listed_by_what_they_keep(accumulation, expected, tmp_path: Path) -> None:
    """3.2: these have a value of their own; when discarding, it has the newest rows alone."""
    window = TimeWindow(size=10, every=5, allowed_lateness=50, early_rows=2, accumulation=accumulation)
    plan = AggregatePlan.build({"n": agg.count()}, {"n": None})
    disk = SliceDisk(WindowStep(window=window, plan=plan, keys=pa.schema([("k", pa.int64())])), LocalFolder(tmp_path))
    disk.batch([delta(disk.work, [1, 6, 7, 8])], late=0, close=0)
    disk.batch([delta(disk.work, [11, 12, 16])], late=12, close=12)
    shown = open_windows(LocalFolder(tmp_path), committed(disk, 12), 2)
    assert [(window.start, window.end, window.rows) for window in shown] == expected
    assert held_rows(LocalFolder(tmp_path), committed(disk, 12)) == []


@given(WINDOWS, st.lists(st.integers(-60, 60), min_size=1, max_size=20), st.integers(-60, 60))
def test_the_rows_of_a_window_are_those_of_its_slices(window: TimeWindow, times: list[int], closed_to: int) -> None:
    """3: whatever the slide, offset and gaps between windows; a row counts in each of its windows."""
    held = np.array([time for time in times if by_definition(time, window)], dtype=np.int64)
    counts: dict[int, int] = {}
    for time in held.tolist():
        for _, end in by_definition(time, window):
            if end > closed_to:
                counts[end] = counts.get(end, 0) + 1
    starts = slice_starts(held, window) if len(held) else held
    shown = largest_windows("w", window, starts, np.ones(len(held), dtype=np.int64), closed_to, 1_000)
    assert {window.end: window.rows for window in shown} == counts
    assert [window.rows for window in shown] == sorted(counts.values(), reverse=True)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("kind", ["once", "revised", "early"])
def test_open_sessions_are_listed_by_their_rows(tmp_path: Path, partitions: int, kind: str) -> None:
    """3: each is of one key; one that closed and waits for late rows is not open, nor is a pane that a table has."""
    gap = Session(micros(10))
    window = gap.drop_late() if kind == "once" else gap.update_late(within=micros(900), then=drop_late())
    window = window.emit_on(count(3)) if kind == "early" else window
    disk = SessionDisk(window, {"n": agg.count()}, tmp_path, partitions=partitions, retracts=kind == "early")

    def rows(key: str, *times: int) -> list[dict[str, object]]:
        return [{"k": key, "t": t, "v": t, "g": 1, "n": t} for t in times]

    disk.batch([rows("a", 0, 1, 2, 3), rows("b", 50, 51, 52), rows("c", 60)], late=None, close=None)
    disk.batch([rows("b", 53), rows("a", 70, 75), rows("c", 65)], late=30, close=30)
    refs = {str(number): ManifestRef(**ref) for number, ref in enumerate(disk.refs) if ref is not None}
    commit = Commit.model_construct(state={"s": refs}, watermarks_in={"s": 30}, watermarks_out={"s": 30})
    shown = open_windows(LocalFolder(tmp_path), commit, 2)
    assert [(window.step, window.start, window.end, window.rows) for window in shown] == [
        ("s", 50, 63, 4),
        ("s", 60, 75, 2),
    ]
    assert [window.rows for window in open_windows(LocalFolder(tmp_path), commit, 9)] == [4, 2, 2]
    assert held_rows(LocalFolder(tmp_path), commit) == []
