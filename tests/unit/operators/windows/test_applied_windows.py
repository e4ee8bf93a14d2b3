"""Functions over windows get all rows of each, in the order of arrival, against plain-Python models (SEMANTICS 3)."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from session_model import SessionModel
from window_disk import Made, WindowDisk

from penstock import agg, count, micros
from penstock.errors import AccumulatorTooLarge, UserFunctionError, WrongWindowOutput
from penstock.graph.aggregates import EVERY_ROW, Aggregate, AggregateKind
from penstock.graph.policies import Accumulation
from penstock.graph.specs.session_windows import Session, SessionWindows
from penstock.graph.specs.time_windows import KEPT_ROWS, TimeWindows, WindowSpec
from penstock.graph.window_functions import WindowFunction, WindowView
from penstock.graph.windows import Cumulative, DropLate, EventWindow, Sliding, TimeWindow, Tumbling
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.windows.time_windows import Strategy, strategy_of
from penstock.testing.model import WindowModel

VISIBLE = pa.schema(
    [
        ("k", pa.float64()),
        ("n", pa.int64()),
        ("t", pa.int64()),
        ("notes", pa.list_(pa.struct([("a", pa.string())]))),
        ("labels", pa.map_(pa.string(), pa.int64())),
    ]
)
OUTPUT = pa.schema([("key", pa.float64()), ("start", pa.int64()), ("end", pa.int64()), ("n", pa.int64())])
NAN = float("nan")
ROW = st.fixed_dictionaries(
    {"k": st.sampled_from([1.0, 2.5, None, NAN, 0.0]), "t": st.integers(-60, 90), "notes": st.booleans()}
)


def micros_of(moment: Any) -> int:
    return round(moment.timestamp() * 1e6)


def numbers(key: Any, view: WindowView) -> pa.Table:
    """Return a row for each row of the window: key, bounds, and the row's number."""
    assert view.current.schema.equals(VISIBLE)
    assert [row["notes"] for row in view.current.to_pylist()] == [
        [{"a": str(n)}] if n % 2 else None for n in view.current["n"].to_pylist()
    ]
    assert (view.new, view.expired) == (None, None)
    rows = view.current.num_rows
    columns = [[key] * rows, [micros_of(view.start)] * rows, [micros_of(view.end)] * rows]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, OUTPUT.types[:3], strict=True)]
    return pa.table([*arrays, view.current["n"]], schema=OUTPUT)


