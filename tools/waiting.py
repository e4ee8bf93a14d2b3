"""Wait for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def until(answer_of: Callable[[], Answer], what: str = "it to come", *, seconds: float = 60) -> Answer:
    """Return the first answer that says something; fails where none comes at all."""
    ends = time.monotonic() + seconds
    while not (answer := answer_of()):
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.01)
    return answer
