"""What every source promises the driver loop and the tasks (sources/base.py; SEMANTICS 9.1).

A source of your own: subclass `SourceContract`, give the fixture `feed`, and run it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from growing import Topic, TopicTask

from penstock.sources import FileReplay, MemorySource
from penstock.sources.base import HIDDEN, PARTITION, POSITION, Position, ReadLimit, SourceReader, Span
from penstock.sources.memory import MemoryReader

NO_LIMIT = ReadLimit()
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
Feed = Callable[[int], SourceReader]
"""Makes a reader over a source that holds so many rows, k counting from 0."""


def read(reader: SourceReader, span: Span, splits: int = 1) -> pa.Table:
    """Return the rows of a span, read in so many parts by a reader that was sent to tasks."""
    task = pickle.loads(pickle.dumps(reader.task_reader()))
    parts = [table for split in range(splits) for table in task.read(json.loads(json.dumps(span)), split, splits)]
    return pa.concat_tables(parts) if parts else reader.schema.empty_table()


def spans(reader: SourceReader, start: Position | None = None) -> list[tuple[Position | None, Position]]:
    """Return the ranges that batches read until nothing is new."""
    found = []
    while (end := reader.latest(start, NO_LIMIT)) != start and len(found) < 1000:
        found.append((start, dict(end)))
        start = dict(end)
    return found


class SourceContract:
    """The suite; subclasses say how a source comes to hold rows."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        """Return what makes a reader over so many rows."""
        raise AssertionError("a subclass gives this")

    def test_all_rows_are_read_once(self, feed: Feed) -> None:
        """The ranges of all batches together are the source."""
        reader = feed(23)
        tables = [read(reader, reader.span(start, end)) for start, end in spans(reader)]
        assert sorted(pa.concat_tables(tables)["k"].to_pylist()) == list(range(23))

    def test_rows_have_the_schema_and_the_hidden_columns(self, feed: Feed) -> None:
        """TaskReader.read: the schema's columns, then HIDDEN."""
        reader = feed(5)
        table = read(reader, reader.span(None, reader.latest(None, NO_LIMIT)))
        assert table.schema.names == [*reader.schema.names, *HIDDEN]
        assert table.select(reader.schema.names).schema.equals(reader.schema)
        assert (table.schema.field(PARTITION).type, table.schema.field(POSITION).type) == (pa.int32(), pa.int64())

    def test_the_same_span_gives_the_same_rows(self, feed: Feed) -> None:
        """SEMANTICS 9.1: in the same order, each time, and from a new reader of the same span."""
        reader = feed(9)
        span = reader.span(None, reader.latest(None, NO_LIMIT))
        reader.verify(span)
        assert read(reader, span).equals(read(reader, span))

    @pytest.mark.parametrize("splits", [1, 2, 3, 7, 50])
    def test_splits_partition_the_span_exactly(self, feed: Feed, splits: int) -> None:
        """Each row is in one split, also where there are more splits than rows."""
        reader = feed(11)
        for start, end in spans(reader):
            span = reader.span(start, end)
            assert read(reader, span, splits).equals(read(reader, span))

    def test_a_position_is_plain_json_and_means_the_same_after_a_restart(self, feed: Feed) -> None:
        """Positions and spans go through the log."""
        reader = feed(9)
        for start, end in spans(reader):
            assert json.loads(json.dumps(end)) == end
            back = json.loads(json.dumps(start))
            assert read(reader, reader.span(back, json.loads(json.dumps(end)))).equals(
                read(reader, reader.span(start, end))
            )

    def test_positions_order_the_rows_of_a_partition(self, feed: Feed) -> None:
        """SEMANTICS 1.6: strictly rising within a partition, and across batches."""
        reader = feed(23)
        seen: dict[int, int] = {}
        for start, end in spans(reader):
            table = read(reader, reader.span(start, end))
            for partition, position in zip(table[PARTITION].to_pylist(), table[POSITION].to_pylist(), strict=True):
                assert position > seen.get(partition, -1)
                seen[partition] = position

    def test_every_partition_has_a_name(self, feed: Feed) -> None:
        """PARTITION is an index into `partitions(span)`, and a name stays at its index."""
        reader = feed(9)
        for start, end in spans(reader):
            span = reader.span(start, end)
            names = reader.partitions(span)
            assert len(set(names)) == len(names)
            assert set(read(reader, span)[PARTITION].to_pylist()) <= set(range(len(names)))

    def test_rows_says_how_many_there_are(self, feed: Feed) -> None:
        """The batch must account for each (SEMANTICS 2.10)."""
        reader = feed(23)
        for start, end in spans(reader):
            span = reader.span(start, end)
            assert reader.rows(span) in (None, read(reader, span).num_rows)

    def test_latest_is_never_earlier_and_equal_when_nothing_is_new(self, feed: Feed) -> None:
        """SourceReader.latest: a range never goes back, and an empty one is told by equality."""
        reader = feed(7)
        start, end = spans(reader)[-1]
        assert reader.latest(end, NO_LIMIT) == end
        assert reader.latest(end, ReadLimit(rows=1)) == end
        assert (reader.rows(reader.span(start, end)) or 0) > 0

    def test_newest_is_the_end_of_what_batches_read(self, feed: Feed) -> None:
        """SEMANTICS 1.5: the end of a run, fixed in one question."""
        reader = feed(23)
        ends = [end for _, end in spans(reader)]
        assert reader.newest(None) == ends[-1]
        assert all(reader.newest(end) == ends[-1] for end in ends)

    def test_clamp_gives_the_earlier_of_two_positions(self, feed: Feed) -> None:
        """SEMANTICS 1.5: a run that has reached or passed its target is at its target."""
        reader = feed(23)
        ends = [end for _, end in spans(reader)]
        for place, position in enumerate(ends):
            for other, target in enumerate(ends):
                assert reader.clamp(position, target) == ends[min(place, other)]

    def test_backlog_counts_what_waits_in_each_partition(self, feed: Feed) -> None:
        """SEMANTICS 2.4: every partition there is, also one of which nothing waits."""
        reader = feed(23)
        assert sum(reader.backlog(None).values()) == 23
        for start, end in spans(reader):
            names = reader.partitions(reader.span(start, end))
            assert set(reader.backlog(end)) == set(names)
            behind = [reader.rows(reader.span(s, e)) for s, e in spans(reader, end)]
            assert sum(reader.backlog(end).values()) == sum(n or 0 for n in behind)

    def test_a_source_without_rows_ends_or_waits(self, feed: Feed) -> None:
        """No rows is a state like any other."""
        reader = feed(0)
        end = reader.latest(None, NO_LIMIT)
        span = reader.span(None, end)
        assert reader.rows(span) in (None, 0)
        assert read(reader, span).num_rows == 0
        assert reader.latest(end, NO_LIMIT) == end


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
            assert reader.rows(reader.span(None, reader.latest(None, ReadLimit(rows=rows)))) == read_rows


