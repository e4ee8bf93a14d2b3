"""Crash at every hook of the real loop, with all that a driver must find again, and the checkpoint on a real HDFS (F01).

The job keeps windows behind a check that holds rows, keys with timers and deadlines, a source with a partition that
becomes idle, and data checkpoints. Each driver that comes after a crash begins without a copy of anything, as one on
another machine does. What it decides is held against a job on disk whose drivers end between batches, batch by batch.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from delta_history import published_batches
from harness_jobs import ORDERS, order
from test_crash_hooks import AT_A_START, IN_A_BATCH, Seen, seen

from penstock import EveryBatches, Job, agg, seconds
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import ComputeFailed
from penstock.quality import OnFail
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.state import State, event_time
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding
from tools.hdfs_server import HdfsServer

pytestmark = pytest.mark.integration

Hook = tuple[str, str]

TASK = ("task", "inside")
"""No hook of the loop: a task dies at a row, by SIGKILL, and its batch with it."""
DEADLY = -1
"""The value of that row."""
A_STEP = 10
"""Seconds of event time from one batch with rows to the next: behind each a window closes."""
STRIKES = [*IN_A_BATCH, TASK]
DAILY = [
    ("FixOffsets", "before"), ("FixOffsets", "after"), ("Compute", "after"), ("CommitBatch", "after"),
    ("PublishSinks", "published raw"), ("Purge", "after"), TASK,
]  # fmt: skip
"""At the other hooks nothing more is durable than at these; on disk the long run of test_crash_hooks has them all."""
STARTS = dict(enumerate(AT_A_START, 1))
"""Where the driver crashes that is to make the crash of a step good; what a start publishes, test_kill_at_hooks has."""
SETTINGS = DriverSettings(keep=5)
HELD = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 100}}


def visits(marker: Path) -> Any:
    """Return a function that counts a user's rows; a timer tells the count, and so does the deadline that ends it."""

    def count(time: datetime, user: str, row: dict[str, Any] | None, state: State) -> dict[str, Any] | None:
        known = state.get_or({"n": 0})["n"]
        if row is None:
            return {"user": user, "n": known, "over": state.is_timing_out()}
        if row["v"] == DEADLY and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.update(n=known + 1)
        state.set_deadline(row["t"] + timedelta(seconds=25))
        state.set_timer(row["t"] + timedelta(seconds=12))
        return None

    return count


def make_job(folder: Path) -> Job:
    """Return the job, of one partition: what is crashed is the loop."""
    job = Job("crashing", partitions=1)
    job.checkpoint(every=EveryBatches(8))
    orders = job.source(
        "orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(5), idle_after=seconds(2)
    )
    orders.filter("v > 0").write("raw", Delta(folder / "table"))
    windows = orders.key_by("user").window("w", Sliding(seconds(20), every=seconds(10)).drop_late())
    totals = windows.aggregate(n=agg.count(), total=agg.sum("v"))
    small = {"name": "small", "expectations": [HELD]}
    totals.check("small", suite=small, on_fail=OnFail.HOLD).write("out", MemorySink())
    visited = orders.key_by("user").map_with_state(
        "visits",
        visits(folder / "marker"),
        state="n long",
        output="user string, n long, over boolean",
        timeout=event_time(),
    )
    visited.write("told", MemorySink())
    return job


def rows_of(number: int, hook: Hook) -> list[list[dict[str, Any]]]:
    """Return the rows of a step: two partitions of the source, of which the second has none for a while, then again.

    Guests come and go, a value of 500 fails the check, and one row in three batches is too late for its windows.
    """
    t = number * A_STEP
    first = [order("ann", t, 1), order(f"guest {number // 3}", t + 2, 500 if number % 5 == 2 else 2)]
    if hook == TASK:
        first.append(order("ann", t + 3, DEADLY))
    if number % 3 == 2:
        first.append(order("bob", max(0, t - 60), 3))
    return [first, [order("cleo", t - 4, 4)] if number % 6 < 3 else []]


def closes(number: int, hook: Hook) -> bool:
    """Say whether it is not the batch with rows that is struck, but that which closes a window behind it.

    At every other hook: between most pairs of them nothing becomes durable.
    """
    return number % 2 == 1 and hook != TASK


def quiet(h: Harness, number: int, hook: Hook) -> None:
    """Run the two batches of a step; drivers are ended only between batches, where nothing is lost on any account.

    A driver counts idleness from the first batch that it plans (SEMANTICS 2.4), so the one that the crash would end
    plans the batch here as well, and the next one what follows.
    """
    rows = {"orders": rows_of(number, hook)}
    if closes(number, hook):
        h.batch(rows, follow=False)
    if hook == ("FixOffsets", "before"):  # the batch is the next driver's
        h.restart()
        h.batch(None if closes(number, hook) else rows)
        return
    h.crash_after("Purge")
    with pytest.raises(Crashed):
        h.batch(None if closes(number, hook) else rows)
    h.restart()


