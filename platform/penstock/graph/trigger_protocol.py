"""Say what a trigger of a global window is: a ready-made one, or an object of the user's (SEMANTICS 6).

A trigger is judged once for each batch and key, after the batch's rows. One that has finished never fires again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from penstock.graph.source_location import job_error

__all__ = [
    "AnyTrigger",
    "Moment",
    "RowTrigger",
    "Trigger",
    "TriggerResult",
    "Wake",
    "checked_trigger",
    "finishes",
    "fires",
    "purges",
    "trigger_words",
    "walk",
]


class TriggerResult(Enum):
    """What a trigger decides for a window: nothing, to emit it, or to emit it and drop its rows."""

    CONTINUE = "continue"
    FIRE = "fire"
    FIRE_AND_PURGE = "fire_and_purge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a trigger of the user's knows beside the row; times are aware datetimes in UTC.

    Attributes:
        event_time: That of the row; None in `judge`, and where the stream has no event time.
        batch_time: That of the batch.
        watermark: That of the step in this batch; None before there is one.
        count: How many rows the window has, this one included.
    """

    event_time: datetime | None
    batch_time: datetime
    watermark: datetime | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """When a trigger of the user's wants to be judged though no row comes; None is never.

    Attributes:
        watermark: The watermark to wait for, an aware datetime.
        time: The batch time to wait for, an aware datetime.
    """

    watermark: datetime | None = None
    time: datetime | None = None


@runtime_checkable
class RowTrigger(Protocol):
    """A trigger of the user's: an object that can be sent to tasks, and a state for each key, which is kept for it.

    The state is a dict of plain values, which is empty at first: None, bool, int, float, str, and lists and dicts of
    these. Both methods may change it. It survives restarts, and a purge of the window.

    An object may also have `due(state) -> Wake | None`, asked after each batch that has judged the key.
    """

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Take a row of the window; called for each one, in the order of arrival."""

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Decide, after the rows of the batch. A change of the state counts unless FIRE is overruled.

        It is overruled where the window has no rows, or a composition waits for another trigger.
        """


class Trigger(ABC):
    """A ready-made trigger. It is a plain value; texts of it name the state that it has."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[AnyTrigger, ...]:
        """Return its parts, which are triggers too."""
        return ()

    @property
    def fires(self) -> bool:
        """Return whether rows or time may ever fire it, before the end of time."""
        return True

    @property
    def finishes(self) -> bool:
        """Return whether it surely finishes, if it fires for long enough."""
        return True

    @property
    def purges(self) -> bool:
        """Return whether each firing purges."""
        return False

    @property
    def empties(self) -> bool:
        """Return whether the window is emptied again and again: rows are purged, or dropped after the finish."""
        return self.purges or (self.finishes and self.fires)

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the Spark SQL expressions that it reads of rows."""
        return ()

    @property
    def event(self) -> bool:
        """Return whether it goes by event time."""
        return False

    @abstractmethod
    def __str__(self) -> str:
        """Return it as the job writes it."""


AnyTrigger: TypeAlias = Trigger | RowTrigger


def checked_trigger(trigger: object, where: str) -> AnyTrigger:
    """Return a trigger, or refuse with the user's line what is none."""
    if isinstance(trigger, type) or not isinstance(trigger, Trigger | RowTrigger):
        raise job_error(
            f"{where} takes a trigger such as AfterCount(3), or an object with on_row and judge, not {trigger!r}"
        )
    return trigger


def trigger_words(trigger: AnyTrigger) -> str:
    """Return a trigger as the job writes it; one of the user's by the name of its class."""
    return str(trigger) if isinstance(trigger, Trigger) else type(trigger).__qualname__


def walk(trigger: AnyTrigger) -> Iterator[AnyTrigger]:
    """Yield a trigger and all of its parts, however deep, each before its own."""
    yield trigger
    if isinstance(trigger, Trigger):
        for part in trigger.parts:
            yield from walk(part)


def fires(trigger: AnyTrigger) -> bool:
    """Return whether a trigger may ever fire before the end of time; one of the user's may."""
    return not isinstance(trigger, Trigger) or trigger.fires


def finishes(trigger: AnyTrigger) -> bool:
    """Return whether a trigger fires until it finishes; one of the user's never finishes."""
    return isinstance(trigger, Trigger) and trigger.finishes and trigger.fires


def purges(trigger: AnyTrigger) -> bool:
    """Return whether each firing of a trigger purges; of one of the user's nobody knows."""
    return isinstance(trigger, Trigger) and trigger.purges
