"""Jobs read Delta tables: that of another job, while it is written, each row once through crashes and restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from delta_reading import Written
from deltalake import DeltaTable as Table

from penstock import Job
from penstock.errors import FixedRangeGone
from penstock.graph.policies import OnGap
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import DeltaTable, MemorySource, files
from penstock.testing import Crashed, Harness

pytestmark = pytest.mark.spark


def rows_of(turn: int) -> list[dict[str, Any]]:
    """Return five rows of two users."""
    return [{"user": f"u {i % 2}", "n": 10 * turn + i} for i in range(5)]


def writer(folder: Path, *partition_by: str) -> Job:
    """Return a job that writes what it is given into a table."""
    job = Job("orders", partitions=1)
    orders = job.source("orders", MemorySource("user string, n int"))
    orders.write("table", Delta(folder / "t", partition_by=partition_by))
    return job


def copier(folder: Path) -> Job:
    """Return a job that copies the table of the other."""
    job = Job("copies", partitions=2)
    job.source("orders", DeltaTable(folder / "t", at_most=files(2), splits=2)).write("copy", Delta(folder / "copy"))
    return job


def copied(folder: Path) -> Counter[tuple[str, int]]:
    """Return how often each row is in the copy."""
    return Counter((row["user"], row["n"]) for row in Table(str(folder / "copy")).to_pyarrow_table().to_pylist())


@pytest.mark.slow
def test_a_table_that_one_job_writes_another_copies_once(tmp_path: Path) -> None:
    """While it is written; the reader crashes at each stage, and is bounded by rows and files."""
    limits = DriverSettings(limits=lambda: Limits(rows=4))
    with Harness(writer(tmp_path), tmp_path / "up") as up:
        up.batch({"orders": rows_of(0)})
        with Harness(copier(tmp_path), tmp_path / "down", settings=limits) as down:
            for turn, stage in enumerate(("FixOffsets", "Compute", "CommitBatch", "PublishSinks"), 1):
                up.batch({"orders": rows_of(turn)})
                down.crash_after(stage)
                with pytest.raises(Crashed):
                    down.batch()
                down.restart()
            for _ in range(9):
                down.batch()
    assert copied(tmp_path) == Counter((row["user"], row["n"]) for turn in range(5) for row in rows_of(turn))


@pytest.mark.slow
@pytest.mark.sample(seconds=45)
def test_a_partitioned_table_of_a_job_is_copied_as_well(tmp_path: Path) -> None:
    """Spark Delta writes it, and the column that it is partitioned by is in no file."""
    with Harness(writer(tmp_path, "user"), tmp_path / "up") as up:
        up.batch({"orders": rows_of(0)})
        with Harness(copier(tmp_path), tmp_path / "down") as down:
            down.batch()
            up.batch({"orders": rows_of(1)})
            down.batch()
    assert copied(tmp_path) == Counter((row["user"], row["n"]) for turn in range(2) for row in rows_of(turn))


@pytest.mark.remedy("PEN-SRC-014")
def test_a_file_of_a_fixed_batch_that_vacuum_took_is_named(tmp_path: Path) -> None:
    """By the remedy the batch is planned again without it, and the log says which rows are lost."""
    written = Written(tmp_path / "t")
    written.commit(written.file(0, 1), written.file(2, name="kept"))

    def job_of(on_gap: OnGap) -> Job:
        job = Job("copies", partitions=1)
        job.source("rows", DeltaTable(tmp_path / "t", on_gap=on_gap)).write("out", MemorySink())
        return job

    with Harness(job_of(OnGap.FAIL), tmp_path / "root") as h:
        assert len(h.batch()["out"]) == 3
        gone = written.file(3, 4, name="gone")
        written.commit(gone, written.file(5))
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch()
        (tmp_path / "t" / "gone").unlink()
        with pytest.raises(FixedRangeGone, match="gone since its batch was planned"):
            h.restart()
        h.restore(batch=0, job=job_of(OnGap.SKIP))
        assert [row["k"] for row in h.batch()["out"]] == [5]
