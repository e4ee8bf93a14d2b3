"""`join_as_of` takes for each left row the right row that was newest at its event time (SEMANTICS 7.6)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.errors import JobError, StateError
from penstock.graph.join_arguments import JoinKind
from penstock.graph.specs.join_as_of import AsOfJoin
from penstock.operators.join_as_of import AsOfStep, bind, bind_side
from penstock.operators.protocol import HASHED, MAIN, BoundSide, StepContext, StepFacts
from penstock.time.clock import END_OF_TIME
from tests.support.as_of_disk import KEYS, AsOfDisk, Made, hash_of
from tests.support.examples import examples

NAN = float("nan")
Rows = list[dict[str, Any]]


def lefts(*rows: tuple[float | None, int, int]) -> Rows:
    """Return left rows of key, event time and number."""
    return [{"k": k, "t": t, "x": x} for k, t, x in rows]


def rights(*rows: tuple[float | None, int, int]) -> Rows:
    """Return right rows of key, event time and number."""
    return [{"k": k, "t": t, "y": y} for k, t, y in rows]


@dataclass
class Model:
    """Plain Python: each left row that is not late looks at all right rows that ever came and were not late."""

    within: int
    how: JoinKind = JoinKind.LEFT
    left: Rows = field(default_factory=list)
    right: Rows = field(default_factory=list)

    def take(self, left: Rows, right: Rows, late: int | None) -> None:
        """Take the rows of a batch in order of arrival."""
        for held, rows in ((self.left, left), (self.right, right)):
            held += [row for row in rows if late is None or row["t"] >= late]

    def pairs(self) -> list[tuple[int, int, int | None]]:
        """Return event time and number of each left row, and the number of the right row that it takes."""
        pairs = [(row["t"], row["x"], self._taken(row)) for row in self.left]
        return [pair for pair in pairs if self.how is JoinKind.LEFT or pair[2] is not None]

    def _taken(self, row: Mapping[str, Any]) -> int | None:
        taken = None
        for other in self.right:
            fits = _same(row["k"], other["k"]) and row["t"] - self.within <= other["t"] <= row["t"]
            if fits and (taken is None or other["t"] >= taken["t"]):
                taken = other
        return None if taken is None else taken["y"]


def _same(key: float | None, other: float | None) -> bool:
    if key is None or other is None:
        return False
    return key == other or (math.isnan(key) and math.isnan(other))


def in_order(pairs: Sequence[tuple[int, int, int | None]], keys: Mapping[int, Any], hashes: int) -> bool:
    """Return whether rows came by event time, then key hash, and those of one key as they arrived."""
    places = [(t, hash_of(keys[x], hashes)) for t, x, _ in pairs]
    of_keys: dict[Any, list[tuple[int, int]]] = {}
    for t, x, _ in pairs:
        of_keys.setdefault(str(keys[x]), []).append((t, x))
    return places == sorted(places) and all(rows == sorted(rows) for rows in of_keys.values())


_keys = st.sampled_from([1.0, 1.0, 2.0, 3.0, NAN, 0.0, None])
_moved = st.sampled_from([-3, -1, 0, 0, 1, 2, 5, 9])
_rows = st.lists(st.tuples(_keys, _moved), max_size=5)
_batches = st.lists(
    st.tuples(_rows, _rows, st.sampled_from([0, 0, 1, 3, 40]), st.sampled_from([None, None, None, 1, 2, 8])),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@hypothesis_settings(max_examples=examples(20), deadline=None)
@given(
    batches=_batches,
    partitions=st.sampled_from([1, 2, 8]),
    within=st.sampled_from([0, 1, 4, 30]),
    how=st.sampled_from([*JoinKind]),
    chained=st.booleans(),
    hashes=st.sampled_from([1, 1000]),
    seed=st.integers(0, 10**9),
)
def test_left_rows_take_what_the_model_takes(
    batches: list[tuple[Any, Any, int, int | None]],
    partitions: int,
    within: int,
    how: JoinKind,
    chained: bool,  # noqa: FBT001
    hashes: int,
    seed: int,
) -> None:
    """Once, in the batch whose watermark has passed them; through restarts, and rescaling at any point.

    Behind another step rows are judged by the watermark of the batch before. A batch has several tasks a side, which
    send in any order, and attempts of tasks crash (1.6).
    """
    model, close, before = Model(within, how), None, None
    with TemporaryDirectory() as folder:
        disk = AsOfDisk(folder, within=within, how=how, partitions=partitions, hashes=hashes)
        disk.crashes = random.Random(seed)
        emitted: list[tuple[int, int, int | None]] = []
        keys, number = {}, 0
        for left, right, moves, rescaled in batches:
            base = -5 if close is None else close
            left_rows = lefts(*((k, base + by, number + n) for n, (k, by) in enumerate(left)))
            right_rows = rights(*((k, base + by, number + n) for n, (k, by) in enumerate(right)))
            keys |= {row["x"]: row["k"] for row in left_rows}
            number += 10
            late = before if chained else close
            model.take(left_rows, right_rows, late)
            made = disk.batch(left_rows, right_rows, late=late, close=close)
            expected = [pair for pair in model.pairs() if close is not None and pair[0] < close]
            assert sorted(made.pairs, key=str) == sorted(
                (pair for pair in expected if pair[:2] not in {p[:2] for p in emitted}), key=str
            )
            assert in_order(made.pairs, keys, hashes)
            emitted += made.pairs
            waits = [t for t, *_ in replace(model, how=JoinKind.LEFT).pairs() if close is None or t >= close]
            if how is JoinKind.LEFT:
                assert made.due == min((t + 1 for t in waits), default=None)
            if rescaled is not None:
                disk.rescale(rescaled, close)
            before, close = close, base + moves
        emitted += disk.batch([], [], late=before, close=END_OF_TIME).pairs
        assert sorted(emitted, key=str) == sorted(model.pairs(), key=str)


@hypothesis_settings(max_examples=examples(10), deadline=None)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.sampled_from([1.0, 2.0]), st.integers(0, 4)), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    partitions=st.sampled_from([1, 2, 8]),
)
def test_cuts_make_no_difference_where_no_row_is_late(
    rows: list[tuple[bool, float, int]], cuts: list[int], partitions: int
) -> None:
    """Rows at most four out of order, in one batch or in many: the same rows in the same order."""
    fed = [(left, key, n - back, n) for n, (left, key, back) in enumerate(rows)]
    outputs = []
    for ends in ([len(fed)], [*sorted(cuts), len(fed)]):
        with TemporaryDirectory() as folder:
            disk, close, start = AsOfDisk(folder, within=6, partitions=partitions), None, 0
            made: list[tuple[int, int, int | None]] = []
            for end in ends:
                piece = fed[start:end]
                left_rows = lefts(*(row[1:] for row in piece if row[0]))
                right_rows = rights(*(row[1:] for row in piece if not row[0]))
                made += disk.batch(left_rows, right_rows, late=close, close=close).pairs
                start = max(start, end)
                close = start - 5 if start else None
            made += disk.batch([], [], late=close, close=END_OF_TIME).pairs
            outputs.append(made)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == sum(left for left, *_ in fed)


S = 1_000_000


@pytest.mark.parametrize(
    ("left", "right", "taken"),
    [
        pytest.param([(1.0, 10)], [(1.0, 10)], [0], id="of the same time"),
        pytest.param([(1.0, 10)], [(1.0, 11)], [None], id="none is later"),
        pytest.param([(1.0, 10)], [(1.0, 8), (1.0, 9), (1.0, 7)], [1], id="the greatest time"),
        pytest.param([(1.0, 10)], [(1.0, 9), (1.0, 9), (1.0, 8)], [1], id="of equal times the last to arrive"),
        pytest.param([(1.0, 10)], [(1.0, 5)], [0], id="at the bound"),
        pytest.param([(1.0, 10)], [(1.0, 4)], [None], id="below the bound"),
        pytest.param([(1.0, 10), (1.0, 12), (1.0, 12)], [(1.0, 9)], [0, 0, 0], id="one right row for several"),
        pytest.param([(1.0, 10)], [(2.0, 10)], [None], id="of another key"),
        pytest.param([(NAN, 10), (-0.0, 10)], [(NAN, 9), (0.0, 9)], [0, 1], id="NaN is one and zero is one"),
        pytest.param([(None, 10)], [(None, 10)], [None], id="null equals nothing"),
        pytest.param([(1.0, -10)], [(1.0, -12), (1.0, -14)], [0], id="before 1970"),
    ],
)
@pytest.mark.parametrize("held", [False, True], ids=["in one batch", "from the state"])
def test_which_row_is_taken(
    tmp_path: Path,
    left: list[tuple[float | None, int]],
    right: list[tuple[float | None, int]],
    taken: list[int | None],
    held: bool,  # noqa: FBT001
) -> None:
    """Whether the right rows come with the left ones, or were held for them."""
    left_rows = lefts(*((k, t, n) for n, (k, t) in enumerate(left)))
    right_rows = rights(*((k, t, n) for n, (k, t) in enumerate(right)))
    disk, late, pairs = AsOfDisk(tmp_path, within=5, hashes=7), -100, []
    if held:
        disk.batch([], right_rows, late=late, close=late)
        # The watermark settles right rows that stay of use.
        late = min(t for _, t in left)
        pairs += disk.batch([], [], late=late, close=late).pairs
        right_rows = []
    pairs += disk.batch(left_rows, right_rows, late=late, close=late).pairs
    assert pairs == []
    made = disk.batch([], [], late=1000, close=1000)
    assert [y for _, _, y in sorted(made.pairs, key=lambda pair: pair[1])] == taken
    assert made.counts["unmatched"] == taken.count(None)


def test_a_row_at_the_watermark_waits(tmp_path: Path) -> None:
    """A right row of its own time may still come: then it is emitted, by that row (SEMANTICS 2.2)."""
    disk = AsOfDisk(tmp_path, within=5)
    assert disk.batch(lefts((1.0, 10, 1)), rights((1.0, 9, 1)), late=None, close=None).due == 11
    made = disk.batch([], rights((1.0, 10, 2), (1.0, 9, 3)), late=10, close=10)
    assert (made.pairs, made.due, made.counts["late_right"]) == ([], 11, 1)
    assert disk.batch([], [], late=11, close=11).pairs == [(10, 1, 2)]
    assert disk.batch([], [], late=90, close=90) == Made(counts=disk.batch([], [], late=90, close=90).counts)


def test_late_rows_and_null_keys_are_counted(tmp_path: Path) -> None:
    """Every row is in one count; an inner join drops left rows with a null key, a left join emits them."""
    for how, null_keys, unmatched in ((JoinKind.INNER, 2, 1), (JoinKind.LEFT, 1, 2)):
        root = tmp_path / how.value
        root.mkdir()
        disk = AsOfDisk(root, within=5, how=how)
        left, right = lefts((1.0, 9, 0), (None, 10, 1), (1.0, 10, 2)), rights((2.0, 9, 0), (None, 10, 1), (2.0, 10, 2))
        counts = disk.batch(left, right, late=10, close=10).counts
        later = disk.batch([], [], late=20, close=20)
        assert (counts["rows"], counts["late_left"], counts["late_right"], counts["late"]) == (6, 1, 1, 2)
        assert (counts["null_keys"], counts["merged"]) == (null_keys, 4 - null_keys)
        assert (later.counts["matched"], later.counts["unmatched"]) == (0, unmatched)
        assert len(later.pairs) == (0 if how is JoinKind.INNER else 2)


def step(within: int = 5, left: pa.Schema | None = None, right: pa.Schema | None = None) -> AsOfStep:
    """Return a step whose inputs have these columns beside the key."""
    visible = (left or pa.schema([("x", pa.int64())]), right or pa.schema([("y", pa.int64())]))
    spec = AsOfJoin(within=within, how=JoinKind.INNER)
    sides = [
        bind_side(
            spec,
            BoundSide(name="s", side=n, keys=KEYS, columns=("k",), visible=pa.schema([*KEYS, *columns]), inputs={}),
        )
        for n, columns in enumerate(visible)
    ]
    return bind(spec, sides, StepContext(name="s", event=True, timed=True))


@pytest.mark.fault("F51")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (step(within=4), None),
        (step(within=6), "rows that only the longer one needs"),
        (step(left=pa.schema([("x", pa.int64()), ("more", pa.string())])), None),
        (step(right=pa.schema([("y", pa.string())])), "y was int64 and is string"),
        (step(left=pa.schema([("y", pa.int64())]), right=pa.schema([("x", pa.int64())])), "column x int64 is gone"),
    ],
    ids=["shorter", "longer", "a new column", "another type", "a column that moved"],
)
def test_what_may_change_while_the_state_stays(tmp_path: Path, changed: AsOfStep, words: str | None) -> None:
    """A shorter bound and new columns; compared with segments as with tables."""
    disk = AsOfDisk(tmp_path, within=5, how=JoinKind.INNER)
    disk.batch(lefts((1.0, 5, 0)), rights((1.0, 5, 0)), late=None, close=None)
    stored = pa.schema([*disk.step.tables[MAIN]])
    by_state = changed.evolution(disk.opened())
    by_table = changed.evolved(disk.step.layout_name, ["k"], stored)
    for evolution in (by_state, by_table):
        assert any(words in clause for clause in evolution.refused) if words is not None else not evolution.refused


def test_state_of_another_operator_is_refused() -> None:
    """As state that a join keeps."""
    evolution = step().evolved("rows of both inputs: {}", ["k"], pa.schema([]))
    assert "where join_as_of keeps" in evolution.refused[0]


def test_state_made_anew_has_the_newest_of_what_the_watermark_has_passed() -> None:
    """And refuses rows that do not say what they are."""
    joins = step()
    moment = StepFacts(batch=0, time=0, watermark=10)

    def table(*rows: tuple[str | None, int | None]) -> dict[str, pa.Table]:
        made = [
            {"k": 1.0, "_side": side, "_event_time": t, "_batch": 0, "_number": n, "x": n, "y": n, HASHED: 7}
            for n, (side, t) in enumerate(rows)
        ]
        return {MAIN: pa.Table.from_pylist(made, schema=pa.schema([*joins.tables[MAIN], (HASHED, pa.int64())]))}

    given = table(("left", 12), ("right", 6), ("right", 9), ("right", 9), ("right", 10), ("left", 11))
    rebuilt = joins.rebuilt(given, moment)
    assert (rebuilt.due, rebuilt.due_time) == (12, None)
    kept = {part: rows["_group"].to_pylist() for part, rows in rebuilt.change.append.items()}
    assert kept == {"left": [12, 11], "right": [10], "newest": [0], "deadlines": [14]}
    assert rebuilt.change.append["newest"]["y"].to_pylist() == [3]
    assert joins.rebuilt(table(("right", 4)), moment).change.append == {}
    with pytest.raises(StateError, match="1 rows without _event_time"):
        joins.rebuilt(table(("left", None)), moment)
    with pytest.raises(StateError, match="_side 'middle'"):
        joins.rebuilt(table(("middle", 5)), moment)


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("x", "X", "both inputs of join_as_of 's' have a column 'X'; rename"),
        ("x", "_batch", "'_batch', a name that Penstock uses"),
    ],
)
def test_names_that_do_not_fit_are_refused(left: str, right: str, words: str) -> None:
    """Of two columns of the output, and of the state."""
    with pytest.raises(JobError, match=words):
        step(left=pa.schema([(left, pa.int64())]), right=pa.schema([(right, pa.int64())]))
