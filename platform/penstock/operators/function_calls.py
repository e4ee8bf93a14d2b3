"""Call a function that keeps state: for each row, for the values of each key, or for all rows of a partition.

In a batch come first the rows, in order of arrival; then the timers that are due, each key's in the order of their
times; then the timeouts (SEMANTICS 7.2, 7.8).
"""

from __future__ import annotations

import heapq
import json
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, UserFunctionError, WrongOutput
from penstock.graph.nodes import Form
from penstock.graph.sites import file_of
from penstock.graph.timeouts import EVENT, TimerClock
from penstock.operators.function_info import ArrowInfo, TaskInfo
from penstock.operators.key_ledger import BATCH_TIMERS, EVENT_TIMERS, NONE, KeyLedger, Moment
from penstock.operators.partial_tables import column_array
from penstock.operators.typed_columns import typed_column, typed_table
from penstock.state.handle import State, as_datetime
from penstock.state.keys import Ints
from penstock.time.watermarks import END_OF_TIME

if TYPE_CHECKING:
    from penstock.operators.state_functions import FunctionStep

__all__ = ["ASIDE", "CALLS", "Calls"]

_PACKAGE = Path(__file__).resolve().parents[1]
_PARTS = {TimerClock.EVENT: EVENT_TIMERS, TimerClock.BATCH: BATCH_TIMERS}
_CLOCKS = {part: clock for clock, part in _PARTS.items()}

ASIDE = pa.schema([("_error", pa.string()), ("_state", pa.string())])
"""Columns of a row in quarantine, beside its own: what was raised, and the key's state before the call, as JSON."""


