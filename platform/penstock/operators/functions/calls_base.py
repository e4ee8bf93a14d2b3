"""The base of all forms of calling a function that keeps state: emitted rows, quarantine, and errors.

A batch calls the function for its rows, in order of arrival. The due timers follow, those of a key in the order of
their times, and then the timeouts (SEMANTICS 7.2, 7.8).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UnfitValue, WrongOutput
from penstock.graph.policies import OnError
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.key_index import NONE, KeyIndex
from penstock.operators.functions.output_columns import made_column
from penstock.operators.functions.python_values import Unfit
from penstock.operators.functions.user_function import TaskInfo, UserFunction, task_facts
from penstock.operators.protocol import StateView, StepFacts
from penstock.state.key_state import as_datetime
from penstock.state.keys import Ints
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["ASIDE", "ArrowInfo", "Calls", "Emitted", "ints", "is_nested"]

ASIDE = pa.schema([("_error", pa.string()), ("_state", pa.string())])
"""Columns of a row in quarantine, beside its own: what was raised, and the key's state before the call, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowInfo(TaskInfo):
    """The argument of a vectorised function: TaskInfo, and `keys`, with a row for each row of the state.

    `key_index` (int64) is the place in `keys` of each row's key. In the call for keys that time out `timing_out` is
    set, and there are no rows.
    """

    keys: pa.Table
    key_index: pa.Array
    timing_out: bool = False


class Emitted(NamedTuple):
    """Hold rows, the event time of each (int64 microseconds), and what has caused them, for the order of arrival."""

    rows: pa.Table
    times: Ints
    stand: Stand


