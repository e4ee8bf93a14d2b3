"""The log of a job as a plant: the rows that arrived, and the costs as they were fitted."""

from __future__ import annotations

import pytest
from checkpoint_samples import commit

from penstock.errors import HistoryTooShort
from penstock.runtime.inspect.history import history_of

ROWS = (100, 900, 400, 0, 1_600, 200, 800)


def batch(number: int, rows: int, **more):
    """Return a Commit of so many rows, 300 ms and 0.1 ms a row, two seconds after the one before."""
    timings = {"FixOffsets": 20.0, "Compute": 280 + 0.1 * rows}
    facts = {"time": number * 2_000_000, "timings": timings, "accounting": {"source:o": {"read": rows}}}
    return commit(number, **facts | more)


def test_costs_and_arrivals_come_from_the_log() -> None:
    """A batch without rows is a time in which none arrived, and says nothing of costs."""
    history = history_of("orders", [batch(k, rows) for k, rows in enumerate(ROWS)])
    assert (history.batches, history.settled) == (7, True)
    assert history.plant.fixed_ms == pytest.approx(300)
    assert history.plant.row_ms == pytest.approx(0.1)
    assert history.plant.noise == pytest.approx(0, abs=1e-9)
    load = history.plant.load
    assert [round(load.arrived(second)) for second in (2, 4, 6, 8, 10, 12, 14)] == [
        100,
        1000,
        1400,
        1400,
        3000,
        3200,
        4000,
    ]


def test_rows_that_a_limit_held_back_have_arrived() -> None:
    """A job that reads 100 of 300 rows a batch gets 300, and a pause, or less than what waits, takes none back."""
    waiting, rows = (300, 500, 700, 700, 600, 500, 400), (100, 100, 100, 100, 100, 100, 100)
    batches = [
        batch(k, n, load={"waiting": float(w)}) for k, (w, n) in enumerate(zip(waiting, (*rows[:-1], 150), strict=True))
    ]
    load = history_of("orders", batches).plant.load
    assert [round(load.arrived(2 * (k + 1))) for k in range(7)] == [300, 600, 900, 1_000, 1_000, 1_000, 1_000]
    # Beside a live source of 10 rows a batch, a replay reads 500.
    beside = [batch(k, 510, load={"waiting": 10.0}) for k in range(3)]
    load = history_of("orders", beside).plant.load
    assert [round(load.arrived(second)) for second in (2, 4, 6)] == [510, 1_020, 1_530]
    # Offsets of compacted records wait as well, and no row comes of them.
    fewer = [batch(k, 10, load={"waiting": w}) for k, w in enumerate((500.0, 300.0, 100.0))]
    load = history_of("orders", fewer).plant.load
    assert [round(load.arrived(second)) for second in (2, 4, 6)] == [500, 500, 500]


def test_noise_is_what_costs_do_not_explain() -> None:
    """One batch in two takes a tenth longer, the others a tenth less."""
    noisy = [
        batch(
            k,
            1_000 + k % 4 * 500,
            timings={"Compute": (300 + 0.1 * (1_000 + k % 4 * 500)) * (1.1 if k // 4 % 2 else 0.9)},
        )
        for k in range(16)
    ]
    assert history_of("orders", noisy).plant.noise == pytest.approx(0.1, rel=0.2)


def test_batches_that_hardly_differ_say_so() -> None:
    """The split of the costs is then a guess."""
    assert not history_of("orders", [batch(k, 500 + k % 2) for k in range(9)]).settled


@pytest.mark.parametrize(
    "commits",
    [[], [batch(0, 5), batch(1, 5)], [batch(k, 0) for k in range(9)], [batch(k, 5, timings={}) for k in range(9)]],
    ids=["none", "two", "no rows", "no timings"],
)
def test_too_little_history_is_named(commits) -> None:
    """With how many batches there are."""
    with pytest.raises(HistoryTooShort, match="the log of orders has . batches with rows and timings, 3 are needed"):
        history_of("orders", commits)
