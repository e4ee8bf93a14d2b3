"""Count and sum by key as a Bytewax dataflow, in an environment without Penstock.

For `python -m bytewax.run "bytewax_flow:dataflow('FOLDER', 'BATCHES')"`. Each worker tells in lines of JSON how many
rows have come out of it, and when.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

TOLD = 20_000
AT_ONCE = 1_000


class _Part(StatefulSourcePartition):
    """Hand out the rows of every second file, a thousand at a time."""

    def __init__(self, files: list[Path], done: int) -> None:
        self.done = done
        self.rows = self._rows(files[done:])

    def _rows(self, files: list[Path]) -> Iterator[list[tuple[str, int]]]:
        for path in files:
            table = pq.read_table(path, columns=["k", "v"])
            rows = list(zip(map(str, table["k"].to_pylist()), table["v"].to_pylist(), strict=True))
            for first in range(0, len(rows), AT_ONCE):
                yield rows[first : first + AT_ONCE]
            self.done += 1

    def next_batch(self) -> list[tuple[str, int]]:
        """Return the next rows, each with its key; Bytewax wants keys to be texts."""
        return next(self.rows)

    def snapshot(self) -> int:
        """Return how many files are done."""
        return self.done


class Files(FixedPartitionedSource):
    """Read the files of a folder in two parts."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def list_parts(self) -> list[str]:
        """Return the names of the parts."""
        return ["0", "1"]

    def build_part(self, _step: str, part: str, done: int | None) -> _Part:
        """Return one of them, from where it was."""
        return _Part(self.files[int(part) :: 2], done or 0)


class _Counted(StatelessSinkPartition):
    def __init__(self) -> None:
        self.rows = self.said = 0
        self.at = 0.0

    def write_batch(self, items: list[Any]) -> None:
        """Throw the rows away, and say now and then how many there were."""
        self.rows += len(items)
        self.at = time.time()
        if self.rows >= self.said + TOLD:
            self.said = self.rows
            self.close()

    def close(self) -> None:
        """Say how many there were, and when the last of them came."""
        print(json.dumps({"at": self.at, "rows": self.rows}), flush=True)


class Counted(DynamicSink):
    """Throw every row away."""

    def build(self, _step: str, _index: int, _count: int) -> _Counted:
        """Return the sink of a worker."""
        return _Counted()


def total(state: tuple[int, int] | None, value: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Count and sum."""
    count, so_far = state or (0, 0)
    now = (count + 1, so_far + value)
    return now, now


def dataflow(folder: str, batches: str) -> Dataflow:
    """Return the dataflow over the files of so many batches."""
    files = [Path(folder) / f"{batch:06d}-{part}.parquet" for batch in range(int(batches)) for part in range(2)]
    flow = Dataflow("totals")
    rows = op.input("rows", flow, Files(files))
    op.output("out", op.stateful_map("totals", rows, total), Counted())
    return flow
