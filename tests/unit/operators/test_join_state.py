"""The state of a join: which rows it has, for how long, and what state it resumes from (SEMANTICS 7.6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from join_disk import JoinDisk
from join_runs import run_without_state, step_of

from penstock.errors import StateError
from penstock.operators.join import JoinStep
from penstock.operators.protocol import HASHED, MAIN, Emit, StepFacts
from penstock.state.writer import Change


def test_rows_of_each_input_are_kept_by_how_long_they_are_of_use() -> None:
    """Left rows for a day behind the watermark, right ones for no time: their slices are of other widths."""
    day = 24 * 3_600_000_000
    step = replace(step_of(pa.schema([("id", pa.string())])), earliest=0, latest=day)
    (change,) = [made for made in run_without_state(step, 1) if isinstance(made, Change)]
    assert change.facts == {"slices": {"left": day // 8, "right": 1_000_000}}


def test_bounds_are_known_to_wider_ones_where_every_row_was_forgotten_at_once() -> None:
    """F51: nothing is kept of the batch, and wider bounds would miss a row of it."""
    step = replace(step_of(pa.schema([("id", pa.string())])), earliest=-10_000_000, latest=-5_000_000)
    (change,) = [made for made in run_without_state(step, 1, watermark=1_000_000) if isinstance(made, Change)]
    assert set(change.append) == {"right"}
    step = replace(step, earliest=5_000_000, latest=10_000_000)
    (change,) = [made for made in run_without_state(step, 1, watermark=20_000_000) if isinstance(made, Change)]
    assert (change.append, change.facts is not None) == ({}, True)


def test_a_column_that_moved_to_the_other_input_is_gone() -> None:
    """Restores from tables compare each input by itself, as a restart does."""
    step = step_of(pa.schema([("id", pa.string())]))
    turned = replace(step, inputs=step.inputs[::-1])
    stored = step.tables[MAIN]
    assert step.evolved(step.layout_name, ["id"], stored).refused == ()
    assert any("x" in words for words in turned.evolved(step.layout_name, ["id"], stored).refused)


def test_state_made_anew_has_rows_that_may_match() -> None:
    """A row without its side or time is refused, and one that the watermark has passed is left out."""
    step = step_of(pa.schema([("id", pa.string())]))
    moment = StepFacts(batch=0, time=0, watermark=10_000_000)

    def table(*given: tuple[str | None, int | None]) -> dict[str, pa.Table]:
        rows = [
            {"id": "a", "_side": side, "_event_time": t, "_batch": 0, "_number": 0, "x": 1, "y": 2, HASHED: 7}
            for side, t in given
        ]
        return {MAIN: pa.Table.from_pylist(rows, schema=pa.schema([*step.tables[MAIN], (HASHED, pa.int64())]))}

    made = step.rebuilt(table(("left", 5_000_000), ("right", 4_999_999), ("right", 6_000_000)), moment).change.append
    assert {part: rows.num_rows for part, rows in made.items()} == {"left": 1, "right": 1}
    assert made["left"]["_group"].to_pylist() == [5_000_000]
    with pytest.raises(StateError, match="1 rows without _event_time"):
        step.rebuilt(table(("left", None)), moment)
    with pytest.raises(StateError, match="_side 'middle'"):
        step.rebuilt(table(("middle", 5)), moment)


@pytest.mark.parametrize("watermark", [None, -(2**63), 2**63 - 2])
def test_the_widest_bounds_are_no_overflow(watermark: int | None) -> None:
    """They reach to the ends of time, from rows that are there; groups that the state is asked for have 64 bits."""
    keys = pa.schema([("id", pa.string())])
    sides = step_of(keys).inputs
    step = JoinStep(name="pairs", inputs=sides, earliest=-(2**63) + 1, latest=2**63 - 1)
    times = [-(2**62), 0, 2**62 - 1]
    made = [*run_without_state(step, 3, watermark=watermark, times=times)]
    assert [emit.rows.num_rows for emit in made if isinstance(emit, Emit)] == [9]
    (change,) = [change for change in made if isinstance(change, Change)]
    kept = [group for rows in change.append.values() for group in rows["_group"].to_pylist()]
    assert all(-(2**63) <= group < 2**63 for group in kept)


@pytest.mark.parametrize(("before", "now"), [("inner", "left"), ("left", "inner"), ("left", "full"), ("full", "right")])
def test_another_kind_of_join_does_not_resume(tmp_path: Path, before: str, now: str) -> None:
    """F51: which rows had a match is not known of a side that was not outer; the kind itself is in the refusal."""
    disk = JoinDisk((0, 10), before, tmp_path)
    disk.batch([[("a", 1, 1)], [("b", 1, 1)]], late=0, close=0)
    assert disk.refused() == ()
    disk.use((0, 9), before)
    assert disk.refused() == ()
    disk.use((0, 10), now)
    (words,) = disk.refused()
    assert words.startswith(f"how was {before!r} and is {now!r}")
    assert "under another name" in words


def test_an_inner_join_has_the_state_that_it_had_before_outer_joins() -> None:
    """Its layout, parts and tables say nothing of matches, so state of older releases resumes."""
    step = step_of(pa.schema([("id", pa.string())]))
    assert '"how"' not in step.layout_name
    assert [*step.parts] == ["left", "right"]
    assert "_matched" not in step.tables[MAIN].names


def test_state_of_an_outer_side_says_which_rows_had_a_match(tmp_path: Path) -> None:
    """Rows of the other side do not need to; a state made of a table is due as its rows are."""
    disk = JoinDisk((0, 10), "left", tmp_path)
    rows = [
        {"k": "a", "_side": side, "_event_time": time, "_batch": 0, "_number": 0, "_matched": matched, HASHED: 7}
        for side, time, matched in (("left", 5, False), ("left", 1, True), ("right", 3, None))
    ]
    schema = pa.schema([*disk.step.tables[MAIN], (HASHED, pa.int64())])
    moment = StepFacts(batch=0, time=0, watermark=8)
    rebuilt = disk.step.rebuilt({MAIN: pa.Table.from_pylist(rows, schema=schema)}, moment)
    counted = {part: table.num_rows for part, table in rebuilt.change.append.items()}
    assert counted == {"left": 2, "right": 0, "unmatched_left": 1}
    assert rebuilt.due == 16
    rows[0]["_matched"] = None
    with pytest.raises(StateError, match="1 rows without _matched"):
        disk.step.rebuilt({MAIN: pa.Table.from_pylist(rows, schema=schema)}, moment)
