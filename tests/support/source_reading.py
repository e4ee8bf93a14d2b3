"""Ask sources as the driver does: what waits, divided and clamped, is a position; and read files as tasks do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.sources.backlog import Ends, ReadLimit, clamp, divide
from penstock.sources.base import Position, SourceReader
from penstock.sources.replay import ReplayReader

__all__ = ["csv", "end_of_batch", "newest", "rows"]


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


def csv(tmp_path: Path, text: str) -> Path:
    """Return a CSV file with this text."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return path


def rows(reader: ReplayReader) -> pa.Table:
    """Return all rows in replay order, as the tasks read them."""
    span = {"from": 0, "to": reader.count}
    return pa.concat_tables(reader.task_reader().read(span, 0, 1))
