"""The compiled gate gives the verdict of Great Expectations on its Spark engine, rule by rule (SEMANTICS 11.2).

Tables and suites are random but fixed by a seed, which is the id of the case: run one with `-k seed7`.
GX needs a second for a suite, so each table gets one suite of many expectations.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import random
import warnings
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.quality import CompiledGate, compile_suite, load_suite
from penstock.quality.predicates import identifier, text_literal

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEEDS = range(12)
EXPECTATIONS = 25

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


# --- the two judges --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark(spark):
    """A session of its own: other tests in the process go on with theirs and its settings."""
    session = spark.newSession()
    for name, value in (("session.timeZone", "UTC"), ("shuffle.partitions", "2"), ("adaptive.enabled", "false")):
        session.conf.set(f"spark.sql.{name}", value)
    return session


@pytest.fixture(scope="module")
def gx():
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations

        context = great_expectations.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
    return context


def gx_results(context, frame, suite: dict) -> list:
    """Return what GX found, in the order of the suite; an expectation that raised in GX fails the test."""
    import great_expectations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = context.data_sources.add_or_update_spark("frames", persist=False)
        asset = source.add_dataframe_asset("frame")
        batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
        placed = [{**expectation, "meta": {"place": place}} for place, expectation in enumerate(suite["expectations"])]
        plain = great_expectations.ExpectationSuite(name=suite["name"], expectations=placed)
        found = batch.validate(plain, result_format={"result_format": "BASIC", "partial_unexpected_count": 0})
    results = sorted(found.results, key=lambda r: r.expectation_config.meta["place"])
    for result in results:
        assert result.result, f"GX raised: {result.expectation_config} {result.exception_info}"
    return results


def penstock_verdict(spark, gate: CompiledGate, frame, rng: random.Random):
    """Evaluate the row rules in Spark, then measure the rows in some tasks, one of them empty."""
    table = frame.selectExpr("*", *(f"{sql} AS {name}" for name, sql in gate.row_columns())).toArrow()
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.choice([0, 1, 3])))
    tasks = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, table.num_rows], strict=True)]
    return gate.decide(type(p).from_json(p.to_json()) for p in map(gate.measure, [*tasks, table.slice(0, 0)]))


def plain(observed) -> object:
    """Return moments as their days: GX reports what it compared, the gate what it saw."""
    return str(observed)[:10] if isinstance(observed, str | dt.date) else observed


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
def test_the_compiled_gate_gives_the_verdict_of_gx_on_spark(spark, gx, seed):
    """11.2: success, unexpected rows and observed value of each rule are GX's, with nulls, NaN and infinities."""
    rng = random.Random(seed)
    rows = a_table(rng)
    suite = {"name": f"seed{seed}", "expectations": [an_expectation(rng) for _ in range(EXPECTATIONS)]}
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {spark_type}" for name, (spark_type, _) in COLUMNS.items()))
    gate = compile_suite(load_suite(suite, where="test"), dict(frame.dtypes))

    expected = gx_results(gx, frame, suite)
    verdict = penstock_verdict(spark, gate, frame, rng)

    assert len(expected) == len(verdict.results) == EXPECTATIONS
    for expectation, theirs, ours in zip(suite["expectations"], expected, verdict.results, strict=True):
        context = f"seed {seed}: {expectation}\nGX {theirs.success} {theirs.result}\nPenstock {ours}"
        if ours.unexpected is not None:
            assert ours.unexpected == theirs.result["unexpected_count"], context
            missing = theirs.result.get("missing_count", 0)
            assert ours.considered == theirs.result["element_count"] - missing, context
        elif isinstance(ours.observed, float):
            # GX adds doubles in the order of its tasks, the gate exactly.
            assert ours.observed == pytest.approx(theirs.result["observed_value"], rel=1e-12), context
        else:
            assert plain(ours.observed) == plain(theirs.result["observed_value"]), context
        assert ours.success == theirs.success, context


# --- the SQL on Spark ------------------------------------------------------------------------


