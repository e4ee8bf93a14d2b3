"""Read files as tasks do, and ask sources as the driver does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.sources.replay import ReplayReader
from penstock.testing.source_contract import end_of_batch, newest

__all__ = ["csv", "end_of_batch", "newest", "rows"]


def csv(tmp_path: Path, text: str) -> Path:
    """Return a CSV file with this text."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return path


def rows(reader: ReplayReader) -> pa.Table:
    """Return all rows in replay order, as the tasks read them."""
    span = {"from": 0, "to": reader.count}
    return pa.concat_tables(reader.task_reader().read(span, 0, 1))
