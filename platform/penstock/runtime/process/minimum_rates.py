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
from penstock.rates.limits import Limits, SourceLimits
from penstock.rates.quantities import exact
from penstock.runtime.driver.admission import rates_of

__all__ = ["Minimum", "in_record", "minimum_rates", "refuse_caps", "refuse_limits"]

_WITH_LEAST_RATE = ("cost_model", "pid")
"""The estimators that give no rate below `min_rate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """The least that a limit may give, rows a second: the `key` of [rates] that `where` sets.

    `live` are the sources that it is for. `min_rate` is of all of them together, and a limit of each.
    """

    key: str
    rows: float
    live: tuple[str, ...]
    where: str

    @property
    def is_shared(self) -> bool:
        """Return whether it is of all its sources together, and not of each partition."""
        return self.key == "min_rate"

    def is_above(self, rows: Fraction) -> bool:
        """Return whether the limits of its sources together give less."""
        return rows < exact(self.rows)

    def error(self, name: str, rows: float, where: str) -> ConfigError:
        """Return the error of a limit that is below it."""
        count = len(self.live)
        of_all = f" of {count} sources together" if self.is_shared and count > 1 else ""
        return ConfigError(
            f"{name} is {rows:g} rows a second, too low for a {self.key} of {self.rows:g}{of_all} ({self.where}); "
            "raise the first or lower the second",
            where=where,
        )


def minimum_rates(graph: JobGraph, settings: Settings) -> dict[str, Minimum]:
    """Return the minimum of each limit of rows a second, by the limit's name, as far as the configuration sets one.

    Without live sources no rate is estimated, so there is none.
    """
    rates, live = settings.rates, tuple(_live(graph))
    if not live or (graph.estimator is None and rates.estimator == "off"):
        return {}
    found: dict[str, Minimum] = {}
    fits = graph.estimator is None and rates.estimator in _WITH_LEAST_RATE
    if fits and (where := settings.where("rates", "min_rate")) is not None:
        found["max_rate"] = Minimum(key="min_rate", rows=rates.min_rate, live=live, where=where)
    if (where := settings.where("rates", "min_rate_per_partition")) is not None:
        found["max_rate_per_partition"] = Minimum(
            key="min_rate_per_partition", rows=rates.min_rate_per_partition, live=live, where=where
        )
    return found


def refuse_caps(graph: JobGraph, settings: Settings) -> None:
    """Raise ConfigError, at the limit, where limits of code and configuration are below their minimum.

    `max_rate` contradicts `min_rate` where every live source has one, and all of them together are below it.
    """
    minimums = minimum_rates(graph, settings)
    if (minimum := minimums.get("max_rate")) is not None:
        caps = [_cap(graph, settings, name, "max_rate") for name in minimum.live]
        known = [cap for cap in caps if cap is not None]
        if len(known) == len(caps) and minimum.is_above(sum((exact(rows) for rows, _ in known), Fraction())):
            raise minimum.error("max_rate", *min(known, key=lambda cap: cap[0]))
    if (minimum := minimums.get("max_rate_per_partition")) is not None:
        for name in minimum.live:
            cap = _cap(graph, settings, name, "max_rate_per_partition")
            if cap is not None and minimum.is_above(exact(cap[0])):
                raise minimum.error("max_rate_per_partition", *cap)


def refuse_limits(before: Limits, after: Limits, minimums: object) -> None:
    """Raise ConfigError where somebody lowers a limit below a minimum of the driver that runs.

    Args:
        before: All that was set.
        after: All that is to be set. Of a source without any, nobody knows here what it may have.
        minimums: What the status record of the driver says.
    """
    for name, said in (minimums if isinstance(minimums, Mapping) else {}).items():
        if name not in SourceLimits.model_fields or (minimum := _told(said)) is None:
            continue
        caps = {source: getattr(after.of(source), name) for source in minimum.live}
        had = {source: getattr(before.of(source), name) for source in minimum.live}
        lowered = [s for s, rows in caps.items() if rows is not None and (had[s] is None or rows < had[s])]
        if minimum.is_shared and (
            None in caps.values() or not minimum.is_above(sum(map(exact, caps.values()), Fraction()))
        ):
            continue
        for source in sorted(lowered, key=caps.__getitem__):
            if minimum.is_shared or minimum.is_above(exact(caps[source])):
                own = name in after.sources.get(source, SourceLimits()).set_limits()
                raise minimum.error(f"{name} of {source}" if own else name, caps[source], minimum.where)


def in_record(minimums: Mapping[str, Minimum]) -> dict[str, dict[str, Any]]:
    """Return minimums as a status record has them."""
    return {name: asdict(minimum) for name, minimum in minimums.items()}


def _told(value: object) -> Minimum | None:
    """Read a minimum of a record; what makes no sense counts as not there (F77)."""
    facts = value if isinstance(value, Mapping) else {}
    rows, live = facts.get("rows"), facts.get("live")
    if not isinstance(rows, int | float) or not isfinite(rows) or not isinstance(live, list | tuple) or not live:
        return None
    names = tuple(map(str, live))
    return Minimum(key=str(facts.get("key")), rows=rows, live=names, where=str(facts.get("where")))


def _live(graph: JobGraph) -> list[str]:
    return [node.name for node in graph.sources if node.source.live]


def _cap(graph: JobGraph, settings: Settings, source: str, limit: str) -> tuple[float, str] | None:
    """Return what configuration and code limit a source to, with its place; None where neither does."""
    limits, coded = settings.limits.of_batches, graph.rates.get(source, MaxRate())
    rates = rates_of(limits, source, coded)
    rows, of_code = (rates.rows, coded.rows) if limit == "max_rate" else (rates.per_partition, coded.per_partition)
    if rows is None:
        return None
    own = settings.where("limits", f"sources.{source}.{limit}")
    return rows, own or (coded.where if rows == of_code else settings.where("limits", limit)) or ""
