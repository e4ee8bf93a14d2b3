"""Judge compositions of triggers, and build the machine of any trigger (SEMANTICS 6).

They finish and begin again as Beam's do: `AfterFirst`, `AfterAll`, `AfterEach.inOrder`, `Repeatedly.forever`,
`orFinally`, and the `AfterAny` of its Python SDK.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.graph.durations import Count, Duration
from penstock.graph.trigger_compositions import (
    AfterAll,
    AfterAny,
    AfterEach,
    AfterFirst,
    OrFinally,
    Purging,
    Repeatedly,
)
from penstock.graph.trigger_protocol import AnyTrigger, Trigger
from penstock.graph.window_triggers import (
    AfterCount,
    AfterDelta,
    AfterEventTime,
    AfterProcessingTime,
    AtEnd,
    Every,
    Never,
)
from penstock.operators.triggers.machines import (
    CONTINUE,
    FIRE,
    PURGE,
    Codes,
    CountMachine,
    DelayMachine,
    DeltaMachine,
    Dues,
    EndMachine,
    Machine,
    NeverMachine,
    PeriodMachine,
    TriggerBatch,
)
from penstock.operators.triggers.row_triggers import RowTriggerMachine, RowTriggers
from penstock.state.keys import Bools, Ints

__all__ = ["machine_of"]


def machine_of(trigger: AnyTrigger, own: RowTriggers, at: int = 0) -> Machine:
    """Return the machine of a trigger, whose slots begin at a column; `own` has the state of triggers of the user's."""
    if not isinstance(trigger, Trigger):
        return RowTriggerMachine(at, trigger, own)
    if isinstance(trigger, Every) and isinstance(trigger.period, Count):
        return _Repeatedly(at, [AfterCount(trigger.period.rows)], own)
    if trigger.parts:
        return _COMPOSED[type(trigger)](at, trigger.parts, own)
    return _machine(trigger, at)


def _machine(trigger: Trigger, at: int) -> Machine:
    match trigger:
        case AfterCount():
            return CountMachine(at, trigger.rows)
        case AfterProcessingTime() | AfterEventTime():
            return DelayMachine(at, trigger.delay.micros, event=trigger.event)
        case AfterDelta():
            return DeltaMachine(at, trigger.value, trigger.threshold)
        case Every() if isinstance(trigger.period, Duration):
            return PeriodMachine(at, trigger.period.micros, event=trigger.event)
        case AtEnd():
            return EndMachine(at)
        case Never():
            return NeverMachine(at)
    raise TypeError(f"{trigger} has no machine")


class _Composed(Machine):
    """A trigger of several parts, whose slots follow its own."""

    def __init__(self, at: int, parts: Sequence[AnyTrigger], own: RowTriggers) -> None:
        super().__init__(at)
        self.parts: list[Machine] = []
        after = at + len(self.begin)
        for part in parts:
            machine = machine_of(part, own, after)
            self.parts.append(machine)
            after += machine.width

    @property
    def width(self) -> int:
        return len(self.begin) + sum(part.width for part in self.parts)

    def first(self) -> list[int]:
        return [*self.begin, *(slot for part in self.parts for slot in part.first())]

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        for part in self.parts:
            part.take(slots, batch, mask & ~self.finished(slots))

    def ready(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> Codes:
        mask = mask & ~self.finished(slots)
        self.codes = np.where(mask, self.composed([part.ready(slots, batch, mask) for part in self.parts]), CONTINUE)
        return self.codes

    def composed(self, codes: Sequence[Codes]) -> Codes:
        """Return the decision that those of the parts give."""
        greatest: Codes = np.maximum.reduce(codes)
        return greatest

    def reset(self, slots: Ints, mask: Bools) -> None:
        slots[mask, self.at : self.at + len(self.begin)] = self.begin
        for part in self.parts:
            part.reset(slots, mask)

    def emptied(self, slots: Ints, mask: Bools) -> None:
        for part in self.parts:
            part.emptied(slots, mask)

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        dues = Dues.never(len(slots))
        for part in self.parts:
            dues = dues.earlier(part.dues(slots, batch))
        return dues.only(~self.finished(slots))

    def fire_ready(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        """Have each part fire that would."""
        for part in self.parts:
            part.fire(slots, batch, mask & (part.codes != CONTINUE))


class _First(_Composed):
    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        self.fire_ready(slots, batch, mask)
        for part in self.parts:
            part.reset(slots, mask & (part.codes == CONTINUE))
        slots[mask, self.at] = 1


class _Any(_Composed):
    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        self.fire_ready(slots, batch, mask)
        for part in self.parts:
            slots[mask & part.finished(slots), self.at] = 1


class _All(_Composed):
    def composed(self, codes: Sequence[Codes]) -> Codes:
        return np.where(np.minimum.reduce(codes) == CONTINUE, CONTINUE, np.maximum.reduce(codes))

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        self.fire_ready(slots, batch, mask)
        slots[mask, self.at] = 1


class _Each(_Composed):
    def _turns(self, slots: Ints) -> list[Bools]:
        """Return for each part the keys whose turn it is."""
        turns, before = [], np.ones(len(slots), dtype=np.bool_)
        for part in self.parts:
            over = part.finished(slots)
            turns.append(before & ~over)
            before &= over
        return turns

    def take(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        for part, turn in zip(self.parts, self._turns(slots), strict=True):
            part.take(slots, batch, mask & turn)

    def ready(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> Codes:
        turns = zip(self.parts, self._turns(slots), strict=True)
        self.codes = np.maximum.reduce([part.ready(slots, batch, mask & turn) for part, turn in turns])
        return self.codes

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        for part, turn in zip(self.parts, self._turns(slots), strict=True):
            part.fire(slots, batch, mask & turn)
        slots[mask & self.parts[-1].finished(slots), self.at] = 1

    def dues(self, slots: Ints, batch: TriggerBatch) -> Dues:
        dues = Dues.never(len(slots))
        for part, turn in zip(self.parts, self._turns(slots), strict=True):
            dues = dues.earlier(part.dues(slots, batch).only(turn))
        return dues


class _Repeatedly(_Composed):
    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        (part,) = self.parts
        part.fire(slots, batch, mask)
        part.reset(slots, mask & part.finished(slots))


class _OrFinally(_Composed):
    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        main, until = self.parts
        last = mask & (until.codes != CONTINUE)
        until.fire(slots, batch, last)
        main.fire(slots, batch, mask & ~last)
        slots[mask & (last | main.finished(slots)), self.at] = 1


class _Purging(_Composed):
    def composed(self, codes: Sequence[Codes]) -> Codes:
        return np.where(codes[0] >= FIRE, PURGE, CONTINUE)

    def fire(self, slots: Ints, batch: TriggerBatch, mask: Bools) -> None:
        (part,) = self.parts
        part.fire(slots, batch, mask)
        slots[mask & part.finished(slots), self.at] = 1

    def reset(self, slots: Ints, mask: Bools) -> None:
        (part,) = self.parts
        part.reset(slots, mask)
        slots[mask, self.at] = 0


_COMPOSED: dict[type[Trigger], type[_Composed]] = {
    AfterFirst: _First,
    AfterAny: _Any,
    AfterAll: _All,
    AfterEach: _Each,
    Repeatedly: _Repeatedly,
    OrFinally: _OrFinally,
    Purging: _Purging,
}
