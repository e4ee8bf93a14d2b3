"""The cost model: a rate by what a batch and a row cost (SEMANTICS 8.4)."""

from __future__ import annotations

from math import isfinite

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates import CostModel
from penstock.rates.cost_model import Pacing

FIXED, PER_ROW = 300.0, 0.04


def taught(model: CostModel, fixed: float = FIXED, per_row: float = PER_ROW, batches: int = 30) -> CostModel:
    """Return the model after it has chosen the rows of so many batches of a plant without noise."""
    rows = 100
    for k in range(batches):
        rate = model.compute(k * model.interval_ms, rows, fixed + per_row * rows, 0)
        assert rate is not None
        rows = int(rate * model.interval_ms / 1000)
    return model


def test_a_batch_fills_the_headroom_of_the_interval() -> None:
    """(0.85 x 1,000 - 300) / 0.04 rows."""
    assert taught(CostModel()).rate() == pytest.approx(13_750, rel=0.02)
    assert taught(CostModel(headroom=0.5)).rate() == pytest.approx(5_000, rel=0.02)


def test_the_delay_of_a_batch_is_taken_off_the_next() -> None:
    """What began 250 ms late may take 250 ms less."""
    assert taught(CostModel()).rate(scheduling_ms=250) == pytest.approx(7_500, rel=0.02)
    assert taught(CostModel()).rate(scheduling_ms=5_000) == 100


def test_growth_is_at_most_fourfold() -> None:
    """Beyond the largest batch that is remembered, no cost is proven: 100, 400, 1,600, and so on."""
    model, rows, sizes = CostModel(), 100, []
    for k in range(5):
        rows = int(model.compute(1000 * k, rows, FIXED + PER_ROW * rows, 0) or 0)
        sizes.append(rows)
    assert all(after <= 4 * before for before, after in zip([100, *sizes], sizes, strict=False))
    assert sizes[-1] > 10_000


def test_a_quiet_time_does_not_unlearn_a_busy_one() -> None:
    """After ten small batches a burst gets more than four times their rows: larger ones were proven just before."""
    model = taught(CostModel())
    for k in range(10):
        rate = model.compute(100_000 + 1000 * k, 100, FIXED + PER_ROW * 100, 0)
    assert rate == pytest.approx(13_750, rel=0.05)


def test_a_batch_without_rows_teaches_nothing() -> None:
    """SEMANTICS 1.4: time made it due. The rate before stays in force."""
    model = taught(CostModel())
    rate = model.rate()
    assert model.compute(99_000, 0, 5, 0) is None
    assert model.rate() == rate


@pytest.mark.parametrize(("pause_ms", "grows"), [(0, True), (90, True), (200, False)])
def test_a_batch_that_paused_much_ends_growth(pause_ms: float, grows: bool) -> None:  # noqa: FBT001
    """More rows mean more memory: above a fifth of the batch in pauses, the next is no larger."""
    model = CostModel(min_rate=1)
    model.compute(0, 100, 300, 0)
    rate = model.compute(1000, 400, 500, 0, pause_ms=pause_ms)
    assert rate is not None
    assert (rate > 400) is grows
    assert rate >= 400


def test_a_fixed_cost_above_the_interval_makes_the_interval_grow() -> None:
    """SEMANTICS 8.4: the rate is not below the floor; of an interval of two seconds the batch fills its headroom."""
    model = taught(CostModel(), fixed=1_500)
    assert model.rate() == 100
    advice = model.advice()
    assert advice.interval_ms == 2_000
    assert 1_000 < advice.needed_ms <= 2_000
    model.interval_ms = advice.interval_ms
    taught(model, fixed=1_500)
    assert model.rate() == pytest.approx((0.85 * 2_000 - 1_500) / PER_ROW / 2, rel=0.05)


def test_the_interval_shrinks_when_the_fixed_cost_has_gone() -> None:
    """Back to the job's own, from the third batch that is so much faster."""
    model = taught(CostModel(), fixed=1_500)
    model.interval_ms = model.advice().interval_ms
    taught(model, fixed=1_500)
    advised = []
    for k in range(20):
        rows = 1_000 + 700 * (k % 4)
        model.compute(100_000 + 2_000 * k, rows, 300 + PER_ROW * rows, 0)
        advised.append(model.advice().interval_ms)
    assert advised[-1] == 1_000
    assert advised.index(1_000) <= 4


def test_an_interval_that_is_hardly_enough_is_not_left_and_taken_again() -> None:
    """Costs that swing about the limit of one interval keep the longer one."""
    model, advised = CostModel(), []
    for k in range(100):
        model.compute(1000 * k, 100 + k % 7, 825 + 40 * (k % 3 - 1), 0)
        advised.append(model.advice().interval_ms)
    assert len(set(advised[20:])) == 1


def test_no_interval_is_enough_for_rows_that_cost_more_than_they_bring() -> None:
    """10 ms a row at a floor of 100 rows a second: the advice is the job's own interval, and says that none suffices."""
    model = taught(CostModel(), fixed=100, per_row=10)
    model.interval_ms = model.advice().interval_ms
    advice = taught(model, fixed=100, per_row=10).advice()
    assert advice.interval_ms == 1_000
    assert not isfinite(advice.needed_ms)


def test_an_interval_has_a_longest() -> None:
    """A fixed cost of a minute, and half a minute at most, in whole intervals."""
    assert taught(CostModel(longest_interval_ms=30_500), fixed=60_000).advice().interval_ms == 30_000


