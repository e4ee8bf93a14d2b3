"""What the next batch reads, when it runs and what it judges by, planned without touching anything (SEMANTICS 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from growing import Topic

from penstock import Job, agg, align, seconds
from penstock.checkpoint.log.entries import Commit, PartitionProgress, SourceProgress
from penstock.rates.limits import Limits
from penstock.runtime.driver.admission import admit
from penstock.runtime.driver.next_batch import NextBatch, available, next_batch
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.backlog import Waiting
from penstock.time.triggers import FixedInterval
from penstock.windows import Tumbling

S = 1_000_000


@dataclass
class Rows:
    """Follow rows by number, two a batch."""

    count: int
    closed: bool

    def backlog(self, after: Mapping[str, Any] | None) -> Mapping[str, Waiting]:
        return {"0": Waiting.of_rows(after["at"] if after else 0, self.count, at_most=2)}

    def weighed(self, backlog: Mapping[str, Waiting]) -> Mapping[str, Waiting]:
        return {name: replace(waiting, bytes=100 * waiting.rows) for name, waiting in backlog.items()}

    def position(self, after: Mapping[str, Any] | None, ends: Mapping[str, int]) -> Mapping[str, Any]:
        return {"at": ends["0"]}

    def span(self, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"from": start["at"] if start else 0, "to": end["at"]}

    def ended(self, position: Mapping[str, Any] | None) -> bool:
        return self.closed and (position["at"] if position else 0) >= self.count


class FakeEngine:
    """Follow sources that are at the row numbers of `rows`, two rows a batch; those in `closed` get no more."""

    def __init__(self, job: Job, rows: Mapping[str, int], closed: frozenset[str] = frozenset()) -> None:
        self.graph = job.graph()
        self.rows = rows
        self.closed = closed

    def source(self, name: str) -> Rows:
        return Rows(self.rows[name], closed=name in self.closed)

    def tables(self, commit: Any, batch: int) -> dict[str, Any]:
        return {}

    def forget_tables(self, commit: Any) -> None:
        """It joins none."""

    def table_files(self, versions: Any) -> dict[str, str]:
        return {}

    def requeue(self, commit: Any, batch: int) -> dict[str, Any]:
        return {}


def windowed_job(*, idle: int | None = None, sources: int = 1, every: int | None = None) -> Job:
    """Return a job with a window step `w`, and a step `x` behind it."""
    job = Job("windowed")
    idle_after = None if idle is None else seconds(idle)
    streams = [
        job.source(f"s{i}", object(), event_time="t", max_out_of_order=seconds(0), idle_after=idle_after)
        for i in range(sources)
    ]
    stream = streams[0]
    for other in streams[1:]:
        stream = stream.union(other)
    spec = Tumbling(seconds(10)).drop_late()
    spec = spec if every is None else spec.emit_every(seconds(every)).discarding()
    windows = stream.window("w", spec).aggregate(n=agg.count())
    windows.window("x", Tumbling(seconds(20)).drop_late()).aggregate(n=agg.count()).write("out", object())
    return job


def commit_of(at: int, *, ended: bool = False, **fields: Any) -> Commit:
    """Return the Commit of batch 3 at time 4 s, with source `s0` read to `at`."""
    partition = PartitionProgress(highest=5 * S, seen_at=4 * S, idle=False)
    source = SourceProgress(position={"at": at}, partitions={"0": partition}, ended=ended)
    base: dict[str, Any] = {
        "batch": 3,
        "time": 4 * S,
        "state": {},
        "staged": {},
        "held": {},
        "verdicts": [],
        "sources": {"s0": source},
        "watermarks_in": {"w": 3 * S, "x": 2 * S},
        "watermarks_out": {"w": 5 * S, "x": 4 * S},
        "due": {"w": None, "x": None},
        "accounting": {},
        "timings": {},
        "published": {},
        "floor": 0,
    }
    return Commit(epoch=1, writer="w", **{**base, **fields})


def planned(engine: FakeEngine, commit: Commit | None, *, now: int = 5 * S, **other: Any) -> NextBatch | None:
    """Return the plan of the batch after `commit`, every second from 0."""
    return next_batch(
        engine,  # type: ignore[arg-type]
        commit,
        batch=0 if commit is None else commit.batch + 1,
        zero=0,
        last_time=None if commit is None else commit.time,
        trigger=FixedInterval(S, 0),
        now=now,
        target=other.get("target"),
        drain=other.get("drain", False),
        weigh=other.get("limits", Limits()).bytes is not None,
        admit=lambda backlogs, *_: admit(backlogs, other.get("limits", Limits())),
        since=other.get("since"),
        epoch=7,
        writer="me",
    )


def test_the_first_batch_reads_from_the_beginning() -> None:
    """SEMANTICS 1.1: batch 0 has time zero + interval; nothing is read that is not fixed as a span."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 3}), None, now=0)
    assert plan is not None
    assert plan.offsets is not None
    assert (plan.offsets.batch, plan.offsets.time, plan.offsets.settings["zero"]) == (0, S, 0)
    first = {"start": None, "end": {"at": 2}, "span": {"from": 0, "to": 2}, "held_back": ["0"]}
    assert plan.offsets.ranges == {"s0": first}
    assert (plan.offsets.epoch, plan.offsets.writer) == (7, "me")
    assert {name: (m.late, m.close) for name, m in plan.offsets.watermarks.items()} == {
        "w": (None, None),
        "x": (None, None),
    }


