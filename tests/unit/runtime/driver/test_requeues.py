"""Requests are planned for batches, answered after them, and send each row once, whatever is cut short."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fake_engine import Witness, make_driver, run_to_end, windowed_job
from fake_engine import World as TableWorld
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from penstock import Job, seconds
from penstock.checkpoint.log.entries import Requeued, SourceProgress
from penstock.checkpoint.requeue_requests import RequeueAnswer, RequeueRequests
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import AccountingBroken, RequeueRefused, StorageUnavailable
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.next_batch import REQUEUE, REQUEUES
from penstock.runtime.driver.requeues import RequeueService
from penstock.runtime.tasks.routing import QUARANTINE_SCHEMA
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.memory import MemoryReader
from penstock.time.clock import ManualClock

SCHEMA = pa.schema([("v", pa.int64())])


class World:
    """A job with a quarantine, and a driver that commits what the service plans, or dies before it does."""

    def __init__(self, folder: Path, most: int = 3) -> None:
        job = Job("j")
        source, self.sink = MemorySource("v long, t timestamp"), MemorySink()
        job.source("rows", source, event_time="t", max_out_of_order=seconds(0)).write("out", MemorySink())
        job.quarantine("rows").write("bad", self.sink)
        self.graph, self.reader = job.graph(), MemoryReader(source, SCHEMA)
        self.folder, self.most = LocalFolder(folder), most
        self.store = MemoryStore()
        self.requests = RequeueRequests(self.store, "j")
        self.clock = ManualClock(0)
        self.batch, self.mark, self.superseded = 0, None, list[list[int]]()
        self.passed_over: dict[str, list[list[int]]] = {}
        self.sent: list[int] = []
        self.put([])
        self.restart()

    def commit(self, batch: int) -> Any:
        progress = SourceProgress(
            position={}, partitions={}, ended=False, requeued=self.mark, passed_over=self.passed_over
        )
        return SimpleNamespace(batch=batch, sources={"rows": progress}, superseded=self.superseded)

    def restart(self, pending: Any = None) -> None:
        """Begin another driver."""
        self.service = RequeueService(
            self.requests, self.graph, self.folder, self.clock, {"rows": self.reader}, most=self.most
        )
        self.service.on_takeover(SimpleNamespace(pending=pending, commit=self.commit(self.batch)))  # type: ignore[arg-type]

    def put(self, positions: list[int], reason: str = "null event time") -> None:
        """Quarantine rows in the newest batch."""
        rows = [
            {"_source": "rows", "_partition": 0, "_position": p, "_reason": reason, "_raw": "{}", "_batch": self.batch}
            for p in positions
        ]
        self.sink.batches["app", self.batch] = pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)

    def plan(self) -> dict[str, Any]:
        self.service._looked = None
        return dict(self.service.plan(self.commit(self.batch), self.batch + 1))

    def run(self, *, dies: str = "", positions: list[int] | None = None) -> None:
        """Run one batch; `dies` is where the first try of it ends: planned, fixed, committed."""
        planned = self.plan()
        if dies == "planned":
            self.restart()
            planned = self.plan()
        if dies == "fixed":
            self.restart(
                SimpleNamespace(
                    batch=self.batch + 1,
                    ranges={"rows": {"span": None, **({REQUEUE: planned["rows"]} if planned else {})}},
                )
            )
        for of in planned.values():
            assert of["count"]
            with pa.ipc.open_stream((self.folder / REQUEUES / of["file"]).read_bytes()) as rows:
                self.sent += rows.read_all()["_position"].to_pylist()
            self.mark = Requeued(**{name: of[name] for name in Requeued.model_fields})
        self.batch += 1
        self.put(positions or [])
        if dies == "committed":
            self.restart()
        self.service.on_batch_completed(self.commit(self.batch))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.sampled_from(["", "planned", "fixed", "committed"]), st.booleans(), st.booleans()
        ),
        max_size=12,
    )
)
def test_each_row_is_sent_once_whatever_is_cut_short(steps: list[tuple[int, str, bool, bool]]) -> None:
    """10.5: rows come, people ask, drivers die anywhere; at the end all were sent, none twice, all were answered."""
    with TemporaryDirectory() as folder:
        world, place, asked = World(Path(folder)), 0, []
        for rows, dies, asks, again in steps:
            if asks:
                asked.append(
                    world.requests.ask("rows", from_batch=None, by="t", again=f"id{len(asked) // (1 + again)}")
                )
            world.run(dies=dies, positions=list(range(place, place + rows)))
            place += rows
        asked.append(world.requests.ask("rows", from_batch=None, by="t", again="last"))
        for _ in range(place + 3 * len(asked)):
            world.run()
        assert sorted(world.sent) == list(range(place))
        answers = [world.requests.answer(name) for name in dict.fromkeys(asked)]
        assert sum(answer.rows for answer in answers if answer is not None) == place
        assert None not in answers
        assert world.folder.exists() is False or not (world.folder / "requeued").files()


@pytest.mark.fault("F13")
def test_a_driver_names_a_request_that_it_cannot_read_once(tmp_path: Path) -> None:
    """With the file, and what to do; it carries out the others."""
    world = World(tmp_path)
    world.run(positions=[0, 1])
    world.store.create("_control/requeues/j/000000000000", b"torn")
    with capture_logs() as events:
        for _ in range(2):
            world.run()
        world.requests.ask("rows", from_batch=None, by="t")
        world.run()
    named = [event for event in events if event["event"] == "requeue.unreadable"]
    assert [event["path"] for event in named] == ["memory:/_control/requeues/j/000000000000"]
    assert "ask again" in named[0]["do"]
    assert world.sent == [0, 1]


def test_more_rows_than_a_batch_takes_go_in_whole_batches_of_the_quarantine(tmp_path: Path) -> None:
    """The next batches take the rest, and the answer comes after the last."""
    world = World(tmp_path, most=3)
    for positions in ([0, 1], [2, 3], [4, 5, 6, 7, 8]):
        world.run(positions=positions)
    request = world.requests.ask("rows", from_batch=None, by="t")
    sizes = []
    for _ in range(3):
        before = len(world.sent)
        world.run()
        sizes.append(len(world.sent) - before)
        answered = world.requests.answer(request)
    assert (sizes, answered) == ([2, 2, 5], RequeueAnswer(rows=9, batch=world.batch))


def test_one_place_of_a_source_counts_once_in_a_request(tmp_path: Path) -> None:
    """Of a row that failed again, and of one that a restore had read twice, the newest is sent."""
    world = World(tmp_path, most=10)
    world.run(positions=[0, 1])
    world.run(positions=[1])
    world.requests.ask("rows", from_batch=0, by="t")
    world.run()
    assert sorted(world.sent) == [0, 1]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=5),
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=2),
    st.sampled_from([0, None]),
    st.sampled_from([1, 100]),
)
def test_rows_that_the_source_will_not_bring_again_are_sent_where_they_are_asked_for(
    quarantined: list[list[int]], undone: int, ranges: list[tuple[int, int]], since: int | None, most: int
) -> None:
    """10.1, 10.5: of undone batches those of positions that the job passes over, of the others all, each place once.

    Without a batch to begin with none of undone batches: these may have sent them again themselves.
    """
    with TemporaryDirectory() as folder:
        world = World(Path(folder), most=most)
        for positions in quarantined:
            world.run(positions=positions)
        world.superseded = [[1, 1 + undone]]
        world.passed_over = {"0": [list(one) for one in ranges], "1": [[0, 10]]}
        world.requests.ask("rows", from_batch=since, by="t")
        for _ in range(1 + len(quarantined)):
            world.run()
        expected = {
            position
            for batch, positions in enumerate(quarantined, 1)
            for position in positions
            if batch > undone or (since == 0 and any(first <= position < end for first, end in ranges))
        }
        assert sorted(world.sent) == sorted(expected)


def test_a_table_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch runs without the rows; the request stays."""
    world = World(tmp_path)
    world.run(positions=[0])
    request = world.requests.ask("rows", from_batch=None, by="t")

    def away(batches: range, columns: object = None) -> pa.Table:
        raise StorageUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.sink, "read_batches", away)
        assert world.plan() == {}
    world.run()
    assert world.requests.answer(request) == RequeueAnswer(rows=1, batch=world.batch)


