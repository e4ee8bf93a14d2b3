"""Decode records that are lines of CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.graph.argument_types import refuse_other_types
from penstock.sources.formats.base import NO_VALUE, Decoded, Format, columns_of, cut, placed, texts_of
from penstock.sources.records import cast_columns

__all__ = ["Csv", "csv_columns"]


@dataclass(frozen=True, slots=True)
class Csv(Format):
    """A line of CSV a record, with the columns of Spark DDL: `Csv("id long, v double")`.

    A line has a field for each column, in their order. A field in quotes may hold delimiters, line ends, and quotes
    that are doubled. The line may end in a line end. Blanks belong to the field. Timestamps and dates are ISO 8601. A
    time without a zone is UTC, and digits after microseconds are cut. Binary columns have the bytes of the text.

    Args:
        schema: The columns, of which none may be nested.
        delimiter: The character between fields.
        nulls: The fields that stand for null, with quotes or without.
        quote: The character around a field that needs it; "" where none has this meaning.
        header: Of files only: whether the first record of each has the names of its columns, in any order. A field in
            quotes may then hold line ends.

    Raises:
        ConfigError: A delimiter or quote is no single character, or a line end; or both are one.
    """

    schema: str
    delimiter: str = ","
    nulls: Sequence[str] = ("",)
    quote: str = '"'
    _: KW_ONLY
    header: bool = False

    def __post_init__(self) -> None:
        refuse_other_types(self)
        for name, sign in (("delimiter", self.delimiter), ("quote", self.quote)):
            if len(sign) != 1 and (name, sign) != ("quote", ""):
                raise ConfigError(f"{name}={sign!r} is not one character")
            if sign in {"\r", "\n"}:
                raise ConfigError(f"{name}={sign!r} is a line end")
        if self.delimiter == self.quote:
            raise ConfigError(f"delimiter and quote are both {self.quote!r}")

    def columns(self) -> pa.Schema:
        """Return the columns; raises ConfigError as `csv_columns` does, and for a header, which one record has not."""
        if self.header:
            raise ConfigError("header=True is for the files of Files; a record has no header")
        return csv_columns(self.schema)

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return the fields by column."""
        texts, errors = texts_of(values)
        rows: list[list[str]] = []
        for i, text in enumerate(texts.to_pylist()):
            if errors[i] is None:
                fields = NO_VALUE if text is None else self._fields(text)
                if isinstance(fields, list) and len(fields) != len(schema):
                    fields = f"{len(fields):,} fields where there are {len(schema):,} columns"
                if isinstance(fields, list):
                    rows.append(fields)
                else:
                    errors[i] = fields
        nulls = frozenset(self.nulls)
        columns = [
            pa.array([None if value in nulls else value for value in column], pa.string())
            for column in (zip(*rows, strict=True) if rows else ((),) * len(schema))
        ]
        columns = [
            cut(column) if pa.types.is_timestamp(field.type) else column
            for field, column in zip(schema, columns, strict=True)
        ]
        fitted, misfits, _ = cast_columns(pa.table(columns, names=schema.names), schema, where="a record")
        return placed(fitted, misfits, errors)

    def _fields(self, line: str) -> list[str] | str:
        """Return the fields of a line, or what is wrong with it."""
        line = _END.sub("", line)
        if not self.quote or self.quote not in line:
            return "more than one line" if _LINE_ENDS.search(line) else line.split(self.delimiter)
        next_field, doubled, fields, at = _field(self.delimiter, self.quote), 2 * self.quote, [], 0
        while True:
            match = next_field.match(line, at)
            if match is None:
                return _trouble(line, at, self.quote)
            quoted, bare, delimiter = match.groups()
            fields.append(bare if quoted is None else quoted.replace(doubled, self.quote))
            if not delimiter:
                return fields
            at = match.end()


def csv_columns(ddl: str) -> pa.Schema:
    """Return the columns; raises ConfigError for DDL that Spark cannot parse, and for what a field cannot hold."""
    schema = columns_of(ddl)
    for field in schema:
        try:
            pa.array([], pa.string()).cast(field.type)
        except pa.ArrowNotImplementedError as why:
            raise ConfigError(f"column {field.name!r} is {field.type}, which a field of CSV cannot hold") from why
    if not schema.names:
        raise ConfigError("a line of CSV needs a column")
    return schema


_END = re.compile(r"(?:\r\n|\r|\n)\Z")
_LINE_ENDS = re.compile(r"[\r\n]")


@lru_cache(maxsize=16)
def _field(delimiter: str, quote: str) -> re.Pattern[str]:
    """Return what matches a field, in quotes or bare, and the delimiter after it, or the end of the line."""
    d, q = re.escape(delimiter), re.escape(quote)
    return re.compile(rf"(?:{q}([^{q}]*(?:{q}{q}[^{q}]*)*){q}|(?!{q})([^{d}\r\n]*))({d}|\Z)")


def _trouble(line: str, at: int, quote: str) -> str:
    """Return why there is no field at a place."""
    if line[at] != quote:
        return "more than one line"
    q = re.escape(quote)
    inside = re.compile(rf"{q}[^{q}]*(?:{q}{q}[^{q}]*)*").match(line, at)
    end = len(line) if inside is None else inside.end()
    return "a quote is not closed" if end == len(line) else f"character {end + 2:,} follows a closed quote"
