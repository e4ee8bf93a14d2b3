"""State functions against a model in plain Python, on real segments, without Spark (SEMANTICS 7.1, 7.2, 7.8)."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import UserFunctionError, WrongOutput
from penstock.graph.specs.state_functions import Form, StateFunction
from penstock.graph.timeouts import Timeout
from penstock.operators.functions.calls_base import Calls as CallsOfBatch
from penstock.operators.functions.function_step import FunctionStepWork, calls_of
from penstock.operators.functions.key_index import StepFacts
from penstock.operators.whole_rows import WholeRows
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.state import BATCH, EVENT
from penstock.state.key_state import as_datetime, as_micros
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.writer import write_changes
from penstock.time.clock import END_OF_TIME

IDLE = 5
BOTH = Timeout(idle=IDLE, event_time=True)
VISIBLE = pa.schema([("k", pa.int64()), ("do", pa.string()), ("by", pa.int64())])
CLOCKS = {"event": EVENT, "batch": BATCH}
RINGS = ("again", "add", "")
"""What a timer does, by the time it is set for."""


class Calls:
    """The function under test: each row says what it does with its key's state, and every call is written down."""

    def __init__(self) -> None:
        self.of: dict[int, list[tuple[Any, ...]]] = defaultdict(list)

    def __call__(self, time, key, row, state):
        kept = state.get_or(None)
        fired = tuple((as_micros(f.at, "it"), f.clock.value) for f in state.fired_timers)
        self.of[key].append(
            (as_micros(time, "it"), row and row["do"], kept and kept["n"], state.is_timing_out(), fired)
        )
        do, by = (row["do"], row["by"]) if row is not None else (RINGS[fired[0][0] % 3] if fired else "", 2)
        if do == "add":
            state.update(n=(kept or {"n": 0})["n"] + by)
        elif do == "remove":
            state.remove()
        elif do == "deadline" and state.exists():
            state.set_deadline(as_datetime(by))
        elif do in CLOCKS:
            state.set_timer(as_datetime(by), CLOCKS[do])
        elif do == "again":
            state.set_timer(as_datetime(fired[0][0] + by), CLOCKS[fired[0][1]])


class Model:
    """What SEMANTICS 7 says, key by key, in plain dicts."""

    def __init__(self, idle: int) -> None:
        self.idle = idle
        self.state: dict[int, int] = {}
        self.expires: dict[int, int] = {}
        self.deadline: dict[int, int] = {}
        self.timers: set[tuple[int, str, int]] = set()
        self.calls: dict[int, list[tuple[Any, ...]]] = defaultdict(list)

    def due(self, time: int, watermark: int | None) -> list[tuple[int, str, int]]:
        """Return the timers that are due, in the order of their times."""
        clock = {"batch": time, "event": watermark}
        return sorted(
            ((at, name, k) for at, name, k in self.timers if clock[name] is not None and at <= clock[name]),
            key=lambda timer: (timer[0], timer[1] != "event", timer[2]),
        )

    def over(self, time: int, watermark: int | None) -> list[int]:
        """Return the keys whose time is over."""
        past = {k for k, at in self.deadline.items() if watermark is not None and at < watermark}
        return sorted(k for k in self.state if self.expires[k] < time or k in past)

    def batch(self, time: int, watermark: int | None, rows: list[tuple[int, str, int]]) -> None:
        """Do a batch: rows, timers, timeouts."""
        touched = set()
        for k, do, by in rows:
            self.calls[k].append((time, do, self.state.get(k), False, ()))
            touched.add(k)
            if do == "add":
                self.state[k] = self.state.get(k, 0) + by
            elif do == "remove":
                self.forget(k)
            elif do == "deadline" and k in self.state:
                self.deadline[k] = by
            elif do in CLOCKS:
                self.timers.add((by, do, k))
        self.ring(time, watermark)
        for k in self.state:
            if k in touched or k not in self.expires:
                self.expires[k] = time + self.idle
        for k in self.over(time, watermark):
            if k not in touched:
                self.calls[k].append((time, None, self.state[k], True, ()))
                self.forget(k)

    def ring(self, time: int, watermark: int | None) -> None:
        """Fire the timers that are due, and those that they set."""
        while waiting := self.due(time, watermark):
            at, name, k = waiting[0]
            self.timers.remove(waiting[0])
            self.calls[k].append((time, None, self.state.get(k), False, ((at, name),)))
            if RINGS[at % 3] == "again":
                self.timers.add((at + 2, name, k))
            elif RINGS[at % 3] == "add":
                self.state[k] = self.state.get(k, 0) + 2

    def forget(self, k: int) -> None:
        """Remove a key's state; its timers stay."""
        for kept in (self.state, self.expires, self.deadline):
            kept.pop(k, None)