def test_a_request_that_fails_half_way_is_tried_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that waits for rows plans twenty times a second, and each try reads the table and logs a warning."""
    world, tries = World(tmp_path, most=1), 0
    world.run(positions=[0])
    world.run(positions=[1])
    world.requests.ask("rows", from_batch=None, by="t")
    world.run()

    def away(batches: range, columns: object = None) -> pa.Table:
        nonlocal tries
        tries += 1
        raise StorageUnavailable("away")

    monkeypatch.setattr(world.sink, "read_batches", away)
    for _ in range(20):
        assert world.service.plan(world.commit(world.batch), world.batch + 1) == {}
    assert tries == 1


def test_a_batch_reads_no_more_texts_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F75: a quarantine may have more rows than memory; of those for later batches only the places are read."""
    world, read, of = World(tmp_path, most=2), list[tuple[range, bool]](), MemorySink.read_batches
    for place in range(5):
        world.run(positions=[2 * place, 2 * place + 1])
    world.requests.ask("rows", from_batch=None, by="t")

    def noted(sink: MemorySink, batches: range, columns: Sequence[str] | None = None) -> pa.Table:
        read.append((batches, columns is None))
        return of(sink, batches, columns)

    monkeypatch.setattr(MemorySink, "read_batches", noted)
    for _ in range(5):
        world.run()
    assert [(batches.start, batches.stop) for batches, whole in read if whole] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (4, 5),
        (5, 6),
    ]
    assert world.sent == list(range(10))


