"""Functions without state in jobs: over tables, over the frame of each batch, and what a cache keeps for them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import CacheLevel, Job, Stream, agg, seconds
from penstock.errors import (
    BadExpression,
    JobError,
    JobInTransform,
    PenstockError,
    TransformColumnsChanged,
    UserFunctionError,
    WrongTable,
)
from penstock.runtime.inspect.explain import explain_graph
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sample(4, of="functions without state")

SCHEMA = "k string, t timestamp, v int"
Rows = list[dict[str, Any]]


def rows_of(job: Job) -> Stream:
    """Return a source with event time, whose undated rows are in quarantine."""
    job.quarantine("rows").write("bad", MemorySink())
    return job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(5))


def doubled(table: pa.Table, info: Any) -> pa.Table:
    """Return a row for each row."""
    return pa.table({"k": table["k"], "w": pc.multiply(table["v"].cast(pa.int64()), 2)})


def repeated(table: pa.Table, info: Any) -> pa.Table:
    """Return each row as often as its value says."""
    return pa.table({"n": pa.array([v for v in table["v"].to_pylist() for _ in range(v)], pa.int64())})


def mapped_job(partitions: int) -> Job:
    """Build a job with both forms of map_batches between filters, before and after a window."""
    job = Job("mapped", partitions=partitions)
    kept = rows_of(job).filter("v > 0")
    doubles = kept.map_batches("twice", doubled, output="k string, w long", same_rows=True).filter("w < 8")
    doubles.write("doubles", MemorySink())
    sums = doubles.key_by("k").window("sums", Tumbling(seconds(10)).drop_late()).aggregate(w=agg.sum("w"))
    plus = sums.filter("w > 2").map_batches("one_more", plus_one, output="k string, w long", same_rows=True)
    plus.write("plus", MemorySink())
    made = kept.map_batches("repeat", repeated, output="n long").filter("n <> 2")
    made.write("made", MemorySink())
    return job


def plus_one(table: pa.Table, info: Any) -> pa.Table:
    """Return sums with one more."""
    return pa.table({"k": table["k"], "w": pc.add(table["w"], 1)})


ROW = st.fixed_dictionaries(
    {"k": st.sampled_from("ab"), "t": st.sampled_from([None, 1, 2, 11, 12, 13]), "v": st.integers(0, 5)}
)


CUTS = st.sets(st.integers(1, 11), max_size=3)


@settings(max_examples=examples(2), deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from([1, 2, 8]), CUTS, st.booleans())
@pytest.mark.slow
def test_results_do_not_depend_on_batches_partitions_and_restarts(rows: Rows, partitions, cuts, restarts) -> None:
    """1.6, 2.10, 10.5: the rows are those of plain Python, and each is counted, whatever is cut where."""
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    with TemporaryDirectory() as root, Harness(mapped_job(partitions), Path(root)) as h:
        for start, end in pairwise(bounds):
            h.batch({"rows": rows[start:end]})
            if restarts:
                h.restart()
        h.drain()
        shown, counted = h.output(), h.commit().totals
    timed = [row for row in rows if row["t"] is not None]
    kept = [row for row in timed if row["v"] > 0]
    doubles = [{"k": row["k"], "w": 2 * row["v"]} for row in kept if row["v"] < 4]
    assert sorted(map(repr, shown["doubles"])) == sorted(map(repr, doubles))
    made = [v for row in kept for v in [row["v"]] * row["v"]]
    assert sorted(row["n"] for row in shown["made"]) == sorted(v for v in made if v != 2)
    assert (counted["source:rows"]["read"], counted["source:rows"]["passed"]) == (len(rows), len(timed))
    assert counted["filter:filter_1"] == {"rows": len(timed), "kept": len(kept), "filtered": len(timed) - len(kept)}
    assert counted["map_batches:repeat"] == {"rows": len(kept), "made": len(made)}
    assert counted["filter:filter_4"]["rows"] == len(made)
    assert counted["filter:filter_4"]["filtered"] == made.count(2)
    in_time = counted["window:sums"]
    assert in_time["rows"] == len(doubles)
    windows = {
        (row["k"], row["t"] // 10): sum(2 * o["v"] for o in kept if o["v"] < 4 and _same_window(o, row))
        for row in kept
        if row["v"] < 4
    }
    if not in_time["late"]:
        assert sorted(row["w"] for row in shown["plus"]) == sorted(w + 1 for w in windows.values() if w > 2)


def _same_window(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["k"] == other["k"] and one["t"] // 10 == other["t"] // 10


class Told:
    """Keep what a vectorised function is told, in columns of its output."""

    opened: Any = None

    def open(self, info: Any) -> None:
        """Take the facts of the task."""
        assert self.opened is None
        self.opened = info

    def close(self) -> None:
        """Let them go."""
        self.opened = None

    def __call__(self, table: pa.Table, info: Any) -> pa.Table:
        """Return the facts."""
        assert self.opened == info
        mark = None if info.watermark is None else info.watermark.timestamp()
        return pa.table(
            {
                name: pa.array([value] * len(table), kind)
                for name, value, kind in (
                    ("batch", info.batch, pa.int64()),
                    ("mark", mark, pa.float64()),
                    ("epoch", info.epoch, pa.int64()),
                )
            }
        )


def test_a_function_over_tables_is_opened_once_and_knows_batch_and_watermark(tmp_path: Path) -> None:
    """API, `info`: the watermark is that of a step at its place, and stays what it was across a restart."""
    job = Job("told")
    rows_of(job).map_batches("told", Told(), output="batch long, mark double, epoch long").write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"rows": [{"k": "a", "t": 20, "v": 1}]})
        h.batch({"rows": [{"k": "a", "t": 10, "v": 1}]})
        h.restart()
        h.batch({"rows": [{"k": "a", "t": 10, "v": 1}]})
        assert [(row["batch"], row["mark"]) for row in h.output()["out"]] == [(0, None), (1, 15.0), (2, 15.0)]
        assert "told" not in h.commit().watermarks_in, "only steps close windows"


# --- a transform of each batch -------------------------------------------------------------------


def tagged(frame: Any, info: Any) -> Any:
    """Add the batch, and keep of odd batches the even values only."""
    from pyspark.sql import functions as F

    rows = frame.where("v % 2 = 0") if info.batch % 2 else frame
    return rows.withColumn("batch", F.lit(info.batch))


def per_batch_job(fn: Callable[..., Any]) -> Job:
    job = Job("each")
    kept = rows_of(job).filter("v > 0")
    kept.transform("each", fn, per_batch=True).write("out", MemorySink())  # HERE
    return job


def test_a_transform_of_each_batch_makes_another_plan_for_each(tmp_path: Path, spark: SparkSession) -> None:
    """Its frame depends on the batch, the batch is one Spark job still, and a crash after it changes nothing."""
    jobs = spark.sparkContext._jsc.sc().dagScheduler()
    rows = [{"k": "a", "t": 1, "v": v} for v in (0, 1, 2)]
    with Harness(per_batch_job(tagged), tmp_path) as h:
        before = jobs.numTotalJobs()
        h.batch({"rows": rows})
        h.batch({"rows": rows})
        assert jobs.numTotalJobs() - before == 2
        h.crash_after("Compute")
        with pytest.raises(Exception, match="Compute"):
            h.batch({"rows": rows})
        h.restart()
        shown = sorted((row["batch"], row["v"]) for row in h.output()["out"])
        assert shown == [(0, 1), (0, 2), (1, 2), (2, 1), (2, 2)]
        assert h.commit().totals["filter:filter_1"] == {"rows": 9, "kept": 6, "filtered": 3}


def _other_columns(frame: Any, info: Any) -> Any:
    return frame.withColumn("v", frame.v.cast("string")) if info.batch == 1 else frame


def _raises(frame: Any, info: Any) -> Any:
    assert 1 // (1 - info.batch) < 2
    return frame


def _counts(frame: Any, info: Any) -> Any:
    assert info.batch < 1 or frame.count() > 0
    return frame


def _unknown_column(frame: Any, info: Any) -> Any:
    return frame.where("amount > 1") if info.batch == 1 else frame


@pytest.mark.remedy("PEN-OPR-023", "PEN-OPR-024")
@pytest.mark.parametrize(
    ("fn", "error", "word"),
    [
        (
            _other_columns,
            TransformColumnsChanged,
            "v string in batch 1, and k string, t timestamp, v int when the job started",
        ),
        (_raises, UserFunctionError, "transform 'each' raised ZeroDivisionError"),
        (_counts, JobInTransform, "transform 'each' ran a Spark job over the rows of the stream"),
        (_unknown_column, BadExpression, "amount"),
    ],
)
def test_what_is_wrong_with_a_batch_s_transform_ends_that_batch(
    tmp_path: Path, fn: Callable[..., Any], error: type[PenstockError], word: str
) -> None:
    """A named error at the transform's line; nothing of the batch is kept, and a corrected job runs it."""
    with Harness(per_batch_job(fn), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "t": 1, "v": 1}]})
        with pytest.raises(error, match=word) as caught:
            h.batch({"rows": [{"k": "b", "t": 1, "v": 2}]})
        assert type(caught.value) is error
        assert "# HERE" in _line_of(caught.value)
        assert (h.commit().batch, len(h.output()["out"])) == (0, 1)
        h.restart(per_batch_job(lambda frame, info: frame))
        assert (h.commit().batch, len(h.output()["out"])) == (1, 2)


