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
from gx_samples import COLUMNS, a_table, an_expectation, utc_session

from penstock.quality import compile_suite, load_suite
from penstock.quality.compile import CompiledGate
from penstock.quality.predicates import identifier, text_literal

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEEDS = [pytest.param(seed, marks=() if seed in (2, 3) else pytest.mark.soak) for seed in range(12)]
"""Each of those that are for every day has all kinds of expectations."""
EXPECTATIONS = 25


# --- the two judges --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark(spark):
    """A session of its own, in UTC."""
    return utc_session(spark)


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
        validated = batch.validate(plain, result_format={"result_format": "BASIC", "partial_unexpected_count": 0})
    results = sorted(validated.results, key=lambda r: r.expectation_config.meta["place"])
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


@pytest.mark.sample(1)
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
    masks = frame.selectExpr(*(f"{sql} AS {name}" for name, sql in gate.row_columns())).toArrow()
    assert set(masks.schema.types) == {pa.int8()}
    assert {value for column in masks.columns for value in column.to_pylist()} == {0, 1, 2}


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