class Calls(ABC):
    """The calls of a step's function in one batch and partition, and what they leave.

    After `run_batch`, `output` has the emitted rows. `aside` has the quarantined rows of failed calls, and the key only
    for a call without a row. `change` has the rows to add to the state. `due` is when it has work though no row comes.
    """

    def __init__(self, step: FunctionStep, state: StateView, moment: StepFacts, where: Callable[[int], str]) -> None:
        self.step = step
        self.fn = step.spec.fn
        self.user = UserFunction(f"step {step.name!r}", step.spec.fn)
        self.ledger = KeyIndex(step, state, moment)
        self.moment = moment
        self.where = where
        self.time = as_datetime(moment.time)
        self.made: list[Emitted] = []
        self.failed: list[tuple[int | None, int, int, str, str | None]] = []
        """For each quarantined row its place in the batch (None for a call without one), its key, the time that was
        due, the error, and the state."""

    def run_batch(self, rows: pa.Table, hashes: Ints, keys: pa.Table, times: Ints) -> Self:
        """Run a batch's rows, in order of arrival, through the function of one partition.

        Unless the step quarantines the rows of failed calls, it raises their errors.

        Args:
            rows: The visible columns of the rows.
            hashes: int64: the hash of each row's key.
            keys: The key columns of the rows.
            times: int64: the event time of each row, microseconds.

        Raises:
            UserFunctionError: The function raises.
            WrongOutput: The function returns what the step does not declare.
            UnfitValue: A row, a key or a state has a value that Python cannot hold.
        """
        ledger = self.ledger
        ledger.open(hashes, keys, whole=self.step.spec.every_batch)
        self.batch_times = self.now(times)
        with self.user.opened(TaskInfo(**task_facts(self.moment))):
            columns = self.run(rows, times)
        self.change = ledger.change(columns)
        self.due = ledger.next_due(self.change)
        self.output, self.aside = self._output(), self._aside(rows, times)
        return self

    @abstractmethod
    def run(self, rows: pa.Table, times: Ints) -> list[pa.Array]:
        """Call the function; return the state columns of all keys."""

    def now(self, times: Ints) -> Ints:
        """Return for each key the event time of what no single row has caused, from the times of the batch's rows.

        It is the watermark, or else the highest event time before the batch. In the first batch it is the highest of
        the key's rows, or the batch time, and never depends on other keys of the partition.
        """
        if self.moment.reached is not None:
            return np.full(len(self.ledger.hashes), self.on_time(self.moment.reached), dtype=np.int64)
        highest = np.full(len(self.ledger.hashes), NONE, dtype=np.int64)
        np.maximum.at(highest, self.ledger.row_ids, times)
        highest[highest == NONE] = self.moment.time
        return highest if self.moment.judged is None else np.maximum(highest, self.moment.judged)

    def now_of(self, hashes: Ints, times: Ints) -> Ints:
        """Return the same for keys with these hashes, whether the batch has touched them or not."""
        touched, now = self.ledger.hashes, self.now(times)
        if not len(touched) or self.moment.reached is not None:
            since = self.moment.time if self.moment.reached is None else self.moment.reached
            return np.full(len(hashes), self.on_time(since), dtype=np.int64)
        at = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
        return np.where(touched[at] == hashes, now[at], self.on_time(self.moment.time))

    def on_time(self, time: int) -> int:
        """Return a time that is not late for downstream steps."""
        return time if self.moment.judged is None else max(time, self.moment.judged)

    def _output(self) -> Emitted:
        if not self.made:
            none = np.empty(0, dtype=np.int64)
            return Emitted(self.step.output.empty_table(), none, Stand(rows=none, times=none, hashes=none))
        tables, times, stands = zip(*self.made, strict=True)
        return Emitted(pa.concat_tables(tables), np.concatenate(times), Stand.joined(stands))

    def stand(self, stands: Sequence[tuple[int, int]], keys: Sequence[int]) -> Stand:
        """Return the causes of rows: for each its row in the batch or BY_TIME, the time that was due, and its key."""
        rows, times = (ints(place[side] for place in stands) for side in (0, 1))
        return Stand(rows=rows, times=times, hashes=self.ledger.hashes[ints(keys)])

    def fail(self, why: Exception, name: Any, calls: Iterable[tuple[int | None, int, int, Any]]) -> None:
        """Quarantine what a failed call was for, or raise its error.

        Args:
            why: The exception of the call.
            name: The key, for the error's text.
            calls: For each row its place in the batch (None for a call without one), its key, the time that was due,
                and the state.

        Raises:
            UnfitValue, WrongOutput, UserFunctionError: The step has no quarantine.
        """
        blamed = why if isinstance(why, UnfitValue | WrongOutput) else self.user.blamed(why, f"key {name!r}")
        if self.step.spec.on_error is OnError.FAIL:
            raise blamed from (None if blamed is why else why)
        for row, key, due, state in calls:
            values = {state.column: state.shown} if isinstance(state, Unfit) else state
            shown = None if values is None else json.dumps(_shown(values), default=str)
            self.failed.append((row, key, due, blamed.what, shown))

    def unfit(self, value: Unfit, of: str) -> UnfitValue:
        """Return the error of a value that no Python object can hold."""
        return UnfitValue(
            f"step {self.step.name!r}: column {value.column!r} of {of} is {value.shown}, which no Python object holds"
        )

    def _aside(self, rows: pa.Table, times: Ints) -> Emitted:
        places, of, due, reasons, states = zip(*self.failed, strict=True) if self.failed else ((), (), (), (), ())
        at = pa.array(places, pa.int64())
        quarantined = rows.take(at)
        for name in self.step.keys.names:
            key_column = pc.if_else(
                at.is_valid(), quarantined[name], self.ledger.keys[name].take(pa.array(of, pa.int64()))
            )
            quarantined = quarantined.set_column(
                quarantined.schema.get_field_index(name), rows.schema.field(name), key_column
            )
        for field, values in zip(ASIDE, (reasons, states), strict=True):
            quarantined = quarantined.append_column(field, pa.array(values, field.type))
        now = self.batch_times
        moments = ints(now[key] if row is None else times[row] for row, key in zip(places, of, strict=True))
        stands = [(BY_TIME if row is None else row, at) for row, at in zip(places, due, strict=True)]
        return Emitted(quarantined, moments, self.stand(stands, of))

    def state_columns(self, values: Sequence[Mapping[str, Any] | None]) -> list[pa.Array]:
        """Return state from dicts, which were checked, as columns."""
        label = f"the state of step {self.step.name!r}"
        return [
            made_column([None if row is None else row[field.name] for row in values], field, label)
            for field in self.step.state
        ]


def ints(values: Iterable[int]) -> Ints:
    """Return numbers as an array."""
    return np.array(values if isinstance(values, list) else list(values), dtype=np.int64)


def _shown(value: Any) -> Any:
    """Return a value with keys that JSON has in place of those of maps, which may be dates or decimals."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str | int | float) else str(key): _shown(of) for key, of in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


def is_nested(schema: pa.Schema) -> bool:
    """Return whether a function could change values of a column in place: lists, maps, structs."""
    return any(pa.types.is_nested(field.type) for field in schema)
