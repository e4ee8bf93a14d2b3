"""Columns of any name and expressions of any kind: taken as Spark takes them, or refused at the user's line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, order, plain

from penstock import Job, agg, seconds
from penstock.errors import BadExpression, JobError, PenstockError
from penstock.graph.job import Stream
from penstock.quality import OnFail
from penstock.sinks import Delta, MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.state import State
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(5, of="expressions")

ODD = "`a.b` int, `t.s` timestamp, `größe` int, `two words` string, `Select` int, `tick``y` int"
ROW = {"a.b": 1, "t.s": 1, "größe": 2, "two words": "x", "Select": 4, "tick`y": 3}


def orders(job: Job, schema: str = ORDERS, **other: Any) -> Stream:
    """Return a source of one partition."""
    return job.source("orders", MemorySource(schema), event_time="t", max_out_of_order=seconds(0), **other)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["memory", "delta"])
def test_columns_have_any_name(tmp_path: Path, kind: str) -> None:
    """With dots, blanks, quotes and words of SQL, through every kind of step."""
    job = Job("names", partitions=1)
    source = job.source("orders", MemorySource(ODD), event_time="`t.s`", max_out_of_order=seconds(0))
    rows = (
        source.filter("`größe` > 0")
        .with_columns(**{"a.b": "`a.b` + 1", "key": "`two words`"})
        .transform("same", lambda df: df)
    )
    out, sums = (
        (MemorySink(), MemorySink()) if kind == "memory" else (Delta(tmp_path / "rows"), Delta(tmp_path / "sums"))
    )
    rows.write("out", out)
    window = rows.key_by("key", "größe").window("w", Tumbling(seconds(10)).late_to("late"))
    window.aggregate(**{"sum of it": agg.sum("`tick``y`"), "n": agg.count("`Select`")}).write("sums", sums)
    job.late("late").write("late_out", MemorySink())
    with Harness(job, tmp_path / "root") as h:
        h.batch({"orders": [ROW, {**ROW, "t.s": 12}]})
        h.batch({"orders": [ROW]})
        shown = h.output()
        assert [(row["a.b"], row["two words"]) for row in shown["out"]] == [(2, "x")] * 3
        assert plain(shown["sums"]) == [("x", 2, 0.0, 10.0, 3, 1)]
        assert [row["größe"] for row in h.late("late")] == [2]


SHAPES: dict[str, tuple[Callable[[Stream], Stream], list[dict[str, Any]]]] = {
    "a column of other letters": (lambda s: s.with_columns(V="v + 1").select("user", "V"), [{"user": "a", "V": 6}]),
    "all but one": (lambda s: s.select("* EXCEPT (t)"), [{"user": "a", "v": 5}]),
    "the fields of a struct": (
        lambda s: s.with_columns(st="struct(user, v)").select("st.*", "v * 2 AS w"),
        [{"user": "a", "v": 5, "w": 10}],
    ),
    "a filter that is null": (lambda s: s.filter("NULL"), []),
}


@pytest.mark.parametrize("name", SHAPES)
def test_expressions_mean_what_they_mean_in_spark(tmp_path: Path, name: str) -> None:
    """API: predicates and expressions are Spark SQL."""
    change, expected = SHAPES[name]
    job = Job("shapes", partitions=1)
    change(orders(job)).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        assert h.batch({"orders": [order("a", 1, 5)]})["out"] == expected


REFUSED: dict[str, Callable[[Stream], Stream]] = {
    "a number drawn once for all batches": lambda s: s.with_columns(u="uuid()"),
    "a filter by such a number": lambda s: s.filter("rand() < 0.5"),
    "a filter by the task": lambda s: s.filter("spark_partition_id() = 0"),
    "a filter by days of the clock": lambda s: s.filter("t BETWEEN 'yesterday' AND 'tomorrow'"),
    "a column of the clock": lambda s: s.with_columns(read_at="current_timestamp"),
    "an aggregate of the clock": lambda s: s.window("w", Tumbling(seconds(1)).drop_late()).aggregate(
        n=agg.max("current_timestamp")
    ),
    "a window function of SQL": lambda s: s.select("v", "row_number() OVER (ORDER BY v) AS r"),
    "the same in an aggregate": lambda s: s.window("w", Tumbling(seconds(1)).drop_late()).aggregate(
        n=agg.sum("row_number() OVER (ORDER BY v)")
    ),
    "an aggregate named as a hidden column": lambda s: s.window("w", Tumbling(seconds(1)).drop_late()).aggregate(
        _penstock_time=agg.count()
    ),
    "a column that rows travel by": lambda s: s.with_columns(_payload="v"),
    "a hidden column made": lambda s: s.with_columns(_penstock_time="0L"),
    "a hidden column in other letters": lambda s: s.with_columns(_PENSTOCK_time="0L"),
    "a hidden column selected": lambda s: s.select("v", "1 AS _penstock_fate"),
    "two columns of the same letters": lambda s: s.select("v", "v + 1 AS V"),
    "a type that Arrow lacks": lambda s: s.select("INTERVAL '1' MONTH AS i"),
    "an aggregate in an aggregate": lambda s: s.window("w", Tumbling(seconds(1)).drop_late()).aggregate(
        n=agg.sum("max(v)")
    ),
    "a map as a key": lambda s: (
        s.with_columns(m="map(user, v)").key_by("m").window("w", Tumbling(seconds(1)).drop_late())
    ).aggregate(n=agg.count()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_at_its_line(tmp_path: Path, name: str) -> None:
    """DESIGN 3: before anything is written."""
    job = Job("refused", partitions=1)
    REFUSED[name](orders(job)).write("out", Delta(tmp_path / "table"))
    with (
        pytest.raises(PenstockError, match=r"test_branch_frame\.py:\d+") as refusal,
        Harness(job, tmp_path / "root"),
    ):
        pass
    assert isinstance(refusal.value, BadExpression | JobError)
    assert not (tmp_path / "root").exists()
    assert not (tmp_path / "table").exists()


def test_a_line_becomes_its_words_by_a_transform_and_not_by_a_column(tmp_path: Path) -> None:
    """DESIGN 3, SEMANTICS 1.6, 2.10: the error names the way, whose rows keep event time, order and counts."""

    def words(by: Callable[[Stream], Stream]) -> Job:
        job = Job("words", partitions=2)
        split = by(orders(job, "line string, t timestamp").with_columns(words="split(line, ' ')"))
        windows = split.window("w", Tumbling(seconds(10)).drop_late())
        windows.aggregate(words=agg.collect("word", limit=100)).write("out", MemorySink())
        return job

    column = words(lambda lines: lines.select("explode(words) AS word"))
    with (
        pytest.raises(BadExpression, match=r"use transform\('words', .*test_branch_frame\.py"),
        Harness(column, tmp_path),
    ):
        pass
    job = words(lambda lines: lines.transform("words", lambda rows: rows.selectExpr("*", "explode(words) AS word")))
    lines = [{"line": "to be or", "t": 2}, {"line": None, "t": 3}, {"line": "not to be", "t": 1}, {"line": "", "t": 10}]
    with Harness(job, tmp_path) as h:
        assert h.batch({"orders": lines})["out"][0]["words"] == ["to", "be", "or", "not", "to", "be"]
        totals = h.commit().totals
        assert totals["source:orders"] == {"read": 4, "quarantined": 0, "passed": 4}
        assert totals["window:w"]["rows"] == 7


def test_several_rows_are_made_of_one_behind_a_step_by_a_state_function(tmp_path: Path) -> None:
    """SEMANTICS 1.6, 7.1: the error names the way, whose rows have the place and the event time of their row."""

    def words(name: str, by: Callable[[Stream], Stream]) -> Job:
        job = Job(name, partitions=2)
        window = orders(job, "line string, t timestamp").window("all", Tumbling(seconds(10)).drop_late())
        split = by(window.aggregate(words=agg.collect("line", limit=100)))
        if name == "map_batches":  # it has no event times that a window could go by
            split.write("out", MemorySink())
            return job
        split.window("again", Tumbling(seconds(10)).drop_late()).aggregate(words=agg.collect("word", limit=100)).write(
            "out", MemorySink()
        )
        return job

    wrong: dict[str, Callable[[Stream], Stream]] = {
        "select": lambda rows: rows.select("explode(words) AS word"),
        "transform": lambda rows: rows.transform("words", lambda frame: frame.selectExpr("explode(words) AS word")),
        "map_batches": lambda rows: rows.map_batches("words", lambda table, info: table, output="word string"),
    }
    for name, by in wrong.items():
        with (
            pytest.raises(PenstockError, match=r"use map_with_state.*test_branch_frame\.py"),
            Harness(words(name, by), tmp_path / name),
        ):
            pass

    def each(time: datetime, key: object, row: dict[str, Any] | None, state: State) -> list[dict[str, Any]]:
        assert row is not None
        return [{"word": word} for word in row["words"]]

    job = words(
        "right",
        lambda rows: rows.map_with_state(
            "words", each, state="none boolean", output="word string", unbounded=True, partitions=3
        ),
    )
    with Harness(job, tmp_path / "right") as h:
        h.batch({"orders": [{"line": word, "t": n} for n, word in enumerate(["to", "be", "or", "not", "to", "be"])]})
        h.batch({"orders": [{"line": "late", "t": 25}]})
        h.batch({})
        h.drain()
        assert [row["words"] for row in h.output()["out"]] == [["to", "be", "or", "not", "to", "be"], ["late"]]
        assert h.state("words") == []


@pytest.mark.parametrize(
    "schema", ["user varchar(3), t timestamp", "_PENSTOCK_x int, t timestamp", "_port int, t timestamp"]
)
def test_a_schema_that_cannot_be_read_is_refused_at_its_line(tmp_path: Path, schema: str) -> None:
    """At the line of the source."""
    job = Job("refused", partitions=1)
    orders(job, schema).write("out", MemorySink())
    with pytest.raises(PenstockError, match=r"test_branch_frame\.py:\d+"), Harness(job, tmp_path):
        pass


@pytest.mark.fault("F40", "F48")
def test_a_row_in_quarantine_fails_no_expression_behind_the_source(tmp_path: Path) -> None:
    """SEMANTICS 2.7, 2.9, 9.3: it is not there any more; the others go on."""
    job = Job("quarantine", partitions=1)
    stream = orders(job, max_future=seconds(100))
    stream.with_columns(x="10 div v").write("out", MemorySink())
    window = stream.window("w", Tumbling(seconds(10)).drop_late()).aggregate(x=agg.sum("10 div v"))
    window.write("sums", MemorySink())
    job.quarantine("orders").write("bad", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch(
            {"orders": [order("a", 1, 5), order("b", None, 0), order("c", 1_000, 0), {"user": 1, "t": 2, "v": "x"}]}
        )
        h.batch(watermark=10)
        shown = h.output()
    assert [row["x"] for row in shown["out"]] == [2]
    assert plain(shown["sums"]) == [(0.0, 10.0, 2)]
    assert len(shown["bad"]) == 3


def test_side_streams_are_streams_like_any_other(tmp_path: Path) -> None:
    """API: filters and expressions behind late rows and behind a source's quarantine."""
    job = Job("sides", partitions=1)
    stream = orders(job)
    window = stream.key_by("user").window("w", Tumbling(seconds(10)).late_to("late")).aggregate(n=agg.count())
    window.write("out", MemorySink())
    job.late("late").filter("v > 1").select("user", "v * 2 AS w").write("late_out", MemorySink())
    bad = job.quarantine("orders")
    bad.filter("_reason = 'null event time'").select("_source", "_position + 1 AS row").write("bad_out", MemorySink())
    bad.write("all_bad", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 50)]})
        h.batch({"orders": [order("b", 1, 1), order("c", 1, 3), order("d", None), {"user": "e", "t": "?", "v": 1}]})
        shown = h.output()
    assert shown["late_out"] == [{"user": "c", "w": 6}]
    assert shown["bad_out"] == [{"_source": "orders", "row": 4}]
    assert len(shown["all_bad"]) == 2


