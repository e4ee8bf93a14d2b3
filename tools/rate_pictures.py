"""Draw the pictures of docs/rates.md by runs of the simulator.

python -m tools.rate_pictures            # print them
python -m tools.rate_pictures --write    # put them in place
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from math import inf
from statistics import median

from penstock.rates import CostModel, PIDRateEstimator
from penstock.rates.load import Load
from penstock.rates.picture import picture
from penstock.rates.simulate import Interval, Plant, simulate
from tools.drawings import PICTURES

BURST = Load.of_steps([(60, 100), (30, 0), (20, 1_000), (60, 100)])
"""That of `penstock simulate`: a quiet minute, a pause, and a burst of ten times."""
_BURST_AT = 90
"""Seconds."""
_SHOWN = Load.of_steps([(20, 100), (5, 0), (20, 1_000), (15, 100)])
"""The same with less of the quiet, so that a picture shows the burst."""


def burst_picture() -> str:
    """Draw a burst of ten times, with PID and with the cost model."""
    plant = Plant(load=_SHOWN)
    runs = {"cost model": simulate(plant, CostModel()), "PID": simulate(plant, PIDRateEstimator())}
    return picture(runs, _SHOWN, "A burst of ten times: 600 ms a batch, 0.05 ms a row, 5% noise")


def pauses_picture() -> str:
    """Draw a steady load of a job whose collector pauses one batch in twenty."""
    load = Load.of_steps([(90, 2_500)])
    plant = Plant(load=load, pause_chance=0.05)
    runs = {
        "cost model": simulate(plant, CostModel(), seed=3),
        "PID": simulate(plant, PIDRateEstimator(), seed=3),
    }
    return picture(runs, load, "A steady load, and pauses of 1.5 s in one batch of twenty")


def interval_picture() -> str:
    """Draw a job whose fixed cost is above the interval, with and without another interval."""
    load = Load.of_steps([(60, 1_000)])
    plant = Plant(load=load, fixed_ms=1_200)
    runs = {
        "adaptive interval": simulate(plant, CostModel(), adapts=Interval.ADAPTIVE),
        "fixed interval": simulate(plant, CostModel()),
    }
    return picture(runs, load, "1.2 s a batch, and an interval of 1 s")


def burst_table(runs: int = 5) -> list[str]:
    """Return the lines of the page's table: medians of runs with a fixed cost of 300 to 700 ms."""
    lines = []
    for fixed_ms in (300, 400, 500, 600, 700):
        plant = Plant(load=BURST, fixed_ms=fixed_ms)
        shown = []
        for make in (PIDRateEstimator, CostModel):
            made = [simulate(plant, make(), seed=seed) for seed in range(runs)]
            gone = median(simulation.caught_up(_BURST_AT) or 0.0 for simulation in made)
            delay = median(simulation.worst_delay_ms(_BURST_AT) for simulation in made) / 1000
            shown.append((f"{gone:.1f} s", f"{delay:.1f} s"))
        (pid, pid_delay), (costs, costs_delay) = shown
        lines.append(f"| {fixed_ms} ms | {pid} | {costs} | {pid_delay} | {costs_delay} |")
    return lines


def backlog_table(runs: int = 3) -> list[str]:
    """Return the lines of the table of a backlog of 200,000 rows that comes within a second: medians of runs."""
    load = Load.of_steps([(60, 500), (1, 200_000), (100, 1_500)])
    lines = []
    for fixed_ms in (300, 600, 850, 1_200):
        plant = Plant(load=load, fixed_ms=fixed_ms)
        shown = []
        for make, adapts in (
            (PIDRateEstimator, Interval.FIXED),
            (CostModel, Interval.FIXED),
            (CostModel, Interval.ADAPTIVE),
        ):
            gone = [simulate(plant, make(), adapts=adapts, seed=seed).caught_up(61) for seed in range(runs)]
            seconds = median(inf if second is None else second for second in gone)
            shown.append("not in 100 s" if seconds == inf else f"{seconds:.0f} s")
        lines.append(f"| {fixed_ms:,} ms | {' | '.join(shown)} |")
    return lines


DRAWINGS: Mapping[str, Callable[[], str]] = {
    "rates-burst.svg": burst_picture,
    "rates-pauses.svg": pauses_picture,
    "rates-interval.svg": interval_picture,
}


def main() -> int:
    """Write the pictures where the command says `--write`, else print them; print the lines of the tables."""
    for name, draw in DRAWINGS.items():
        if sys.argv[1:] == ["--write"]:
            (PICTURES / name).write_text(draw(), encoding="utf-8")
        else:
            print(draw())
    print(*burst_table(), *backlog_table(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
