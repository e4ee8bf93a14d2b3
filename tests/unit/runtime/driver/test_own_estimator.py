"""A rate estimator of a job's own is run by the driver, whatever it does (SEMANTICS 8.0)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock import Job
from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.errors import ConfigError, JobError
from penstock.rates import Constant, CostModel
from penstock.rates.estimator import Measurement, learned, replayed
from penstock.runtime.driver.own_estimator import own_estimator
from penstock.runtime.driver.rate_control import RateControl, RatePolicy
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.time.clock import ManualClock
from penstock.time.triggers import FixedInterval

S = 1_000_000


class Live(MemorySource):
    """A source whose rows are of now."""

    live = True


class Says:
    """An estimator that gives what it was told, one answer a batch; an error is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> Any:
        """Give the next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def commit_of(batch: int) -> Commit:
    """Return the Commit of a batch that has read 100 rows."""
    empty: Any = {name: {} for name in ("state", "staged", "held", "sources", "watermarks_out", "due", "published")}
    counts = {"source:s": {"read": 100, "quarantined": 0, "passed": 100}}
    return Commit(
        epoch=1, writer="w", batch=batch, time=batch * S, verdicts=[], accounting=counts, timings={}, floor=0, **empty
    )  # fmt: skip


def offsets_of(batch: int) -> Offsets:
    """Return the Offsets of a batch."""
    return Offsets(epoch=1, writer="w", batch=batch, time=batch * S, ranges={}, watermarks={}, limits={}, settings={})


def rates_of(*answers: Any) -> list[float | None]:
    """Return the rates that the driver has in force after each batch."""
    job = Job("rates")
    job.source("s", Live("x int")).write("out", MemorySink())
    policy = RatePolicy(estimator=lambda interval_ms: own_estimator(lambda _: Says(*answers), interval_ms))
    control = RateControl(policy, job.graph(), FixedInterval(S), ManualClock(0))
    rates = []
    for batch in range(len(answers)):
        control.on_batch_submitted(offsets_of(batch))
        control.on_batch_completed(commit_of(batch))
        rates.append(control.pace().rate)
    return rates


def test_its_rates_are_in_force_until_it_gives_another() -> None:
    """8.0: numbers of any kind; None keeps the rate before."""
    assert rates_of(None, 5, None, 2.5) == [None, 5.0, 5.0, 2.5]


@pytest.mark.parametrize(
    "answer",
    [ValueError("lost"), float("nan"), float("inf"), 0, -1, True, "9", Decimal(9), 1j, 10**400, Fraction(1, 10**400)],
    ids=lambda answer: repr(answer)[:20],
)
def test_what_is_no_rate_is_logged_and_keeps_the_rate_before(answer: Any) -> None:
    """8.0: the batch is committed by then, so no error of an estimator is worth it."""
    with capture_logs() as logs:
        assert rates_of(5, answer, 7) == [5.0, 5.0, 7.0]
    (entry,) = logs
    assert (entry["event"], entry["estimator"]) == ("rates.estimator_failed", f"{__name__}.Says")


def test_what_is_no_estimator_is_refused_before_the_first_batch() -> None:
    """8.0: with the line of the function; an error of Penstock's own keeps its code."""
    with pytest.raises(JobError, match="has no method compute") as refused:
        own_estimator(lambda _: 7, 1_000.0)
    assert str(refused.value.where).startswith(__file__)
    with pytest.raises(JobError, match="cannot be made: ZeroDivisionError"):
        own_estimator(lambda _: 1 / 0, 1_000.0)
    with pytest.raises(ConfigError):
        own_estimator(lambda _: Constant(-1), 1_000.0)


def test_a_cost_model_with_other_settings_stays_one() -> None:
    """8.4: the driver takes its interval, too."""
    made = own_estimator(lambda interval_ms: CostModel(interval_ms, headroom=0.5), 1_000.0)
    assert isinstance(made, CostModel)


def test_a_cost_model_that_a_job_has_changed_is_run_like_any_estimator() -> None:
    """8.0: its error ended the driver after the Commit, and each that started after it."""
    batch = (0.0, 100, 10.0, 0.0)

    class Lost(CostModel):
        def compute(self, time_ms: float, rows: int, processing_ms: float, scheduling_ms: float) -> float | None:  # type: ignore[override]
            raise LookupError("lost")

    with capture_logs() as logs:
        assert learned(own_estimator(Lost, 1_000.0), Measurement(*batch, pause_ms=1.0)) is None
        assert replayed(own_estimator(Lost, 1_000.0), [Measurement(*batch)]) is None
    assert [entry["error"] for entry in logs] == ["LookupError('lost')"] * 2


def test_a_job_has_one_estimator() -> None:
    """8.0: a function of the interval; each fault is named at the user's line."""
    job = Job("rates")
    with pytest.raises(JobError, match="takes a function"):
        job.estimate_rate(Says())  # type: ignore[arg-type]
    job.estimate_rate(Constant)
    with pytest.raises(JobError, match="one rate estimator"):
        job.estimate_rate(Constant)
