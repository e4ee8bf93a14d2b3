"""Judge triggers of the user's: row by row, with a state for each key that is kept as JSON (SEMANTICS 6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from penstock.errors import UnfitTriggerState, UnfitValue, WrongTriggerResult
from penstock.graph.trigger_protocol import Moment, RowTrigger, TriggerResult, Wake
from penstock.operators.functions.key_index import NONE
from penstock.operators.functions.python_values import Unfit
from penstock.operators.functions.user_function import UserFunction
from penstock.operators.triggers.machines import CONTINUE, FIRE, PURGE, Codes, Dues, Machine, TriggerBatch
from penstock.state.key_state import as_datetime, as_micros
from penstock.state.keys import Bools, Ints

__all__ = ["EMPTY", "RowTriggerMachine", "RowTriggers"]

EMPTY = "{}"
"""The state of a key that is new, as JSON."""
_CODES = {TriggerResult.CONTINUE: CONTINUE, TriggerResult.FIRE: FIRE, TriggerResult.FIRE_AND_PURGE: PURGE}


@dataclass(slots=True)
class RowTriggers:
    """The states of all triggers of the user's in one window, for the keys of a batch.

    `kept` has for each key a list of JSON texts, one for each trigger, as the state has them.
    """

    step: str
    kept: Sequence[Sequence[str] | None]
    machines: list[RowTriggerMachine] = field(default_factory=list)

    def join(self, machine: RowTriggerMachine) -> list[dict[str, Any]]:
        """Take a trigger in; return its state for each key."""
        place = len(self.machines)
        self.machines.append(machine)
        return [json.loads(texts[place]) if texts and place < len(texts) else {} for texts in self.kept]

    def texts(self) -> list[list[str]] | None:
        """Return for each key the states as JSON, None where the window has no such trigger."""
        columns = [machine.texts() for machine in self.machines]
        return [list(texts) for texts in zip(*columns, strict=True)] if columns else None


class RowTriggerMachine(Machine):
    """A trigger of the user's. It never finishes: a composition may do that for it."""

    begin = ()

    def __init__(self, at: int, trigger: RowTrigger, own: RowTriggers) -> None:
        super().__init__(at)
        self.trigger = trigger
        self.user = UserFunction(f"step {own.step!r}, trigger {type(trigger).__qualname__}", trigger)
        self.states = own.join(self)
        self.pending: dict[int, dict[str, Any]] = {}
        """The states that firings would leave."""
        self.names: Callable[[], Sequence[Any]] = tuple

    def finished(self, slots: Ints) -> Bools:
        """Return that it has for none."""
        return np.zeros(len(slots), dtype=np.bool_)

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Call `on_row` for each row, in the order of arrival."""
        self.names = batch.names
        rows = np.flatnonzero(mask[batch.ids])
        if not len(rows):
            return
        counts = batch.held - batch.counts
        values, watermark, now = batch.rows(), _moment(batch.watermark), as_datetime(batch.time)
        for row, key in zip(rows.tolist(), batch.ids[rows].tolist(), strict=True):
            counts[key] += 1
            given = values[row]
            if isinstance(given, Unfit):
                raise UnfitValue(
                    f"{self.user.step}: column {given.column!r} of a row is {given.shown}, which no Python object holds"
                )
            time = int(batch.times[row])
            at = Moment(
                event_time=None if time == NONE else as_datetime(time),
                batch_time=now,
                watermark=watermark,
                count=int(counts[key]),
            )
            self._call("on_row", key, self.states[key], dict(given), at)

    def ready(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> Codes:
        """Call `judge` for each key in the mask that has rows."""
        self.names = batch.names
        self.codes = np.full(batch.total, CONTINUE, dtype=np.int8)
        self.pending = {}
        watermark, now = _moment(batch.watermark), as_datetime(batch.time)
        for key in np.flatnonzero(mask & (batch.held > 0)).tolist():
            state = deepcopy(self.states[key])
            at = Moment(event_time=None, batch_time=now, watermark=watermark, count=int(batch.held[key]))
            result = self._call("judge", key, state, at)
            if not isinstance(result, TriggerResult):
                raise WrongTriggerResult(
                    f"{self.user.step}: judge returned {result!r:.80} for key {self._name(key)!r}, not a TriggerResult"
                )
            self.codes[key] = _CODES[result]
            if result is TriggerResult.CONTINUE:
                self.states[key] = state
            else:
                self.pending[key] = state
        return self.codes

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Keep the states that `judge` has left."""
        for key in np.flatnonzero(mask).tolist():
            self.states[key] = self.pending.get(key, self.states[key])

    def reset(self, slots: Ints, mask: Bools) -> None:
        """Begin again with an empty state."""
        for key in np.flatnonzero(mask).tolist():
            self.states[key] = {}

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        """Call `due` for each key, where the trigger has it."""
        dues = Dues.never(len(slots))
        if not callable(getattr(self.trigger, "due", None)):
            return dues
        for key, state in enumerate(self.states):
            wake = self._call("due", key, state)
            if wake is None:
                continue
            if not isinstance(wake, Wake) or not all(_is_moment(at) for at in (wake.watermark, wake.time)):
                raise WrongTriggerResult(
                    f"{self.user.step}: due returned {wake!r:.80} for key {self._name(key)!r}, not a Wake or None"
                )
            if wake.watermark is not None:
                dues.watermark[key] = as_micros(wake.watermark, "a Wake")
            if wake.time is not None:
                dues.time[key] = as_micros(wake.time, "a Wake")
        return Dues.of(dues.watermark, batch, event=True).earlier(Dues.of(dues.time, batch, event=False))

    def texts(self) -> list[str]:
        """Return the states as JSON; raises UnfitTriggerState for one that is not plain."""
        for key, state in enumerate(self.states):
            if strange := _strange(state):
                raise UnfitTriggerState(
                    f"{self.user.step}: the state of key {self._name(key)!r} has {strange}, which JSON does not keep"
                )
        return [json.dumps(state) if state else EMPTY for state in self.states]

    def _call(self, method: str, key: int, *arguments: Any) -> Any:
        try:
            return getattr(self.trigger, method)(*arguments)
        except Exception as why:
            raise self.user.blamed(why, f"{method} of key {self._name(key)!r}") from why

    def _name(self, key: int) -> Any:
        names = self.names()
        return names[key] if key < len(names) else key


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else as_datetime(micros)


def _is_moment(at: object) -> bool:
    return at is None or (isinstance(at, datetime) and at.tzinfo is not None)


def _strange(value: object) -> str | None:
    """Return in words what JSON would not give back as it was, None for a plain value."""
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return None
    if type(value) is list:
        return next((strange for item in value if (strange := _strange(item))), None)
    if type(value) is dict:
        if (key := next((key for key in value if type(key) is not str), None)) is not None:
            return f"the key {key!r:.80} of a dict"
        return _strange(list(value.values()))
    return f"a {type(value).__name__}"
