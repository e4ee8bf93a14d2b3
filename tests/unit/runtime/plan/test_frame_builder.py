"""What a user can get wrong about columns, types and SQL shows at the start, at their line, before a byte is written.

DESIGN 3: the job is analysed once by Spark when a run, `explain` or the Harness begins. What no analysis can see, a
value that an expression cannot take, ends the batch with a named error, and nothing of the batch is kept (F48).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, Stream, agg, seconds
from penstock.errors import BadExpression, JobError, PenstockError, SuiteError, UnknownName, UserFunctionError
from penstock.quality import OnFail
from penstock.sinks import Delta, MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(7, of="frames")

ORDERS = "user string, t timestamp, v int, ok boolean"
Wrong = Callable[[Stream], Stream]


def orders_of(job: Job, schema: str = ORDERS, name: str = "orders") -> Stream:
    """Return a source with event time."""
    return job.source(name, MemorySource(schema), event_time="t", max_out_of_order=seconds(0))


def refused(job: Job, root: Path, error: type[PenstockError], word: str) -> PenstockError:
    """Return the error with which a Harness refuses the job: at a line that says HERE, with nothing written."""
    with pytest.raises(error) as caught, Harness(job, root / "checkpoints"):
        pass
    assert type(caught.value) is error
    assert word in str(caught.value)
    assert "# HERE" in Path(__file__).read_text(encoding="utf-8").splitlines()[_line(caught.value) - 1]
    assert list(root.iterdir()) == [], "neither a checkpoint nor a table was made"
    return caught.value


def _line(error: PenstockError) -> int:
    file, _, line = str(error.where).rpartition(":")
    assert file == __file__
    return int(line)


def windowed(s: Stream, **aggregates: Any) -> Stream:
    """Return ten-second windows by user."""
    return s.key_by("user").window("w", Tumbling(seconds(10)).drop_late()).aggregate(**aggregates)  # HERE


def _by_unknown_key(s: Stream) -> Stream:
    windows = s.key_by("region").window("w", Tumbling(seconds(10)).drop_late())
    return windows.aggregate(n=agg.count())  # HERE


WRONG: list[tuple[str, Wrong, type[PenstockError], str]] = [
    ("unknown column in filter", lambda s: s.filter("amount > 0"), BadExpression, "amount"),  # HERE
    ("unknown column in select", lambda s: s.select("user", "amount"), BadExpression, "amount"),  # HERE
    ("unknown column in with_columns", lambda s: s.with_columns(w="amount * 2"), BadExpression, "amount"),  # HERE
    ("unknown column in key_by", _by_unknown_key, UnknownName, "region"),
    ("unknown column in aggregate", lambda s: windowed(s, n=agg.sum("amount")), BadExpression, "amount"),
    ("unknown function", lambda s: s.select("shout(user) AS u"), BadExpression, "shout"),  # HERE
    ("SQL that does not parse", lambda s: s.filter("v >"), BadExpression, "end of input"),  # HERE
    ("filter that is a number", lambda s: s.filter("v + 1"), BadExpression, "not a boolean"),  # HERE
    ("filter that is text", lambda s: s.filter("user"), BadExpression, "not a boolean"),  # HERE
    ("number compared with an array", lambda s: s.filter("array(v) > 1"), BadExpression, "ARRAY"),  # HERE
    ("sum of text", lambda s: windowed(s, n=agg.sum("user")), BadExpression, "string"),
    ("mean of a boolean", lambda s: windowed(s, n=agg.mean("ok")), BadExpression, "bool"),
    ("select that makes a column twice", lambda s: s.select("v", "v + 1 AS v"), JobError, "twice"),  # HERE
    ("transform that returns nothing", lambda s: s.transform("x", lambda _: None), JobError, "NoneType"),  # HERE
    ("transform that drops the order", lambda s: s.transform("x", lambda d: d.select("v")), JobError, "1.6"),  # HERE
    ("transform over no column", lambda s: s.transform("x", lambda d: d.where("y > 1")), BadExpression, "y"),  # HERE
    ("transform that raises", lambda s: s.transform("x", lambda _: 1 // 0), UserFunctionError, "ZeroDivision"),  # HERE
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "word"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_step_is_refused_at_its_line(
    make: Wrong, error: type[PenstockError], word: str, tmp_path: Path
) -> None:
    """DESIGN 3: columns, types and SQL are analysed before the checkpoint or a table of a sink is made."""
    job = Job("wrong", partitions=1)
    make(orders_of(job)).write("out", Delta(tmp_path / "table"))
    refused(job, tmp_path, error, word)


@pytest.mark.parametrize("expression", ["v", "user", "nowhere", "to_date(t)"])
def test_event_time_that_is_no_timestamp_is_refused(expression: str, tmp_path: Path) -> None:
    """SEMANTICS 2.1: event time is an expression that gives a timestamp, and nothing is cast in silence."""
    job = Job("wrong", partitions=1)
    orders = job.source(  # HERE
        "orders", MemorySource(ORDERS), event_time=expression, max_out_of_order=seconds(0)
    )
    windowed(orders, n=agg.count()).write("out", Delta(tmp_path / "table"))
    refused(job, tmp_path, BadExpression, expression)


@pytest.mark.parametrize("other", ["user string, t timestamp, v long, ok boolean", "user string, t timestamp, v int"])
@pytest.mark.parametrize("end", ["sink", "filter", "window"])
def test_a_union_of_streams_with_other_columns_is_refused(other: str, end: str, tmp_path: Path) -> None:
    """API: union takes streams with the same columns, whatever reads it."""
    job = Job("wrong", partitions=1)
    both = orders_of(job).filter("v > 0").union(orders_of(job, other, "more"))  # HERE
    ends = {"sink": both, "filter": both.filter("v > 0")}
    ended = ends[end] if end in ends else windowed(both, n=agg.count())
    ended.write("out", Delta(tmp_path / "table"))
    refused(job, tmp_path, BadExpression, "columns")


def test_streams_with_the_same_columns_are_joined_in_one_sink(tmp_path: Path) -> None:
    """API: union. The columns are compared where the streams meet, whatever they had before."""
    job = Job("right", partitions=1)
    first, two = orders_of(job).select("v"), orders_of(job, "v int, t timestamp, w int", "more").select("v")
    first.union(two).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [{"v": 1, "t": 0}], "more": [{"v": 2, "t": 0}]})
        assert output == {"out": [{"v": 1}, {"v": 2}]}


def test_the_outputs_of_two_windows_are_joined_in_one_sink(tmp_path: Path) -> None:
    """API: union of streams that come out of windows, into a sink."""
    job = Job("right", partitions=1)
    orders = orders_of(job)
    short = orders.window("short", Tumbling(seconds(5)).drop_late()).aggregate(n=agg.count())
    long = orders.window("long", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
    short.union(long).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [{"v": 1, "t": 1}, {"v": 1, "t": 7}, {"v": 1, "t": 10}]})
        assert sorted(row["n"] for row in output["out"]) == [1, 1, 2]


def test_sources_that_are_read_in_different_numbers_of_tasks_are_joined(tmp_path: Path) -> None:
    """Each split is read by number, whatever Spark makes of the union: no row is lost or doubled, no file shared."""
    path = tmp_path / "more.csv"
    path.write_text("v,t\n" + "".join(f"{i},{i}\n" for i in range(9)))
    job = Job("right", partitions=1)
    fed = job.source("fed", MemorySource("v long"))
    replays = [job.source(f"r{i}", FileReplay(path, order_by="v", rows_per_batch=200_000)) for i in range(2)]
    fed.union(replays[0].select("v")).union(replays[1].select("v")).write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        output = h.batch({"fed": [{"v": 100}]})
        assert sorted(row["v"] for row in output["out"]) == sorted([100, *range(9), *range(9)])


def test_late_streams_with_other_columns_do_not_share_a_sink(tmp_path: Path) -> None:
    """SEMANTICS 2.6: a late row keeps its columns, so windows that share a late stream read the same ones."""
    job = Job("wrong", partitions=1)
    orders = orders_of(job)
    spec = Tumbling(seconds(10)).late_to("late")
    orders.window("one", spec).aggregate(n=agg.count()).write("out", MemorySink())
    orders.select("v").window("two", spec).aggregate(n=agg.count()).write("also", MemorySink())
    job.late("late").write("late_rows", Delta(tmp_path / "table"))  # HERE
    refused(job, tmp_path, BadExpression, "late")


def gate(column: str, type_: str, **arguments: Any) -> dict[str, Any]:
    """Return a suite of one expectation."""
    return {"name": "s", "expectations": [{"type": type_, "kwargs": {"column": column, **arguments}}]}


def test_a_check_of_an_unknown_column_is_refused(tmp_path: Path) -> None:
    """DESIGN 10: what cannot be compiled is named when the job is analysed, with the place in the suite."""
    job = Job("wrong", partitions=1)
    suite = gate("amount", "expect_column_values_to_not_be_null")
    orders_of(job).check("c", suite=suite, on_fail=OnFail.WARN).write("out", Delta(tmp_path / "table"))
    with pytest.raises(UnknownName, match="'amount'") as caught, Harness(job, tmp_path / "checkpoints"):
        pass
    assert str(caught.value.where).startswith(__file__)
    assert list(tmp_path.iterdir()) == []


def test_a_regex_that_java_cannot_compile_is_refused(tmp_path: Path) -> None:
    """SEMANTICS 11.2: a regex is Java's, so only Spark can say whether it is one; it is asked before the job starts."""
    job = Job("wrong", partitions=1)
    suite = gate("user", "expect_column_values_to_match_regex", regex="(?P<named>a")
    orders_of(job).check("c", suite=suite, on_fail=OnFail.WARN).write("out", Delta(tmp_path / "table"))
    with pytest.raises(SuiteError, match="match_regex") as caught, Harness(job, tmp_path / "checkpoints"):
        pass
    assert "(?P<named>a" in str(caught.value)
    assert str(caught.value.where).startswith(__file__)
    assert list(tmp_path.iterdir()) == []