@pytest.mark.parametrize("column", ["_step", "_event_time", "_Watermark"])
def test_late_rows_do_not_get_a_column_twice(tmp_path: Path, column: str) -> None:
    """Refused at the line of the window, and not when the first late row comes."""
    job = Job("taken", partitions=1)
    window = orders(job, f"{column} string, t timestamp").window("w", Tumbling(seconds(10)).late_to("late"))
    window.aggregate(n=agg.count()).write("out", MemorySink())
    job.late("late").write("late_out", MemorySink())
    with pytest.raises(JobError, match=rf"{column}.*test_branch_frame\.py"), Harness(job, tmp_path):
        pass


def test_a_word_that_only_looks_like_a_function_is_taken(tmp_path: Path) -> None:
    """Text, and columns of such names."""
    job = Job("words", partitions=1)
    orders(job, "over string, t timestamp").select("'game over' AS said", "over").write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        assert h.batch({"orders": [{"over": "x", "t": 1}]})["out"] == [{"said": "game over", "over": "x"}]


BENT: list[tuple[str, Any]] = [
    ("array<int>", [1.5]),
    ("date", datetime(2020, 1, 1, 23, tzinfo=UTC)),
    ("struct<a:int>", {"a": 1, "b": 2}),
    ("string", b"x"),
    ("binary", "x"),
    ("int NOT NULL", None),
]


