"""What the pages show of a job is made from its records alone, without a file."""

from __future__ import annotations

import pytest
from checkpoint_samples import commit

from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import END_OF_TIME, StagedFile
from penstock.errors import JobNotFound
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.inspect.job_status import JobState, JobStatus, KeptCheckpoint
from penstock.runtime.inspect.watermark_report import Holder, PartitionMark, StepMark
from penstock.runtime.inspect.watermark_report import Reading as Reading_
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.stream import Phase, Stream, Wish
from penstock.ui.model import Admission, Reading, Tone, Trouble, view_of

NOW = 1_700_000_000_000_000
SECOND, HOUR = 1_000_000, 3_600_000_000
PASSED = {"check": "gate", "unit": 60 * SECOND, "action": "publish", "status": "passed", "rows": 3, "results": []}
FAILED = {
    **PASSED,
    "unit": 120 * SECOND,
    "action": "quarantine",
    "status": "failed",
    "results": [{"rule": "v_is_positive", "severity": "critical", "success": False}],
}
HELD = StagedFile(path="a", size=10, rows=4, checksum="x", stats={})


def kept(entry, *, undone=False, missing=None):
    """Return what is told of a Commit that is kept."""
    return KeptCheckpoint(commit=entry, missing=missing, undone=undone, saved=())


def batch(number, rows=10, **more):
    """Return a Commit that has read so many rows."""
    counts = {"source:orders": {"read": rows}, **more.pop("accounting", {})}
    return commit(number, accounting=counts, time=NOW - SECOND, **more)


RUNS = (Phase.RUNNING, Phase.UNHEALTHY, Phase.FAILED)
"""Phases that go before what a driver says of itself."""


def view(*commits, status=None, stream=None, undone=(), **more):
    """Return the view of a job with these batches."""
    facts = {"state": JobState.RUNNING, "last": BatchReport.of(commits[-1]) if commits else None, **(status or {})}
    return view_of(
        Reading(
            job="orders",
            now=NOW,
            stream=stream or Stream(),
            status=JobStatus(job="orders", **facts),
            kept=[kept(c, undone=c.batch in undone) for c in commits],
            **{"supervised": True, "asked": True, "limits": Limits(), **more},
        )
    )


def test_a_job_that_never_ran_has_nothing_to_show():
    """And nothing is made up."""
    shown = view(status={"state": JobState.NEW}, asked=False)
    assert (shown.state, shown.tone) == ("never run", Tone.QUIET)
    assert (shown.newest, shown.rate, shown.rows_left, shown.idle_for, shown.delay) == (None,) * 5
    assert (shown.judged, shown.batches, shown.steps, shown.units, shown.changes) == (None, (), (), (), ())


@pytest.mark.parametrize(
    ("phase", "tone"),
    [(Phase.RUNNING, Tone.GOOD), (Phase.BACKOFF, Tone.WAITS), (Phase.UNHEALTHY, Tone.WAITS), (Phase.FAILED, Tone.BAD),
     (Phase.STOPPED, Tone.QUIET)],
)  # fmt: skip
def test_the_state_is_the_streams_where_one_was_asked_for(phase, tone):
    """What a supervisor says goes before what the log says."""
    shown = view(stream=Stream(phase=phase), status={"state": JobState.RUNNING if phase in RUNS else JobState.STOPPED})
    assert (shown.state, shown.tone) == (phase.value, tone)


@pytest.mark.parametrize(
    ("state", "tone"), [(JobState.RUNNING, Tone.GOOD), (JobState.SILENT, Tone.WAITS), (JobState.DIED, Tone.BAD)]
)
def test_the_state_is_the_jobs_where_somebody_runs_it_by_hand(state, tone):
    """`penstock run` has no stream."""
    shown = view(status={"state": state}, asked=False)
    assert (shown.state, shown.tone) == (state.value, tone)


def test_a_driver_that_somebody_runs_by_hand_is_seen_where_the_stream_is_over():
    """What was stopped days ago is no news beside rows that move."""
    over = Stream(phase=Phase.STOPPED, generation=3)
    assert view(status={"state": JobState.RUNNING}, stream=over).state == JobState.RUNNING.value
    old = {"state": JobState.RUNNING, "record": {"generation": 3}}  # its own driver, whose end is not known yet
    assert view(status=old, stream=over).state == Phase.STOPPED.value
    assert view(status={"state": JobState.STOPPED}, stream=over).state == Phase.STOPPED.value


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DRAINING])
@pytest.mark.parametrize(
    ("state", "tone"),
    [(JobState.DIED, Tone.BAD), (JobState.SILENT, Tone.WAITS), (JobState.NEEDS_PERSON, Tone.BAD),
     (JobState.FINISHED, Tone.QUIET)],
)  # fmt: skip
def test_a_stream_that_nobody_supervises_runs_no_longer_than_its_driver(phase, state, tone):
    """Nobody corrects its record then; a supervisor takes seconds to do so, or to start the next driver."""
    stream = Stream(phase=phase, since=NOW - 9 * SECOND)
    shown = view(stream=stream, status={"state": state}, supervised=False)
    assert (shown.state, shown.tone, shown.since) == (state.value, tone, None)
    assert view(stream=stream, status={"state": state}).state == phase.value
    runs = view(stream=stream, supervised=False)
    assert (runs.state, runs.since) == (phase.value, NOW - 9 * SECOND)


