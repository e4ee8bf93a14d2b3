"""A source that is written by the outline in sources/base.py alone keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.sources.base import (
    Ends,
    Position,
    Source,
    SourceReader,
    Span,
    SplitReader,
    TaskReader,
    Waiting,
    with_hidden,
)
from penstock.testing.source_contract import Feed, Grow, SourceContract


class Numbers(Source):
    """Count up to `held`, which grows."""

    def __init__(self, held: int) -> None:
        self.held = held

    def open(self, spark: Any) -> NumbersReader:
        """Return the reader."""
        return NumbersReader(self)


class NumbersReader(SplitReader):
    """Follow the one partition."""

    schema = pa.schema([("k", pa.int64())])
    splits = 3

    def __init__(self, source: Numbers) -> None:
        self.source = source

    def backlog(self, after: Position | None) -> Mapping[str, Waiting]:
        """Return the numbers after a position."""
        return {"0": Waiting.of_rows(after["at"] if after else 0, self.source.held)}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return how far was counted."""
        return {"at": ends["0"]}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return from where to where."""
        return {"from": start["at"] if start else 0, "to": end["at"]}

    def verify(self, span: Span) -> None:
        """Find numbers as they were."""

    def ended(self, position: Position | None) -> bool:
        """Return False: there is always another number."""
        return False

    def rows(self, span: Span) -> int | None:
        """Return how many numbers there are."""
        return int(span["to"] - span["from"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return ("0",)

    def task_reader(self) -> TaskReader:
        """Return what counts inside the tasks."""
        return NumbersInTask()


class NumbersInTask(TaskReader):
    """Count from one number to another."""

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield a share of the numbers."""
        first, rows = span["from"], span["to"] - span["from"]
        numbers = pa.array(range(first + rows * split // splits, first + rows * (split + 1) // splits), pa.int64())
        yield with_hidden(pa.table({"k": numbers}), 0, numbers)


class TestNumbers(SourceContract):
    """The suite, as a test module of a new source has it."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        return lambda rows: Numbers(rows).open(None)

    @pytest.fixture
    def grow(self) -> Grow:
        def add(reader: SourceReader, rows: int) -> None:
            assert isinstance(reader, NumbersReader)
            reader.source.held += rows

        return add


def test_a_reader_without_one_of_the_methods_cannot_be_made() -> None:
    """A misspelt method is an error where the source is opened, and not an ability less."""
    lacking = type("Lacking", (SplitReader,), {})
    with pytest.raises(TypeError, match="task_reader"):
        lacking()


def test_what_a_source_does_not_say_has_a_default() -> None:
    """Live, open at its end, and with nobody who wants to know how far it was read."""
    source = Numbers(1)
    assert (source.live, source.on_end.value) == (True, "keep_open")
    assert source.open(None).ack({"at": 1}) is None  # type: ignore[func-returns-value]
