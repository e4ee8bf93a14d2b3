"""Decode records by a function of the user's over Arrow (F48)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError, DecoderFailed, PenstockError
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.source_location import file_of
from penstock.sources.formats.base import Decoded, Format, columns_of
from penstock.sources.records import cast_columns

__all__ = ["ArrowFunction"]

_BAD = "_error"
_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class ArrowFunction(Format):
    """A function that makes rows of records: `ArrowFunction(parsed, output="id long, v double")`.

    It is `fn(records: pa.Table) -> pa.Table`. `records` has the column `value` (binary, null for a record without a
    value). The result has a row for each record, in their order, and the columns of `output` in any order. It may also
    have a column `_error` (string): a record with an error there goes to quarantine, with that reason.
    The function gets a piece of a partition at a time, of any size, and must not depend on where pieces begin.

    Args:
        fn: The function, which tasks import by its name.
        output: The columns, as Spark DDL.

    Raises:
        DecoderFailed: The function raises in a batch, or returns another number of rows or other columns. Nothing is
            quarantined then, because the function is wrong and not a record.
    """

    in_files: ClassVar[bool] = False
    fn: Callable[[pa.Table], pa.Table]
    output: str

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ConfigError(f"fn={self.fn!r} is no function")
        refuse_other_types(self)

    def columns(self) -> pa.Schema:
        """Return the columns; raises ConfigError for DDL that Spark cannot parse."""
        schema = columns_of(self.output)
        if _BAD in schema.names:
            raise ConfigError(f"output has a column {_BAD!r}, by which the function marks bad records")
        return schema

    def decode(self, values: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
        """Return what the function makes of the values; raises DecoderFailed."""
        records = pa.table([pa.array(values, pa.binary())], names=["value"])
        try:
            made = self.fn(records)
        except Exception as why:
            problem = why.what if isinstance(why, PenstockError) else f"{type(why).__name__}: {why}"
            raise DecoderFailed(problem, where=self._place(why)) from why
        try:
            return _decoded(made, records.num_rows, schema)
        except (ConfigError, ValueError, TypeError, pa.ArrowException) as why:
            raise DecoderFailed(why.what if isinstance(why, PenstockError) else str(why), where=self._place()) from why

    def _place(self, why: Exception | None = None) -> str:
        """Return file and line where the function raised, or else where it begins."""
        mine = file_of(self.fn)
        frames = [] if why is None else list(reversed(traceback.extract_tb(why.__traceback__)))
        theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
        frame = next((frame for frame in theirs if frame.filename == mine), theirs[0] if theirs else None)
        if frame is not None:
            return f"{frame.filename}:{frame.lineno}"
        code: Any = getattr(self.fn, "__code__", None) or getattr(type(self.fn).__call__, "__code__", None)
        return repr(self.fn) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _decoded(made: object, records: int, schema: pa.Schema) -> Decoded:
    """Return what a function returned as rows of the schema; raises TypeError, ValueError or ArrowException."""
    if not isinstance(made, pa.Table):
        raise TypeError(f"the function returns a pa.Table, and returned {type(made).__name__}")
    if made.num_rows != records:
        raise ValueError(f"the function returns a row for each record, and returned {made.num_rows:,} for {records:,}")
    names = [name for name in made.column_names if name != _BAD]
    if sorted(names) != sorted(schema.names) or len(made.column_names) > len(names) + 1:
        raise ValueError(f"the function returns the columns {schema.names}, and returned {made.column_names}")
    errors = made[_BAD].cast(pa.string()).combine_chunks() if _BAD in made.column_names else None
    if errors is not None and not errors.null_count < len(errors):
        errors = None
    for field in schema:
        if not _is_like(made[field.name].type, field.type):
            raise TypeError(f"column {field.name!r} is {field.type}, and the function returned {made[field.name].type}")
    rows, misfits, _ = cast_columns(made.select(schema.names), schema, where="the function's rows")
    if errors is not None:
        misfits = None if misfits is None else pc.if_else(errors.is_null(), misfits, None)
        columns = [pc.if_else(errors.is_null(), column, pa.nulls(records, column.type)) for column in rows.columns]
        rows = pa.table(columns, schema=schema)
    if misfits is not None and misfits.null_count < records:
        raise ValueError(f"the function returns the types of its output, and returned {misfits.drop_null()[0]}")
    return Decoded(rows, errors)


def _is_like(made: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type may be cast to a column's: it is the same, or another width of it, or holds nothing."""
    if made == wanted or pa.types.is_null(made):
        return True
    kinds = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal,
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    )  # fmt: skip
    return any(is_kind(made) and is_kind(wanted) for is_kind in kinds)