def test_a_limit_in_bytes_has_sources_say_how_many_wait() -> None:
    """SEMANTICS 8.5: and no other limit does, because that may be a question to brokers."""
    for limits, read in ((Limits(bytes=100), 1), (Limits(bytes=900), 2), (Limits(rows=5), 2)):
        plan = planned(FakeEngine(windowed_job(), {"s0": 3}), None, now=0, limits=limits)
        assert plan is not None
        assert plan.offsets is not None
        assert plan.offsets.ranges["s0"]["end"] == {"at": read}
        assert plan.offsets.limits.get("bound") == ({"s0": "bytes"} if read == 1 else None)


def test_the_next_batch_goes_on_where_the_commit_ended() -> None:
    """SEMANTICS 2.2, 2.1: it closes by the last Commit's watermark; a chained step judges by the one before that."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 3}), commit_of(2))
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges == {"s0": {"start": {"at": 2}, "end": {"at": 3}, "span": {"from": 2, "to": 3}}}
    assert (plan.offsets.batch, plan.offsets.time) == (4, 5 * S)
    marks = plan.offsets.watermarks
    assert (marks["w"].late, marks["w"].close) == (5 * S, 5 * S)
    assert (marks["x"].late, marks["x"].close) == (2 * S, 4 * S)


def test_missed_ticks_are_one_batch_and_counted() -> None:
    """SEMANTICS 1.3: merged, not queued."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 3}), commit_of(2), now=9 * S)
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.time == 9 * S
    assert plan.offsets.settings["merged_ticks"] == 4


def test_nothing_new_and_nothing_due_waits() -> None:
    """SEMANTICS 1.4: no empty batches."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 2}), commit_of(2))
    assert plan is not None
    assert plan.offsets is None
    assert plan.wait > 0


def test_a_due_window_runs_a_batch_without_rows() -> None:
    """SEMANTICS 1.4, 2.2: at the next tick, reading nothing."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 2}), commit_of(2, due={"w": 5 * S, "x": None}))
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges == {"s0": {"start": {"at": 2}, "end": {"at": 2}, "span": None}}


def test_a_changed_emit_every_is_due_though_the_commit_has_another_time() -> None:
    """SEMANTICS 3.2, F51: what waits is due at the next multiple of the new time, once a new driver has begun."""
    engine = FakeEngine(windowed_job(every=2), {"s0": 2})
    for known in ({"due_time": {"w": 60 * S}}, {"due": {"w": 10 * S, "x": None}}):
        commit = commit_of(2, **known)
        for now, follows in ((5, False), (6, True)):
            plan = planned(engine, commit, now=now * S)
            assert plan is not None
            assert (plan.offsets is not None) is follows
        plan = planned(engine, commit, now=6 * S, since=4 * S)
        assert plan is not None
        assert plan.offsets is None, "the Commit is of this driver, and knows the time"
    plan = planned(engine, commit_of(2), now=6 * S)
    assert plan is not None
    assert plan.offsets is None, "nothing is open"


def test_a_window_that_ends_behind_the_watermark_is_not_due() -> None:
    """SEMANTICS 2.5: it closes when the watermark reaches its end, and not a microsecond before."""
    plan = planned(FakeEngine(windowed_job(), {"s0": 2}), commit_of(2, due={"w": 5 * S + 1, "x": None}))
    assert plan is not None
    assert plan.offsets is None


