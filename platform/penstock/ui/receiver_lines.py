"""Read what a driver's record says of its receivers, for the page of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["ReceiverLine", "receivers_of"]

_RUNNING, _STOPPED = "running", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverLine:
    """One receiver: its name, as `orders-0`, its state in words, and what it has done in this driver's run.

    `address` is where senders reach it, or what it reads from, and `host` its machine of a cluster; None where that is
    unknown. `error` is its newest one.
    """

    name: str
    state: str
    rows: int
    restarts: int
    address: str | None
    host: str | None
    error: str | None

    @property
    def works(self) -> bool:
        """Return whether it receives, or was stopped on purpose."""
        return self.state in (_RUNNING, _STOPPED)


def receivers_of(record: object) -> tuple[ReceiverLine, ...]:
    """Return the receivers of a record; what makes no sense counts as not there (F77)."""
    return tuple(_lines(record)) if isinstance(record, list) else ()


def _lines(record: list[Any]) -> Iterator[ReceiverLine]:
    for state in record:
        if not isinstance(state, dict) or not isinstance(state.get("receiver"), str):
            continue
        yield ReceiverLine(
            name=state["receiver"],
            state=_text(state.get("state")) or "unknown",
            rows=_count(state.get("rows")),
            restarts=_count(state.get("restarts")),
            address=_text(state.get("address")),
            host=_text(state.get("host")),
            error=_text(state.get("error")),
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0
