"""Refuse a limit of rows a second below the least rate of the configuration, where both cannot hold (decision 106).

A least rate that nobody has set is a default, which gives way to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

from penstock.config.settings import Settings
from penstock.errors import ConfigError
from penstock.graph.graph import JobGraph
from penstock.graph.policies import MaxRate
from penstock.rates.limits import Limits
from penstock.rates.quantities import exact

__all__ = ["Minimum", "in_record", "minimum_rates", "refuse_caps", "refuse_limits"]

_WITH_LEAST_RATE = ("cost_model", "pid")
"""The estimators that give no rate below `min_rate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """The least that a limit may give, rows a second: the `key` of [rates] that `where` sets.

    `sources` is how many sources share it: `min_rate` is of all live sources together, and a limit of each.
    """

    key: str
    rows: float
    sources: int
    where: str

    def is_above(self, rows: Fraction) -> bool:
        """Return whether the limits of its sources together give less."""
        return rows < exact(self.rows)

    def error(self, name: str, rows: float, where: str) -> ConfigError:
        """Return the error of a limit that is below it."""
        of_all = "" if self.sources == 1 else f" of {self.sources} sources together"
        return ConfigError(
            f"{name} is {rows:g} rows a second, too low for a {self.key} of {self.rows:g}{of_all} ({self.where}); "
            "raise the first or lower the second",
            where=where,
        )


def minimum_rates(graph: JobGraph, settings: Settings) -> dict[str, Minimum]:
    """Return the minimum of each limit of rows a second, by the limit's name, as far as the configuration sets one.

    Without live sources no rate is estimated, so there is none.
    """
    rates, live = settings.rates, len(_live(graph))
    if not live or (graph.estimator is None and rates.estimator == "off"):
        return {}
    found: dict[str, Minimum] = {}
    fits = graph.estimator is None and rates.estimator in _WITH_LEAST_RATE
    if fits and (where := settings.where("rates", "min_rate")) is not None:
        found["max_rate"] = Minimum(key="min_rate", rows=rates.min_rate, sources=live, where=where)
    if (where := settings.where("rates", "min_rate_per_partition")) is not None:
        found["max_rate_per_partition"] = Minimum(
            key="min_rate_per_partition", rows=rates.min_rate_per_partition, sources=1, where=where
        )
    return found


def refuse_caps(graph: JobGraph, settings: Settings) -> None:
    """Raise ConfigError, at the limit, where limits of code and configuration are below their minimum.

    `max_rate` contradicts `min_rate` where every live source has one, and all of them together are below it.
    """
    minimums, limits = minimum_rates(graph, settings), settings.limits
    own = [graph.rates.get(name, MaxRate()) for name in _live(graph)]
    if (minimum := minimums.get("max_rate")) is not None:
        at = settings.where("limits", "max_rate")
        caps = [_lowest((limits.max_rate, at), (rate.rows, rate.where)) for rate in own]
        known = [cap for cap in caps if cap is not None]
        if len(known) == len(caps) and minimum.is_above(sum((exact(rows) for rows, _ in known), Fraction())):
            raise minimum.error("max_rate", *min(known, key=lambda cap: cap[0]))
    if (minimum := minimums.get("max_rate_per_partition")) is not None:
        at = settings.where("limits", "max_rate_per_partition")
        for rate in own:
            cap = _lowest((limits.max_rate_per_partition, at), (rate.per_partition, rate.where))
            if cap is not None and minimum.is_above(exact(cap[0])):
                raise minimum.error("max_rate_per_partition", *cap)


def refuse_limits(limits: Limits, minimums: object) -> None:
    """Raise ConfigError for limits below a minimum of the driver that runs, as its status record has them."""
    told = minimums if isinstance(minimums, Mapping) else {}
    for name, given in limits.set_limits().items():
        minimum = _told(told.get(name))
        if given is not None and minimum is not None and minimum.is_above(exact(given) * minimum.sources):
            raise minimum.error(name, given, minimum.where)


def in_record(minimums: Mapping[str, Minimum]) -> dict[str, dict[str, Any]]:
    """Return minimums as a status record has them."""
    return {name: asdict(minimum) for name, minimum in minimums.items()}


def _told(value: object) -> Minimum | None:
    """Read a minimum of a record; what makes no sense counts as not there (F77)."""
    facts = value if isinstance(value, Mapping) else {}
    rows, sources = facts.get("rows"), facts.get("sources")
    if not isinstance(rows, int | float) or not isfinite(rows) or not isinstance(sources, int):
        return None
    return Minimum(key=str(facts.get("key")), rows=rows, sources=sources, where=str(facts.get("where")))


def _live(graph: JobGraph) -> list[str]:
    return [node.name for node in graph.sources if node.source.live]


def _lowest(*caps: tuple[float | None, str | None]) -> tuple[float, str] | None:
    """Return the lowest of limits, each with its place; None where there is none."""
    return min(((rows, where or "") for rows, where in caps if rows is not None), default=None)