def test_a_quarantine_without_rows_has_none_to_send(tmp_path: Path) -> None:
    """Also a sink in memory that was never written to."""
    world = World(tmp_path)
    world.sink.batches.clear()
    request = world.requests.ask("rows", from_batch=None, by="t")
    assert world.plan() == {}
    assert world.requests.answer(request) == RequeueAnswer(rows=0, batch=None)


@pytest.mark.fault("F08", "F72")
@pytest.mark.parametrize("asleep", ["after its Commit", "after its Takeover"])
def test_a_driver_that_wakes_late_deletes_nothing_of_the_next(tmp_path: Path, asleep: str) -> None:
    """The Offsets of a driver that came later name a file: without it their batch could never be computed again."""
    world = World(tmp_path, most=1)
    world.run(positions=[0])
    world.run(positions=[1])
    world.requests.ask("rows", from_batch=None, by="t")
    first, taken = world.service, world.plan()["rows"]
    world.mark = Requeued(**{name: taken[name] for name in Requeued.model_fields})
    world.batch += 1
    late = world.commit(world.batch)
    world.restart()
    file = world.plan()["rows"]["file"]
    if asleep == "after its Commit":
        first.on_batch_completed(late)
    else:
        first.on_takeover(SimpleNamespace(pending=None, commit=late))  # type: ignore[arg-type]
    assert [path.name for path in (world.folder / REQUEUES).files()] == [file]


def test_offsets_name_a_file_wherever_the_checkpoint_is(tmp_path: Path) -> None:
    """A checkpoint is moved with a batch that has no Commit yet, and the old folder goes."""
    world = World(tmp_path)
    world.run(positions=[0])
    world.requests.ask("rows", from_batch=None, by="t")
    file = world.plan()["rows"]["file"]
    assert (file, [path.name for path in (world.folder / REQUEUES).files()]) == (Path(file).name, [file])


def test_tasks_get_the_file_where_the_checkpoint_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the folder of the driver that runs the batch, whoever has planned it; a row of it must be counted."""
    driver = make_driver(
        TableWorld(root=tmp_path, times=[1.0, 2.0]), Witness(), "first", graph=windowed_job(), settings=DriverSettings()
    )
    sent = {"command": "c", "next": 1, "until": 1, "rows": 1, "count": 1, "file": "a.arrow", "checksum": 0}
    received, compute = list[Any](), driver.engine.compute
    monkeypatch.setattr(driver.engine, "requeue", lambda commit, batch: {} if commit is None else {"numbers": sent})
    monkeypatch.setattr(driver.engine, "compute", lambda facts: received.append(facts.requeued) or compute(facts))
    with pytest.raises(AccountingBroken, match="1 rows of source 'numbers' were sent again and 0 were read"):
        run_to_end(driver)
    assert received[-1]["numbers"]["file"] == (LocalFolder(tmp_path) / REQUEUES / "a.arrow").address


def test_a_source_that_spark_reads_is_refused(tmp_path: Path) -> None:
    """No task could decode its texts."""
    world = World(tmp_path)
    world.service.readers = {"rows": object()}  # type: ignore[dict-item]
    request = world.requests.ask("rows", from_batch=None, by="t")
    world.run()
    with pytest.raises(RequeueRefused, match="read by Spark"):
        world.requests.answer(request)


@pytest.mark.fault("F13")
def test_a_request_whose_answer_may_be_damaged_sends_nothing_again(tmp_path: Path) -> None:
    """Once another request has followed, only the answer would tell that it was carried out (10.5)."""
    world = World(tmp_path)
    world.run(positions=[0, 1])
    first = world.requests.ask("rows", from_batch=0, by="t")
    world.run(positions=[2])
    world.requests.ask("rows", from_batch=None, by="t")
    world.run()
    assert sorted(world.sent) == [0, 1, 2]
    store = world.store
    (answer,) = [path for path in store.list("_control") if first in store.read(path).decode() and path.endswith("1")]
    store.delete(answer)
    store.create(answer, b"")
    world.requests = RequeueRequests(store, "j")
    world.restart()
    world.run()
    assert sorted(world.sent) == [0, 1, 2]
    with pytest.raises(RequeueRefused, match="record 1 of the requests cannot be read"):
        world.requests.answer(first)
