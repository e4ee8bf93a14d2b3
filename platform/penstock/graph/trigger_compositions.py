"""The compositions of triggers of a global window: first, any, all, each in turn, again, until (SEMANTICS 6).

They finish and begin again as in Beam. A trigger that begins again has forgotten the rows that it has seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.source_location import job_error
from penstock.graph.trigger_protocol import AnyTrigger, Trigger, checked_trigger, finishes, fires, purges, trigger_words

__all__ = ["AfterAll", "AfterAny", "AfterEach", "AfterFirst", "OrFinally", "Purging", "Repeatedly"]


class _Composed(Trigger):
    """Triggers of which several are judged side by side."""

    __slots__ = ()
    triggers: tuple[AnyTrigger, ...]

    @property
    def parts(self) -> tuple[AnyTrigger, ...]:
        """Return them."""
        return self.triggers

    @property
    def fires(self) -> bool:
        """Return whether one does."""
        return any(fires(part) for part in self.triggers)

    @property
    def purges(self) -> bool:
        """Return whether each does."""
        return all(purges(part) for part in self.triggers)

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(trigger_words, self.triggers))})"


@dataclass(frozen=True, slots=True, init=False)
class AfterFirst(_Composed):
    """Fire as soon as one of the triggers does, then finish."""

    triggers: tuple[AnyTrigger, ...]

    def __init__(self, *triggers: AnyTrigger) -> None:
        object.__setattr__(self, "triggers", _triggers(triggers, "AfterFirst"))


@dataclass(frozen=True, slots=True, init=False)
class AfterAny(_Composed):
    """Fire whenever one of the triggers does, and finish when one of them has finished."""

    triggers: tuple[AnyTrigger, ...]

    def __init__(self, *triggers: AnyTrigger) -> None:
        object.__setattr__(self, "triggers", _triggers(triggers, "AfterAny"))

    @property
    def finishes(self) -> bool:
        """Return whether one does."""
        return any(finishes(part) for part in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterAll(_Composed):
    """Fire when all of the triggers would, then finish. One that would fire waits for the others."""

    triggers: tuple[AnyTrigger, ...]

    def __init__(self, *triggers: AnyTrigger) -> None:
        object.__setattr__(self, "triggers", _triggers(triggers, "AfterAll"))

    @property
    def fires(self) -> bool:
        """Return whether all do."""
        return all(fires(part) for part in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AfterEach(_Composed):
    """Be each trigger in turn: the next one begins with the row after the batch in which the one before has finished.

    It finishes with the last one.
    """

    triggers: tuple[AnyTrigger, ...]

    def __init__(self, *triggers: AnyTrigger) -> None:
        object.__setattr__(self, "triggers", _triggers(triggers, "AfterEach"))

    @property
    def fires(self) -> bool:
        """Return whether the first one does."""
        return fires(self.triggers[0])

    @property
    def finishes(self) -> bool:
        """Return whether all do."""
        return all(finishes(part) for part in self.triggers)

    @property
    def purges(self) -> bool:
        """Return whether each fires and does: one that never fires, and is reached, holds rows for ever."""
        return all(fires(part) and purges(part) for part in self.triggers)


@dataclass(frozen=True, slots=True)
class Repeatedly(Trigger):
    """Be a trigger that begins again whenever it has finished."""

    trigger: AnyTrigger

    def __post_init__(self) -> None:
        """Raise JobError for what is no trigger."""
        checked_trigger(self.trigger, "Repeatedly")

    @property
    def parts(self) -> tuple[AnyTrigger, ...]:
        """Return it."""
        return (self.trigger,)

    @property
    def fires(self) -> bool:
        """Return whether it does."""
        return fires(self.trigger)

    @property
    def finishes(self) -> bool:
        """Return that this does not."""
        return False

    @property
    def purges(self) -> bool:
        """Return whether it does."""
        return purges(self.trigger)

    def __str__(self) -> str:
        return f"Repeatedly({trigger_words(self.trigger)})"


@dataclass(frozen=True, slots=True)
class OrFinally(Trigger):
    """Be `main` until it finishes, or until `until` fires: that is the last firing."""

    main: AnyTrigger
    until: AnyTrigger

    def __post_init__(self) -> None:
        """Raise JobError for what is no trigger."""
        checked_trigger(self.main, "OrFinally")
        checked_trigger(self.until, "OrFinally")

    @property
    def parts(self) -> tuple[AnyTrigger, ...]:
        """Return both."""
        return (self.main, self.until)

    @property
    def fires(self) -> bool:
        """Return whether one does."""
        return fires(self.main) or fires(self.until)

    @property
    def finishes(self) -> bool:
        """Return whether `until` fires, or `main` finishes."""
        return fires(self.until) or (finishes(self.main))

    @property
    def purges(self) -> bool:
        """Return whether `main` does: `until` is followed by nothing."""
        return purges(self.main)

    def __str__(self) -> str:
        return f"OrFinally({trigger_words(self.main)}, {trigger_words(self.until)})"


@dataclass(frozen=True, slots=True)
class Purging(Trigger):
    """Be a trigger of which each firing drops the rows of the window."""

    trigger: AnyTrigger

    def __post_init__(self) -> None:
        """Raise JobError for what is no trigger."""
        checked_trigger(self.trigger, "Purging")

    @property
    def parts(self) -> tuple[AnyTrigger, ...]:
        """Return it."""
        return (self.trigger,)

    @property
    def fires(self) -> bool:
        """Return whether it does."""
        return fires(self.trigger)

    @property
    def finishes(self) -> bool:
        """Return whether it does."""
        return finishes(self.trigger)

    @property
    def purges(self) -> bool:
        """Return that it does."""
        return True

    @property
    def empties(self) -> bool:
        """Return whether it fires."""
        return self.fires

    def __str__(self) -> str:
        return f"Purging({trigger_words(self.trigger)})"


def _triggers(triggers: tuple[object, ...], where: str) -> tuple[AnyTrigger, ...]:
    if not triggers:
        raise job_error(f"{where} needs at least one trigger")
    return tuple(checked_trigger(trigger, where) for trigger in triggers)
