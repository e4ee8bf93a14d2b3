"""What one batch reads of each partition: limits divided by what waits, and the end of a bounded run (SEMANTICS 8.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.backlog import ReadLimit, Waiting, clamp, divide


def rows(**waiting: int) -> dict[str, Waiting]:
    """Return partitions of which so many rows wait behind place 10."""
    return {name: Waiting.of_rows(10, 10 + n) for name, n in waiting.items()}


@pytest.mark.parametrize(
    ("waiting", "limit", "read"),
    [
        ({"a": 5, "b": 3}, None, {"a": 5, "b": 3}),
        ({"a": 5, "b": 3}, 8, {"a": 5, "b": 3}),
        ({"a": 90, "b": 10}, 10, {"a": 9, "b": 1}),
        ({"a": 99, "b": 1}, 10, {"a": 9, "b": 1}),
        ({"a": 9, "b": 9, "c": 1}, 2, {"a": 1, "b": 1, "c": 1}),
        ({"a": 1_000, "b": 0}, 7, {"a": 7, "b": 0}),
        ({"a": 5, "b": 5, "c": 5}, 7, {"a": 3, "b": 2, "c": 2}),
        ({}, 7, {}),
    ],
    ids=[
        "no limit",
        "all fit",
        "by what waits",
        "none is left out",
        "fewer than partitions",
        "nothing waits",
        "by remainder",
        "no partition",
    ],
)
def test_a_limit_is_divided_by_what_waits(waiting: dict[str, int], limit: int | None, read: dict[str, int]) -> None:
    """SEMANTICS 8.2: a share is the partition's part of the lag; whoever has rows has at least one."""
    ends = divide(rows(**waiting), ReadLimit(rows=limit))
    assert {name: end - 10 for name, end in ends.items()} == read


def test_a_place_may_be_more_than_a_row() -> None:
    """Files, versions, blocks: the share is turned into whole places, at least one."""
    files = {"in": Waiting(next=3, latest=13, rows=1_000, batch_end=13)}
    assert divide(files, ReadLimit(rows=250)) == {"in": 5}
    assert divide(files, ReadLimit(rows=1)) == {"in": 4}


def test_places_without_rows_are_passed() -> None:
    """The markers of transactions in a topic: nothing to read, and nothing to wait for."""
    marked = {"t": Waiting(next=3, latest=5, rows=0, batch_end=5), "u": Waiting.of_rows(0, 9)}
    assert divide(marked, ReadLimit(rows=4)) == {"t": 5, "u": 4}


def test_a_source_bounds_its_own_batches() -> None:
    """FileReplay's rows_per_batch: the smaller of the two counts."""
    bounded = {"0": Waiting.of_rows(0, 100, at_most=20)}
    assert [divide(bounded, ReadLimit(rows=most))["0"] for most in (None, 7, 50, 500)] == [20, 7, 20, 20]


def test_a_target_stays_where_it_is() -> None:
    """SEMANTICS 1.5: a partition that is new since then is left out; one that is past its target reads nothing."""
    clamped = clamp({**rows(a=9, b=2, new=5), "past": Waiting.of_rows(30, 40)}, {"a": 13, "b": 50, "past": 20})
    assert divide(clamped, ReadLimit()) == {"a": 13, "b": 12, "past": 30}
    assert {name: waiting.rows for name, waiting in clamped.items()} == {"a": 3, "b": 2, "past": 0}


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 10_000), max_size=8), st.integers(1, 500)
)
def test_a_division_is_fair_and_starves_nobody(waiting: dict[str, int], limit: int) -> None:
    """SEMANTICS 8.2 as a law: the limit to the row, unless it is below the number of partitions with rows."""
    ends = divide(rows(**waiting), ReadLimit(rows=limit))
    read, lag = {name: end - 10 for name, end in ends.items()}, sum(waiting.values())
    assert all(min(1, n) <= read[name] <= n for name, n in waiting.items())
    assert sum(read.values()) == min(lag, max(limit, sum(n > 0 for n in waiting.values())))
    assert all(read[name] <= limit * n / lag + 1 for name, n in waiting.items() if lag > limit)
