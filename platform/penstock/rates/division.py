"""Divide the rows of a batch among partitions by what waits in each (SEMANTICS 8.2). Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import TypeVar

from penstock.errors import ConfigError
from penstock.rates.quantities import at_least, exact, positive

__all__ = [
    "bounded_shares", "partition_bounds", "partition_limits", "rows_within", "shares_beside", "shares_within",
]  # fmt: skip

K = TypeVar("K", bound=Hashable)


def partition_limits(
    rate: float,
    lag: Mapping[K, int],
    *,
    seconds: float,
    max_rate: float | None = None,
    min_rate: float = 1,
) -> dict[K, int]:
    """Return the most rows that a batch may read of each partition.

    A partition's share of the rate is its part of all rows that wait, and `max_rate` caps it. A batch may read the
    share times the seconds, in whole rows that differ from that by less than one. It may always read `min_rate` times
    the seconds, and of a partition with rows at least one. What a cap or a floor changes moves to no other partition.
    The limit may be more than the rows that wait: the batch ends at the smaller of both.

    Args:
        rate: Rows a second for all partitions, above 0: what an estimator gave.
        lag: The rows that wait in each partition; a negative number counts as 0.
        seconds: The batch interval.
        max_rate: The most rows a second of one partition; None for no cap.
        min_rate: The rows a second that each partition may have, 0 or more.

    Raises:
        ConfigError: An argument is out of range, or `max_rate` is below `min_rate`.
    """
    least, most = partition_bounds(seconds, max_rate=max_rate, min_rate=min_rate)
    return bounded_shares(lag, rows_within(rate, seconds), least=least, most=most)


def partition_bounds(seconds: float, *, max_rate: float | None, min_rate: float) -> tuple[int, int | None]:
    """Return the least and the most rows of one partition in a number of seconds; raises ConfigError as above."""
    positive("seconds", seconds)
    at_least("min_rate", min_rate, 0)
    least = ceil(exact(min_rate) * exact(seconds))
    if max_rate is None:
        return least, None
    positive("max_rate", max_rate)
    if max_rate < min_rate:
        raise ConfigError(f"max_rate is {max_rate:g} rows a second, below min_rate of {min_rate:g}")
    return least, floor(exact(max_rate) * exact(seconds))


def rows_within(rate: float, seconds: float) -> Fraction:
    """Return how many rows a rate gives in a number of seconds, exactly; raises ConfigError."""
    positive("rate", rate)
    positive("seconds", seconds)
    return exact(rate) * exact(seconds)


def bounded_shares(lag: Mapping[K, int], total: float | Fraction, *, least: int, most: int | None) -> dict[K, int]:
    """Return whole shares of `total` rows by lag, none above `most` or below `least`, and of a lag at least one."""
    shares = _whole_shares(lag, exact(total))
    return {
        key: max(share if most is None else min(share, most), least, int(lag[key] > 0)) for key, share in shares.items()
    }


def shares_within(lag: Mapping[K, int], total: int, *, least: int = 1) -> dict[K, int]:
    """Return whole shares of `total` rows by lag that together are no more than `total`.

    Each partition with rows has `least` of them, or as many as it has, and the others have less for it. Where `total`
    is too small for that each has as many as the others, and at least one: only so the sum may be above `total`.
    """
    shares = dict.fromkeys(lag, 0)
    open_ = {key: rows for key, rows in lag.items() if rows > 0}
    least = max(1, min(least, total // len(open_))) if open_ else 1
    while open_:
        divided = _whole_shares(open_, Fraction(max(0, total)))
        below = [key for key, share in divided.items() if share < min(least, open_[key])]
        for key in below or list(open_):
            shares[key] = min(least, open_.pop(key)) if below else divided[key]
            total -= shares[key]
        if not below:
            break
    return shares


def shares_beside(
    lag: Mapping[K, int], total: float | Fraction, taken: Callable[[K, int], tuple[int, int]]
) -> dict[K, int]:
    """Return whole shares of `total` rows by lag, of a lag at least one; what one leaves is for the others.

    Args:
        lag: The rows that wait, by key.
        total: The rows to divide.
        taken: How many rows a key takes where a share alone bounds it, and where its other limits do as well. Floors
            and rounding may make either more or fewer than the share.
    """
    shares = {key: int(rows > 0) for key, rows in lag.items()}
    open_ = {key: rows for key, rows in lag.items() if rows > 0}
    left = exact(total)
    while open_:
        divided = _whole_shares(open_, max(Fraction(0), left))
        takes = {key: taken(key, share) for key, share in divided.items()}
        limited = [key for key, (alone, within) in takes.items() if within < alone]
        for key in limited or list(open_):
            del open_[key]
            shares[key] = max(1, divided[key])
            left -= min(divided[key], takes[key][1])
        if not limited:
            break
    return shares


def _whole_shares(lag: Mapping[K, int], total: Fraction) -> dict[K, int]:
    """Return whole shares by lag, by largest remainder: each differs by less than one row from its exact share."""
    weights = {key: max(0, int(rows)) for key, rows in lag.items()}
    whole = sum(weights.values()) * total.denominator
    if whole == 0:
        return dict.fromkeys(weights, 0)
    parts = {key: divmod(total.numerator * rows, whole) for key, rows in weights.items()}
    shares = {key: share for key, (share, _) in parts.items()}
    left = round(total) - sum(shares.values())
    for key in sorted(parts, key=lambda key: -parts[key][1])[: max(0, left)]:
        shares[key] += 1
    return shares
