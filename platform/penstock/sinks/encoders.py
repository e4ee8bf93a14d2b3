"""Encode rows as the values of records: what a topic carries, column by column without a Python object a cell.

An encoder of your own is one class with two methods:

    class Upper(Encoder):
        def check(self, schema): ...
        def encode(self, rows): return pc.utf8_upper(rows["word"].combine_chunks())
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SinkSchemaMismatch, SinkValueRefused
from penstock.graph.argument_types import refuse_other_types

__all__ = ["Encoder", "Json", "Raw", "Text", "json_of", "plain_text"]


class Encoder(Protocol):
    """Make the values of records of rows. Subclass it."""

    def check(self, schema: pa.Schema) -> None:
        """Raise SinkSchemaMismatch for columns that the encoder does not have or cannot hold."""

    def encode(self, rows: pa.Table) -> pa.Array:
        """Return a value for each row, string or binary; null is a record without a value.

        Raises SinkValueRefused for a value that the encoding cannot hold.
        """


@dataclass(frozen=True, slots=True)
class Text(Encoder):
    """One column of text as it is, in UTF-8; null is a record without a value."""

    column: str = "value"

    def __post_init__(self) -> None:
        """Refuse arguments of other types."""
        refuse_other_types(self)

    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema without that column of text."""
        _only(schema, self.column, pa.types.is_string, "text")

    def encode(self, rows: pa.Table) -> pa.Array:
        """Return the texts."""
        return _valid(rows[self.column].combine_chunks(), self.column)


@dataclass(frozen=True, slots=True)
class Raw(Encoder):
    """One column of bytes as they are; null is a record without a value."""

    column: str = "value"

    def __post_init__(self) -> None:
        """Refuse arguments of other types."""
        refuse_other_types(self)

    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema without that column of bytes."""
        _only(schema, self.column, pa.types.is_binary, "bytes")

    def encode(self, rows: pa.Table) -> pa.Array:
        """Return the bytes."""
        return rows[self.column].combine_chunks()


@dataclass(frozen=True, slots=True)
class Json(Encoder):
    """A JSON object a row, with a member for each column, or for those of `columns` in their order.

    `penstock.sources.Json` reads the same values back. Null is a member `null`. Timestamps are texts by ISO 8601 in
    UTC with six digits of a second, those without a time zone have no `Z`. Dates are texts, binary is a text by Base64.
    Decimals are numbers with all their digits. JSON has no NaN and no infinity, and ISO 8601 ends with the year 9999:
    such values are refused before their batch is committed.
    """

    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        refuse_other_types(self)

    def check(self, schema: pa.Schema) -> None:
        """Refuse a column that is not there, or whose type JSON cannot hold."""
        names = list(self.columns) or schema.names
        for name in names:
            if schema.names.count(name) != 1:
                raise SinkSchemaMismatch(f"Json(columns=) has {name!r}, and the stream has {schema.names}")
            if not _is_held(schema.field(name).type):
                raise SinkSchemaMismatch(f"column {name!r} is {schema.field(name).type}, which JSON cannot hold")

    def encode(self, rows: pa.Table) -> pa.Array:
        """Return the objects as texts."""
        names = list(self.columns) or rows.column_names
        return _object([(name, json_of(rows[name].combine_chunks(), name)) for name in names], rows.num_rows)


def json_of(column: pa.Array, name: str) -> pa.Array:
    """Return the JSON of each value of a column, of a null the text `null`; raises SinkValueRefused."""
    for is_kind, texts in _TEXTS:
        if is_kind(column.type):
            return texts(column, name).fill_null("null")
    raise SinkSchemaMismatch(f"column {name!r} is {column.type}, which JSON cannot hold")


def plain_text(column: pa.Array, name: str) -> pa.Array:
    """Return a column as keys: text and bytes as they are, other values as their JSON without quotes, and null as null.

    Raises SinkValueRefused.
    """
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_string(column.type):
        return _valid(column, name)
    texts = json_of(column, name)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        texts = pc.utf8_trim(texts, '"')
    return pc.if_else(column.is_null(), pa.scalar(None, pa.string()), texts)


def _only(schema: pa.Schema, column: str, is_kind: Callable[[pa.DataType], bool], kind: str) -> None:
    if schema.names.count(column) != 1:
        raise SinkSchemaMismatch(f"the value is column {column!r}, and the stream has {schema.names}")
    if not is_kind(schema.field(column).type):
        raise SinkSchemaMismatch(f"the value is column {column!r}, which is {schema.field(column).type} and no {kind}")


# --- the JSON of each type -----------------------------------------------------------------------
def _numbers(column: pa.Array, _: str) -> pa.Array:
    return column.cast(pa.string())


def _floats(column: pa.Array, name: str) -> pa.Array:
    if pc.any(pc.invert(pc.is_finite(column))).as_py():
        raise SinkValueRefused(f"column {name!r} has NaN or an infinity, which JSON cannot hold")
    texts = column.cast(pa.string())
    # Readers that decode -0 as a whole number lose its sign.
    return pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)


def _strings(column: pa.Array, name: str) -> pa.Array:
    valid = _valid(column, name)
    quoted = pc.binary_join_element_wise('"', valid, '"', "")
    escaped = pc.match_substring_regex(valid, r'["\\\x00-\x1f\x7f]').fill_null(fill_value=False)
    if not pc.any(escaped).as_py():
        return quoted
    texts = pa.array([json.dumps(text, ensure_ascii=False) for text in valid.filter(escaped).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, escaped, texts)


def _valid(column: pa.Array, name: str) -> pa.Array:
    """Return texts; Spark also has texts that are no UTF-8, and a reader would not have them."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as why:
        raise SinkValueRefused(f"column {name!r} has a text that is no UTF-8") from why
    return column


