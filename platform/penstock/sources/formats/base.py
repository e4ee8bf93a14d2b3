"""State what a format promises: records' bytes become rows, and nothing that a record holds raises (SEMANTICS 9.3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError
from penstock.sources.base import PARTIAL
from penstock.sources.records import arrow_schema

__all__ = ["NO_VALUE", "Decoded", "Format", "NamingFormat", "columns_of", "cut", "placed", "shown", "texts_of"]

NO_VALUE = "the record has no value"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some records: a row for each, in their order.

    Attributes:
        rows: The columns of the format; all null for a record that could not be decoded.
        errors: string, why a record could not be decoded, null for the others; None where all could.
    """

    rows: pa.Table
    errors: pa.Array | None


class Format(Protocol):
    """Make rows of the values of records. Subclass it."""

    def opened(self, topics: Sequence[str]) -> Format:
        """Return the format as the tasks have it, with all that it learns from elsewhere; by default itself.

        Called once a run, on the driver, before `columns`. `topics` are the topics that the source reads now.
        Raises a SourceError where a server that it asks does not answer, and ConfigError for what cannot be meant.
        """
        return self

    def columns(self) -> pa.Schema:
        """Return the columns; called once a run, on the driver, where there is a Spark session to parse DDL.

        Raises ConfigError for columns that the format cannot have.
        """

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return a row for each value, in the columns of `schema`, which `columns` has given. None is no value."""


@runtime_checkable
class NamingFormat(Format, Protocol):
    """A format whose records name their columns, as objects of JSON do."""

    def names(self, value: bytes) -> Collection[str] | None:
        """Return the names of the columns that a record has; None for what is no record."""


def columns_of(ddl: str) -> pa.Schema:
    """Return the columns of Spark DDL; raises ConfigError for DDL that Spark cannot parse, or with a name twice."""
    from pyspark.errors import ParseException

    try:
        schema = arrow_schema(ddl)
    except ParseException as why:
        raise ConfigError(f"{ddl!r} is no DDL: {why.getCondition() or why}") from why
    if len(set(schema.names)) < len(schema.names):
        raise ConfigError(f"{ddl!r} names a column twice")
    return schema


def placed(rows: pa.Table, misfits: pa.Array | None, errors: Sequence[str | None]) -> Decoded:
    """Put rows of the records that could be decoded in their places among all.

    Args:
        rows: A row for each record whose error is None.
        misfits: string, what is wrong with such a row; None where nothing is with any.
        errors: Of every record, why it could not be decoded.
    """
    if rows.num_rows < len(errors):
        decoded = np.array([error is None for error in errors])
        at = pa.array(np.cumsum(decoded) - 1, mask=~decoded)  # a null index gives a null row
        rows, misfits = rows.take(at), None if misfits is None else misfits.take(at)
    if misfits is not None:
        errors = [error or misfit for error, misfit in zip(errors, misfits.to_pylist(), strict=True)]
    return Decoded(rows, pa.array(errors, pa.string()) if any(errors) else None)


def shown(value: bytes, error: str, *, most: int | None = None) -> tuple[str, str]:
    """Return the text of a bad record for RAW, and its error.

    Each byte that is no UTF-8 is said by its number. Of a record with more than `most` bytes the text has the first
    ones. Neither is the record itself, which the error says (PARTIAL).
    """
    head = value if most is None else value[:most]
    text = head.decode("utf-8", "backslashreplace")
    is_said = error.endswith(PARTIAL) or text.encode() == value
    return text, error if is_said else f"{error}{PARTIAL}"


def texts_of(values: Sequence[bytes | None]) -> tuple[pa.Array, list[str | None]]:
    """Return values as UTF-8 texts, and for each what is wrong with it; no value is a null, and nothing wrong."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string()), [None] * len(values)
    except pa.ArrowInvalid:
        texts, errors = zip(*map(_text, values), strict=True)
        return pa.array(texts, pa.string()), list(errors)


def _text(value: bytes | None) -> tuple[str | None, str | None]:
    try:
        return None if value is None else value.decode(), None
    except UnicodeDecodeError as why:
        return None, f"no UTF-8: {why.reason} at byte {why.start}"


def cut(texts: pa.Array) -> pa.Array:
    """Cut what follows microseconds: others write nanoseconds, and Spark's timestamps have none."""
    return pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