def _line_of(error: PenstockError) -> str:
    file, _, line = str(error.where).rpartition(":")
    assert file == __file__
    return Path(__file__).read_text(encoding="utf-8").splitlines()[int(line) - 1]


# --- what is wrong with a function over tables ---------------------------------------------------


@pytest.mark.parametrize(
    ("output", "error", "word"),
    [
        ("n lnog", BadExpression, "LNOG"),
        ("long", BadExpression, "one type"),
        ("n long, N long", JobError, "twice|two"),
        ("_penstock_n long", JobError, "_penstock_n"),
    ],
)
def test_an_output_that_is_no_schema_is_refused_before_anything_is_written(
    tmp_path: Path, output: str, error: type[PenstockError], word: str
) -> None:
    """At its line, as wrong SQL is."""
    job = Job("wrong")
    rows_of(job).map_batches("m", repeated, output=output).write("out", MemorySink())  # HERE
    with pytest.raises(error, match=word) as caught, Harness(job, tmp_path / "checkpoints"):
        pass
    assert "# HERE" in _line_of(caught.value)
    assert list(tmp_path.iterdir()) == []


def _wrong_column(table: pa.Table, info: Any) -> pa.Table:
    return table.select(["k"])


def _divides(table: pa.Table, info: Any) -> pa.Table:
    return pa.table({"n": pc.divide(1, table["v"].cast(pa.int64()))})


