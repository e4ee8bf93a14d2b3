"""Give each batch its rates by how long the batches before it took: a listener of the driver (SEMANTICS 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered
from penstock.graph.graph import JobGraph
from penstock.rates.cost_model import CostModel, Pacing
from penstock.rates.estimator import REMEMBERED, Measurement, RateEstimator, learned, replayed
from penstock.rates.limits import Limits
from penstock.rates.pauses import pause_share
from penstock.runtime.driver.admission import Admitted, Backlogs, Pace, admit
from penstock.sources.backlog import left_behind
from penstock.time.clock import Clock
from penstock.time.triggers import Trigger

__all__ = ["FIRST_BATCH", "TARGET", "RateControl", "RatePolicy"]

log = structlog.get_logger()

FIRST_BATCH = 10_000
"""Rows a second and partition before there is an estimate (SEMANTICS 8.3)."""
TARGET = 10 * 1_000_000
"""Microseconds that a batch of a job without an interval aims at: long beside the fixed cost, short to recover."""

_PAUSE = frozenset({"paused"})
"""The name of the limit that a drain does not heed: it has to reach an end."""
_FIRST_SECONDS = 1.0
"""What the first batch of a job without ticks may read of a hard limit of rows a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """Say how a job's rates come about.

    Attributes:
        estimator: Makes an estimator for a batch interval in milliseconds; None for hard limits alone.
        initial_rate: Rows a second of all sources together before there is an estimate; None for `first_batch`.
        first_batch: Rows a second and partition before there is an estimate; None for no bound.
        least_per_partition: Rows a second that each partition may have, whatever the rate.
        target: Microseconds that count as the interval of a job without one.
    """

    estimator: Callable[[float], RateEstimator] | None = None
    initial_rate: float | None = None
    first_batch: float | None = FIRST_BATCH
    least_per_partition: float = 1.0
    target: int = TARGET


