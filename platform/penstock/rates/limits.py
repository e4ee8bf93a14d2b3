"""The hard limits of a job, which hold whatever an estimator says and can be changed while it runs (SEMANTICS 8.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from penstock.checkpoint.log.entries import Record

__all__ = ["Limits", "Rate", "SourceLimits", "limits_in_words"]

Rate = Annotated[float | int, Field(gt=0)]
"""Rows a second."""
_SOURCES = "sources"


class SourceLimits(Record):
    """Bound what a batch reads of a source. Only what was set counts, so one set of limits can lie over another.

    Stored records have what was set, and None there means no limit.

    Attributes:
        rows: The most rows of a batch.
        bytes: The most bytes of a batch, of a source that knows how many wait, or estimates it as Kafka does.
        files: The most files of a batch, of a source that reads files: `Files` and `DeltaTable`.
        max_rate: The most rows a second.
        max_rate_per_partition: The most rows a second, of each partition of the source.
    """

    rows: Annotated[int, Field(ge=1)] | None = None
    bytes: Annotated[int, Field(ge=1)] | None = None
    files: Annotated[int, Field(ge=1)] | None = None
    max_rate: Rate | None = None
    max_rate_per_partition: Rate | None = None

    def over(self, others: Self) -> Self:
        """Return these limits, and those of `others` for what was not set here."""
        return type(self)(**{**others._set(), **self._set()})

    def without(self, names: frozenset[str]) -> Self:
        """Return these limits as if some had not been set."""
        return type(self)(**{name: value for name, value in self._set().items() if name not in names})

    def set_limits(self) -> dict[str, Any]:
        """Return what was set, by name, as JSON values."""
        return self._set()

    def in_words(self, each: str = "") -> list[str]:
        """Return what was set as phrases; `each` follows those of a batch or a second, as " and source"."""
        units = {
            "rows": f"rows a batch{each}",
            "bytes": f"bytes a batch{each}",
            "files": f"files a batch{each}",
            "max_rate": f"rows a second{each}",
            "max_rate_per_partition": "rows a second and partition",
        }
        values = {name: value for name, value in self._set().items() if name in units}
        most = [
            f"at most {value:,} {units[name] if value != 1 else units[name].replace('s ', ' ', 1)}"
            for name, value in values.items()
            if value is not None
        ]
        return [*most, *(f"no limit of {units[name]}" for name, value in values.items() if value is None)]

    def _set(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _what_was_set(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {name: value for name, value in values.items() if name in self.model_fields_set}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._set() == other._set()

    def __hash__(self) -> int:
        return hash(frozenset(name for name in self._set() if name != _SOURCES))


class Limits(SourceLimits):
    """Bound what a batch reads of each source, and of some of them otherwise.

    Attributes:
        rows: The most rows of a batch, of each source, and so with the others.
        paused: Whether batches read nothing. Windows, timers and timeouts still work.
        sources: The limits of single sources, by name; what is set there holds in place of the same limit of each.
    """

    paused: bool = False
    sources: dict[str, SourceLimits] = Field(default_factory=dict)

    @classmethod
    def recorded(cls, limits: Mapping[str, Any]) -> Self:
        """Return the hard limits among those that the Offsets of a batch have, beside a rate and what it bound."""
        values = {name: limits[name] for name in cls.model_fields if name in limits}
        if (sources := values.pop(_SOURCES, None)) and isinstance(sources, Mapping):
            known = SourceLimits.model_fields
            own = {s: SourceLimits(**{n: v for n, v in of.items() if n in known}) for s, of in sources.items()}
            values[_SOURCES] = own
        return cls(**values)

    def over(self, others: Self) -> Self:
        """Return these limits, and those of `others` for what was not set here.

        What is set here for each source holds for each: it goes before what `others` have set for a single one.
        """
        each = frozenset(self._set())
        own = {source: limits.without(each) for source, limits in others.sources.items()}
        return self.joined(others.model_copy(update={_SOURCES: own}) if own else others)

    def joined(self, others: Self) -> Self:
        """Return these limits, and those of `others` for what was not set here, of each source and of single ones."""
        values = {**others._set(), **self._set()}
        if _SOURCES in values:
            none = SourceLimits()
            names = {**others.sources, **self.sources}
            own = {name: self.sources.get(name, none).over(others.sources.get(name, none)) for name in names}
            values[_SOURCES] = {name: limits for name, limits in own.items() if limits.set_limits()}
            if not values[_SOURCES]:
                del values[_SOURCES]
        return type(self)(**values)

    def without(self, names: frozenset[str]) -> Self:
        """Return these limits as if some had not been set; `orders.rows` is the limit of rows of the source orders."""
        values = {name: value for name, value in self._set().items() if name not in names}
        if _SOURCES in values:
            kept = {
                source: limits.without(frozenset(name.removeprefix(f"{source}.") for name in names if "." in name))
                for source, limits in self.sources.items()
            }
            values[_SOURCES] = {source: limits for source, limits in kept.items() if limits.set_limits()}
            if not values[_SOURCES]:
                del values[_SOURCES]
        return type(self)(**values)

    def of(self, source: str) -> SourceLimits:
        """Return the limits of one source."""
        each = SourceLimits(**{name: v for name, v in self._set().items() if name in SourceLimits.model_fields})
        return self.sources.get(source, SourceLimits()).over(each)

    def set_limits(self) -> dict[str, Any]:
        """Return what was set, by name, as JSON values."""
        values = self._set()
        if _SOURCES in values:
            values[_SOURCES] = {source: limits.set_limits() for source, limits in self.sources.items()}
        return values

    @property
    def weighs(self) -> bool:
        """Return whether any source has a limit of bytes."""
        return any(limits.bytes is not None for limits in (self, *self.sources.values()))


def limits_in_words(limits: Limits | None) -> str:
    """Return limits as a sentence has them."""
    if limits is None:
        return "the limits of its configuration"
    if limits.paused:
        return "paused, so it reads nothing"
    of_sources = [f"of {source} {', '.join(own.in_words())}" for source, own in limits.sources.items()]
    return "; ".join(filter(None, [", ".join(limits.in_words(" and source")), *of_sources])) or "it reads again"