def test_a_partition_that_becomes_idle_makes_a_batch_where_something_waits() -> None:
    """SEMANTICS 2.4: idleness counts by batch time; with no window open nobody needs to know."""
    engine = FakeEngine(windowed_job(idle=3), {"s0": 2})
    waiting = commit_of(2, due={"w": 10 * S, "x": None})
    for now, runs in ((6 * S, False), (7 * S, True)):
        plan = planned(engine, waiting, now=now, since=4 * S)
        assert plan is not None
        assert (plan.offsets is not None) is runs, now
    plan = planned(engine, commit_of(2), now=9 * S, since=4 * S)
    assert plan is not None
    assert plan.offsets is None


def test_the_end_of_a_source_is_committed_once_and_then_the_job_is_done() -> None:
    """SEMANTICS 2.1: a bounded source that is read to its end; one more batch says so, and nothing ever comes."""
    engine = FakeEngine(windowed_job(), {"s0": 2}, frozenset({"s0"}))
    plan = planned(engine, commit_of(2))
    assert plan is not None
    assert plan.offsets is not None
    assert planned(engine, commit_of(2, ended=True)) is None


def test_an_empty_bounded_source_is_committed_too() -> None:
    """SEMANTICS 2.1: zero rows are an end as well."""
    engine = FakeEngine(windowed_job(), {"s0": 0}, frozenset({"s0"}))
    plan = planned(engine, None)
    assert plan is not None
    assert plan.offsets is not None


def test_one_source_that_goes_on_keeps_the_job_alive() -> None:
    """A job ends only when all of its sources have."""
    engine = FakeEngine(windowed_job(sources=2), {"s0": 2, "s1": 2}, frozenset({"s0"}))
    partition = PartitionProgress(highest=5 * S, seen_at=4 * S, idle=False)
    both = {
        name: SourceProgress(position={"at": 2}, partitions={"0": partition}, ended=name == "s0")
        for name in ("s0", "s1")
    }
    plan = planned(engine, commit_of(2, sources=both))
    assert plan is not None
    assert plan.offsets is None


def test_available_now_reads_to_its_target_and_ends() -> None:
    """SEMANTICS 1.5: what comes after the start is left for the next run, in as many batches as the limits ask."""
    engine = FakeEngine(windowed_job(), {"s0": 9})
    target = {"s0": {"0": 4}}
    plan = planned(engine, commit_of(2), target=target)
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges["s0"]["end"] == {"at": 4}
    assert planned(engine, commit_of(4), target=target) is None


class OfTopic:
    """Follow a `Topic` as the one source of a job."""

    def __init__(self, job: Job, topic: Topic) -> None:
        self.graph = job.graph()
        self.topic = topic

    def source(self, name: str) -> Topic:
        return self.topic

    def tables(self, commit: Any, batch: int) -> dict[str, Any]:
        return {}

    def forget_tables(self, commit: Any) -> None:
        """It joins none."""

    def table_files(self, versions: Any) -> dict[str, str]:
        return {}

    def requeue(self, commit: Any, batch: int) -> dict[str, Any]:
        return {}


ROWS_OF_BATCHES = {1: [2, 2, 2, 2, 2, 1, 1, 1, 1], 2: [2] * 7, 5: [5, 5, 4], 1_000: [14]}
"""By limit, how many of nine and five rows each batch reads; a partition with rows is never left out."""


@pytest.mark.parametrize("limit", ROWS_OF_BATCHES)
@pytest.mark.parametrize("drain", [False, True], ids=["available now", "drain"])
def test_a_run_ends_at_what_was_there_however_fast_the_source_grows(limit: int, *, drain: bool) -> None:
    """SEMANTICS 1.5: each source is asked once, per partition; then exactly that is read, in batches of the limit."""
    topic = Topic({"a": 7, "b": 3}, growth=2)
    engine: Any = OfTopic(windowed_job(), topic)
    target = available(engine, None)
    assert (target, topic.asked) == ({"s0": {"a": 9, "b": 5}}, 1)
    commit, read, sizes = None, dict[str, int](), list[int]()
    while (plan := planned(engine, commit, target=target, drain=drain, limits=Limits(rows=limit))) is not None:
        assert plan.offsets is not None
        ranges = plan.offsets.ranges["s0"]
        for name, (first, last, _) in (ranges["span"] or {}).items():  # type: ignore[union-attr, misc]
            assert first == read.get(name, 0)
            read[name] = last
        sizes.append(sum(last - first for first, last, _ in (ranges["span"] or {}).values()))  # type: ignore[union-attr, misc]
        ended = "drain" in plan.offsets.settings
        progress = SourceProgress(position=ranges["end"], partitions={}, ended=ended)  # type: ignore[arg-type]
        commit = commit_of(0, sources={"s0": progress})
    assert read == {"a": 9, "b": 5}
    assert sizes == ROWS_OF_BATCHES[limit] + [0] * drain


