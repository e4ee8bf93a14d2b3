"""Find a port for another process, and wait for what it does."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

Answer = TypeVar("Answer")


def until(answer_of: Callable[[], Answer], what: str = "it to come", *, seconds: float = 60) -> Answer:
    """Return the first answer that says something; fails where none comes at all."""
    ends = time.monotonic() + seconds
    while not (answer := answer_of()):
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.01)
    return answer


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
