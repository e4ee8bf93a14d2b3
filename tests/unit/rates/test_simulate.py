"""Estimators on a simulated plant: they converge, clear a burst, and survive pauses of a garbage collector."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates import Constant, CostModel, PIDRateEstimator, RateEstimator
from penstock.rates.load import Load
from penstock.rates.simulate import Interval, Plant, Simulation, simulate

MAKERS: dict[str, Callable[[], RateEstimator | None]] = {
    "constant": lambda: Constant(3_000),
    "pid": PIDRateEstimator,
    "cost model": CostModel,
    "off": lambda: None,
}
every_estimator = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)

BURST_AT = 90
BURST = Load.of_steps([(60, 100), (30, 0), (20, 1_000), (60, 100)])
"""A quiet minute, half a minute of nothing, then ten times the rows."""
FLOOD = Load.of_steps([(120, 50_000)])
"""More than any plant here can process."""


def late_rows(simulation: Simulation, last: int = 20) -> list[int]:
    """Return the rows of the last batches."""
    return [batch.rows for batch in simulation.batches[-last:]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("make", "rows"), [(PIDRateEstimator, 14_000), (CostModel, 11_000), (lambda: Constant(3_000), 3_000)],
    ids=["pid", "cost model", "constant"],
)  # fmt: skip
def test_a_flood_is_met_with_the_rows_that_fit(make: Callable[[], RateEstimator], rows: int, seed: int) -> None:
    """300 ms and 0.05 ms a row: PID fills the interval, the cost model 85 percent, and both stay there."""
    settled = late_rows(simulate(Plant(load=FLOOD, fixed_ms=300), make(), seed=seed))
    assert median(settled) == pytest.approx(rows, rel=0.1)
    assert max(settled) < 1.35 * rows
    assert min(settled) > 0.65 * rows


@pytest.mark.parametrize("seed", range(4))
def test_the_cost_model_leaves_no_batch_late(seed: int) -> None:
    """The headroom takes what noise there is, where PID is late again and again."""
    plant = Plant(load=FLOOD, fixed_ms=300)
    late = {
        name: sum(batch.late_ms > 0 for batch in simulate(plant, MAKERS[name](), seed=seed).batches[20:])
        for name in ("pid", "cost model")
    }
    assert late["cost model"] <= 2
    assert late["pid"] >= 20


@pytest.mark.parametrize("seed", range(10))
def test_a_burst_is_cleared_sooner_than_by_pid(seed: int) -> None:
    """Issue 19, Speed: a burst of ten times, the backlog gone 1.5 times sooner, and at most half the worst delay."""
    pid, costs = (simulate(Plant(load=BURST), make(), seed=seed) for make in (PIDRateEstimator, CostModel))
    gone, sooner = pid.caught_up(BURST_AT), costs.caught_up(BURST_AT)
    assert gone is not None
    assert sooner is not None
    assert gone >= 1.5 * sooner
    assert costs.worst_delay_ms(BURST_AT) <= 0.5 * pid.worst_delay_ms(BURST_AT)


@pytest.mark.parametrize("fixed", [50.0, 150.0, 300.0, 600.0])
def test_a_burst_is_cleared_as_soon_as_the_limit_of_growth_allows(fixed: float) -> None:
    """8.4: of a burst of ten times the first batch reads four times as much, and the second all that waits."""
    gone = simulate(Plant(load=BURST, fixed_ms=fixed, noise=0), CostModel()).caught_up(BURST_AT)
    assert gone == pytest.approx(2 + (fixed + 0.05 * 1_600) / 1_000, abs=0.01)


def test_a_burst_is_cleared_sooner_where_the_collector_pauses() -> None:
    """The same for half of all runs or more, with a pause of 1.5 seconds in one batch of fifty, before or after."""
    plant = Plant(load=BURST, pause_chance=0.02)
    times, delays = [], []
    for seed in range(20):
        pid, costs = (simulate(plant, make(), seed=seed) for make in (PIDRateEstimator, CostModel))
        times.append((pid.caught_up(BURST_AT) or 0) / (costs.caught_up(BURST_AT) or 1e9))
        delays.append(costs.worst_delay_ms(BURST_AT) / pid.worst_delay_ms(BURST_AT))
    assert median(times) >= 1.5
    assert median(delays) <= 0.5


@pytest.mark.parametrize("seed", range(3))
def test_pauses_do_not_slow_a_job_for_good(seed: int) -> None:
    """One batch of ten pauses for 1.5 seconds; after each, the cost model is back at what fits."""
    plant = Plant(load=FLOOD, fixed_ms=300, pause_chance=0.1)
    settled = late_rows(simulate(plant, CostModel(), seed=seed), last=50)
    assert median(settled) == pytest.approx(11_000, rel=0.15)


def test_a_longer_interval_carries_what_the_fixed_cost_forbids() -> None:
    """SEMANTICS 8.4: 1.2 seconds a batch, and ticks of one second: only the longer interval keeps up."""
    plant = Plant(load=Load.of_steps([(200, 1_000)]), fixed_ms=1_200)
    fixed = simulate(plant, CostModel(), adapts=Interval.FIXED)
    adaptive = simulate(plant, CostModel(), adapts=Interval.ADAPTIVE)
    assert fixed.batches[-1].left > 50_000
    assert adaptive.batches[-1].left == 0
    assert {batch.interval_ms for batch in adaptive.batches[20:]} == {2_000}


def rows_a_second(simulation: Simulation, after: int) -> float:
    """Return the throughput once so many batches are done."""
    settled = simulation.batches[after:]
    return sum(batch.rows for batch in settled[:-1]) / (settled[-1].second - settled[0].second)


@pytest.mark.parametrize("longest_ms", [4_000, 60_000])
def test_a_lasting_backlog_is_read_at_three_quarters_of_the_best_rate_or_more(longest_ms: float) -> None:
    """SEMANTICS 8.4, as a law: whatever the costs, after ten batches, within the longest interval that may be.

    The best is a batch after the other, each of the longest length. Without noise it is 85 percent or more. Ten batches
    are what it takes to learn the costs and to double the interval; the first one alone may last for minutes.
    """

    @settings(max_examples=examples(6), deadline=None)
    @given(
        st.floats(0, 0.5 * 0.85 * longest_ms).filter(lambda ms: ms <= 3_000),
        st.floats(0.01, 2),
        st.sampled_from([(0.85, 0.0), (0.75, 0.1)]),
        st.integers(0, 5),
    )
    def law(fixed: float, row: float, share_and_noise: tuple[float, float], seed: int) -> None:
        share, noise = share_and_noise
        plant = Plant(load=Load.of_steps([(400, 10**6)]), fixed_ms=fixed, row_ms=row, noise=noise)
        model = CostModel(longest_interval_ms=longest_ms)
        simulation = simulate(plant, model, adapts=Interval.ADAPTIVE, seed=seed)
        best = (1 - fixed / (0.85 * longest_ms)) * 1000 / row
        assert rows_a_second(simulation, after=10) >= share * best
        assert max(batch.interval_ms for batch in simulation.batches) <= longest_ms

    law()


@pytest.mark.parametrize("fixed", [300, 840, 850, 1_200])
def test_a_fixed_cost_near_the_interval_does_not_starve_a_backlog(fixed: float) -> None:
    """200,000 rows come at once, in ticks of a second: gone within twice the time that one batch of them takes."""
    plant = Plant(load=Load.of_steps([(60, 500), (1, 200_000), (100, 1_500)]), fixed_ms=fixed)
    gone = simulate(plant, CostModel(), adapts=Interval.ADAPTIVE).caught_up(61)
    assert gone is not None
    assert gone < 2 * (200_000 * 0.05 / 1000 + fixed / 1000)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fixed", [20, 300, 840, 1_200])
def test_a_load_that_can_be_carried_is_delayed_by_few_batches(fixed: float, seed: int) -> None:
    """Three quarters of what the machine can do: rows wait for two of the batches that carry that, and one tick."""
    load = 0.75 * 20_000 * 0.85
    plant = Plant(load=Load.of_steps([(180, load)]), fixed_ms=fixed)
    simulation = simulate(plant, CostModel(), adapts=Interval.ADAPTIVE, seed=seed)
    length = fixed / (1 - load * 0.05 / 1000)
    assert simulation.worst_delay_ms(60) <= 2 * length + 1_000
    assert simulation.batches[-1].left <= 0.001 * load * (2 * length + 1_000)


def test_before_the_first_estimate_a_batch_is_capped() -> None:
    """SEMANTICS 8.3: so many rows a second of each partition, whatever waits."""
    plant = Plant(load=Load.of_counts([100, 101, 160], [10**6, 0, 0]), shares=(1, 1))
    first = simulate(plant, CostModel(), first_rate=500, interval_ms=2_000).batches[0]
    assert (first.rows, first.rate) == (2_000, None)


def test_a_job_that_waits_for_rows_runs_no_batch() -> None:
    """SEMANTICS 1.4: without rows there is nothing to do here, and ticks go by."""
    batches = simulate(Plant(load=BURST), CostModel()).batches
    assert not [batch for batch in batches if 62 < batch.second < 90]


@every_estimator
def test_rows_are_read_once_within_their_limits(make: Callable[[], RateEstimator | None]) -> None:
    """As a law: no more than has arrived, no more than the rate gives and one row a partition, and what is left adds up."""

    @settings(max_examples=examples(15), deadline=None)
    @given(
        st.lists(st.tuples(st.floats(1, 20), st.floats(0, 20_000)), min_size=1, max_size=4),
        st.floats(0, 2_000),
        st.floats(0, 0.5),
        st.floats(0, 0.3),
        st.integers(0, 5),
    )
    def law(steps: list[tuple[float, float]], fixed: float, row: float, chance: float, seed: int) -> None:
        plant = Plant(load=Load.of_steps(steps), fixed_ms=fixed, row_ms=row, pause_chance=chance)
        read = 0
        for batch in simulate(plant, make(), seed=seed, max_rate=8_000).batches:
            assert 0 < batch.rows <= len(plant.shares) * 8_000 * batch.interval_ms / 1000
            assert batch.rate is None or batch.rows <= batch.rate * batch.interval_ms / 1000 + len(plant.shares)
            read += batch.rows
            assert 0 <= plant.load.arrived(batch.second) - read - batch.left <= len(plant.shares)
            assert batch.delay_ms >= 0
            assert 0 <= batch.late_ms < batch.interval_ms

    law()


@every_estimator
def test_a_seed_gives_the_same_run(make: Callable[[], RateEstimator | None]) -> None:
    """Pictures of the documentation are made again and compared."""
    plant = Plant(load=BURST, pause_chance=0.1)
    assert simulate(plant, make(), seed=7) == simulate(plant, make(), seed=7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plant(load=BURST, fixed_ms=-1), "fixed_ms is 0 or more"),
        (lambda: Plant(load=BURST, noise=float("nan")), "noise is a finite number"),
        (lambda: Plant(load=BURST, shares=(1, 0)), "the share of a partition is above 0"),
        (lambda: simulate(Plant(load=BURST), None, interval_ms=0), "interval_ms is above 0"),
        (lambda: simulate(Plant(load=BURST), None, seconds=-1), "seconds is above 0"),
        (lambda: simulate(Plant(load=BURST), CostModel(), max_rate=0.5), "below min_rate of 1"),
    ],
    ids=["cost", "noise", "share", "interval", "end", "cap"],
)
def test_what_cannot_be_simulated_is_named(make: Callable[[], object], message: str) -> None:
    """Before or in the first batch."""
    with pytest.raises(ConfigError, match=message):
        make()
