"""Outer joins emit rows without a match once, when the watermark says that no match can come (SEMANTICS 7.6)."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from join_disk import JoinDisk, Made, Row
from join_model import END, JoinModel

from penstock.graph.specs.join import JoinKind
from penstock.operators import join_unmatched

HOURS = 3_600_000_000


def rows_of(made: Made) -> list[tuple[str | None, int | None, int | None, int]]:
    """Return what a batch emitted, in order, with event times."""
    return [(*row, time) for row, time in zip(made.output, made.times, strict=True)]


def drawn_batches(drawn: random.Random, start: int, batches: int, unit: int) -> list[list[list[Row]]]:
    """Return rows of few keys around a time that moves on by jumps of `unit`; some are old, some have no key."""
    fed, now, number = [], start, 0
    for _ in range(batches):
        now += unit * drawn.choice([0, 1, 3, 3, 10, 40])
        sides: list[list[Row]] = [[], []]
        for side in sides:
            for _ in range(drawn.choice([0, 1, 2, 5])):
                key = drawn.choice(["a", "b", "c", "d", None])
                side.append((key, now - unit * drawn.choice([0, 0, 1, 2, 5, 9, 30]), number))
                number += 1
        fed.append(sides)
    return fed


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 10**9),
    how=st.sampled_from([kind.value for kind in JoinKind]),
    within=st.sampled_from([(-5, 5), (0, 0), (2, 9), (-9, -2), (-12, 1), (0, 30)]),
    partitions=st.sampled_from([1, 2, 8]),
    hashes=st.sampled_from([1, 1000]),
    start=st.sampled_from([0, -50, 10**15]),
    unit=st.sampled_from([1, 300_000, 7_000_000]),
    chained=st.booleans(),
)
def test_a_join_is_that_of_the_model(
    seed: int,
    how: str,
    within: tuple[int, int],
    partitions: int,
    hashes: int,
    start: int,
    unit: int,
    *,
    chained: bool,
) -> None:
    """7.6, 1.6, 2.3, 2.10: pairs and outer rows by batch and in order, through late rows, jumps and rescales.

    A chained step judges by the watermark of the batch before. Each batch opens the state anew, as a restart does. It
    has several tasks a side, which send in any order, and attempts of tasks crash.
    Of the units of time one has all rows in a slice, and the others put neighbours and bounds into several.
    """
    within = (unit * within[0], unit * within[1])
    drawn, model = random.Random(seed), JoinModel(within, JoinKind(how).outer, hashes)
    with TemporaryDirectory() as root:
        disk = JoinDisk(within, how, root, partitions=partitions, hashes=hashes)
        disk.crashes = random.Random(seed)
        before = close = None
        counts: dict[str, int] = {}
        highest = start
        for number, fed in enumerate([*drawn_batches(drawn, start, 6, unit), [[], []]]):
            made = disk.batch(fed, late=before if chained else close, close=close)
            by_rows, by_time = model.batch(fed, late=before if chained else close, close=close)
            got = rows_of(made)
            assert got[: len(by_rows)] == by_rows
            assert sorted(got[len(by_rows) :], key=str) == sorted(by_time, key=str)
            if hashes > 1:
                assert got[len(by_rows) :] == by_time
            for name in made.counts:
                counts[name] = counts.get(name, 0) + made.counts[name]
            check_due(made.due, model, close)
            if drawn.random() < 0.2:
                partitions = drawn.choice([1, 2, 8])
                check_due(disk.rescale(partitions, close), model, close)
            highest = max([highest, *(time for side in fed for _, time, _ in side)])
            before, close = close, END if number == 5 else max(close or highest - 8 * unit, highest - 8 * unit)
        assert not model.waiting()
        assert {name: counts.get(name, 0) for name in model.counts} == dict(model.counts)
        assert counts["rows"] == counts["late"] + counts["null_keys"] + counts["merged"]
        assert counts.get("emitted", counts.get("pairs", 0)) == sum(
            counts.get(name, 0) for name in ("pairs", "unmatched_left", "unmatched_right")
        )


def check_due(due: int | None, model: JoinModel, close: int | None) -> None:
    """Assert that the step asks for a batch no later than its first outer row needs one, and for none in vain."""
    first = min(model.waiting(), default=None)
    if first is not None:
        assert due is not None
        assert due <= first + 1
    assert due is None or close is None or due > close


@pytest.mark.parametrize(("how", "side"), [("left", 0), ("right", 1), ("full", 0), ("full", 1)])
@pytest.mark.parametrize("within", [(-5, 7), (3, 7), (-7, -3), (0, 0)], ids=str)
def test_an_outer_row_comes_with_the_first_watermark_that_no_match_survives(
    tmp_path: Path, how: str, side: int, within: tuple[int, int]
) -> None:
    """2.3, 7.6: at the last bound a match may still come with a row at the watermark; one microsecond on, none can."""
    last = 100 + (within[1] if side == 0 else -within[0])
    fed: list[list[Row]] = [[], []]
    fed[side] = [("a", 100, 1)]
    disk = JoinDisk(within, how, tmp_path)
    made = disk.batch(fed, late=0, close=0)
    assert made.output == []
    assert made.due == last + 1
    assert disk.batch([[], []], late=last, close=last).output == []
    assert disk.state()[0]["_matched"] is False
    made = disk.batch([[], []], late=last + 1, close=last + 1)
    assert rows_of(made) == [("a", *((1, None) if side == 0 else (None, 1)), max(100, last))]
    assert made.due is None
    assert made.counts[f"unmatched_{('left', 'right')[side]}"] == 1
    assert disk.state() == []
    assert disk.batch([[], []], late=last + 9, close=END).output == []


def test_a_row_at_the_watermark_still_matches_what_waits(tmp_path: Path) -> None:
    """2.3: the row on the last bound is on time, so the outer row has a match, and never comes."""
    disk = JoinDisk((0, 10), "left", tmp_path)
    disk.batch([[("a", 100, 1)], []], late=0, close=0)
    assert disk.batch([[], [("a", 110, 2)]], late=110, close=110).output == [("a", 1, 2)]
    assert disk.batch([[], []], late=END, close=END).output == []


def test_a_matched_row_matches_again_and_stays_matched(tmp_path: Path) -> None:
    """Its first match writes it once more; later ones write nothing of it, and a rescale keeps what is known."""
    disk = JoinDisk((0, 10), "left", tmp_path)
    disk.batch([[("a", 100, 1), ("a", 101, 2)], []], late=0, close=0)
    for number, time in enumerate((102, 103, 104)):
        made = disk.batch([[], [("a", time, number)]], late=0, close=90)
        assert made.output == [("a", 1, number), ("a", 2, number)]
    assert [row["_matched"] for row in disk.state()] == [True, True, None, None, None]
    disk.rescale(3, 90)
    assert disk.batch([[], []], late=END, close=END).output == []


def test_rows_with_a_null_key_come_at_once_and_at_their_place(tmp_path: Path) -> None:
    """They can match nothing, so nothing is waited for; those of the other side are dropped and counted."""
    disk = JoinDisk((-5, 5), "left", tmp_path, partitions=2)
    made = disk.batch([[("a", 9, 1), (None, 10, 2)], [("a", 10, 3), (None, 10, 4), ("a", 11, 5)]], late=0, close=0)
    assert rows_of(made) == [(None, 2, None, 10), ("a", 1, 3, 10), ("a", 1, 5, 11)]
    assert made.counts["null_keys"] == 1
    assert made.counts["unmatched_left"] == 1
    assert made.counts["merged"] == 4
    assert len(disk.state()) == 3


def test_due_rows_come_by_pieces_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watermark that jumps over many rows needs memory for a piece of them."""
    monkeypatch.setattr(join_unmatched, "MOST_ROWS", 100)
    disk, n = JoinDisk((0, HOURS), "left", tmp_path), 1_000
    disk.batch([[("abc"[t % 3], t, t) for t in range(n)], [("b", n, n)]], late=0, close=0)
    made = disk.batch([[], []], late=END, close=END)
    assert [x for _, x, _ in made.output] == [t for t in range(n) if t % 3 != 1]
    assert max(made.pieces) <= 100
    assert len(made.pieces) == 7


