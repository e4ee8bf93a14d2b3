"""Divide rows among folders by the values of columns, named as Hive, Spark and Arrow read them: `day=2026-11-25`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import SinkSchemaMismatch, SinkValueRefused

__all__ = ["check_partitions", "divided", "is_named_by", "name_folders"]

NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 255
"""Bytes that a file system gives to one name."""
_ESCAPED = {ord(letter): f"%{ord(letter):02X}" for letter in [*map(chr, range(1, 32)), *"\"#%'*/:=?\\{}[]^<>|\x7f"]}
"""What Hive writes as a code. Spark reads codes of single bytes alone, so letters beyond ASCII stay as they are."""
_KINDS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def check_partitions(schema: pa.Schema, by: Sequence[str]) -> None:
    """Raise SinkSchemaMismatch where rows cannot be divided by these columns."""
    for name in by:
        if schema.names.count(name) != 1:
            raise SinkSchemaMismatch(f"partition_by names {name!r}, and the stream has {schema.names}")
        if name.startswith(("_", ".")):
            raise SinkSchemaMismatch(f"partition_by names {name!r}, and readers pass over folders of such names")
        kind = schema.field(name).type
        if not any(is_kind(kind) for is_kind in _KINDS):
            raise SinkSchemaMismatch(
                f"partition_by names {name!r}, which is {kind}: a folder is named by a text, a whole number, a boolean "
                "or a date"
            )
    if by and not set(schema.names) - set(by):
        raise SinkSchemaMismatch(f"partition_by names all columns, {schema.names}, and leaves none for the files")


def divided(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each folder with its rows in their order, as files have them; raises what `name_folders` raises."""
    for name, part in name_folders(rows, by):
        yield name, part.drop_columns(list(by))


def name_folders(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each folder with its rows in their order, with the columns that name it; "" without such columns.

    Raises SinkValueRefused for a value that is too long for a name, or no UTF-8.
    """
    if not by:
        yield "", rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    names = [""]
    for column in by:
        values = rows[column].combine_chunks().dictionary_encode()
        texts = [*(_text(value, column) for value in values.dictionary), NULL]
        labels, own = np.unique(np.array(texts, object), return_inverse=True)  # an empty text and null are one folder
        mine = own[values.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)]
        # Only combinations that occur: a product of all values would be large.
        used, codes = np.unique(codes * len(labels) + mine, return_inverse=True)
        names = [f"{names[i // len(labels)]}/{_quoted(column)}={labels[i % len(labels)]}" for i in used.tolist()]
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names)), side="right").tolist()
    sorted_rows = rows.take(pa.array(order))
    for name, start, end in zip(names, [0, *ends], ends, strict=False):
        yield name[1:], sorted_rows.slice(start, end - start)


def is_named_by(folder: str, by: Sequence[str]) -> bool:
    """Return whether a folder is one that rows are divided among by these columns."""
    return [name.partition("=")[0] for name in folder.split("/") if name] == [_quoted(column) for column in by]


def _text(value: pa.Scalar, column: str) -> str:
    try:
        plain = value.as_py()
    except (OverflowError, ValueError) as why:
        raise SinkValueRefused(
            f"column {column!r} names folders, and has a text that is no UTF-8, or a date too far"
        ) from why
    if isinstance(plain, bool):
        return str(plain).lower()
    name = _quoted(str(plain)) or NULL
    # A text that says null: readers would take it for one.
    if plain == NULL or "\0" in name or len(f"{_quoted(column)}={name}".encode()) > _LONGEST:
        raise SinkValueRefused(f"column {column!r} names folders, and has {plain!r:.60}, which no folder can be named")
    return name


def _quoted(text: str) -> str:
    """Return a text as part of a path, as Hive quotes it; readers turn `%2F` into a slash again."""
    return text.translate(_ESCAPED)
