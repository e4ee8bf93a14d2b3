"""Batches are measured, and the next one gets its pace (SEMANTICS 8.3, 8.4)."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from penstock import Job, seconds
from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.rates import Constant, CostModel, PIDRateEstimator
from penstock.rates.limits import Limits
from penstock.runtime.driver.rate_control import RateControl, RatePolicy
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.backlog import Waiting
from penstock.time.clock import ManualClock
from penstock.time.triggers import AsFastAsPossible, FixedInterval
from penstock.windows import BatchWindow

S = 1_000_000


class Live(MemorySource):
    """A source whose rows are of now."""

    live = True


class Clock(ManualClock):
    """A clock whose monotonic time is its wall time."""

    def monotonic(self) -> float:
        return self.now / S


def graph_of(*sources: MemorySource):
    """Return the graph of a job that reads these sources, s0, s1 and so on."""
    job = Job("rates")
    for i, source in enumerate(sources):
        job.source(f"s{i}", source).write(f"out{i}", MemorySink())
    return job.graph()


def commit_of(batch: int, time: int, rows: int, *, ms: float = 0.0) -> Commit:
    """Return the Commit of a batch that has read rows of s0."""
    empty = {name: {} for name in ("state", "staged", "held", "sources", "watermarks_out", "due", "published")}
    counts = {"source:s0": {"read": rows, "quarantined": 0, "passed": rows}}
    return Commit(
        epoch=1,
        writer="w",
        batch=batch,
        time=time,
        verdicts=[],
        accounting=counts,
        timings={"Compute": ms},
        floor=0,
        **empty,
    )


def offsets_of(batch: int, time: int) -> Offsets:
    """Return the Offsets of a batch."""
    return Offsets(epoch=1, writer="w", batch=batch, time=time, ranges={}, watermarks={}, limits={}, settings={})


def run(control: RateControl, clock: Clock, batch: int, *, rows: int, ms: float) -> None:
    """Run a batch at its tick that takes so long."""
    time = clock.now
    control.on_batch_submitted(offsets_of(batch, time))
    clock.now += round(ms * 1_000)
    control.on_batch_completed(commit_of(batch, time, rows))


def control_of(clock: Clock, policy: RatePolicy, *, source=None, trigger=None) -> RateControl:
    """Return the rate control of a job with one source, live unless another is given."""
    graph = graph_of(Live("x int") if source is None else source)
    return RateControl(policy, graph, trigger or FixedInterval(S, 0), clock)


COSTS = RatePolicy(estimator=CostModel)


def test_before_any_estimate_the_first_batch_is_capped():
    """By rows a second and partition, or by an initial rate of all."""
    pace = control_of(Clock(), COSTS).pace()
    assert (pace.rate, pace.first_batch, pace.seconds, pace.sources) == (None, 10_000, 1.0, frozenset({"s0"}))
    pace = control_of(Clock(), RatePolicy(estimator=CostModel, initial_rate=300)).pace()
    assert (pace.rate, pace.first_batch) == (300, None)
    pace = control_of(Clock(), RatePolicy(estimator=CostModel, first_batch=None)).pace()
    assert (pace.rate, pace.first_batch) == (None, None)


@pytest.mark.parametrize("policy", [RatePolicy(), COSTS], ids=["off", "a replay"])
def test_without_an_estimator_and_for_replays_there_is_no_rate(policy):
    """Hard limits alone hold."""
    control = control_of(Clock(), policy, source=MemorySource("x int") if policy is COSTS else None)
    run(control, control._clock, 0, rows=1_000, ms=500)
    assert (control.pace().rate, control.pace().sources) == (None, frozenset())


def test_a_batch_is_measured_from_its_plan_to_its_end():
    """The estimator hears rows, time and how late the batch began."""
    heard = []

    def make(interval_ms):
        return SimpleNamespace(compute=lambda *batch: heard.append((interval_ms, *batch)) or 42.0)

    clock = Clock(5 * S)
    control = control_of(clock, RatePolicy(estimator=make))
    control.on_batch_submitted(offsets_of(0, 5 * S - 250_000))
    clock.now += 400_000
    control.on_batch_completed(commit_of(0, 5 * S - 250_000, 80))
    assert heard == [(1_000.0, 5_400.0, 80, pytest.approx(400), 250.0)]
    assert control.pace().rate == 42.0


def test_a_batch_that_another_driver_began_is_not_measured():
    """It began nobody knows when."""
    control = control_of(Clock(), RatePolicy(estimator=lambda _: Constant(7)))
    control.on_batch_completed(commit_of(0, 0, 80))
    assert control.pace().rate is None


def test_a_batch_that_sends_quarantined_rows_again_teaches_nothing():
    """Its time is that of 100,000 rows more: a rate by it would starve the sources, also after a restart."""
    clock, policy = Clock(0), RatePolicy(estimator=CostModel)
    control = control_of(clock, policy)
    for batch in range(4):
        run(control, clock, batch, rows=1_000, ms=100.0)
    before = control.pace().rate
    control.on_batch_submitted(offsets_of(4, clock.now))
    clock.now += 5 * S
    again = commit_of(4, clock.now, 10, ms=5_000.0)
    again.accounting["requeue:s0"] = {"read": 100_000, "quarantined": 0, "passed": 100_000}
    control.on_batch_completed(again)
    assert control.pace().rate == before
    kept = [commit_of(batch, batch * S, 1_000, ms=100.0) for batch in range(4)]
    rates = []
    for commits in (kept, [*kept, again]):
        after = control_of(clock, policy)
        after.on_takeover(SimpleNamespace(kept=commits))
        rates.append(after.pace().rate)
    assert rates[0] == rates[1]


def test_a_job_without_an_interval_aims_at_the_target():
    """And is never late."""
    clock = Clock()
    policy = RatePolicy(estimator=CostModel, target=4 * S)
    control = control_of(clock, policy, trigger=AsFastAsPossible())
    assert control.pace().seconds == 4.0
    for batch, rows in enumerate([1_000, 2_000, 3_000, 1_000, 2_000]):
        run(control, clock, batch, rows=rows, ms=rows)
    assert control.pace().rate == pytest.approx(850, rel=0.01)  # 0.85 of 4 s at 1 ms a row, each second


def test_a_restart_learns_from_the_log():
    """So the rate in force goes on, and no first batch is capped again."""
    commits = [commit_of(n, n * S, 1_000 * (n + 1), ms=100 + 0.2 * 1_000 * (n + 1)) for n in range(5)]
    control = control_of(Clock(), COSTS)
    control.on_takeover(SimpleNamespace(kept=tuple(commits)))
    assert control.pace().rate == pytest.approx((850 - 100) / 0.2, rel=0.05)


@pytest.mark.fault("F45")
def test_a_clock_that_is_set_back_stops_no_estimate():
    """8.1: the times of batches rise in a run, and from the last batch of the log on; PID gives a rate after each."""

    class Apart(Clock):
        passed = 0.0

        def monotonic(self) -> float:
            return self.passed

    clock = Apart(100 * S)
    control = control_of(clock, RatePolicy(estimator=PIDRateEstimator))
    for batch, back in enumerate((0, 0, 50, 0)):
        control.on_batch_submitted(offsets_of(batch, clock.now))
        clock.now += S - back * S
        clock.passed += 1.0
        control.on_batch_completed(commit_of(batch, clock.now, 1_000 * (batch + 1)))
        assert control.pace().rate == (None if batch == 0 else pytest.approx(1_000 * (batch + 1)))
    clock.now = 5 * S
    control = control_of(clock, RatePolicy(estimator=PIDRateEstimator))
    kept = [commit_of(batch, (100 + batch) * S, 1_000, ms=1_000) for batch in range(3)]
    control.on_takeover(SimpleNamespace(kept=kept))
    control.on_batch_submitted(offsets_of(3, 102 * S))
    clock.passed += 1.0
    control.on_batch_completed(commit_of(3, 102 * S, 9_000))
    assert control.pace().rate == pytest.approx(9_000)


def test_where_the_fixed_cost_fills_the_interval_the_interval_grows():
    """SEMANTICS 8.4: no rate helps there; the pace is that of a longer interval."""
    clock = Clock()
    control = control_of(clock, COSTS)
    for batch, rows in enumerate([100, 200, 400, 800, 400, 1_600]):
        run(control, clock, batch, rows=rows, ms=1_500 + 0.1 * rows)
        clock.now = -(-clock.now // S) * S
    pace = control.pace()
    assert pace.seconds >= 2.0
    assert pace.seconds == round(pace.seconds)
    assert pace.rate * pace.seconds > 0


def test_a_changed_interval_is_logged():
    """SEMANTICS 8.4: each change once, with the fixed cost that called for it; what fits an interval changes none."""
    clock = Clock()
    control = control_of(clock, COSTS)
    with capture_logs() as logged:
        for batch, rows in enumerate([100, 200, 400, 800]):
            run(control, clock, batch, rows=rows, ms=300 + 0.1 * rows)
    assert logged == []
    clock = Clock()
    control = control_of(clock, COSTS)
    seconds = [control.pace().seconds]
    with capture_logs() as logged:
        for batch, rows in enumerate([100, 200, 400, 800, 400, 1_600]):
            run(control, clock, batch, rows=rows, ms=1_500 + 0.1 * rows)
            clock.now = -(-clock.now // S) * S
            seconds.append(control.pace().seconds)
    changes = [(before, after) for before, after in pairwise(seconds) if before != after]
    assert changes
    assert [(entry["before"], entry["seconds"]) for entry in logged] == changes
    assert {(entry["event"], entry["log_level"]) for entry in logged} == {("rates.interval", "warning")}
    assert logged[-1]["fixed_ms"] == pytest.approx(1_500, rel=0.05)


def backlog_run(control: RateControl, clock: Clock, trigger, *, waiting: int, fixed: float, row: float) -> list:
    """Return the rows of each batch until nothing waits, in a job whose batches cost what is given, milliseconds."""
    last, read = None, []
    while waiting and len(read) < 100:
        tick = trigger.next(0, last, clock.now)
        clock.now = max(clock.now, tick.time)
        pace = control.pace()
        most = pace.first_batch if pace.rate is None else pace.rate
        rows = min(waiting, int(most * pace.seconds))
        control.on_batch_submitted(offsets_of(len(read), tick.time))
        clock.now += round((fixed + row * rows) * 1_000)
        control.on_batch_completed(commit_of(len(read), tick.time, rows))
        waiting, last = waiting - rows, tick.time
        read.append(rows)
    return read


@pytest.mark.parametrize("trigger", [FixedInterval(S, 0), AsFastAsPossible()], ids=["ticks", "at once"])
@pytest.mark.parametrize("fixed", [0.3, 0.8, 0.85, 0.9])
def test_a_fixed_cost_that_nearly_fills_the_interval_does_not_starve_a_backlog(fixed, trigger):
    """SEMANTICS 8.4: 200,000 rows wait, and batches take as many ticks as it needs to read them (decision 124)."""
    clock = Clock()
    control = control_of(clock, RatePolicy(estimator=CostModel, target=S), trigger=trigger)
    read = backlog_run(control, clock, trigger, waiting=200_000, fixed=1_000 * fixed, row=0.05)
    assert sum(read) == 200_000
    assert clock.now / S < 2 * (200_000 * 0.05 / 1_000 + fixed)
    assert control.pace().seconds <= 8


def test_a_restart_resumes_with_the_interval_that_the_log_calls_for():
    """The fixed cost of its batches is above a second."""
    commits = [commit_of(n, n * S, 100 * (1 + n % 4), ms=1_500 + 10 * (1 + n % 4)) for n in range(8)]
    control = control_of(Clock(), COSTS)
    control.on_takeover(SimpleNamespace(kept=tuple(commits)))
    assert control.pace().seconds == 2.0


def test_the_load_of_a_batch_is_its_delay_and_what_waited():
    """For the Commit: measured as it begins, and not of a batch that another driver began."""
    clock = Clock(5 * S)
    control = control_of(clock, RatePolicy())
    backlogs = {"s0": {"a": Waiting.of_rows(0, 30), "b": Waiting.of_rows(5, 9)}}
    control.admit(backlogs, backlogs, None, Limits())
    control.on_batch_submitted(offsets_of(7, 5 * S - 250_000))
    clock.now += 400_000
    assert control.load_of(7) == {"late_ms": 250.0, "waiting": 34}
    assert control.load_of(8) == {}
    replay = control_of(clock, COSTS, source=MemorySource("x int"), trigger=AsFastAsPossible())
    replay.admit(backlogs, backlogs, None, Limits())
    replay.on_batch_submitted(offsets_of(7, 4 * S))
    assert replay.load_of(7) == {"late_ms": 0.0}


def test_what_a_batch_leaves_is_known_by_source():
    """SEMANTICS 8: of all that waits, also of what the batch may not read yet, and of a pause everything."""
    control = control_of(Clock(), RatePolicy())
    whole = {"s0": {"a": Waiting.of_rows(0, 30), "b": Waiting.of_rows(5, 9)}, "s1": {"a": Waiting.of_rows(7, 7)}}
    within = {"s0": {"a": Waiting.of_rows(0, 20)}, "s1": whole["s1"]}
    assert control.left == {}
    control.admit(within, whole, None, Limits())
    assert control.left == {"s0": 14, "s1": 0}
    control.admit(whole, whole, None, Limits(rows=10))
    assert control.left == {"s0": 24, "s1": 0}
    control.admit(whole, whole, None, Limits(paused=True))
    assert control.left == {"s0": 34, "s1": 0}


def test_a_drain_reads_on_in_spite_of_a_pause():
    """It has to reach an end (SEMANTICS 1.5)."""
    control = control_of(Clock(), RatePolicy())
    backlogs = {"s0": {"a": Waiting.of_rows(0, 30)}}
    assert control.admit(backlogs, backlogs, None, Limits(paused=True)).paused
    assert control.admit(backlogs, backlogs, None, Limits(paused=True), draining=True).ends == {"s0": {"a": 30}}


@pytest.mark.parametrize(
    ("pauses", "rate"),
    [
        ({}, 4_800),
        ({"gc_ms": 90.0, "spilled_bytes": 0}, 4_800),
        ({"gc_ms": 250.0, "spilled_bytes": 0}, 1_200),
        ({"gc_ms": 0.0, "spilled_bytes": 18_000_000}, 4_800),
        ({"gc_ms": 0.0, "spilled_bytes": 22_000_000}, 1_200),
        ({"gc_ms": 60.0, "spilled_bytes": 12_000_000}, 1_200),
    ],
)
def test_a_batch_that_collected_garbage_or_spilled_ends_growth(pauses: dict[str, float], rate: float):
    """SEMANTICS 8.4: above a fifth of its tasks' time, from the Commit."""
    clock, commits = Clock(), []
    control = control_of(clock, COSTS)
    for batch, rows in enumerate([1_000, 1_200]):
        time = clock.now
        control.on_batch_submitted(offsets_of(batch, time))
        clock.now += 300_000
        load = {"task_ms": 500.0, **pauses}
        commits.append(commit_of(batch, time, rows, ms=300).model_copy(update={"load": load}))
        control.on_batch_completed(commits[-1])
    assert control.pace().rate == rate
    again = control_of(clock, COSTS)
    again.on_takeover(SimpleNamespace(kept=tuple(commits)))
    assert again.pace().rate == rate, "a restart begins with the rate that was in force"


