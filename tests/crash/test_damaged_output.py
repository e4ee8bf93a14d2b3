"""Files that a Commit names and no sink has shown yet: read before they are published, never believed (F13, F15)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from harness_jobs import ORDERS, order

from penstock import Job
from penstock.errors import CannotRestore, CheckpointCorrupt
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness


def flip(path: Path) -> None:
    """Change a bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {"flipped": flip, "cut short": lambda p: p.write_bytes(p.read_bytes()[:-1]), "gone": Path.unlink}


def make_job(table: Path) -> Job:
    """Return a job without state, into a table and into memory."""
    job = Job("copies", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS))
    orders.write("raw", Delta(table))
    orders.write("kept", MemorySink())
    return job


@pytest.mark.sample(2)
@pytest.mark.fault("F13", "F15")
@pytest.mark.parametrize("sink", ["raw", "kept"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_output_file_is_not_published(tmp_path: Path, damage, sink: str) -> None:
    """The start names the file and publishes nothing; a restore to the batch before goes on, with all rows again."""
    table, root = tmp_path / "table", tmp_path / "root"
    with Harness(make_job(table), root) as h:
        h.batch({"orders": [order("a", 1)]})
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("b", 2)]})
        folder = table if sink == "raw" else root / "copies" / "staged" / "kept"
        [file] = folder.glob(f"{1:012d}-*.parquet")
        damage(file)
        with pytest.raises(CheckpointCorrupt, match=file.name):
            h.restart()
        assert Counter(DeltaTable(str(table)).to_pyarrow_table()["user"].to_pylist()) == Counter(["a"])
        with pytest.raises(CheckpointCorrupt):
            h.restart()

        with pytest.raises((CannotRestore, CheckpointCorrupt), match=file.name):
            h.restore(batch=1)
        h.restore(batch=0)
        h.batch({})
        assert Counter(row["user"] for row in h.output()["raw"]) == Counter(["a", "b"])
        assert Counter(row["user"] for row in h.output()["kept"]) == Counter(["a", "b"])
