"""Name the Spark types of columns, as far as the verdict of a rule depends on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["UNTYPED", "ColumnType", "Family", "column_type"]


class Family(Enum):
    """Group the types that a rule treats alike."""

    INTEGRAL = "integral"
    FLOATING = "floating"
    DECIMAL = "decimal"
    STRING = "string"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's Spark type: its simple name, its family, and the scale of a decimal."""

    name: str
    family: Family
    scale: int = 0


UNTYPED = ColumnType("", Family.OTHER)
"""The type of a column while the columns are not known."""
_FAMILIES = {
    "tinyint": Family.INTEGRAL,
    "smallint": Family.INTEGRAL,
    "int": Family.INTEGRAL,
    "bigint": Family.INTEGRAL,
    "float": Family.FLOATING,
    "double": Family.FLOATING,
    "string": Family.STRING,
    "boolean": Family.BOOLEAN,
    "date": Family.DATE,
    "timestamp": Family.TIMESTAMP,
    "timestamp_ntz": Family.TIMESTAMP_NTZ,
}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
_TEXT = re.compile(r"(?:var)?char\(\s*\d+\s*\)")


def column_type(text: str) -> ColumnType:
    """Return the type that a Spark type name means; what no rule but not-null can judge is OTHER."""
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name in _FAMILIES:
        return ColumnType(name, _FAMILIES[name])
    if _TEXT.fullmatch(name):
        return ColumnType("string", Family.STRING)
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        precision, scale = int(decimal.group(1) or 10), int(decimal.group(2) or 0)
        return ColumnType(f"decimal({precision},{scale})", Family.DECIMAL, scale)
    return ColumnType(name, Family.OTHER)
