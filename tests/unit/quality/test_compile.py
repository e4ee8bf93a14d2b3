"""A suite becomes SQL and table metrics for the columns there are, or is refused by name (SEMANTICS 11.7)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import GateError, SuiteError, UnknownName
from penstock.quality import compile_suite, load_suite
from penstock.quality.compile import CompiledGate, fails_mask
from penstock.quality.predicates import ROW_PREDICATES, Family, column_type, identifier, text_literal
from penstock.quality.suite import EXPECTATIONS, Kind
from penstock.quality.verdict import OBSERVED, Status

ROOT = Path(__file__).resolve().parents[3]

WINDOWS = {
    "origin": "string", "carrier": "string", "window_start": "timestamp", "window_end": "timestamp",
    "flights": "bigint", "mean_delay": "double", "worst": "double",
}  # fmt: skip


def gate_of(type_: str, column_type: str | None, severity: str = "critical", **kwargs: object) -> CompiledGate:
    """Return the gate of one expectation on a column `v` of the type."""
    expectation = {"type": type_, "kwargs": {"column": "v", **kwargs}, "severity": severity}
    suite = load_suite({"name": "s", "expectations": [expectation]}, where="j.py:7")
    return compile_suite(suite, None if column_type is None else {"v": column_type})


def sql_of(type_: str, column_type: str, **kwargs: object) -> str:
    [(name, sql)] = gate_of(type_, column_type, **kwargs).row_columns()
    assert name == "_gate_1"
    return sql


# --- the demo's suite ------------------------------------------------------------------------


def test_the_suite_of_the_demo_compiles_for_its_windows():
    """Each row rule has one hidden column, and the critical ones a bit each in the order of the file."""
    suite = load_suite(ROOT / "conf" / "quality" / "hourly_quality.json", where="test")
    gate = compile_suite(suite, WINDOWS)
    assert [name for name, _ in gate.row_columns()] == [f"_gate_{n}" for n in range(1, 7)]
    assert [rule.bit for rule in gate.rules] == [0, 1, 2, 3, 4, None, None]
    assert gate.rules[4].name == "hourly_quality:5:expect_column_values_to_be_between(mean_delay)"
    assert gate.rules[6].name == "hourly_quality:7:expect_table_row_count_to_be_between"
    assert gate.rules_of(0b10010) == (gate.rules[1].name, gate.rules[4].name)


def test_a_gate_travels_to_tasks():
    """Tasks get the gate by pickle, as Spark sends functions."""
    gate = gate_of("expect_column_values_to_be_between", "double", min_value=1)
    assert pickle.loads(pickle.dumps(gate)) == gate


# --- a rule more -----------------------------------------------------------------------------


def test_each_compiled_type_has_what_judges_it():
    """11.7: so a type that is forgotten in a table is named here, and judged by the rule of another nowhere."""
    rows, tables = ({t for t, (of, _) in EXPECTATIONS.items() if of is kind} for kind in (Kind.ROW, Kind.TABLE))
    assert rows == {"expect_column_values_to_not_be_null", *ROW_PREDICATES}
    assert tables == {"expect_column_values_to_be_unique", *OBSERVED}


def test_a_row_rule_is_a_line_in_each_of_two_tables(monkeypatch):
    """11.1, 11.4: SQL, numbers, masks and `mostly` need no more to know it."""
    made_up = "expect_column_values_to_not_match_regex"
    monkeypatch.setitem(EXPECTATIONS, made_up, (Kind.ROW, frozenset({"column", "mostly", "regex"})))
    monkeypatch.setitem(ROW_PREDICATES, made_up, lambda rule, name: f"NOT {name} RLIKE {text_literal(rule.regex)}")
    gate = gate_of(made_up, "string", regex="^a", mostly=0.5)
    assert gate.row_columns() == [
        ("_gate_1", "CASE WHEN `v` IS NULL THEN 2Y WHEN NOT (NOT `v` RLIKE '^a') THEN 1Y ELSE 0Y END")
    ]
    rows = pa.table({"v": ["a", "b", None], "_gate_1": pa.array([1, 0, 2], pa.int8())})
    assert fails_mask(rows, gate).to_pylist() == [1, 0, 0]
    assert gate.decide([gate.measure(rows)]).status is Status.PASSED


# --- columns ---------------------------------------------------------------------------------


def test_an_unknown_column_is_named_with_the_nearest_that_is_there():
    """A column that the stream does not have is refused when Spark has analysed the graph, at the suite's line."""
    wrong = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "mean_dealy"}}
    suite = load_suite({"name": "s", "expectations": [wrong]}, where="j.py:7")
    with pytest.raises(UnknownName, match=r"'mean_dealy'.*did you mean 'mean_delay'.*j\.py:7"):
        compile_suite(suite, WINDOWS)
    with pytest.raises(UnknownName, match="there is a, b"):
        compile_suite(suite, {"a": "int", "b": "int"})


