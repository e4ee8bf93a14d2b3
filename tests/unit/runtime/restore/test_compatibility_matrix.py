"""What a start makes of a changed job is what docs/compatibility.md says, for each change and each way to start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, order

from penstock import EveryBatches, Job, agg, count, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import PartitionsChanged, StepsChanged
from penstock.evictors import KeepLast
from penstock.graph.windows import LateTo, TimeWindow
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import idle
from penstock.testing import Harness
from penstock.triggers import Every
from penstock.windows import GlobalWindow, Sliding, Tumbling
from tools.compatibility_page import TABLE, Cell, Mode

pytestmark = pytest.mark.fault("F51")

OTHER = 2
"""Partitions, where there was one."""
WINDOW = Tumbling(seconds(100)).drop_late()
EARLY = WINDOW.emit_every(seconds(50)).emit_on(count(50))


def counted(time, key, row, state):
    """Count a key's rows in `n`, whatever else the state has."""
    if row is not None:
        state.update(n=state.get_or({"n": 0})["n"] + 1)


def counted_otherwise(time, key, row, state):
    """Do the same by tens."""
    if row is not None:
        state.update(n=state.get_or({"n": 0})["n"] + 10)


def make_job(
    *,
    state: str = "n int, s string",
    key: str = "CAST(ascii(user) AS INT)",
    by: str = "number",
    timeout: int = 0,
    function: Callable[..., Any] = counted,
    window: TimeWindow = WINDOW,
    total: str = "v",
    worst: str = "",
    turned: bool = False,
    steps: tuple[str, ...] = ("seen",),
    sources: tuple[str, ...] = ("orders",),
    sinks: tuple[str, ...] = (),
    partitions: int = 1,
    duplicates: tuple[str, ...] = ("user", "t"),
    within: tuple[int, int] = (-100, 100),
    left: tuple[str, ...] = ("user", "v"),
    right: tuple[str, ...] = ("user", "v AS w"),
    trigger: int = 100,
    evict: int = 100,
    how: str = "inner",
) -> Job:
    """Return a job whose steps are what the first letters of their names say.

    w: windows; d: deduplication, of which each row is a first one; j: a join of the source with itself; g: a global
    window that does not fire; any other: a function that keeps state.
    """
    job = Job("changed", partitions=partitions)
    job.checkpoint(every=EveryBatches(2))
    orders, *others = (
        job.source(name, MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0)) for name in sources
    )
    keyed = orders.with_columns(number=key).key_by(by)
    for step in steps:
        if step.startswith("w"):
            kept = {"rows": agg.count(), "total": agg.sum(total)} | ({"worst": agg.max(worst)} if worst else {})
            kept = {f"{name}_too": kept[name] for name in reversed(kept)} if turned else kept
            made = keyed.window(step, window).aggregate(**kept)
        elif step.startswith("d"):
            made = orders.deduplicate(step, by=duplicates, within=seconds(within[1]))
        elif step.startswith("j"):
            bounds = (seconds(within[0]), seconds(within[1]))
            made = orders.select(*left).join(step, orders.select(*right), on=["user"], within=bounds, how=how)
        elif step.startswith("g"):
            whole = GlobalWindow().trigger(Every(count(trigger)))
            whole = whole.evict(KeepLast(evict)) if evict else whole
            made = keyed.window(step, whole).aggregate(total=agg.sum(total))
        else:
            bound = {"timeout": idle(seconds(timeout))} if timeout else {"unbounded": True}
            made = keyed.map_with_state(step, function, state=state, output="n int", **bound)
        made.write(f"{step}_out", MemorySink())
    if isinstance(window.late, LateTo):
        job.late(window.late.stream).write("late", MemorySink())
    for sink in sinks:
        orders.write(sink, MemorySink())
    for name, rows in zip(sources[1:], others, strict=True):
        rows.write(f"{name}_out", MemorySink())
    return job


@dataclass(frozen=True)
class Case:
    """A job and a change of it, as arguments of `make_job`, and what a step keeps behind another row."""

    change: dict[str, Any]
    job: dict[str, Any] = field(default_factory=dict)
    adds: int = 1