@pytest.mark.fault("F40")
@pytest.mark.parametrize(("kind", "value"), BENT)
def test_a_value_is_taken_as_it_is_or_put_in_quarantine(tmp_path: Path, kind: str, value: Any) -> None:
    """SEMANTICS 9.3: never bent to fit."""
    job = Job("bent", partitions=1)
    source = MemorySource(f"x {kind}, t timestamp")
    job.source("orders", source, event_time="t", max_out_of_order=seconds(0)).write("out", MemorySink())
    job.quarantine("orders").write("bad", MemorySink())
    with Harness(job, tmp_path) as h:
        output = h.batch({"orders": [{"x": value, "t": 1}]})
    assert (len(output["out"]), len(output["bad"])) == (0, 1)


@pytest.mark.fault("F40")
def test_a_null_of_a_file_is_taken_where_the_schema_allows_it_or_put_in_quarantine(tmp_path: Path) -> None:
    """SEMANTICS 9.3: NOT NULL means the same of a file as of rows that a test feeds."""
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n1,\n,2\n3,3\n")
    job = Job("nulls", partitions=1)
    rows = job.source("rows", FileReplay(path, order_by="y", schema="x int NOT NULL, y int"))
    rows.filter("x IS NOT NULL").write("out", MemorySink())
    job.quarantine("rows").select("_reason").write("bad", MemorySink())
    with Harness(job, tmp_path / "checkpoints") as h:
        output = h.batch()
    assert output["out"] == [{"x": 3, "y": 3}, {"x": 1, "y": None}]
    assert output["bad"] == [
        {"_reason": "record 2 of the file: column 'x' is null, and the schema says NOT NULL"},
    ]


