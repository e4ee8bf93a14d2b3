"""Read of the log of a job from Kafka which offsets each batch has read, and how many records have been read yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from tools.demo_kafka_check import Batch

__all__ = ["read_batches", "rows_read"]


def read_batches(folder: Path, source: str) -> list[Batch]:
    """Return what the Offsets of each committed batch say that it reads of a source with one topic."""
    log = Log(LocalStore(folder))
    entries = [entry for _, entry in log.entries_back(log.find_tail())][::-1]
    committed = {entry.batch for entry in entries if isinstance(entry, Commit)}
    fixed = [entry for entry in entries if isinstance(entry, Offsets) and entry.batch in committed]
    return [Batch(id=entry.batch, time=entry.time, ranges=_ranges(entry, source)) for entry in fixed]


def rows_read(folder: Path, source: str) -> int:
    """Return how many records of a source all batches have read that are committed, those in quarantine included."""
    log = Log(LocalStore(folder))
    for _, entry in log.entries_back(log.find_tail()):
        if isinstance(entry, Commit):
            return entry.totals.get(f"source:{source}", {}).get("read", 0)
    return 0


def _ranges(entry: Offsets, source: str) -> dict[int, tuple[int, int]]:
    """Return the first offset of each partition and the one after its last; of a batch without records, none."""
    span: Any = entry.ranges[source]["span"]
    return {} if span is None else {partition: (first, last) for _, partition, first, last in span["ranges"]}
