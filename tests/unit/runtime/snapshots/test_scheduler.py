"""When data checkpoints are made, and what batches are told of them (DESIGN 5)."""

from __future__ import annotations

import pytest
from checkpoint_samples import commit as sample_commit
from hypothesis import given
from hypothesis import strategies as st

from penstock import AUTO, NEVER, EveryBatches, Job, minutes, seconds
from penstock.checkpoint.log.entries import ManifestRef
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.config.values import parse_schedule
from penstock.errors import ConfigError, JobError
from penstock.graph.schedules import EveryMicros
from penstock.runtime.snapshots.scheduler import (
    LEAST,
    SHARE,
    DataCheckpointPolicy,
    DataCheckpoints,
    auto_interval,
    daly,
)

SECOND = 1_000_000
DAY = 86_400.0


class Slow:
    """A helper that answers when it is told to."""

    made: list[Slow]

    def __init__(self, order):
        self.order, self.said, self.ended = order, None, False
        self.made.append(self)

    def poll(self):
        """Return the answer, once there is one."""
        return self.said

    def end(self):
        """Note that it was given up."""
        self.ended = True

    def take(self):
        """Answer."""
        step = {"version": 3, "rows": 7, "bytes": 900, "bases": {"0": {"path": "x", "size": 1, "checksum": "c"}}}
        self.said = {"taken": {"seconds": 2.0, "steps": {"step": step}}}


@pytest.fixture
def slow(monkeypatch):
    """Return the helper's class; `made` are those there have been."""
    monkeypatch.setattr(Slow, "made", [], raising=False)
    return Slow


def committed(batch, **more):
    """Return a Commit of a batch a second apart, with state of one step."""
    state = {"step": {"0": ManifestRef(path="m", size=1, checksum="c")}}
    fields = {"time": batch * SECOND, "state": state, "written": {"state:step": 10_000, "segments": 500}, **more}
    return sample_commit(batch, **fields)


def data_of(slow, schedule, **more):
    """Return the data checkpoints of a run."""
    policy = DataCheckpointPolicy(schedule=schedule, make=slow, **more)
    return DataCheckpoints(LocalFolder("checkpoint"), "uuid", {"step": None}, policy)


def test_one_is_made_at_a_time_and_the_next_batch_stands_on_it(slow):
    """While it is made, runs are left alone; then one batch is given the bases, and its Commit says so."""
    data = data_of(slow, EveryBatches(2))
    data.look(None, 1, 0)
    data.look(committed(0), 1, 0)
    assert slow.made == []
    data.committed(committed(1))
    data.look(committed(1), 1, 4)
    assert (data.behind, data.bases, data.refs) == (4, {}, {}), "a restore writes runs of the newest batch there was"
    assert data.pinned() == {1, 4}
    assert slow.made[0].order.named == 4
    for batch in (2, 3, 4):
        data.look(committed(batch), 1, 0)
        assert len(slow.made) == 1
    slow.made[0].take()
    data.look(committed(4), 1, 0)
    assert (data.behind, list(data.bases["step"]), data.pinned()) == (None, ["0"], {1, 4})
    ref = data.refs["step"]
    assert (ref.batch, ref.time, ref.version, ref.rows) == (1, SECOND, 3, 7)
    data.committed(committed(5, snapshots=data.refs))
    assert (data.behind, data.bases, data.pinned()) == (None, {}, set())
    assert data.refs == {"step": ref}, "which later Commits go on saying"
    assert data.said()["last"] == {"batch": 1, "time": SECOND}
    data.look(committed(5), 1, 0)
    assert slow.made[1].order.since == {"step": 1}


def test_one_that_fails_leaves_everything_as_it_was_and_the_next_is_whole(slow):
    """What partitions have changed since is not known then."""
    data = data_of(slow, EveryBatches(3))
    data.look(committed(2), 1, 0)
    slow.made[0].said = {"failed": "no space"}
    data.look(committed(3), 1, 0)
    assert (data.behind, data.bases, data.refs, data.pinned()) == (None, {}, {}, set())
    data.look(committed(4), 1, 0)
    assert len(slow.made) == 1, "not at once again"
    data.look(committed(5), 1, 0)
    assert slow.made[1].order.since == {}


def test_the_end_of_a_run_gives_it_up(slow):
    """Nobody stands on it then."""
    data = data_of(slow, EveryBatches(1))
    data.look(committed(0), 1, 0)
    data.end()
    assert slow.made[0].ended
    assert (data.behind, data.pinned()) == (None, set())