def test_lag_is_rows_where_each_source_knows_them_and_time_otherwise():
    """A sum that leaves a source out would be a lie."""
    assert view(batch(0), status={"record": {"left": {"a": 3, "b": 4}}}).rows_left == 7
    unknown = view(batch(0), status={"record": {"left": {"a": 3, "b": None}}})
    assert (unknown.rows_left, unknown.idle_for) == (None, SECOND)
    assert view(batch(0), status={"record": {"left": "?"}}).rows_left is None
    running = {"state": JobState.RUNNING, "record": {"left": {"a": 3, "b": None}, "lag": {"b": 5}}}
    assert view(batch(0), status=running).rows_left == 8
    assert view(batch(0), status={**running, "state": JobState.STOPPED}).rows_left is None


def test_a_rate_is_that_of_a_driver_that_runs():
    """What the last driver managed says nothing of now."""
    record = {"rows_per_second": 12.5}
    assert view(batch(0), status={"record": record}).rate == 12.5
    assert view(batch(0), status={"record": record, "state": JobState.STOPPED}).rate is None


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, (None, None)),
        ({"a": None, "b": NOW}, (None, None)),
        ({"a": NOW - 5 * SECOND, "b": NOW}, (NOW - 5 * SECOND, 5 * SECOND)),
        ({"a": END_OF_TIME}, (END_OF_TIME, None)),
        ({"a": END_OF_TIME, "b": NOW - SECOND}, (NOW - SECOND, SECOND)),
    ],
    ids=["no windows", "one has none", "the furthest behind", "all ended", "one has ended"],
)
def test_the_watermark_delay_is_that_of_the_step_furthest_behind(marks, expected):
    """A step without a watermark is behind all others."""
    shown = view(batch(0), status={"watermarks": marks})
    assert (shown.watermark, shown.delay) == expected


def test_failures_are_those_of_the_last_hour_and_restarts_those_of_the_stream():
    """Older ones are forgiven by the supervisor as well."""
    shown = view(stream=Stream(launches=4, failures=(NOW - 2 * HOUR, NOW - HOUR + 1, NOW - 1)))
    assert (shown.stream.restarts, shown.failures) == (3, 2)


def test_the_last_verdict_is_of_the_newest_batch_that_has_one():
    """Not every batch closes a window."""
    shown = view(batch(0, verdicts=[PASSED]), batch(1, verdicts=[PASSED, FAILED]), batch(2))
    assert (shown.judged.batch, shown.judged.verdicts) == (1, {"passed": 1, "quarantine": 1})


def test_units_are_told_newest_first_with_the_rules_that_failed():
    """A window by its end, and a batch that was judged as a whole."""
    units = view(batch(0, verdicts=[{**PASSED, "unit": None}]), batch(1, verdicts=[PASSED, FAILED])).units
    assert [(u.batch, u.end, u.status, u.failed) for u in units] == [
        (1, 120 * SECOND, "failed", ("v_is_positive",)),
        (1, 60 * SECOND, "passed", ()),
        (0, None, "passed", ()),
    ]
    many = [{**PASSED, "unit": end} for end in range(50)]
    assert [u.end for u in view(batch(0, verdicts=many)).units] == list(range(49, 29, -1))


def test_a_verdict_that_nobody_foresaw_is_shown_as_far_as_it_goes():
    """A newer version may write other fields."""
    (unit,) = view(batch(0, verdicts=[{"check": 1, "action": "publish", "status": "?", "results": 7}])).units
    assert (unit.check, unit.end, unit.rows, unit.failed, unit.fine) == ("1", None, 0, (), False)


def test_steps_add_up_the_kept_batches():
    """Late rows of any of them are told; the state is that of the newest."""
    counts = {"window:hourly": {"rows": 10, "counted": 7, "late": 3}}
    first, second = (batch(n, accounting=counts, due={"hourly": n}, written={"state:hourly": n}) for n in (5, 6))
    (step,) = view(first, second, status={"watermarks": {"hourly": 7}}).steps
    assert (step.name, step.watermark, step.due) == ("hourly", 7, 6)
    assert (step.rows, step.counted, step.late, step.state_bytes) == (20, 14, 6, 6)


def test_a_step_says_what_holds_its_watermark_back():
    """Issue 20.8: as `penstock status` does, from the same report."""
    part = PartitionMark(name="1", reading=Reading_.WAITING, highest=5, watermark=4, since=0)
    holder = Holder(source="orders", watermark=4, partition=part, limit=None)
    mark = StepMark(name="hourly", watermark=4, due=6, held_by=holder)
    (step,) = view(batch(0), status={"watermarks": {"hourly": 4}, "marks": (mark,)}).steps
    assert step.waits_for == "orders 1: nothing new, since 1970-01-01 00:00:00Z"


