"""A function receives the rows of each batch, at least once (SEMANTICS 9.4); what it raises is named at its line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from harness_jobs import ORDERS, order
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Job, agg, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import BatchFunctionError, JobError, SinkBusy
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.settings import Identity
from penstock.runtime.driver.stages import BATCH
from penstock.runtime.inspect.explain import guarantees
from penstock.runtime.restore.sink_repair import SinksAtRest, skip
from penstock.sinks import ForeachBatch, PublishedBatch
from penstock.sinks.base import Origin, Publication, Publisher, Staged
from penstock.sinks.staged_files import stage_table
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.testing.sink_contract import RepeatingContract, World
from penstock.windows import Tumbling

ME = Identity(holder="test", code_version="test")


class Ledger:
    """A function that notes what it receives, and raises for one batch."""

    def __init__(self, broken: int | None = None) -> None:
        self.calls: list[tuple[int, list[Any]]] = []
        self.infos: list[PublishedBatch] = []
        self.broken = broken

    def __call__(self, df: Any, info: PublishedBatch) -> None:
        """Note a batch."""
        if info.batch == self.broken:
            raise ZeroDivisionError("no such rate")
        self.infos.append(info)
        self.calls.append((info.batch, [tuple(row) for row in df.collect()]))


class SparkWorld(World):
    """A function, and the session that its rows come from."""

    spark: Any

    def publisher(self) -> Publisher:
        """Return the publisher of another run."""
        publisher: Publisher = self.sink.open(self.staging, self.spark)
        return publisher


class TestForeachBatch(RepeatingContract):
    """The suite, for a function that notes its rows."""

    @pytest.fixture
    def world(self, tmp_path: Path, spark: Any) -> World:
        ledger = Ledger()
        world = SparkWorld(ForeachBatch(ledger), tmp_path, lambda: [k for _, rows in ledger.calls for (k,) in rows])
        world.spark = spark
        return world


def make_job(fn: Callable[..., Any]) -> Job:
    """Return a job whose rows a function receives."""
    job = Job("told", partitions=1)
    job.source("orders", MemorySource(ORDERS)).select("user", "v").foreach_batch("out", fn)
    return job


def run(root: Path, fn: Callable[..., Any], *batches: tuple[int, ...]) -> None:
    """Run a driver for some batches, and release the log."""
    with Harness(make_job(fn), root) as h:
        for values in batches:
            feed(h, *values)


def feed(h: Harness, *values: int) -> None:
    """Run a batch of these rows."""
    h.batch({"orders": [order("a", 1, v) for v in values]})


def test_the_function_receives_the_rows_in_order_of_arrival(tmp_path: Path) -> None:
    """Once a batch with rows, on the driver; a batch without rows calls nothing."""
    ledger = Ledger()
    with Harness(make_job(ledger), tmp_path) as h:
        feed(h, 3, 1, 2)
        feed(h)
        feed(h, 7)
        newest = h.commit().batch
    assert ledger.calls == [(0, [("a", 3), ("a", 1), ("a", 2)]), (newest, [("a", 7)])]


def test_the_function_is_informed_of_the_batch(tmp_path: Path) -> None:
    """`info`: batch, time, watermark and epoch, and the name under which rows may be kept once."""
    ledger = Ledger()
    job = Job("told", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    windows = orders.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
    windows.aggregate(n=agg.count()).foreach_batch("out", ledger)
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1), order("a", 12)]}, at=100)
        time, epoch = h.commit().time, h.commit().epoch
    (info,) = ledger.infos
    watermark = datetime.fromtimestamp(12, UTC)
    assert (info.batch, info.time.timestamp() * 1e6, info.watermark, info.epoch) == (1, time, watermark, epoch)
    assert (info.job, info.sink) == ("told", "out")
    assert info.app.endswith("/out")


@pytest.mark.parametrize(("micros", "watermark"), [(None, None), (2**62, datetime.max.replace(tzinfo=UTC))])
def test_a_watermark_without_a_datetime(
    tmp_path: Path, spark: Any, micros: int | None, watermark: datetime | None
) -> None:
    """None before there is one, and the last datetime after the end of time."""
    ledger, rows = Ledger(), pa.table({"k": [1]})
    file = Staged(**stage_table(rows, tmp_path, "0.parquet"))
    origin = Origin(job="j", time=0, watermark=micros, epoch=1)
    publication = Publication(app="u/out", batch=0, files=[file], schema=rows.schema, origin=origin)
    ForeachBatch(ledger).open(tmp_path, spark).publish(publication)
    assert ledger.infos[0].watermark == watermark


HOOKS = [
    *((stage.value[0], when) for stage in BATCH for when in ("before", "after")),
    ("PublishSinks", "published out"),
]


@pytest.mark.fault("F01", "F54")
def test_a_crash_at_any_hook_repeats_a_batch_as_it_was(tmp_path: Path) -> None:
    """SEMANTICS 9.4: with the same rows and the same info; a function that recognises these has each row once."""
    ledger, rows = Ledger(), iter(range(10**6))
    with Harness(make_job(ledger), tmp_path) as h:
        for hook in HOOKS:
            h.crash_at(*hook)
            with pytest.raises(Crashed):
                feed(h, next(rows), next(rows))
            h.restart()
    calls = list(zip(ledger.infos, ledger.calls, strict=True))
    once = {(info.app, info.batch): rows for info, (_, rows) in calls}
    assert [row for rows in once.values() for row in rows] == [("a", v) for v in range(2 * len(HOOKS))]
    assert len({(info, repr(rows)) for info, rows in calls}) == len(HOOKS)
    # What is known to be published is not repeated: the crash came after the next entry of the log, or before any call.
    again = [hook for number, hook in enumerate(HOOKS) if len([i for i in ledger.infos if i.batch == number]) == 2]
    assert set(again) >= {("PublishSinks", "published out"), ("PublishSinks", "after")}


def test_after_a_clean_release_the_last_batch_is_not_repeated(tmp_path: Path) -> None:
    """SEMANTICS 9.4: the Release says that it was published."""
    ledger = Ledger()
    for value in (1, 2):
        run(tmp_path, ledger, (value,))
    assert ledger.calls == [(0, [("a", 1)]), (1, [("a", 2)])]


@pytest.mark.remedy("PEN-SNK-019")
def test_a_function_that_raises_is_named_and_called_again(tmp_path: Path) -> None:
    """SEMANTICS 9.6: file and line; the batch is committed, and each start calls the function with it."""
    ledger = Ledger(broken=1)
    line = Ledger.__call__.__code__.co_firstlineno + 3
    where = rf"test_foreach_batch\.py:{line}"
    with pytest.raises(BatchFunctionError, match=where) as caught:
        run(tmp_path, ledger, (1,), (2,))
    assert (caught.value.exit_code, "ZeroDivisionError: no such rate (batch 1)" in str(caught.value)) == (78, True)
    with pytest.raises(BatchFunctionError):
        run(tmp_path, ledger)
    ledger.broken = None
    run(tmp_path, ledger, (3,))
    assert [batch for batch, _ in ledger.calls] == [0, 1, 2]


@pytest.mark.remedy("PEN-SNK-019")
def test_a_batch_that_the_function_never_takes_is_skipped(tmp_path: Path) -> None:
    """SEMANTICS 9.6: the way past it is that of every sink, and the log counts the rows."""
    ledger = Ledger(broken=1)
    with pytest.raises(BatchFunctionError):
        run(tmp_path, ledger, (1,), (2, 3))
    folder = tmp_path / "told"
    store = LocalStore(folder)
    at_rest = SinksAtRest(make_job(ledger).graph(), folder / "staged", None)
    stand = skip(Log(store), at_rest, "out", read_metadata(store).uuid, ME, anybody_may)
    assert [(commit.batch, stand.rows(commit)) for commit in stand.behind] == [(1, 2)]
    run(tmp_path, ledger, (4,))
    assert [batch for batch, _ in ledger.calls] == [0, 2]


def test_errors_of_sinks_are_passed_on(tmp_path: Path) -> None:
    """A function may say that its target is busy: the driver waits, and calls it again."""
    ledger, waited = Ledger(), []

    def busy_once(df: Any, info: PublishedBatch) -> None:
        if not waited:
            waited.append(info.batch)
            raise SinkBusy("not yet", retry_after=0.1)
        ledger(df, info)

    run(tmp_path, busy_once, (1,))
    assert (waited, ledger.calls) == ([0], [(0, [("a", 1)])])


@pytest.mark.parametrize(
    "wrong",
    [None, "print", Ledger, lambda: None, lambda df: None, lambda df, info, more: None],
    ids=["None", "a text", "a class", "no argument", "one argument", "three arguments"],
)
def test_what_cannot_be_called_is_refused_where_it_is_written(wrong: Any) -> None:
    """At the user's line, before anything runs."""
    with pytest.raises(JobError, match=r"foreach_batch .*fn\(df, info\).*test_foreach_batch\.py:\d+"):
        make_job(wrong)