def test_a_run_asks_nothing_of_a_source_that_has_ended() -> None:
    """SEMANTICS 1.5, 2.1: it is read to where its Commit says."""
    topic = Topic({"a": 7}, growth=2)
    progress = SourceProgress(position={"a": 3}, partitions={}, ended=True)
    engine: Any = OfTopic(windowed_job(), topic)
    assert available(engine, commit_of(0, sources={"s0": progress})) == {}
    assert topic.asked == 0


def partitions_of(**seen_at: int) -> dict[str, Any]:
    """Return the fields of a Commit with windows open, and partitions that last had a row at these seconds."""
    partitions = {n: PartitionProgress(highest=5 * S, seen_at=at * S, idle=False) for n, at in seen_at.items()}
    progress = SourceProgress(position=dict.fromkeys(seen_at, 2), partitions=partitions, ended=False)
    return {"sources": {"s0": progress}, "due": {"w": 10 * S, "x": None}}


def test_what_a_batch_leaves_unread_stands_in_its_offsets() -> None:
    """SEMANTICS 2.4, 1.2: a partition that a limit held back; every run of the batch decides the same on idleness."""
    engine: Any = OfTopic(windowed_job(idle=3), Topic({"a": 9, "b": 3}))
    plan = planned(engine, commit_of(0, **partitions_of(a=4, b=4)), limits=Limits(rows=1))
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges["s0"]["held_back"] == ["a"]
    assert plan.offsets.settings["since"] == plan.since == 5 * S, "the first batch of a driver begins the count"


def test_a_driver_counts_idleness_from_its_own_beginning() -> None:
    """SEMANTICS 2.4: an hour without a driver makes nothing idle; three seconds with one do."""
    engine: Any = OfTopic(windowed_job(idle=3), Topic({"a": 2, "b": 2}))
    commit = commit_of(0, **partitions_of(a=4, b=4))
    for since, now, runs in ((None, 3_600, False), (3_600 * S, 3_602, False), (3_600 * S, 3_603, True)):
        plan = planned(engine, commit, now=now * S, since=since)
        assert plan is not None
        assert (plan.offsets is not None) is runs, now


def test_a_partition_that_is_gone_makes_a_batch_once() -> None:
    """SEMANTICS 2.4: it stops counting at once, and the Offsets say so."""
    engine: Any = OfTopic(windowed_job(), Topic({"a": 2}))
    fields = partitions_of(a=4, b=4)
    fields["sources"] = {"s0": fields["sources"]["s0"].model_copy(update={"position": {"a": 2}})}
    plan = planned(engine, commit_of(0, **fields))
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges["s0"]["gone"] == ["b"]
    known = fields["sources"]["s0"].partitions
    known["b"] = known["b"].model_copy(update={"gone": True})
    again = planned(engine, commit_of(0, **fields))
    assert again is not None
    assert again.offsets is None


def test_a_step_new_to_the_job_begins_at_the_beginning_of_time() -> None:
    """DESIGN 5: a new step starts empty, with no watermark of its own."""
    commit = commit_of(2, watermarks_out={"w": 5 * S}, watermarks_in={"w": 3 * S}, due={"w": None})
    plan = planned(FakeEngine(windowed_job(), {"s0": 3}), commit)
    assert plan is not None
    assert plan.offsets is not None
    assert (plan.offsets.watermarks["x"].late, plan.offsets.watermarks["x"].close) == (None, None)


def test_a_drain_ends_the_sources_once_all_that_was_there_is_read() -> None:
    """SEMANTICS 10.6: it is fixed with the batch, so that every run of the batch means the same."""
    engine = FakeEngine(windowed_job(), {"s0": 9})
    target = {"s0": {"0": 4}}
    rows = planned(engine, commit_of(2), target=target, drain=True)
    assert rows is not None
    assert rows.offsets is not None
    assert "drain" not in rows.offsets.settings
    last = planned(engine, commit_of(4), target=target, drain=True)
    assert last is not None
    assert last.offsets is not None
    assert last.offsets.settings["drain"] is True
    assert last.offsets.ranges["s0"]["span"] is None
    assert last.offsets.ranges["s0"]["end"] == {"at": 4}


