"""Fire the windows of batch time that are due in one batch and partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.operators.batch_windows.batch_ends import BatchEnds
from penstock.operators.batch_windows.window_forms import Made, RunningForm, Whole, WholeForm
from penstock.operators.columns import integers
from penstock.operators.protocol import TIME, Emit, StateView, StepFacts
from penstock.state.row_layout import GROUP, HASH
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["BATCHES", "UNTIL", "WINDOW", "WindowBatch", "window_rows"]

BATCHES, WINDOW = "batches", "window"
UNTIL = "_until"
"""int64: the end of the window, in microseconds, whose values the part `window` has."""
_UTC = pa.timestamp("us", tz="UTC")
_PIECE = 100_000
"""Rows after which what windows make is sent on."""


class WindowBatch:
    """The windows of one batch; `rows` are those that the batch adds, as they are stored."""

    def __init__(
        self,
        form: WholeForm | RunningForm,
        output: pa.Schema,
        state: StateView,
        rows: pa.Table,
        facts: StepFacts,
        ends: BatchEnds,
    ) -> None:
        self.form = form
        self.output = output
        self.state = state
        self.rows = rows.add_column(0, GROUP, pa.array(np.full(rows.num_rows, facts.time, dtype=np.int64)))
        self.facts = facts
        self.ends = ends
        self._schema = pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *form.stored])
        self._held = self._written = self._window_held()
        """The values of the newest window, where the next one follows from it; `_until` is the end of that."""
        self._until = int(integers(self._held, UNTIL).max()) if self._held.num_rows else None
        self._floor: int | None = None
        """The time below which no batch is needed, None where the batch does not say."""

    def fired(self) -> Iterator[Emit]:
        """Yield what the windows emit that end since the batch before, in order of their ends."""
        end, last = self.ends.fired(self.facts)
        due = end <= last
        waiting: list[pa.Table] = []
        while end <= last:
            if not self._stays():
                following = self.ends.next_with(end, self._batch_after)
                if following is None or following > last:
                    break
                end = following
            made = self._of(end)
            waiting.append(self._bounded(made, end))
            if sum(table.num_rows for table in waiting) >= _PIECE:
                yield self._emitted(waiting)
                waiting = []
            self._floor = end - self.ends.length + 1
            end += self.ends.slide
        yield self._emitted(waiting)
        if due:
            if end <= last and self._held.num_rows:  # nothing stays of a window whose rows have left
                self._of(last)
            self._floor = last - self.ends.length + 1

    def change(self) -> Change:
        """Return the change that keeps what later windows need."""
        append, replace, floors = {}, {}, {}
        if self.rows.num_rows:
            append[BATCHES] = self.rows
        # A window that no longer moves would be taken for the one before, if the form changed back.
        outdated = isinstance(self.form, WholeForm) and self.state.manifest.chain(WINDOW)
        if self._held is not self._written or outdated:
            replace[WINDOW] = self._held
        first = self.state.first_group(BATCHES)
        if self._floor is not None and first is not None and first < self._floor:
            floors[BATCHES] = self._floor
        return Change(append=append, replace=replace, floors=floors)

    def due(self, after: StateView) -> int | None:
        """Return the end of the next window that emits anything, whatever rows come."""
        end = self.ends.after(self.facts.time)
        return end if self._stays() else self.ends.next_with(end, lambda time: _first_after(after, time))

    def _stays(self) -> bool:
        """Return whether a window without rows may emit something that an older one has left."""
        return self._held.num_rows > 0 and isinstance(self.form, RunningForm) and self.form.stays

    # --- one window ---------------------------------------------------------------------------

    def _of(self, end: int) -> Made:
        start = end - self.ends.length
        if isinstance(self.form, WholeForm):
            return self.form.of(Whole(self._between(start, end), start, end))
        # Without a window before nothing leaves, though batches may be there that another form has kept.
        until = start if self._until is None else self._until
        leaving = start if self._until is None else None if self._floor is None else self._floor - 1
        left = self._between(leaving, min(until, start))
        entered = self._between(max(until, start), end)
        held, made = self.form.moved(self._held, left, entered)
        if self.facts.debug:
            self.form.check(held, left, lambda: self._between(start, end))
        if left.num_rows or entered.num_rows or held.num_rows < self._held.num_rows:
            self._held, self._until = window_rows(held, end), end
        return made

    def _between(self, after: int | None, until: int) -> pa.Table:
        """Return the rows of batches with times in (after, until], older batches first."""
        tables = self.state.scan(BATCHES, None if after is None else after + 1, until + 1, self._schema)
        if self.facts.time <= until:
            tables = [*tables, self.rows.select(self._schema.names)]
        return pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks()

    def _batch_after(self, time: int) -> int | None:
        """Return the time of the first batch with rows that is later."""
        at = _first_after(self.state, time)
        if at is None and self.rows.num_rows and self.facts.time > time:
            return self.facts.time
        return at

    def _window_held(self) -> pa.Table:
        schema = pa.schema([*self._schema, (UNTIL, pa.int64())])
        held = self.state.scan(WINDOW, schema=schema) if isinstance(self.form, RunningForm) else []
        return pa.concat_tables([schema.empty_table(), *held]).combine_chunks()

    # --- what is emitted ----------------------------------------------------------------------

    def _bounded(self, made: Made, end: int) -> pa.Table:
        """Return rows with their hashes and the microsecond before their window's end as TIME, and with its bounds.

        The columns of a function's output are its own, without bounds.
        """
        rows, n = made.rows, made.rows.num_rows
        bounds = (("window_start", end - self.ends.length), ("window_end", end))
        for name, time in bounds if self.form.bounded else ():
            rows = rows.append_column(name, pa.repeat(pa.scalar(time, _UTC), n))
        rows = rows.select(self.output.names).append_column(HASH, pa.array(made.hashes))
        return rows.append_column(TIME, pa.array(np.full(n, end - 1, dtype=np.int64)))

    def _emitted(self, tables: list[pa.Table]) -> Emit:
        schema = pa.schema([*self.output, (HASH, pa.int64()), (TIME, pa.int64())])
        rows = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)]).combine_chunks()
        times, hashes = integers(rows, TIME) + 1, integers(rows, HASH)
        by_time = np.full(len(times), BY_TIME, dtype=np.int64)
        return Emit(
            rows=rows.drop_columns([HASH]),
            stand=lambda: Stand(rows=by_time, times=times, hashes=hashes),
        )


def window_rows(rows: pa.Table, until: int) -> pa.Table:
    """Return the values of the window that ends then as the state has them."""
    n = rows.num_rows
    grouped = rows.add_column(0, GROUP, pa.array(np.zeros(n, dtype=np.int64)))
    return grouped.append_column(UNTIL, pa.array(np.full(n, until, dtype=np.int64)))


def _first_after(state: StateView, time: int) -> int | None:
    """Return the time of the first batch in the state that is later."""
    return state.first_group(BATCHES, time + 1)
