"""Evictors are imported from `penstock.evictors`."""

from __future__ import annotations

import penstock.evictors


def test_all_evictors_are_there() -> None:
    """Three ready-made ones, and what one of the user's is."""
    assert [*penstock.evictors.__all__] == ["KeepDelta", "KeepLast", "KeepNewest", "RowEvictor"]
