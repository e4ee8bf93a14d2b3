"""Crash at every hook of the real loop, with Spark: of the first batch, of some in the middle, and the last (FAULTS 2).

The job has a path without state into a Delta table, and windows and a function with state into sinks in memory. It is
stopped dead at a hook of batches with rows and of batches that close windows, restarted and finished; the sinks then
show what they show when nothing ever crashes.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta_history import published_batches
from deltalake import DeltaTable
from harness_jobs import ORDERS, order, plain

from penstock import Job, agg, seconds
from penstock.runtime.driver import retention
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.state import State, event_time
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding

pytestmark = pytest.mark.sample(2, of="crashes of the engine")

FEED = [
    [order("a", t, t) for t in range(0, 9, 2)],
    [order(user, t, 1) for user in ("a", "b") for t in range(8, 19, 3)],
    [order("b", t, 7) for t in (17, 20, 29)],
    [order("a", t, 3) for t in (28, 31)],
]
CLOSING = {1, 3}
"""Behind these it is the batch without data that crashes, which closes windows and takes their rows out of the state."""
END = 100

IN_A_BATCH = [
    *((stage, when) for stage in ("FixOffsets", "Compute", "CommitBatch") for when in ("before", "after")),
    ("PublishSinks", "before"),
    ("PublishSinks", "published raw"),
    ("PublishSinks", "published out"),
    ("PublishSinks", "after"),
    *((stage, when) for stage in ("AckSources", "Purge") for when in ("before", "after")),
]
AT_A_START = [("TakeOver", when) for when in ("before", "surveyed", "claimed", "after", "done")]
AGAIN = [("PublishSinks", "before"), ("PublishSinks", "published raw"), ("PublishSinks", "after")]
"""Hooks of a start that publishes the last Commit again."""
DURABLE = [("FixOffsets", "after"), ("Compute", "after"), ("PublishSinks", "published raw"), ("CommitBatch", "after")]
"""Behind these something is durable that was not before: each day each batch crashes at another."""
DAILY = {("TakeOver", "claimed"), ("PublishSinks", "published raw")}
"""Of the hooks of a start.

The others, and each hook in each batch, are for `make soak`: the long run below crashes at each hook of a batch,
test_crash_hooks_on_hdfs at half of them and at each of a start over a job with windows and state, and
test_kill_at_hooks at all of them without Spark.
"""


def id_of(hook: tuple[str, str]) -> str:
    """Name a hook in a test's id."""
    return " ".join(hook)


def daily(hooks: list[tuple[str, str]]) -> list[Any]:
    """Leave all hooks but some to `make soak`."""
    return [pytest.param(hook, id=id_of(hook), marks=() if hook in DAILY else pytest.mark.soak) for hook in hooks]


def visits(time: datetime, user: str, row: dict[str, Any] | None, state: State) -> dict[str, Any] | None:
    """Count a user's rows until none has come for 15 s of event time; a timer tells the count now and then."""
    if row is None:
        return {"user": user, "n": state.get_or({"n": 0})["n"], "over": state.is_timing_out()}
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    state.set_deadline(row["t"] + timedelta(seconds=15))
    state.set_timer(row["t"] + timedelta(seconds=3))
    return None


def make_job(table: Path) -> Job:
    """Return a job with a path without state, one with windows, and one with a function that keeps state."""
    job = Job("crashing", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(5))
    orders.filter("v > 0").write("raw", Delta(table))
    windows = orders.key_by("user").window("w", Sliding(seconds(20), every=seconds(10)).drop_late())
    windows.aggregate(n=agg.count(), half=agg.sum("v / 2")).write("out", MemorySink())
    visited = orders.key_by("user").map_with_state(
        "visits", visits, state="n long", output="user string, n long, over boolean", timeout=event_time()
    )
    visited.write("told", MemorySink())
    return job


def feed(h: Harness, number: int, *, follow: bool = True) -> None:
    """Run a batch; the last one ends event time, so that a batch without data closes all windows."""
    h.batch({"orders": FEED[number]}, watermark=END if number == len(FEED) - 1 else None, follow=follow)


def crashed(h: Harness, number: int, hook: tuple[str, str]) -> None:
    """Run a batch that crashes, or that before the one which does, and restart."""
    closes = number in CLOSING
    if closes:
        feed(h, number, follow=False)
    h.crash_at(*hook)
    with pytest.raises(Crashed):
        h.batch() if closes else feed(h, number)
    h.restart()
    assert not closes or sum(file.rows for file in h.commit().staged["out"]) > 0