@pytest.mark.fault("F48")
@pytest.mark.remedy("PEN-OPR-022")
@pytest.mark.parametrize(
    ("fn", "error", "word"),
    [
        (_wrong_column, WrongTable, r"batch 0: what map_batches 'm' returned has the columns \['k'\], not \['n'\]"),
        (_divides, UserFunctionError, r"batch 0: map_batches 'm': ArrowInvalid: divide by zero .* in .*test_functions"),
    ],
)
def test_a_function_over_tables_that_fails_ends_its_batch(
    tmp_path: Path, fn: Callable[..., Any], error: type[PenstockError], word: str
) -> None:
    """Its own error, with step and line; no Commit and no sink write, and a corrected function takes the same rows."""

    def job(given: Callable[..., Any]) -> Job:
        made = Job("failing")
        rows_of(made).map_batches("m", given, output="n long").write("out", MemorySink())
        return made

    with Harness(job(fn), tmp_path) as h:
        with pytest.raises(error, match=word) as caught:
            h.batch({"rows": [{"k": "a", "t": 1, "v": 0}]})
        assert type(caught.value) is error
        assert h.output() == {"out": [], "bad": []}
        h.restart(job(lambda table, info: pa.table({"n": table["v"].cast(pa.int64())})))
        assert h.output()["out"] == [{"n": 0}]


