"""Find the windows of batch time that a batch fires; times and lengths are microseconds (SEMANTICS 1.3, 4.2). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from penstock.graph.batch_window import BatchWindow
from penstock.operators.protocol import StepFacts

__all__ = ["BatchEnds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnds:
    """The ends of windows: all multiples of `slide` after `zero`. A window has the batches in (end - length, end]."""

    zero: int
    slide: int
    length: int

    @classmethod
    def of(cls, window: BatchWindow, facts: StepFacts) -> Self:
        """Return the ends of a window in a job whose batches have these facts."""
        slide = window.slide or facts.interval
        assert slide is not None  # a job without ticks has no such windows
        return cls(zero=facts.zero, slide=slide, length=window.length)

    def after(self, time: int) -> int:
        """Return the first end later than a time."""
        return self.zero + (max(time - self.zero, 0) // self.slide + 1) * self.slide

    def holds(self, time: int) -> bool:
        """Return whether any window has the batch of this time."""
        return self.after(time - 1) - self.length < time

    def fired(self, facts: StepFacts) -> tuple[int, int]:
        """Return the first end that a batch may fire, and the last; the first is later where it fires none."""
        return self.after(facts.zero if facts.before is None else facts.before), self.after(facts.time) - self.slide

    def next_with(self, end: int, batch_after: Callable[[int], int | None]) -> int | None:
        """Return the first end, from `end` on, whose window has a batch with rows; None where none has.

        `batch_after` returns the time of the first batch with rows that is later than a time.
        """
        batch = batch_after(end - self.length)
        while batch is not None and batch > end:
            end = self.after(batch - 1)
            batch = batch_after(end - self.length)
        return None if batch is None else end