def struck(h: Harness, number: int, hook: Hook) -> None:
    """Run them and crash at the hook, and for some of the hooks also at the start that follows."""
    rows = {"orders": rows_of(number, hook)}
    if closes(number, hook):
        h.batch(rows, follow=False)
    if hook != TASK:
        h.crash_at(*hook)
    with pytest.raises(ComputeFailed if hook == TASK else Crashed):
        h.batch(None if closes(number, hook) else rows)
    if number in STARTS:
        forget(h)
        h.crash_at(*STARTS[number])
        with pytest.raises(Crashed):
            h.restart()
    forget(h)
    h.restart()


def forget(h: Harness) -> None:
    """Remove every copy of what is on HDFS."""
    shutil.rmtree(h.root.here, ignore_errors=True)  # none was made yet where the first batch died


def known(commit: Commit) -> dict[str, Any]:
    """Return what was decided and the next batch begins with, but for names that are made anew in each run."""
    same = {"batch", "time", "zero", "watermarks_in", "watermarks_out", "due", "due_time", "accounting"}
    return {
        **commit.model_dump(include=same),
        "partitions": {name: dict(source.partitions) for name, source in commit.sources.items()},
        "read": {name: source.position["rows"] for name, source in commit.sources.items()},
        "staged": {sink: sum(file.rows for file in files) for sink, files in commit.staged.items()},
        "held": {sink: sum(file.rows for file in files) for sink, files in commit.held.items()},
        "verdicts": [(verdict["check"], verdict["status"]) for verdict in commit.verdicts],
    }


@dataclass
class Told:
    """What a run came to."""

    commits: list[dict[str, Any]]
    """The newest decision behind each step."""
    state: dict[str, Counter[str]]
    held: Counter[str]
    """The rows that wait for a person, as they are read from the checkpoint."""
    shown: Seen
    fetched: int
    """Bytes of state that tasks had brought from HDFS."""


def run_steps(h: Harness, folder: Path, step: Callable[[Harness, int, Hook], None], strikes: list[Hook]) -> Told:
    """Run all steps."""
    commits, fetched = [], 0
    for number, hook in enumerate(strikes):
        step(h, number, hook)
        commits.append(known(h.commit()))
        fetched += h.commit().written.get("fetched", 0)
    if step is struck:
        forget(h)
    state = {name: Counter(map(repr, h.state(name))) for name in ("w", "visits")}
    assert published_batches(folder / "table") == sorted(set(published_batches(folder / "table")))
    return Told(commits, state, held_rows(h), seen(h), fetched)


def held_rows(h: Harness) -> Counter[str]:
    """Return the rows of all batches that are held."""
    job = h.root / "crashing"
    recovered = recover(Log(job.store()))
    held = [(sink, files) for kept in recovered.kept for sink, files in kept.held.items()]
    return Counter(
        repr(row)
        for sink, files in held
        for f in files
        for row in pq.read_table((job / "staged" / sink / f.path).fetch()).to_pylist()
    )


@pytest.mark.sample(seconds=70)
@pytest.mark.remedy("PEN-OPR-002")
@pytest.mark.fault("F01", "F04")
@pytest.mark.parametrize("strikes", [DAILY, pytest.param(STRIKES, marks=pytest.mark.soak)], ids=["daily", "all"])
def test_a_crash_at_each_hook_is_made_good_from_hdfs_alone(
    tmp_path: Path, hdfs: HdfsServer, strikes: list[Hook]
) -> None:
    """Watermarks, idle flags, timers, slices, held batches, positions: each step decides as if nothing had happened."""
    for folder in ("quiet", "struck"):
        (tmp_path / folder).mkdir()
    (tmp_path / "quiet" / "marker").touch()
    with Harness(make_job(tmp_path / "quiet"), tmp_path / "root", settings=SETTINGS) as h:
        whole = run_steps(h, tmp_path / "quiet", quiet, strikes)
    root = root_of(hdfs.url(secrets.token_hex(8)), cache=str(tmp_path / "cache"))
    with Harness(make_job(tmp_path / "struck"), root, settings=SETTINGS) as h:
        disturbed = run_steps(h, tmp_path / "struck", struck, strikes)
    for expected, after in zip(whole.commits, disturbed.commits, strict=True):
        assert after == expected
    assert (disturbed.shown, disturbed.state, disturbed.held) == (whole.shown, whole.state, whole.held)
    assert disturbed.fetched > 0 == whole.fetched
    flags = [progress.idle for commit in whole.commits for progress in commit["partitions"]["orders"].values()]
    assert {True, False} == set(flags) == {over for _, _, over in whole.shown["told"]}
    assert all((whole.held, *whole.state.values(), *whole.shown.values()))
