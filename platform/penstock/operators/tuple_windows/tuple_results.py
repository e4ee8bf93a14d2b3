"""Make the output of evaluated windows: aggregates, or what a function returns for each (SEMANTICS 5.2)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates import AggregatePlan
from penstock.operators.aggregates.cells import Rows
from penstock.operators.columns import column_array, integers
from penstock.operators.functions.python_values import key_values
from penstock.operators.functions.window_calls import WindowCalls, WindowView
from penstock.operators.protocol import StepFacts
from penstock.operators.tuple_windows.evaluated import Windows
from penstock.operators.tuple_windows.tuple_layout import ARRIVED, AT, booleans, micros
from penstock.operators.windows.window_rows import WINDOW_END, WINDOW_START
from penstock.state.key_state import as_datetime
from penstock.state.keys import Ints

__all__ = ["ENTER", "HEARD", "UNSEEN", "AggregateMaker", "FunctionMaker", "Made", "Maker"]

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of the output, and for each the place of its window among those that were given."""

    rows: pa.Table
    windows: Ints


class Maker(Protocol):
    """What becomes of evaluated windows."""

    @property
    def hears_expired(self) -> bool:
        """Return whether the rows that leave are wanted."""

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the output."""

    def opened(self, step: str, facts: StepFacts) -> AbstractContextManager[None]:
        """Return what opens a function for the windows of a batch, and closes it."""

    def make(self, windows: Windows, ends: Ints, rows: pa.Table, keys: pa.Table) -> Made:
        """Return the output of windows: `rows` have their members, and `keys` a row for each key by number."""

    def forget(self, keys: pa.Table, starts: Ints, rows: pa.Table) -> None:
        """Take rows of keys that leave in no round; `starts` is where those of each key begin, and where all end."""


@dataclass(slots=True)
class AggregateMaker:
    """Aggregates of each window; `inputs` are for each input of the plan the column of it."""

    keys: pa.Schema
    plan: AggregatePlan
    inputs: dict[str, str]
    length: int | None

    @property
    def hears_expired(self) -> bool:
        """Return that an aggregate is of the rows that are there."""
        return False

    @property
    def output(self) -> pa.Schema:
        """Return keys, bounds, which are null where the length is a count, and results."""
        bounds = [pa.field(WINDOW_START, _UTC), pa.field(WINDOW_END, _UTC)]
        return pa.schema([*self.keys, *bounds, *self.plan.result_fields])

    def opened(self, step: str, facts: StepFacts) -> AbstractContextManager[None]:
        """Return nothing to open."""
        return nullcontext()

    def make(self, windows: Windows, ends: Ints, rows: pa.Table, keys: pa.Table) -> Made:
        """Return a row for each window."""
        n = len(windows.keys)
        members = pa.array(windows.members)
        arrived = integers(rows, ARRIVED)[windows.members] if self.plan.needs_order else None
        none = np.zeros(len(members), dtype=np.int64)
        given = Rows(
            inputs={name: column_array(rows, column).take(members) for name, column in self.inputs.items()},
            times=micros(rows, AT)[windows.members],
            order=() if arrived is None else (arrived, none, none, none),
        )
        partials = self.plan.reduce(given, np.repeat(np.arange(n), np.diff(windows.starts)), n)
        bounds: list[pa.Array] = [pa.nulls(n, _UTC)] * 2
        if self.length is not None:
            bounds = [pa.array(times).cast(_UTC) for times in (ends - self.length, ends)]
        named = [keys[name].take(pa.array(windows.keys)) for name in self.keys.names]
        made = pa.table([*named, *bounds, *self.plan.results(partials)], schema=self.output)
        return Made(made, np.arange(n))

    def forget(self, keys: pa.Table, starts: Ints, rows: pa.Table) -> None:
        """Do nothing."""


class FunctionMaker:
    """The calls of a function with the rows of each window; `visible` are the columns of these rows."""

    def __init__(
        self, calls: WindowCalls, keys: pa.Schema, visible: pa.Schema, output: pa.Schema, length: int | None
    ) -> None:
        self._calls, self._keys, self._visible, self._length = calls, keys, visible, length
        self.output = output

    @property
    def hears_expired(self) -> bool:
        """Return that a view has the rows that left."""
        return True

    def opened(self, step: str, facts: StepFacts) -> AbstractContextManager[None]:
        """Return what opens the function and closes it."""
        return self._calls.opened()

    def make(self, windows: Windows, ends: Ints, rows: pa.Table, keys: pa.Table) -> Made:
        """Tell of the rows that leave, and call the function for each window that has rows."""
        shown = rows.select(self._visible.names)
        entered, heard, unseen = integers(rows, ENTER), booleans(rows, HEARD), booleans(rows, UNSEEN)
        tables: list[pa.Table] = []
        of: list[int] = []
        names = self._names(windows.keys, keys)
        for at in range(len(windows.keys)):
            name = names[int(windows.keys[at])]
            gone = windows.gone[windows.gone_starts[at] : windows.gone_starts[at + 1]]
            if not heard[gone].all():
                self._calls.tell_expired(name, _taken(shown, gone[~heard[gone]]))
            members = windows.members[windows.starts[at] : windows.starts[at + 1]]
            if not len(members):
                continue
            new = members[entered[members] == windows.rounds[at]]
            bounds = (None, None) if self._length is None else (int(ends[at]) - self._length, int(ends[at]))
            start, end = (None if bound is None else as_datetime(bound) for bound in bounds)
            parts = (_taken(shown, places) for places in (members, new, gone[~unseen[gone]]))
            current, entering, expired = parts
            view = WindowView(start=start, end=end, current=current, new=entering, expired=expired)
            tables.append(self._calls.call(name, view))
            of.append(at)
        sizes = [table.num_rows for table in tables]
        made = pa.concat_tables([self.output.empty_table(), *tables])
        return Made(made, np.repeat(np.array(of, dtype=np.int64), sizes))

    def forget(self, keys: pa.Table, starts: Ints, rows: pa.Table) -> None:
        """Tell of rows of keys."""
        shown = rows.select(self._visible.names)
        names = self._names(np.arange(len(starts) - 1), keys)
        for at in range(len(starts) - 1):
            self._calls.tell_expired(names[at], shown.slice(int(starts[at]), int(starts[at + 1] - starts[at])))

    def _names(self, numbers: Ints, keys: pa.Table) -> dict[int, object]:
        """Return keys by number, as functions see them."""
        distinct = np.unique(numbers)
        taken = keys.take(pa.array(distinct)).select(self._keys.names)
        return dict(zip(distinct.tolist(), key_values(taken, len(distinct)), strict=True))


ENTER = "_penstock_enter"
"""int64: the round in which a row enters, beside the rows of a batch."""
HEARD, UNSEEN = "_penstock_heard", "_penstock_unseen"
"""Whether `on_expired` has had a row in an earlier batch, and whether no view has a row as expired."""


def _taken(rows: pa.Table, places: Ints) -> pa.Table:
    """Return rows at ascending places, without a copy where there is no gap between them."""
    if len(places) and int(places[-1]) - int(places[0]) == len(places) - 1:
        return rows.slice(int(places[0]), len(places))
    return rows.take(pa.array(places))
