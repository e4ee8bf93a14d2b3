"""Random rows and suites for the tests that compare with Great Expectations, and a session in UTC for them."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa

COLUMNS = {
    "small": ("smallint", pa.int16()),
    "whole": ("int", pa.int32()),
    "long": ("bigint", pa.int64()),
    "real": ("double", pa.float64()),
    "single": ("float", pa.float32()),
    "money": ("decimal(12,3)", pa.decimal128(12, 3)),
    "text": ("string", pa.string()),
    "flag": ("boolean", pa.bool_()),
    "day": ("date", pa.date32()),
    "at": ("timestamp", pa.timestamp("us", "UTC")),
    "local": ("timestamp_ntz", pa.timestamp("us")),
}
NUMBERS = ["small", "whole", "long", "real", "single", "money"]
MOMENTS = ["day", "at", "local"]
MIDNIGHT = dt.datetime(2013, 1, 1)  # noqa: DTZ001 - a timestamp without zone is what is tested


# --- random rows -----------------------------------------------------------------------------


def a_value(column: str, rng: random.Random) -> object:
    """Return a value of few, so that sets, bounds and repetitions meet it."""
    moment = MIDNIGHT + rng.choice([0, 1, 2, 3]) * dt.timedelta(hours=12)
    makers = {
        "small": lambda: rng.randint(-3, 6),
        "whole": lambda: rng.randint(-5, 9),
        "long": lambda: rng.choice([rng.randint(-4, 9), 2**53 + rng.randint(-2, 2), -(2**62)]),
        "real": lambda: rng.choice([rng.randint(-9, 9) / 2, 0.0, -0.0, 0.1, 1e300, math.nan, math.inf, -math.inf]),
        "single": lambda: rng.choice([rng.randint(-9, 9) / 2, 0.1, math.nan]),
        "money": lambda: Decimal(rng.randint(-4000, 4000)).scaleb(-3).quantize(Decimal("0.001")),
        "text": lambda: rng.choice(["EWR", "JFK", "LGA", "", "a'b", "A1", "é$", "new\nline", "9E"]),
        "flag": lambda: rng.random() < 0.5,
        "day": moment.date,
        "at": lambda: moment.replace(tzinfo=dt.UTC),
        "local": lambda: moment,
    }
    return makers[column]()


def a_table(rng: random.Random) -> pa.Table:
    """Return 1 to 30 rows; a column may be all null, without NaN, or of one value."""
    rows = rng.choice([1, 2, 7, 20, 30])
    columns = {}
    for name, (_, arrow) in COLUMNS.items():
        nulls = rng.choice([0.0, 0.0, 0.2, 1.0 if rng.random() < 0.3 else 0.4])
        plain = rng.random() < 0.6
        values = []
        while len(values) < rows:
            value = a_value(name, rng)
            if plain and isinstance(value, float) and not abs(value) < 100:
                continue
            values.append(None if rng.random() < nulls else value)
        columns[name] = pa.array(values, arrow)
    return pa.table(columns)


# --- random suites ---------------------------------------------------------------------------


def a_bound(column: str, rng: random.Random) -> object:
    if column in MOMENTS:
        moment = MIDNIGHT + rng.choice([0, 12, 18, 24, 36]) * dt.timedelta(hours=1)
        return moment.isoformat(sep=rng.choice(["T", " "]))
    return rng.choice([rng.randint(-6, 9), rng.randint(-9, 9) / 2, 0.1, 2**53 + 1])


def a_range(column: str, rng: random.Random, *, days: bool) -> dict:
    low, high = a_bound(column, rng), a_bound(column, rng)
    if days:
        low, high = str(low)[:10], str(high)[:10]
    low, high = sorted([low, high], key=lambda b: str(b).replace("T", " ") if isinstance(b, str) else b)
    bounds = {"min_value": low, "max_value": high}
    if rng.random() < 0.3:
        del bounds[rng.choice(list(bounds))]
    return bounds | {flag: True for flag in ("strict_min", "strict_max") if rng.random() < 0.3}


def a_set(column: str, rng: random.Random) -> list:
    values = [a_value(column, rng) for _ in range(rng.choice([0, 1, 3, 12]))]
    values = [v for v in values if not (isinstance(v, float) and not math.isfinite(v))]
    if column == "money":
        values = [rng.choice([int(v), float(v)]) for v in values]
    if column in ("real", "long", "whole") and rng.random() < 0.3:
        values += [0, 0.5, 5_000_000_000]
    if column in MOMENTS:
        values = [v.isoformat() for v in values]
    if rng.random() < 0.15:
        values.append(None)
    return values


def an_expectation(rng: random.Random) -> dict:
    kind = rng.choice(
        ["null", "between", "between", "set", "set", "regex", "unique", "rows", "mean", "sum", "min", "max"]
    )
    column = rng.choice(list(COLUMNS))
    mostly = {"mostly": rng.choice([0, 0.3, 0.5, 0.6, 2 / 3, 0.75, 0.95, 0.99, 1])} if rng.random() < 0.6 else {}
    if kind == "rows":
        low, high = sorted(rng.choice([0, 1, 2, 7, 20, 30, 31]) for _ in range(2))
        bounds = {"min_value": low, "max_value": high, "strict_max": rng.random() < 0.3}
        return {"type": "expect_table_row_count_to_be_between", "kwargs": bounds}
    if kind in ("null", "unique"):
        name = {"null": "expect_column_values_to_not_be_null", "unique": "expect_column_values_to_be_unique"}[kind]
        return {"type": name, "kwargs": {"column": column, **mostly}}
    if kind == "regex":
        regex = rng.choice(["^[A-Z0-9]{2,3}$", "^$", "\\d", "^[^']*$", "(?s)n.l", "[0-9]$|é", "^-?[0-9.]+$", "\\$$"])
        name = "expect_column_values_to_match_regex"
        return {"type": name, "kwargs": {"column": rng.choice(["text", "text", column]), "regex": regex, **mostly}}
    if kind == "set":
        name = "expect_column_values_to_be_in_set"
        return {"type": name, "kwargs": {"column": column, "value_set": a_set(column, rng), **mostly}}
    if kind == "between":
        column = rng.choice(NUMBERS + MOMENTS)
        bounds = a_range(column, rng, days=column in MOMENTS and rng.random() < 0.5)
        return {"type": "expect_column_values_to_be_between", "kwargs": {"column": column, **bounds, **mostly}}
    column = rng.choice(NUMBERS[1:] if kind == "mean" else NUMBERS if kind == "sum" else NUMBERS + MOMENTS)
    bounds = a_range(column, rng, days=column in MOMENTS and rng.random() < 0.5) if rng.random() < 0.9 else {}
    return {"type": f"expect_column_{kind}_to_be_between", "kwargs": {"column": column, **bounds}}


# --- Spark -----------------------------------------------------------------------------------


def utc_session(spark):
    """Return a session of its own: other tests in the process go on with theirs and its settings."""
    session = spark.newSession()
    for name, value in (("session.timeZone", "UTC"), ("shuffle.partitions", "2"), ("adaptive.enabled", "false")):
        session.conf.set(f"spark.sql.{name}", value)
    return session