def test_a_gate_without_column_types_says_only_that_the_suite_is_sound():
    """Before Spark has analysed the columns the suite is checked, but rows cannot be."""
    gate = gate_of("expect_column_values_to_be_between", None, min_value=1)
    for use in (gate.row_columns, lambda: gate.measure(None), lambda: gate.decide([])):
        with pytest.raises(GateError, match="without the types"):
            use()


BETWEEN, IN_SET, REGEX = (
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_match_regex",
)
DATES = {"min_value": "2013-01-01"}
REFUSED = [
    # GX 1.24.1 on Spark 4 raises for each of these, whatever the rows are, or could on some row
    (BETWEEN, "string", {"min_value": 1}, "string, which cannot be compared with a number"),
    (BETWEEN, "string", DATES, "string, which cannot be compared with a date"),
    (BETWEEN, "boolean", {"min_value": 1}, "boolean"),
    (BETWEEN, "binary", {"min_value": 1}, "binary"),
    (BETWEEN, "date", {"min_value": 1}, "date, which cannot be compared with a number"),
    (BETWEEN, "timestamp", {"min_value": 1}, "timestamp, which cannot"),
    (BETWEEN, "bigint", DATES, "bigint, which cannot be compared with a date"),
    (BETWEEN, "array<int>", {"min_value": 1}, "array<int>"),
    (IN_SET, "string", {"value_set": ["a", 1]}, "value_set holds 1"),
    (IN_SET, "bigint", {"value_set": ["1"]}, "value_set holds '1'"),
    (IN_SET, "bigint", {"value_set": [True]}, "value_set holds True"),
    (IN_SET, "bigint", {"value_set": [2**63]}, "value_set holds 9223372036854775808"),
    (IN_SET, "boolean", {"value_set": [1]}, "value_set holds 1"),
    (IN_SET, "double", {"value_set": [float("nan")]}, "value_set holds nan"),
    (IN_SET, "date", {"value_set": ["yesterday"]}, "'yesterday'"),
    (IN_SET, "date", {"value_set": ["2013-01-01T10:00:00"]}, "2013-01-01T10:00:00"),
    (IN_SET, "timestamp", {"value_set": [5]}, "value_set holds 5"),
    (IN_SET, "timestamp_ntz", {"value_set": ["2013-01-01T10:00:00Z"]}, "timestamp_ntz"),
    (IN_SET, "binary", {"value_set": ["a"]}, "binary"),
    (REGEX, "binary", {"regex": "a"}, "binary"),
    (REGEX, "struct<a:int>", {"regex": "a"}, "struct<a:int>"),
    ("expect_column_values_to_be_unique", "map<string,int>", {}, "map<string,int>"),
    ("expect_column_values_to_be_unique", "string collate utf8_lcase", {}, "collate"),
    ("expect_column_mean_to_be_between", "smallint", {}, "smallint and must be int or wider"),
    ("expect_column_mean_to_be_between", "timestamp", {}, "timestamp"),
    ("expect_column_mean_to_be_between", "string", {}, "string"),
    ("expect_column_sum_to_be_between", "string", {}, "string"),
    ("expect_column_sum_to_be_between", "timestamp", {}, "timestamp"),
    ("expect_column_min_to_be_between", "string", {}, "string"),
    ("expect_column_min_to_be_between", "boolean", {}, "boolean"),
    ("expect_column_max_to_be_between", "date", {"min_value": 1}, "date and must be"),
    ("expect_column_max_to_be_between", "double", DATES, "double and must be date or timestamp"),
]


