"""State functions against a model in plain Python, on real segments, without Spark (SEMANTICS 7.1, 7.2, 7.8)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.graph.nodes import Form
from penstock.graph.timeouts import Timeout
from penstock.operators.key_ledger import PARTS, Moment
from penstock.operators.state_functions import FunctionStep, run_function
from penstock.runtime.function_work import FunctionRows, FunctionWork
from penstock.runtime.partition_state import PartitionState
from penstock.state import BATCH, EVENT, LATEST, Manifest, StateReader, write_batch
from penstock.state.handle import as_datetime, as_micros

IDLE = 5
VISIBLE = pa.schema([("k", pa.int64()), ("do", pa.string()), ("by", pa.int64())])
CLOCKS = {"event": EVENT, "batch": BATCH}
RINGS = ("again", "add", "")
"""What a timer does, by the time it is set for."""


class Calls:
    """The function under test: each row says what it does with its key's state, and every call is written down."""

    def __init__(self) -> None:
        self.of: dict[int, list[tuple[Any, ...]]] = defaultdict(list)

    def __call__(self, time, key, row, state):
        found = state.get_or(None)
        fired = tuple((as_micros(f.at, "it"), f.clock.value) for f in state.fired_timers)
        self.of[key].append(
            (as_micros(time, "it"), row and row["do"], found and found["n"], state.is_timing_out(), fired)
        )
        do, by = (row["do"], row["by"]) if row is not None else (RINGS[fired[0][0] % 3] if fired else "", 2)
        if do == "add":
            state.update(n=(found or {"n": 0})["n"] + by)
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
        while found := self.due(time, watermark):
            at, name, k = found[0]
            self.timers.remove(found[0])
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


def step_of(fn: Any, idle: int = IDLE) -> FunctionStep:
    return FunctionStep(
        name="step",
        form=Form.ROWS,
        fn=fn,
        keys=pa.schema([("k", pa.int64())]),
        state=pa.schema([("n", pa.int64())]),
        output=pa.schema([("k", pa.int64())]),
        visible=tuple(VISIBLE.names),
        timeout=Timeout(idle=idle, event_time=True),
        event=True,
    )


@settings(max_examples=200)
@example(batches=[(1, 0, [(0, "batch", 4)]), (5, None, [])], idle=5)  # a timer makes state where there was none
@given(batches=BATCHES, idle=st.sampled_from([IDLE, 10 * IDLE]))
def test_calls_and_state_are_those_of_the_model(batches, idle):
    """Whatever rows do with state, deadlines and timers, and however the clocks go; nothing that is due is slept over."""
    calls, model = Calls(), Model(idle)
    work = FunctionWork(step_of(calls, idle), FunctionRows(visible=VISIBLE, keys=pa.schema([("k", pa.int64())])))
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
            state = PartitionState(StateReader(Path(folder), manifest), work)
            moment = Moment(batch=batch, time=time, watermark=watermark)
            keys = table.select(["k"])
            done = run_function(work.spec, state, table, hashes, keys, np.zeros(len(rows), dtype=np.int64), moment)
            model.batch(time, watermark, rows)
            written = write_batch(
                state.reader,
                f"{batch:012d}-0-x",
                done.change,
                batch=batch,
                merge=dict.fromkeys(PARTS, LATEST),
                slack=2_000,
            )
            manifest, due, due_time = written.manifest, done.due, done.due_time
            shown = work.rows(PartitionState(StateReader(Path(folder), manifest), work))
            assert {row["k"]: row["n"] for row in shown} == model.state
            assert {row["k"]: as_micros(row["_expires"], "it") for row in shown} == model.expires
            assert {k: found for k, found in calls.of.items() if found} == {k: v for k, v in model.calls.items() if v}
            assert done.rows == len(rows)


def test_a_key_that_is_touched_for_ever_leaves_one_entry_to_look_at():
    """The index of expiry grows with the keys, not with their rows; a key that comes and goes leaves none behind."""
    work = FunctionWork(step_of(Calls()), FunctionRows(visible=VISIBLE, keys=pa.schema([("k", pa.int64())])))
    with TemporaryDirectory() as folder:
        manifest = Manifest(step="step", partition=0, keys=("k",))
        entries = []
        for batch in range(60):
            table = pa.table([[7], ["add"], [1]], schema=VISIBLE)
            state = PartitionState(StateReader(Path(folder), manifest), work)
            moment = Moment(batch=batch, time=batch, watermark=None)
            done = run_function(work.spec, state, table, np.array([7]), table.select(["k"]), np.array([0]), moment)
            entries.append(done.change.append.get("idle", table.slice(0, 0)).num_rows)
            name = f"{batch:012d}-0-x"
            manifest = write_batch(
                state.reader, name, done.change, batch=batch, merge=dict.fromkeys(PARTS, LATEST)
            ).manifest
        assert sum(entries) == 1 + 59 // (IDLE + 1)
        assert StateReader(Path(folder), manifest).scan("idle")[-1].num_rows == 1