def test_rows_that_narrower_bounds_make_due_late_are_on_time_downstream(tmp_path: Path) -> None:
    """They come with the next batch, and no earlier in event time than the steps behind judge by."""
    disk = JoinDisk((0, 50), "left", tmp_path)
    disk.batch([[("a", 100, 1), ("b", 120, 2)], []], late=0, close=0)
    disk.batch([[], []], late=130, close=130)
    disk.use((0, 5), "left")
    made = disk.batch([[], []], late=131, close=131, judged=130)
    assert rows_of(made) == [("a", 1, None, 130), ("b", 2, None, 130)]
    assert disk.batch([[], []], late=END, close=END).output == []


def test_emitted_rows_leave_the_state_before_their_slice_does(tmp_path: Path) -> None:
    """A data checkpoint taken in between has no row that came already, and a state made of it emits none again."""
    disk = JoinDisk((0, 80 * 1_000_000), "left", tmp_path)
    second = 1_000_000
    disk.batch([[("a", second, 1), ("a", 2 * second, 2)], []], late=0, close=0)
    made = disk.batch([[], []], late=82 * second, close=82 * second)
    assert made.output == [("a", 1, None)]
    assert [row["x"] for row in disk.state()] == [2]
    disk.rescale(2, 82 * second)
    assert disk.batch([[], []], late=END, close=END).output == [("a", 2, None)]