def test_gx_reads_the_suite_of_the_demo_whole(gx):
    """11.7: the file in conf/quality is a GX suite too, so reports judge by the same rules; GX drops none."""
    import great_expectations

    path = ROOT / "conf" / "quality" / "hourly_quality.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = great_expectations.ExpectationSuite(**json.loads(path.read_text()))
    ours = load_suite(path, where="test")
    assert [e.expectation_type for e in theirs.expectations] == [rule.type for rule in ours.rules]
    assert [e.severity.value for e in theirs.expectations] == [rule.severity.value for rule in ours.rules]


def test_spark_reads_text_and_names_as_they_were_written(spark):
    """Quotes, backslashes, variables, line ends and letters of all kinds come through SQL unchanged."""
    texts = [
        "",
        "a'b",
        'a"b',
        "\\d\\",
        "${spark.app.name}",
        "$1",
        "`x`",
        "\n\t\r",
        "é漢🛫",
        "\\u0041",
        "%_",
        "--",
        "\x00",
    ]
    assert list(spark.range(1).selectExpr(*(text_literal(t) for t in texts)).first()) == texts
    names = ["plain", "with space", "tick`tick", "é漢", "select"]
    frame = spark.range(1).selectExpr(*(f"1 AS {identifier(name)}" for name in names))
    assert frame.selectExpr(*(identifier(name) for name in names)).columns == names


EXTREMES = {
    "small": [-(2**15), 2**15 - 1],
    "whole": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "real": [math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308],
    "single": [math.nan, 3e38],
    "money": [Decimal("999999999.999"), Decimal("-999999999.999")],
    "text": ["", "\x00", "not a date", "9" * 400],
    "flag": [True],
    "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "at": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)],
    "local": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)],  # noqa: DTZ001
}


def test_no_predicate_raises_on_a_row(spark):
    """11.8: ANSI mode is on, and a gate must not fail on data: extreme rows pass through every kind of row rule."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    longest = max(map(len, EXTREMES.values()))
    rows = pa.table({
        name: pa.array([*EXTREMES[name], *[None] * (longest - len(EXTREMES[name]))], arrow)
        for name, (_, arrow) in COLUMNS.items()
    })  # fmt: skip
    rng = random.Random(0)
    listed = [e for e in (an_expectation(rng) for _ in range(400)) if e["type"].startswith("expect_column_values")]
    gate = compile_suite(
        load_suite({"name": "s", "expectations": [e | {"severity": "info"} for e in listed]}, where="test"),
        {name: spark_type for name, (spark_type, _) in COLUMNS.items()},
    )
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {spark_type}" for name, (spark_type, _) in COLUMNS.items()))
    found = frame.selectExpr(*(f"{sql} AS {name}" for name, sql in gate.row_columns())).toArrow()
    assert set(found.schema.types) == {pa.int8()}
    assert {value for column in found.columns for value in column.to_pylist()} == {0, 1, 2}


def test_far_dates_do_not_overflow_beside_timestamps(spark):
    """A date that no timestamp can hold is still before or after one: casting it would raise."""
    noon = {"column": "d", "max_value": "2013-01-01T12:00:00"}
    suite = {"name": "s", "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": noon}]}
    [(name, sql)] = compile_suite(load_suite(suite, where="test"), {"d": "date"}).row_columns()
    far = spark.sql("SELECT date_add(DATE'2013-01-01', 2000000000) AS d UNION ALL SELECT DATE'2013-01-01'")
    assert [row[0] for row in far.selectExpr(f"{sql} AS {name}").collect()] == [1, 0]


def test_a_wrong_regular_expression_fails_the_probe(spark):
    """Only Java knows: the constant that the gate asks Spark to try raises where the expression is none."""
    for regex, fine in (("^[A-Z]{2}$", True), ("(", False)):
        listed = [{"type": "expect_column_values_to_match_regex", "kwargs": {"column": "v", "regex": regex}}]
        gate = compile_suite(load_suite({"name": "s", "expectations": listed}, where="test"), None)
        [(_, _, sql)] = gate.probes()
        if fine:
            assert spark.range(1).selectExpr(sql).first()[0] is False
        else:
            with pytest.raises(Exception, match=r"INVALID_PARAMETER_VALUE\.PATTERN"):
                spark.range(1).selectExpr(sql).first()
