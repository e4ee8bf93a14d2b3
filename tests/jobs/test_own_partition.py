"""What Spark's tasks are told of their batch, as the partitions grow (decision 75)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Job
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.runtime.driver import retention
from penstock.runtime.tasks import batch_context
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

pytestmark = pytest.mark.sample(1, of="own partitions")

ROWS = [{"k": k} for k in range(1_000)]


def heard(time, key, row, state):
    """Say how often the key was seen, and what the task was told: bytes, and references to state."""
    from pyspark import TaskContext

    text = TaskContext.get().getLocalProperty(batch_context.PROPERTY)
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    size = len(text) + batch_context.current_batch().refs_length
    return {"k": key, "n": state.get()["n"], "told": size, "refs": text.count('"checksum"')}


def job_of(partitions: int) -> Job:
    """Return a job whose rows say what the task was told that made them."""
    job = Job("hearing", partitions=partitions)
    keyed = job.source("rows", MemorySource(schema="k long")).key_by("k")
    output = "k long, n long, told long, refs long"
    heard_rows = keyed.map_with_state("step", heard, state="n long", output=output, unbounded=True)
    heard_rows.write("out", MemorySink())
    return job


def test_a_task_is_told_of_no_other_partition(tmp_path: Path) -> None:
    """With 64 partitions it gets no more bytes than with 8, whose few references go to every task."""
    most = {}
    for partitions in (8, 64):
        with Harness(job_of(partitions), tmp_path / f"{partitions}") as h:
            for seen in (1, 2):
                rows = h.batch({"rows": ROWS})["out"]
                assert sorted((row["k"], row["n"]) for row in rows) == [(k, seen) for k in range(1_000)]
            most[partitions] = max(row["told"] for row in rows)
            refs = {row["refs"] for row in rows}
            assert refs == ({8} if partitions == 8 else {0})
            assert not list((tmp_path / f"{partitions}").glob("hearing/staged/_told/*"))
    assert most[64] <= most[8]


def test_what_a_killed_driver_has_told_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a file of a batch below the newest, as staged ones are."""
    monkeypatch.setattr(batch_context, "_MOST_TOLD", 0)
    remove = LocalFolder.remove
    monkeypatch.setattr(LocalFolder, "remove", lambda file: None if file.name.endswith(".refs") else remove(file))
    files = tmp_path / "hearing" / "staged" / "_told"
    with Harness(job_of(2), tmp_path) as h:
        for _ in range(7):
            h.batch({"rows": ROWS[:9]})
        assert len(list(files.iterdir())) == 6  # the first batch had no state to tell of
        monkeypatch.undo()
        monkeypatch.setattr(retention, "EVERY", 1)
        h.batch({"rows": ROWS[:9]})
        assert not list(files.iterdir())
