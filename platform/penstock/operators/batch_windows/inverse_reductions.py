"""Reduce the values of each key of a window by what enters and leaves it, with a function and its inverse.

As DStreams have it (SEMANTICS 4.3): the batches that leave are reduced first, then taken off, then those that enter are
added. Only keys with rows in either call functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.errors import NotInverse, WindowKeyLost
from penstock.operators.batch_windows.batch_sides import COUNTED, ValueSide
from penstock.operators.batch_windows.key_reductions import KeyReduction, replaced, shown_key
from penstock.operators.batch_windows.window_forms import Made, RunningForm, entry, grouped, values_of
from penstock.operators.columns import column_array, integers
from penstock.operators.debug_mode import alike
from penstock.operators.grouping import Grouping, group_runs
from penstock.operators.predicate_values import TablePredicate
from penstock.operators.protocol import StepFacts
from penstock.state.keys import Bools, Ints
from penstock.state.row_layout import GROUP, HASH

__all__ = ["RunningValues"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningValues(RunningForm):
    """One value for each key, which follows from that of the window before."""

    side: ValueSide
    reduction: KeyReduction
    keep: TablePredicate | None

    @contextmanager
    def opened(self, facts: StepFacts) -> Iterator[Self]:
        """Yield the same, with both functions open."""
        with self.reduction.opened(facts):
            yield self

    @property
    def stays(self) -> bool:
        """Return that keys stay whose rows have left."""
        return True

    @property
    def made(self) -> pa.Schema:
        """Return keys and value."""
        return pa.schema([*self.side.keys, *self.side.visible])

    @property
    def stored(self) -> pa.Schema:
        """Return keys, value, and the number of rows that are in it."""
        return pa.schema([*self.made, (COUNTED, pa.int64())])

    @property
    def leading(self) -> int:
        """Return that the bounds follow the keys."""
        return len(self.side.keys)

    def received(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the values of a batch, reduced by key in order of arrival."""
        rows = values_of(self.side, tables, placed=False)
        rows = rows.append_column(COUNTED, pa.array(np.ones(rows.num_rows, dtype=np.int64)))
        return self._reduced(rows)

    def moved(self, running: pa.Table, left: pa.Table, entered: pa.Table) -> tuple[pa.Table, Made]:
        """Return the values of a window from those of the one before, and those that are kept.

        Raises:
            WindowKeyLost: A key leaves that no value is there of, and does not enter.
            UserFunctionError: A function raises.
            WrongOutput: One returns what the type of the value does not hold.
        """
        less, more = self._reduced(left), self._reduced(entered)
        names = [HASH, *self.stored.names]
        every = pa.concat_tables([part.select(names) for part in (running, less, more)]).combine_chunks()
        n, m = running.num_rows, less.num_rows
        columns = [column_array(every, name) for name in self.side.keys.names]
        grouping = group_runs(columns, integers(every, HASH), (n, m, more.num_rows))
        keys = every.select(self.side.keys.names).take(pa.array(grouping.first))
        place = [_places(grouping, start, end) for start, end in ((0, n), (n, n + m), (n + m, every.num_rows))]
        had, leaves, enters = (at >= 0 for at in place)
        self._refuse_lost(keys, leaves & ~had & ~enters)
        values = column_array(every, self.side.column)
        start = values.take(pa.array(np.where(had, place[0], place[2])))
        changed = np.flatnonzero(had & (leaves | enters))
        made = self._changed(start, values, keys, changed, place[1], place[2])
        numbers = np.append(_numbers(every), 0)
        rows = numbers[place[0]] - np.where(had, numbers[place[1]], 0) + numbers[place[2]]
        held = entry(
            integers(every, HASH)[grouping.first],
            pa.table([*keys.columns, made, pa.array(rows)], schema=self.stored),
        )
        kept = self.kept(held)
        stay = held if kept.all() else held.filter(pa.array(kept | (rows > 0)))
        shown = held if kept.all() else held.filter(pa.array(kept))
        return stay, Made(shown.select(self.made.names), np.ascontiguousarray(integers(shown, HASH)))

    def check(self, held: pa.Table, left: pa.Table, whole: Callable[[], pa.Table]) -> None:
        """Reduce the values of one key from scratch; raises NotInverse where what was held of it is another.

        Args:
            held: The values of a window.
            left: The rows of batches that have left since the window before.
            whole: Returns all rows of batches of the window.
        """
        anew = self._reduced(whole())
        every = pa.concat_tables(
            [part.select([HASH, *self.stored.names]) for part in (anew, held, self._reduced(left))]
        )
        grouping = grouped(every.combine_chunks(), self.side.keys)
        n, m = anew.num_rows, held.num_rows
        place = [_places(grouping, start, end) for start, end in ((0, n), (n, n + m), (n + m, every.num_rows))]
        touched = np.flatnonzero((place[0] >= 0) & (place[1] >= 0) & (place[2] >= 0))[:1]
        for key in touched.tolist():
            values = every[self.side.column].combine_chunks()
            ours, theirs = values.take(pa.array([place[1][key], place[0][key]])).to_pylist()
            if not alike(ours, theirs):
                keys = every.select(self.side.keys.names).take(pa.array(grouping.first))
                raise NotInverse(
                    f"window {self.reduction.step!r}: key {shown_key(keys, key)} has {ours!r:.80} by the inverse, and "
                    f"its rows reduce to {theirs!r:.80}"
                )

    def kept(self, held: pa.Table) -> Bools:
        """Return which keys `keep` keeps."""
        if self.keep is None:
            return np.ones(held.num_rows, dtype=np.bool_)
        return self.keep.holds(held.select(self.made.names))

    # --- the parts of it ----------------------------------------------------------------------

    def _reduced(self, rows: pa.Table) -> pa.Table:
        """Return one value and number of rows for each key, from rows of batches, older batches first."""
        if GROUP in rows.column_names:
            groups = integers(rows, GROUP)
            if not len(groups) or groups.min() == groups.max():  # of one batch, which is reduced already
                return rows.select([HASH, *self.stored.names])
            rows = rows.take(pa.array(np.argsort(integers(rows, GROUP), kind="stable")))
        grouping = grouped(rows, self.side.keys)
        heads = rows.select(self.side.keys.names).take(pa.array(grouping.first))
        values = self.reduction.reduced(column_array(rows, self.side.column), grouping, heads)
        numbers = np.zeros(grouping.groups, dtype=np.int64)
        np.add.at(numbers, grouping.ids, _numbers(rows))
        made = pa.table([*heads.columns, values, pa.array(numbers)], schema=self.stored)
        return entry(integers(rows, HASH)[grouping.first], made)

    def _changed(
        self, start: pa.Array, values: pa.Array, keys: pa.Table, changed: Ints, left: Ints, entered: Ints
    ) -> pa.Array:
        """Return the values of all keys; those of `changed` without what left and with what entered."""
        if not len(changed):
            return start
        call = self.reduction
        assert call.inverse is not None
        made = call.plain(start.take(pa.array(changed)), changed, keys)
        for fn, at in ((call.inverse, left[changed]), (call.fn, entered[changed])):
            of = np.flatnonzero(at >= 0)
            others = call.plain(values.take(pa.array(at[of])), changed[of], keys)
            if len(of) == len(made):
                made = call.called(fn, made, others, changed, keys)
                continue
            some = call.called(fn, [made[place] for place in of.tolist()], others, changed[of], keys)
            for place, value in zip(of.tolist(), some, strict=True):
                made[place] = value
        return replaced(start, changed, call.typed(made))

    def _refuse_lost(self, keys: pa.Table, lost: Bools) -> None:
        if lost.any():
            kinds = ", ".join(str(field.type) for field in self.side.keys)
            raise WindowKeyLost(
                f"window {self.reduction.step!r}: key {shown_key(keys, int(np.flatnonzero(lost)[0]))}, of type "
                f"{kinds}, leaves the window, and is neither in the window before nor in new batches"
            )


def _places(grouping: Grouping, start: int, end: int) -> Ints:
    """Return for each group its one row among those from `start` to `end`, -1 where it has none."""
    places = np.full(grouping.groups, -1, dtype=np.int64)
    places[grouping.ids[start:end]] = np.arange(start, end)
    return places


def _numbers(rows: pa.Table) -> Ints:
    """Return how many rows are in each value, 1 where a job without an inverse has kept it and did not count.

    A value enters and leaves with the same number, so that 1 is as good as any.
    """
    numbers: Ints = column_array(rows, COUNTED).fill_null(1).to_numpy()
    return numbers