def test_rows_of_other_tasks_have_no_place_without_same_rows(tmp_path: Path) -> None:
    """1.6: behind a step with state the function must return a row for each row, or the job is refused."""
    job = Job("behind")
    seen = rows_of(job).deduplicate("seen", by=["k"], within=seconds(5))
    seen.map_batches("m", repeated, output="n long").write("out", MemorySink())
    with pytest.raises(JobError, match="follows a stateful step without same_rows"), Harness(job, tmp_path):
        pass


# --- cache -----------------------------------------------------------------------------------------


def cached_in(context: Any) -> set[str]:
    """Return the numbers of what Spark keeps, also for other tests of the session."""
    return {*context.getPersistentRDDs().keys().mkString(",").split(",")} - {""}


def cached_job(log: Path, *, cached: bool) -> Job:
    """Build a job with a costly function that two branches of their own read."""

    def counted(table: pa.Table, info: Any) -> pa.Table:
        with log.open("a") as calls:
            calls.write(f"{table.num_rows}\n")
        return table

    job = Job("cached", partitions=2)
    costly = rows_of(job).map_batches("costly", counted, output=SCHEMA, same_rows=True)
    shared = costly.cache(level=CacheLevel.MEMORY) if cached else costly
    shared.transform("only_ones", lambda frame: frame.where("v = 1")).write("ones", MemorySink())
    shared.transform("only_twos", lambda frame: frame.where("v = 2")).write("twos", MemorySink())
    shared.filter("v > 2").cache().write("more", MemorySink())
    return job


def test_a_cache_has_branches_share_what_was_computed_and_is_released(tmp_path: Path, spark: SparkSession) -> None:
    """The function takes each row once a batch; results are those without it, in one Spark job; nothing stays."""
    context = spark.sparkContext._jsc.sc()
    rows = [{"k": "a", "t": 1, "v": v} for v in (1, 2, 3, 3)]
    results = {}
    for cached in (True, False):
        log = tmp_path / f"calls-{cached}"
        with Harness(cached_job(log, cached=cached), tmp_path / f"checkpoints-{cached}") as h:
            before, held = context.dagScheduler().numTotalJobs(), cached_in(context)
            h.batch({"rows": rows})
            h.batch({"rows": rows[:2]})
            assert context.dagScheduler().numTotalJobs() - before == 2
            assert cached_in(context) <= held
            results[cached] = h.output()
        taken = sum(map(int, log.read_text().split()))
        assert taken == (6 if cached else 18), "one pass, or one for each of three forks"
    assert results[True] == results[False]
    assert {name: len(rows) for name, rows in results[True].items()} == {"ones": 2, "twos": 2, "more": 2, "bad": 0}


def test_explain_shows_functions_and_caches(tmp_path: Path) -> None:
    """And says where a cache has nothing to keep."""
    job = cached_job(tmp_path / "log", cached=True)
    texts = [text for section in explain_graph(job.graph()) for _, text in section.rows]
    assert "cache in memory" in texts
    assert "cache in memory and disk; nothing to keep, because one pass computes all that follows" in texts
    costly = next(text for text in texts if text.startswith("map_batches costly"))
    assert costly.endswith("counted, returns k string, t timestamp, v int, a row for each row")
    each = next(
        text for section in explain_graph(per_batch_job(tagged).graph()) for _, text in section.rows if "tagged" in text
    )
    assert each == "transform each: tagged; called and planned in every batch"
