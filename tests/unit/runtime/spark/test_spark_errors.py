"""A value that a user's expression cannot take is told from a failure of Spark (F48)."""

from __future__ import annotations

import pytest

from penstock import Job
from penstock.errors import ComputeFailed, PenstockError, UserFunctionError
from penstock.runtime.spark.errors import data_exception, error_of, java_failure, of_the_engine, site_of
from penstock.sinks import MemorySink
from penstock.sources import MemorySource

DIVIDED = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. \
If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012
== SQL (line 1, position 1) ==
10 div v
^^^^^^^^
"""
CAST = """[CAST_INVALID_INPUT] The value 'b' of the type "STRING" cannot be cast to "INT" because it is malformed.
Correct the value as per the syntax. SQLSTATE: 22018
== SQL (line 1, position 5) ==
CAST(user AS INT)
^^^^^^^^^^^^^^^^^
"""
RAISED = "[USER_RAISED_EXCEPTION] no such user SQLSTATE: P0001"
_HEAD_OF_DIVIDED = DIVIDED.partition(" If necessary")[0]
_HEAD_OF_CAST = CAST.partition(" SQLSTATE")[0].replace("\n", " ")
OTHERS = [
    "[INTERNAL_ERROR] The Spark SQL phase planning failed. SQLSTATE: XX000",
    "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 4 bytes of memory, got 0. SQLSTATE: 53200",
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times",
    "",
]


@pytest.mark.fault("F48")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DIVIDED, f"{_HEAD_OF_DIVIDED} In `10 div v`."),
        (CAST, f"{_HEAD_OF_CAST} In `CAST(user AS INT)`."),
        (RAISED, "[USER_RAISED_EXCEPTION] no such user"),
    ],
)
def test_a_data_exception_is_one_line_with_the_expression(text: str, message: str) -> None:
    """F48: what was wrong and in which expression; never the advice to turn ANSI off, which hides wrong values."""
    assert data_exception(text) == message


@pytest.mark.parametrize("text", OTHERS, ids=range(len(OTHERS)))
def test_other_failures_are_not_the_users(text: str) -> None:
    """A retry may help them, and nobody should look for a wrong value."""
    assert data_exception(text) is None


def test_the_line_is_that_of_the_step_whose_sql_is_quoted() -> None:
    """F48: the error shows file and line; where two steps hold the same SQL neither is named."""
    job = Job("job")
    numbers = job.source("numbers", object())
    wide = numbers.with_columns(w="1 + 10 div v")
    wide.filter("w > 1").write("out", object())
    graph = job.graph()
    assert site_of(DIVIDED, graph) == str(wide._node.site)
    assert site_of(CAST, graph) is None
    assert site_of(RAISED, graph) is None
    wide.select("10 div v AS x").write("more", object())
    assert site_of(DIVIDED, job.graph()) is None


FAILED = """An error occurred while calling o172.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times.
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
\t... 1 more
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:640)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            FAILED,
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times. "
            "Caused by java.io.EOFException",
        ),
        ("An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: heap\n\tat a.b(c)\n",
         "java.lang.OutOfMemoryError: heap"),
        ("no memory", "no memory"),
        ("a: b\nCaused by: b", "a: b"),
        ("An error occurred while calling o1.x.", "An error occurred while calling o1.x."),
    ],
    ids=["causes", "no cause", "one line", "a cause that was said", "nothing said"],
)  # fmt: skip
def test_a_failure_of_spark_is_told_by_its_cause(text, message):
    """Not by the name of a method that py4j called."""
    assert java_failure(text) == message


ENGINE = "/opt/app/.venv/lib/python3.11/site-packages/penstock/runtime/rows.py"
OPERATOR = "/srv/platform/penstock/operators/time_windows.py"
ARROW = "pyarrow/array.pxi"
NUMPY = "/opt/app/.venv/lib/python3.11/site-packages/numpy/lib/_function_base_impl.py"
WORKER = "/spark/python/lib/pyspark.zip/pyspark/worker.py"
THEIRS = "/srv/ann/penstock/jobs/flights.py"


@pytest.mark.fault("F75")
@pytest.mark.parametrize(
    ("files", "ours"),
    [
        ([WORKER, ENGINE], True),
        ([WORKER, ENGINE, OPERATOR, ARROW], True),
        ([WORKER, OPERATOR, NUMPY], True),
        ([WORKER, ENGINE, THEIRS], False),
        ([WORKER, ENGINE, THEIRS, NUMPY], False),
        ([WORKER, THEIRS], False),
        ([WORKER], False),
        ([], False),
    ],
)
def test_what_penstock_breaks_is_not_blamed_on_a_function_of_the_users(files: list[str], *, ours: bool) -> None:
    """A traceback that ends in Penstock, or in a library that it called, is the engine's fault."""
    assert of_the_engine(files) is ours


class PythonException(Exception):
    """What pyspark raises of an error in a task, by its name."""


@pytest.mark.fault("F75")
@pytest.mark.parametrize(("file", "kind"), [(ARROW, ComputeFailed), (THEIRS, UserFunctionError)])
def test_an_error_in_a_task_names_who_has_to_do_something(file: str, kind: type[PenstockError]) -> None:
    """A person is asked to correct a function only where there is one; else the cause is read, and the batch retried."""
    frames = "".join(f'  File "{path}", line 7, in run\n    do()\n' for path in (WORKER, ENGINE, file))
    why = PythonException(f"Traceback (most recent call last):\n{frames}TypeError: Cannot convert ChunkedArray\n")
    job = Job("orders", partitions=1)
    job.source("rows", MemorySource("v int")).write("out", MemorySink())
    error = error_of(why, 4, job.graph())
    assert (type(error), error.what) == (kind, "batch 4: TypeError: Cannot convert ChunkedArray")
    assert file in error.where
