"""What every source promises the driver loop and the tasks (sources/base.py; SEMANTICS 1.5, 9.1).

The suite is `SourceContract` of penstock.testing; here every source of Penstock runs it, and one that Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fake_engine import FakeEngine, Witness, World, WorldReader, make_driver, plain_job, run_to_end
from folder_files import Numbers, Rows, lines_of, parquet_of, reader_of
from growing import FramedTopic, Topic, TopicTask, rows_of
from source_reading import end_of_batch, newest

from penstock.checkpoint.log.entries import Commit
from penstock.sources import FileReplay, MemorySource, files
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import (
    HIDDEN,
    PARTITION,
    Position,
    SourceReader,
    Span,
    TaskReader,
)
from penstock.sources.memory import MemoryReader
from penstock.testing.source_contract import Feed, Grow, SourceContract, count, spans

pytestmark = pytest.mark.sample(12, of="the contract of sources")

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


class TestFileReplayOfParquet(SourceContract):
    """FileReplay over Parquet, four rows a batch."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            path = tmp_path / "rows.parquet"
            pq.write_table(pa.table([range(rows)[::-1], [f"s{k}" for k in range(rows)]], schema=SCHEMA), path)
            return FileReplay(path, order_by="k", rows_per_batch=4).open(None)

        return make

    def test_it_is_bounded(self, feed: Feed) -> None:
        """SEMANTICS 2.1: it ends behind its last row, and not before."""
        reader = feed(9)
        assert [reader.ended(end) for _, end in spans(reader)] == [False, False, True]
        assert not reader.ended(None)

    def test_a_limit_bounds_a_batch(self, feed: Feed) -> None:
        """SEMANTICS 8.5: the smaller of the limit and rows_per_batch."""
        reader = feed(9)
        for rows, read_rows in ((1, 1), (3, 3), (4, 4), (100, 4)):
            assert count(reader, None, end_of_batch(reader, None, ReadLimit(rows=rows))) == read_rows


class TestFileReplayOfCsv(SourceContract):
    """FileReplay over CSV."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            path = tmp_path / "rows.csv"
            path.write_text("k,s\n" + "".join(f"{k},s{k}\n" for k in reversed(range(rows))))
            return FileReplay(path, order_by="k", rows_per_batch=4).open(None)

        return make


def memory_reader(rows: int, chunk: int, partitions: int) -> MemoryReader:
    """Return the reader of a source that was fed so many rows in chunks, dealt to partitions."""
    source = MemorySource("k long, s string")
    reader = MemoryReader(source, SCHEMA)
    add_rows(reader, rows, chunk, partitions)
    return reader


def add_rows(reader: SourceReader, rows: int, chunk: int, partitions: int) -> None:
    """Feed more rows; k goes on."""
    assert isinstance(reader, MemoryReader)
    known = sum(len(part) for fed in reader.source.chunks for part in fed)
    for first in range(known, known + rows, chunk):
        dealt = [_row(k) for k in range(first, min(first + chunk, known + rows))]
        reader.source.feed([dealt[part::partitions] for part in range(partitions)])


class TestMemorySource(SourceContract):
    """MemorySource fed in one chunk."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: memory_reader(rows, chunk=100, partitions=1)

    @pytest.fixture
    def grow(self) -> Grow:
        return lambda reader, rows: add_rows(reader, rows, chunk=100, partitions=1)

    def test_a_position_of_whole_chunks_is_as_ever(self, feed: Feed) -> None:
        """What a limit cuts a chunk at stands in the position only while it does."""
        reader = feed(5)
        assert isinstance(reader, MemoryReader)
        of = {"object": reader.source.id, "watermark": None}
        cut = end_of_batch(reader, None, ReadLimit(rows=2))
        assert cut == {**of, "chunks": 0, "rows": {"0": 2}, "taken": {"0": 2}}
        assert end_of_batch(reader, cut) == {**of, "chunks": 1, "rows": {"0": 5}} == end_of_batch(reader, None)

    def test_an_empty_chunk_is_something_new(self, feed: Feed) -> None:
        """The test kit makes a batch without rows of it."""
        reader = feed(5)
        assert isinstance(reader, MemoryReader)
        end = end_of_batch(reader, None)
        reader.source.feed([])
        assert end_of_batch(reader, end) == {**end, "chunks": 2}


class TestPartitionedMemorySource(SourceContract):
    """MemorySource fed in chunks of two partitions."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: memory_reader(rows, chunk=5, partitions=2)

    @pytest.fixture
    def grow(self) -> Grow:
        return lambda reader, rows: add_rows(reader, rows, chunk=5, partitions=2)


class TestTopic(SourceContract):
    """The source of the tests whose partitions grow, three rows of each a batch."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: TopicByNumber({"a": (rows + 1) // 2, "b": rows // 2}, a_batch=3)

    @pytest.fixture
    def grow(self) -> Grow:
        return add_to_topic

    def test_a_new_partition_begins_at_its_earliest(self, feed: Feed) -> None:
        """SourceReader.backlog: positions grow; a bounded run that was fixed before leaves it out."""
        reader = feed(4)
        assert isinstance(reader, Topic)
        end, target = end_of_batch(reader, None), newest(reader)
        reader.held["c"] = 2
        assert (reader.backlog(end)["c"].next, reader.backlog(end)["c"].rows) == (0, 2)
        assert end_of_batch(reader, end, target=target) == end
        assert end_of_batch(reader, end) == {**end, "c": 2}

    def test_a_partition_that_is_gone_is_in_no_backlog(self, feed: Feed) -> None:
        """SEMANTICS 2.4: so the driver learns it."""
        reader = feed(4)
        assert isinstance(reader, Topic)
        end = end_of_batch(reader, None)
        del reader.held["b"]
        assert set(reader.backlog(end)) == {"a"}


