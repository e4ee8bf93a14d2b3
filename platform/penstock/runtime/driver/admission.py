"""Decide how much a batch reads of each source: hard limits first, then the rate, then its division (SEMANTICS 8).

Pure, so a batch is admitted the same way by a driver, a test and the simulator. What is decided goes into the Offsets,
with the rule that bound each source: a batch that runs again reads what its first try read, whatever the limits are
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import floor
from typing import Any, TypeVar

from pydantic import JsonValue

from penstock.checkpoint.log.entries import HELD_BACK
from penstock.graph.policies import MaxRate
from penstock.rates.division import shares_beside
from penstock.rates.limits import Limits, SourceLimits
from penstock.sources.backlog import Ends, ReadLimit, Waiting, divide

__all__ = ["Admitted", "Backlogs", "Bound", "Pace", "admit", "held_back_of", "rates_of"]

Number = TypeVar("Number", int, float)
Backlogs = Mapping[str, Mapping[str, Waiting]]
"""What waits, by source and partition."""


class Bound(Enum):
    """The rule that decided how much of a source a batch reads, where rows are left that wait."""

    PAUSED = "paused"
    ROWS = "rows"
    BYTES = "bytes"
    FILES = "files"
    MAX_RATE = "max_rate"
    MAX_RATE_PER_PARTITION = "max_rate_per_partition"
    FIRST_BATCH = "first_batch"
    RATE = "rate"
    ALIGN = "align"
    """The source is ahead of the slowest in event time (SEMANTICS 2.8)."""
    SOURCE = "source"
    """The source's own settings, such as the rows of a batch of a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The rates of the next batch, for the sources that they apply to.

    Attributes:
        seconds: The batch interval, for which an estimate holds.
        elapsed: Seconds since the batch before, the interval at most: what a hard limit of rows a second gives.
        has_ticks: Whether batches wait for ticks. Then each may read a row, however low the rate. Without, a batch that
            comes too soon for a whole row reads none, and the next one does.
        rate: Rows a second of all these sources together, None where there is no estimate yet, or none at all.
        first_batch: Rows a second and partition before there is an estimate; None for no bound.
        least_per_partition: Rows a second that each partition may have, whatever the rate.
        sources: The sources that the rate is for: those whose rows are of now.
    """

    seconds: float = 1.0
    elapsed: float = 1.0
    has_ticks: bool = True
    rate: float | None = None
    first_batch: float | None = None
    least_per_partition: float = 1.0
    sources: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """How far a batch reads each source, and the limits in force, as the Offsets have them.

    `paused` says that it reads nothing because somebody wants so.
    """

    ends: Mapping[str, Ends]
    limits: dict[str, JsonValue] = field(default_factory=dict)
    paused: bool = False


def admit(
    backlogs: Backlogs, limits: Limits, pace: Pace | None = None, *, rates: Mapping[str, MaxRate] | None = None
) -> Admitted:
    """Return how far a batch reads each source.

    Args:
        backlogs: What waits, up to the end of a bounded run.
        limits: The hard limits in force.
        pace: The rates; None where no estimator is at work.
        rates: The limits that the job's code sets, by source.
    """
    pace = pace or Pace()
    in_force: dict[str, JsonValue] = {name: value for name, value in limits.set_limits().items() if value}
    if pace.rate is not None and pace.sources:
        in_force["rate"] = round(pace.rate, 3)
    if limits.paused:
        ends = {name: {p: waiting.next for p, waiting in backlog.items()} for name, backlog in backlogs.items()}
        bound = {name: Bound.PAUSED.value for name, backlog in backlogs.items() if _lag(backlog)}
        return Admitted(ends=ends, limits=_recorded(in_force, bound), paused=True)
    ends, bound = {}, {}
    hard: dict[str, dict[Bound, ReadLimit]] = {}
    for name, backlog in backlogs.items():
        of_source = rates_of(limits, name, (rates or {}).get(name, MaxRate()))
        if _is_too_soon(of_source, pace):
            ends[name] = {p: waiting.next for p, waiting in backlog.items()}
            bound |= {name: Bound.MAX_RATE.value} if _lag(backlog) else {}
        else:
            hard[name] = _rules(name, limits.of(name), pace, of_source)
    shares = _shares_of_sources(backlogs, hard, pace)
    for name, rules in hard.items():
        backlog = backlogs[name]
        if (share := shares.get(name)) is not None:
            rules[Bound.RATE] = ReadLimit(estimated=share)
        ends[name] = divide(backlog, _joined(rules, pace))
        if any(ends[name][p] < waiting.latest for p, waiting in backlog.items()):
            bound[name] = _binding(backlog, rules).value
    return Admitted(ends=ends, limits=_recorded(in_force, bound))


def held_back_of(ranges: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the partitions with rows that a batch leaves, by source, from the ranges of its Offsets."""
    return {source: names for source, of in ranges.items() if (names := of.get(HELD_BACK))}


