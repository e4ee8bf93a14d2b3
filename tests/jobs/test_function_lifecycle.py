"""Functions that are objects, opened in each task and told where the stream is (API, `info`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import Job
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

OUT = "k string, batch long, epoch long"


class Opened:
    """A function that keeps what it was told when it was opened, in the task that opened it and in no other."""

    info: Any = None

    def open(self, info: Any) -> None:
        """Keep it."""
        assert self.info is None
        self.info = info

    def close(self) -> None:
        """Let it go."""
        self.info = None


class ByRow(Opened):
    """Row by row."""

    def __call__(self, time, key, row, state):
        state.update(n=1)
        return {"k": key, "batch": self.info.batch, "epoch": self.info.epoch}


class ByTable(Opened):
    """Vectorised; it is told once more."""

    def __call__(self, rows, state, info):
        infos = [(info.batch, info.time, info.watermark, info.epoch)] * info.keys.num_rows
        assert set(infos) == {(self.info.batch, self.info.time, self.info.watermark, self.info.epoch)}
        out = info.keys.append_column("batch", pa.array([info[0] for info in infos], pa.int64()))
        return out.append_column("epoch", pa.array([info[3] for info in infos], pa.int64())), pa.table(
            {"n": [1] * len(infos)}
        )


class ByKey(Opened):
    """All values of a key at once; its state is what it was told."""

    def __call__(self, values, old):
        return {"batch": self.info.batch, "epoch": self.info.epoch}


def test_every_form_is_opened_and_told_batch_and_epoch(tmp_path: Path) -> None:
    """The epoch is that of the driver: another one has a higher."""
    job = Job("opened", partitions=2)
    keyed = job.source("fed", MemorySource("k string, v long")).key_by("k")
    keyed.map_with_state("rows", ByRow(), state="n long", output=OUT, unbounded=True).write("by_row", MemorySink())
    keyed.map_with_state_arrow("tables", ByTable(), state="n long", output=OUT, unbounded=True).write(
        "by_table", MemorySink()
    )
    keyed.update_state_by_key("keys", ByKey(), state="batch long, epoch long", touched_only=True).write(
        "by_key", MemorySink()
    )

    def batch_and_epoch(h: Harness) -> list[tuple[int, int]]:
        rows = h.batch({"fed": [{"k": "a", "v": 1}]})
        assert [row["k"] for sink in ("by_row", "by_table", "by_key") for row in rows[sink]] == ["a"] * 3
        return [(row["batch"], row["epoch"]) for sink in rows for row in rows[sink]]

    with Harness(job, tmp_path) as h:
        assert batch_and_epoch(h) == [(0, h.commit().epoch)] * 3
        before = h.commit().epoch
        h.restart()
        assert batch_and_epoch(h) == [(1, h.commit().epoch)] * 3
        assert h.commit().epoch > before
