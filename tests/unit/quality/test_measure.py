"""What tasks measure, merged in any order, is what a plain model finds over all rows (SEMANTICS 11.1 to 11.3)."""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.quality import compile_suite, load_suite
from penstock.quality.measure import Partial

TYPES = {"whole": "bigint", "real": "double", "money": "decimal(20,2)", "text": "string", "at": "timestamp"}
ARROW = {
    "whole": pa.int64(), "real": pa.float64(), "money": pa.decimal128(20, 2), "text": pa.string(),
    "at": pa.timestamp("us", "UTC"),
}  # fmt: skip
NUMBERS = ("min", "max", "sum", "mean")


def rule(type_: str, column: str) -> dict:
    return {"type": type_, "kwargs": {"column": column}}


RULES = [
    *(rule(f"expect_column_{metric}_to_be_between", c) for c in ("whole", "real", "money") for metric in NUMBERS),
    rule("expect_column_min_to_be_between", "at"),
    rule("expect_column_max_to_be_between", "at"),
    *(rule("expect_column_values_to_be_unique", column) for column in TYPES),
    {"type": "expect_table_row_count_to_be_between", "kwargs": {}},
]
ALL_METRICS = compile_suite(load_suite({"name": "s", "expectations": RULES}, where="test"), TYPES)


def model(metric: str, column: str, values: list) -> object:
    """Return the observed value as SEMANTICS 11.2 has it: by Spark's rules, in exact arithmetic rounded once."""
    held = [v for v in values if v is not None]
    if not held:
        return None
    nan = [v for v in held if isinstance(v, float) and math.isnan(v)]
    plain = [v for v in held if not (isinstance(v, float) and math.isnan(v))]
    if metric == "min":
        return as_observed(min(plain)) if plain else None
    if metric == "max":
        return None if nan else as_observed(max(plain))
    infinite = {v for v in plain if isinstance(v, float) and math.isinf(v)}
    if nan or len(infinite) == 2:
        return None
    if infinite:
        return infinite.pop()
    total = sum(map(Fraction, plain), Fraction(0))
    if metric == "mean" and column == "money":
        exact = (Decimal(total.numerator) / Decimal(total.denominator)) / len(plain)
        return float(exact.quantize(Decimal("0.000001"), ROUND_HALF_UP))
    return float(total) if metric == "sum" else float(total) / len(plain)


def as_observed(value: object) -> object:
    if isinstance(value, Decimal):
        return float(value)
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def nullable(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


ROW = st.fixed_dictionaries({
    "unit": st.sampled_from([1, 2, None]),
    "whole": nullable(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "real": nullable(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e17, 1.0])),
    "money": nullable(st.decimals(-(10**17), 10**17, places=2) | st.sampled_from([Decimal("0.01"), Decimal("0.02")])),
    "text": nullable(st.sampled_from(["", "a", "b", "é"])),
    "at": nullable(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))),  # noqa: DTZ001
})  # fmt: skip


def table_of(rows: list[dict]) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], arrow) for name, arrow in ARROW.items()}
    return pa.table({"unit": pa.array([row["unit"] for row in rows], pa.int32()), **columns})


def key_of(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def expected_results(rows: list[dict]) -> list:
    values = {name: [row[name] for row in rows] for name in TYPES}
    observed = [model(m, c, values[c]) for c in ("whole", "real", "money") for m in NUMBERS]
    observed += [model("min", "at", values["at"]), model("max", "at", values["at"])]
    repeated = []
    for name in TYPES:
        keys = [key_of(v) for v in values[name] if v is not None]
        repeated.append((sum(keys.count(k) > 1 for k in keys), len(keys)))
    return [*observed, *repeated, len(rows)]


def found_results(verdict) -> list:
    return [r.observed if r.unexpected is None else (r.unexpected, r.considered) for r in verdict.results]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(ROW, min_size=1, max_size=25), st.data())
def test_any_split_of_the_rows_gives_the_observed_values_of_the_model(rows, data):
    """11.2, 11.3: exact sums of any cut into tasks and any order of merging; NaN and infinities as in Spark."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    shuffled = table_of(data.draw(st.permutations(rows)))
    parts = [shuffled.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    partials = data.draw(st.permutations([ALL_METRICS.measure(part) for part in parts]))
    assert found_results(ALL_METRICS.decide(partials)) == expected_results(rows)


@settings(max_examples=examples(24))
@given(st.lists(ROW, max_size=25), st.integers(0, 25))
def test_each_unit_is_judged_by_its_own_rows(rows, cut):
    """11.1: a window that lies in several tasks gets one verdict over all its keys, and other windows do not matter."""
    table = table_of(rows)
    partials = [ALL_METRICS.measure(part, ["unit"]) for part in (table.slice(0, cut), table.slice(cut))]
    partials = [Partial.from_json(partial.to_json()) for partial in partials]
    by_unit = {unit["unit"]: found_results(verdict) for unit, verdict in ALL_METRICS.decide_units(partials)}
    units = {row["unit"] for row in rows}
    assert by_unit == {unit: expected_results([row for row in rows if row["unit"] == unit]) for unit in units}
