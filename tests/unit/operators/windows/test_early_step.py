"""F51, 10.1: the state of windows with early panes is shown, rebuilt, and resumed from by other code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import JobError, StateError
from penstock.graph.policies import Accumulation
from penstock.graph.windows import TimeWindow
from penstock.operators.protocol import HASHED, MAIN
from penstock.runtime.tasks.partition_state import main_table
from tests.support.slice_disk import SliceDisk
from tests.support.window_partitions import ALL, EXACT, Partitions, Row, emitted, step_of

TEN = TimeWindow(size=10, every=10, early_rows=2)


def begun(window: TimeWindow, root: Path) -> SliceDisk:
    """Return a partition in which keys 1 and 2 have one row each in [0, 10)."""
    state = Partitions(step_of(window), root, 1)
    state.batch([{"k": k, "t": 4 + k, "v": 1} for k in (1, 2)], late=0, close=0, at=1)
    return state.disks[0]


def resumed(disk: SliceDisk, window: TimeWindow, aggregates=EXACT) -> SliceDisk:
    """Return the same state with other code."""
    return SliceDisk(step_of(window, aggregates), disk.root, disk.ref, disk.batches)


@pytest.mark.parametrize(
    ("now", "accepted", "refused"),
    [
        ({"early_rows": 5}, (), ()),
        ({"early_rows": None, "early_every": 5}, (), ()),
        (
            {"early_rows": None},
            (),
            ("it had early panes of all rows and has no early panes, which are kept in another way",),
        ),
        (
            {"accumulation": Accumulation.DISCARDING},
            (),
            ("it had early panes of all rows and has early panes of new rows, which are kept in another way",),
        ),
    ],
    ids=["other rows", "by time instead", "none", "discarding"],
)
def test_when_panes_come_may_change_and_what_they_have_may_not(now, accepted, refused, tmp_path: Path) -> None:
    """F51: the state has what has been emitted, and not when."""
    other = resumed(begun(TEN, tmp_path), replace(TEN, **now))
    evolution = other.work.evolution(other.state())
    assert (evolution.accepted, evolution.refused) == (accepted, refused)


def test_rows_that_waited_for_others_are_emitted_once_emit_every_is_there(tmp_path: Path) -> None:
    """F51: a job that had emit_on only resumes with emit_every, and the other way round."""
    timed = resumed(begun(replace(TEN, early_rows=9), tmp_path), replace(TEN, early_rows=None, early_every=5))
    waits = timed.batch([], late=0, close=0, time=2)
    assert (waits.output.num_rows, waits.due_time) == (0, 5)
    flushed = timed.batch([], late=0, close=0, time=5)
    assert (sorted(flushed.output["k"].to_pylist()), flushed.due_time) == ([1, 2], None)
    counted = resumed(timed, replace(TEN, early_rows=1))
    assert counted.batch([], late=0, close=0, time=9).output.num_rows == 0


def test_emit_every_that_is_added_is_due_though_no_batch_is_at_a_multiple(tmp_path: Path) -> None:
    """3.2: the first batch at or after the multiple emits what was held, though no batch before it has rows."""
    window = replace(TEN, early_rows=9)
    timed = resumed(begun(window, tmp_path), replace(window, early_every=10))
    made = [timed.batch([], late=0, close=0, time=time) for time in (2, 8, 11, 14, 23)]
    assert [batch.output.num_rows for batch in made] == [0, 0, 2, 0, 0]
    assert [batch.due_time for batch in made] == [10, 10, None, None, None]


@pytest.mark.parametrize("every", [20, 2], ids=["longer", "shorter"])
def test_another_time_reaches_waiting_windows_at_once(every: int, tmp_path: Path) -> None:
    """3.2, F51: they are due at the first multiple after the batch before, as where the state is rebuilt."""
    timed = resumed(begun(replace(TEN, early_rows=None, early_every=5), tmp_path), replace(TEN, early_every=every))
    due = {20: 20, 2: 2}[every]
    waits = timed.batch([], late=0, close=0, time=due - 1, before=1)
    assert (waits.output.num_rows, waits.due_time) == (0, due)
    flushed = timed.batch([], late=0, close=0, time=due + 1, before=1)
    assert (sorted(flushed.output["k"].to_pylist()), flushed.due_time) == ([1, 2], None)


@pytest.mark.parametrize("came", [[], [{"k": 3, "t": 9, "v": 1}]], ids=["no rows", "rows"])
def test_emit_every_that_comes_back_is_due_as_one_that_is_new(came: list[Row], tmp_path: Path) -> None:
    """1.6, 3.2: at its next multiple, whether or not other keys of the partition had rows without it."""
    timed = replace(TEN, early_rows=None, early_every=5)
    state = Partitions(step_of(timed), tmp_path, 1)
    state.disks = [resumed(begun(timed, tmp_path), replace(TEN, early_rows=9))]
    state.batch(came, late=0, close=0, at=40)
    again = resumed(state.disks[0], timed)
    waits = again.batch([], late=0, close=0, time=41, before=40)
    assert (waits.output.num_rows, waits.due_time) == (0, 45)
    assert again.batch([], late=0, close=0, time=45, before=41).output.num_rows == 2 + len(came)


def test_a_new_aggregate_counts_the_rows_that_come_from_now_on(tmp_path: Path) -> None:
    """F51: as for windows without early panes; the others keep what they have."""
    state = Partitions(step_of(TEN, ALL), tmp_path, 1)
    disk = begun(TEN, tmp_path)
    other = resumed(disk, TEN, ALL)
    evolution = other.work.evolution(other.state())
    assert evolution.refused == ()
    assert [text for text in evolution.accepted if "is new" in text]
    state.disks = [other]
    (row,) = state.batch([{"k": 1, "t": 5, "v": 7}], late=0, close=0, at=2)[0]
    assert (row["n"], row["total"], row["low"], row["last"]) == (2, 8, 7, 7)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "1 more rows than keys and windows"),
        (lambda rows: with_column(rows, "window_end", 11), "no window ends at 11 us"),
        (lambda rows: with_column(rows, "window_end", None), "2 rows without window_end"),
        (lambda rows: with_column(rows, "_new_rows", None), "2 rows without _new_rows"),
    ],
    ids=["a row twice", "no end of a window", "no window", "no number of new rows"],
)
def test_tables_that_are_no_state_are_refused(change, problem: str, tmp_path: Path) -> None:
    """10.1: what a person gives as state is checked."""
    disk = begun(TEN, tmp_path)
    rows = main_table(disk.work, disk.state())
    rows = change(rows.append_column(HASHED, rows["k"]))
    with pytest.raises(StateError, match=problem):
        disk.work.rebuilt({MAIN: rows}, disk.facts(0, 0, 2).of_step("w"))


def with_column(rows: pa.Table, name: str, value: int | None) -> pa.Table:
    column = pa.array([value] * rows.num_rows, pa.int64()).cast(rows.schema.field(name).type)
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def test_an_empty_table_is_an_empty_state(tmp_path: Path) -> None:
    """10.1: a partition of which the table has no rows."""
    disk = begun(TEN, tmp_path)
    rows = main_table(disk.work, disk.state()).slice(0, 0)
    made = disk.work.rebuilt({MAIN: rows.append_column(HASHED, rows["k"])}, disk.facts(7, 7, 2).of_step("w"))
    assert (made.due, made.due_time, made.change.append) == (None, None, {})


def test_a_rebuilt_state_waits_for_the_next_multiple(tmp_path: Path) -> None:
    """3.2: panes that were due keep their time in other partitions."""
    state = Partitions(step_of(replace(TEN, early_rows=None, early_every=5)), tmp_path, 1)
    state.batch([{"k": 1, "t": 5, "v": 1}], late=0, close=0, at=3)
    state.rescale(1, 0, 3)
    assert state.due[0] == (10, 5)
    assert emitted(state.batch([], late=0, close=0, at=5)[0]) == [("EARLY", 0, 10, 1, 1, 1)]


def test_a_key_cannot_have_the_name_of_a_column_of_the_state() -> None:
    """Bad input: refused when the job is built."""
    with pytest.raises(JobError, match="_new_rows"):
        SliceDisk(replace(step_of(TEN), keys=pa.schema([("_new_rows", pa.int64())])), Path())
