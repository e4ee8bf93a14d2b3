"""Rows of windows that are emitted early or revised, as tests of jobs compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def row(key: str, time: float, value: int = 0) -> dict[str, Any]:
    """Return a row of windows by `k`, at seconds since 1970."""
    return {"k": key, "t": time, "v": value}


def plain(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return panes as tuples: key, end, kind, revision, and the aggregates `n` and `total`."""
    return sorted((r["k"], r["window_end"].timestamp(), r["_pane"], r["_revision"], r["n"], r["total"]) for r in rows)


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows in an order of their own, to be compared."""
    return sorted(str(sorted(r.items())) for r in rows)