def _base64(column: pa.Array, _: str) -> pa.Array:
    texts = (value if value is None else binascii.b2a_base64(value, newline=False) for value in column.to_pylist())
    return pc.binary_join_element_wise('"', pa.array(texts, pa.binary()).cast(pa.string()), '"', "")


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds from 1970 to the first and the last moment of the years 1 to 9999."""
_DAY = 86_400_000_000


def _timestamps(column: pa.Array, name: str) -> pa.Array:
    in_micros = column.cast(pa.timestamp("us", tz=column.type.tz))
    _refuse_years(in_micros.view(pa.int64()), _FIRST, _LAST, name)
    texts = in_micros.cast(pa.timestamp("us")).cast(pa.string())
    zone = "Z" if column.type.tz is not None else ""
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, " ", "T", max_replacements=1), f'{zone}"', "")


def _dates(column: pa.Array, name: str) -> pa.Array:
    _refuse_years(column.view(pa.int32()), _FIRST // _DAY, _LAST // _DAY, name)
    return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")


def _refuse_years(numbers: pa.Array, first: int, last: int, name: str) -> None:
    span = pc.min_max(numbers).as_py()
    if span["min"] is not None and not first <= span["min"] <= span["max"] <= last:
        raise SinkValueRefused(f"column {name!r} has a time outside the years 1 to 9999, which ISO 8601 cannot hold")


def _lists(column: pa.Array, name: str) -> pa.Array:
    items = json_of(column.flatten(), name)
    return _bracketed(column, items, "[", "]")


def _maps(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    pairs = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    keys, values = pairs.flatten().flatten()
    members = pc.binary_join_element_wise(json_of(keys, name), ":", json_of(values, name), "")
    return _bracketed(pairs, members, "{", "}")


def _bracketed(lists: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """Return the texts of lists of which `items` are those of all that are not null, one after the other."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), ",")
    texts = pc.binary_join_element_wise(opening, joined, closing, "")
    return pc.if_else(lists.is_null(), pa.scalar(None, pa.string()), texts)


def _structs(column: pa.Array, name: str) -> pa.Array:
    members = [
        (f.name, json_of(child, f"{name}.{f.name}")) for f, child in zip(column.type, column.flatten(), strict=True)
    ]
    texts = _object(members, len(column))
    return pc.if_else(column.is_null(), pa.scalar(None, pa.string()), texts)


def _object(members: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    if not members:
        return pa.repeat(pa.scalar("{}"), rows)
    parts: list[Any] = []
    for number, (name, texts) in enumerate(members):
        parts += ["{" if number == 0 else ",", f"{json.dumps(name, ensure_ascii=False)}:", texts]
    return pc.binary_join_element_wise(*parts, "}", "")


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, str], pa.Array]], ...] = (
    (pa.types.is_integer, _numbers),
    (pa.types.is_boolean, _numbers),
    (pa.types.is_decimal, _numbers),
    (pa.types.is_null, _numbers),
    (pa.types.is_floating, _floats),
    (pa.types.is_string, _strings),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date, _dates),
    (pa.types.is_binary, _base64),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
)


def _is_held(kind: pa.DataType) -> bool:
    """Return whether JSON can hold a type, with all that is inside it."""
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _is_held(kind.item_type)
    if pa.types.is_list(kind):
        return _is_held(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_held(f.type) for f in kind)
    return any(is_kind(kind) for is_kind, _ in _TEXTS)
