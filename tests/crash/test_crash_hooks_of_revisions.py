"""Crash at the hooks of the real loop while windows and sessions revise what tables by keys have (FAULTS 2).

Rows come late, so that windows that closed are revised, and sessions grow, become one and open again, while panes of
open ones are out. The tables follow by replacing and deleting rows. The job is stopped dead at hooks, restarted and
finished. All sinks then show what they show when nothing ever crashes, and the tables what the definition makes of all
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from delta_history import published_batches
from deltalake import DeltaTable
from test_crash_hooks import IN_A_BATCH, id_of

from penstock import Job, agg, count, seconds
from penstock.sinks import Delta, MemorySink, Mode, Postgres
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Session, Sliding, drop_late

pytestmark = pytest.mark.sample(2, of="crashes of the engine")

GAP, SIZE, SLIDE, LATENESS = 4, 10, 5, 1_000
TIMES = [[0, 1, 20, 21], [3, 22, 23], [6, 25], [16, 28, 29], [10, 13, 40], [36, 33, 42, 60]]
"""The event times of the batches for `a`; those of `b` are a second later.

In each but the first some rows are older than the watermark, and each of these joins a session that is held.
"""
FEED = [
    [{"k": key, "t": time + (key == "b"), "v": 2**place} for place, time in enumerate(times) for key in "ab"]
    for times in TIMES
]
END = 300
HOOKS = [(stage, when.replace("raw", "windows").replace("out", "sessions")) for stage, when in IN_A_BATCH]
"""A batch that reaches no more than the first of the tables is among them."""


def make_job(folder: Path, server: Any, rows_of: str) -> Job:
    """Return a job with a table of revised windows, tables of revised sessions, and a sink that appends for each."""
    job = Job("revising", partitions=2)
    source = MemorySource("k string, t timestamp, v int")
    keyed = job.source("rows", source, event_time="t", max_out_of_order=seconds(0)).key_by("k")
    for name, spec in (
        ("windows", Sliding(seconds(SIZE), every=seconds(SLIDE))),
        ("sessions", Session(seconds(GAP))),
    ):
        late = spec.update_late(within=seconds(LATENESS), then=drop_late()).emit_on(count(2))
        out = keyed.window(f"of_{name}", late).aggregate(n=agg.count(), total=agg.sum("v"))
        out.write(name, Delta(folder / name, mode=Mode.UPSERT, keys=["k", "window_end"]))
        out.write(f"log_of_{name}", MemorySink())
    out.write("in_postgres", Postgres(server.dsn(), rows_of, mode=Mode.UPSERT, keys=["k", "window_end"]))
    return job


def in_table(folder: Path, name: str) -> list[tuple[Any, ...]]:
    """Return key, bounds in seconds and values of the rows of a table."""
    rows = DeltaTable(folder / name).to_pyarrow_table().to_pylist()
    bounds = ("window_start", "window_end")
    return sorted((r["k"], *(int(r[bound].timestamp()) for bound in bounds), r["n"], r["total"]) for r in rows)


def windows_of(rows: list[dict[str, Any]]) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
    """Yield the sliding windows of rows of a key, by their definition."""
    for start in range(-SIZE, END, SLIDE):
        if inside := [row for row in rows if start <= row["t"] < start + SIZE]:
            yield start, start + SIZE, inside


def sessions_of(rows: list[dict[str, Any]]) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
    """Yield the sessions of rows of a key, by their definition."""
    session: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: row["t"]):
        if session and row["t"] > session[-1]["t"] + GAP:
            yield session[0]["t"], session[-1]["t"] + GAP, session
            session = []
        session.append(row)
    yield session[0]["t"], session[-1]["t"] + GAP, session


def defined(of: Any) -> list[tuple[Any, ...]]:
    """Return what a table has in the end."""
    rows = [row for batch in FEED for row in batch]
    return sorted(
        (key, start, end, len(inside), sum(row["v"] for row in inside))
        for key in "ab"
        for start, end, inside in of([row for row in rows if row["k"] == key])
    )


def feed(h: Harness, number: int) -> None:
    """Run a batch; the last one ends event time, so that a batch without data closes all that is open."""
    h.batch({"rows": FEED[number]}, watermark=END if number == len(FEED) - 1 else None)


Seen = tuple[dict[str, Counter[str]], list[list[tuple[Any, ...]]]]


def seen(h: Harness, folder: Path, server: Any, rows_of: str) -> Seen:
    """Return what the sinks show."""
    bounds = ", ".join(f"extract(epoch FROM window_{bound})::bigint" for bound in ("start", "end"))
    kept = server.ask(f"SELECT k, {bounds}, n, total FROM {rows_of}")  # noqa: S608 - names of ours
    logs = {
        sink: Counter(str(sorted(row.items())) for row in rows) for sink, rows in h.output().items() if "log" in sink
    }
    return logs, [*(in_table(folder, name) for name in ("windows", "sessions")), sorted(kept)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> Seen:
    """Return what the sinks show when nothing crashes."""
    folder, table = tmp_path_factory.mktemp("undisturbed"), postgres.new_name()
    with Harness(make_job(folder, postgres, table), folder / "root") as h:
        for number in range(len(FEED)):
            feed(h, number)
        logs, tables = seen(h, folder, postgres, table)
        panes = {name: Counter(row["_pane"] for row in rows) for name, rows in h.output().items() if "log" in name}
    assert tables == [defined(windows_of), defined(sessions_of), defined(sessions_of)]
    assert {*panes["log_of_windows"]} == {"EARLY", "ON_TIME", "LATE"}
    assert {*panes["log_of_sessions"]} == {"EARLY", "ON_TIME", "LATE", "RETRACTED"}
    return logs, tables


@pytest.mark.fault("F01", "F43")
@pytest.mark.parametrize(
    "hooks",
    [
        pytest.param(
            Random(seed).choices(HOOKS, k=len(FEED)), id=f"drawn {seed}", marks=pytest.mark.soak if seed else ()
        )
        for seed in range(12)
    ]
    + [pytest.param([hook] * len(FEED), id=id_of(hook), marks=pytest.mark.soak) for hook in HOOKS],
)
def test_a_crash_in_each_batch_changes_no_revision(
    tmp_path: Path, postgres: Any, undisturbed: Seen, hooks: list[tuple[str, str]]
) -> None:
    """2.6, 3.2, 9.1: what is taken back and what replaces it are published together, once, whichever hook crashes."""
    table = postgres.new_name()
    with Harness(make_job(tmp_path, postgres, table), tmp_path / "root") as h:
        for number, hook in enumerate(hooks):
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                feed(h, number)
            h.restart()
        assert seen(h, tmp_path, postgres, table) == undisturbed
    for name in ("windows", "sessions"):
        assert published_batches(tmp_path / name) == sorted(set(published_batches(tmp_path / name)))
