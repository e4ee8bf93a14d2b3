"""Describe rows of a file, which of them a split reads, and what a file means that has no rows."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import ColumnsChanged, PenstockError
from penstock.graph.policies import OnMissingColumn, OnNewColumn

__all__ = ["ColumnRules", "Part", "Share", "Unreadable", "unreadable"]


class Unreadable(Exception):
    """A file, or the rest of it, cannot be split into rows; `row` is the number of the first that is lost, from 0."""

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.row = reason, row


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a file, in their order.

    Attributes:
        rows: The columns of the schema; all null for a bad record.
        numbers: The number of each in the file, from 0 (int64), rising.
        errors: string, what is wrong with a bad record, null for the others; None where none is.
        raw: string, the text of a bad record, null for the others; None where none is.
    """

    rows: pa.Table
    numbers: np.ndarray
    errors: pa.Array | None = None
    raw: pa.Array | None = None
    is_unreadable: bool = False
    """Whether it stands for the rest of a file that cannot be read."""


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of a file one of several splits reads: what lies at its bytes, in the order of the batch.

    `start` is where the file begins in the bytes of all files, `length` its own bytes, `total` those of all.
    """

    start: int
    length: int
    total: int
    split: int
    splits: int

    def has(self, numerator: int, denominator: int) -> bool:
        """Return whether the split reads what lies at this fraction of the file; no other split does."""
        at = self.start * denominator + self.length * numerator
        return at * self.splits // (self.total * denominator) == self.split

    @property
    def has_whole(self) -> bool:
        """Whether the split reads a file that cannot be divided: its middle is there."""
        return self.has(1, 2)

    @property
    def has_any(self) -> bool:
        """Whether something of the file may be for this split."""
        first = self.start * self.splits // self.total
        return first <= self.split <= (self.start + self.length) * self.splits // self.total


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """What becomes of a file, or a line with names of its own, whose columns are not those of the source."""

    on_new: OnNewColumn
    on_missing: OnMissingColumn

    @property
    def are_lenient(self) -> bool:
        """Whether any columns will do."""
        return self.on_new is OnNewColumn.IGNORE and self.on_missing is OnMissingColumn.NULLS

    def judged(self, names: Sequence[str], schema: pa.Schema) -> list[str]:
        """Return the columns of the schema that a file has; raises ColumnsChanged, or Unreadable by policy."""
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise Unreadable(f"column {twice!r} is there twice")
        if (problem := self.judge(schema)(names)) is not None:
            raise Unreadable(problem)
        return [name for name in schema.names if name in names]

    def judge(self, schema: pa.Schema) -> Callable[[Collection[str]], str | None]:
        """Return what says of names why they are for quarantine, None where they are not; it raises ColumnsChanged."""
        known = dict.fromkeys(schema.names)  # a schema makes a list of its names each time

        def problem(names: Collection[str]) -> str | None:
            problems = []
            if self.on_new is not OnNewColumn.IGNORE:  # a name may be empty
                new = [
                    (f"column {name!r} is new", self.on_new is OnNewColumn.FAIL) for name in names if name not in known
                ]
                problems += new[:1]
            if self.on_missing is not OnMissingColumn.NULLS:
                fails = self.on_missing is OnMissingColumn.FAIL
                problems += [(f"column {name!r} is missing", fails) for name in known if name not in names][:1]
            for what, fails in problems:
                if fails:
                    raise ColumnsChanged(what)
            return problems[0][0] if problems else None

        return problem


@contextmanager
def unreadable(row: Callable[[], int]) -> Iterator[None]:
    """Raise Unreadable, with a row, for what Arrow says of bytes; errors of the source have names and pass."""
    try:
        yield
    except Unreadable as why:
        raise Unreadable(why.reason, max(why.row, row())) from why
    except PenstockError:
        raise
    except UnicodeDecodeError as why:
        raise Unreadable(f"no UTF-8: {why.reason}", row()) from why
    except (pa.ArrowException, OSError, EOFError, KeyError, csv.Error) as why:
        raise Unreadable(str(why).splitlines()[0], row()) from why
