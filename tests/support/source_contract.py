"""The contract of sources, as the test modules of Penstock's own sources import it."""

from __future__ import annotations

from penstock.testing.source_contract import Feed, Grow, SourceContract, count, read, spans

__all__ = ["Feed", "Grow", "SourceContract", "count", "read", "spans"]