MOMENTS = st.integers(-2, 40)
ROW = st.tuples(
    st.integers(0, 3), st.sampled_from(["add", "add", "remove", "deadline", "event", "batch", "look"]), MOMENTS
)
BATCHES = st.lists(
    st.tuples(st.integers(1, 6), st.none() | st.integers(0, 8), st.lists(ROW, max_size=5)), min_size=1, max_size=14
)


def step_of(fn: Any, timeout: Timeout = BOTH) -> FunctionStepWork:
    return FunctionStepWork(
        rows_as=WholeRows(visible=VISIBLE, keys=pa.schema([("k", pa.int64())])),
        name="step",
        spec=StateFunction(form=Form.ROWS, fn=fn, state="n long", timeout=timeout),
        keys=pa.schema([("k", pa.int64())]),
        state=pa.schema([("n", pa.int64())]),
        output=pa.schema([("k", pa.int64())]),
        event=True,
    )


@pytest.mark.slow
@settings(max_examples=examples(80))
@example(batches=[(1, 0, [(0, "batch", 4)]), (5, None, [])], idle=5)  # a timer makes state where there was none
@given(batches=BATCHES, idle=st.sampled_from([IDLE, 10 * IDLE]))
def test_calls_and_state_are_those_of_the_model(batches, idle):
    """Whatever rows do with state, deadlines and timers, and however the clocks go; nothing that is due is slept over."""
    calls, model = Calls(), Model(idle)
    work = step_of(calls, Timeout(idle=idle, event_time=True))
    time, watermark, due, due_time = 0, None, None, None
    with TemporaryDirectory() as folder:
        manifest = Manifest(step="step", partition=0, keys=("k",))
        for batch, (later, further, rows) in enumerate(batches):
            time += later
            if further is not None:
                watermark = further if watermark is None else watermark + further
            overdue = model.due(time, watermark) or model.over(time, watermark)
            if overdue:
                assert (due_time is not None and due_time <= time) or (due is not None and due <= watermark)
            table = pa.table(list(zip(*rows, strict=True)) if rows else [[], [], []], schema=VISIBLE)
            hashes = table["k"].to_numpy() % 2  # two keys to a hash
            state = PartitionState(LocalFolder(folder), manifest, work)
            moment = StepFacts(batch=batch, time=time, watermark=watermark)
            keys = table.select(["k"])
            done = calls_of(work, state, moment).run_batch(table, hashes, keys, np.zeros(len(rows), dtype=np.int64))
            model.batch(time, watermark, rows)
            written = write_changes(
                state,
                f"{batch:012d}-0-x",
                done.change,
                batch=batch,
                parts=work.parts,
                slack=2_000,
            )
            manifest, due, due_time = written.manifest, done.due.watermark, done.due.time
            shown = main_table(work, PartitionState(LocalFolder(folder), manifest, work)).to_pylist()
            assert {row["k"]: row["n"] for row in shown} == model.state
            assert {row["k"]: as_micros(row["_expires"], "it") for row in shown} == model.expires
            assert {k: made for k, made in calls.of.items() if made} == {k: v for k, v in model.calls.items() if v}
            assert not done.failed