def flooded(model: CostModel, fixed: float, batches: int = 12, late: float = 0.0) -> list[float]:
    """Return the intervals in force while so many batches have all the rows that the rate gives."""
    rows, intervals = 100.0, []
    for k in range(batches):
        model.compute(1_000 * k, int(rows), fixed + PER_ROW * int(rows), late)
        rate = model.adopt()
        assert rate is not None
        intervals.append(model.interval_ms)
        rows = rate * model.interval_ms / 1000
    return intervals


def test_the_interval_doubles_while_a_backlog_lasts() -> None:
    """After each two full batches, until the fixed cost takes 15 percent of one."""
    intervals = flooded(CostModel(), fixed=700, batches=30)
    assert sorted(set(intervals)) == [1_000, 2_000, 4_000, 6_000]
    assert intervals == sorted(intervals)
    assert intervals.count(2_000) >= 2


@pytest.mark.parametrize(("pacing", "interval_ms"), [(Pacing.TICKS, 2_000), (Pacing.AT_ONCE, 1_000)])
def test_a_small_fixed_cost_is_a_reason_where_batches_wait_for_ticks(pacing: Pacing, interval_ms: float) -> None:
    """A batch of 85 percent of one tick leaves the rest unused; a batch of two ticks is followed at once."""
    model = CostModel()
    model.pacing = pacing
    assert flooded(model, fixed=20, batches=30)[-1] == interval_ms


def test_a_backlog_doubles_no_interval_that_nobody_adopts() -> None:
    """Who reads the advice and keeps the interval has no longer batches to learn from."""
    model = taught(CostModel(), fixed=700)
    assert model.advice().interval_ms == 1_000


def test_what_another_limit_bounds_is_no_backlog_of_the_model() -> None:
    """Batches of 2,000 rows, where 3,750 would fit: the interval stays, however long that lasts."""
    model = CostModel()
    for k in range(20):
        rows = 2_000 + 900 * (k % 2)
        model.compute(1_000 * k, rows, 700 + PER_ROW * rows, 0)
        model.adopt()
    assert model.interval_ms == 1_000


def test_a_batch_of_several_ticks_may_begin_late_by_all_but_one() -> None:
    """Ticks merge, so a delay below a tick is the time of day at which the last batch ended, and no arrears."""
    model = CostModel()
    flooded(model, fixed=700, batches=30)
    assert model.interval_ms == 6_000
    assert model.rate(scheduling_ms=999) == model.rate()
    assert model.rate(scheduling_ms=5_000) == model.rate()
    late = model.rate(scheduling_ms=5_500)
    assert late is not None
    assert late == pytest.approx((0.85 * 6_000 - 500 - 700) / PER_ROW / 6, rel=0.02)


def test_the_interval_is_the_jobs_own_again_when_batches_are_small() -> None:
    """A backlog is gone: as the large batches fade, so does the interval for them."""
    model, intervals = CostModel(), []
    flooded(model, fixed=500, batches=30)
    for k in range(40):
        model.compute(100_000 + 1_000 * k, 500 + k, 500 + PER_ROW * (500 + k), 0)
        model.adopt()
        intervals.append(model.interval_ms)
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[-1] == 1_000


def test_nothing_is_known_before_the_first_batch() -> None:
    """No rate, and the job's own interval."""
    model = CostModel(2_000)
    assert model.rate() is None
    assert model.advice().interval_ms == 2_000


BATCH = st.tuples(st.integers(0, 10**7), st.floats(0, 1e7), st.floats(0, 1e5), st.floats(0, 1e7))


@settings(max_examples=examples(200))
@given(st.lists(BATCH, max_size=40), st.sampled_from([100, 1_000, 60_000]), st.sampled_from([1.0, 100.0]))
def test_a_rate_is_between_the_floor_and_the_proven_growth(
    batches: list[tuple[int, float, float, float]], interval_ms: float, least: float
) -> None:
    """As a law: finite, not below the floor, and no batch is over four times the largest before it."""
    model, largest = CostModel(interval_ms, min_rate=least), 0
    for k, (rows, ms, late, paused) in enumerate(batches):
        rate = model.compute(k, rows, ms, late, pause_ms=paused)
        assert (rate is None) is not (rows > 0 and ms > 0)
        if rate is None:
            continue
        largest = max(largest, rows)
        assert least <= rate <= max(least, 4 * largest * 1000 / interval_ms * (1 + 1e-9))
        assert interval_ms <= model.advice().interval_ms <= 60 * interval_ms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_interval_ms": 0}, "batch_interval_ms is above 0"),
        ({"headroom": 0}, "headroom is above 0"),
        ({"headroom": 1.2}, "headroom is at most 1"),
        ({"growth": 0.9}, "growth is 1 or more"),
        ({"min_rate": 0}, "min_rate is above 0"),
        ({"min_rate": float("nan")}, "min_rate is a finite number"),
        ({"memory": 0}, "memory is 1 or more"),
        ({"pause_share": -1}, "pause_share is above 0"),
        ({"longest_interval_ms": 10}, "longest_interval_ms is 10, below batch_interval_ms of 1000"),
    ],
    ids=str,
)
def test_an_argument_out_of_range_is_named(arguments: dict[str, float], message: str) -> None:
    """Before the first batch, as the job is built."""
    with pytest.raises(ConfigError, match=message):
        CostModel(**arguments)


def test_an_interval_in_force_is_above_zero() -> None:
    """A driver that adopts another one says which."""
    with pytest.raises(ConfigError, match="interval_ms is above 0"):
        CostModel().interval_ms = 0
