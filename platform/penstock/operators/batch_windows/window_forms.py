"""Make something of all rows of a window at once: the rows themselves, lists of values, or values that are reduced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from penstock.operators.batch_windows.batch_sides import RowSide, ValueSide
from penstock.operators.batch_windows.key_reductions import KeyReduction
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import Grouping, group_rows
from penstock.operators.predicate_values import TablePredicate
from penstock.operators.protocol import HASHED, StepFacts
from penstock.state.keys import Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = [
    "PLACE",
    "GroupForm",
    "Made",
    "ReduceForm",
    "RowsForm",
    "RunningForm",
    "Whole",
    "WholeForm",
    "entry",
    "grouped",
    "of_keys",
    "values_of",
]

PLACE = "_place"
"""int64: the place of a row in the order of arrival, among those of its batch and partition."""


class Made(NamedTuple):
    """Rows that a window emits, without its bounds, and the hash of the key of each."""

    rows: pa.Table
    hashes: Ints


class Whole(NamedTuple):
    """A window: the rows of its batches, of which older ones stand first, and its bounds in microseconds."""

    rows: pa.Table
    start: int
    end: int


class Form(ABC):
    """The content of the batches of windows, and what becomes of it."""

    __slots__ = ()
    bounded: ClassVar[bool] = True
    """Whether what it makes gets the bounds of its window."""

    @property
    @abstractmethod
    def stored(self) -> pa.Schema:
        """Return the columns that rows of a batch have in the state, beside group and hash; keys first."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Return in words whose hashes are stored: their type, of which hashes depend, is that of no column."""
        return ()

    @property
    @abstractmethod
    def made(self) -> pa.Schema:
        """Return the columns of the output but for the bounds, which follow the first `leading` of them."""

    @property
    @abstractmethod
    def leading(self) -> int:
        """Return how many columns of the output stand before the bounds."""

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[Self]:
        """Yield the form for one batch; functions of the user's are open inside the block."""
        yield self

    @abstractmethod
    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of a batch as they are stored, with their hashes as `_hash`."""


class WholeForm(Form):
    """Windows of which each is made from all of its batches."""

    __slots__ = ()

    @abstractmethod
    def of(self, window: Whole) -> Made:
        """Return what a window emits."""


class RunningForm(Form):
    """Windows of which each follows from the one before, by what enters and leaves."""

    __slots__ = ()

    @property
    @abstractmethod
    def stays(self) -> bool:
        """Return whether a key may stay when its rows have left."""

    @abstractmethod
    def moved(self, running: pa.Table, left: pa.Table, entered: pa.Table) -> tuple[pa.Table, Made]:
        """Return the values of a window from those of the one before, and what it emits.

        All have `_hash` and the stored columns; of batches older ones stand first.
        """

    def check(self, held: pa.Table, left: pa.Table, whole: Callable[[], pa.Table]) -> None:
        """Raise an error where values of a window are not those of its rows; called in debug mode.

        `held` are the values, `left` the rows of batches that have left, and `whole` returns all of the window.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsForm(WholeForm):
    """All rows, in order of arrival."""

    side: RowSide

    @property
    def stored(self) -> pa.Schema:
        """Return the user's columns, and the place."""
        return pa.schema([*self.side.visible, (PLACE, pa.int64())])

    @property
    def made(self) -> pa.Schema:
        """Return the user's columns."""
        return self.side.visible

    @property
    def leading(self) -> int:
        """Return that the bounds follow all of them."""
        return len(self.side.visible)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of a batch in order of arrival."""
        rows = self.side.received(tables)
        return entry(rows[HASHED], rows.select(self.side.visible.names), placed=True)

    def of(self, window: Whole) -> Made:
        """Return the rows of a window in order of arrival; rows of one place, of different keys, by their hash."""
        order = np.lexsort([integers(window.rows, name) for name in (HASH, PLACE, GROUP)])
        rows = window.rows.take(pa.array(order))
        return Made(rows.select(self.side.visible.names), integers(rows, HASH))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForm(WholeForm):
    """The values of each key as a list, in order of arrival."""

    side: ValueSide

    @property
    def stored(self) -> pa.Schema:
        """Return keys, value and place."""
        return pa.schema([*self.side.keys, *self.side.visible, (PLACE, pa.int64())])

    @property
    def made(self) -> pa.Schema:
        """Return keys and list."""
        (value,) = self.side.visible
        return pa.schema([*self.side.keys, (value.name, pa.list_(value.type))])

    @property
    def leading(self) -> int:
        """Return that the bounds follow the keys."""
        return len(self.side.keys)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the values of a batch in order of arrival."""
        return values_of(self.side, tables, placed=True)

    def of(self, window: Whole) -> Made:
        """Return a list for each key, keys in order of their hashes."""
        rows = window.rows
        grouping = grouped(rows, self.side.keys)
        order = np.lexsort([integers(rows, PLACE), integers(rows, GROUP), grouping.ids])
        values = column_array(rows, self.side.column).take(pa.array(order))
        ends = np.searchsorted(grouping.ids[order], np.arange(grouping.groups + 1))
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)
        return of_keys(rows, self.side.keys, grouping, lists, self.made)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceForm(WholeForm):
    """One value for each key, to which a function of two reduces those of its rows."""

    side: ValueSide
    reduction: KeyReduction
    keep: TablePredicate | None = None

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[Self]:
        """Yield the same, with the function open."""
        with self.reduction.opened(facts):
            yield self

    @property
    def stored(self) -> pa.Schema:
        """Return keys and value: one row for each key of a batch."""
        return pa.schema([*self.side.keys, *self.side.visible])

    @property
    def made(self) -> pa.Schema:
        """Return keys and value."""
        return self.stored

    @property
    def leading(self) -> int:
        """Return that the bounds follow the keys."""
        return len(self.side.keys)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the values of a batch, reduced by key in order of arrival."""
        rows = values_of(self.side, tables, placed=False)
        made = self._reduced(rows, np.arange(rows.num_rows))
        return entry(made.hashes, made.rows)

    def of(self, window: Whole) -> Made:
        """Return the reduced values of a window, oldest batch first, that are kept."""
        made = self._reduced(window.rows, np.argsort(integers(window.rows, GROUP), kind="stable"))
        if self.keep is None:
            return made
        kept = self.keep.holds(made.rows)
        return Made(made.rows.filter(pa.array(kept)), made.hashes[kept])

    def _reduced(self, rows: pa.Table, order: Ints) -> Made:
        rows = rows.take(pa.array(order))
        grouping = grouped(rows, self.side.keys)
        heads = rows.select(self.side.keys.names).take(pa.array(grouping.first))
        values = self.reduction.reduced(column_array(rows, self.side.column), grouping, heads)
        return of_keys(rows, self.side.keys, grouping, values, self.made)


def entry(hashes: Ints | pa.ChunkedArray, rows: pa.Table, *, placed: bool = False) -> pa.Table:
    """Return rows with their hashes, and with `placed` their places: those of the table."""
    if placed:
        rows = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    hashed = pa.array(hashes, pa.int64()) if isinstance(hashes, np.ndarray) else hashes
    return rows.add_column(0, pa.field(HASH, pa.int64()), hashed)


def grouped(rows: pa.Table, keys: pa.Schema) -> Grouping:
    """Number the keys of rows that have their hashes, in order of these."""
    return group_rows([column_array(rows, name) for name in keys.names], integers(rows, HASH))


def of_keys(rows: pa.Table, keys: pa.Schema, grouping: Grouping, values: pa.Array, schema: pa.Schema) -> Made:
    """Return one row for each key with its value."""
    first = pa.array(grouping.first)
    columns = [column_array(rows, name).take(first) for name in keys.names]
    return Made(pa.table([*columns, values], schema=schema), integers(rows, HASH)[grouping.first])


def values_of(side: ValueSide, tables: Sequence[pa.Table], *, placed: bool) -> pa.Table:
    """Return the keys and values of a batch in order of arrival, with their hashes, and with `placed` their places."""
    rows = side.received(tables)
    keys = side.key_table(rows)
    values = pa.table([*keys.columns, rows[side.column]], schema=pa.schema([*side.keys, *side.visible]))
    return entry(rows[HASHED], values, placed=placed)
