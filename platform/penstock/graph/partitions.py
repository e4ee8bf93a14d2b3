"""Count the state partitions of a step: those that the code names, or else a default."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.graph.source_location import job_error

__all__ = ["MOST_PARTITIONS", "checked_partitions", "default_partitions", "defaulting_to", "usable_cores"]

MOST_PARTITIONS = 4096

_DEFAULT: ContextVar[Callable[[str], int] | None] = ContextVar("default_partitions", default=None)


def checked_partitions(partitions: object) -> int:
    """Return a number of state partitions; raise JobError at the user's line for what is none."""
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= MOST_PARTITIONS:
        raise job_error(f"partitions is {partitions!r}, not a number from 1 to {MOST_PARTITIONS}")
    return partitions


def default_partitions(step: str) -> int:
    """Return how many state partitions a step gets whose code names no number."""
    choose = _DEFAULT.get()
    return usable_cores() if choose is None else choose(step)


@contextmanager
def defaulting_to(choose: Callable[[str], int]) -> Iterator[None]:
    """Ask `choose`, with the name of the step, for each number that a job built meanwhile does not name.

    A project's loader knows what the checkpoint has and what Spark is given; a graph knows neither.
    """
    token = _DEFAULT.set(choose)
    try:
        yield
    finally:
        _DEFAULT.reset(token)


def usable_cores() -> int:
    """Return the number of cores that this process may use, which a container or taskset may have lowered."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return min(len(affinity(0)) if affinity is not None else os.cpu_count() or 1, MOST_PARTITIONS)
