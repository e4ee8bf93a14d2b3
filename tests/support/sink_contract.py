"""The contract of sinks, as the test modules of Penstock's own sinks import it."""

from __future__ import annotations

from penstock.testing.sink_contract import (
    APP,
    CreatingContract,
    DeduplicatingContract,
    RepeatingContract,
    TruncatableContract,
    World,
)

__all__ = [
    "APP",
    "CreatingContract",
    "DeduplicatingContract",
    "RepeatingContract",
    "TruncatableContract",
    "World",
]
