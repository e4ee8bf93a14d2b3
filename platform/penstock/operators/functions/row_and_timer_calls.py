"""Call a function that keeps state for each row, timer and timeout (SEMANTICS 7.1, 7.2, 7.8)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import WrongOutput
from penstock.graph.timeouts import EVENT, TimerClock
from penstock.operators.functions.calls_base import Calls, Emitted, ints, is_nested
from penstock.operators.functions.key_index import BATCH_TIMERS, EVENT_TIMERS, NONE
from penstock.operators.functions.output_columns import checker, made_column
from penstock.operators.functions.python_values import PIECE, Unfit, first_unfit, python_rows
from penstock.state.key_state import State
from penstock.state.keys import Ints
from penstock.time.arrival import BY_TIME
from penstock.time.clock import END_OF_TIME

__all__ = ["RowCalls"]

_PARTS = {TimerClock.EVENT: EVENT_TIMERS, TimerClock.BATCH: BATCH_TIMERS}
_CLOCKS = {part: clock for clock, part in _PARTS.items()}
_ORDER = list(TimerClock)

_Timer = tuple[int, int, int]
"""When, which clock, which key."""


class RowCalls(Calls):
    """Row by row; rows, and the keys that they need, are Python objects a piece at a time."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for each row, timer and timeout; return the state columns of all keys."""
        step, ledger = self.step, self.ledger
        self.state = State(
            dict.fromkeys(step.state.names), step.spec.timeout, event=step.event, nested=is_nested(step.state)
        )
        self.columns = set(step.output.names)
        self.copied: Callable[[Any], Any] = deepcopy if is_nested(step.output) else dict
        self.check_output = checker(step.output, f"what step {step.name!r} emitted")
        self.check_state = checker(step.state, f"the state of step {step.name!r}")
        self.values: dict[int, dict[str, Any] | None] = {}
        """The state of the keys whose state a call has changed."""
        self.names: dict[int, Any] = {}
        self.olds: dict[int, Any] = {}
        self.last_due: dict[int, int] = {}
        self.unfit_rows = self.unfit_keys = False
        self._begin_output()
        self.waiting: list[_Timer] = []
        self.set: set[_Timer] = set()
        for part, at, key in ledger.due_timers():
            self._await(at, _CLOCKS[part], key)
        for start in range(0, rows.num_rows, PIECE):
            piece = slice(start, start + PIECE)
            keys = ledger.row_ids[piece]
            self._take_up(np.unique(keys))
            batch = python_rows(rows.slice(start, PIECE))
            self.unfit_rows = any(type(row) is Unfit for row in batch)
            each = zip(batch, keys.tolist(), times[piece].tolist(), strict=True)
            for place, (row, key, time) in enumerate(each, start):
                self._call(key, row, time, place)
        self.unfit_rows = False
        self._fire()
        self._time_out()
        self._fire()
        ledger.touch()
        self._flush()
        keys, columns = ints(self.values), self.state_columns(list(self.values.values()))
        # What is done with the batch from here on holds this object: not its dicts as well.
        self.values, self.names, self.olds = {}, {}, {}
        return ledger.with_new(keys, columns)

    def _take_up(self, keys: Ints) -> None:
        """Load these keys, and the state they had before the batch, as Python objects, in place of the others."""
        self.names = dict(zip(keys.tolist(), self.ledger.key_values(keys), strict=True))
        self.olds = dict(zip(keys.tolist(), self.ledger.states(keys), strict=True))
        self.unfit_keys = any(type(value) is Unfit for kept in (self.names, self.olds) for value in kept.values())

    def _time_out(self) -> None:
        ledger, over = self.ledger, self.ledger.timing_out()
        for start in range(0, len(over), PIECE):
            keys = over[start : start + PIECE]
            self._take_up(keys)
            for key in keys.tolist():
                deadline = int(ledger.deadlines[key])
                past = self.moment.watermark is not None and NONE != deadline < self.moment.watermark
                due = deadline if past else int(ledger.expires[key])
                time = self.on_time(deadline) if past else int(self.batch_times[key])
                self._call(key, None, time, due=due, timing_out=True)
                self.values[key] = None
                ledger.forget(key)

    def _fire(self) -> None:
        """Call for the timers that are due, by time, those that are set meanwhile included."""
        due, self.waiting = sorted(self.waiting), []
        at = 0
        while at < len(due) or self.waiting:
            if self.waiting and (at == len(due) or self.waiting[0] < due[at]):
                timer = heapq.heappop(self.waiting)
            else:
                timer = due[at]
                if timer[2] not in self.names:
                    self._take_up(np.unique(ints(key for *_, key in due[at : at + PIECE])))
                at += 1
            when, clock, key = timer
            if key not in self.names:
                self._take_up(ints([key]))
            self.set.discard(timer)
            time = self.on_time(when) if _ORDER[clock] is EVENT else int(self.batch_times[key])
            self._call(key, None, time, due=when, firing=(when, _ORDER[clock]))

    def _await(self, at: int, clock: TimerClock, key: int) -> None:
        timer = (at, _ORDER.index(clock), key)
        if timer not in self.set:
            self.set.add(timer)
            heapq.heappush(self.waiting, timer)

    def _call(
        self,
        key: int,
        row: dict[str, Any] | Unfit | None,
        time: int,
        place: int | None = None,
        *,
        due: int = 0,
        timing_out: bool = False,
        firing: tuple[int, TimerClock] | None = None,
    ) -> None:
        ledger, state, name = self.ledger, self.state, self.names[key]
        kept = self.values[key] if key in self.values else self.olds[key]
        if place is None:  # rows of one key sort in the order of its calls
            due = self.last_due[key] = max(due, self.last_due.get(key, due))
        try:
            if self.unfit_rows or self.unfit_keys:
                self._refuse_unfit(row, name, kept, place)
            deadline = int(ledger.deadlines[key])
            state.begin(kept, None if deadline == NONE else deadline, timing_out=timing_out, firing=firing)
            returned = self._checked(self.fn(self.time, name, row, state), name)
            touched, values, until, timers = state.end()
            if values is not None and touched:
                self.check_state(values, name)
        except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
            self.fail(why, name, [(place, key, due, kept)])
            return
        for output in returned:
            self.put_out.append(output)
            self.put_for.append(key)
            self.put_at.append(time)
            self.stands.append((BY_TIME if place is None else place, due))
        if len(self.put_out) >= PIECE:
            self._flush()
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

    def _refuse_unfit(self, row: Any, name: Any, kept: Any, place: int | None) -> None:
        """Raise UnfitValue where the call would need an object that Python has not."""
        if type(row) is Unfit:
            raise self.unfit(row, self.where(place or 0))
        if lost := first_unfit((name, kept)):
            raise self.unfit(lost, "a key" if lost is name else f"the state of key {name!r}")

    def _checked(self, returned: object, name: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a call; raises WrongOutput for what is not as declared."""
        if returned is None:
            return []
        rows = []
        for row in returned if isinstance(returned, list | tuple) else (returned,):
            if not (type(row) is dict or isinstance(row, Mapping)) or row.keys() != self.columns:
                shape = f"columns {list(row)}" if isinstance(row, Mapping) else f"a {type(row).__name__}"
                raise WrongOutput(
                    f"step {self.step.name!r} returned {shape} for key {name!r}, not a dict of {self.step.output.names}"
                )
            self.check_output(row, name)
            rows.append(self.copied(row))  # the function may change later what it has returned
        return rows

    def _flush(self) -> None:
        """Make columns of the rows emitted so far."""
        if not self.put_out:
            return
        output, label = self.step.output, f"what step {self.step.name!r} emitted"
        columns = [made_column([row[field.name] for row in self.put_out], field, label) for field in output]
        made = pa.table(columns, schema=output)
        self.made.append(Emitted(made, ints(self.put_at), self.stand(self.stands, self.put_for)))
        self._begin_output()

    def _begin_output(self) -> None:
        self.put_out: list[Mapping[str, Any]] = []
        self.put_for: list[int] = []
        self.put_at: list[int] = []
        self.stands: list[tuple[int, int]] = []
