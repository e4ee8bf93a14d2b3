"""Publish batches of numbers into a topic of a real broker, as the driver does, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sinks import Kafka
from penstock.sinks.base import Publication, Staged
from penstock.sinks.staged_files import stage_table

__all__ = ["APP", "Writing"]

APP = "5f0c9bb4-1111-4222-8333-444455556666/out"


class Writing:
    """A sink and its staging folder; `publisher` is another run's each time."""

    def __init__(self, folder: Path, topic: str, kafka: Any, **more: Any) -> None:
        self.sink = Kafka(topic, **{"servers": kafka.address, **more})
        self.staging = folder / "staged"
        self._names = 0

    def publisher(self) -> Any:
        """Return the publisher of another run."""
        return self.sink.open(self.staging, None)

    def stage(self, rows: pa.Table) -> Staged:
        """Return a staged file."""
        self._names += 1
        return Staged(**stage_table(rows, self.staging, f"{self._names:06d}.parquet"))

    def of(self, batch: int, *files: Staged, app: str = APP) -> Publication:
        """Return what the driver asks for."""
        return Publication(app=app, batch=batch, files=files, schema=pa.schema([("k", pa.int64())]))

    def batch(self, batch: int, numbers: Sequence[int], *, app: str = APP) -> Publication:
        """Return a publication of numbers, staged in one file."""
        return self.of(batch, self.stage(pa.table({"k": pa.array(numbers, pa.int64())})), app=app)
