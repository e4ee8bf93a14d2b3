"""Compare the cost model with PID on a simulated machine: a burst of ten times the rows after half a minute of nothing.

No part of it depends on the machine that runs it: seeds give the same figures everywhere.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import Claim, report
from penstock.rates import CostModel, PIDRateEstimator
from penstock.rates.load import Load
from penstock.rates.simulate import Plant, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_burst"]

_BURST_AT = 90
_LOAD = Load.of_steps([(60, 100), (30, 0), (20, 1_000), (60, 100)])
_FIXED = (30.0, 80.0, 150.0, 300.0, 600.0)
"""Milliseconds that a batch costs whatever it reads; the last one is that of a `Plant` that says nothing."""
_CLAIMED = _FIXED[-1]
_SHOWN = ("fixed ms", "PID gone, s", "cost model", "ratio", "PID worst, ms", "cost model")


def run_burst(_spark: SparkSession | None, *, quick: bool) -> list[Claim]:
    """Simulate a burst with both estimators: seconds until the backlog is gone, and the worst delay of a row."""
    seeds = range(3 if quick else 20)
    with report("burst") as results:
        rows = []
        for fixed in _FIXED:
            plant = Plant(load=_LOAD, fixed_ms=fixed)
            runs = [[simulate(plant, make(), seed=seed) for seed in seeds] for make in (PIDRateEstimator, CostModel)]
            gone = [median(run.caught_up(_BURST_AT) or float("inf") for run in side) for side in runs]
            delays = [median(run.worst_delay_ms(_BURST_AT) for run in side) for side in runs]
            rows.append((fixed, gone[0], gone[1], gone[0] / gone[1], *delays))
            if fixed == _CLAIMED:
                results.claim(
                    Claim("burst, backlog gone sooner than by PID", gone[0] / gone[1], 1.5, "x"),
                    Claim("burst, worst delay to that of PID", delays[1] / delays[0], 0.5, "x", at_most=True),
                )
        results.table(f"a burst of ten times the rows, medians of {len(seeds)} seeds", _SHOWN, rows)
    return results.claims