class TestFileReplayOfCsv(SourceContract):
    """FileReplay over CSV."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            path = tmp_path / "rows.csv"
            path.write_text("k,s\n" + "".join(f"{k},s{k}\n" for k in reversed(range(rows))))
            return FileReplay(path, order_by="k", rows_per_batch=4).open(None)

        return make


class TestMemorySource(SourceContract):
    """MemorySource fed in one chunk."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        kept: list[MemorySource] = []

        def make(rows: int) -> SourceReader:
            source = MemorySource("k long, s string")
            kept.append(source)
            source.feed([_row(k) for k in range(rows)])
            return MemoryReader(source, SCHEMA)

        return make


class TestPartitionedMemorySource(SourceContract):
    """MemorySource fed in chunks of two partitions."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        kept: list[MemorySource] = []

        def make(rows: int) -> SourceReader:
            source = MemorySource("k long, s string")
            kept.append(source)
            for first in range(0, rows, 5):
                chunk = [_row(k) for k in range(first, min(first + 5, rows))]
                source.feed([chunk[::2], chunk[1::2]])
            return MemoryReader(source, SCHEMA)

        return make


class TestTopic(SourceContract):
    """The source of the tests whose partitions grow, three rows of each a batch."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: TopicByNumber({"a": (rows + 1) // 2, "b": rows // 2}, a_batch=3)


class TopicByNumber(Topic):
    """A topic whose rows are numbered over both partitions."""

    schema = pa.schema([("k", pa.int64())])

    def task_reader(self) -> Any:
        """Return the reader that numbers."""
        return _Numbering()


class _Numbering(TopicTask):
    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows with k for n."""
        for table in TopicTask().read(span, split, splits):
            k = pc.add(pc.multiply(table["n"], 2), table[PARTITION].cast(pa.int64()))
            yield pa.table([k, *(table[name] for name in HIDDEN)], names=["k", *HIDDEN])


def _row(k: int) -> dict[str, Any]:
    return {"k": k, "s": f"s{k}"}
