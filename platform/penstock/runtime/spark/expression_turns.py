"""Decide who computes the expressions of a batch where tasks can: the tasks, or Spark (decision 192)."""

from __future__ import annotations

__all__ = ["ExpressionTurns"]

_FIRST, _LONGEST = 16, 1_024
"""Batches that Spark computes after a task has found no value, before tasks try again."""


class ExpressionTurns:
    """Let tasks compute, and Spark for a while after a batch that they have left to it.

    Both give the same values, so only the cost depends on whose turn it is. A batch that tasks leave is computed
    twice. So each such batch doubles how many follow in Spark, until tasks have computed as many without one.
    """

    def __init__(self, *, able: bool) -> None:
        """Begin with the tasks where they are `able`; otherwise Spark computes all batches."""
        self._able = able
        self._pause = _FIRST
        self._waits = 0
        self._computed = 0

    @property
    def in_tasks(self) -> bool:
        """Whether tasks compute the next batch."""
        return self._able and not self._waits

    def left(self) -> None:
        """Note that a task has found no value: Spark computes this batch, and some after it."""
        self._waits, self._computed = self._pause + 1, 0
        self._pause = min(2 * self._pause, _LONGEST)

    def done(self) -> None:
        """Note that a batch was computed."""
        if self._waits:
            self._waits -= 1
            return
        self._computed += 1
        if self._computed >= self._pause:
            self._pause = _FIRST