@pytest.mark.parametrize(("type_", "of", "kwargs", "named"), REFUSED)
def test_a_rule_that_gx_could_not_judge_on_the_columns_type_is_refused(type_, of, kwargs, named):
    """11.2, 11.7: what GX on Spark answers with an exception is an error of the job, not a check that always fails."""
    with pytest.raises(SuiteError) as refusal:
        gate_of(type_, of, **kwargs)
    assert named in str(refusal.value)
    assert f"s:1:{type_}(v): column 'v'" in str(refusal.value)


NAMES = {
    "long": ("bigint", Family.INTEGRAL),
    " BIGINT ": ("bigint", Family.INTEGRAL),
    "integer": ("int", Family.INTEGRAL),
    "decimal": ("decimal(10,0)", Family.DECIMAL),
    "DECIMAL(12, 3)": ("decimal(12,3)", Family.DECIMAL),
    "varchar(10)": ("string", Family.STRING),
    "timestamp_ltz": ("timestamp", Family.TIMESTAMP),
    "timestamp_ntz": ("timestamp_ntz", Family.TIMESTAMP_NTZ),
    "interval day": ("interval day", Family.OTHER),
}


@pytest.mark.parametrize(("text", "expected"), NAMES.items())
def test_types_are_known_by_the_names_spark_gives_them(text, expected):
    """Both simple names and those of DDL are understood; what is not known can still be tested for null."""
    column = column_type(text)
    assert (column.name, column.family) == expected


def test_any_column_may_be_tested_for_null():
    """Not-null is the one rule that every type allows, and the one for which a null counts."""
    sql = sql_of("expect_column_values_to_not_be_null", "map<string,int>")
    assert sql == "CASE WHEN `v` IS NULL THEN 1Y ELSE 0Y END"


# --- the SQL ---------------------------------------------------------------------------------


def holds(sql: str) -> str:
    """Return the condition inside the three-way CASE."""
    head, tail = "CASE WHEN `v` IS NULL THEN 2Y WHEN NOT (", ") THEN 1Y ELSE 0Y END"
    assert sql.startswith(head)
    assert sql.endswith(tail)
    return sql[len(head) : -len(tail)]


