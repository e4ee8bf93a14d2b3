"""The contract of sources as tests (sources/base.py; SEMANTICS 1.5, 8.2, 9.1), for pytest and hypothesis.

A source of your own: subclass `SourceContract` in its test module, give the fixture `feed`, and `grow` if it can.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.backlog import Ends, ReadLimit, clamp, divide
from penstock.sources.base import HIDDEN, PARTITION, POSITION, FrameReader, Position, SourceReader, Span, SplitReader
from penstock.testing.environment import session_of_tests
from penstock.testing.examples import examples

__all__ = ["Feed", "Grow", "SourceContract", "count", "end_of_batch", "newest", "read", "spans"]

Feed = Callable[[int], SourceReader]
"""Makes a reader over a source that holds so many rows, k counting from 0."""
Grow = Callable[[SourceReader, int], None]
"""Adds rows to the source of a reader, with the next numbers as k; does nothing where a source is what it is."""


def end_of_batch(
    reader: SourceReader, after: Position | None, limit: ReadLimit | None = None, target: Ends | None = None
) -> Position:
    """Return how far the batch after a position reads."""
    limit = limit or ReadLimit()
    backlog = reader.backlog(after)
    weighed = backlog if limit.bytes is None else reader.weighed(backlog)
    within = weighed if target is None else clamp(weighed, target)
    return dict(reader.position(after, divide(within, limit)))


def newest(reader: SourceReader, after: Position | None = None) -> Ends:
    """Return how far each partition can be read now, as where a run fixes its end."""
    return {name: waiting.latest for name, waiting in reader.backlog(after).items()}


def read(reader: SourceReader, span: Span, splits: int = 1) -> pa.Table:
    """Return the rows of a span as a task or Spark gets them: the span went through the log, the reader to tasks."""
    stored = json.loads(json.dumps(span))
    if isinstance(reader, FrameReader):
        return (
            reader.frame(stored, session_of_tests())
            .toArrow()
            .sort_by([(PARTITION, "ascending"), (POSITION, "ascending")])
        )
    assert isinstance(reader, SplitReader)
    task = pickle.loads(pickle.dumps(reader.task_reader()))
    parts = [table for split in range(splits) for table in task.read(stored, split, splits)]
    return pa.concat_tables(parts) if parts else reader.schema.empty_table()


def spans(
    reader: SourceReader, start: Position | None = None, limit: int | None = None, target: Ends | None = None
) -> list[tuple[Position | None, Position]]:
    """Return the ranges that batches read until nothing is new."""
    ranges = list[tuple[Position | None, Position]]()
    while (end := end_of_batch(reader, start, ReadLimit(rows=limit), target)) != start:
        ranges.append((start, dict(end)))
        start = dict(end)
        assert len(ranges) < 1000, "there is no end"
    return ranges


def count(reader: SourceReader, start: Position | None, end: Position) -> int:
    """Return how many rows a batch reads."""
    return int(read(reader, reader.span(start, end)).num_rows)


class SourceContract:
    """The suite; subclasses say how a source comes to hold rows."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        """Return what makes a reader over so many rows."""
        raise AssertionError("a subclass gives this")

    @pytest.fixture
    def grow(self) -> Grow:
        """Return what adds rows; by default a source stays as it is."""
        return lambda reader, rows: None

    def test_all_rows_are_read_once(self, feed: Feed) -> None:
        """The ranges of all batches together are the source."""
        reader = feed(23)
        tables = [read(reader, reader.span(start, end)) for start, end in spans(reader)]
        assert sorted(pa.concat_tables(tables)["k"].to_pylist()) == list(range(23))

    def test_rows_have_the_schema_and_the_hidden_columns(self, feed: Feed) -> None:
        """TaskReader.read: the schema's columns, then HIDDEN."""
        reader = feed(5)
        table = read(reader, reader.span(None, end_of_batch(reader, None)))
        assert table.schema.names == [*reader.schema.names, *HIDDEN]
        assert table.select(reader.schema.names).schema.equals(reader.schema)
        assert (table.schema.field(PARTITION).type, table.schema.field(POSITION).type) == (pa.int32(), pa.int64())

    def test_the_same_span_gives_the_same_rows(self, feed: Feed, grow: Grow) -> None:
        """SEMANTICS 9.1: in the same order, each time, also when the source has grown."""
        reader = feed(9)
        span = reader.span(None, end_of_batch(reader, None))
        reader.verify(span)
        before = read(reader, span)
        assert read(reader, span).equals(before)
        grow(reader, 5)
        reader.verify(span)
        assert read(reader, span).equals(before)

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
        for start, end in spans(reader, limit=3):
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
        """PARTITION is an index into `partitions(span)`, and each name is one of the backlog's."""
        reader = feed(9)
        for start, end in spans(reader):
            span = reader.span(start, end)
            names = reader.partitions(span)
            assert len(set(names)) == len(names)
            assert set(names) <= set(reader.backlog(end))
            assert set(read(reader, span)[PARTITION].to_pylist()) <= set(range(len(names)))

    def test_rows_says_how_many_there_are(self, feed: Feed) -> None:
        """The batch must account for each (SEMANTICS 2.10)."""
        reader = feed(23)
        for start, end in spans(reader):
            span = reader.span(start, end)
            assert reader.rows(span) in (None, read(reader, span).num_rows)

    def test_a_position_is_equal_when_nothing_is_new(self, feed: Feed) -> None:
        """SourceReader.position: an empty range is one whose ends are equal, whatever the limit."""
        reader = feed(7)
        start, end = spans(reader)[-1]
        assert end_of_batch(reader, end) == end
        assert end_of_batch(reader, end, ReadLimit(rows=1)) == end
        assert count(reader, start, end) > 0

    def test_a_backlog_is_in_order_and_begins_where_the_position_stands(self, feed: Feed) -> None:
        """Waiting: next <= batch_end <= latest, and the next backlog begins at the end of the batch before."""
        reader = feed(23)
        ends: dict[str, int] = {}
        for start, end in [*spans(reader, limit=5), (None, None)][:-1]:
            backlog = reader.backlog(start)
            for name, waiting in backlog.items():
                assert waiting.next == ends.get(name, waiting.next)
                assert waiting.next <= waiting.batch_end <= waiting.latest
            ends = {name: waiting.next for name, waiting in reader.backlog(end).items()}
            assert all(ends[name] >= waiting.next for name, waiting in backlog.items())

    def test_the_files_of_a_backlog_follow_one_another_up_to_the_batch(self, feed: Feed) -> None:
        """Waiting.files: none is empty of places, and the last one ends where the batch does."""
        reader = feed(23)
        for start in [None, *(end for _, end in spans(reader, limit=5))]:
            for waiting in reader.backlog(start).values():
                bounds = [waiting.next, *(file.end for file in waiting.files)]
                assert bounds == sorted(set(bounds))
                assert bounds[-1] == waiting.batch_end or not waiting.files
                assert all(file.bytes >= 0 for file in waiting.files)

    def test_a_backlog_counts_what_waits(self, feed: Feed) -> None:
        """SEMANTICS 2.4: in every partition there is, also one of which nothing waits."""
        reader = feed(23)
        assert sum(waiting.rows for waiting in reader.backlog(None).values()) == 23
        for start, end in spans(reader):
            backlog = reader.backlog(end)
            assert set(backlog) == set(reader.partitions(reader.span(start, end)))
            behind = [count(reader, s, e) for s, e in spans(reader, end)]
            assert sum(waiting.rows for waiting in backlog.values()) == sum(behind)

    def test_to_ask_changes_nothing(self, feed: Feed) -> None:
        """Another driver may have the source open at the same time, and a batch is planned again after a crash."""
        reader = feed(9)
        start, end = spans(reader, limit=3)[0]
        for position in (None, end, start):
            reader.backlog(position)
            reader.ended(position)
        reader.ack(end)
        assert end_of_batch(reader, None, ReadLimit(rows=3)) == end
        assert count(reader, None, end) == count(reader, start, end)

    def test_a_source_without_rows_ends_or_waits(self, feed: Feed) -> None:
        """No rows is a state like any other."""
        reader = feed(0)
        end = end_of_batch(reader, None)
        span = reader.span(None, end)
        assert reader.rows(span) in (None, 0)
        assert read(reader, span).num_rows == 0
        assert end_of_batch(reader, end) == end

    # --- laws --------------------------------------------------------------------------------

    def test_any_limits_read_all_rows_once_and_none_too_many(self, feed: Feed) -> None:
        """SEMANTICS 8.2, 8.5 as a law: no batch has more rows than its limit, but one of each partition."""

        @settings(max_examples=examples(8), deadline=None)
        @given(st.integers(0, 30), st.lists(st.integers(1, 9), min_size=1, max_size=5))
        def law(rows: int, limits: list[int]) -> None:
            reader, start, keys = feed(rows), None, []
            for turn in range(100):
                limit = limits[turn % len(limits)]
                lagging = sum(waiting.rows > 0 for waiting in reader.backlog(start).values())
                end = end_of_batch(reader, start, ReadLimit(rows=limit))
                if end == start:
                    break
                table = read(reader, reader.span(start, end), splits=2)
                assert table.num_rows <= max(limit, lagging)
                keys += table["k"].to_pylist()
                start = json.loads(json.dumps(end))
            assert sorted(keys) == list(range(rows))

        law()

    def test_a_bounded_run_reads_what_was_there_however_the_source_grows(self, feed: Feed, grow: Grow) -> None:
        """SEMANTICS 1.5 as a law: the target is fixed once and stays, and the run ends there, and not before."""

        @settings(max_examples=examples(8), deadline=None)
        @given(st.integers(0, 20), st.integers(0, 4), st.none() | st.integers(1, 9))
        def law(rows: int, more: int, limit: int | None) -> None:
            reader = feed(rows)
            target, start, keys = newest(reader), None, []
            for _ in range(100):
                end = end_of_batch(reader, start, ReadLimit(rows=limit), target)
                if end == start:
                    break
                keys += read(reader, reader.span(start, end))["k"].to_pylist()
                start = end
                grow(reader, more)
            assert sorted(keys) == list(range(rows))
            assert {name: waiting.next for name, waiting in reader.backlog(start).items() if name in target} == target

        law()
