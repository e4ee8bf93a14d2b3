"""Global windows by the definitions alone: triggers row by row as Beam and Flink define them, evictors over lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from penstock.graph.durations import Count
from penstock.graph.window_evictors import Evictor, KeepDelta, KeepLast, KeepNewest
from penstock.time.clock import END_OF_TIME
from penstock.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelta,
    AfterEach,
    AfterEventTime,
    AfterFirst,
    AfterProcessingTime,
    AtEnd,
    Every,
    OrFinally,
    Purging,
    Repeatedly,
    TriggerResult,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Clock:
    """The clocks of a batch, in microseconds."""

    time: int
    watermark: int | None
    zero: int = 0


class Judge:
    """A trigger of one key: `row` takes a row, `wants` says whether it would fire, `fire` that it does."""

    def __init__(self, trigger: Any) -> None:
        self.trigger = trigger
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again."""
        self.finished = False
        self.count = 0
        self.since: int | None = None
        self.far = False
        self.last: float | None = None
        if not getattr(self, "keeps", False):
            self.reference: float | None = None
        self.keeps = False
        self.next: int | None = None
        self.state: dict[str, Any] = {}
        self.result: str | None = None
        parts = getattr(self.trigger, "parts", ())
        if isinstance(self.trigger, Every) and isinstance(self.trigger.period, Count):
            parts = (AfterCount(self.trigger.period.rows),)
        if hasattr(self, "parts"):
            for part in self.parts:
                part.begin()
        else:
            self.parts = [Judge(part) for part in parts]

    def row(self, row: Row, clock: Clock) -> None:
        """Take a row."""
        if self.finished:
            return
        match self.trigger:
            case AfterEach():
                self._turn().row(row, clock)
                return
            case AfterCount():
                self.count += 1
            case AfterProcessingTime():
                self.since = clock.time if self.since is None else self.since
            case AfterEventTime():
                self.since = row["t"] if self.since is None else min(self.since, row["t"])
            case AfterDelta():
                self._value(row["v"])
            case Every() if not isinstance(self.trigger.period, Count):
                known = [] if clock.watermark is None else [clock.watermark]
                since = max([row["t"], *known]) if self.trigger.event else clock.time - 1
                awaited = [self.next, self._multiple(since, clock)]
                self.next = min((moment for moment in awaited if moment is not None), default=None)
            case _ if hasattr(self.trigger, "on_row"):
                self.trigger.on_row(self.state, dict(row), None)
        for part in self.parts:
            part.row(row, clock)

    def wants(self, clock: Clock, rows: int) -> str | None:
        """Return "fire", "purge" or None; asked once a batch."""
        for part in self.parts:
            part.result = None
        self.result = None if self.finished else self._result(clock, rows)
        return self.result

    def _result(self, clock: Clock, rows: int) -> str | None:  # noqa: PLR0911 - one for each trigger
        if isinstance(self.trigger, AfterEach):
            return self._turn().wants(clock, rows)
        results = [part.wants(clock, rows) for part in self.parts]
        greatest = "purge" if "purge" in results else "fire" if "fire" in results else None
        match self.trigger:
            case AfterCount():
                return "fire" if self.count >= self.trigger.rows else None
            case AfterProcessingTime():
                return (
                    "fire" if self.since is not None and self.since + self.trigger.delay.micros <= clock.time else None
                )
            case AfterEventTime():
                mark = clock.watermark
                due = self.since is not None and mark is not None and self.since + self.trigger.delay.micros <= mark
                return "fire" if due else None
            case AfterDelta():
                return "fire" if self.far else None
            case AtEnd():
                return "fire" if clock.watermark == END_OF_TIME else None
            case Every() if not isinstance(self.trigger.period, Count):
                now = clock.watermark if self.trigger.event else clock.time
                return "fire" if self.next is not None and now is not None and self.next <= now else None
            case AfterAll():
                return None if None in results else greatest
            case Purging():
                return "purge" if greatest else None
            case _ if hasattr(self.trigger, "judge"):
                self.pending = deepcopy(self.state)
                result = self.trigger.judge(self.pending, None)
                if result is TriggerResult.CONTINUE:
                    self.state = self.pending
                return {TriggerResult.FIRE: "fire", TriggerResult.FIRE_AND_PURGE: "purge"}.get(result)
        return greatest

    def fire(self, clock: Clock, rows: int) -> None:  # noqa: C901, PLR0912 - a case for each trigger
        """Fire."""
        ready = [part for part in self.parts if part.result is not None]
        match self.trigger:
            case AfterCount() | AfterProcessingTime() | AfterEventTime() | AtEnd():
                self.finished = True
            case AfterDelta():
                self.reference, self.far, self.finished, self.keeps = self.last, False, True, True
            case Every() if not isinstance(self.trigger.period, Count):
                now = clock.watermark if self.trigger.event else clock.time
                assert now is not None
                self.next = self._multiple(now, clock)
            case Repeatedly() | Every():
                (part,) = self.parts
                part.fire(clock, rows)
                if part.finished:
                    part.begin()
            case AfterFirst() | AfterAll():
                for part in self.parts:
                    part.fire(clock, rows) if part in ready else part.begin()
                self.finished = True
            case AfterAny():
                for part in ready:
                    part.fire(clock, rows)
                self.finished = any(part.finished for part in self.parts)
            case AfterEach():
                self._turn().fire(clock, rows)
                self.finished = all(part.finished for part in self.parts)
            case OrFinally():
                main, until = self.parts
                (until if until in ready else main).fire(clock, rows)
                self.finished = until in ready or main.finished
            case Purging():
                (part,) = self.parts
                part.fire(clock, rows)
                self.finished = part.finished
            case _ if hasattr(self.trigger, "judge"):
                self.state = self.pending

    def comes(self, before: Clock, now: Clock) -> bool:
        """Return whether a moment that it waits for has come since."""
        if self.finished:
            return False
        if isinstance(self.trigger, AfterEach):
            return self._turn().comes(before, now)
        match self.trigger:
            case AfterProcessingTime() | AfterEventTime() | AtEnd():
                return self._result(now, 1) is not None and self._result(before, 1) is None
            case Every() if not isinstance(self.trigger.period, Count):
                return self._result(now, 1) is not None
        return any(part.comes(before, now) for part in self.parts)

    def emptied(self) -> None:
        """Have no row any more."""
        self.next = None
        for part in self.parts:
            part.emptied()

    def _turn(self) -> Judge:
        return next(part for part in self.parts if not part.finished)

    def _value(self, value: float | None) -> None:
        if value is None or value != value:  # noqa: PLR0124 - NaN
            return
        if self.reference is None:
            self.reference = value
        self.far = self.far or abs(value - self.reference) > self.trigger.threshold
        self.last = value

    def _multiple(self, since: int, clock: Clock) -> int | None:
        zero = 0 if self.trigger.event else clock.zero
        period = self.trigger.period.micros
        return None if since == END_OF_TIME else zero + ((since - zero) // period + 1) * period


def evicted(evictor: Evictor | None, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that stay."""
    match evictor:
        case KeepLast():
            return list(rows[-evictor.rows :])
        case KeepNewest():
            newest = max(row["t"] for row in rows)
            return [row for row in rows if row["t"] > newest - evictor.within.micros]
        case KeepDelta():
            given = [row["v"] for row in rows if row["v"] is not None]
            return [row for row in rows if row["v"] is None or abs(row["v"] - given[-1]) < evictor.threshold]
    return list(rows)


@dataclass
class Window:
    """The window of one key."""

    judge: Judge
    rows: list[Row] = field(default_factory=list)
    seen: int = 0


@dataclass
class Model:
    """All windows; `batch` returns what fires, by key, and the rows that came after a finish."""

    trigger: Any
    evictor: Evictor | None = None
    ttl: int | None = None
    windows: dict[Any, Window] = field(default_factory=dict)
    expired: int = 0
    before: Clock = Clock(0, None)

    def batch(self, rows: Sequence[Row], clock: Clock) -> tuple[dict[Any, list[Row]], list[Row]]:
        """Take a batch: a key is judged if it has rows, or a moment has come that its trigger waits for."""
        late, came = [], set()
        for row in rows:
            window = self.windows.setdefault(row["k"], Window(Judge(self.trigger)))
            if window.judge.finished:
                late.append(row)
                continue
            window.rows.append(row)
            window.seen = clock.time
            window.judge.row(row, clock)
            came.add(row["k"])
        fired = {}
        for key, window in self.windows.items():
            awake = window.rows and (key in came or window.judge.comes(self.before, clock))
            result = window.judge.wants(clock, len(window.rows)) if awake else None
            if result is not None:
                window.judge.fire(clock, len(window.rows))
                window.rows = evicted(self.evictor, window.rows)
                fired[key] = window.rows
                if result == "purge" or window.judge.finished:
                    window.rows = []
            if not window.rows:
                window.judge.emptied()
        for key in [*self.windows]:
            window = self.windows[key]
            if self.ttl is not None and key not in came and window.seen + self.ttl < clock.time:
                self.expired += len(window.rows)
                del self.windows[key]
        self.before = clock
        return fired, late