class RateControl(Listener):
    """Measure batches, and give the next one its pace.

    Rates are for live sources, whose rows come whether one is ready or not. A source that is replayed has the rows of
    a batch among its own settings, and keeps to them.
    There is one estimator for all of them, because a batch has one time: what it took says nothing of one source alone.

    Attributes:
        left: By source the rows that the newest planned batch leaves; nothing before the driver has planned one.
    """

    def __init__(self, policy: RatePolicy, graph: JobGraph, trigger: Trigger, clock: Clock) -> None:
        self._policy = policy
        self._limits = graph.rates
        self._clock = clock
        self._ticks = trigger.interval is not None
        self._own_ms = (policy.target if trigger.interval is None else trigger.interval) / 1_000
        self._interval_ms = self._own_ms
        self._adapts = not any(step.spec.needs_ticks for step in graph.steps)
        self._live = frozenset(node.name for node in graph.sources if node.source.live)
        self._sources = self._live if policy.estimator is not None else frozenset[str]()
        self._estimator = self._new_estimator()
        self._rate: float | None = None
        self._began: tuple[int, float, int] | None = None
        self._load: dict[str, float] = {}
        self._waiting = 0
        self.left: dict[str, int] = {}
        self._zero_ms = self._started_at(0)

    def admit(
        self, backlogs: Backlogs, whole: Backlogs, elapsed: int | None, limits: Limits, *, draining: bool = False
    ) -> Admitted:
        """Return how far a batch reads within hard limits, so many microseconds after the one before.

        `backlogs` are what it may read, `whole` what the sources have. A drain reads on in spite of a pause.
        """
        self._waiting = sum(w.rows for name in self._live & {*backlogs} for w in backlogs[name].values())
        limits = limits.without(_PAUSE) if draining else limits
        admitted = admit(backlogs, limits, self.pace(elapsed), rates=self._limits)
        self.left = {name: left_behind(backlog, admitted.ends.get(name, {})) for name, backlog in whole.items()}
        return admitted

    def load_of(self, batch: int) -> dict[str, float]:
        """Return how late a batch began, milliseconds, and the rows that waited; nothing of another driver's batch."""
        return dict(self._load) if self._began is not None and self._began[0] == batch else {}

    def pace(self, elapsed: int | None = None) -> Pace:
        """Return the rates of the next batch, so many microseconds after the one before; None for the first."""
        estimating = self._rate is not None
        initial, seconds = self._policy.initial_rate, self._interval_ms / 1_000
        first = seconds if self._ticks else _FIRST_SECONDS
        return Pace(
            seconds=seconds,
            elapsed=first if elapsed is None else min(elapsed / 1_000_000, seconds),
            has_ticks=self._ticks,
            rate=self._rate if estimating else initial,
            first_batch=None if estimating or initial is not None else self._policy.first_batch,
            least_per_partition=self._policy.least_per_partition,
            sources=self._sources,
        )

    def on_takeover(self, recovered: Recovered) -> None:
        """Learn from the batches of the log, so that a restart begins with the rate that was in force."""
        self._estimator, self._rate, self._began = self._new_estimator(), None, None
        self._zero_ms = self._started_at(recovered.kept[-1].time if recovered.kept else 0)
        if self._estimator is not None:
            kept = recovered.kept[-REMEMBERED:]
            batches = [self._measured(commit) for commit in kept if not _sends_again(commit)]
            self._rate = replayed(self._estimator, batches)
            if isinstance(self._estimator, CostModel):
                self._rate = self._estimator.adopt()
            self._note_interval()

    def on_batch_submitted(self, offsets: Offsets) -> None:
        """Note when a batch begins, and how late that is: without ticks it is never late."""
        wall = self._clock.wall()
        self._began = (offsets.batch, self._clock.monotonic(), wall)
        late_ms = max(0.0, (wall - offsets.time) / 1_000) if self._ticks else 0.0
        self._load = {"late_ms": round(late_ms, 3), **({"waiting": self._waiting} if self._live else {})}

    def on_batch_completed(self, commit: Commit) -> None:
        """Learn from a batch.

        One that another driver began is not measured, because its time is not known. One that has sent quarantined
        rows again is not either: its rows are not those of the sources alone.
        """
        began, self._began = self._began, None
        if self._estimator is None or began is None or began[0] != commit.batch or _sends_again(commit):
            return
        _, monotonic, _ = began
        now = self._clock.monotonic()
        took_ms, late_ms = (now - monotonic) * 1_000, self._load["late_ms"]
        rate = learned(self._estimator, self._measurement(commit, self._zero_ms + now * 1_000, took_ms, late_ms))
        self._rate = self._rate if rate is None else rate
        self._note_interval()

    def _started_at(self, last: int) -> float:
        """Return the milliseconds since 1970 from which monotonic time counts, not before the last batch time.

        A clock that is set back would else have estimators that use the time give no rate until it has caught up.
        """
        return max(self._clock.wall(), last) / 1_000 - self._clock.monotonic() * 1_000

    def _new_estimator(self) -> RateEstimator | None:
        make = self._policy.estimator
        estimator = make(self._own_ms) if make is not None and self._sources else None
        if isinstance(estimator, CostModel):
            estimator.pacing = Pacing.TICKS if self._ticks else Pacing.AT_ONCE
            if not self._adapts:
                estimator.longest_interval_ms = estimator.batch_interval_ms
        return estimator

    def _rows(self, commit: Commit) -> int:
        return sum(commit.accounting.get(f"source:{name}", {}).get("read", 0) for name in self._sources)

    def _measured(self, commit: Commit) -> Measurement:
        """Return what the log tells of a batch: its stages up to the Commit, which are most of its time."""
        took_ms = sum(commit.timings.values())
        return self._measurement(commit, commit.time / 1_000, took_ms, commit.load.get("late_ms", 0.0))

    def _measurement(self, commit: Commit, end_ms: float, took_ms: float, late_ms: float) -> Measurement:
        return Measurement(end_ms, self._rows(commit), took_ms, late_ms, took_ms * pause_share(commit.load))

    def _note_interval(self) -> None:
        """Read the interval that rates are for, which a cost model lengthens (SEMANTICS 8.4).

        Batch times stay multiples of the job's interval. A batch of the longer one takes several of its ticks, which
        merge into one (1.3).
        """
        if not isinstance(self._estimator, CostModel) or self._estimator.interval_ms == self._interval_ms:
            return
        seconds, before = self._estimator.interval_ms / 1_000, self._interval_ms / 1_000
        log.warning("rates.interval", seconds=seconds, before=before, fixed_ms=round(self._estimator.fixed_ms, 1))
        self._interval_ms = self._estimator.interval_ms


def _sends_again(commit: Commit) -> bool:
    """Return whether a batch has sent quarantined rows through again (decision 134)."""
    return any(name.startswith("requeue:") and counts.get("read") for name, counts in commit.accounting.items())