@pytest.mark.parametrize(("timeout", "gone"), [(Timeout(idle=IDLE), False), (Timeout(event_time=True), True)])
def test_a_key_that_has_a_row_at_the_end_of_event_time_goes_by_its_deadline_and_not_by_idleness(timeout, gone):
    """7.2: no batch comes behind in which its deadline could pass; its idleness begins anew with the row."""

    def watch(time, key, row, state):
        if row is not None:
            state.update(n=row["by"])
            if timeout.event_time:
                state.set_deadline(as_datetime(row["by"]))
        return {"k": key} if state.is_timing_out() else None

    work = step_of(watch, timeout)
    with TemporaryDirectory() as folder:
        manifest = Manifest(step="step", partition=0, keys=("k",))
        for batch, watermark in enumerate((None, END_OF_TIME)):
            table = pa.table([[7], ["add"], [50]], schema=VISIBLE)
            state = PartitionState(LocalFolder(folder), manifest, work)
            moment = StepFacts(batch=batch, time=100 * batch, watermark=watermark)
            done = calls_of(work, state, moment).run_batch(table, np.array([7]), table.select(["k"]), np.array([0]))
            written = write_changes(state, f"{batch:012d}-0-x", done.change, batch=batch, parts={})
            manifest = written.manifest
    assert done.output.rows.num_rows == gone


def test_a_key_that_is_touched_for_ever_leaves_one_entry_to_look_at():
    """The index of expiry grows with the keys, not with their rows; a key that comes and goes leaves none behind."""
    work = step_of(Calls())
    with TemporaryDirectory() as folder:
        manifest = Manifest(step="step", partition=0, keys=("k",))
        entries = []
        for batch in range(60):
            table = pa.table([[7], ["add"], [1]], schema=VISIBLE)
            state = PartitionState(LocalFolder(folder), manifest, work)
            moment = StepFacts(batch=batch, time=batch, watermark=None)
            done = calls_of(work, state, moment).run_batch(table, np.array([7]), table.select(["k"]), np.array([0]))
            entries.append(done.change.append.get("idle", table.slice(0, 0)).num_rows)
            name = f"{batch:012d}-0-x"
            manifest = write_changes(state, name, done.change, batch=batch, parts=work.parts).manifest
        assert sum(entries) == 1 + 59 // (IDLE + 1)
        assert StateReader(LocalFolder(folder), manifest).scan("idle")[-1].num_rows == 1


def called(
    fn: Any,
    *,
    state: str | pa.DataType = "int64",
    output: str | pa.DataType = "int64",
    rows: int = 1,
    epoch: int = 0,
) -> CallsOfBatch:
    """Call a function for one row of key 7, or for none, and return what the batch did."""
    schemas = {"state": pa.schema([("n", state)]), "output": pa.schema([("n", output)])}
    step = replace(step_of(fn, Timeout()), event=False, **schemas)
    table = pa.table([[7], ["add"], [1]], schema=VISIBLE).slice(0, rows)
    with TemporaryDirectory() as folder:
        reader = StateReader(LocalFolder(folder), Manifest(step="step", partition=0, keys=("k",)))
        moment = StepFacts(batch=0, time=1, watermark=None, epoch=epoch)
        hashes, times = np.array([7])[:rows], np.array([0])[:rows]
        return calls_of(step, reader, moment).run_batch(table, hashes, table.select(["k"]), times)


