"""Describe windows of batch time: the rows of the batches of the last few seconds (SEMANTICS 4)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.durations import Duration, duration_micros

__all__ = ["BatchWindow"]


@dataclass(frozen=True, slots=True, init=False)
class BatchWindow:
    """The rows of all batches with times in (T - length, T], at each T that is a multiple of the slide from zero.

    Attributes:
        length: Microseconds, a multiple of the job's interval.
        slide: Microseconds, likewise; None for each batch time.
    """

    length: int
    slide: int | None

    def __init__(self, length: Duration, *, slide: Duration | None = None) -> None:
        """Take durations that are multiples of the job's interval.

        Args:
            length: How long a row stays in windows.
            slide: How long until the next window; the job's interval where it is not given. Where it is longer than
                `length`, the rows of the batches between are in no window.

        Raises:
            JobError: One of them is no duration, or not above 0.
        """
        object.__setattr__(self, "length", duration_micros(length, "the length of a window", least=1))
        every = None if slide is None else duration_micros(slide, "the slide of a window", least=1)
        object.__setattr__(self, "slide", every)

    def __str__(self) -> str:
        """Return length and slide in words."""
        every = "batch" if self.slide is None else f"{Duration(self.slide)}"
        return f"{Duration(self.length)} of batch time every {every}"
