r"""Turn row rules into Spark SQL that gives, for each row, what GX on Spark counts.

The expressions are those that GX 1.24.1 builds from columns, with the same literals of the same types. So NaN (greater
than everything), decimals beside doubles and text beside dates mean the same by construction.
Where ANSI mode could raise on a row, the rule is refused for the column's type instead: a gate must not fail on data.

Literals never hold a raw backslash, quote, control character or dollar sign: Spark would read `\d` as `d`,
and replace `${...}` by a variable.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.errors import SuiteError
from penstock.quality.arguments import Bound, kind_of, parse_moment
from penstock.quality.suite import Rule

__all__ = [
    "CONSIDERED",
    "NOT_COUNTED",
    "ROW_PREDICATES",
    "UNEXPECTED",
    "ColumnType",
    "CompiledRule",
    "Family",
    "column_type",
    "identifier",
    "row_expression",
    "text_literal",
]

CONSIDERED, UNEXPECTED, NOT_COUNTED = 0, 1, 2


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


_UNTYPED = ColumnType("", Family.OTHER)
"""The type of a column while the columns are not known."""
_NUMBERS = (Family.INTEGRAL, Family.FLOATING, Family.DECIMAL)
_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule(Rule):
    """One rule ready to run.

    `name` is stable as long as the rule keeps its place: suite:position:type(column).
    A row rule has an `expression`, which fills its `hidden` column; a critical one has a `bit` in `fails_mask`.
    """

    name: str
    column_type: ColumnType = _UNTYPED
    expression: str | None = None
    bit: int | None = None

    @property
    def hidden(self) -> str:
        """Return the column that holds the value of the expression."""
        return f"_gate_{self.position}"


def row_expression(rule: CompiledRule) -> str:
    """Return SQL of type TINYINT: 0 as expected, 1 unexpected, 2 not counted because the value is null.

    Raises SuiteError where GX would raise for this column type, or could on data.
    """
    name = identifier(str(rule.column))
    if rule.type == "expect_column_values_to_not_be_null":
        return f"CASE WHEN {name} IS NULL THEN 1Y ELSE 0Y END"
    holds = ROW_PREDICATES[rule.type](rule, name)
    # NOT null is null and so not unexpected, as in GX: a set with null in it refuses no row.
    return f"CASE WHEN {name} IS NULL THEN 2Y WHEN NOT ({holds}) THEN 1Y ELSE 0Y END"


def identifier(name: str) -> str:
    """Return a column name quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return text as a Spark SQL string literal that means exactly this text.

    It relies on the default of spark.sql.parser.escapedStringLiterals, which is off.
    """
    return "'" + "".join(_escaped(c) for c in text) + "'"


def _escaped(character: str) -> str:
    if character in "\\'\"$" or character < " ":
        return f"\\u{ord(character):04x}"
    return character


def _between(rule: CompiledRule, name: str) -> str:
    parts = []
    for bound, strict, signs in (
        (rule.min_value, rule.strict_min, (">=", ">")),
        (rule.max_value, rule.strict_max, ("<=", "<")),
    ):
        if bound is not None:
            sign, literal = _comparison(bound, signs[strict], rule)
            parts.append(f"{name} {sign} {literal}")
    return " AND ".join(parts)


def _comparison(bound: Bound, sign: str, rule: CompiledRule) -> tuple[str, str]:
    column = rule.column_type
    if isinstance(bound, float | int):
        if column.family in _NUMBERS:
            return sign, _double(float(bound))
    elif column.family is Family.DATE:
        return _date_comparison(bound, sign)
    elif column.family is Family.TIMESTAMP:
        return sign, f"TIMESTAMP_LTZ '{_utc(bound)}Z'"
    elif column.family is Family.TIMESTAMP_NTZ:
        return sign, f"TIMESTAMP_NTZ '{_utc(bound)}'"
    raise SuiteError(
        f"{rule.name}: column {rule.column!r} is {column.name}, which cannot be compared with {kind_of(bound)}",
        where=rule.where,
    )


def _date_comparison(bound: dt.date, sign: str) -> tuple[str, str]:
    """Compare midnights with a bound by their dates, because casting a far date to a timestamp overflows."""
    if not isinstance(bound, dt.datetime):
        return sign, f"DATE '{bound.isoformat()}'"
    moment = dt.datetime.fromisoformat(_utc(bound))
    if moment.time() != dt.time.min:
        sign = {">=": ">", "<": "<="}.get(sign, sign)
    return sign, f"DATE '{moment.date().isoformat()}'"


def _utc(bound: dt.date) -> str:
    """Return a bound as a timestamp in UTC; one without zone is in UTC, as everything inside is."""
    if not isinstance(bound, dt.datetime):
        return f"{bound.isoformat()} 00:00:00"
    moment = bound.astimezone(dt.UTC).replace(tzinfo=None) if bound.tzinfo else bound
    return moment.isoformat(sep=" ")


def _double(value: float) -> str:
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"({value!r}D)"


def _in_set(rule: CompiledRule, name: str) -> str:
    if not rule.value_set:
        return "FALSE"
    literals = ", ".join(_member(value, rule) for value in rule.value_set)
    return f"{name} IN ({literals})"


def _member(value: Any, rule: CompiledRule) -> str:
    column = rule.column_type
    if value is None:
        return "NULL"
    literal = None
    if isinstance(value, bool):
        if column.family is Family.BOOLEAN:
            literal = "TRUE" if value else "FALSE"
    elif isinstance(value, int):
        if column.family in _NUMBERS and _MIN_LONG <= value <= _MAX_LONG:
            literal = f"({value})" if value > _MIN_LONG else "(-9223372036854775807 - 1)"
    elif isinstance(value, float):
        if column.family in _NUMBERS and not math.isnan(value):
            literal = _double(value)
    elif _text_fits(value, column):
        literal = text_literal(value)
    if literal is None:
        raise SuiteError(
            f"{rule.name}: column {rule.column!r} is {column.name} and value_set holds {value!r}, where values "
            "of the column's own type belong, dates and timestamps as ISO text",
            where=rule.where,
        )
    return literal


def _text_fits(text: str, column: ColumnType) -> bool:
    """Return whether Spark can cast the text to the column's type without raising, and as it is read here."""
    if column.family is Family.STRING:
        return True
    moment = parse_moment(text)
    if column.family is Family.DATE:
        return moment is not None and not isinstance(moment, dt.datetime)
    if column.family is Family.TIMESTAMP:
        return moment is not None
    # A cast to TIMESTAMP_NTZ drops the zone in silence.
    return column.family is Family.TIMESTAMP_NTZ and moment is not None and getattr(moment, "tzinfo", None) is None


def _match(rule: CompiledRule, name: str) -> str:
    if rule.column_type.family is Family.OTHER:
        problem = f"{rule.name}: column {rule.column!r} is {rule.column_type.name}, which has no text to match"
        raise SuiteError(problem, where=rule.where)
    return f"{name} RLIKE {text_literal(rule.regex)}"


ROW_PREDICATES: Mapping[str, Callable[[CompiledRule, str], str]] = {
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_match_regex": _match,
}
"""What holds for a value that is not null and is as expected, as SQL over the column's quoted name."""