UNFIT = {
    "a text for a number": (pa.int64(), "x"),
    "a fraction of a long": (pa.int64(), 1.5),
    "a fraction in a list": (pa.list_(pa.int32()), [1, 2.5]),
    "a moment for a date": (pa.date32(), as_datetime(1_500_000)),
    "a field that is not there": (pa.struct([("x", pa.int32())]), {"x": 1, "y": 2}),
    "a truth for a number": (pa.int32(), True),
    "too large a float": (pa.float32(), 1e300),
    "too large an integer": (pa.int32(), 2**31),
    "a text in a map": (pa.map_(pa.string(), pa.int32()), {"a": "b"}),
    "a number for a text": (pa.string(), 5),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_value_is_never_cut_to_its_column(what):
    """Arrow would take what is left of it; the error has column, both types and key."""
    kind, value = UNFIT[what]
    for fn in (lambda t, k, r, s: {"n": value}, lambda t, k, r, s: s.update(n=value)):
        with pytest.raises(WrongOutput, match=r"column 'n' of .* step 'step'.* is .* and got a \w+ for key 7: "):
            called(fn, state=kind, output=kind)


MISUSES = {
    "get of nothing": (lambda s: s.get(), "the key has no state"),
    "get behind remove": (lambda s: (s.remove(), s.get()), "the key has no state: it was removed in this call"),
    "update behind remove": (lambda s: (s.remove(), s.update(n=1)), "update came behind remove"),
    "a second remove": (lambda s: (s.remove(), s.remove()), "remove came behind remove"),
    "a value without a name": (lambda s: s.update(0), "takes columns by name, as update(n=...), and got 0"),
    "nothing as a value": (lambda s: s.update(None), "takes columns by name, as update(n=...), and got None"),
    "a column that is not there": (lambda s: s.update(m=1), "the state has no column 'm'; it has n"),
    "a deadline without a timeout": (lambda s: s.set_deadline(as_datetime(1)), "no timeout event_time()"),
    "a timer without event time": (lambda s: s.set_timer(as_datetime(1)), "use clock=BATCH"),
    "a timer at a number": (lambda s: s.set_timer(5, BATCH), "an aware datetime, not 5"),
    "a clock that is none": (lambda s: s.set_timer(as_datetime(1), "batch"), "EVENT or BATCH, not 'batch'"),
}


@pytest.mark.parametrize("what", MISUSES)
def test_7_1_what_may_not_be_done_with_state_is_an_error_with_line_and_key(what):
    """And nothing else is: a key without state may be removed."""
    do, message = MISUSES[what]
    with pytest.raises(UserFunctionError) as raised:
        called(lambda t, k, r, s: do(s) and None)
    assert message in str(raised.value)
    assert "(key 7) in " in str(raised.value)
    assert called(lambda t, k, r, s: s.remove()).change.append == {}


@pytest.mark.parametrize("returned", [7, [1], {"m": 1}, {"n": 1, "m": 2}, [{"n": 1}, None]], ids=repr)
def test_what_is_no_row_of_the_output_is_refused(returned):
    """A dict with just the columns, or a list of them."""
    with pytest.raises(WrongOutput, match=r"for key 7, not a dict of \['n'\]"):
        called(lambda t, k, r, s: returned)


class Opened:
    """A function that is opened and closed, and writes down in which order, and what it was told."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = wrong
        self.said: list[Any] = []

    def note(self, what: str, *more: Any) -> None:
        self.said.append((what, *more))
        if what in self.wrong:
            json.loads(f"broken in {what}")

    def open(self, info):
        self.note("open", info.batch, as_micros(info.time, "it"), info.watermark, info.epoch)

    def close(self):
        self.note("close")

    def __call__(self, time, key, row, state):
        self.note("call")


class Prices:
    """A function that has what is named so, and is none."""

    open, close = 1.0, 2.0

    def __call__(self, time, key, row, state):
        return None


@pytest.mark.parametrize("rows", [1, 0])
def test_a_function_with_open_and_close_is_opened_and_closed_once_a_task(rows):
    """Around all its calls, and told where in the stream it is; also in a task without rows."""
    fn = Opened()
    called(fn, rows=rows, epoch=3)
    assert fn.said == [("open", 0, 1, None, 3), *[("call",)] * rows, ("close",)]
    assert not called(Prices()).failed


@pytest.mark.parametrize(
    ("wrong", "during", "then"),
    [
        (["open"], "open", []),
        (["call"], "key 7", ["close"]),
        (["close"], "close", []),
        (["call", "close"], "key 7", ["close"]),
    ],
)
def test_what_open_and_close_raise_is_the_functions_error(wrong, during, then):
    """With step, the line of the user's file, though a library has raised, and method; the first error is told."""
    fn = Opened(*wrong)
    with pytest.raises(UserFunctionError, match=_blamed(during)):
        called(fn)
    methods = [note[0] for note in fn.said]
    assert methods[methods.index(wrong[0]) + 1 :] == then


def test_a_partial_is_to_blame_at_the_line_of_what_it_calls():
    """And not at that of the library which raises."""
    with pytest.raises(UserFunctionError, match=_blamed("key 7")):
        called(partial(Opened("call")))


def _blamed(during: str) -> str:
    return rf"JSONDecodeError: .* \({during}\) in .*/{Path(__file__).name}:\d+"