def _recorded(in_force: dict[str, JsonValue], bound: Mapping[str, str]) -> dict[str, JsonValue]:
    ruled: dict[str, JsonValue] = {name: rule for name, rule in bound.items() if rule != Bound.SOURCE.value}
    return {**in_force, "bound": ruled} if ruled else in_force


def _lag(backlog: Mapping[str, Waiting]) -> int:
    return sum(waiting.rows for waiting in backlog.values())


def _shares_of_sources(backlogs: Backlogs, hard: Mapping[str, Mapping[Bound, ReadLimit]], pace: Pace) -> dict[str, int]:
    """Return the rows that the rate gives each source, by what waits in it.

    What its hard limits keep one from reading is for the others: the lag that it gathers would else take the rate from
    them. Its own share stays, because its partitions divide that before their limits hold.
    """
    if pace.rate is None:
        return {}

    def taken(name: str, share: int) -> tuple[int, int]:
        """Return what is read by the share alone, which is not to the row where a place has several, and by all."""
        alone = {Bound.RATE: ReadLimit(estimated=share)}
        rules = (alone, {**hard[name], **alone})
        by_share, by_all = (_within(backlogs[name], _joined(some, pace)) for some in rules)
        return by_share, by_all

    lag = {name: _lag(backlogs[name]) for name in hard if name in pace.sources}
    return shares_beside(lag, pace.rate * pace.seconds, taken)


def _within(backlog: Mapping[str, Waiting], limit: ReadLimit) -> int:
    """Return how many rows a limit lets through."""
    ends = divide(backlog, limit)
    return sum(
        waiting.rows * (ends[p] - waiting.next) // max(1, waiting.latest - waiting.next)
        for p, waiting in backlog.items()
    )


def rates_of(limits: Limits, source: str, coded: MaxRate) -> MaxRate:
    """Return the rates of a source: what was set for it alone, else the lower of those of each and of its code."""
    own = limits.sources.get(source, SourceLimits()).set_limits()
    rows, per_partition = "max_rate", "max_rate_per_partition"
    return MaxRate(
        rows=own[rows] if rows in own else _least(limits.max_rate, coded.rows),
        per_partition=own[per_partition]
        if per_partition in own
        else _least(limits.max_rate_per_partition, coded.per_partition),
    )


def _is_too_soon(rate: MaxRate, pace: Pace) -> bool:
    """Return whether a rate has not brought a whole row since the batch before."""
    most = _least(rate.rows, rate.per_partition)
    return not pace.has_ticks and most is not None and most * pace.elapsed < 1


def _rules(name: str, limits: SourceLimits, pace: Pace, rate: MaxRate) -> dict[Bound, ReadLimit]:
    """Return each hard limit that holds for a source, alone."""
    rules: dict[Bound, ReadLimit] = {}
    if limits.rows is not None:
        rules[Bound.ROWS] = ReadLimit(rows=limits.rows)
    if limits.bytes is not None:
        rules[Bound.BYTES] = ReadLimit(bytes=limits.bytes)
    if limits.files is not None:
        rules[Bound.FILES] = ReadLimit(files=limits.files)
    if rate.rows is not None:
        rules[Bound.MAX_RATE] = ReadLimit(rows=_whole(rate.rows, pace.elapsed))
    if rate.per_partition is not None:
        rules[Bound.MAX_RATE_PER_PARTITION] = ReadLimit(partition_most=_whole(rate.per_partition, pace.elapsed))
    if name in pace.sources and pace.rate is None and pace.first_batch is not None:
        rules[Bound.FIRST_BATCH] = ReadLimit(partition_most=_whole(pace.first_batch, pace.seconds))
    return rules


def _joined(rules: Mapping[Bound, ReadLimit], pace: Pace) -> ReadLimit:
    """Return all limits as one."""
    most = _least(*(limit.partition_most for limit in rules.values()))
    # The floor of a rate is no part of hard limits, which are divided by lag alone.
    least = _whole(pace.least_per_partition, pace.seconds) if Bound.RATE in rules else 1
    return ReadLimit(
        rows=_least(*(limit.rows for limit in rules.values())),
        bytes=_least(*(limit.bytes for limit in rules.values())),
        files=_least(*(limit.files for limit in rules.values())),
        estimated=None if (rate := rules.get(Bound.RATE)) is None else rate.estimated,
        partition_most=most,
        partition_least=least if most is None else min(least, most),
    )


def _binding(backlog: Mapping[str, Waiting], rules: Mapping[Bound, ReadLimit]) -> Bound:
    """Return the rule that alone would let the fewest rows through."""
    alone = {rule: _within(backlog, limit) for rule, limit in {Bound.SOURCE: ReadLimit(), **rules}.items()}
    return min(alone, key=lambda rule: alone[rule])


def _whole(rate: float, seconds: float) -> int:
    """Return the whole rows of a rate; at least one, because a limit of none would be a pause."""
    return max(1, floor(rate * seconds))


def _least(*values: Number | None) -> Number | None:
    return min((value for value in values if value is not None), default=None)
