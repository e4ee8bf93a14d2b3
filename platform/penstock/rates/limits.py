"""The hard limits of a job, which hold whatever an estimator says and can be changed while it runs (SEMANTICS 8.5)."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from penstock.checkpoint.log.entries import Record

__all__ = ["Limits", "Rate"]

Rate = Annotated[float | int, Field(gt=0)]
"""Rows a second."""


class Limits(Record):
    """Bound what a batch reads of each source. Only what was set counts, so one set of limits can lie over another.

    Stored records have what was set, and None there means no limit.

    Attributes:
        rows: The most rows of a batch, of each source.
        bytes: The most bytes of a batch, of each source that knows how many wait, or estimates it as Kafka does.
        files: The most files of a batch, of each source that reads files: `Files` and `DeltaTable`.
        max_rate: The most rows a second, of each source.
        max_rate_per_partition: The most rows a second, of each partition of a source.
        paused: Whether batches read nothing. Windows, timers and timeouts still work.
    """

    rows: Annotated[int, Field(ge=1)] | None = None
    bytes: Annotated[int, Field(ge=1)] | None = None
    files: Annotated[int, Field(ge=1)] | None = None
    max_rate: Rate | None = None
    max_rate_per_partition: Rate | None = None
    paused: bool = False

    def over(self, others: Limits) -> Limits:
        """Return these limits, and those of `others` for what was not set here."""
        return Limits(**{**others.set_limits(), **self.set_limits()})

    def without(self, names: frozenset[str]) -> Self:
        """Return these limits as if some had not been set."""
        return type(self)(**{name: value for name, value in self.set_limits().items() if name not in names})

    def set_limits(self) -> dict[str, Any]:
        """Return what was set, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _what_was_set(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {name: value for name, value in values.items() if name in self.model_fields_set}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limits) and self.set_limits() == other.set_limits()

    def __hash__(self) -> int:
        return hash(tuple(self.set_limits().items()))
