"""Functions of SQL that may give a row another value when its batch runs again (SEMANTICS 1.2, 1.6)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame

from penstock.errors import JobError
from penstock.graph.nondeterministic import may_read_more, nondeterministic_call
from penstock.runtime.plan.branch_frame import refuse_functions
from penstock.testing.environment import session_of_tests

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "expression",
    [
        "uniform(0, 9) < 5",
        "randstr(3, 0)",
        "`rand`() < 0.5",
        "a = 'it\\'s' OR rand() < 1",
        "a = r'\\' AND RANDN () > 0 AND b = 'x'",
        'a = "\'" OR shuffle(b) IS NULL',
        "a /* it's */ = uuid() -- it's",
        "`a--b` < rand()",
        "`it's` < rand() OR b = 'x'",
        "rand/* a call */ () < 1",
    ],
)
def test_a_function_that_draws_is_refused_wherever_it_stands(expression: str) -> None:
    """DESIGN 3: one plan for all batches would draw once."""
    assert "would give the same values in every batch" in str(nondeterministic_call(expression))


@pytest.mark.parametrize(
    "expression", ["`rand()` > 1", "a = 'rand('", 'a = "uuid()"', "a = 'it\\'s rand()'", "a > 1 -- no rand()"]
)
def test_a_text_or_a_comment_draws_nothing(expression: str) -> None:
    """API: predicates and expressions are Spark SQL."""
    assert nondeterministic_call(expression) is None


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("v + spark_partition_id()", "spark_partition_id in 'v + spark_partition_id()' depends on the task"),
        ("input_file_name ()", "input_file_name in 'input_file_name ()' depends on the task"),
        ("reflect('java.util.UUID', 'randomUUID')", "calls Java"),
        ("Now() > t", "Now in 'Now() > t' reads the clock"),
        ("unix_timestamp( )", "unix_timestamp in 'unix_timestamp( )' reads the clock"),
        ("t > timestamp 'now'", "now in \"t > timestamp 'now'\" reads the clock"),
        ('date"Today "', "Today in "),
        (r"timestamp '\u006e\157\w'", "now in "),
        (r"timestamp '\u006Eow'", "now in "),
        (r"timestamp '\n\tnow'", "now in "),
        ("timestamp '\x01now'", "now in "),
        ("date/* a day */'today'", "today in "),
    ],
)
def test_what_a_place_or_the_clock_gives_is_named(expression: str, found: str) -> None:
    """SEMANTICS 1.6: no result depends on tasks; 1.2: nor on when a batch runs."""
    assert found in str(nondeterministic_call(expression))


@pytest.mark.parametrize(
    "expression", ["unix_timestamp(t)", "now", "date '2020-01-01'", "a.rand", r"date r'\u006eow'", r"a = '\U00110000'"]
)
def test_what_a_row_gives_is_steady(expression: str) -> None:
    """SEMANTICS 1.2: a function of the row's own values, and columns of any name."""
    assert nondeterministic_call(expression) is None


def test_an_expression_without_texts_and_functions_needs_no_answer_of_spark() -> None:
    """Each answer costs a batch's start milliseconds."""
    assert [e for e in ("a.b * 2 AS c", "*", "v > 0 AND w IS NULL", "now") if may_read_more(e)] == []


@pytest.fixture(scope="module")
def rows() -> DataFrame:
    """Return rows of Spark."""
    schema = "user string, t timestamp, v long"
    return session_of_tests().createDataFrame([("a", datetime(2026, 1, 1, tzinfo=UTC), 1)], schema)