def test_a_regex_of_java_alone_is_taken(tmp_path: Path) -> None:
    """SEMANTICS 11.2: possessive quantifiers are Java's."""
    job = Job("right", partitions=1)
    suite = gate("user", "expect_column_values_to_match_regex", regex="^a++$")
    orders_of(job).check("c", suite=suite, on_fail=OnFail.DROP).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [{"user": "aa", "t": 1}, {"user": "ab", "t": 1}]})
        assert [row["user"] for row in output["out"]] == ["aa"]


# --- at run time -----------------------------------------------------------------------------

RAISING = [
    # what, expression, the row it cannot take, Spark's word for it, the expression after the fix
    ("division by zero", "10 div v", {"v": 0}, "DIVIDE_BY_ZERO", "try_divide(10, v)::long"),
    ("cast of a text", "CAST(user AS INT)", {"user": "b"}, "CAST_INVALID_INPUT", "try_cast(user AS INT)"),
]


def _job(source: MemorySource, sink: Delta, expression: str) -> Job:
    job = Job("raising", partitions=1)
    orders = job.source("orders", source, event_time="t", max_out_of_order=seconds(0))
    orders.with_columns(w=expression).select("user", "w").write("out", sink)  # HERE
    return job


@pytest.mark.fault("F48")
@pytest.mark.parametrize(("sql", "row", "word", "fixed"), [r[1:] for r in RAISING], ids=[r[0] for r in RAISING])
def test_an_expression_that_raises_ends_the_batch_and_nothing_of_it_is_kept(
    sql: str, row: dict[str, Any], word: str, fixed: str, tmp_path: Path
) -> None:
    """F48: a named error with batch and line; no Commit, no sink write; after the fix the same batch is done again."""
    source, sink = MemorySource(ORDERS), Delta(tmp_path / "table")
    with Harness(_job(source, sink, sql), tmp_path / "checkpoints") as h:
        h.batch({"orders": [{"user": "1", "t": 1, "v": 1}]})
        before = h.output()["out"]
        with pytest.raises(UserFunctionError, match=word) as caught:
            h.batch({"orders": [{"user": "2", "t": 2, "v": 2}, {"user": "3", "t": 2, "v": 3, **row}]})
        assert "batch 1:" in str(caught.value)
        assert sql in str(caught.value)
        assert "# HERE" in Path(__file__).read_text(encoding="utf-8").splitlines()[_line(caught.value) - 1]
        assert h.commit().batch == 0
        assert h.output()["out"] == before
        h.restart(_job(source, sink, fixed))
        assert h.commit().batch == 1
        shown = h.output()["out"]
        assert len(shown) == 3
        assert [r["w"] for r in shown].count(None) == 1