WINDOWS = {"steps": ("w",)}
DUPLICATES, JOINS, GLOBALS = {"steps": ("d",)}, {"steps": ("j",)}, {"steps": ("g",)}
CASES = {
    "column new": Case({"state": "n int, s string, more array<int>"}),
    "column wider": Case({"state": "n long, s string"}),
    "columns elsewhere": Case({"state": "s string, n int"}),
    "column gone": Case({"state": "n int"}),
    "column narrower": Case({"state": "n smallint, s string"}),
    "key of another type": Case({"key": "CAST(ascii(user) AS BIGINT)"}),
    "another key": Case({"by": "user"}),
    "timeout new": Case({"timeout": 50}),
    "timeout gone": Case({"timeout": 0}, {"timeout": 50}),
    "timeout longer": Case({"timeout": 70}, {"timeout": 50}),
    "function": Case({"function": counted_otherwise}, adds=10),
    "windows longer": Case({"window": Tumbling(seconds(200)).drop_late()}, WINDOWS),
    "another kind of windows": Case({"window": Sliding(seconds(100), every=seconds(50)).drop_late()}, WINDOWS),
    "an aggregate more": Case({"worst": "v"}, WINDOWS),
    "an aggregate gone": Case({"worst": ""}, WINDOWS | {"worst": "v"}),
    "another aggregate": Case({"total": "v + 1"}, WINDOWS),
    "an aggregate cast": Case({"total": "CAST(v AS DECIMAL(20, 2))"}, WINDOWS),
    "aggregates elsewhere": Case({"turned": True}, WINDOWS | {"worst": "v"}),
    "blanks": Case({"total": "V  +1"}, WINDOWS | {"total": "v + 1"}),
    "another type": Case({"key": "CAST(ascii(user) AS SMALLINT)"}, WINDOWS | {"by": "user", "worst": "number"}),
    "another window key": Case({"by": "user"}, WINDOWS),
    "late rows": Case({"window": Tumbling(seconds(100)).late_to("late")}, WINDOWS),
    "early panes otherwise": Case({"window": WINDOW.emit_every(seconds(20))}, WINDOWS | {"window": EARLY}),
    "early panes new": Case({"window": EARLY}, WINDOWS),
    "remembered longer": Case({"within": (-100, 200)}, DUPLICATES),
    "remembered for less": Case({"within": (-100, 50)}, DUPLICATES),
    "duplicates of another key": Case({"duplicates": ("user", "t", "v")}, DUPLICATES),
    "duplicates by keys elsewhere": Case({"duplicates": ("t", "user")}, DUPLICATES),
    "bounds narrower": Case({"within": (-50, 50)}, JOINS),
    "bounds wider": Case({"within": (-100, 101)}, JOINS),
    "another kind of join": Case({"how": "left"}, JOINS),
    "an outer side less": Case({"how": "left"}, {**JOINS, "how": "full"}),
    "input column new": Case({"right": ("user", "v AS w", "v + 1 AS more")}, JOINS),
    "input column wider": Case({"left": ("user", "CAST(v AS BIGINT) AS v")}, JOINS),
    "input column gone": Case({"left": ("user",)}, JOINS),
    "input column moved": Case({"left": ("user", "v AS w"), "right": ("user", "v")}, JOINS),
    "trigger": Case({"trigger": 50}, GLOBALS),
    "evictor": Case({"evict": 50}, GLOBALS),
    "rows read otherwise": Case({"total": "v + 1"}, GLOBALS),
    "evictor gone": Case({"evict": 0}, GLOBALS),
    "partials of another aggregate": Case({"total": "v + 1"}, GLOBALS | {"evict": 0}),
    "step new": Case({"steps": ("seen", "fresh")}),
    "step gone": Case({"steps": ("w",)}, {"steps": ("w", "seen")}),
    "step renamed": Case({"steps": ("w", "fresh")}, {"steps": ("w", "seen")}),
    "partitions": Case({"partitions": OTHER}),
    "source new": Case({"sources": ("orders", "extra")}),
    "source gone": Case({"sources": ("orders",)}, {"sources": ("orders", "extra")}),
    "source renamed": Case({"sources": ("renamed",)}),
    "sink new": Case({"sinks": ("raw", "copy")}, {"sinks": ("raw",)}),
    "sink gone": Case({"sinks": ()}, {"sinks": ("raw",)}),
}

BATCHES = 4
"""Each with a row of the one key."""
GOES_ON_FROM = {Mode.LAST: 3, Mode.BATCH: 2, Mode.SAVED: 0, Mode.SNAPSHOT: 1, Mode.PARTITIONS: 3, Mode.EMPTY: None}
"""The batch whose state and positions come to be in force."""
RESTORES: dict[Mode, dict[str, Any]] = {
    Mode.BATCH: {"batch": 2},
    Mode.SAVED: {"saved": "first"},
    Mode.SNAPSHOT: {"snapshot": "0"},
    Mode.PARTITIONS: {"partitions": OTHER},
    Mode.EMPTY: {"empty": True},
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Path]:
    """Return what makes a checkpoint of a job once for each job."""
    made: dict[str, Path] = {}

    def checkpoint(job: dict[str, Any]) -> Path:
        if str(job) not in made:
            root = tmp_path_factory.mktemp("checkpoint")
            with Harness(make_job(**job), root) as h:
                for batch in range(BATCHES):
                    h.batch({name: [order("a", batch)] for name in job.get("sources", ("orders",))})
                    if batch == 0:
                        h.save("first")
            made[str(job)] = root
        return made[str(job)]

    return checkpoint


