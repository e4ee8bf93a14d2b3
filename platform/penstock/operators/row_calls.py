"""Call a function that keeps state for each row, timer and timeout (SEMANTICS 7.1, 7.2, 7.8)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pyarrow as pa

from penstock.errors import WrongOutput
from penstock.graph.timeouts import EVENT, TimerClock
from penstock.operators.function_calls import Calls, is_nested
from penstock.operators.key_ledger import BATCH_TIMERS, EVENT_TIMERS, NONE
from penstock.state.handle import State
from penstock.state.keys import Ints
from penstock.time.arrival import BY_TIME
from penstock.time.watermarks import END_OF_TIME

__all__ = ["RowCalls"]

_PARTS = {TimerClock.EVENT: EVENT_TIMERS, TimerClock.BATCH: BATCH_TIMERS}
_CLOCKS = {part: clock for clock, part in _PARTS.items()}


class RowCalls(Calls):
    """Row by row."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for each row, timer and timeout; return the state columns of all keys."""
        ledger = self.ledger
        self.names = ledger.key_values()
        existing = ledger.table.to_pylist()
        self.values: list[dict[str, Any] | None] = [
            one if there else None for one, there in zip(existing, ledger.before.tolist(), strict=True)
        ]
        columns = dict.fromkeys(self.step.state.names)
        nested = is_nested(self.step.state)
        self.state = State(columns, self.step.timeout, event=self.step.event, nested=nested)
        self.copied: Callable[[Any], Any] = deepcopy if is_nested(self.step.output) else dict
        self.waiting: list[tuple[int, int, int]] = []
        self.set: set[tuple[int, int, int]] = set()
        for part, at, key in ledger.due_timers():
            self._await(at, _CLOCKS[part], key)
        self.batch_times = self.now(times)
        self.last_due: dict[int, int] = {}
        each = zip(rows.to_pylist(), ledger.row_ids.tolist(), times.tolist(), strict=True)
        for place, (row, key, time) in enumerate(each):
            self._call(key, row, time, place)
        self._fire()
        for key in ledger.timing_out().tolist():
            deadline = int(ledger.deadlines[key])
            over = self.moment.watermark is not None and NONE != deadline < self.moment.watermark
            due = deadline if over else int(ledger.expires[key])
            time = self.on_time(deadline) if over else int(self.batch_times[key])
            self._call(key, None, time, due=due, timing_out=True)
            self.values[key] = None
            ledger.forget(key)
        self._fire()
        ledger.touch()
        return self.state_columns(self.values, self.names)

    def _fire(self) -> None:
        order = list(TimerClock)
        while self.waiting:
            at, clock, key = timer = heapq.heappop(self.waiting)
            self.set.discard(timer)
            time = self.on_time(at) if order[clock] is EVENT else int(self.batch_times[key])
            self._call(key, None, time, due=at, firing=(at, order[clock]))

    def _await(self, at: int, clock: TimerClock, key: int) -> None:
        timer = (at, list(TimerClock).index(clock), key)
        if timer not in self.set:
            self.set.add(timer)
            heapq.heappush(self.waiting, timer)

    def _call(
        self,
        key: int,
        row: dict[str, Any] | None,
        time: int,
        place: int | None = None,
        *,
        due: int = 0,
        timing_out: bool = False,
        firing: tuple[int, TimerClock] | None = None,
    ) -> None:
        ledger, state = self.ledger, self.state
        deadline = int(ledger.deadlines[key])
        if place is None:  # what a key emits stands in the order of its calls
            due = self.last_due[key] = max(due, self.last_due.get(key, due))
        state.begin(self.values[key], None if deadline == NONE else deadline, timing_out=timing_out, firing=firing)
        try:
            found = self.step.fn(self.time, self.names[key], row, state)
        except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
            self.fail(why, self.names[key], [(place, key, due, self.values[key])])
            return
        self._put_out(found, time, key, (BY_TIME if place is None else place, due))
        touched, values, until, timers = state.end()
        if touched:
            self.values[key], ledger.deadlines[key] = values, NONE if until is None else until
            ledger.exists[key], ledger.changed[key] = values is not None, True
            if values is None:
                ledger.expires[key] = NONE
        for at, clock in timers:
            if not ledger.is_due(_PARTS[clock], at):
                ledger.set_timer(_PARTS[clock], at, key)
            elif firing is None or self.moment.watermark != END_OF_TIME or clock is not EVENT:
                self._await(at, clock, key)
            # At the end of time every timer is due: one that sets the next would never come to an end.

    def _put_out(self, found: object, time: int, key: int, stand: tuple[int, int]) -> None:
        if found is None:
            return
        for row in found if isinstance(found, list | tuple) else (found,):
            if not isinstance(row, Mapping) or row.keys() != set(self.step.output.names):
                said = f"columns {list(row)}" if isinstance(row, Mapping) else f"a {type(row).__name__}"
                raise WrongOutput(
                    f"step {self.step.name!r} returned {said} for key {self.names[key]!r}, not a dict of "
                    f"{self.step.output.names}"
                )
            # The function may go on with what it has returned.
            self.put_out.append(self.copied(row))
            self.put_for.append(key)
            self.times.append(time)
            self.stands.append(stand)
