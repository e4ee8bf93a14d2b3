"""Windows of batch time equal a model that computes each from all rows (SEMANTICS 1.3, 1.6, 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from batch_window_disk import BatchWindowDisk
from batch_window_model import BatchWindowModel
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import micros
from penstock.errors import StateError
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.operators.protocol import HASHED, MAIN, StepFacts

FORMS = {
    Form.ROWS: None,
    Form.COUNT: None,
    Form.COUNT_BY_VALUE: "v",
    Form.GROUP: "v",
    Form.REDUCE: "s",
}


def joined(first: str, second: str) -> str:
    """Return both texts: associative, and not commutative."""
    return first + second


def disk(form: Form, root: Path | str, *, length: int = 4, slide: int = 2, **more: Any) -> BatchWindowDisk:
    """Return a step on disk, with lengths in microseconds."""
    fn = {"fn": joined} if form is Form.REDUCE else {}
    window = BatchWindow(micros(length), slide=micros(slide))
    return BatchWindowDisk(window, form, root, value=FORMS[form], **fn, **more)


def row(key: str | None, value: int | None, text: str = "") -> dict[str, Any]:
    """Return a row."""
    return {"k": key, "v": value, "s": text, "x": None}


def counted(rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return rows without their order, which is that of hashes for different keys."""
    return Counter(repr(sorted(made.items())) for made in rows)


def in_order(rows: Sequence[Mapping[str, Any]]) -> dict[Any, list[Any]]:
    """Return the rows of each key in their order."""
    return {key: [dict(made) for made in rows if made.get("k") == key] for key in {made.get("k") for made in rows}}


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_worked_example_of_4_2(tmp_path: Path, partitions: int) -> None:
    """4.2: at Z+2 the batches Z+1, Z+2; at Z+4 the batches Z+1 to Z+4; at Z+6 the batches Z+3 to Z+6."""
    windows = disk(Form.GROUP, tmp_path, zero=100, partitions=partitions)
    made = [windows.batch(100 + n, [[row("a", n)]]) for n in range(1, 7)]
    assert [[r["v"] for r in rows] for rows in made] == [[], [[1, 2]], [], [[1, 2, 3, 4]], [], [[3, 4, 5, 6]]]
    (first,) = made[1]
    assert [int(first[name].timestamp() * 1e6) for name in ("window_start", "window_end")] == [98, 102]
    assert windows.due == 108


def test_windows_go_on_until_all_rows_have_left_and_then_nothing_is_due_or_kept(tmp_path: Path) -> None:
    """1.4, 4.5: batches without rows run for the windows that still have some, and the state is empty afterwards."""
    for form in FORMS:
        windows = disk(form, tmp_path / form.value)
        made, due = [], []
        windows.root.mkdir()
        for time in range(1, 11):
            made.append(len(windows.batch(time, [[row("a", 1, "x")]] if time == 3 else [])))
            due.append(windows.due)
        assert made == [0, 0, 0, 1, 0, 1, 0, 0, 0, 0], form
        assert due == [None, None, 4, 6, 6, None, None, None, None, None], form
        assert windows.state() == [], form


def test_merged_ticks_fire_every_window_over_its_own_range(tmp_path: Path) -> None:
    """1.3: one batch after missed ticks emits a window for each multiple of the slide since the batch before."""
    windows = disk(Form.GROUP, tmp_path, length=4, slide=1)
    windows.batch(1, [[row("a", 1)]])
    windows.batch(3, [[row("a", 3)]])
    made = windows.batch(6, [[row("a", 6)]])
    assert [(int(r["window_end"].timestamp() * 1e6), r["v"]) for r in made] == [(4, [1, 3]), (5, [3]), (6, [3, 6])]
    assert windows.times == [3, 4, 5]


def test_a_day_without_a_batch_costs_the_windows_that_have_rows(tmp_path: Path) -> None:
    """1.3: a merged tick passes over windows without rows, however many there are."""
    windows = disk(Form.ROWS, tmp_path, length=4, slide=2)
    windows.batch(1, [[row("a", 1)]])
    made = windows.batch(10**15, [[row("a", 2)]])
    assert [r["v"] for r in made] == [1, 1, 2]


def test_rows_between_windows_are_counted_and_not_kept(tmp_path: Path) -> None:
    """2.10, 4.1: where the slide is longer than the length, some batches are in no window."""
    windows = disk(Form.COUNT, tmp_path, length=2, slide=5)
    made = [windows.batch(time, [[row("a", time)]]) for time in range(1, 11)]
    assert [[r["count"] for r in rows] for rows in made] == [[], [], [], [], [2], [], [], [], [], [2]]
    assert windows.counts == {"rows": 10, "counted": 4, "in_no_window": 6, "merged": 4}


def test_a_stream_without_keys_has_a_count_for_every_window_after_its_first_row(tmp_path: Path) -> None:
    """4.4: as countByWindow of DStreams, which emits nothing before a row came, and 0 for a window without rows."""
    windows = disk(Form.COUNT, tmp_path, length=2, slide=2, keys=())
    made = [windows.batch(time, [[row("a", 1)] * 3] if time == 3 else []) for time in (1, 2, 3, 4, 6, 10)]
    assert [[r["count"] for r in rows] for rows in made] == [[], [], [], [3], [0], [0, 0]]
    assert windows.due == 12


