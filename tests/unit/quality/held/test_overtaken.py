"""A held batch that is released is older than those published since: a table by keys keeps the newest (SEMANTICS 9.4)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from checkpoint_samples import commit, offsets, own
from deltalake import DeltaTable
from examples import examples
from harness_jobs import ORDERS, order
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Job
from penstock.checkpoint.log.entries import Restore, Skip, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.windows import PANE
from penstock.quality import OnFail
from penstock.quality.held.decision_records import Decision, HeldDecision, HeldRecords
from penstock.quality.held.overtaken import HeldKeys
from penstock.quality.held.requests import HeldAsks
from penstock.runtime.process.held_service import HeldWork
from penstock.sinks import Delta
from penstock.sinks.base import Origin
from penstock.sinks.keys import Mode
from penstock.sinks.staged_files import stage_table
from penstock.sinks.staged_publisher import StagedPublisher
from penstock.sources import MemorySource
from penstock.testing import Harness

UUID = "5f0c9bb4-1111-4222-8333-444455556666"
TABLE = pa.schema([("k", pa.int64()), ("v", pa.int64()), (PANE, pa.string())])
Rows = list[tuple[int, bool]]
"""Keys of the rows of a batch, and whether a row takes the key back; its value is the number of the batch."""


class Keyed:
    """A checkpoint with a table by key, and batches of which some are held."""

    def __init__(self, root: Path) -> None:
        self.table = root / "table"
        sink = Delta(self.table, mode=Mode.UPSERT, keys=["k"])
        sink.create(TABLE, None)
        job = Job("orders")
        job.source("orders", MemorySource(schema=f"k long, v long, {PANE} string")).write("out", sink)
        self.staged = LocalFolder(root / "orders" / "staged")
        self.log = Log(LocalStore(root / "orders"))
        self.owned = own(self.log)
        self.records = HeldRecords(LocalStore(root / "control"), "orders")
        self.work = HeldWork(self.records, self.log, job.graph(), uuid=UUID, staged=self.staged, spark=None)
        self.publisher = StagedPublisher("out", sink, self.staged / "out", None)
        self.next = 0
        self.restart()

    def restart(self) -> None:
        """Begin as another driver does, which knows what the log says."""
        self.keys = HeldKeys(self.work.graph, self.staged, self.records)
        self.keys.on_takeover(recover(self.log))

    def batch(self, rows: Rows, *, held: bool = False, shown: bool = True) -> int:
        """Commit a batch, and publish it unless it is held, or the driver dies before (not `shown`)."""
        batch, self.next = self.next, self.next + 1
        table = pa.table(
            [[k for k, _ in rows], [batch] * len(rows), ["RETRACTED" if gone else "LATE" for _, gone in rows]],
            schema=TABLE,
        )
        facts = stage_table(table, self.staged / "out", f"{batch:012d}-rows.parquet")
        files = {"out": [StagedFile(**facts, stats={})]}
        self.owned.append(offsets(batch))
        verdict = {"check": "quality", "unit": None, "action": "hold", "status": "failed"}
        of = {"held": files, "verdicts": [verdict]} if held else {"staged": files}
        ranges = self.superseded()
        done = self.owned.append(commit(batch, superseded=ranges, **of))
        self.keys.on_publishing(done, ["out"])
        if not held and shown:
            self.publisher.open().publish(f"{UUID}/out", batch, files["out"], Origin(job="orders", time=0))
        self.keys.on_batch_completed(done)
        return batch

    def superseded(self) -> list[list[int]]:
        """Return what restores have undone, as a driver writes it into a Commit."""
        before = recover(self.log).commit
        first = 0 if before is None else before.batch + 1
        known = [] if before is None else before.superseded
        batch = self.next - 1
        return [*known, *([[first, batch]] if first < batch else [])]

    def decide(self, batch: int, decision: Decision = Decision.RELEASE) -> HeldDecision:
        return self.work.decide(batch, decision, owned=self.owned, by="test")

    def shown(self) -> dict[int, int]:
        """Return what the table shows: the batch of each key."""
        rows = DeltaTable(str(self.table)).to_pyarrow_table().to_pylist()
        assert len({row["k"] for row in rows}) == len(rows)
        return {row["k"]: row["v"] for row in rows}


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([False, False, True])), min_size=1, max_size=4)
DECISIONS = st.tuples(st.sampled_from(["release", "release", "discard"]), st.integers(0, 20))
BATCHES = st.tuples(st.sampled_from(["batch", "held"]), ROWS)
STEPS = st.builds(
    lambda first, rest, last: [("held", first), ("batch", rest[0]), *rest[1], *last],
    ROWS,
    st.tuples(ROWS, st.lists(BATCHES | DECISIONS | st.just(("restart", None)), max_size=6)),
    st.lists(DECISIONS, min_size=1, max_size=2),
)


@given(steps=STEPS)
@settings(max_examples=examples(20), deadline=None)
def test_a_table_shows_what_it_had_shown_if_nothing_had_been_held(steps: list[tuple[str, Any]]) -> None:
    """11.5, 9.4: at each moment it has the batches published so far, as if they had come in the order of their ids."""
    published: dict[int, Rows] = {}
    held: dict[int, Rows] = {}
    with tempfile.TemporaryDirectory() as root:
        keyed = Keyed(Path(root))
        for what, given_to in steps:
            if what == "restart":
                keyed.restart()
            elif what in ("batch", "held"):
                batch = keyed.batch(given_to, held=what == "held")
                (held if what == "held" else published)[batch] = given_to
            elif held:
                batch = sorted(held)[given_to % len(held)]
                keyed.decide(batch, Decision(what))
                rows = held.pop(batch)
                if what == "release":
                    published[batch] = rows
            expected: dict[int, int] = {}
            for batch, rows in sorted(published.items()):
                for key, gone in rows:
                    expected.pop(key, None)
                    if not gone:
                        expected[key] = batch
            assert keyed.shown() == expected


def test_a_release_says_how_many_rows_the_sink_took(keyed: Keyed) -> None:
    """11.5, decision 190: beside all rows of the batch those that are the newest of their keys."""
    held = keyed.batch([(1, False), (1, False), (2, False), (3, True)], held=True)
    keyed.batch([(2, False)])
    for _ in range(2):
        ruling = keyed.decide(held)
        assert (ruling.rows, ruling.newest) == ({"out": 4}, {"out": 2})
    replaced = keyed.batch([(4, False)], held=True)
    keyed.batch([(4, False)])
    assert keyed.decide(replaced).newest == {"out": 0}
    dropped = keyed.batch([(4, False)], held=True)
    assert keyed.decide(dropped, Decision.DISCARD).newest == {}


def test_a_batch_that_the_next_driver_publishes_replaces_held_rows(keyed: Keyed) -> None:
    """F56: its driver has died between the Commit and the sink, and somebody releases the older batch meanwhile."""
    older = keyed.batch([(1, False), (2, False)], held=True)
    keyed.batch([(1, False)], shown=False)
    keyed.decide(older)
    assert keyed.shown() == {2: older}


def test_rows_of_a_batch_that_a_restore_has_undone_replace_nothing(keyed: Keyed) -> None:
    """10.1: the held row is the newest again. If a second restore brings the batch back, it is not."""
    keyed.batch([(0, False)])
    older = keyed.batch([(1, False), (2, False)], held=True)
    newer = keyed.batch([(1, False)], shown=False)
    for batch in (older, newer, older):
        restored = Restore(epoch=1, writer="w1", batch=batch, source="batch", saved=None, partitions=None)
        keyed.owned.append(restored)
        keyed.restart()
    keyed.batch([(3, False)])
    keyed.decide(older)
    assert keyed.shown() == {0: 0, 1: older, 2: older, 3: 3}


def test_a_batch_that_the_sink_has_skipped_replaces_nothing(keyed: Keyed) -> None:
    """9.6: its rows never come. A later batch with the key does replace it, and the log may forget the skip."""
    older = keyed.batch([(1, False), (2, False)], held=True)
    skipped = keyed.batch([(1, False), (2, False)], shown=False)
    keyed.owned.append(Skip(epoch=1, writer="w1", sink="out", batches=[skipped], rows=2))
    keyed.restart()
    keyed.batch([(2, False)])
    assert len([p for p in (keyed.staged / "out").files() if "overtaken" in p.name]) == 1
    keyed.decide(older)
    assert keyed.shown() == {1: older, 2: 2}


def test_a_held_file_that_is_damaged_stops_no_batch(keyed: Keyed) -> None:
    """F13: a driver goes on without it, and a release is refused as before."""
    older = keyed.batch([(1, False)], held=True)
    (keyed.staged / "out" / f"{older:012d}-rows.parquet").remove()
    keyed.restart()
    keyed.batch([(1, False)])
    assert keyed.shown() == {1: 1}


def test_a_sink_without_keys_beside_the_table_is_not_compared(keyed: Keyed) -> None:
    """11.5: a check holds a batch of both, and later batches go on to both."""
    job = Job("orders")
    rows = job.source("orders", MemorySource(schema=f"k long, v long, {PANE} string"))
    for name, sink in (("out", Delta(keyed.table, mode=Mode.UPSERT, keys=["k"])), ("log", Delta(keyed.table))):
        rows.write(name, sink)
    older = keyed.batch([(1, False)], held=True)
    held = recover(keyed.log).held[older]
    both = HeldKeys(job.graph(), keyed.staged, keyed.records)
    both.on_takeover(recover(keyed.log))
    both.on_batch_completed(held.model_copy(update={"held": dict.fromkeys(("out", "log"), held.held["out"])}))
    newer = held.model_copy(update={"batch": older + 1, "held": {}, "staged": {"log": held.held["out"]}})
    both.on_publishing(newer, ["out", "log"])
    assert [path for path in (keyed.staged / "log").files() if "overtaken" in path.name] == []


SMALL = {
    "name": "small",
    "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 100}}],
}


def test_a_job_releases_a_batch_without_replacing_newer_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """11.5: `ann` keeps the value that came after the held one, and `bob` gets the held one."""
    monkeypatch.setattr("penstock.runtime.process.held_service._LOOK_EVERY", 0.0)
    job = Job("kept_back", partitions=1)
    rows = job.source("orders", MemorySource(ORDERS)).select("user", "v")
    table = Delta(tmp_path / "table", mode=Mode.UPSERT, keys=["user"])
    rows.check("small", suite=SMALL, on_fail=OnFail.HOLD).write("out", table)
    with Harness(job, tmp_path / "checkpoints") as h:
        h.batch({"orders": [order("ann", 1, 500), order("bob", 1, 7)]})
        h.batch({"orders": [order("ann", 2, 8)]})
        asks = HeldAsks(LocalStore(tmp_path / "checkpoints"), "kept_back")
        asks.ask(0, Decision.RELEASE, by="test", at=h._clock.wall())
        h.batch({"orders": [order("cid", 3, 9)]})
    shown = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert {row["user"]: row["v"] for row in shown} == {"ann": 8, "bob": 7, "cid": 9}
