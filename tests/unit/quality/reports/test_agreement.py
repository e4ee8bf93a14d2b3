"""Pandas judges only where it cannot but find what Spark finds; what is not known to be equal goes to Spark (11.2)."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.quality import load_suite
from penstock.quality.reports.agreement import for_pandas, pandas_agrees

EXACT = 2**53


def a_rule(kind: str, column: str | None = "v", **kwargs):
    """Return the rule as a gate reads it; `kind` is its type without the words that all share."""
    names = {"null": "values_to_not_be_null", "unique": "values_to_be_unique", "between": "values_to_be_between",
             "set": "values_to_be_in_set", "regex": "values_to_match_regex"}  # fmt: skip
    type_ = f"expect_column_{names.get(kind, f'{kind}_to_be_between')}"
    if kind == "rows":
        return rule_of("expect_table_row_count_to_be_between", **kwargs)
    return rule_of(type_, column=column, **kwargs)


def rule_of(type_: str, **kwargs):
    return load_suite({"name": "s", "expectations": [{"type": type_, "kwargs": kwargs}]}, where="test").rules[0]


def agrees(rule, values, type_=None) -> bool:
    return pandas_agrees(rule, pa.table({"v": pa.array(values, type_)}))


LONG, REAL, SINGLE, TEXT = pa.int64(), pa.float64(), pa.float32(), pa.string()
ANY = {"min_value": -1, "max_value": 1}

AGREED = {
    "nulls in whole numbers": (a_rule("null"), [1, None], LONG),
    "all null": (a_rule("null"), [None, None], LONG),
    "no null in floats": (a_rule("null"), [0.5], REAL),
    "nulls in texts, also others than ASCII": (a_rule("null"), ["é\n", None], TEXT),
    "large texts": (a_rule("unique"), ["a", "a"], pa.large_string()),
    "unique numbers": (a_rule("unique"), [1, 1, None], LONG),
    "between whole numbers": (a_rule("between", **ANY), [1, None, EXACT, -EXACT], LONG),
    "between floats of 32 bits": (a_rule("between", max_value=0.1), [0.1], SINGLE),
    "between small whole numbers": (a_rule("between", max_value=10**9), [1], pa.int8()),
    "between the widest exact bounds": (a_rule("between", min_value=-EXACT, max_value=EXACT), [1], LONG),
    "a set of numbers": (a_rule("set", value_set=[1, 0.5]), [1, 2], LONG),
    "a set of texts": (a_rule("set", value_set=["a", "é"]), ["a", "é\n"], TEXT),
    "a minimum": (a_rule("min", **ANY), [1, None], LONG),
    "a maximum of floats": (a_rule("max", **ANY), [0.1], REAL),
    "a sum of whole numbers on its bound": (a_rule("sum", **ANY), [1, -1, 1], LONG),
    "a sum of floats far from its bounds": (a_rule("sum", **ANY), [0.25, 0.25], REAL),
    "a mean far from its bounds": (a_rule("mean", **ANY), [1, 0], LONG),
    "a sum without bounds": (a_rule("sum"), [0.1, 0.2], REAL),
}


@pytest.mark.parametrize("case", AGREED)
def test_plain_values_are_judged_by_pandas(case):
    """Where nothing can tell, a report needs no Spark."""
    assert agrees(*AGREED[case])


ZERO_TO_ONE = {"min_value": 0, "max_value": 1}
DAY = {"min_value": "2013-01-01"}
NUMBERS = ["between", "min", "max", "sum", "mean"]

APART = {
    **{f"{kind} with NaN": (a_rule(kind, **ANY), [0.5, math.nan], REAL) for kind in NUMBERS},
    **{f"{kind} with inf": (a_rule(kind, **ANY), [0.5, math.inf], REAL) for kind in NUMBERS},
    **{f"{kind} with -inf in 32 bits": (a_rule(kind, **ANY), [-math.inf], SINGLE) for kind in NUMBERS},
    "nulls with NaN": (a_rule("null"), [math.nan], REAL),
    "unique with NaN": (a_rule("unique"), [math.nan, math.nan], REAL),
    "a set with NaN": (a_rule("set", value_set=[1]), [math.nan], REAL),
    **{f"{kind} of nulls only": (a_rule(kind, **ANY), [None, None], LONG) for kind in NUMBERS[1:]},
    **{f"{kind} of null floats only": (a_rule(kind, **ANY), [None], REAL) for kind in NUMBERS[1:]},
    **{f"{kind} of no rows": (a_rule(kind, **ANY), [], REAL) for kind in NUMBERS[1:]},
    "a whole number that is no double": (a_rule("between", **ANY), [EXACT + 1], LONG),
    "its negative": (a_rule("between", **ANY), [-EXACT - 1], LONG),
    "the least long": (a_rule("max", **ANY), [-(2**63)], LONG),
    "the greatest unsigned": (a_rule("max", **ANY), [2**64 - 1], pa.uint64()),
    "unique above what is exact": (a_rule("unique"), [EXACT + 1, EXACT + 2], LONG),
    "a set with a number that is no double": (a_rule("set", value_set=[1, EXACT + 1]), [1], LONG),
    "an empty set": (a_rule("set", value_set=[]), [1], LONG),
    "a set with null": (a_rule("set", value_set=[1, None]), [1], LONG),
    "a set of texts with null": (a_rule("set", value_set=["a", None]), ["a"], TEXT),
    "texts beside numbers": (a_rule("set", value_set=["1"]), [1], LONG),
    "numbers beside texts": (a_rule("set", value_set=[1]), ["1"], TEXT),
    "booleans beside numbers": (a_rule("set", value_set=[True]), [1], LONG),
    "dates as texts beside numbers": (a_rule("between", **DAY), [1], LONG),
    "a sum of floats on its bound": (a_rule("sum", **ZERO_TO_ONE), [0.5, 0.5], REAL),
    "a sum near its bound": (a_rule("sum", **ZERO_TO_ONE), [0.1] * 10, REAL),
    "a sum near the other bound": (a_rule("sum", **ZERO_TO_ONE), [1e-12, -1e-12], REAL),
    "a sum of great numbers near its bound": (a_rule("sum", **ZERO_TO_ONE), [1e12, -1e12, 1.0000001], REAL),
    "a sum too great to be exact": (a_rule("sum", max_value=1), [EXACT, EXACT], LONG),
    "a sum that overflows on the way": (a_rule("sum", max_value=1), [1e308, 1e308, -1e308], REAL),
    "a mean on its bound": (a_rule("mean", **ZERO_TO_ONE), [1, 1], LONG),
    "a mean near its bound": (a_rule("mean", **ZERO_TO_ONE), [1 / 3, 2 / 3, 2.0], REAL),
    "a column that is not there": (a_rule("null", column="w"), [1], LONG),
    **{
        f"{name} have {kind}": (a_rule(kind, **more), [value], type_)
        for name, value, type_ in [
            ("decimals", Decimal("1.5"), pa.decimal128(12, 3)),
            ("dates", dt.date(2013, 1, 1), pa.date32()),
            ("moments", dt.datetime(2013, 1, 1, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
            ("booleans", True, pa.bool_()),
            ("nulls", None, pa.null()),
            ("bytes", b"a", pa.binary()),
            ("lists", [1], pa.list_(pa.int64())),
        ]
        for kind, more in [("null", {}), ("unique", {}), ("max", ANY), ("max", DAY), ("set", {"value_set": [1]})]
    },
    "a regular expression on numbers": (a_rule("regex", regex="1"), [1], LONG),
    "a range of texts": (a_rule("max", **ANY), ["a"], TEXT),
}


@pytest.mark.parametrize("case", APART)
def test_what_engines_take_differently_goes_to_spark(case):
    """NaN, infinities, sums over nothing or near a bound, numbers that are no doubles, types that pandas reads its way."""
    assert not agrees(*APART[case])


def test_a_rule_that_is_not_compiled_goes_to_spark():
    """Nothing is known of it."""
    assert not pandas_agrees(None, pa.table({"v": [1]}))


@pytest.mark.parametrize("rows", [[], [math.nan], [None, 1.0]], ids=["none", "NaN", "null"])
def test_a_count_of_rows_is_a_count_of_rows(rows):
    """Whatever is in them."""
    assert agrees(a_rule("rows", min_value=1, max_value=2), rows, REAL)


def test_many_floats_that_add_up_differently_by_order_go_to_spark():
    """The bound is put on what pandas finds itself: the worst that can be."""
    values = np.random.default_rng(3).lognormal(0, 3, 5_000)
    bound = float(values.sum())
    for kind, at in (("sum", bound), ("mean", bound / len(values))):
        for near in (at, np.nextafter(at, 0), at * (1 + 1e-12)):
            assert not agrees(a_rule(kind, max_value=float(near)), values, REAL)
        assert agrees(a_rule(kind, max_value=at * 1.01), values, REAL)


# --- regular expressions ----------------------------------------------------------------------

ALIKE = [
    "^[A-Z0-9]{2,3}$", "^$", "\\d+", "^-?[0-9.]+$", "\\$$", "a|b", "(ab)+c?", "[^A-Z]", "^.*$", "[a-z_-]", "x{3}",
    "x{3,}", "\\w", "a b", "<a href='x'>", "\\[x\\]", "[+.]",
]  # fmt: skip


@pytest.mark.parametrize("regex", ALIKE)
def test_plain_expressions_on_ascii_are_judged_by_pandas(regex):
    """Letters, classes, groups, alternatives, anchors and repetitions mean one thing."""
    assert agrees(a_rule("regex", regex=regex), ["EWR", "a b", "~", "", None], TEXT)


@pytest.mark.parametrize(
    "text", ["é", "a\n", "\n", "a\r", "\t", "a\x00", "\x7f", "٣", "\u2028", "a\u0085", "🛫"], ids=ascii
)
@pytest.mark.parametrize("regex", ["^[A-Z]$", "\\d", "a$", ".", "\\w"])
def test_texts_with_other_letters_or_line_ends_go_to_spark(regex, text):
    """Java's dollar, dot and digit differ from Python's there. One such text among many is enough."""
    assert not agrees(a_rule("regex", regex=regex), ["EWR", text, None], TEXT)


DIFFERENT = {
    "word boundary": "\\bA\\b",
    "space": "\\s",
    "not a space": "\\S",
    "not a digit": "\\D",
    "horizontal space": "\\h",
    "end": "a\\Z",
    "very end": "a\\z",
    "start": "\\Aa",
    "line end": "a\\R",
    "letters": "\\p{L}",
    "names of classes": "\\p{Alpha}",
    "POSIX in Python's words": "[[:alpha:]]",
    "quoted": "\\Qa.b\\E",
    "back reference": "(a)\\1",
    "named reference": "(?<n>a)\\k<n>",
    "octal": "\\0101",
    "hex": "\\x41",
    "code point": "\\u0041",
    "tab": "\\t",
    "control": "\\cA",
    "previous match": "\\Ga",
    "possessive": "a*+",
    "possessive optional": "a?+",
    "possessive count": "a{2}+",
    "reluctant": "a*?b",
    "repeated count": "a{2}{3}",
    "no least": "a{,3}",
    "a long count": "a{1000}",
    "look behind": "(?<=a)b",
    "negative look behind": "(?<!a)b",
    "look behind of any length": "(?<=a{1,3})b",
    "ignoring case": "(?i)ewr",
    "ignoring case within": "a(?i)b",
    "ignoring case of a group": "(?i:ewr)",
    "flags of Java": "(?d)a",
    "flags of Python": "(?a)a",
    "comments": "(?x)[a b]",
    "comment of Python": "(?#a)b",
    "named in Java": "(?<n>a)",
    "named in Python": "(?P<n>a)",
    "conditional of Python": "(a)?(?(1)b)",
    "nothing after the question mark": "(?)",
    "intersection": "[a-z&&[^b]]",
    "union": "[a-c[x-z]]",
    "class in a class": "[[a]]",
    "two ampersands": "[a&&b]",
    "bracket in a class": "[a\\]b]",
    "bracket at once": "[]a]",
    "caret in a class": "[a^b]",
    "space in a class": "[\\s]",
    "digit in a class": "[\\d]",
    "range to a class": "[a-\\d]",
    "repeated start": "^*a",
    "repeated end": "a$*",
    "optional start": "^?a",
    "counted end": "a${2}",
    "repeated alternative": "a|*b",
    "repeated opening": "(*a)",
    "a brace alone": "a{",
    "a closing brace alone": "a}",
    "not ASCII": "é",
    "line end written": "a\n",
}


@pytest.mark.parametrize("construct", DIFFERENT)
def test_constructs_that_java_and_python_read_differently_go_to_spark(construct):
    """Or that one of them refuses, or that are not known to be the same."""
    assert not agrees(a_rule("regex", regex=DIFFERENT[construct]), ["EWR", "a b"], TEXT)


# --- what pandas is given ---------------------------------------------------------------------


def test_numbers_are_widened_to_what_spark_compares():
    """Small whole numbers to long, floats to double with the value that they have; the rest stays, nulls too."""
    rows = pa.table({
        "a": pa.array([1, None], pa.int8()),
        "b": pa.array([0.1, None], pa.float32()),
        "c": pa.array([2**31, None], pa.uint32()),
        "d": pa.array(["x", None]),
        "e": pa.array([Decimal("1.5"), None]),
    })  # fmt: skip
    wide = for_pandas(rows)
    assert wide.schema.types == [LONG, REAL, LONG, TEXT, rows["e"].type]
    assert wide.to_pylist()[0] == {"a": 1, "b": float(np.float32(0.1)), "c": 2**31, "d": "x", "e": Decimal("1.5")}
    assert set(wide.to_pylist()[1].values()) == {None}
