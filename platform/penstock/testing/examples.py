"""The number of examples of a property."""

from __future__ import annotations

import os

__all__ = ["examples"]

_FACTOR = "PENSTOCK_EXAMPLES"
"""The variable that `make soak` sets."""


def examples(daily: int) -> int:
    """Return how many examples Hypothesis makes up: so many each day, and a multiple of it in `make soak`.

    Each run makes up others, so that days add up to what a long run tries at once.
    """
    return daily * int(os.environ.get(_FACTOR, "1"))
