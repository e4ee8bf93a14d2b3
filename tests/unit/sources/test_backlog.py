"""What one batch reads of each partition: limits divided by what waits, and the end of a bounded run (SEMANTICS 8.2)."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rates import partition_limits
from penstock.rates.division import partition_bounds, rows_within
from penstock.sources.backlog import ReadLimit, Waiting, WaitingFile, clamp, divide, left_behind


def rows(**waiting: int) -> dict[str, Waiting]:
    """Return partitions of which so many rows wait behind place 10."""
    return {name: Waiting.of_rows(10, 10 + n) for name, n in waiting.items()}


def in_files(*sizes: tuple[int, int]) -> Waiting:
    """Return files behind place 10, by their places and bytes; each place has two rows."""
    ends = [10 + sum(places for places, _ in sizes[: i + 1]) for i in range(len(sizes))]
    files = [WaitingFile(end, size) for end, (_, size) in zip(ends, sizes, strict=True)]
    last, total = max([10, *ends]), sum(size for _, size in sizes)
    return Waiting(next=10, latest=last, rows=2 * (last - 10), batch_end=last, bytes=total, files=files)


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


@pytest.mark.parametrize(
    ("limit", "read"),
    [
        (ReadLimit(partition_most=4), {"a": 4, "b": 4, "c": 0}),
        (ReadLimit(rows=6, partition_most=4), {"a": 3, "b": 3, "c": 0}),
        (ReadLimit(rows=20), {"a": 18, "b": 2, "c": 0}),
        (ReadLimit(rows=20, partition_least=5), {"a": 15, "b": 5, "c": 0}),
        (ReadLimit(rows=20, partition_least=30), {"a": 10, "b": 10, "c": 0}),
        (ReadLimit(estimated=20), {"a": 18, "b": 2, "c": 0}),
        (ReadLimit(estimated=20, partition_least=5), {"a": 18, "b": 5, "c": 0}),
        (ReadLimit(estimated=20, partition_least=5, rows=15), {"a": 10, "b": 5, "c": 0}),
        (ReadLimit(estimated=0.1), {"a": 1, "b": 1, "c": 0}),
        (ReadLimit(estimated=1e9), {"a": 90, "b": 10, "c": 0}),
    ],
    ids=[
        "most of a partition", "divided after it", "no floor", "a floor within the limit", "a floor above the limit",
        "an estimate", "a floor goes before the estimate", "and not before the limit", "one each", "all",
    ],
)  # fmt: skip
def test_hard_limits_go_before_the_estimate_and_bounds_of_partitions(limit: ReadLimit, read: dict[str, int]) -> None:
    """DESIGN 8: hard limits, then the estimator, then the division."""
    ends = divide(rows(a=90, b=10, c=0), limit)
    assert {name: end - 10 for name, end in ends.items()} == read


def test_bytes_bound_a_batch_where_a_source_knows_them() -> None:
    """Files: 10 of 100 MB in one folder, 4 of 10 MB in another, and a partition that knows no sizes."""
    waiting = {
        "large": Waiting(next=0, latest=10, rows=1_000, batch_end=10, bytes=1_000),
        "small": Waiting(next=5, latest=9, rows=1_000, batch_end=9, bytes=40),
        "unknown": Waiting.of_rows(0, 7),
    }
    assert divide(waiting, ReadLimit(bytes=520)) == {"large": 5, "small": 7, "unknown": 7}
    assert divide(waiting, ReadLimit(bytes=1)) == {"large": 1, "small": 6, "unknown": 7}
    assert divide(waiting, ReadLimit(bytes=1_040)) == {"large": 10, "small": 9, "unknown": 7}
    assert divide(waiting, ReadLimit(bytes=520, partition_most=300)) == {"large": 3, "small": 6, "unknown": 7}


@pytest.mark.parametrize(
    ("limit", "read"),
    [
        (ReadLimit(files=9), {"folder": 5, "table": 9, "topic": 7}),
        (ReadLimit(files=4), {"folder": 3, "table": 3, "topic": 7}),
        (ReadLimit(files=1), {"folder": 1, "table": 3, "topic": 7}),
        (ReadLimit(files=3, rows=16), {"folder": 2, "table": 3, "topic": 3}),
        (ReadLimit(files=8, bytes=125), {"folder": 1, "table": 3, "topic": 7}),
        (ReadLimit(bytes=1), {"folder": 1, "table": 1, "topic": 7}),
    ],
    ids=["all fit", "by what waits", "one each", "parts of files count", "bytes as well", "a place at least"],
)
def test_files_bound_a_batch_where_places_are_in_files(limit: ReadLimit, read: dict[str, int]) -> None:
    """SEMANTICS 8.5: places that are files, places that are rows of files, and a partition without files."""
    waiting = {
        "folder": in_files((1, 100), (1, 1), (1, 1), (1, 1), (1, 1)),
        "table": in_files((3, 30), (2, 90), (4, 4)),
        "topic": Waiting(next=10, latest=17, rows=7, batch_end=17),
    }
    assert {name: end - 10 for name, end in divide(waiting, limit).items()} == read


SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500)), max_size=12)


@settings(max_examples=examples(100))
@given(
    st.lists(SIZES, min_size=1, max_size=4),
    st.none() | st.integers(1, 15),
    st.none() | st.integers(1, 2_000),
    st.none() | st.integers(1, 60),
)
def test_no_batch_is_above_its_files_or_bytes(
    partitions: list[list[tuple[int, int]]], files: int | None, size: int | None, most: int | None
) -> None:
    """SEMANTICS 8.5 as a law, by files of any sizes: a batch exceeds a limit by the first place of a partition alone.

    In a partition of its own a limit of files is used up.
    """
    waiting = {str(i): in_files(*sizes) for i, sizes in enumerate(partitions)}
    ends = divide(waiting, ReadLimit(files=files, bytes=size, rows=most))
    opened, read, least = [], 0.0, 0.0
    for name, sizes in zip(waiting, partitions, strict=True):
        begins = [10 + sum(places for places, _ in sizes[:i]) for i in range(len(sizes))]
        parts = [(min(ends[name] - begin, n) / n, b) for begin, (n, b) in zip(begins, sizes, strict=True)]
        opened.append(sum(part > 0 for part, _ in parts))
        read += sum(max(0, part) * b for part, b in parts)
        least += sizes[0][1] / sizes[0][0] if sizes else 0
        assert (ends[name] > 10) == bool(sizes)
    if files is not None:
        assert sum(opened) <= max(files, sum(map(bool, partitions)))
    if files is not None and size is None and most is None:
        assert sum(opened) == min(max(files, sum(map(bool, partitions))), sum(map(len, partitions)))
    if size is not None:
        assert read <= size + least + 1e-6


def test_a_file_above_a_limit_of_bytes_does_not_hold_up_those_before_it() -> None:
    """A limit of bytes holds by the sizes of the files, and not by their mean."""
    waiting = {"in": in_files((1, 10), (1, 10), (1, 10), (1, 970))}
    assert divide(waiting, ReadLimit(bytes=40)) == {"in": 13}
    waiting = {"in": in_files((1, 970), (1, 10), (1, 10), (1, 10))}
    assert divide(waiting, ReadLimit(bytes=500)) == {"in": 11}


def test_bytes_up_to_a_target_are_a_part_of_all() -> None:
    """SEMANTICS 1.5, as for rows."""
    files = {"in": Waiting(next=0, latest=10, rows=1_000, batch_end=10, bytes=500), "b": Waiting.of_rows(0, 4)}
    clamped = clamp(files, {"in": 4, "b": 4})
    assert {name: waiting.bytes for name, waiting in clamped.items()} == {"in": 200, "b": None}


@settings(max_examples=examples(100))
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10_000)),
    st.floats(0.5, 5_000),
    st.sampled_from([0.3, 1, 10]),
    st.none() | st.floats(5, 500),
    st.floats(0, 5),
)
def test_an_estimate_is_divided_as_partition_limits_says(
    waiting: dict[str, int], rate: float, seconds: float, max_rate: float | None, min_rate: float
) -> None:
    """SEMANTICS 8.2: End = min(current + rows, latest)."""
    limits = partition_limits(rate, waiting, seconds=seconds, max_rate=max_rate, min_rate=min_rate)
    least, most = partition_bounds(seconds, max_rate=max_rate, min_rate=min_rate)
    limit = ReadLimit(
        estimated=rows_within(rate, seconds),
        partition_most=None if most is None else max(1, most),
        partition_least=max(1, least),
    )
    assert divide(rows(**waiting), limit) == {name: min(10 + limits[name], 10 + n) for name, n in waiting.items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows is 1 or more in a limit, found 0"),
        ({"bytes": -1}, "bytes is 1 or more in a limit, found -1"),
        ({"files": 0}, "files is 1 or more in a limit, found 0"),
        ({"partition_most": 0}, "partition_most is 1 or more in a limit, found 0"),
        ({"partition_least": 0}, "partition_least is 1 or more in a limit, found 0"),
        ({"estimated": float("nan")}, "estimated is a finite number of rows, found nan"),
        ({"estimated": -1}, "estimated is a finite number of rows, found -1"),
    ],
    ids=str,
)
def test_a_limit_of_zero_is_rejected(arguments: dict[str, int], message: str) -> None:
    """It would stop a stream in silence, which a pause does in the open."""
    with pytest.raises(ConfigError, match=message):
        ReadLimit(**arguments)


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


def test_a_batch_leaves_the_rows_behind_its_ends():
    """SEMANTICS 8: of places that hold no row, such as those of transactions, as if rows lay evenly."""
    backlog = rows(a=30, b=0) | {"c": Waiting(next=0, latest=20, rows=10, batch_end=20)}
    assert left_behind(backlog, {"a": 15, "b": 10, "c": 10}) == 25 + 5
    assert left_behind(backlog, {"a": 40, "b": 10, "c": 20}) == 0
    assert left_behind(backlog, {}) == 40