DAY, NOON = "2013-01-02", "2013-01-02T12:00:00"
SQL = [
    (BETWEEN, "int", {"min_value": 1, "max_value": 2.5}, "`v` >= (1.0D) AND `v` <= (2.5D)"),
    (BETWEEN, "int", {"min_value": -1, "strict_min": True}, "`v` > (-1.0D)"),
    (BETWEEN, "double", {"max_value": float("inf"), "strict_max": True}, "`v` < CAST('Infinity' AS DOUBLE)"),
    (BETWEEN, "double", {"min_value": float("-inf")}, "`v` >= CAST('-Infinity' AS DOUBLE)"),
    (BETWEEN, "double", {"min_value": 1e22}, "`v` >= (1e+22D)"),
    (BETWEEN, "date", {"min_value": DAY}, "`v` >= DATE '2013-01-02'"),
    # a date is its midnight: beside a noon, at least means after that day, and at most means that day or before
    (BETWEEN, "date", {"min_value": NOON, "max_value": NOON}, "`v` > DATE '2013-01-02' AND `v` <= DATE '2013-01-02'"),
    (BETWEEN, "date", {"min_value": NOON, "strict_min": True}, "`v` > DATE '2013-01-02'"),
    (BETWEEN, "date", {"max_value": NOON, "strict_max": True}, "`v` <= DATE '2013-01-02'"),
    (BETWEEN, "date", {"min_value": "2013-01-02T01:00:00+02:00"}, "`v` > DATE '2013-01-01'"),
    (BETWEEN, "date", {"max_value": "2013-01-02T02:00:00+02:00", "strict_max": True}, "`v` < DATE '2013-01-02'"),
    (BETWEEN, "timestamp", {"min_value": DAY}, "`v` >= TIMESTAMP_LTZ '2013-01-02 00:00:00Z'"),
    (BETWEEN, "timestamp", {"max_value": "2013-01-02 01:00:00+02:00"}, "`v` <= TIMESTAMP_LTZ '2013-01-01 23:00:00Z'"),
    (BETWEEN, "timestamp_ntz", {"max_value": NOON}, "`v` <= TIMESTAMP_NTZ '2013-01-02 12:00:00'"),
    (IN_SET, "string", {"value_set": []}, "FALSE"),
    (IN_SET, "string", {"value_set": ["a", None]}, "`v` IN ('a', NULL)"),
    (IN_SET, "bigint", {"value_set": [-1, 2.5, 2**40]}, "`v` IN ((-1), (2.5D), (1099511627776))"),
    (IN_SET, "bigint", {"value_set": [-(2**63)]}, "`v` IN ((-9223372036854775807 - 1))"),
    (IN_SET, "boolean", {"value_set": [True, False]}, "`v` IN (TRUE, FALSE)"),
    (IN_SET, "date", {"value_set": [DAY]}, "`v` IN ('2013-01-02')"),
    (IN_SET, "timestamp_ntz", {"value_set": [NOON]}, "`v` IN ('2013-01-02T12:00:00')"),
    (REGEX, "string", {"regex": "^[A-Z]$"}, "`v` RLIKE '^[A-Z]\\u0024'"),
    (REGEX, "int", {"regex": "1"}, "`v` RLIKE '1'"),
]


@pytest.mark.parametrize(("type_", "of", "kwargs", "expected"), SQL)
def test_rules_become_the_comparisons_that_gx_makes(type_, of, kwargs, expected):
    """11.2: the SQL compares with the same literals as GX on Spark, and no cast in it can fail on a row."""
    assert holds(sql_of(type_, of, **kwargs)) == expected


def test_text_and_names_are_quoted_so_that_spark_reads_them_as_they_are():
    """No quote, backslash, variable or control character of a suite is read as SQL."""
    assert text_literal("a'b\\d${x}\n\"") == "'a\\u0027b\\u005cd\\u0024{x}\\u000a\\u0022'"
    assert identifier("a`b c") == "`a``b c`"


def test_expressions_that_only_java_can_check_are_listed_for_a_probe():
    """A wrong regular expression must fail the start of the job: the gate gives constant SQL for Spark to try."""
    assert gate_of(REGEX, None, regex="(").probes() == [
        ("s:1:expect_column_values_to_match_regex(v)", "j.py:7: suite.expectations[0]", "'' RLIKE '('")
    ]
    assert gate_of(BETWEEN, "int", min_value=1).probes() == []


# --- bits ------------------------------------------------------------------------------------


def test_only_critical_row_rules_have_a_bit():
    """11.3, 11.4: rows are told apart by the rules that can withhold them, so a task stages few files."""
    assert gate_of(BETWEEN, "int", min_value=1).rules[0].bit == 0
    assert gate_of(BETWEEN, "int", "warning", min_value=1).rules[0].bit is None
    assert gate_of("expect_column_values_to_be_unique", "int").rules[0].bit is None


@pytest.mark.remedy("PEN-QLT-001")
def test_a_mask_holds_sixty_three_rules_and_no_more():
    """The mask is a signed 64-bit column; the rule that does not fit is named."""
    rules = [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}] * 64
    fits, spills = (load_suite({"name": "s", "expectations": rules[:n]}, where="j.py:7") for n in (63, 64))
    assert compile_suite(fits, {"v": "int"}).rules[62].bit == 62
    with pytest.raises(SuiteError, match=r"64 critical row rules.*expectations\[63\]"):
        compile_suite(spills, {"v": "int"})