@pytest.mark.parametrize(
    "fn",
    [Ledger(), partial(lambda by, df, info: None, 3), lambda *every: None, print, max],
    ids=lambda fn: type(fn).__name__,
)
def test_whatever_takes_two_arguments_will_do(fn: Any) -> None:
    """Objects, partials, and functions without a signature; each has a line in `explain`."""
    graph = make_job(fn).graph()
    assert graph.sinks[0].sink.describe().startswith("function ")
    (promise,) = (promise for _, promise in guarantees(graph))
    assert promise.startswith("at least once: ")
    assert promise.endswith("; exactly once for functions that recognise info.app and info.batch")


def test_any_rows_arrive_as_they_were(tmp_path: Path, spark: Any) -> None:
    """The round trip as a law: batches of any rows, nulls and times of the whole range of datetimes included."""
    schema = pa.schema(
        [("k", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.float64()))]
    )
    times = st.integers(-2_000_000_000, 4_000_000_000)
    values = st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | times.map(lambda second: datetime.fromtimestamp(second, UTC)),
        st.none() | st.lists(st.floats(allow_nan=False)),
    )
    numbers = iter(range(10**6))

    @settings(max_examples=examples(10))
    @given(st.lists(values, min_size=1, max_size=5))
    def law(rows: list[tuple[Any, ...]]) -> None:
        returned: list[Any] = []
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        file = Staged(**stage_table(table, tmp_path, f"{next(numbers)}.parquet"))
        sink = ForeachBatch(lambda df, info: returned.append(df.toArrow()))
        sink.open(tmp_path, spark).publish(Publication(app="u/o", batch=0, files=[file], schema=schema))
        assert returned[0].cast(schema).to_pylist() == table.to_pylist()

    law()
