"""Arrival order travels through every step, whatever the partitions and the cuts (SEMANTICS 1.6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, minutes, seconds
from penstock.errors import JobError
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import BATCH, EVENT, idle
from penstock.testing import Harness
from penstock.windows import Sliding, Tumbling

pytestmark = pytest.mark.sample(1, of="the order of arrival")

COLUMNS = "k string, j string, t timestamp, v long"
Rows = list[dict[str, Any]]


def mixed(old: int, new: int | None) -> int:
    """Return a number that tells in which order numbers came."""
    return (old * 31 + (7 if new is None else new)) % 1_000_003


def remember(time, key, row, state):
    """Emit nothing, one row or two for each row, and one for each timer and timeout."""
    h = state.get_or({"h": 1})["h"]
    if row is None:
        return {"k": str(key)[:1], "j": "z", "t": time, "v": h}
    h = mixed(h, row["v"])
    state.update(h=h)
    if h % 5 == 0:
        state.set_timer(row["t"] + timedelta(seconds=h % 3), clock=EVENT)
    if h % 7 == 0:
        state.set_timer(time + timedelta(seconds=1 + h % 3), clock=BATCH)
    return [{**row, "v": h + n} for n in range(h % 3)]


def plainly(time, key, row, state):
    """Emit nothing, one row or two for each row."""
    h = mixed(state.get_or({"h": 1})["h"], row["v"])
    state.update(h=h)
    return [{**row, "v": h + n} for n in range(h % 3)]


def running(rows, state, info):
    """Return for each row, with v replaced, what the key has seen so far."""
    seen = [h or 1 for h in state["h"].to_pylist()]
    numbers = []
    for v, key in zip(rows["v"].to_pylist(), info.key_index.to_pylist(), strict=True):
        seen[key] = mixed(seen[key], v)
        numbers.append(seen[key])
    columns = {**{name: rows[name] for name in ("k", "j", "t")}, "v": pa.array(numbers, pa.int64())}
    return pa.table(columns), pa.table({"h": pa.array(seen, pa.int64())})


def some(rows, state, info):
    """Return the rows of which the running number is odd."""
    out, state = running(rows, state, info)
    return out.filter(pa.array([v % 2 == 1 for v in out["v"].to_pylist()], pa.bool_())), state


def summed(values, old):
    h = old or 1
    for value in values:
        h = mixed(h, value)
    return h


def numbered(time, key, row, state):
    """Give each row the number that it has among all."""
    n = state.get_or({"n": 0})["n"]
    state.update(n=n + 1)
    return {**row, "n": n}


def by_rows(s: Any, name: str) -> Stream:
    return s.map_with_state(name, remember, state="h long", output=COLUMNS, timeout=idle(seconds(2)))


def by_plain_rows(s: Any, name: str) -> Stream:
    return s.map_with_state(name, plainly, state="h long", output=COLUMNS, unbounded=True)


def by_same_rows(s: Any, name: str) -> Stream:
    options = {"state": "h long", "output": COLUMNS, "unbounded": True}
    return s.map_with_state_arrow(name, running, same_rows=True, **options)


def by_some(s: Any, name: str) -> Stream:
    options = {"state": "h long", "output": COLUMNS, "unbounded": True}
    return s.map_with_state_arrow(name, some, event_time="t", **options)


def by_key(s: Any, name: str) -> Stream:
    states = s.update_state_by_key(name, summed, state="h long", touched_only=True)
    key = s._keys[0] if s._keys else "'x'"
    return states.select(f"{key} AS k", f"{key} AS j", "timestamp_seconds(h % 40) AS t", "h AS v")


def by_window(s: Any, name: str) -> Stream:
    spec = Tumbling(seconds(4)) if name.endswith("0") else Sliding(seconds(6), every=seconds(3))
    windows = s.window(name, spec.drop_late()).aggregate(a=agg.first("v"), z=agg.last("v"))
    key = s._keys[0] if s._keys else "'x'"
    return windows.select(f"{key} AS k", "CAST(z AS STRING) AS j", "window_start AS t", "a * 3 + z AS v")


STEPS: tuple[Callable[[Any, str], Stream], ...] = (by_rows, by_same_rows, by_some, by_key, by_window)


def random_job(seed: int, partitions: int, steps: tuple[Callable[[Any, str], Stream], ...], sources: str) -> Job:
    """Return a job of two or three steps, some behind unions; the last one numbers all rows."""
    draw = Random(seed)
    job = Job("ordered", partitions=partitions)
    streams = [job.source(name, MemorySource(COLUMNS), event_time="t", max_out_of_order=seconds(6)) for name in sources]
    for number in range(draw.choice((2, 3))):
        stream = draw.choice(streams)
        if draw.random() < 0.6:
            stream = stream.union(draw.choice(streams).filter(f"v % 3 <> {draw.randrange(3)}"))
        keyed = stream.key_by(*draw.choice((("k",), ("j",), ("k", "j"))))
        made = draw.choice(steps)(keyed, f"step{number}")
        made.write(f"out{number}", MemorySink())
        streams = [made, *streams] if draw.random() < 0.5 else [made, made, made, *streams]
    last = streams[0].union(draw.choice(streams[1:]))
    last.map_with_state(
        "last", numbered, state="n long", output=f"{COLUMNS}, n long", unbounded=True, partitions=1
    ).write("numbered", MemorySink())
    return job


def random_rows(seed: int, sources: str) -> list[dict[str, Rows]]:
    draw = Random(seed)

    def row(batch: int) -> dict[str, Any]:
        k, j = draw.choice("abcde"), draw.choice("pqrst")
        return {"k": k, "j": j, "t": float(3 * batch + draw.randrange(8)), "v": draw.randrange(1_000)}

    return [{name: [row(batch) for _ in range(draw.randrange(3, 14))] for name in sources} for batch in range(4)]


def seeds(every: range, *daily: int) -> list[Any]:
    """Return some seeds for every day, which have steps of all kinds between them, and more for `make soak`."""
    return [pytest.param(seed, marks=() if seed in daily else pytest.mark.soak) for seed in every]


def run(job: Job, root: Path, batches: list[dict[str, Rows]], *, restarts: bool = False) -> dict[str, Rows]:
    with Harness(job, root, interval=seconds(1)) as h:
        for batch in batches:
            h.batch(batch)
            if restarts:
                h.restart()
        return h.output()


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", seeds(range(12), 0, 9))
def test_output_and_its_order_do_not_depend_on_partitions_and_restarts(tmp_path: Path, seed: int) -> None:
    """Random graphs of stateful steps and unions put out the same rows in the same order (SEMANTICS 1.6)."""
    batches = random_rows(seed, "ab")
    first, eight = (run(random_job(seed, n, STEPS, "ab"), tmp_path / str(n), batches, restarts=n == 8) for n in (1, 8))
    assert any(first.values())
    assert first == eight


@pytest.mark.parametrize("seed", seeds(range(100, 105), 101))
def test_output_and_its_order_do_not_depend_on_the_cuts(tmp_path: Path, seed: int) -> None:
    """Where only rows cause output, it is the same in the same order in one batch and in many (SEMANTICS 1.6)."""
    rows = [row for batch in random_rows(seed, "a") for row in batch["a"]]
    cuts = {1: [rows], 8: [rows[:5], rows[5:6], rows[6:20], rows[20:]]}
    whole, eight = (
        run(
            random_job(seed, n, (by_plain_rows, by_same_rows), "a"),
            tmp_path / str(n),
            [{"a": part} for part in parts],
            restarts=n == 8,
        )
        for n, parts in cuts.items()
    )
    assert any(whole.values())
    assert whole == eight


def chained(partitions: int) -> Job:
    """Return the job of a new user: duplicates go by id, then the rows of a user are put in a row."""
    job = Job("chained", partitions=partitions)
    rows = job.source("rows", MemorySource("id long, user string"))

    def unseen(time, key, row, state):
        if state.exists():
            return None
        state.update(seen=1)
        return row

    def collected(time, key, row, state):
        ids = [*state.get_or({"ids": []})["ids"], row["id"]]
        state.update(ids=ids)
        return {"user": key, "ids": ids}

    distinct = rows.key_by("id").map_with_state(
        "distinct", unseen, state="seen int", output="id long, user string", unbounded=True
    )
    distinct.key_by("user").map_with_state(
        "told", collected, state="ids array<long>", output="user string, ids array<long>", unbounded=True
    ).write("out", MemorySink())
    return job


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_rows_behind_a_function_come_as_they_arrived(tmp_path: Path, partitions: int) -> None:
    """A second function sees the rows of a user as they arrived, not partition by partition (SEMANTICS 1.6)."""
    with Harness(chained(partitions), tmp_path) as h:
        out = h.batch({"rows": [{"id": n % 12, "user": "ann"} for n in range(24)]})["out"]
    assert out[-1]["ids"] == list(range(12))


def test_several_rows_stand_where_the_row_stood(tmp_path: Path) -> None:
    """In a union, what a step emits for a row comes right behind that row, in the order returned (SEMANTICS 1.6)."""
    job = Job("beside", partitions=8)
    rows = job.source("rows", MemorySource("v long"))

    def twice(time, key, row, state):
        return [{"v": 10 * row["v"]}, {"v": 10 * row["v"] + 1}]

    made = rows.key_by("v").map_with_state("twice", twice, state="n int", output="v long", unbounded=True)
    both = rows.union(made).map_with_state(
        "all",
        lambda time, key, row, state: row,
        state="n int",
        output="v long",
        unbounded=True,
    )
    both.write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        out = h.batch({"rows": [{"v": v} for v in (3, 1, 2)]})["out"]
    assert [row["v"] for row in out] == [3, 30, 31, 1, 10, 11, 2, 20, 21]


def test_what_time_causes_comes_behind_the_rows_by_time(tmp_path: Path) -> None:
    """Timers and timeouts come behind all rows, by the time that was due, whatever the partition (SEMANTICS 1.6)."""
    start = datetime(1970, 1, 1, tzinfo=UTC)

    def ring(time, key, row, state):
        if row is not None:
            state.set_timer(start + timedelta(seconds=row["due"]), clock=BATCH)
            return {"what": f"row {key}"}
        return {"what": f"timer {key}"}

    job = Job("timers", partitions=8)
    rows = job.source("rows", MemorySource("k string, due long"))
    rows.key_by("k").map_with_state("ring", ring, state="n int", output="what string", unbounded=True).write(
        "out", MemorySink()
    )
    due = {"a": 9, "b": 3, "c": 7, "d": 5, "e": 2, "f": 8}
    with Harness(job, tmp_path, interval=seconds(1)) as h:
        h.batch({"rows": [{"k": k, "due": at} for k, at in due.items()]}, follow=False)
        out = h.batch({"rows": [{"k": "z", "due": 90}]}, at=20, follow=False)["out"]
    assert [row["what"] for row in out] == ["row z", *(f"timer {k}" for k in sorted(due, key=due.__getitem__))]


def test_a_transform_that_drops_positions_is_refused_before_a_step(tmp_path: Path) -> None:
    """Without the hidden columns nobody could tell the order of arrival (SEMANTICS 1.6)."""
    job = Job("dropped")
    rows = job.source("rows", MemorySource("k string, v long"))
    kept = rows.transform("only_k", lambda df: df.select("k"))
    kept.key_by("k").map_with_state(
        "count", lambda time, key, row, state: None, state="n int", output="k string", timeout=idle(minutes(1))
    ).write("out", MemorySink())
    with pytest.raises(JobError, match="only_k.*_penstock_"), Harness(job, tmp_path):
        pass
