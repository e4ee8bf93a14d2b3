"""Decide where Great Expectations finds the same on pandas as on Spark (SEMANTICS 11.2).

The reference is Spark. The engines differ: pandas takes NaN as missing, a sum over nothing passes there, it compares
whole numbers exactly, adds in another order, and its regular expressions are Python's. A report is made by pandas
only where none of that can tell: everything that is not known to be equal goes to Spark.
"""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pyarrow.compute as pc

from penstock.quality.suite import Rule

__all__ = ["for_pandas", "pandas_agrees"]

_EXACT = 2**53
"""Whole numbers up to here are the same as doubles."""
_NEAR = 1e-9
"""A sum this near to its bound, as a share of what was added, may fall on either side."""
_ASCII = re.compile(r"[\x20-\x7e]*")
# What Java and Python read alike: plain characters, classes of them, groups, alternatives, anchors, repetitions.
_PLAIN = r"[A-Za-z0-9 _:;,@%&=~<>!\"'/#-]"
_ESCAPED = r"\\[.\-+*?()\[\]{}|^$/\\dw]"
_CLASS = r"\[\^?(?:[A-Za-z0-9 _.:,+@/](?:-[A-Za-z0-9])?|\\-)+-?\]"
_REPEATED = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})?"
_ALIKE = re.compile(rf"(?:(?:{_PLAIN}|{_ESCAPED}|{_CLASS}|[.)]){_REPEATED}|[\^$(|])*")


def for_pandas(rows: pa.Table) -> pa.Table:
    """Return the rows with numbers as wide as Spark compares them: long and double."""
    columns = []
    for column in rows.columns:
        if pa.types.is_integer(column.type):
            columns.append(column.cast(pa.int64()))
        elif pa.types.is_floating(column.type):
            columns.append(column.cast(pa.float64()))
        else:
            columns.append(column)
    return pa.table(columns, names=rows.column_names)


def pandas_agrees(rule: Rule | None, rows: pa.Table) -> bool:
    """Return whether pandas finds for a rule what Spark finds, on these rows; None is a rule that is not compiled."""
    if rule is None:
        return False
    if rule.type == "expect_table_row_count_to_be_between":
        return True
    if rule.column is None or rule.column not in rows.column_names:
        return False
    column = rows[rule.column]
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _plain_numbers(column) and _agrees_on_numbers(rule, column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _agrees_on_texts(rule, column)
    return False


def _agrees_on_texts(rule: Rule, column: pa.ChunkedArray) -> bool:
    match rule.type:
        case "expect_column_values_to_not_be_null" | "expect_column_values_to_be_unique":
            return True
        case "expect_column_values_to_be_in_set":
            return bool(rule.value_set) and all(isinstance(value, str) for value in rule.value_set)
        case "expect_column_values_to_match_regex":
            texts = pc.unique(column).to_pylist()
            return _ALIKE.fullmatch(rule.regex) is not None and all(t is None or _ASCII.fullmatch(t) for t in texts)
    return False


def _plain_numbers(column: pa.ChunkedArray) -> bool:
    """Return whether all numbers are finite and exact as doubles."""
    values = column.drop_null()
    if len(values) == 0:
        return True
    if pa.types.is_integer(column.type):
        bounds = pc.min_max(values.cast(pa.decimal128(38, 0)) if column.type == pa.uint64() else values).as_py()
        return bool(bounds["min"] >= -_EXACT and bounds["max"] <= _EXACT)
    return bool(pc.all(pc.is_finite(values)).as_py())


def _agrees_on_numbers(rule: Rule, column: pa.ChunkedArray) -> bool:
    written = [bound for bound in (rule.min_value, rule.max_value) if bound is not None]
    bounds = [float(bound) for bound in written if isinstance(bound, int | float) and _plain(bound)]
    if len(bounds) < len(written):
        return False
    match rule.type:
        case "expect_column_values_to_not_be_null" | "expect_column_values_to_be_unique":
            return True
        case "expect_column_values_to_be_between":
            return True
        case "expect_column_values_to_be_in_set":
            return bool(rule.value_set) and all(_plain(value) for value in rule.value_set)
        case "expect_column_min_to_be_between" | "expect_column_max_to_be_between":
            return bool(len(column) > column.null_count)
        case "expect_column_sum_to_be_between" | "expect_column_mean_to_be_between":
            return _far_from(bounds, column, mean="mean" in rule.type)
    return False


def _plain(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= _EXACT


def _far_from(bounds: list[float], column: pa.ChunkedArray, *, mean: bool) -> bool:
    values = column.drop_null().to_pylist()
    if not values:
        return False
    try:
        total, size = math.fsum(values), math.fsum(map(abs, values))
    except OverflowError:
        return False
    if not size < _EXACT:
        return False
    if pa.types.is_integer(column.type) and not mean:
        return True
    by = len(values) if mean else 1
    return all(abs(total / by - bound) > _NEAR * max(1.0, size / by) for bound in bounds)