VALUES = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), VALUES, st.sampled_from("xyz")), max_size=6)
BATCHES = st.lists(st.tuples(st.integers(1, 7), st.lists(ROWS, max_size=3)), min_size=1, max_size=12)


@pytest.mark.parametrize("form", list(FORMS), ids=lambda form: form.value)
@settings(max_examples=examples(10), deadline=None)
@given(
    batches=BATCHES,
    length=st.integers(1, 9),
    slide=st.integers(1, 9),
    keyed=st.sampled_from([0, 1]),
    partitions=st.sampled_from([1, 2, 8]),
    rescaled=st.tuples(st.integers(0, 11), st.sampled_from([1, 2, 8])),
    hashes=st.sampled_from([1, 1000]),
    zero=st.sampled_from([0, -50, 7]),
)
def test_windows_equal_the_model(
    form: Form,
    batches: list[tuple[int, list[list[tuple[str | None, int | None, str]]]]],
    length: int,
    slide: int,
    keyed: int,
    partitions: int,
    rescaled: tuple[int, int],
    hashes: int,
    zero: int,
) -> None:
    """1.3, 1.6, 4.2 to 4.5: over restarts, a rescale, merged ticks, empty batches, keys that share a hash, and nulls."""
    with TemporaryDirectory() as root:
        keys = ("k",) if keyed else ()
        more = {"keys": keys, "partitions": partitions if keyed else 1, "hashes": hashes, "zero": zero}
        windows = disk(form, root, length=length, slide=slide, **more)
        windows.crashes = Random(len(batches))
        model = BatchWindowModel(length, slide, form, zero=zero, keyed=bool(keyed), fn=joined)
        time = zero
        for number, (step, tasks) in enumerate(batches):
            if number == rescaled[0] and keyed:
                windows.rescale(rescaled[1])
            time += step
            fed = [[row(*values) for values in task] for task in tasks]
            made, wanted = windows.batch(time, fed), model.batch(time, [r for task in fed for r in task])
            assert counted(made) == counted(wanted)
            if form in (Form.ROWS, Form.REDUCE):
                assert in_order(made) == in_order(wanted)
            end = next(n for n in range(time + 1, time + slide + 1) if (n - zero) % slide == 0)
            emits = any(end - length < at for at, _ in model.rows) or (form is Form.COUNT and not keyed and model.seen)
            assert (windows.due is not None) == emits
            assert windows.due in (None, end)


def test_another_length_goes_on_where_no_batch_was_forgotten(tmp_path: Path) -> None:
    """F51: a shorter window has all of its batches; a longer one only until the first was forgotten."""
    short = disk(Form.COUNT, tmp_path, length=4, slide=2)
    short.batch(1, [[row("a", 1)]])
    longer, slower = disk(Form.COUNT, tmp_path, length=8, slide=2).step, disk(Form.COUNT, tmp_path, slide=1).step
    other = disk(Form.GROUP, tmp_path).step
    assert not longer.evolution(short.opened()).refused
    assert not slower.evolution(short.opened()).refused
    assert "kept 4 us" in other.evolution(short.opened()).refused[0]
    for time in range(2, 8):
        short.batch(time, [[row("a", 1)]])
    assert "forgotten" in longer.evolution(short.opened()).refused[0]
    assert not slower.evolution(short.opened()).refused
    assert not disk(Form.COUNT, tmp_path, length=2).step.evolution(short.opened()).refused


@pytest.mark.parametrize("form", [Form.ROWS, Form.COUNT], ids=lambda form: form.value)
def test_a_longer_window_is_refused_after_a_rescale_too(tmp_path: Path, form: Form) -> None:
    """F51: a state that was made of a table has forgotten what the one before had."""
    short, longer = disk(form, tmp_path), disk(form, tmp_path, length=8).step
    for time in range(1, 8):
        short.batch(time, [[row("a", 1)]])
    short.rescale(1)
    assert "forgotten" in longer.evolution(short.opened()).refused[0]
    assert len(short.batch(8, [[row("a", 1)]])) == (4 if form is Form.ROWS else 1)


@pytest.mark.parametrize("form", [Form.COUNT, Form.REDUCE, Form.GROUP], ids=lambda form: form.value)
def test_windows_of_another_length_and_slide_go_on_from_the_state(tmp_path: Path, form: Form) -> None:
    """F51: a window follows from the one before whatever the slide was when that was made."""
    windows = disk(form, tmp_path, length=6, slide=3)
    model = BatchWindowModel(4, 2, form, fn=joined)
    for time in range(1, 8):
        rows = [row("a", time, str(time)), row("b", time % 3, "y")]
        windows.batch(time, [rows])
        model.batch(time, rows)
    changed = disk(form, tmp_path, length=4, slide=2)
    changed.refs, changed.before, changed.batches = windows.refs, windows.before, windows.batches
    for time in range(8, 16):
        rows = [row("a", time, str(time))] if time < 11 else []
        assert counted(changed.batch(time, [rows])) == counted(model.batch(time, rows))