def test_max_rate_belongs_behind_a_source_and_is_a_number():
    """API: `s.max_rate(rows_per_second, per_partition=None)`."""
    from penstock.errors import JobError

    job = Job("rates", interval=seconds(1))
    rows = job.source("s", MemorySource("x int")).max_rate(10, per_partition=4)
    rows.write("out", MemorySink())
    assert (job.graph().rates["s"].rows, job.graph().rates["s"].per_partition) == (10, 4)
    with pytest.raises(JobError, match="has a max_rate already"):
        rows.max_rate(5)
    with pytest.raises(JobError, match="right behind job.source"):
        rows.filter("x > 0").max_rate(5)
    other = job.source("t", MemorySource("x int"))
    for wrong in (0, -1, True, float("inf"), "5"):
        with pytest.raises(JobError, match="above 0"):
            other.max_rate(wrong)
    with pytest.raises(JobError, match="needs rows_per_second"):
        other.max_rate()


def test_the_interval_of_a_job_with_windows_of_batch_time_never_adapts():
    """4.1: the cost model of such a job has no longer interval to advise."""
    job = Job("windows")
    job.source("s0", Live("v int")).window("w", BatchWindow(seconds(4))).count().write("out", MemorySink())
    rates = RateControl(RatePolicy(estimator=CostModel), job.graph(), FixedInterval(S), Clock())
    assert rates._estimator.longest_interval_ms == 1_000