class Calls(ABC):
    """What the forms share: rows put out, and whom to blame."""

    def __init__(self, step: FunctionStep, ledger: KeyLedger, moment: Moment) -> None:
        self.step = step
        self.ledger = ledger
        self.moment = moment
        self.time = as_datetime(moment.time)
        self.put_out: list[Mapping[str, Any]] = []
        self.put_for: list[Any] = []
        self.times: list[int] = []
        self.failed: list[tuple[int | None, int, str, str | None]] = []
        """For each row put aside its place in the batch, None for a call without one, its key, why, and the state."""

    @abstractmethod
    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call the function; return the state columns of all keys."""

    def told(self) -> dict[str, Any]:
        """Return what every function is told, as in TaskInfo."""
        moment = self.moment
        watermark = None if moment.watermark is None else as_datetime(moment.watermark)
        return {"batch": moment.batch, "time": self.time, "watermark": watermark, "epoch": moment.epoch}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a function that is an object with `open(info)`, and close it by its `close()`, whatever comes between.

        Raises UserFunctionError for what they raise, but for `close` behind an error: that one is the cause.
        """
        self._ask("open", TaskInfo(**self.told()))
        try:
            yield
        except BaseException:
            with suppress(UserFunctionError):
                self._ask("close")
            raise
        self._ask("close")

    def _ask(self, method: str, *words: Any) -> None:
        asked = getattr(self.step.fn, method, None)
        if not callable(asked):
            return
        try:
            asked(*words)
        except Exception as why:
            raise self.blamed(why, during=method) from why

    def now(self, times: Ints) -> int:
        """Return the event time of what no single row has caused, from the times of the batch's rows.

        It is the watermark, or else the highest event time that was there before; in the first batch that of its rows.
        """
        if self.moment.reached is not None:
            return self.on_time(self.moment.reached)
        known = times[times != NONE]
        if len(known):
            return self.on_time(int(known.max()))
        return self.moment.judged if self.moment.judged is not None else self.moment.time

    def on_time(self, time: int) -> int:
        """Return a time that is not late for the steps behind."""
        return time if self.moment.judged is None else max(time, self.moment.judged)

    def output(self) -> tuple[pa.Table, Ints]:
        """Return the rows put out, and the event time of each."""
        what = f"what step {self.step.name!r} put out"
        columns = [
            typed_column([row[field.name] for row in self.put_out], field, what, self.put_for)
            for field in self.step.output
        ]
        return pa.table(columns, schema=self.step.output), np.array(self.times, dtype=np.int64)

    def fail(self, why: Exception, name: Any, calls: Iterable[tuple[int | None, int, Any]]) -> None:
        """Put aside what a call that raised was for: places of rows, keys, their state; or raise whose fault it is."""
        blamed = self.blamed(why, during=f"key {name!r}")
        if not self.step.quarantine:
            raise blamed from why
        for row, key, state in calls:
            shown = None if state is None else json.dumps(state, default=str)
            self.failed.append((row, key, blamed.what, shown))

    def aside(self, rows: pa.Table, times: Ints) -> tuple[pa.Table, Ints]:
        """Return the rows put aside, and the event time of each."""
        places, of, said, states = zip(*self.failed, strict=True) if self.failed else ((), (), (), ())
        at = pa.array(places, pa.int64())
        found = rows.take(at)
        for name in self.step.keys.names:
            told = pc.if_else(at.is_valid(), found[name], self.ledger.keys[name].take(pa.array(of, pa.int64())))
            found = found.set_column(found.schema.get_field_index(name), rows.schema.field(name), told)
        for field, values in zip(ASIDE, (said, states), strict=True):
            found = found.append_column(field, pa.array(values, field.type))
        now = self.now(times)
        return found, np.array([now if row is None else times[row] for row in places], dtype=np.int64)

    def blamed(self, why: Exception, *, during: str) -> UserFunctionError:
        """Return the error of a function that raised: step, user's line, and during what, as for which key."""
        frames = list(reversed(traceback.extract_tb(why.__traceback__)))
        theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
        mine = file_of(self.step.fn)
        place = next((frame for frame in theirs if frame.filename == mine), theirs[0] if theirs else None)
        line = f" in {place.filename}:{place.lineno}" if place is not None else ""
        said = why.what if isinstance(why, PenstockError) else f"{type(why).__name__}: {why}"
        return UserFunctionError(f"step {self.step.name!r}: {said} ({during}){line}")

    def state_columns(self, values: Sequence[Mapping[str, Any] | None], keys: Sequence[Any]) -> list[pa.Array]:
        """Return state from dicts as columns."""
        what = f"the state of step {self.step.name!r}"
        return [
            typed_column([None if one is None else one[field.name] for one in values], field, what, keys)
            for field in self.step.state
        ]


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
        nested = _is_nested(self.step.state)
        self.state = State(columns, self.step.timeout, event=self.step.event, nested=nested)
        self.copied: Callable[[Any], Any] = deepcopy if _is_nested(self.step.output) else dict
        self.waiting: list[tuple[int, int, int]] = []
        self.set: set[tuple[int, int, int]] = set()
        for part, at, key in ledger.due_timers():
            self._await(at, _CLOCKS[part], key)
        self.batch_time = self.now(times)
        each = zip(rows.to_pylist(), ledger.row_ids.tolist(), times.tolist(), strict=True)
        for place, (row, key, time) in enumerate(each):
            self._call(key, row, time, place)
        self._fire()
        for key in ledger.timing_out().tolist():
            deadline = int(ledger.deadlines[key])
            over = self.moment.watermark is not None and NONE != deadline < self.moment.watermark
            self._call(key, None, self.on_time(deadline) if over else self.batch_time, timing_out=True)
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
            time = self.on_time(at) if order[clock] is EVENT else self.batch_time
            self._call(key, None, time, firing=(at, order[clock]))

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
        timing_out: bool = False,
        firing: tuple[int, TimerClock] | None = None,
    ) -> None:
        ledger, state = self.ledger, self.state
        deadline = int(ledger.deadlines[key])
        state.begin(self.values[key], None if deadline == NONE else deadline, timing_out=timing_out, firing=firing)
        try:
            found = self.step.fn(self.time, self.names[key], row, state)
        except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
            self.fail(why, self.names[key], [(place, key, self.values[key])])
            return
        self._put_out(found, time, self.names[key])
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

    def _put_out(self, found: object, time: int, key: Any) -> None:
        if found is None:
            return
        for row in found if isinstance(found, list | tuple) else (found,):
            if not isinstance(row, Mapping) or row.keys() != set(self.step.output.names):
                said = f"columns {list(row)}" if isinstance(row, Mapping) else f"a {type(row).__name__}"
                raise WrongOutput(
                    f"step {self.step.name!r} returned {said} for key {key!r}, not a dict of {self.step.output.names}"
                )
            # The function may go on with what it has returned.
            self.put_out.append(self.copied(row))
            self.put_for.append(key)
            self.times.append(time)