@contextmanager
def started(job: Job, root: Path, mode: Mode, drop: tuple[str, ...] = ()) -> Iterator[Harness]:
    """Start a changed job over a checkpoint that it knows nothing of, and leave it at the end."""
    h = Harness(job, root, settings=DriverSettings(drop=drop))
    with ExitStack() as stack:
        if mode is Mode.LAST:
            h.restart()
        else:
            h.restore(**RESTORES[mode])
        stack.push(h)
        yield h


def where(root: Path) -> Recovered:
    """Return where a log says that the job stands."""
    return recover(Log(LocalStore(root / "changed")))


def of_key(h: Harness, step: str) -> list[int]:
    """Return how many rows each key of a step has counted; for others how many rows are held."""
    rows = h.state(step)
    if step.startswith("g"):
        return [row["_held"] for row in rows if row.get("_row") is None]
    if step.startswith("j"):
        rows = [row for row in rows if row["_side"] == "left"]
    if step.startswith(("d", "j")):
        return [len(rows)] if rows else []
    return [row.get("n", row.get("_rows")) for row in rows]


def look(case: Case, root: Path, mode: Mode, drop: tuple[str, ...] = ()) -> Cell:
    """Start the changed job, see that it goes on from the state that it should, and return that it does."""
    job = make_job(**{**case.job, **({"partitions": OTHER} if mode is Mode.PARTITIONS else {}), **case.change})
    batch, kept = GOES_ON_FROM[mode], steps_of(case.job)
    with started(job, root, mode, drop) as h:
        now = where(root)
        assert (None if now.commit is None else now.commit.batch) == batch
        assert (len(now.restores), now.next_batch) == (0 if mode is Mode.LAST else 1, BATCHES)
        rows = {node.name: batch + 1 if node.name in kept and batch is not None else 0 for node in job.graph().steps}
        for step, count in rows.items():
            assert of_key(h, step) == ([count] if count else [])
        if mode is Mode.LAST:
            h.batch({job.graph().sources[0].name: [order("a", BATCHES)]})
            assert h.commit().batch == BATCHES
            for step, count in rows.items():
                assert of_key(h, step) == [count + case.adds]
    return Cell.ANEW if mode is Mode.EMPTY else Cell.ON


def steps_of(job: dict[str, Any]) -> set[str]:
    """Return the steps of a job."""
    return {node.name for node in make_job(**job).graph().steps}


def dropped_of(job: dict[str, Any]) -> set[str]:
    """Return the steps and sources of a job, which `--drop` may name once they are gone."""
    return steps_of(job) | {node.name for node in make_job(**job).graph().sources}


def cell_of(case: Case, root: Path, mode: Mode) -> Cell:
    """Return what comes of a start; where it is refused, nothing has happened."""
    before = where(root)
    try:
        return look(case, root, mode)
    except PartitionsChanged as why:
        cell, refused = Cell.PARTITIONS, why.code
    except StepsChanged as why:
        cell, refused = Cell.STEPS, why.code
    assert refused.endswith("015" if cell is Cell.PARTITIONS else "016")
    after = where(root)
    assert (after.commit, after.restores, after.used) == (before.commit, before.restores, before.used)
    gone = dropped_of(case.job) - dropped_of({**case.job, **case.change})
    if cell is Cell.STEPS and gone:
        assert look(case, root, mode, drop=tuple(gone)) is Cell.ON
        return Cell.DROP
    return cell


def test_every_change_on_the_page_is_tried() -> None:
    """And none that is not there."""
    assert list(CASES) == list(TABLE)


def starts() -> Iterator[Any]:
    """Yield each change with each way to start; of the restores that go on alike a change has one of its own each day.

    The others are for `make soak`: what a change meets there is what it meets in the one, but where the page says so.
    """
    alike = tuple(RESTORES)
    for place, change in enumerate(CASES):
        cells = TABLE[change].cells
        for mode in Mode:
            differs = mode is not Mode.EMPTY and cells[mode] is not cells[Mode.LAST]
            daily = differs or mode not in alike or mode is alike[place % len(alike)]
            marks = () if daily else pytest.mark.soak
            yield pytest.param(change, mode, id=f"{change}-{mode.name.lower()}", marks=marks)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("change", "mode"), [*starts()])
def test_a_start_does_what_the_page_says(
    change: str, mode: Mode, checkpoints: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    """With the state of that batch; and another batch is done on it where the last commit is gone on from."""
    root = tmp_path / "root"
    shutil.copytree(checkpoints(CASES[change].job), root)
    assert cell_of(CASES[change], root, mode) is TABLE[change].cells[mode]
