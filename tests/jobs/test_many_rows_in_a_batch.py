"""A batch of many rows is read by more tasks than one of few, and nothing else differs (decision 243)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, hours, seconds
from penstock.quality import OnFail
from penstock.runtime.spark import engine
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.sources.base import Span
from penstock.sources.memory import MemoryReader, MemoryTaskReader
from penstock.testing import Crashed, Harness

pytestmark = pytest.mark.spark

FEW = 5


@dataclass(frozen=True)
class Noting(MemoryTaskReader):
    """Read a part of a span, and note in a folder into how many parts it is divided."""

    folder: Path

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield the rows of the part."""
        for rows in super().read(span, 0, splits):
            (self.folder / str(splits)).touch()
            first, last = (rows.num_rows * part // splits for part in (split, split + 1))
            yield rows.slice(first, last - first)


class Divided(MemorySource):
    """Rows that a test feeds, read by as many tasks as the engine chooses."""

    def __init__(self, folder: Path) -> None:
        super().__init__("n long, t timestamp")
        self.notes = folder

    def open(self, spark: Any) -> MemoryReader:
        """Return the reader."""
        reader = super().open(spark)
        reader.splits = None
        reader.task_reader = lambda: Noting(reader.schema, self.notes)  # type: ignore[method-assign]
        return reader

    def tasks(self) -> set[int]:
        """Return how many tasks have read since the last call."""
        noted = list(self.notes.iterdir())
        for note in noted:
            note.unlink()
        return {int(note.name) for note in noted}


def test_the_rows_of_a_batch_choose_how_many_tasks_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """One up to a limit, and beyond it one a core, also for a batch that is run again; all rows are there once."""
    monkeypatch.setattr(engine, "_FEW", FEW)
    (tmp_path / "notes").mkdir()
    source = Divided(tmp_path / "notes")
    job = Job("divided", partitions=2)
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
    rows.write("all", MemorySink())
    # Two branches of one source: its rows are sent to both by a shuffle.
    rows.deduplicate("once", by=["n"], within=hours(1)).write("kept", MemorySink())
    cores = min(16, spark.sparkContext.defaultParallelism)
    assert cores > 1
    fed = 0
    with Harness(job, tmp_path / "root") as harness:
        for count, crash in (
            (2, None),
            (FEW + 1, None),
            (FEW, "Compute"),
            (40, "FixOffsets"),
            (41, "Compute"),
            (1, None),
        ):
            if crash is not None:
                harness.crash_after(crash)
            new = {"rows": [{"n": n, "t": datetime.fromtimestamp(n, UTC)} for n in range(fed, fed + count)]}
            fed += count
            if crash is None:
                harness.batch(new)
            else:
                with pytest.raises(Crashed):
                    harness.batch(new)
                harness.restart()
            assert source.tasks() == {cores if count > FEW else 1}
        output = harness.output()
    for sink in ("all", "kept"):
        assert sorted(row["n"] for row in output[sink]) == list(range(fed))


def test_both_plans_judge_by_the_suites_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the file away while the job runs, before the first batch of many rows."""
    monkeypatch.setattr(engine, "_FEW", FEW)
    for folder in ("notes", "quality"):
        (tmp_path / folder).mkdir()
    small = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 30}}
    suite = tmp_path / "quality" / "small.json"
    suite.write_text(json.dumps({"name": "small", "expectations": [small]}))
    source = Divided(tmp_path / "notes")
    job = Job("judged", partitions=2)
    rows = job.source("rows", source).check("judge", suite="small", on_fail=OnFail.QUARANTINE)
    rows.write("good", MemorySink())
    job.quarantine("judge").write("bad", MemorySink())
    with Harness(job, tmp_path / "root", quality=tmp_path / "quality") as harness:
        harness.batch({"rows": [{"n": 1}]})
        suite.unlink()
        harness.batch({"rows": [{"n": n} for n in range(2, 42)]})
        assert max(source.tasks()) > 1
        assert sorted(row["n"] for row in harness.output()["good"]) == list(range(1, 31))