def spec_of(window: EventWindow, kind: type[WindowSpec] = TimeWindows) -> WindowSpec:
    return kind(window=window, aggregates={KEPT_ROWS: EVERY_ROW}, function=WindowFunction(numbers, ""))


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with their place in the order of arrival, and nested values that follow from it."""
    return [
        {**row, "n": n, "at": n, "notes": [{"a": str(n)}] if n % 2 else None, "labels": [("x", n)]}
        for n, row in enumerate(rows)
    ]


def in_batches(rows: list[dict[str, Any]], seed: int) -> list[list[list[dict[str, Any]]]]:
    """Cut rows into batches, and each into tasks."""
    draw = random.Random(seed)
    batches: list[list[list[dict[str, Any]]]] = [[[]]]
    for row in rows:
        if draw.random() < 0.3:
            batches.append([[]])
        elif draw.random() < 0.2:
            batches[-1].append([])
        batches[-1][-1].append(row)
    return batches


def run(
    disk: WindowDisk, batches: list[list[list[dict[str, Any]]]], seed: int, marks: list[int | None]
) -> list[tuple[Made, int | None]]:
    """Run batches on state that each opens anew, with rescaling in between; return what each made, and its mark."""
    draw = disk.crashes = random.Random(seed)
    done = []
    for tasks, mark in zip(batches, marks, strict=True):
        done.append((disk.batch(tasks, late=mark, close=mark), mark))
        if draw.random() < 0.2:
            disk.rescale(draw.choice([1, 2, 8]), mark)
    return done


def marks_of(batches: list[list[list[dict[str, Any]]]], behind: int) -> list[int | None]:
    """Return the watermark of each batch: the highest time before it, less `behind`."""
    marks: list[int | None] = []
    highest = None
    for tasks in batches:
        marks.append(None if highest is None else highest - behind)
        times = [row["t"] for rows in tasks for row in rows]
        highest = max([*times, *([] if highest is None else [highest])], default=None)
    return marks


def rows_of(made: Made) -> list[str]:
    """Return output rows with times in one order: by window and key, and in each as they were emitted."""
    rows = [{**row, "time": time} for row, time in zip(made.rows, made.times, strict=True)]
    return [repr(row) for row in sorted(rows, key=lambda row: (row["end"], repr(row["key"]), row.get("_revision", 0)))]


def of_windows(windows: Any) -> list[str]:
    """Return the same of windows of the model."""
    rows = []
    for window in windows:
        (key,) = window.key
        for n in window.results["ns"].value:
            pane = {"_pane": window.pane.value, "_revision": window.revision} if OF_PANES in window.results else {}
            rows.append({"key": key, "start": window.start, "end": window.end, "n": n, **pane, "time": window.end - 1})
    return [repr(row) for row in sorted(rows, key=lambda row: (row["end"], repr(row["key"]), row.get("_revision", 0)))]


OF_PANES = "panes"
WINDOWS: list[TimeWindow] = [
    Tumbling(micros(10)),
    Tumbling(micros(7), offset=micros(3)),
    Sliding(micros(20), every=micros(3)),
    Sliding(micros(5), every=micros(9)),
    Cumulative(micros(30), step=micros(5)),
]


@given(
    window=st.sampled_from(WINDOWS),
    rows=st.lists(ROW, max_size=40).map(numbered),
    seed=st.integers(0, 99),
    behind=st.sampled_from([0, 12, 200]),
    panes=st.sampled_from([(0, Accumulation.ACCUMULATING), *((15, kind) for kind in Accumulation)]),
)
@settings(max_examples=examples(20), deadline=None)
def test_a_function_gets_the_rows_of_each_window_as_the_model_has_them(
    window: TimeWindow, rows: Any, seed: int, behind: int, panes: tuple[int, Accumulation]
) -> None:
    """2.5, 2.6, 3.1, 10.5: whatever the cuts, restarts and partitions; each row has the time window end - 1."""
    lateness, accumulation = panes
    window = TimeWindow(
        size=window.size,
        every=window.every,
        offset=window.offset,
        extent=window.extent,
        late=DropLate(),
        allowed_lateness=lateness,
        accumulation=accumulation,
    )
    aggregates = {"ns": agg.collect("n", limit=1000), **({OF_PANES: agg.count()} if lateness else {})}
    model = WindowModel(window, ("k",), aggregates, time=lambda row: row["t"])
    batches = [*in_batches(rows, seed), [[]]]
    marks = [*marks_of(batches[:-1], behind), 1000]
    with tempfile.TemporaryDirectory() as root:
        disk = WindowDisk(spec_of(window), VISIBLE, root, fn=numbers, output=OUTPUT)
        done = run(disk, batches, seed, marks)
    for tasks, (made, mark) in zip(batches, done, strict=True):
        expected = model.batch([row for task in tasks for row in task], late=mark, close=mark)
        assert rows_of(made) == of_windows(expected.windows)


@given(rows=st.lists(ROW, max_size=40).map(numbered), seed=st.integers(0, 99), behind=st.sampled_from([0, 12, 200]))
@settings(max_examples=examples(20), deadline=None)
def test_a_function_gets_the_rows_of_each_session_as_the_model_has_them(rows: Any, seed: int, behind: int) -> None:
    """3: rows of sessions that merge are in one order of arrival."""
    model = SessionModel(gap=lambda row: 10, key=lambda row: repr(row["k"]))
    batches = [*in_batches(rows, seed), [[]]]
    marks = [*marks_of(batches[:-1], behind), 1000]
    with tempfile.TemporaryDirectory() as root:
        spec = spec_of(Session(micros(10)).drop_late(), SessionWindows)
        done = run(WindowDisk(spec, VISIBLE, root, fn=numbers, output=OUTPUT), batches, seed, marks)
    for tasks, (made, mark) in zip(batches, done, strict=True):
        expected = model.batch([row for task in tasks for row in task], late=mark, close=mark)
        wanted = [
            {"key": row["k"], "start": s.start, "end": s.end, "n": row["n"], "time": s.end - 1}
            for s in expected.closed
            for row in s.rows
        ]
        assert rows_of(made) == [repr(r) for r in sorted(wanted, key=lambda r: (r["end"], repr(r["key"])))]


def test_a_function_is_called_again_with_the_old_rows_of_a_session_that_is_taken_back(tmp_path: Path) -> None:
    """7.1: a sink by keys gets what the function makes of the old sessions as RETRACTED."""
    spec = spec_of(Session(micros(10)).update_late(within=micros(100), then=DropLate()), SessionWindows)
    disk = WindowDisk(spec, VISIBLE, tmp_path, fn=numbers, output=OUTPUT, retracts=True)

    def shown(tasks: list[list[dict[str, Any]]], late: int | None, close: int | None) -> list[tuple[Any, ...]]:
        made = disk.batch(tasks, late=late, close=close)
        return [(r["_pane"], r["_revision"], r["start"], r["end"], r["n"]) for r in made.rows]

    rows = numbered([{"k": 1.0, "t": t} for t in (0, 30, 8, 16, 24)])
    assert shown([rows[:2]], None, 60) == [("ON_TIME", 0, 0, 10, 0), ("ON_TIME", 0, 30, 40, 1)]
    assert sorted(shown([rows[2:]], 60, 61)) == [
        *(("LATE", 1, 0, 40, n) for n in range(5)),
        ("RETRACTED", 0, 0, 10, 0),
        ("RETRACTED", 0, 30, 40, 1),
    ]


def disk_of(root: Any, fn: Any, window: EventWindow | None = None, kept: Aggregate = EVERY_ROW) -> WindowDisk:
    """Return tumbling windows of 10 us, whose function returns rows of `n`."""
    window = Tumbling(micros(10)).drop_late() if window is None else window
    spec = TimeWindows(window=window, aggregates={KEPT_ROWS: kept}, function=WindowFunction(fn, ""))
    return WindowDisk(spec, VISIBLE, root, fn=fn, output=pa.schema([("n", pa.int64())]))


def three_rows() -> list[dict[str, Any]]:
    return numbered([{"k": 1.0, "t": t, "notes": True} for t in (5, 3, 9)])


@pytest.mark.remedy("PEN-OPR-001")
def test_an_exception_stops_the_batch_with_the_key_and_a_corrected_function_runs_it_again(tmp_path: Any) -> None:
    """Nothing of the batch is written, so the same rows are there again."""
    rows = three_rows()
    with pytest.raises(UserFunctionError, match=r"window 'w': ZeroDivisionError: .* \(key 1\.0, window of 1970"):
        disk_of(tmp_path, lambda key, view: 1 / 0).batch([rows], late=None, close=10)
    made = disk_of(tmp_path, lambda key, view: view.current.select(["n"])).batch([rows], late=None, close=10)
    assert (made.rows, made.times) == ([{"n": 0}, {"n": 1}, {"n": 2}], [9, 9, 9])


def test_other_columns_than_declared_stop_the_batch(tmp_path: Any) -> None:
    """The error names the key."""
    with pytest.raises(WrongWindowOutput, match="window 'w' returned for key 1.0 has the columns"):
        disk_of(tmp_path, lambda key, view: view.current).batch([three_rows()], late=None, close=10)


@pytest.mark.remedy("PEN-STA-009")
def test_more_rows_than_the_limit_stop_the_job_and_shorter_windows_resume(tmp_path: Any) -> None:
    """A window is never cut without a word; the limit is of one key and window, in whatever batches they come."""
    kept = Aggregate(AggregateKind.ROWS, "*", size=2)
    disk = disk_of(tmp_path, numbers, kept=kept)
    disk.batch([three_rows()[:2]], late=None, close=None)
    with pytest.raises(AccumulatorTooLarge, match="more than 2 values|has 3 values"):
        disk.batch([three_rows()[2:]], late=None, close=10)
    (tmp_path / "shorter").mkdir()
    shorter = Tumbling(micros(5)).drop_late()
    disk = disk_of(tmp_path / "shorter", lambda key, view: [{"n": view.current.num_rows}], shorter, kept)
    assert disk.batch([three_rows()], late=None, close=10).rows == [{"n": 1}, {"n": 2}]


def test_windows_without_rows_returned_emit_nothing_and_objects_are_opened(tmp_path: Any) -> None:
    """`open` and `close` are called once a partition and batch, whatever closes."""

    class Quiet:
        notes: ClassVar[list[str]] = []

        def open(self, info: Any) -> None:
            self.notes.append(f"open {info.batch}")

        def close(self) -> None:
            self.notes.append("close")

        def __call__(self, key: Any, view: WindowView) -> None:
            self.notes.append(f"call {view.end:%S.%f}")

    disk = disk_of(tmp_path, Quiet())
    disk.batch([three_rows()], late=None, close=None)
    assert disk.batch([], late=10, close=10).rows == []
    assert Quiet.notes == ["open 0", "close", "open 1", "call 00.000010", "close"]


def test_sliding_windows_merge_slices_for_a_function() -> None:
    """Suffixes of lists would be kept again and again, and the function takes every row of each window anyway."""
    window = Sliding(micros(60), every=micros(1)).drop_late()
    kept = AggregatePlan.build({KEPT_ROWS: EVERY_ROW}, {KEPT_ROWS: pa.struct([*VISIBLE])})
    assert strategy_of(window, kept) is Strategy.MERGE
    assert strategy_of(Cumulative(micros(60), step=micros(1)), kept) is Strategy.MERGE


def test_a_stream_with_more_columns_resumes_and_one_with_fewer_is_refused(tmp_path: Any) -> None:
    """Rows that are held have nulls in new columns; a function over windows of aggregates would lack rows."""
    first = disk_of(tmp_path, numbers)
    first.batch([three_rows()], late=None, close=None)
    state = first.opened()
    spec = first.spec
    more = pa.schema([("extra", pa.string()), *VISIBLE])
    wider = WindowDisk(
        spec,
        more,
        tmp_path,
        fn=lambda key, view: view.current.select(["extra", "n"]),
        output=pa.schema([more.field("extra"), more.field("n")]),
    )
    evolution = wider.step.evolution(state)
    assert (evolution.refused, len(evolution.accepted)) == ((), 1)
    wider.refs, wider.batches = first.refs, first.batches
    assert wider.batch([], late=10, close=10).rows == [{"extra": None, "n": n} for n in range(3)]
    fewer = WindowDisk(spec, VISIBLE.remove(3), tmp_path, fn=numbers, output=OUTPUT)
    assert "_kept_rows of its aggregates was" in fewer.step.evolution(state).refused[0]
    counts = WindowDisk(TimeWindows(window=spec.window, aggregates={"n": agg.count()}), VISIBLE, tmp_path)
    (tmp_path / "counts").mkdir()
    counts.root = tmp_path / "counts"
    counts.batch([three_rows()], late=None, close=None)
    assert "all rows of a window" in first.step.evolution(counts.opened()).refused[0]


@pytest.mark.parametrize("accumulating", [True, False], ids=["accumulating", "discarding"])
def test_early_panes_call_the_function_with_what_they_have(tmp_path: Any, *, accumulating: bool) -> None:
    """3.2: all rows so far, or those that came since the pane before; the rows have the pane's columns."""
    window = Tumbling(micros(10)).drop_late().emit_on(count(2))
    window = window.accumulating() if accumulating else window.discarding()
    disk = disk_of(tmp_path, lambda key, view: view.current.select(["n"]), window)
    rows = three_rows()
    panes = [
        *disk.batch([rows[:2]], late=None, close=None).rows,
        *disk.batch([rows[2:]], late=None, close=10).rows,
    ]
    early = [{"n": n, "_pane": "EARLY", "_revision": 0} for n in (0, 1)]
    last = (0, 1, 2) if accumulating else (2,)
    assert panes == [*early, *({"n": n, "_pane": "ON_TIME", "_revision": 1} for n in last)]


def test_a_late_row_of_a_session_calls_the_function_again(tmp_path: Any) -> None:
    """2.6: with all rows of the session that it prolongs, in the order of arrival."""
    window = Session(micros(5)).update_late(within=micros(50), then=DropLate())
    spec = SessionWindows(window=window, aggregates={KEPT_ROWS: EVERY_ROW}, function=WindowFunction(numbers, ""))
    output = pa.schema([("n", pa.int64())])
    disk = WindowDisk(spec, VISIBLE, tmp_path, fn=lambda key, view: view.current.select(["n"]), output=output)
    rows = three_rows()
    assert disk.batch([rows[:2]], late=None, close=20).rows == [
        {"n": n, "_pane": "ON_TIME", "_revision": 0} for n in (0, 1)
    ]
    revised = disk.batch([rows[2:]], late=20, close=20)
    assert [(row["n"], row["_pane"]) for row in revised.rows] == [(n, "LATE") for n in (0, 1, 2)]
