"""A batch reads what the hardest of its limits lets through, and says which that was (SEMANTICS 8.2, 8.3, 8.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.policies import MaxRate
from penstock.rates import partition_limits
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.driver.admission import Pace, admit
from penstock.sources.backlog import Waiting, WaitingFile


def backlog(*rows: int, start: int = 0) -> dict[str, Waiting]:
    """Return a backlog of so many rows by partition, of 10 bytes each, in files of 25."""
    return {
        str(i): Waiting(
            next=start, latest=start + n, rows=n, batch_end=start + n, bytes=10 * n,
            files=[WaitingFile(start + min(n, k + 25), 10 * min(25, n - k)) for k in range(0, n, 25)],
        )
        for i, n in enumerate(rows)
    }  # fmt: skip


def read(admitted, backlogs) -> dict[str, int]:
    """Return how many rows are read of each source."""
    return {
        name: sum(admitted.ends[name][p] - waiting.next for p, waiting in partitions.items())
        for name, partitions in backlogs.items()
    }


def test_without_any_limit_all_is_read_and_nothing_recorded():
    """The Offsets of a job without limits say nothing of them."""
    backlogs = {"a": backlog(1_000, 2_000)}
    admitted = admit(backlogs, Limits(), Pace(sources=frozenset("a")))
    assert (read(admitted, backlogs), admitted.limits) == ({"a": 3_000}, {})


@pytest.mark.parametrize(
    ("limits", "pace", "rate", "rows", "bound"),
    [
        (Limits(rows=70), Pace(), MaxRate(), 70, "rows"),
        (Limits(bytes=800), Pace(), MaxRate(), 80, "bytes"),
        (Limits(files=3), Pace(), MaxRate(), 75, "files"),
        (Limits(files=3, rows=40), Pace(), MaxRate(), 40, "rows"),
        (Limits(files=2, bytes=600), Pace(), MaxRate(), 50, "files"),
        (Limits(max_rate=30), Pace(elapsed=2), MaxRate(), 60, "max_rate"),
        (Limits(), Pace(elapsed=2), MaxRate(rows=20), 40, "max_rate"),
        (Limits(max_rate=30), Pace(elapsed=2), MaxRate(rows=20), 40, "max_rate"),
        (Limits(max_rate=0.1), Pace(), MaxRate(), 2, "max_rate"),
        (Limits(max_rate=3), Pace(elapsed=0.2, has_ticks=False), MaxRate(), 0, "max_rate"),
        (Limits(max_rate_per_partition=30), Pace(), MaxRate(), 60, "max_rate_per_partition"),
        (Limits(), Pace(), MaxRate(per_partition=4), 8, "max_rate_per_partition"),
        (Limits(), Pace(first_batch=25, sources=frozenset("a")), MaxRate(), 50, "first_batch"),
        (Limits(), Pace(rate=90, sources=frozenset("a")), MaxRate(), 90, "rate"),
        (Limits(rows=70), Pace(rate=90, sources=frozenset("a")), MaxRate(), 70, "rows"),
        (Limits(rows=95), Pace(rate=90, sources=frozenset("a")), MaxRate(), 90, "rate"),
        (Limits(paused=True), Pace(), MaxRate(), 0, "paused"),
    ],
)
def test_the_hardest_limit_binds_and_is_named(limits, pace, rate, rows, bound):
    """Each rule alone, and the lower of two."""
    backlogs = {"a": backlog(1_000, 1_000)}
    admitted = admit(backlogs, limits, pace, rates={"a": rate})
    assert (read(admitted, backlogs)["a"], admitted.limits["bound"]) == (rows, {"a": bound})


def test_rates_are_for_live_sources_and_hard_limits_for_all():
    """A replay has its own rows of a batch; who limits it anyway says so."""
    backlogs = {"live": backlog(1_000), "replay": backlog(1_000)}
    pace = Pace(rate=100, sources=frozenset({"live"}))
    assert read(admit(backlogs, Limits(), pace), backlogs) == {"live": 100, "replay": 1_000}
    assert read(admit(backlogs, Limits(rows=40), pace), backlogs) == {"live": 40, "replay": 40}


def test_one_rate_is_divided_among_sources_by_what_waits():
    """SEMANTICS 8.2, over all partitions of all sources."""
    backlogs = {"a": backlog(300, 300), "b": backlog(200)}
    admitted = admit(backlogs, Limits(), Pace(rate=80, sources=frozenset("ab")))
    assert admitted.ends == {"a": {"0": 30, "1": 30}, "b": {"0": 20}}
    assert admitted.limits == {"rate": 80, "bound": {"a": "rate", "b": "rate"}}


@pytest.mark.parametrize(
    "own",
    [SourceLimits(rows=7), SourceLimits(max_rate=7), SourceLimits(bytes=70), SourceLimits(max_rate_per_partition=7)],
)
def test_a_source_with_a_limit_of_its_own_takes_nothing_from_the_others(own):
    """However much waits in it: what it may not read goes to them. Its lag only grows, and theirs must not."""
    backlogs = {"limited": backlog(100_000), "free": backlog(400)}
    admitted = admit(backlogs, Limits(sources={"limited": own}), Pace(rate=300, sources=frozenset(backlogs)))
    rows = read(admitted, backlogs)
    assert rows["limited"] == 7
    assert rows["free"] == 293


@pytest.mark.parametrize("rate", [1_000, 100_000])
def test_a_cap_of_partitions_changes_nothing_for_the_others_of_the_source(rate):
    """SEMANTICS 8.2 beside an estimate: the share of each is by lag, whatever the cap takes from the largest."""
    backlogs = {"a": backlog(100_000, 1_000, 1_000)}
    limits = Limits(max_rate_per_partition=100)
    admitted = admit(backlogs, limits, Pace(rate=rate, sources=frozenset(backlogs)))
    lag = {name: waiting.rows for name, waiting in backlogs["a"].items()}
    assert admitted.ends["a"] == partition_limits(rate, lag, seconds=1, max_rate=100)
    backlogs["b"] = backlog(100_000)
    rows = read(admit(backlogs, limits, Pace(rate=rate, sources=frozenset(backlogs))), backlogs)
    assert rows["b"] == 100
    free = Limits(sources={"a": SourceLimits(max_rate_per_partition=100)})
    rows = read(admit(backlogs, free, Pace(rate=rate, sources=frozenset(backlogs))), backlogs)
    assert rows["a"] + rows["b"] in range(rate, rate + 3)


@pytest.mark.parametrize("lag", [10_000, 100_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("rows_a_place", [1, 7])
def test_a_source_that_no_limit_binds_has_what_a_limited_one_leaves(lag, rows_a_place):
    """Also where its places are blocks or files of several rows, of which a share is no whole number."""
    waiting = Waiting(next=0, latest=7_143, rows=7_143 * rows_a_place, batch_end=7_143)
    backlogs = {"limited": {"0": Waiting.of_rows(0, lag)}, "free": {"0": waiting}}
    limits = Limits(sources={"limited": SourceLimits(rows=100)})
    admitted = admit(backlogs, limits, Pace(rate=5_000, sources=frozenset(backlogs)))
    assert admitted.ends["limited"]["0"] == 100
    assert 4_900 - 2 * rows_a_place <= admitted.ends["free"]["0"] * rows_a_place <= 4_900


def test_what_a_floor_gives_beyond_a_share_is_not_left_to_others():
    """A limit may keep more rows than the share has: those of the floor of partitions, which no estimate gave."""
    backlogs = {"limited": backlog(*[1_000] * 50), "free": backlog(1_000_000)}
    limits = Limits(sources={"limited": SourceLimits(rows=100)})
    pace = Pace(rate=1_000, seconds=10, elapsed=10, least_per_partition=10, sources=frozenset(backlogs))
    rows = read(admit(backlogs, limits, pace), backlogs)
    assert (rows["limited"], rows["free"] <= 10_000) == (100, True)


@pytest.mark.parametrize("rest", [0, 5, 10_000])
def test_a_source_with_a_limit_of_its_own_is_not_starved_by_the_lag_of_others(rest):
    """Its share is by all that waits in it: by what its limit lets through, it would be one row beside a large lag."""
    backlogs = {"limited": backlog(100_000), "free": backlog(10_000), "third": backlog(rest)}
    limits = Limits(sources={"limited": SourceLimits(max_rate=100)})
    admitted = admit(backlogs, limits, Pace(rate=1_000, sources=frozenset(backlogs)))
    rows = read(admitted, backlogs)
    assert (rows["limited"], admitted.limits["bound"]["limited"]) == (100, "max_rate")
    assert sum(rows.values()) in (1_000, 1_001)


def test_a_pause_reads_nothing_of_any_source():
    """Also where nothing waits; only what waits is bound by it."""
    backlogs = {"a": backlog(5, start=7), "b": backlog(0)}
    admitted = admit(backlogs, Limits(paused=True, rows=9), Pace(rate=10, sources=frozenset("ab")))
    assert (admitted.ends, admitted.paused) == ({"a": {"0": 7}, "b": {"0": 0}}, True)
    assert admitted.limits == {"paused": True, "rows": 9, "rate": 10, "bound": {"a": "paused"}}


@pytest.mark.parametrize(
    ("limits", "rate", "rows", "bound"),
    [
        (Limits(rows=70, sources={"a": SourceLimits(rows=200)}), MaxRate(), 200, "rows"),
        (Limits(rows=70, sources={"a": SourceLimits(rows=None, bytes=500)}), MaxRate(), 50, "bytes"),
        (Limits(files=1, sources={"a": SourceLimits(files=2)}), MaxRate(), 50, "files"),
        (Limits(rows=70, sources={"a": SourceLimits(max_rate=9)}), MaxRate(), 9, "max_rate"),
        (Limits(max_rate=5, sources={"a": SourceLimits(max_rate=40)}), MaxRate(rows=20), 40, "max_rate"),
        (Limits(sources={"a": SourceLimits(max_rate=None)}), MaxRate(rows=20), 1_000, None),
        (
            Limits(sources={"a": SourceLimits(max_rate_per_partition=9)}), MaxRate(per_partition=3), 9,
            "max_rate_per_partition",
        ),
        (Limits(rows=70, sources={"b": SourceLimits(rows=200)}), MaxRate(), 70, "rows"),
        (Limits(rows=70, paused=True, sources={"a": SourceLimits(rows=200)}), MaxRate(), 0, "paused"),
    ],
)  # fmt: skip
def test_what_is_set_for_one_source_takes_the_place_of_what_is_set_for_each(limits, rate, rows, bound):
    """And of what its code says; of other sources it is no matter."""
    backlogs = {"a": backlog(1_000), "other": backlog(1_000)}
    admitted = admit(backlogs, limits, Pace(), rates={"a": rate})
    assert (read(admitted, backlogs)["a"], admitted.limits.get("bound", {}).get("a")) == (rows, bound)
    of_other = admit(backlogs, limits.model_copy(update={"sources": {}}), Pace(), rates={"a": rate})
    assert read(admitted, backlogs)["other"] == read(of_other, backlogs)["other"]
    assert Limits.recorded(admitted.limits).sources == limits.sources


@given(
    rows=st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=5), min_size=1, max_size=3),
    limit=st.none() | st.integers(1, 400),
    files=st.none() | st.integers(1, 30),
    size=st.none() | st.integers(1, 6_000),
    max_rate=st.none() | st.floats(0.1, 400),
    rate=st.none() | st.floats(1, 500),
    first=st.none() | st.floats(1, 100),
    per_partition=st.none() | st.floats(1, 200),
    seconds=st.sampled_from([0.1, 1, 2.5]),
)
def test_nothing_is_read_beyond_a_limit_and_no_partition_starves(
    rows, limit, files, size, max_rate, rate, first, per_partition, seconds
):
    """Whatever holds together: within hard limits, and at least one row of each partition that has some."""
    backlogs = {f"s{i}": backlog(*partitions) for i, partitions in enumerate(rows)}
    pace = Pace(seconds=seconds, elapsed=seconds, rate=rate, first_batch=first, sources=frozenset(backlogs))
    limits = Limits(rows=limit, files=files, bytes=size, max_rate=max_rate, max_rate_per_partition=per_partition)
    admitted = admit(backlogs, limits, pace)
    for name, partitions in backlogs.items():
        taken = {p: admitted.ends[name][p] - waiting.next for p, waiting in partitions.items()}
        waiting = [p for p, at in partitions.items() if at.rows]
        assert all(0 <= n <= partitions[p].rows for p, n in taken.items())
        assert all(taken[p] >= 1 for p in waiting)
        if limit is not None:
            assert sum(taken.values()) <= max(limit, len(waiting))
        if files is not None:
            assert sum(-(-n // 25) for n in taken.values()) <= max(files, len(waiting))
        if size is not None:  # the one row of a partition that is read in any case may be above it
            assert sum(10 * n for n in taken.values() if n > 1) <= size
        if max_rate is not None:
            assert sum(taken.values()) <= max(max_rate * seconds, len(waiting))
        if per_partition is not None:
            assert all(n <= max(1, per_partition * seconds) for n in taken.values())
        bound = admitted.limits.get("bound", {}).get(name)
        assert (bound is None) == all(taken[p] == at.rows for p, at in partitions.items())