def test_the_history_leaves_out_records_that_changed_nothing_one_sees():
    """Newest first, and twenty at most."""
    streams = [Stream(since=n // 2, phase=Phase.BACKOFF, generation=n // 2, reason="x") for n in range(60)]
    changes = view(history=list(enumerate(streams))).changes
    assert [change.generation for change in changes] == list(range(29, 9, -1))


def test_the_history_dates_a_request_by_when_it_came():
    """A driver that is to stop runs on until its batch is done: RUNNING had begun long before (DESIGN 11)."""
    runs = Stream(wish=Wish.RUN, phase=Phase.RUNNING, since=10, asked_at=5, generation=1)
    stopping = fold(runs, Command(verb=Verb.STOP, id="s"), 70)[0]
    stopped = stopping.having(phase=Phase.STOPPED, since=80, reason=None)
    changes = view(history=list(enumerate([runs, stopping, stopped]))).changes
    assert [change.changed_at for change in changes] == [80, 70, 10]


def test_a_rollback_is_shown_with_its_reason_while_the_stable_version_runs():
    """RUNNING has no reason of its own, and whoever looks later sees what the new version died of."""
    runs = Stream(phase=Phase.RUNNING, version="new", stable="old")
    back = runs.having(phase=Phase.BACKOFF, version="old", rolled_back="new", reason="version new failed: PEN-X")
    again = back.having(phase=Phase.RUNNING, reason=None)
    later = again.having(phase=Phase.BACKOFF, reason="the driver was killed")
    history = list(enumerate([runs, back, again, later]))
    assert view(stream=later, history=history).rolled_back_for == "version new failed: PEN-X"
    assert view(stream=later, history=history[2:]).rolled_back_for is None
    assert view(stream=runs, history=history[:1]).rolled_back_for is None


def test_the_history_names_who_has_asked():
    """The run and the task of a DAG, or the command of a person."""
    asked = [Stream(since=n, phase=Phase.RUNNING, generation=n, asked_by=f"restart_from_checkpoint/run-{n}/restart") for n in (1, 2)]  # fmt: skip
    changes = view(history=list(enumerate(asked))).changes
    assert [change.asked_by for change in changes] == ["restart_from_checkpoint/run-2/restart", "restart_from_checkpoint/run-1/restart"]  # fmt: skip


@pytest.mark.parametrize(
    ("by_command", "shown"),
    [(None, 7), (Limits(rows=None), None), (Limits(rows=3), 3), (Limits(max_rate=5), 7)],
    ids=["configured", "lifted", "set", "another set"],
)
def test_a_limit_that_a_command_set_goes_before_the_configurations(by_command, shown):
    """As the driver has it."""
    assert view(stream=Stream(limits=by_command), limits=Limits(rows=7)).limits.rows == shown


def test_the_limits_that_somebody_has_set_are_named():
    """By a form or a command; of all others the configuration's hold, also where it has none."""
    assert view(limits=Limits(rows=7)).set_limits == ()
    limits = Limits(files=2, max_rate_per_partition=5, paused=True)
    assert view(stream=Stream(limits=limits)).set_limits == ("files a batch", "rows a second and partition", "pause")
    limits = Limits(rows=5, sources={"clicks": SourceLimits(rows=9)})
    assert view(stream=Stream(limits=limits)).set_limits == ("rows a batch", "those of clicks")


def test_what_a_batch_was_admitted_by_is_its_rate_and_its_rules():
    """As the driver's record has them; a job without a driver has neither."""
    limits = {"rows": 9, "rate": 90.6, "bound": {"orders": "rows", "clicks": "rate"}}
    assert view(status={"record": {"limits": limits}}).admitted == Admission(
        rate=91, bound={"orders": "rows", "clicks": "rate"}
    )
    assert view().admitted == Admission()


@pytest.mark.parametrize("limits", [None, 7, ["rate"], {"rate": "fast", "bound": ["orders"]}, {"rate": float("nan")}])
def test_what_no_driver_writes_as_limits_counts_as_not_there(limits):
    """A page shows what can be read (F77)."""
    assert view(status={"record": {"limits": limits}}).admitted == Admission()


def test_trouble_says_what_to_do():
    """Also where the error is none of ours."""
    assert Trouble.of(JobNotFound("no job", where="jobs")).code == "PEN-JOB-009"
    assert Trouble.of(OSError(13, "Permission denied")).what == "[Errno 13] Permission denied"
    assert Trouble.of(KeyError("x")) == Trouble(
        what="KeyError: 'x'", code="PEN-000", remedy="This is an error in Penstock."
    )
    assert Trouble.told(None) is None
    assert Trouble.told({"what": "it broke", "code": None}) == Trouble(what="it broke")