def _only_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if 3 in batch["v"].to_pylist():
            raise ValueError("three is too many")  # RAISED
        yield batch


@pytest.mark.fault("F48")
def test_a_python_function_that_raises_in_a_task_is_told_with_its_line(tmp_path: Path) -> None:
    """Its own error and the user's file and line; no Commit, no sink write, and the batch is done again."""
    source, sink = MemorySource(ORDERS), Delta(tmp_path / "table")

    def job(fn: Callable[..., Iterator[pa.RecordBatch]]) -> Job:
        made = Job("raising", partitions=1)
        orders = made.source("orders", source)
        orders.transform("small", lambda frame: frame.mapInArrow(fn, frame.schema)).write("out", sink)
        return made

    with Harness(job(_only_small), tmp_path / "checkpoints") as h:
        h.batch({"orders": [{"user": "1", "t": 1, "v": 1}]})
        with pytest.raises(UserFunctionError, match="batch 1: ValueError: three is too many") as caught:
            h.batch({"orders": [{"user": "2", "t": 2, "v": 3}]})
        assert caught.value.where is not None
        assert Path(__file__).name in caught.value.where
        assert (h.commit().batch, len(h.output()["out"])) == (0, 1)
        h.restart(job(lambda batches: batches))
        assert (h.commit().batch, len(h.output()["out"])) == (1, 2)
