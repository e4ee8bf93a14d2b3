"""Ask sources as the driver does: what waits, divided and clamped, is a position."""

from __future__ import annotations

from penstock.sources.backlog import Ends, ReadLimit, clamp, divide
from penstock.sources.base import Position, SourceReader

__all__ = ["end_of_batch", "newest"]


def end_of_batch(
    reader: SourceReader, after: Position | None, limit: ReadLimit | None = None, target: Ends | None = None
) -> Position:
    """Return how far the batch behind a position reads."""
    backlog = reader.backlog(after)
    within = backlog if target is None else clamp(backlog, target)
    return dict(reader.position(after, divide(within, limit or ReadLimit())))


def newest(reader: SourceReader, after: Position | None = None) -> Ends:
    """Return how far each partition can be read now, as where a run fixes its end."""
    return {name: waiting.latest for name, waiting in reader.backlog(after).items()}