def test_after_a_drain_nothing_is_read_any_more() -> None:
    """SEMANTICS 2.1, 10.6: a start after it needs a Restore, though the source has more; what is due still closes."""
    engine = FakeEngine(windowed_job(), {"s0": 9})
    assert planned(engine, commit_of(4, ended=True)) is None
    due = planned(engine, commit_of(4, ended=True, due={"w": 5 * S, "x": None}))
    assert due is not None
    assert due.offsets is not None
    assert due.offsets.ranges["s0"]["span"] is None


def test_a_drain_closes_what_the_end_of_a_source_has_left_open() -> None:
    """SEMANTICS 10.6: all windows, also those behind a source whose end closes none; then nothing is left to do."""
    engine = FakeEngine(windowed_job(), {"s0": 4})
    marks = {"w": 3 * S, "x": 3 * S}
    left = commit_of(4, ended=True, watermarks_out=marks, watermarks_in=marks, due={"w": 5 * S, "x": None})
    assert planned(engine, left) is None
    last = planned(engine, left, drain=True)
    assert last is not None
    assert last.offsets is not None
    assert last.offsets.settings["drain"] is True
    closed = commit_of(4, ended=True, watermarks_out=marks, watermarks_in=marks, due={"w": None, "x": None})
    assert planned(engine, closed, drain=True) is None


def aligned_job(*, idle: int | None = None) -> Job:
    """Return a job without windows, whose source `s0` waits for `s1`."""
    job = Job("aligned")
    for name, drift in (("s0", align(max_drift=seconds(3))), ("s1", None)):
        job.source(
            name,
            MemorySource("t timestamp"),
            event_time="t",
            max_out_of_order=seconds(0),
            align=drift,
            idle_after=None if idle is None else seconds(idle),
        ).write(f"out_{name}", MemorySink())
    return job


def drifted(behind: int, at: tuple[int, int] = (2, 2)) -> Commit:
    """Return a Commit where `s0` is at 9 s, and `s1` behind it by so many microseconds."""
    marks = {"s0": 9 * S, "s1": 9 * S - behind}
    sources = {
        name: SourceProgress(
            position={"at": place},
            partitions={"0": PartitionProgress(highest=marks[name], seen_at=4 * S, idle=False)},
            ended=False,
        )
        for name, place in zip(marks, at, strict=True)
    }
    return commit_of(2, sources=sources, watermarks_in={}, watermarks_out={}, due={})


def test_a_source_that_is_ahead_waits_and_the_offsets_say_so() -> None:
    """SEMANTICS 2.8, 2.4, 8: it is not read, the rule is recorded, and its partitions do not become idle."""
    engine = FakeEngine(aligned_job(), {"s0": 5, "s1": 5})
    plan = planned(engine, drifted(3 * S + 1))
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges["s0"] == {"start": {"at": 2}, "end": {"at": 2}, "span": None, "held_back": ["0"]}
    assert plan.offsets.ranges["s1"]["span"] == {"from": 2, "to": 4}
    assert plan.offsets.limits["bound"] == {"s0": "align"}
    caught_up = planned(engine, drifted(3 * S))
    assert caught_up is not None
    assert caught_up.offsets is not None
    assert caught_up.offsets.ranges["s0"]["span"] == {"from": 2, "to": 4}


def test_a_source_that_waits_has_a_batch_when_the_slower_one_becomes_idle() -> None:
    """SEMANTICS 2.4, 2.8: also without open windows, because nothing else would say that it may read on."""
    engine = FakeEngine(aligned_job(idle=10), {"s0": 5, "s1": 2})
    before = planned(engine, drifted(4 * S), since=0, now=13 * S)
    assert before is not None
    assert before.offsets is None
    due = planned(engine, drifted(4 * S), since=0, now=14 * S)
    assert due is not None
    assert due.offsets is not None
    assert [of["span"] for of in due.offsets.ranges.values()] == [None, None]


def test_a_bounded_run_reads_a_source_that_nothing_can_catch_up_with() -> None:
    """SEMANTICS 1.5, 2.8: it ends where its sources stood, whatever the drift."""
    engine = FakeEngine(aligned_job(), {"s0": 5, "s1": 9})
    plan = planned(engine, drifted(8 * S), target={"s0": {"0": 4}, "s1": {"0": 2}})
    assert plan is not None
    assert plan.offsets is not None
    assert plan.offsets.ranges["s0"]["span"] == {"from": 2, "to": 4}
