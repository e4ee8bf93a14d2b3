"""Prepare the input of a benchmark: numbered Parquet files that Penstock and its peer both read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["BENCH", "SCHEMA", "Input"]

BENCH = Path(".bench")
SCHEMA = "k long, v long, d double, t timestamp"

_SPREAD = 2_654_435_761  # a prime: consecutive rows have keys that are far apart
_WORTH_TWO_FILES = 10_000
_ENCODING = {"t": "DELTA_BINARY_PACKED"}
"""Times that rise are packed as differences. By pyarrow's default they are neither small nor quick to read: two thirds
of the time that either side reads a file for would be Snappy on one column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Describe rows of `keys` keys: `rows` a batch, evenly spread over `step` microseconds of event time a batch."""

    rows: int
    keys: int
    step: int

    @property
    def files_a_batch(self) -> int:
        """Return one file for each of two cores, or one where the rows are few."""
        return 2 if self.rows >= _WORTH_TWO_FILES else 1

    @property
    def folder(self) -> Path:
        """Return where the files are."""
        return BENCH / "input" / f"packed-rows{self.rows}-keys{self.keys}-step{self.step}-files{self.files_a_batch}"

    def files(self, batch: int) -> list[Path]:
        """Return the files of a batch."""
        return [self.folder / f"{batch:06d}-{part}.parquet" for part in range(self.files_a_batch)]

    def prepare(self, batches: int) -> None:
        """Write the files that are not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            for part, path in enumerate(self.files(batch)):
                if not path.exists():
                    temporary = path.with_suffix(f".{os.getpid()}.tmp")
                    pq.write_table(
                        self._table(batch, part), temporary, use_dictionary=["k", "v", "d"], column_encoding=_ENCODING
                    )
                    temporary.rename(path)

    def _table(self, batch: int, part: int) -> pa.Table:
        first = self.rows * part // self.files_a_batch
        last = self.rows * (part + 1) // self.files_a_batch
        row = np.arange(first, last, dtype=np.int64)
        number = row + batch * self.rows
        times = batch * self.step + row * self.step // self.rows
        return pa.table(
            {
                "k": pa.array(number * _SPREAD % self.keys),
                "v": pa.array(number % 97),
                "d": pa.array(number % 97 * 0.25 + 1e-9),
                "t": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
        )