@pytest.mark.parametrize(
    ("schedule", "due"),
    [(NEVER, []), (EveryBatches(4), [3, 7]), (EveryMicros(3 * SECOND), [3, 6]), (AUTO, [])],
    ids=["never", "batches", "batch times", "auto: not within a minute"],
)
def test_when_one_is_due(slow, schedule, due):
    """By batches or batch times since the last one, or the beginning."""
    data, batches = data_of(slow, schedule), []
    for batch in range(9):
        before = len(slow.made)
        data.look(committed(batch, zero=0), 1, 0)
        if len(slow.made) > before:
            batches.append(batch)
            slow.made[-1].take()
            data.look(committed(batch), 1, 0)
            data.committed(committed(batch + 1, snapshots=data.refs))
    assert batches == due


def test_a_job_without_state_has_none(slow):
    """Whatever the schedule."""
    data = data_of(slow, EveryBatches(1))
    data.look(committed(0, state={}), 1, 0)
    data.look(committed(1, state={"step": {}}), 1, 0)
    assert slow.made == []


def test_auto_says_why(slow):
    """The interval and its reasons stand in the status."""
    data = data_of(slow, AUTO)
    data.look(committed(0, zero=0), 1, 0)
    assert data.said()["interval"]["why"].startswith("a data checkpoint of 1.0 s and a failure in 24.0 h make 415 s")


@pytest.mark.parametrize(("cost", "mtbf", "expected"), [(1, DAY, 415), (60, 3_600, 618), (5, DAY, 926), (100, 40, 40)])
def test_the_interval_is_that_of_daly(cost, mtbf, expected):
    """Figures of the formula, worked out by hand; a checkpoint that costs twice the time between failures: that time."""
    assert round(daly(cost, mtbf)) == expected


@given(cost=st.floats(0.01, 100), mtbf=st.floats(1_000, 1e7))
def test_no_other_interval_loses_less(cost, mtbf):
    """Against Daly's own model of the time a job takes; where failures are rarer than checkpoints are long."""
    from math import exp

    def lost(interval):
        return mtbf * (exp((interval + cost) / mtbf) - 1) / interval

    best = daly(cost, mtbf)
    assert lost(best) <= min(lost(best * factor) for factor in (0.8, 0.9, 1.1, 1.25)) * 1.001


def measured(**more):
    """Return measurements of a job that runs for a day."""
    return {"state": 10**9, "cost": 10.0, "size": 10**9, "age": DAY, "starts": 1, "growth": 0.0, **more}


def test_an_interval_is_bounded_by_what_a_restart_reads_and_by_what_it_costs():
    """The reasons are told with the numbers."""
    free = auto_interval(60.0, **measured())
    assert 1_500 < free.seconds < 1_900
    read = auto_interval(60.0, **measured(growth=20e6))
    assert (read.seconds, "a restart reads what came since in 60 s" in read.why) == (300.0, True)
    dear = auto_interval(1.0, **measured(cost=100.0, size=10**9, growth=1e9))
    assert (dear.seconds, "at most 10% of the time" in dear.why) == (100.0 / SHARE, True)
    assert auto_interval(60.0, **measured(state=0, cost=None, size=0, age=0.0, starts=5_000_000)).seconds == LEAST
    often = auto_interval(60.0, **measured(starts=100))
    assert often.seconds < free.seconds / 5


def test_the_configuration_says_it_in_words():
    """What `every` can be, and what it cannot."""
    parsed = {"auto": AUTO, "never": NEVER, "1 batch": EveryBatches(1), "20 batches": EveryBatches(20)}
    assert {text: parse_schedule(text) for text in parsed} == parsed
    assert parse_schedule("10 minutes") == EveryMicros(600 * SECOND)
    for text in ("0 batches", "1.5 batches", "often", "0 seconds", ""):
        with pytest.raises(ValueError, match=r"write|least"):
            parse_schedule(text)


def test_the_code_says_it_once_and_not_otherwise_than_the_configuration():
    """At the line of the code, or of the file."""
    from types import SimpleNamespace

    from penstock.runtime.process.choices import choose_schedule
    from penstock.sinks import MemorySink
    from penstock.sources import MemorySource

    job = Job("kept")
    job.source("rows", MemorySource("v long")).write("out", MemorySink())
    settings = SimpleNamespace(checkpoint=SimpleNamespace(every=None))
    assert choose_schedule(job.graph(), settings) is AUTO
    job.checkpoint(every=minutes(1))
    with pytest.raises(JobError, match="one interval"):
        job.checkpoint(every=seconds(1))
    assert choose_schedule(job.graph(), settings) == EveryMicros(60 * SECOND)
    other = SimpleNamespace(checkpoint=SimpleNamespace(every=NEVER), where=lambda *_: "conf/penstock.toml:3")
    with pytest.raises(ConfigError, match="says something else"):
        choose_schedule(job.graph(), other)
    with pytest.raises(JobError, match="whole number of at least 1, not 0"):
        EveryBatches(0)
    with pytest.raises(JobError, match="interval of data checkpoints"):
        Job("other").checkpoint(every=5)