def test_every_function_of_spark_that_is_not_steady_is_named(rows: DataFrame) -> None:
    """SEMANTICS 1.2, 1.6: those that Spark's own registry calls random, of a task or a file, or of the time."""
    spark = rows.sparkSession
    jvm: Any = spark._jvm
    catalog: Any = spark._jsparkSession.sessionState().catalog()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kinds = [
        loader.loadClass(f"org.apache.spark.sql.catalyst.expressions.{name}")
        for name in (
            "Nondeterministic",
            "ExpressionWithRandomSeed",
            "CurrentTimestampLike",
            "CurrentDate",
            "CurrentTime",
        )
    ]
    nondeterministic = set()
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        if name.isidentifier() and name != "case":
            info = catalog.lookupFunctionInfo(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
            if any(kind.isAssignableFrom(loader.loadClass(info.getClassName())) for kind in kinds):
                nondeterministic.add(name)
    assert {"rand", "uniform", "spark_partition_id", "input_file_name", "reflect", "now"} <= nondeterministic
    assert {name for name in nondeterministic if nondeterministic_call(f"v + {name}()") is None} == set()


CLOCKS = ["current_timestamp", "t > CURRENT_DATE", "current_time", "t > ' now '", "CAST('today' AS timestamp_ntz)"]
NO_WORDS = [f"array({'t, ' * 30} current_timestamp) AS times", "now/* a call */()", "unix_timestamp -- a call\n ()"]
CAST_BY_SPARK = ["'tomorrow'::date", "t BETWEEN 'yesterday' AND 'tomorrow'", "nullif(t, 'today')", "hour('now')"]
BY_FUNCTIONS = [
    "to_timestamp('now')",
    'to_date("Yesterday")',
    "try_to_timestamp('now')",
    "date_trunc('hour', 'now')",
    "try_cast(trim(' today') AS timestamp_ntz)",
    "timestamp(upper('today'))",
    "extract(hour FROM 'now')",
    "transform(array(1), x -> t > lower('NOW'))",
]
MADE = [
    "CAST(lower('NOW') AS TIMESTAMP)",
    "CAST('n' 'ow' AS DATE)",
    "to_timestamp(concat('n', 'ow'))",
    "CAST(decode(X'6e6f77', 'utf-8') AS TIMESTAMP)",
    "CAST(char(110) || char(111) || char(119) AS TIMESTAMP)",
    "t > 'epoch' AND t > reverse('won')",
]


@pytest.mark.parametrize("expression", [*CLOCKS, *NO_WORDS, *CAST_BY_SPARK, *BY_FUNCTIONS, *MADE])
def test_words_that_read_the_clock_are_found(rows: DataFrame, expression: str) -> None:
    """SEMANTICS 1.2: a batch that runs again gives the same rows; Spark says whether a text is the time."""
    with pytest.raises(JobError, match=r"reads the clock, .*info\.time"):
        refuse_functions(rows.selectExpr(expression), [expression])


@pytest.mark.parametrize(
    "expression",
    [
        "current_timezone()",
        "v AS current_date",
        "user = 'now'",
        "to_date('now', 'yyyy') = t",
        "'today'",
        "t > 'epoch'",
        "date('epoch')",
    ],
)
def test_the_same_words_as_names_and_texts_read_no_clock(rows: DataFrame, expression: str) -> None:
    """API: predicates and expressions are Spark SQL, in which 'epoch' is the same time for ever."""
    refuse_functions(rows.selectExpr(expression), [expression])


def test_a_column_may_have_the_name_of_a_function(rows: DataFrame) -> None:
    """API: to Spark a column of that name stands before the function."""
    named = rows.withColumnRenamed("t", "current_timestamp")
    for expression in ("current_timestamp", "nullif('current_timestamp()', string(current_timestamp))"):
        refuse_functions(named.selectExpr(expression), [expression])


def test_a_transform_above_may_read_the_clock(rows: DataFrame) -> None:
    """Decision 189: only what the expressions of a step read is judged."""
    above = rows.selectExpr("*", "now() AS seen", "(SELECT 1) AS one", "CAST('now' AS DATE) AS today")
    expression = "seen > '2020-01-01' AND one > 0 AND today IS NULL"
    refuse_functions(above.selectExpr(expression), [expression])


@pytest.mark.parametrize(
    "expression",
    ["v > (SELECT max(id) FROM range(3))", "v IN (VALUES 1)", "EXISTS (SELECT 1)", "(SELECT CAST('now' AS DATE))"],
)
def test_a_subquery_is_refused(rows: DataFrame, expression: str) -> None:
    """SEMANTICS 1.2: what it reads, such as a table, may be another when the batch runs again."""
    with pytest.raises(JobError, match="has a subquery, which reads other rows.*join_static"):
        refuse_functions(rows.selectExpr(expression), [expression])
