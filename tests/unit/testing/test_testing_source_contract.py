"""The suite of sources finds a source that breaks the contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from test_own_source import Numbers, NumbersInTask, NumbersReader

from penstock.sources.backlog import Waiting, WaitingFile
from penstock.sources.base import Position, Span, TaskReader
from penstock.testing.source_contract import Feed, SourceContract


class Repeating(NumbersReader):
    """A reader whose tasks each read all rows."""

    def task_reader(self) -> TaskReader:
        return RepeatingInTask()


class RepeatingInTask(NumbersInTask):
    """Read everything in each split."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        yield from super().read(span, 0, 1)


class Miscounting(NumbersReader):
    """A reader that says one row too many."""

    def rows(self, span: Span) -> int | None:
        return 1 + int(span["to"] - span["from"])


class EndingEarly(NumbersReader):
    """A reader that says of its one file that it ends before the batch."""

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        backlog = super().backlog(after)
        return {name: replace(at, files=[WaitingFile(at.next + 1, 8)]) for name, at in backlog.items()}


def feed_of(kind: type[NumbersReader]) -> Feed:
    """Return what makes a reader of so many numbers."""
    return lambda rows: kind(Numbers(rows))


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        (Repeating, "test_splits_partition_the_span_exactly", (3,)),
        (Miscounting, "test_rows_says_how_many_there_are", ()),
        (EndingEarly, "test_the_files_of_a_backlog_follow_one_another_up_to_the_batch", ()),
    ],
)
def test_a_source_that_breaks_the_contract_fails(kind: type[NumbersReader], name: str, more: tuple[int, ...]) -> None:
    """By the test of what it breaks, which one that keeps it passes."""
    suite = SourceContract()
    with pytest.raises(AssertionError):
        getattr(suite, name)(feed_of(kind), *more)
    getattr(suite, name)(feed_of(NumbersReader), *more)