class TestFilesOfLines(SourceContract):
    """A folder of files of one line each, four a batch."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            for path in tmp_path.rglob("*.txt"):
                path.unlink()
            self.folder, self.written = tmp_path, 0
            self.add(rows)
            return reader_of(tmp_path, Numbers(), at_most=files(4))

        return make

    @pytest.fixture
    def grow(self) -> Grow:
        return lambda reader, rows: self.add(rows)

    def add(self, rows: int) -> None:
        """Write more files, k going on."""
        for k in range(self.written, self.written + rows):
            lines_of(self.folder / f"{k % 3}/{k}.txt", f"{k:04}", at=k // 2)
        self.written += rows


class TestFilesOfParquet(SourceContract):
    """A folder of Parquet files of one row each."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            for path in tmp_path.rglob("*.parquet"):
                path.unlink()
            for k in range(rows):
                parquet_of(tmp_path / f"{k}.parquet", pa.table({"k": [k]}), at=k)
            return reader_of(tmp_path, Rows())

        return make


def add_to_topic(reader: SourceReader, rows: int) -> None:
    """Add rows to the end of both partitions."""
    assert isinstance(reader, Topic | FramedTopic)
    reader.held = {name: n + rows for name, n in reader.held.items()}


@pytest.mark.spark
class TestFramedTopic(SourceContract):
    """The same partitions where Spark reads them, a frame a batch."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: FramedByNumber({"a": (rows + 1) // 2, "b": rows // 2}, a_batch=3)

    @pytest.fixture
    def grow(self) -> Grow:
        return add_to_topic


class TopicByNumber(Topic):
    """A topic whose rows are numbered over both partitions."""

    schema = pa.schema([("k", pa.int64())])

    def task_reader(self) -> TaskReader:
        """Return the reader that numbers."""
        return _Numbering()


class FramedByNumber(FramedTopic):
    """A topic whose rows are numbered over both partitions, as frames."""

    schema = pa.schema([("k", pa.int64())])

    def frame(self, span: Span, spark: Any) -> Any:
        """Return the rows with k for n."""
        return super().frame(span, spark).selectExpr(f"n * 2 + {PARTITION} AS k", *HIDDEN)


class _Numbering(TopicTask):
    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows with k for n."""
        for table in rows_of(span) if split == 0 else ():
            k = pc.add(pc.multiply(table["n"], 2), table[PARTITION].cast(pa.int64()))
            yield pa.table([k, *(table[name] for name in HIDDEN)], names=["k", *HIDDEN])


def _row(k: int) -> dict[str, Any]:
    return {"k": k, "s": f"s{k}"}


# --- what the driver does with a source ------------------------------------------------------


class Acked(WorldReader):
    """A reader that compares what is acknowledged with the log and the tables."""

    def __init__(self, world: World, store: Witness, acked: list[int]) -> None:
        super().__init__(world)
        self.store, self.acked = store, acked

    def ack(self, position: Position) -> None:
        """Find the position committed, and its rows shown."""
        commits = [entry for entry in self.store.entries() if isinstance(entry, Commit)]
        assert position == commits[-1].sources["numbers"].position
        assert len(self.world.rows("raw")) == len(self.world.rows("copy")) == position["at"]
        self.acked.append(int(position["at"]))


class AckingEngine(FakeEngine):
    """An engine over such a reader."""

    store: Witness
    acked: list[int]

    def source(self, name: str) -> WorldReader:
        """Return the reader."""
        return Acked(self.world, self.store, self.acked)


@pytest.mark.parametrize("stage", [None, "CommitBatch", "PublishSinks", "AckSources"])
def test_acks_rise_and_come_after_commit_and_sinks(stage: str | None) -> None:
    """SourceReader.ack: what a crash has left out the next start makes up for; none is too early or goes back."""
    world, store, acked = World(times=[float(n) for n in range(7)], batch_rows=2), Witness(), list[int]()
    for name in ("a", "b"):
        engine = AckingEngine(world, plain_job(), name)
        engine.store, engine.acked = store, acked
        driver = make_driver(world, store, name, graph=plain_job(), engine=engine)
        if name == "b":
            run_to_end(driver)
            break
        for hook in driver.run():
            if (hook.stage, hook.when, hook.batch) == (stage, "after", 1):
                break
    again = {None: 7, "AckSources": 4}.get(stage)  # the start cannot know that it was acknowledged
    assert acked == sorted([2, 4, 6, 7] if again is None else [2, 4, 6, 7, again])
