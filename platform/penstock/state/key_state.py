"""The argument of a state function for a key: its state, and the calls that it allows (SEMANTICS 7.1, 7.2, 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.errors import NoState, StateMisused
from penstock.graph.timeouts import EVENT, Timeout, TimerClock

__all__ = ["FiredTimer", "State", "as_datetime", "as_micros"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class FiredTimer(NamedTuple):
    """A timer that fires: the time it was set for, and the clock it went by."""

    at: datetime
    clock: TimerClock


class State:
    """The state of one key during one call of the function. Columns are those of the step's `state`."""

    __slots__ = (
        "_columns",
        "_copied",
        "_deadline",
        "_event",
        "_fired",
        "_firing",
        "_gone",
        "_timeout",
        "_timers",
        "_timing_out",
        "_touched",
        "_values",
    )

    def __init__(self, columns: Mapping[str, Any], timeout: Timeout, *, event: bool, nested: bool = False) -> None:
        self._columns = columns
        # What the function does with a list that it was given, or gave, changes nothing but by another update.
        self._copied: Callable[[Mapping[str, Any]], dict[str, Any]] = deepcopy if nested else dict  # type: ignore[assignment]
        self._timeout = timeout
        self._event = event
        self._values: dict[str, Any] | None = None
        self._deadline: int | None = None
        self._timers: list[tuple[int, TimerClock]] = []
        self._firing: tuple[int, TimerClock] | None = None
        self._fired: tuple[FiredTimer, ...] = ()
        self._timing_out = self._gone = self._touched = False

    def exists(self) -> bool:
        """Return whether the key has state."""
        return self._values is not None

    def get(self) -> dict[str, Any]:
        """Return the state's columns by name.

        Raises NoState, a LookupError, where the key has none, or has none any more.
        """
        if self._values is None:
            why = "it was removed in this call" if self._gone else "ask exists(), or use get_or(default)"
            raise NoState(f"the key has no state: {why}")
        return self._copied(self._values)

    def get_or(self, default: Any) -> Any:
        """Return the state's columns by name, or the default where the key has no state."""
        return default if self._values is None else self._copied(self._values)

    def update(self, values: Mapping[str, Any] = _NO_VALUES, /, **columns: Any) -> None:
        """Set columns of the state; what is not named stays as it is, and is null in new state.

        Raises StateMisused after `remove`, while the key times out, for a column that the state has not, and for a
        value that is not named.
        """
        self._refuse_ended("update")
        if not isinstance(values, Mapping):
            named = next(iter(self._columns))
            raise StateMisused(f"update takes columns by name, as update({named}=...), and got {values!r:.80}")
        changes = {**values, **columns}
        unknown = next((name for name in changes if name not in self._columns), None)
        if unknown is not None:
            raise StateMisused(f"the state has no column {unknown!r}; it has {', '.join(self._columns)}")
        self._values = {**(self._values or dict.fromkeys(self._columns)), **self._copied(changes)}
        self._touched = True

    def remove(self) -> None:
        """Remove the state, which may not be there.

        Raises StateMisused when it was removed in this call already, and while the key times out.
        """
        self._refuse_ended("remove")
        self._gone = True
        self._touched = self._touched or self._values is not None
        self._values = None
        self._deadline = None

    def is_timing_out(self) -> bool:
        """Return whether this call is the key's last: its state is removed after it."""
        return self._timing_out

    def set_timer(self, at: datetime, clock: TimerClock = EVENT) -> None:
        """Have the function called once for this key, without a row, when the clock is at or past `at`.

        It fires after the batch's rows, timers of a key in the order of their times. A timer that is set while another
        fires must be later than that.
        """
        if not isinstance(clock, TimerClock):
            raise StateMisused(f"the clock of a timer is EVENT or BATCH, not {clock!r}")
        if clock is EVENT and not self._event:
            raise StateMisused("the step has no event time for a timer to go by; use clock=BATCH")
        moment = as_micros(at, "a timer")
        if self._firing is not None and clock is self._firing[1] and moment <= self._firing[0]:
            raise StateMisused(f"a timer that fires at {as_datetime(self._firing[0])} set one that is not later: {at}")
        self._timers.append((moment, clock))

    def set_deadline(self, at: datetime) -> None:
        """Time the key out when the watermark is past `at`, strictly; a later call moves the deadline.

        Raises StateMisused where the step has no timeout event_time(), or the key has no state.
        """
        if not self._timeout.event_time:
            raise StateMisused("the step has no timeout event_time() to set a deadline of")
        self._refuse_ended("set_deadline")
        if self._values is None:
            raise StateMisused("set_deadline came before update: the key has no state to forget")
        self._deadline = as_micros(at, "a deadline")
        self._touched = True

    @property
    def fired_timers(self) -> tuple[FiredTimer, ...]:
        """Return the timer that this call is for; none where it is for a row or a timeout."""
        return self._fired

    # --- for who calls the function -----------------------------------------------------------

    def begin(
        self,
        values: Mapping[str, Any] | None,
        deadline: int | None,
        *,
        timing_out: bool = False,
        firing: tuple[int, TimerClock] | None = None,
    ) -> None:
        """Begin a call.

        Args:
            values: The key's state; None for a key without.
            deadline: The key's deadline in event time, microseconds; None for none.
            timing_out: Whether the key times out, so that its state is removed after the call.
            firing: The timer that fires, microseconds and clock; None for another call.
        """
        self._values = None if values is None else dict(values)
        self._deadline = deadline
        self._timing_out = timing_out
        self._firing = firing
        self._fired = () if firing is None else (FiredTimer(as_datetime(firing[0]), firing[1]),)
        self._gone = self._touched = False
        self._timers = []

    def end(self) -> tuple[bool, dict[str, Any] | None, int | None, list[tuple[int, TimerClock]]]:
        """Return whether the state was changed, what it is now, its deadline, and the timers that were set."""
        return self._touched, self._values, self._deadline, self._timers

    def _refuse_ended(self, call: str) -> None:
        if self._gone:
            raise StateMisused(f"{call} came behind remove in one call")
        if self._timing_out:
            raise StateMisused(f"{call} came while the key times out: its state is removed after this call")


def as_datetime(micros: int) -> datetime:
    """Return microseconds since 1970 as an aware datetime; beyond the calendar, its first or last moment."""
    return _EPOCH + min(max(micros, _FIRST), _LAST) * _MICRO


def as_micros(at: object, label: str) -> int:
    """Return an aware datetime as microseconds since 1970; raises StateMisused for anything else."""
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise StateMisused(f"{label} is set for an aware datetime, not {at!r}")
    return (at - _EPOCH) // _MICRO
