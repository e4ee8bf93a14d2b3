"""Hear, while a driver runs, what is wanted of it: to stop, to drain, to make room, to read less.

Signals reach processes of one machine only, so orders come through storage, where the driver looks for them. Who gives
them and how they are kept is not known here: `supervise.orders` reads them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from penstock.errors import Fenced, PenstockError
from penstock.graph.names import is_name
from penstock.rates.limits import Limits
from penstock.runtime.process.signals import StopSwitch

__all__ = ["EVERY", "ControlState", "OrderWatch", "Orders"]

log = structlog.get_logger()

EVERY = 1.0
"""Seconds between two looks."""
FRESH = 60.0
"""Seconds of the driver's own clock for which an ask holds: who waits asks again, and who was killed does not."""
CHECKED = 600.0
"""Seconds of the driver's own clock for which it keeps the batch of a restart whose check has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """What is wanted of a driver now; `over` says why its generation is not the newest, None where it is.

    `begins` is the batch that the newer generation begins at, None where it resumes from the last.
    `limits` lie over those of the configuration, as far as somebody has set any. `saves` are the requested names for
    the newest checkpoint, each with a number that changes with each request. `unsaves` are, in the same way, the names
    to delete. `checks` are the batches of restarts that are being checked, by ids of the checks. `ignored` are the ids
    of what was asked before a driver that was started by hand.
    """

    stop: bool = False
    drain: bool = False
    over: str | None = None
    begins: int | None = None
    limits: Limits = field(default_factory=Limits)
    saves: Mapping[str, int] = field(default_factory=dict)
    unsaves: Mapping[str, int] = field(default_factory=dict)
    checks: Mapping[str, int] = field(default_factory=dict)
    ignored: frozenset[str] = field(default=frozenset(), compare=False)


class Orders(Protocol):
    """The orders for this driver."""

    def look(self) -> ControlState:
        """Return the newest order; may raise what storage raises."""


class OrderWatch:
    """Look for orders from a thread of its own, and pass them on.

    Storage that does not answer changes no order: the driver keeps the last one, and its log decides.
    `first` are the limits that hold as far as no order has others. `drain` is called once, when an order wants the job
    drained, and at once where an earlier order did.
    """

    def __init__(self, orders: Orders, switch: StopSwitch, *, first: Limits) -> None:
        self._orders = orders
        self._switch = switch
        self._first = first
        self._order: ControlState | None = None
        self._heard: dict[tuple[str, str, int], float] = {}
        self._checks: dict[tuple[str, int], float] = {}
        self._drain: Callable[[], None] | None = None
        self._failing = False
        self._end = threading.Event()

    def limits(self) -> Limits:
        """Return what bounds the next batch."""
        return self._first if self._order is None else self._order.limits.over(self._first)

    def ignored(self) -> list[str]:
        """Return the ids of commands that are not for this driver."""
        return [] if self._order is None else sorted(self._order.ignored)

    def saves(self) -> tuple[str, ...]:
        """Return the names that are asked for the newest checkpoint, by somebody who still waits for it.

        No two clocks are compared. What was asked before this driver first looked may be of somebody who was killed
        since, so it counts from when it is asked again.
        """
        return self._asked("saves")

    def unsaves(self) -> tuple[str, ...]:
        """Return the names that are to be deleted, in the same way."""
        return self._asked("unsaves")

    def _asked(self, what: str) -> tuple[str, ...]:
        since = time.monotonic() - FRESH
        # What is no name was not written by us, and must not end a driver.
        return tuple(
            name for (kind, name, _), at in self._heard.items() if kind == what and at > since and is_name(name)
        )

    def needed(self) -> set[int]:
        """Look at which batches a next driver is to begin, or may after a check: they must not be purged then."""
        with suppress(PenstockError, OSError):  # the thread tells it
            order, now = self._orders.look(), time.monotonic()
            self._checks = {check: self._checks.get(check, now) for check in order.checks.items()}
            checked = {batch for (_, batch), at in self._checks.items() if now - at < CHECKED}
            return checked if order.begins is None else {order.begins, *checked}
        return set()

    def on_drain(self, drain: Callable[[], None]) -> None:
        """Register the callback for an order to drain."""
        self._drain = drain
        if self._order is not None and self._order.drain:
            drain()

    def look(self) -> None:
        """Look once; raises Fenced where this generation is over, or what storage raises."""
        self._pass_on(self._orders.look())
        self.refuse_if_over()

    def refuse_if_over(self) -> None:
        """Raise Fenced where a newer generation was claimed."""
        if self._order is not None and self._order.over is not None:
            raise Fenced(self._order.over)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again inside the block."""
        thread = threading.Thread(target=self._watch, name="penstock-orders", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(timeout=EVERY)

    def _watch(self) -> None:
        while not self._end.wait(EVERY):
            try:
                self._pass_on(self._orders.look())
            except (PenstockError, OSError) as why:
                if not self._failing:
                    log.warning("orders.not_read", reason=str(why))
                self._failing = True
            else:
                self._failing = False

    def _pass_on(self, order: ControlState) -> None:
        now = -math.inf if self._order is None else time.monotonic()
        asks = [("saves", *ask) for ask in order.saves.items()] + [("unsaves", *ask) for ask in order.unsaves.items()]
        self._heard = {ask: self._heard.get(ask, now) for ask in asks}
        before, self._order = self._order or ControlState(), order
        if order.limits != before.limits:
            log.info("orders.limit", **self.limits().set_limits())
        if order.drain and not before.drain and self._drain is not None:
            self._drain()
        if (order.stop or order.over is not None) and not self._switch.heard:
            log.info("orders.stop", reason=order.over or "a stop was asked for")
            self._switch.ask()
