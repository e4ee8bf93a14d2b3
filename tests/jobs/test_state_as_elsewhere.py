"""Functions with state give what the suites of DStreams and Structured Streaming expect of them (SEMANTICS 7).

The figures are those of MapWithStateSuite, BasicOperationsSuite and suites of later Spark, written anew for the Harness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import BATCH, EVENT, State, event_time, idle
from penstock.testing import Harness

pytestmark = pytest.mark.sample(5, of="state functions")

COUNTS = ["a1", "a2 b1", "a3 b2 c1", "a4 b3 c1", "a5 b3 c1", "a5 b3 c1"]
"""How often each word has come, after the words of WORDS."""
WORDS = ["a", "ab", "abc", "ab", "a", ""]


def counted(time: datetime, key: str, row: Any, state: State) -> dict[str, Any]:
    """Count the rows of a key, and return the count."""
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    return {"k": key, **state.get()}


def toggled(time: datetime, key: str, row: Any, state: State) -> dict[str, Any] | None:
    """Begin a state, or remove it and say so."""
    if not state.exists():
        state.update(n=1)
        return None
    state.remove()
    return {"k": key, "n": 0}


def timed(time: datetime, key: str, row: Any, state: State) -> dict[str, Any] | None:
    """Say when the key times out."""
    if state.is_timing_out():
        return {"k": key, **state.get()}
    state.update(n=1)
    return None


def initial() -> Any:
    """Return states that are there before the first batch."""
    from pyspark.sql import SparkSession

    return SparkSession.active().createDataFrame([("a", 5), ("d", 0)], "k string, n int")


def ran(job: Job, words: Sequence[str], root: Path) -> dict[str, list[str]]:
    """Run a batch for each text, a row for each letter; return what each sink got, a restart in the middle."""
    made: dict[str, list[str]] = {}
    with Harness(job, root) as h:
        for place, letters in enumerate(words):
            if place == len(words) // 2:
                h.restart()
            for sink, rows in h.batch({"in": [{"k": k, "v": 1} for k in letters]}).items():
                made.setdefault(sink, []).append(" ".join(sorted(f"{row['k']}{row['n']}" for row in rows)))
    return made


def mapping(fn: Callable[..., Any], **more: Any) -> Job:
    """Return a job that maps words with state, and shows the whole state after each batch."""
    job = Job("mapped", interval=seconds(1), partitions=2)
    words = job.source("in", MemorySource("k string, v int")).key_by("k")
    mapped = words.map_with_state("fn", fn, state="n int", output="k string, n int", **more)
    mapped.write("out", MemorySink())
    mapped.snapshots().write("states", MemorySink())
    return job


def test_states_are_updated_row_by_row_and_shown_whole(tmp_path: Path) -> None:
    """7.1, 7.4: a running count, also of keys that got no row."""
    made = ran(mapping(counted, unbounded=True), WORDS, tmp_path)
    assert made == {"out": ["a1", "a2 b1", "a3 b2 c1", "a4 b3", "a5", ""], "states": COUNTS}


def test_initial_states_are_there_from_the_first_batch_on(tmp_path: Path) -> None:
    """7.3: also those of keys without rows."""
    made = ran(mapping(counted, unbounded=True, initial=initial), ["", "a", "ab", ""], tmp_path)
    assert made == {"out": ["", "a6", "a7 b1", ""], "states": ["a5 d0", "a6 d0", "a7 b1 d0", "a7 b1 d0"]}


def test_a_state_that_was_removed_begins_anew(tmp_path: Path) -> None:
    """7.1: `remove`, and the next row of the key finds none."""
    made = ran(mapping(toggled, unbounded=True), ["a", "ab", "abc", "abc", "ab", "a", ""], tmp_path)
    assert made["out"] == ["", "a0", "b0", "a0 c0", "b0", "a0", ""]
    assert made["states"] == ["a1", "b1", "a1 c1", "b1", "a1", "", ""]


def test_a_key_without_rows_times_out_once(tmp_path: Path) -> None:
    """7.2: three seconds after the batch of its last row are not more than three, four are."""
    made = ran(mapping(timed, timeout=idle(seconds(3))), ["abc", "ab", "a", "", "", "a", "a", "a"], tmp_path)
    assert made["out"] == ["", "", "", "", "c1", "b1", "", ""]
    assert made["states"] == ["a1 b1 c1"] * 4 + ["a1 b1"] + ["a1"] * 3


def updating(fn: Callable[..., Any], **more: Any) -> Job:
    """Return a job that updates a state by the words of each batch."""
    job = Job("updated", interval=seconds(1), partitions=2)
    words = job.source("in", MemorySource("k string, v int")).key_by("k")
    words.update_state_by_key("fn", fn, state="n int", **more).write("out", MemorySink())
    return job


def test_each_batch_updates_every_key(tmp_path: Path) -> None:
    """7.5: keys without new values too."""
    made = ran(updating(lambda values, old: sum(values) + (old or 0)), WORDS, tmp_path)
    assert made == {"out": COUNTS}


def test_an_update_knows_time_and_key(tmp_path: Path) -> None:
    """7.5: the sum of the batch times in which a key came, on top of initial states."""

    def summed(time: datetime, key: str, values: list[int], old: int | None) -> int:
        return (old or 0) + (round(time.timestamp()) if values else 0)

    made = ran(updating(summed, with_key_time=True, initial=initial), WORDS[:4], tmp_path)
    assert made == {"out": ["a6 d0", "a8 b2 d0", "a11 b5 c3 d0", "a15 b9 c3 d0"]}


def test_none_removes_a_key(tmp_path: Path) -> None:
    """7.5: what has had no values twice in a row goes."""
    job = Job("ageing", interval=seconds(1), partitions=2)
    words = job.source("in", MemorySource("k string, v int")).key_by("k")

    def aged(values: list[int], old: dict[str, int] | None) -> dict[str, int] | None:
        n, quiet = (old or {"n": 0})["n"] + sum(values), 0 if values else (old or {"quiet": 0})["quiet"] + 1
        return None if quiet == 2 else {"n": n, "quiet": quiet}

    words.update_state_by_key("fn", aged, state="n int, quiet int").write("out", MemorySink())
    made = ran(job, ["ab", "", "aca", "c", "", ""], tmp_path)
    assert made == {"out": ["a1 b1", "a1 b1", "a3 c1", "a3 c2", "c2", ""]}


def newest(time: datetime, key: str, row: Any, state: State) -> dict[str, Any]:
    """Keep the greatest event time of a key for five seconds after it."""
    if row is None:
        return {"k": key, "n": -1}
    at = max(state.get_or({"n": 0})["n"], round(row["t"].timestamp()))
    state.update(n=at)
    state.set_deadline(datetime.fromtimestamp(at + 5, UTC))
    return {"k": key, "n": at}


def alarmed(time: datetime, key: str, row: Any, state: State) -> list[dict[str, Any]]:
    """Set timers by both clocks, keep the values in a list and a map, and forget them with the first timer after four."""
    if row is None:
        if state.exists() and len(state.get()["values"]) == 4:
            state.remove()
        return [{"k": key, "n": round(timer.at.timestamp())} for timer in state.fired_timers]
    held = state.get_or({"values": [], "counts": {}})
    name = str(row["v"])
    counts = {**held["counts"], name: held["counts"].get(name, 0) + 1}
    state.update(values=[*held["values"], row["v"]], counts=counts)
    state.set_timer(row["t"] + timedelta(seconds=10), clock=EVENT)
    state.set_timer(time + timedelta(seconds=3), clock=BATCH)
    return []


def test_deadlines_and_timers_pass_with_the_watermark_and_with_batch_time(tmp_path: Path) -> None:
    """7.2, 7.8: FlatMapGroupsWithStateSuite and TransformWithStateSuite. A late row is a row; states have any type."""
    job = Job("timed", partitions=2)
    rows = job.source("in", MemorySource("k string, v int, t timestamp"), event_time="t", max_out_of_order=seconds(10))
    keyed = rows.key_by("k")
    deadlines = keyed.map_with_state("deadlines", newest, state="n int", output="k string, n int", timeout=event_time())
    deadlines.write("newest", MemorySink())
    state = "values array<int>, counts map<string, int>"
    timers = keyed.map_with_state("timers", alarmed, state=state, output="k string, n int", unbounded=True)
    timers.write("fired", MemorySink())
    batches: list[tuple[list[tuple[str, int, float]], list[tuple[str, int]], list[tuple[str, int]]]] = [
        ([("a", 1, 11), ("a", 2, 13), ("a", 3, 15)], [("a", 11), ("a", 13), ("a", 15)], []),
        ([("a", 3, 4)], [("a", 15)], []),
        ([("b", 1, 31)], [("b", 31), ("a", -1)], [("a", 4), ("a", 14), ("a", 21)]),
        ([], [], [("a", 5)]),
        ([], [], [("b", 6)]),
        ([("b", 1, 60)], [("b", 60)], [("a", 23), ("a", 25), ("b", 41)]),
    ]
    with Harness(job, tmp_path) as h:
        for place, (fed, times, fired) in enumerate(batches):
            if place == 3:
                h.restart()
            made = h.batch({"in": [{"k": k, "v": v, "t": t} for k, v, t in fed]})
            assert [(row["k"], row["n"]) for row in made["newest"]] == times, f"batch {place}"
            assert [(row["k"], row["n"]) for row in made["fired"]] == fired, f"batch {place}"
        assert [(row["k"], row["values"], dict(row["counts"])) for row in h.state("timers")] == [
            ("b", [1, 1], {"1": 2})
        ]