def test_a_number_is_seconds_wherever_a_timestamp_stands(tmp_path: Path) -> None:
    """API, test kit: also as a decimal, and inside lists and structs."""
    job = Job("moments", partitions=1)
    source = MemorySource("t timestamp, l array<timestamp>, s struct<at:timestamp>")
    job.source("orders", source, event_time="t", max_out_of_order=seconds(0)).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        (row,) = h.batch({"orders": [{"t": Decimal("5.5"), "l": [5.5], "s": {"at": 5.5}}]})["out"]
    assert [m.timestamp() for m in (row["t"], row["l"][0], row["s"]["at"])] == [5.5] * 3


def test_a_check_does_not_overwrite_a_column_in_quarantine(tmp_path: Path) -> None:
    """Its own columns say which rules failed, and in which batch."""
    job = Job("taken", partitions=1)
    suite = {"name": "s", "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}]}
    stream = orders(job, "_rules string, t timestamp, v int")
    stream.check("gate", suite=suite, on_fail=OnFail.QUARANTINE).write("out", MemorySink())
    job.quarantine("gate").write("bad", MemorySink())
    with pytest.raises(JobError, match=r"'_rules'.*test_branch_frame\.py"), Harness(job, tmp_path):
        pass


def test_a_column_that_nothing_reads_may_be_of_a_type_that_arrow_lacks(tmp_path: Path) -> None:
    """Only what a step hands to its Python stage has to be a type of Arrow's."""
    job = Job("unread", partitions=1)
    spans = orders(job).with_columns(span="make_interval(0, v)")
    spans.key_by("user").window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count()).write(
        "out", MemorySink()
    )
    with Harness(job, tmp_path) as h:
        closed = h.batch({"orders": [order("a", 1), order("a", 20)]})["out"]
    assert [(row["user"], row["n"]) for row in closed] == [("a", 1)]