@pytest.mark.parametrize("slide", [None, 1, 2, 4, 7, 10, 15], ids=str)
def test_another_slide_is_refused_where_its_windows_would_lack_batches_in_no_window(
    tmp_path: Path, slide: int | None
) -> None:
    """F51: of each slide of 5 the last 2 batches are kept, so a window that ends elsewhere has not all of its rows."""
    rare = disk(Form.COUNT, tmp_path, length=2, slide=5)
    model = BatchWindowModel(2, slide or 1, Form.COUNT)
    for time in range(1, 14):
        rows = [row("a", time)]
        rare.batch(time, [rows])
        model.batch(time, rows)
    window = BatchWindow(micros(2), slide=None if slide is None else micros(slide))
    changed = BatchWindowDisk(window, Form.COUNT, tmp_path)
    changed.refs, changed.before, changed.batches = rare.refs, rare.before, rare.batches
    assert not rare.step.evolution(rare.opened()).refused
    refused = changed.step.evolution(rare.opened()).refused
    assert ["the last 2 us, because the others were in no window" in clause for clause in refused] == (
        [] if slide in (10, 15) else [True]
    )
    made = [(changed.batch(time, [[row("a", 1)]]), model.batch(time, [row("a", 1)])) for time in (14, 15)]
    lacks = any(counted(ours) != counted(theirs) for ours, theirs in made)
    assert lacks == (slide in (None, 1, 2, 7))


def test_a_slide_may_become_longer_than_the_window_and_then_not_shorter_again(tmp_path: Path) -> None:
    """F51: as long as no batch was left out, the state has all that later windows need."""
    often = disk(Form.COUNT, tmp_path, length=2, slide=1)
    often.batch(1, [[row("a", 1)]])
    rare = disk(Form.COUNT, tmp_path, length=2, slide=5)
    assert not rare.step.evolution(often.opened()).refused
    assert not often.step.evolved(often.step.layout_name, ["k"], rare.step.form.stored).refused
    assert often.step.evolved(rare.step.layout_name, ["k"], rare.step.form.stored).refused


@pytest.mark.parametrize("micros_of_both", [None, 5], ids=["neither", "both"])
def test_state_that_is_of_no_batch_is_refused(tmp_path: Path, micros_of_both: int | None) -> None:
    """10.1: each row of an edited table is of a batch, or of the newest window."""
    step = disk(Form.COUNT, tmp_path).step
    time = pa.array([micros_of_both], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"k": ["a"], "_rows": [1], "batch_time": time, "window_end": time, HASHED: [7]})
    with pytest.raises(StateError, match="not of one batch or one window"):
        step.rebuilt({MAIN: table}, StepFacts(batch=0, time=0, watermark=None))


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_table_of_state_fits_with_and_without_an_inverse(tmp_path: Path, partitions: int) -> None:
    """10.1, F51: what a snapshot has of the newest window is not needed without one, and is made again with one."""
    inverse = {"inverse": lambda value, left: value[len(left) :]}
    model = BatchWindowModel(4, 2, Form.REDUCE, fn=joined)
    step = disk(Form.REDUCE, tmp_path, partitions=partitions, **inverse, keep=None)
    for number, (until, more) in enumerate(((7, {}), (11, inverse), (15, {}), (20, {}))):
        while (time := (step.before or 0) + 1) < until:
            rows = [row("a", time, f"{time},"), row("bc"[time % 2], 0, f"{time},")]
            made = [of for of in step.batch(time, [rows]) if of["s"]]  # without keep= keys stay
            assert counted(made) == counted(model.batch(time, rows))
        table, was = step.shown(), step
        (tmp_path / str(number)).mkdir()
        step = disk(Form.REDUCE, tmp_path / str(number), **more)
        step.before, step.batches = was.before, was.batches
        adapted = step.step.adapted(MAIN, was.step.layout_name)(table)
        assert adapted.schema == step.step.adapted(MAIN, was.step.layout_name)(table.slice(0, 0)).schema
        lacks = [field for field in step.step.tables[MAIN] if field.name not in adapted.column_names]
        for field in lacks:  # as the loader does with a snapshot
            adapted = adapted.append_column(field, pa.nulls(adapted.num_rows, field.type))
        step.rebuild(adapted.select(step.step.tables[MAIN].names), partitions)


def test_rows_of_a_window_in_a_table_of_the_users_are_refused_without_an_inverse(tmp_path: Path) -> None:
    """10.1: the error says which rows to leave out."""
    step = disk(Form.REDUCE, tmp_path).step
    none = pa.nulls(1, pa.timestamp("us", tz="UTC"))
    table = pa.table({"k": ["a"], "s": ["x"], "batch_time": none, HASHED: [7]})
    with pytest.raises(StateError, match="without batch_time; leave out those of the newest window"):
        step.rebuilt({MAIN: table}, StepFacts(batch=0, time=0, watermark=None))