class UpdateCalls(Calls):
    """All values of a key at once."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for each key with rows or state, in the order of their hashes; return the state columns of all keys."""
        step, ledger, time = self.step, self.ledger, self.now(times)
        single = step.state.names[0] if len(step.state) == 1 else None
        nested = _is_nested(step.state)
        self._by_key: tuple[Ints, Ints] | None = None
        names = ledger.key_values()
        values: list[list[Any]] = [[] for _ in names]
        for value, key in zip(rows.column(step.value).to_pylist(), ledger.row_ids.tolist(), strict=True):
            values[key].append(value)
        kept: list[dict[str, Any] | None] = []
        olds = ledger.table.to_pylist()
        columns = list(zip(*(column.to_pylist() for column in ledger.keys.columns), strict=True)) or [()] * len(names)
        for key, name in enumerate(names):
            old = olds[key] if ledger.before[key] else None
            if not (ledger.had_rows[key] or (ledger.before[key] and step.every_batch)):
                kept.append(old)
                continue
            shown = old if old is None or single is None else old[single]
            try:
                more = (self.time, name) if step.with_key_time else ()
                new = step.fn(*more, values[key], shown)
            except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
                if old is not None:  # the function may have changed a list in it
                    (old,) = ledger.table.slice(key, 1).to_pylist()
                self.fail(why, name, [(row, key, old) for row in self._rows_of(key)])
                kept.append(old)
                continue
            ledger.exists[key], ledger.changed[key] = new is not None, True
            made = None if new is None else self._whole(new, name) if single is None else {single: new}
            made = deepcopy(made) if nested else made  # the function may go on with what it has returned
            kept.append(made)
            if made is not None:
                self.put_out.append({**dict(zip(step.keys.names, columns[key], strict=True)), **made})
                self.put_for.append(name)
                self.times.append(time)
        return self.state_columns(kept, names)

    def _rows_of(self, key: int) -> list[int | None]:
        """Return the places of a key's rows in the batch, None for a key without rows; sorts once, not for each key."""
        if self._by_key is None:
            order = np.argsort(self.ledger.row_ids, kind="stable")
            self._by_key = order, self.ledger.row_ids[order]
        order, ids = self._by_key
        first, last = np.searchsorted(ids, [key, key + 1])
        return order[first:last].tolist() or [None]

    def _whole(self, new: object, key: Any) -> dict[str, Any]:
        names = self.step.state.names
        if not isinstance(new, Mapping) or new.keys() != set(names):
            raise WrongOutput(f"step {self.step.name!r} returned {new!r:.80} for key {key!r}, not a dict of {names}")
        return dict(new)


class ArrowCalls(Calls):
    """A whole partition at once."""

    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call for the rows, then for the keys that time out; return the state columns of all keys."""
        ledger, self.batch_time = self.ledger, self.now(times)
        self.tables: list[pa.Table] = []
        touched = np.flatnonzero(ledger.had_rows)
        columns = [
            column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            for column in ledger.table.columns
        ]
        if len(touched):
            place = np.full(len(ledger.hashes), -1, dtype=np.int64)
            place[touched] = np.arange(len(touched))
            new = self._call(rows, touched, pa.array(place[ledger.row_ids]))
            if new is not None:
                ledger.exists[touched] = _has_state(new)
                ledger.changed[touched] = True
                order = pa.array(np.where(place >= 0, place + len(ledger.hashes), np.arange(len(ledger.hashes))))
                columns = [
                    pa.concat_arrays([old, column_array(new, name)]).take(order)
                    for old, name in zip(columns, new.column_names, strict=True)
                ]
        over = ledger.timing_out()
        if len(over):
            self._call(rows.slice(0, 0), over, pa.array([], pa.int64()), timing_out=True)
            ledger.forget(over)
        ledger.touch()
        return columns

    def _call(self, rows: pa.Table, at: Ints, index: pa.Array, *, timing_out: bool = False) -> pa.Table | None:
        """Return the new state of the keys at these places, None where the function has raised."""
        step, ledger = self.step, self.ledger
        there = pa.array(at)
        keys, state = ledger.keys.take(there), ledger.table.take(there)
        info = ArrowInfo(**self.told(), keys=keys, key_index=index, timing_out=timing_out)
        try:
            found = step.fn(rows, state, info)
        except Exception as why:  # noqa: BLE001 - whatever a function of the user's raises
            calls: list[tuple[int | None, int, Any]] = [
                (row, key, None) for row, key in enumerate(ledger.row_ids.tolist())
            ]
            if timing_out:  # the state goes all the same, so it is told; else it stays, and can be looked at
                calls = [(None, key, kept) for key, kept in zip(at.tolist(), state.to_pylist(), strict=True)]
            self.fail(why, f"one of {len(at)}", calls)
            return None
        if not isinstance(found, tuple) or len(found) != 2:  # noqa: PLR2004 - output and state
            raise WrongOutput(f"step {step.name!r} returned a {type(found).__name__}, not (out, state)")
        out, new = found
        if out is not None:
            made = typed_table(out, step.output, f"what step {step.name!r} put out")
            self.tables.append(made)
            self.times += [self.batch_time] * made.num_rows
        if timing_out:
            return state
        made = typed_table(new, step.state, f"the state of step {step.name!r}")
        if made.num_rows != len(at):
            raise WrongOutput(f"step {step.name!r} returned {made.num_rows} rows of state for {len(at)} keys")
        return made

    def output(self) -> tuple[pa.Table, Ints]:
        """Return the tables put out."""
        made = pa.concat_tables(self.tables) if self.tables else self.step.output.empty_table()
        return made, np.array(self.times, dtype=np.int64)


CALLS: Mapping[Form, type[Calls]] = {Form.ROWS: RowCalls, Form.ARROW: ArrowCalls, Form.UPDATE: UpdateCalls}
"""How a function is called, by the form of its step."""


def _is_nested(schema: pa.Schema) -> bool:
    return any(pa.types.is_nested(field.type) for field in schema)


def _has_state(table: pa.Table) -> Any:
    """Return which rows have a column that is not null."""
    found = np.zeros(table.num_rows, dtype=np.bool_)
    for column in table.columns:
        found |= column.is_valid().to_numpy()
    return found
