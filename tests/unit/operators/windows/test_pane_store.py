"""SEMANTICS 3.2, 3.4: the values of keys and windows are found by key, whatever their hashes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.graph.windows import TimeWindow
from penstock.operators.aggregates.naming import PARTIALS
from penstock.operators.windows.pane_store import PaneStore, newest
from penstock.operators.windows.slice_state import PANES
from penstock.operators.windows.stored_partials import GENERATION
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change
from tests.support.slice_disk import SliceDisk
from tests.support.window_partitions import step_of

SPEC = step_of(TimeWindow(size=10, every=10, early_rows=1))
LAYOUT = SPEC.layout


def partials(*rows: tuple[int, int, int]) -> pa.Table:
    """Return partials of (window end, key, rows), all of one hash."""
    ends, keys, counts = zip(*rows, strict=True)
    columns = {GROUP: ends, HASH: [5] * len(rows), "k": keys}
    known = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    return pa.table(
        [known.get(f.name, pa.array(counts, pa.int64()).cast(f.type)) for f in LAYOUT.schema], LAYOUT.schema
    )


def stored(root: Path, *batches: tuple[pa.Table, list[str | None], list[int], list[int]]) -> PaneStore:
    """Return the store that batches of partials, panes, numbers and new rows have left."""
    disk = SliceDisk(SPEC, root)
    for rows, panes, revisions, new_rows in batches:
        store = PaneStore(disk.state(), LAYOUT)
        entries = store.entries(rows, np.array(panes, dtype=object), np.array(revisions), np.array(new_rows))
        disk.write(0, disk.state(), Change(append={PANES: entries}, facts={PARTIALS: {}, GENERATION: 0}))
        disk.batches += 1
    return PaneStore(disk.state(), LAYOUT)


def test_the_newest_entry_of_a_key_and_window_is_found(tmp_path: Path) -> None:
    """3.4: two keys of one hash are two keys, and windows of one key are apart."""
    store = stored(
        tmp_path,
        (partials((10, 1, 4), (10, 2, 5), (20, 1, 6)), ["EARLY", None, "LATE"], [0, -1, 3], [0, 5, 0]),
        (partials((10, 1, 7)), ["EARLY"], [1], [2]),
    )
    known = store.known(partials((10, 3, 0), (10, 2, 0), (10, 1, 0), (20, 1, 0), (30, 1, 0)))
    assert known.held.tolist() == [False, True, True, True, False]
    assert known.revisions.tolist() == [-1, -1, 1, 3, -1]
    assert known.new_rows.tolist() == [0, 5, 2, 0, 0]
    assert known.late.tolist() == [False, False, False, True, False]
    assert known.panes.tolist() == [None, None, "EARLY", "LATE", None]


def test_rows_are_added_to_the_entries_that_count(tmp_path: Path) -> None:
    """3.2: a discarding pane leaves out what panes had; the others add up, in the order of the rows."""
    store = stored(tmp_path, (partials((10, 1, 4), (10, 2, 5)), [None, None], [-1, -1], [4, 5]))
    rows = partials((10, 2, 10), (10, 3, 20), (10, 1, 30))
    known = store.known(rows)
    whole = store.merged(rows, known, np.array([True, False, False]))
    assert (whole["k"].to_pylist(), whole["_rows"].to_pylist()) == ([2, 3, 1], [15, 20, 30])
    assert store.merged(rows, known, np.zeros(3, dtype=np.bool_)) is rows


def test_an_empty_state_knows_nothing(tmp_path: Path) -> None:
    """The first batch of a partition."""
    known = PaneStore(SliceDisk(SPEC, tmp_path).state(), LAYOUT).known(partials((10, 1, 1)))
    assert (known.held.tolist(), known.revisions.tolist(), known.panes.tolist()) == ([False], [-1], [None])


def test_the_newest_of_several_tables_is_the_last(tmp_path: Path) -> None:
    """Windows that close take the entries of the batch before those of the state."""
    rows = newest([partials((20, 1, 1), (10, 1, 1), (10, 2, 1)), partials((10, 1, 9))], LAYOUT)
    assert sorted(zip(rows[GROUP].to_pylist(), rows["k"].to_pylist(), rows["_rows"].to_pylist(), strict=True)) == [
        (10, 1, 9), (10, 2, 1), (20, 1, 1)
    ]  # fmt: skip