Seen = dict[str, Counter[tuple[object, ...]]]


def seen(h: Harness) -> Seen:
    """Return what the sinks show."""
    return {sink: Counter(plain(rows)) for sink, rows in h.output().items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Return what the sinks show when nothing crashes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Harness(make_job(folder / "table"), folder / "root") as h:
        for number in range(len(FEED)):
            feed(h, number)
        shown = seen(h)
    rows = [row for rows in FEED for row in rows if row["v"] > 0]
    assert shown["raw"] == Counter((row["user"], float(row["t"]), row["v"]) for row in rows)
    assert sum(n for _, _, _, n, _ in shown["out"]) == 2 * sum(map(len, FEED))
    assert sum(n for _, n, over in shown["told"].elements() if over) == sum(map(len, FEED))
    assert sum(not over for _, _, over in shown["told"].elements()) == len(
        {(row["user"], row["t"]) for rows in FEED for row in rows}
    )
    return shown


@pytest.mark.fault("F01", "F20")
@pytest.mark.parametrize(
    "hooks",
    [
        pytest.param(DURABLE, id="one for each"),
        *(pytest.param([hook] * len(FEED), id=id_of(hook), marks=pytest.mark.soak) for hook in IN_A_BATCH),
    ],
)
def test_a_crash_in_each_batch_changes_nothing(tmp_path: Path, undisturbed: Seen, hooks: list[tuple[str, str]]) -> None:
    """Before and after each stage, between two sinks; each batch stands in the table's history once."""
    table = tmp_path / "table"
    with Harness(make_job(table), tmp_path / "root") as h:
        for number, hook in enumerate(hooks):
            crashed(h, number, hook)
        assert seen(h) == undisturbed
    assert published_batches(table) == sorted(set(published_batches(table)))
    assert len(published_batches(table)) == len(FEED)


@pytest.mark.fault("F01")
@pytest.mark.parametrize("hook", daily(AT_A_START))
def test_a_crash_at_each_start_changes_nothing(tmp_path: Path, undisturbed: Seen, hook: tuple[str, str]) -> None:
    """Also at the very first, before there is any log."""
    h = Harness(make_job(tmp_path / "table"), tmp_path / "root")
    for number in range(len(FEED)):
        h.crash_at(*hook)
        with pytest.raises(Crashed):
            h.restart()
        h.restart()
        feed(h, number)
    assert seen(h) == undisturbed
    h.__exit__(None, None, None)


@pytest.mark.fault("F01", "F55")
@pytest.mark.parametrize("hook", daily(AGAIN))
def test_a_crash_while_a_start_publishes_again_changes_nothing(
    tmp_path: Path, undisturbed: Seen, hook: tuple[str, str]
) -> None:
    """The second crash strikes while the first is being made good."""
    with Harness(make_job(tmp_path / "table"), tmp_path / "root") as h:
        for number in range(len(FEED)):
            h.crash_after("CommitBatch")
            with pytest.raises(Crashed):
                feed(h, number)
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                h.restart()
            h.restart()
        assert seen(h) == undisturbed


@pytest.mark.fault("F01", "F30")
def test_a_long_run_that_crashes_in_every_batch_changes_nothing(tmp_path: Path) -> None:
    """At each hook in turn, over sweeps and purges; a restart finishes its batch and returns its rows."""
    table = tmp_path / "table"
    with Harness(make_job(table), tmp_path / "root") as h:
        for number, hook in enumerate([*IN_A_BATCH, *IN_A_BATCH[:3]]):
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                h.batch({"orders": [order("a", number, 1)]})
            h.restart()
        rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        assert Counter(row["t"].timestamp() for row in rows) == Counter(range(len(IN_A_BATCH) + 3))
    assert published_batches(table) == sorted(set(published_batches(table)))


def test_rows_of_a_batch_are_returned_though_a_sweep_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch sweeps the staged files of those before it, also of one that the same call ran."""
    monkeypatch.setattr(retention, "EVERY", 1)
    with Harness(make_job(tmp_path / "table"), tmp_path / "root") as h:
        h.batch({"orders": [order("a", 0, 1)]}, follow=False)
        output = h.batch({"orders": [order("a", 7, 1)]}, watermark=END)
        assert h.commit().batch == 2
        assert {path.name.split("-")[0] for path in (tmp_path / "root").rglob("staged/raw/*")} <= {f"{2:012d}"}
        assert [row["n"] for row in output["out"]] == [2, 2]
        assert len(output["raw"]) == 1
