"""A report made with pandas gives the verdict that Great Expectations gives on Spark (SEMANTICS 11.2).

Tables and suites are random but fixed by a seed, which is the id of the case: run one with `-k seed7`.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from gx_samples import COLUMNS, a_table, a_value, an_expectation, utc_session
from pyspark.sql.types import StructType

from penstock.errors import SuiteError
from penstock.quality.reports.agreement import for_pandas, pandas_agrees
from penstock.quality.reports.judge import Judge
from penstock.quality.reports.published import Published, Selection, select
from penstock.quality.reports.suites import read_suite

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sample(3, of="reports equal to Spark's")]

SEEDS = range(2)
EXPECTATIONS = 15
MINUTE = 60_000_000
UTC = pa.timestamp("us", tz="UTC")
ALL = 10**9


@pytest.fixture(scope="module")
def spark(spark):
    """A session of its own, in UTC."""
    return utc_session(spark)


class NoSpark:
    """Stands where a session must not be needed."""

    def __getattr__(self, name):
        raise AssertionError(f"Spark was asked for {name}")


# --- random windows --------------------------------------------------------------------------

TEXTS = [
    "EWR",
    "JFK",
    "",
    "a'b",
    'a"b',
    "A1",
    "9E",
    "a b",
    "$",
    "\\d",
    "-1.5",
    "[x]",
    "a|b",
    "~",
    "a.b-c",
    "ewr",
    " EWR",
]


def a_tame_value(column: str, rng: random.Random) -> object:
    """Return a value on which the engines have a chance to agree, hard ones among them."""
    makers = {
        "long": lambda: rng.choice([rng.randint(-4, 9), 2**53, -(2**53), 5_000_000_000]),
        "real": lambda: rng.choice([rng.randint(-9, 9) / 2, 0.0, -0.0, 0.1, 0.2, 0.3, 1e15, 5e-324, -1e-9]),
        "single": lambda: rng.choice([rng.randint(-9, 9) / 2, 0.1, -0.0, 16_777_216.0]),
        "text": lambda: rng.choice(TEXTS),
    }
    return makers[column]() if column in makers else a_value(column, rng)


def a_tame_table(rng: random.Random) -> pa.Table:
    rows, columns = rng.choice([1, 2, 7, 30]), {}
    for name, (_, arrow) in COLUMNS.items():
        nulls = rng.choice([0.0, 0.0, 0.3, 1.0 if rng.random() < 0.4 else 0.1])
        few = [a_tame_value(name, rng) for _ in range(rng.choice([1, 3, 40]))]
        columns[name] = pa.array([None if rng.random() < nulls else rng.choice(few) for _ in range(rows)], arrow)
    return pa.table(columns)


def windows_of(folder: Path, parts, **options) -> Published:
    """Publish each part as a window of its own."""
    for place, part in enumerate(parts):
        start = [place * MINUTE] * part.num_rows
        rows = part.append_column("window_start", pa.array(start, UTC))
        rows = rows.append_column("window_end", pa.array([s + MINUTE for s in start], UTC))
        write_deltalake(folder, rows, mode="append", **options)
    return select(folder, Selection(), after=None, at_most=ALL)


def suite_of(expectations, name="s"):
    return read_suite({"name": name, "expectations": list(expectations)}, where="test")


def judged_by(spark, suite, published: Published, *, pandas_rows: int) -> list:
    return list(Judge(suite, pandas_rows=pandas_rows, spark=spark).judge(published))


def agreed(expectation: Mapping, rows: pa.Table) -> bool:
    [parsed] = suite_of([expectation]).expectations
    return pandas_agrees(parsed.rule, rows)


# --- the two engines -------------------------------------------------------------------------


def the_same(ours, theirs, suite) -> None:
    """Compare what was found on one window, rule by rule."""
    assert ours.window == theirs.window
    assert theirs.engine == "spark"
    for expectation, our, other in zip(suite.expectations, ours.findings, theirs.findings, strict=True):
        context = f"{ours.engine}: {expectation.written}\nours   {our}\nSpark's {other}"
        assert (our.rule, our.severity) == (other.rule, other.severity) == (expectation.name, expectation.severity)
        assert our.success == other.success, context
        assert (our.unexpected, our.considered) == (other.unexpected, other.considered), context
        assert (our.error, our.observed is None) == (other.error, other.observed is None), context
        if our.observed is not None:
            assert our.observed == pytest.approx(other.observed, rel=1e-9), context


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
def test_a_report_made_with_pandas_is_that_of_spark(spark, tmp_path, seed):
    """11.2: success, unexpected, considered and observed of each rule, on windows that pandas judges and others."""
    rng = random.Random(seed)
    first = a_tame_table(rng)
    chosen: list[dict] = []
    while len(chosen) < EXPECTATIONS:
        candidate = an_expectation(rng)
        if agreed(candidate, first):
            chosen.append({**candidate, "severity": rng.choice(["critical", "warning", "info"])})
    suite = suite_of([*chosen, chosen[0]])  # written twice, judged twice
    published = windows_of(tmp_path / "t", [first, a_tame_table(rng), a_table(rng)])

    ours = judged_by(spark, suite, published, pandas_rows=ALL)
    theirs = judged_by(spark, suite, published, pandas_rows=0)

    assert len(ours) == len(theirs) == 3
    assert ours[0].engine == "pandas"
    for our, other in zip(ours, theirs, strict=True):
        the_same(our, other, suite)


@pytest.mark.parametrize("seed", range(100, 101), ids=lambda seed: f"seed{seed}")
def test_a_random_suite_gives_the_same_for_small_and_large_windows(spark, tmp_path, seed):
    """Rows that Arrow reads for Spark, and rows that Spark reads itself, with all types, NaN and infinities."""
    rng = random.Random(seed)
    suite = suite_of(an_expectation(rng) for _ in range(EXPECTATIONS))
    published = windows_of(tmp_path / "t", [a_table(rng), a_table(rng)])
    ours = judged_by(spark, suite, published, pandas_rows=ALL)
    theirs = judged_by(spark, suite, published, pandas_rows=0)
    assert {judged.engine for judged in ours} == {"spark"}
    for our, other in zip(ours, theirs, strict=True):
        the_same(our, other, suite)


IGNORED = (
    {"result_format": "BOOLEAN_ONLY"},
    {"result_format": "COMPLETE"},
    {"catch_exceptions": False},
    {"meta": {"notes": "why"}},
)


def test_what_a_gate_ignores_changes_no_finding(spark, tmp_path):
    """docs/quality.md: id, meta, result_format and catch_exceptions are carried along without changing a verdict."""
    plain = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "min_value": 2}}
    mean = {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "v", "max_value": 9}}
    published = windows_of(tmp_path / "t", [pa.table({"v": [1, 2, None]})])
    listed = [
        {**e, **more} if "meta" in more else {**e, "kwargs": {**e["kwargs"], **more}}
        for more in IGNORED
        for e in (plain, mean)
    ]
    for pandas_rows in (ALL, 0):
        [judged] = judged_by(spark, suite_of(listed), published, pandas_rows=pandas_rows)
        assert len(judged.findings) == 2 * len(IGNORED)
        for row, unit in zip(judged.findings[::2], judged.findings[1::2], strict=True):
            assert (row.success, row.unexpected, row.considered, row.error) == (False, 1, 2, None)
            assert (unit.success, unit.observed, unit.error) == (True, 1.5, None)


EDGES = {
    "a bound that is no double": ([2**53], {"max_value": 2**53 + 1, "strict_max": True}, "values"),
    "its negative": ([-(2**53)], {"min_value": -(2**53) - 1, "strict_min": True}, "values"),
    "a maximum beside it": ([2**53], {"max_value": 2**53 + 1, "strict_max": True}, "column_max"),
    "sums that overflow on the way": ([1e308, 1e308], {"max_value": 1}, "column_sum"),
    "a mean of such": ([1e308, 1e308], {"max_value": 1}, "column_mean"),
    "zeros": ([0.0, -0.0], {"min_value": 0, "strict_min": True}, "values"),
    "nulls only": ([None, None], {"min_value": 0}, "values"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", EDGES)
def test_values_at_the_edges_are_judged_alike(spark, tmp_path, case):
    """Where whole numbers are no doubles any more, and where doubles end."""
    values, bounds, kind = EDGES[case]
    type_ = "expect_column_values_to_be_between" if kind == "values" else f"expect_{kind}_to_be_between"
    suite = suite_of([{"type": type_, "kwargs": {"column": "v", **bounds}}])
    floats = any(isinstance(v, float) for v in values)
    rows = pa.table({"v": pa.array(values, pa.float64() if floats else pa.int64())})
    published = windows_of(tmp_path / "t", [rows])
    [ours] = judged_by(spark, suite, published, pandas_rows=ALL)
    [theirs] = judged_by(spark, suite, published, pandas_rows=0)
    the_same(ours, theirs, suite)


# --- what is judged by which ------------------------------------------------------------------

V = pa.table({"v": [1, 2, 4], "t": ["a", "b", "c"]})
MEDIAN = {"type": "expect_column_median_to_be_between", "kwargs": {"column": "v", "min_value": 2, "max_value": 2}}
PLAIN = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}


def test_small_plain_windows_need_no_spark(tmp_path):
    """A session is opened when it is first used, which costs seconds."""
    published = windows_of(tmp_path / "t", [V, V])
    judged = judged_by(NoSpark(), suite_of([PLAIN]), published, pandas_rows=3)
    assert [window.engine for window in judged] == ["pandas", "pandas"]


def test_windows_above_the_threshold_go_to_spark(spark, tmp_path):
    """One of exactly `pandas_rows` is small."""
    published = windows_of(tmp_path / "t", [V, pa.concat_tables([V, V]), V])
    judged = judged_by(spark, suite_of([PLAIN]), published, pandas_rows=3)
    assert [(window.window.rows, window.engine) for window in judged] == [(3, "pandas"), (6, "spark"), (3, "pandas")]
    assert [window.findings[0].considered for window in judged] == [3, 6, 3]


def test_an_expectation_that_gates_refuse_is_judged_by_spark(spark, tmp_path):
    """The median is not compiled; a report takes whatever Great Expectations has."""
    published = windows_of(tmp_path / "t", [V])
    [judged] = judged_by(spark, suite_of([PLAIN, MEDIAN]), published, pandas_rows=ALL)
    assert judged.engine == "spark"
    assert [finding.success for finding in judged.findings] == [True, True]
    assert judged.findings[1].observed == 2.0
    assert judged.findings[1].rule == "s:2:expect_column_median_to_be_between(v)"


@pytest.mark.parametrize(
    ("type_", "kwargs", "named"),
    [
        ("expect_column_values_to_be_betwen", {"column": "v"}, "s:2:expect_column_values_to_be_betwen(v)"),
        ("expect_column_values_to_be_between", {"column": "v", "min_valu": 1}, "min_valu"),
        ("expect_column_values_to_be_between", {"column": 7, "min_value": 1}, "column"),
    ],
    ids=["type", "argument", "column"],
)
def test_what_gx_does_not_know_is_refused_by_name(type_, kwargs, named):
    """It would drop it with a trace, and judge by the rest (FACTS 7). No rows are needed to say so."""
    with pytest.raises(SuiteError, match=re.escape(named)):
        Judge(suite_of([PLAIN, {"type": type_, "kwargs": kwargs}]), pandas_rows=ALL, spark=NoSpark())


@pytest.mark.parametrize("pandas_rows", [ALL, 0], ids=["small", "large"])
def test_a_rule_whose_column_is_missing_is_an_error_of_that_rule(spark, tmp_path, pandas_rows):
    """The others are judged; it did not pass, and says why."""
    gone = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "gone"}},
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "gone", "max_value": 1}},
    ]
    published = windows_of(tmp_path / "t", [V])
    [judged] = judged_by(spark, suite_of([PLAIN, *gone]), published, pandas_rows=pandas_rows)
    first, *missing = judged.findings
    assert (first.success, first.error) == (True, None)
    for finding in missing:
        assert (finding.success, "gone" in finding.error) == (False, True)


def test_decimals_that_were_observed_are_numbers(spark, tmp_path):
    """Their plots over time need them."""
    listed = [{"type": f"expect_column_{m}_to_be_between", "kwargs": {"column": "d"}} for m in ("sum", "mean", "max")]
    rows = pa.table({"d": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(9, 2))})
    [judged] = judged_by(spark, suite_of(listed), windows_of(tmp_path / "t", [rows]), pandas_rows=ALL)
    assert [(finding.observed, finding.shown) for finding in judged.findings] == [(4.0, None), (2.0, None), (2.5, None)]


def test_severities_and_names_are_those_of_the_suite(spark, tmp_path):
    """In its order, also where two expectations are equal."""
    listed = [{**PLAIN, "severity": severity} for severity in ("info", "critical", "warning", "info")]
    [judged] = judged_by(spark, suite_of(listed), windows_of(tmp_path / "t", [V]), pandas_rows=ALL)
    assert [(finding.rule, finding.severity) for finding in judged.findings] == [
        (f"s:{place}:expect_column_values_to_not_be_null(v)", severity)
        for place, severity in enumerate(("info", "critical", "warning", "info"), 1)
    ]
    assert "penstock_place" not in str(judged.document)


# --- regular expressions ----------------------------------------------------------------------

PIECES = [
    *"aAzZ09 _:;,@%&=~<>!\"'/#-.^$|()*+?{}[]\\",
    *["\\d", "\\w", "\\.", "\\-", "\\$", "\\[", "[a-z]", "[^0-9]", "[A-Z0-9]", "[a b]", "[+.]", "[\\-a]", "[@/-]"],
    *["{2}", "{1,}", "{0,2}", "(?", "(?:", "(?=", "(?!", "(?<", "(?i)", "(?x)", "(?#", "*+", "^*", "(a|b)", "(", ")"],
]  # fmt: skip


def test_regular_expressions_that_are_agreed_mean_the_same_to_java_and_python(spark):
    """Random ones out of odd pieces: both find something in a text, both do not, or both refuse the expression."""
    rng = random.Random(7)
    rows = pa.table({"text": [*TEXTS, "aaa", "AAAA", "a0", "0-9", "#a", "z" * 5, "<a>", "a:b"]})
    texts = rows["text"].to_pylist()
    tried: set[str] = set()
    for _ in range(60_000):
        regex = "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 2, 3, 4, 6])))
        if len(tried) == 800:
            break
        expectation = {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "text", "regex": regex}}
        if regex not in tried and agreed(expectation, rows):
            tried.add(regex)
    assert len(tried) > 500
    java = spark._jvm.java.util.regex.Pattern
    different = []
    for regex in sorted(tried):
        for text in rng.sample(texts, 6):
            by_java, by_python = _java(java, regex, text), _python(regex, text)
            if by_java != by_python:
                different.append((regex, text, by_java, by_python))
            if by_java is None or by_java != by_python:
                break
    assert sorted(different, key=lambda difference: len(difference[0])) == []


def _java(pattern, regex: str, text: str) -> bool | None:
    try:
        return bool(pattern.compile(regex).matcher(text).find())
    except Exception as why:  # noqa: BLE001 - py4j has one for all that Java raises
        assert type(why).__name__ == "IllegalArgumentException"  # noqa: PT017 - Java's PatternSyntaxException is one
        return None


def _python(regex: str, text: str) -> bool | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.search(regex, text) is not None
        except re.error:
            return None


# --- rows that Spark reads --------------------------------------------------------------------


def sorted_rows(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(map(str, table.select(names).to_pylist()))


@pytest.mark.parametrize(
    "partition_by",
    [[], ["day"], ["text"], ["flag", "small"], ["at"], ["local"]],
    ids=lambda names: "+".join(names) or "none",
)
def test_spark_reads_the_rows_that_arrow_reads(spark, tmp_path, partition_by):
    """Each window has the same rows in the same types by either way: moments, decimals, dates, partitions."""
    rng = random.Random(3)
    published = windows_of(tmp_path / "t", [a_table(rng) for _ in range(2)], partition_by=partition_by or None)
    for window, rows in published.rows(ALL):
        frame = published.frame(spark, window)
        assert dict(frame.dtypes) == {
            **{name: spark_type for name, (spark_type, _) in COLUMNS.items()},
            "window_start": "timestamp",
            "window_end": "timestamp",
        }
        theirs = frame.toArrow()
        assert theirs.num_rows == rows.num_rows == window.rows
        assert sorted_rows(theirs) == sorted_rows(
            rows.cast(pa.schema([theirs.schema.field(n) for n in rows.column_names]))
        )


def test_spark_reads_new_files_only(spark, tmp_path):
    """A window that was given in two commits is judged by what came since the last report."""
    windows_of(tmp_path / "t", [V])
    windows_of(tmp_path / "t", [pa.concat_tables([V, V])])
    later = select(tmp_path / "t", Selection(), after=0, at_most=9)
    [window] = later.windows
    assert (window.rows, later.frame(spark, window).count()) == (6, 6)


@pytest.mark.parametrize("name", ["a b", "a{b}c", "a=b"])
def test_spark_reads_a_table_in_an_odd_folder(spark, tmp_path, name):
    """Spark takes some characters of a path for patterns."""
    published = windows_of(tmp_path / name / "t", [V])
    [window] = published.windows
    assert sorted(row.v for row in published.frame(spark, window).collect()) == [1, 2, 4]


def test_windows_without_a_zone_are_read_by_spark_as_by_arrow(spark, tmp_path):
    """They are in UTC, as everywhere."""
    naive = pa.timestamp("us")
    rows = pa.table({
        "v": [1, 2],
        "window_start": pa.array([0, MINUTE], naive),
        "window_end": pa.array([MINUTE, 2 * MINUTE], naive),
    })  # fmt: skip
    write_deltalake(tmp_path / "t", rows)
    published = select(tmp_path / "t", Selection(), after=None, at_most=9)
    by_arrow = [(w, r["v"].to_pylist()) for w, r in published.rows(9)]
    by_spark = [(w, [row.v for row in published.frame(spark, w).collect()]) for w in published.windows]
    assert by_spark == by_arrow
    assert [numbers for _, numbers in by_arrow] == [[1], [2]]


def test_a_table_that_spark_has_rewritten_is_read(spark, tmp_path):
    """Its files may hold timestamps of 96 bits."""
    published = windows_of(tmp_path / "t", [V, V])
    [path, other] = DeltaTable(tmp_path / "t").file_uris()
    for uri in (path, other):
        rows = spark.read.parquet(uri).collect()
        frame = spark.createDataFrame(rows, spark.read.parquet(uri).schema).coalesce(1)
        frame.write.mode("overwrite").parquet(str(tmp_path / "fresh"))
        [written] = (tmp_path / "fresh").glob("part-*.parquet")
        Path(uri.removeprefix("file://")).write_bytes(written.read_bytes())
    assert [(w.rows, rows["v"].to_pylist()) for w, rows in published.rows(9)] == [(3, [1, 2, 4])] * 2
    assert [published.frame(spark, w).count() for w in published.windows] == [3, 3]


def test_numbers_are_as_wide_for_pandas_as_spark_compares_them():
    """A float of 32 bits next to 0.1, a small whole number beside a large bound."""
    rows = pa.table({"single": pa.array([0.1], pa.float32()), "small": pa.array([1], pa.int8()), "t": ["a"]})
    assert for_pandas(rows).schema.types == [pa.float64(), pa.int64(), pa.string()]


def test_rows_in_pieces_of_which_some_are_empty_are_all_given_to_spark(spark):
    """Spark's own way from Arrow loses rows behind an empty piece, and the report would judge the others alone."""
    rows = pa.table({"v": pa.array([1, 2, 3], pa.int64())})
    pieces = pa.concat_tables([rows, rows.slice(0, 0), rows.slice(0, 0), rows])
    schema = StructType().add("v", "long")
    frame = Judge._frame(SimpleNamespace(_spark=spark), SimpleNamespace(schema_json=schema.json()), None, pieces)
    assert sorted(row.v for row in frame.collect()) == [1, 1, 2, 2, 3, 3]
