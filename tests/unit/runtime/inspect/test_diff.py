"""What a diff says of a changed job is what a start does with it (F51)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, order

from penstock import Job, agg, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import PartitionsChanged, PenstockError, SinkSchemaMismatch, StateMissing, StepsChanged
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.restore.compatibility import Compatibility, Finding, when_left
from penstock.runtime.spark.engine import SparkEngine
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.state import idle
from penstock.testing import Crashed, Harness
from penstock.testing.environment import session_of_tests
from penstock.windows import Tumbling

pytestmark = [pytest.mark.fault("F51"), pytest.mark.sample(2, of="differences of jobs")]

ROWS = [order("a", 1, 5), order("b", 2, 6)]


def remember(time, key, row, state):
    """Count a key's rows in `n`, whatever else the state has."""
    if row is not None:
        state.update(n=state.get_or({"n": 0})["n"] + 1)


def make_job(
    *,
    size: int = 10,
    partitions: int = 1,
    steps: tuple[str, ...] = ("w", "seen"),
    source: str = "orders",
    more: tuple[str, ...] = (),
    sinks: tuple[str, ...] = ("raw",),
    key: str = "user",
    state: str = "n int, s string",
    timeout: bool = False,
    total: str = "v",
    table: Path | None = None,
    columns: tuple[str, ...] = ("user", "v"),
) -> Job:
    """Return a job with windows and a function that keeps state, and one thing changed."""
    job = Job("changed", partitions=1)
    orders = job.source(source, MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    keyed = orders.with_columns(number="CAST(ascii(user) AS INT)")
    for step in steps:
        if step.startswith("w"):
            window = keyed.key_by(key).window(step, Tumbling(seconds(size)).drop_late(), partitions=partitions)
            window.aggregate(n=agg.count(), total=agg.sum(total)).write(f"{step}_out", MemorySink())
        else:
            bound = {"timeout": idle(seconds(9))} if timeout else {"unbounded": True}
            made = keyed.key_by(key).map_with_state(step, remember, state=state, output="n int", **bound)
            made.write(f"{step}_out", MemorySink())
    for sink in sinks:
        orders.select(*columns).write(sink, MemorySink() if table is None else Delta(table))
    for name in more:
        job.source(name, MemorySource(ORDERS)).write(f"{name}_out", MemorySink())
    return job


def findings_of(job: Job, root: Path, *, running: bool, drop: tuple[str, ...] = ()) -> list[Finding]:
    """Return what a diff finds."""
    folder = root / "changed"
    recovered = recover(Log(LocalStore(folder)))
    engine = SparkEngine(job.graph(), session_of_tests(), folder=folder, suites={})
    return engine.compare(when_left(recovered) if running else recovered, drop)


@dataclass(frozen=True)
class Change:
    """A change of the job, and what is to be found of it: fates by name, clauses, and the error of a start."""

    change: dict[str, Any]
    fates: dict[str, Compatibility]
    says: str = ""
    error: type[PenstockError] | None = None
    drop: tuple[str, ...] = field(default=())


KEPT, NEW, DROPPED, GONE, UNFIT = (
    Compatibility.KEPT,
    Compatibility.NEW,
    Compatibility.DROPPED,
    Compatibility.GONE,
    Compatibility.INCOMPATIBLE,
)
CHANGES = {
    "nothing": Change({}, {"w": KEPT, "seen": KEPT, "orders": KEPT, "raw": KEPT}),
    "columns of state": Change(
        {"state": "extra array<int>, s string, n long"},
        {"seen": KEPT},
        "column extra list<element: int32> is new, and null for the keys that are there; column n was int32 and is "
        "int64, which is wider; columns stand in another order",
    ),
    "a narrower column": Change(
        {"state": "n smallint, s string"}, {"seen": UNFIT}, "column n was int32 and is int16", StepsChanged
    ),
    "a column that is gone": Change({"state": "n int"}, {"seen": UNFIT}, "column s string is gone", StepsChanged),
    "another key": Change(
        {"key": "number"}, {"w": UNFIT, "seen": UNFIT}, "key column user was string and is none", StepsChanged
    ),
    "a timeout": Change({"timeout": True}, {"seen": UNFIT}, "timeout none before, and timeout idle now", StepsChanged),
    "other windows": Change(
        {"size": 20},
        {"w": UNFIT, "seen": KEPT},
        "its windows were of 10 s every 10 s and are of 20 s every 20 s",
        StepsChanged,
    ),
    "other aggregates": Change(
        {"total": "v + 1"},
        {"w": KEPT},
        "sum(v+1) is new, and counts the rows that come from now on, in windows that are open as well; sum(v) is gone",
    ),
    "a cast aggregate": Change(
        {"total": "CAST(v AS DOUBLE)"},
        {"w": KEPT},
        "sum(cast(v as double)) is new, and goes on from what is kept; sum(v) is gone",
    ),
    "other partitions": Change(
        {"partitions": 3},
        {"w": UNFIT, "seen": KEPT},
        "it has 3 partitions and its state has 1, which a restore with --partitions 3 changes",
        PartitionsChanged,
    ),
    "a new step": Change({"steps": ("w", "seen", "w2")}, {"w": KEPT, "w2": NEW, "w2_out": NEW}, "it starts empty"),
    "a step less": Change(
        {"steps": ("seen",)},
        {"w": DROPPED, "seen": KEPT},
        "its state would be lost; --drop w lets it go",
        StepsChanged,
    ),
    "a step less, knowingly": Change(
        {"steps": ("seen",)}, {"w": DROPPED, "seen": KEPT}, "its state is dropped with the next batch", drop=("w",)
    ),
    "steps less, one knowingly": Change(
        {"steps": ()}, {"w": DROPPED, "seen": DROPPED}, "--drop seen lets it go", StepsChanged, drop=("w",)
    ),
    "a step under another name": Change(
        {"steps": ("w2", "seen")}, {"w": DROPPED, "w2": NEW, "seen": KEPT}, "it starts empty", StepsChanged
    ),
    "dropped and still there": Change({}, {"w": KEPT}, error=StepsChanged, drop=("w",)),
    "dropped and never there": Change({}, {"w": KEPT}, drop=("never",)),
    "a source under another name": Change(
        {"source": "renamed"}, {"orders": DROPPED, "renamed": NEW}, "--drop orders lets it go", StepsChanged
    ),
    "a source less, knowingly": Change(
        {"source": "renamed"}, {"orders": DROPPED, "renamed": NEW}, "dropped with the next batch", drop=("orders",)
    ),
    "a source dropped and still there": Change({}, {"orders": KEPT}, error=StepsChanged, drop=("orders",)),
    "a new source": Change(
        {"more": ("extra",)}, {"orders": KEPT, "extra": NEW, "extra_out": NEW}, "it is read from its beginning"
    ),
    "other sinks": Change({"sinks": ("copy",)}, {"raw": GONE, "copy": NEW}, "what it shows stays"),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a checkpoint as it is while its driver runs, and as that driver left it."""
    running, left = (tmp_path_factory.mktemp("checkpoints") / name for name in ("running", "left"))
    with Harness(make_job(), left) as h:
        h.batch({"orders": ROWS})
        shutil.copytree(left, running)
    return running, left


def start(job: Job, root: Path, drop: tuple[str, ...] = ()) -> None:
    """Start a job over a checkpoint, and leave it."""
    h = Harness(job, root, settings=DriverSettings(drop=drop))
    h.restart()
    h.__exit__(None, None, None)


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", CHANGES)
def test_a_diff_says_what_a_start_does(what: str, checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    """Before the driver that runs is stopped; the job of before goes on wherever another was refused."""
    change, (running, left) = CHANGES[what], checkpoints
    findings = findings_of(make_job(**change.change), running, running=True, drop=change.drop)
    fates = {finding.name: finding.fate for finding in findings}
    assert {name: fates[name] for name in change.fates} == change.fates
    assert change.says in " / ".join("; ".join(finding.says) for finding in findings)
    refusal = next((finding.refusal for finding in findings if finding.refusal is not None), None)
    assert type(refusal) is (change.error or type(None))
    shutil.copytree(left, tmp_path / "root")
    if refusal is None:
        start(make_job(**change.change), tmp_path / "root", change.drop)
        return
    with pytest.raises(PenstockError) as raised:
        start(make_job(**change.change), tmp_path / "root", change.drop)
    assert str(raised.value) == str(refusal)
    start(make_job(), tmp_path / "root")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("stage", "change", "refused"),
    [
        ("FixOffsets", {}, None),
        ("FixOffsets", {"more": ("extra",)}, "batch 1 was begun and knows nothing of source 'extra'.*--from batch=0"),
        ("FixOffsets", {"steps": ("w", "seen", "w2")}, "batch 1 was begun and knows nothing of step 'w2'"),
        ("FixOffsets", {"sinks": ("copy",)}, "batch 0 has 2 rows for sink 'raw'"),
        ("CommitBatch", {"sinks": ("copy",)}, "batch 1 has 2 rows for sink 'raw'"),
        ("CommitBatch", {"more": ("extra",)}, None),
    ],
)
def test_behind_a_driver_that_was_killed_it_says_so_too(
    stage: str, change: dict[str, Any], refused: str | None, tmp_path: Path
) -> None:
    """A batch that was begun reads what its Offsets say, of the sources and for the steps that they name."""
    with Harness(make_job(), tmp_path) as h:
        h.batch({"orders": ROWS})
        h.crash_after(stage)
        with pytest.raises(Crashed):
            h.batch({"orders": ROWS})
        refusals = [
            f.refusal for f in findings_of(make_job(**change), tmp_path, running=False) if f.refusal is not None
        ]
        assert bool(refusals) == bool(refused)
        if refused is None:
            h.restart(make_job(**change))
            return
        with pytest.raises(StepsChanged, match=refused) as raised:
            h.restart(make_job(**change))
        assert str(raised.value) == str(refusals[0])
        h.restart(make_job())


def test_a_first_batch_that_was_begun_is_given_up_with_nothing(tmp_path: Path) -> None:
    """There is no batch before it to go back to."""
    with Harness(make_job(), tmp_path) as h:
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch({"orders": ROWS})
        refusals = [f.refusal for f in findings_of(make_job(source="renamed"), tmp_path, running=False)]
        assert "--from empty" in str(refusals)
        with pytest.raises(StepsChanged):
            h.restart(make_job(source="renamed"))
        h.restore(empty=True)


def test_what_is_dropped_is_in_no_later_commit_and_comes_back_with_a_restore(tmp_path: Path) -> None:
    """It has to be said at each start until a batch is committed, and not any more then."""
    with Harness(make_job(), tmp_path) as h:
        h.batch({"orders": ROWS})
        kept = h.commit().batch
        h.settings = DriverSettings(drop=("w",))
        h.restart(make_job(steps=("seen",)))
        h.settings = DriverSettings()
        with pytest.raises(StepsChanged, match="state of step 'w'"):
            h.restart(make_job(steps=("seen",)))
        h.settings = DriverSettings(drop=("w",))
        h.restart(make_job(steps=("seen",)))
        h.batch({"orders": ROWS})
        assert set(h.commit().state) == {"seen"}
        h.settings = DriverSettings()
        h.restart(make_job(steps=("seen",)))
        with pytest.raises(StepsChanged, match="state of step 'w'"):
            h.restore(batch=kept)
        h.restore(batch=kept, job=make_job())
        assert [row["_rows"] for row in h.state("w")] == [1, 1]


def test_a_sink_whose_table_takes_other_columns_is_found(tmp_path: Path) -> None:
    """Before anything is written, also into the table."""
    job = make_job(table=tmp_path / "table")
    with Harness(job, tmp_path / "root") as h:
        h.batch({"orders": ROWS})
        other = {"table": tmp_path / "table", "columns": ("user",)}
        findings = {f.name: f for f in findings_of(make_job(**other), tmp_path / "root", running=True)}
        assert (findings["raw"].fate, type(findings["raw"].refusal)) == (UNFIT, SinkSchemaMismatch)
        with pytest.raises(SinkSchemaMismatch) as raised:
            h.restart(make_job(**other))
        assert str(raised.value) == str(findings["raw"].refusal)
        findings = {f.name: f for f in findings_of(make_job(table=tmp_path / "new"), tmp_path / "root", running=True)}
        assert (findings["raw"].refusal, (tmp_path / "new").exists()) == (None, False)


def test_state_that_cannot_be_read_is_found_beside_the_rest(tmp_path: Path) -> None:
    """The others are told as well; a start is refused as it was."""
    with Harness(make_job(), tmp_path) as h:
        h.batch({"orders": ROWS})
        h.restart()
        for path in (tmp_path / "changed" / "state" / "w").glob("*/*.json"):
            path.unlink()
        findings = {f.name: f for f in findings_of(make_job(), tmp_path, running=True)}
        assert (findings["w"].fate, type(findings["w"].refusal)) == (UNFIT, StateMissing)
        assert (findings["seen"].fate, findings["seen"].refusal) == (KEPT, None)
        with pytest.raises(StateMissing):
            h.restart()


def pairs_job(*, remembered: int = 10, within: tuple[int, int] = (-5, 5), columns: str = "") -> Job:
    """Return a job that deduplicates orders, and joins them with themselves."""
    job = Job("changed", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    once = orders.deduplicate("once", by=["user"], within=seconds(remembered))
    later = orders.select("user", "v AS later_v", *([columns] if columns else []))
    made = once.join("pairs", later, on=["user"], within=(seconds(within[0]), seconds(within[1])))
    made.select("user", "v", "later_v").write("out", MemorySink())
    return job


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("change", "says", "refusal"),
    [
        ({"remembered": 20}, "within was 10 s and is 20 s", None),
        ({"within": (-5, 4)}, "within was -5 s to 5 s and is -5 s to 4 s", None),
        ({"columns": "v + 1 AS more"}, "column more int32 is new", None),
        ({"within": (-6, 5)}, "", "within was from -5 s to 5 s and is from -6 s to 5 s: rows that only the wider"),
    ],
)
def test_a_diff_shows_how_duplicates_and_joins_have_changed(
    change: dict[str, Any], says: str, refusal: str | None, tmp_path: Path
) -> None:
    """What a start accepts is shown, and what it rejects is what the diff says (decisions 96 and 97)."""
    with Harness(pairs_job(), tmp_path) as h:
        h.batch({"orders": ROWS})
    findings = findings_of(pairs_job(**change), tmp_path, running=False)
    assert says in " / ".join("; ".join(finding.says) for finding in findings)
    refused = [finding.refusal for finding in findings if finding.refusal is not None]
    assert len(refused) == (refusal is not None)
    if refusal is None:
        start(pairs_job(**change), tmp_path)
        return
    with pytest.raises(StepsChanged, match=refusal) as raised:
        start(pairs_job(**change), tmp_path)
    assert str(raised.value) == str(refused[0])
