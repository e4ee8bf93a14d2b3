"""Saved checkpoints in real jobs: kept whatever is purged, and gone back to with state and positions (SEMANTICS 10)."""

from __future__ import annotations

import pytest

from penstock import Job
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.roots import job_log
from penstock.errors import BadName, CannotRestore, CannotSave, PartitionsChanged
from penstock.runtime.driver import retention
from penstock.runtime.driver.settings import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness

pytestmark = pytest.mark.sample(1, of="savepoints")

KEEP = 2
EVERY = 2
"""Batches from one sweep to the next: what a test needs is that some have been."""
LONG = 3 * EVERY


@pytest.fixture(autouse=True)
def _sweep_often(monkeypatch):
    monkeypatch.setattr(retention, "EVERY", EVERY)


def count(time, key, row, state):
    state.update(n=state.get_or({"n": 0})["n"] + 1)
    return {"k": key, "n": state.get()["n"]}


def counting(partitions: int = 2) -> Job:
    job = Job("saved", partitions=partitions)
    rows = job.source("rows", MemorySource(schema="k string"))
    rows.key_by("k").map_with_state("step", count, state="n long", output="k string, n long", unbounded=True).write(
        "out", MemorySink()
    )
    return job


def test_a_saved_checkpoint_outlasts_the_retention(tmp_path):
    """Its batch is long below the floor, and its state is whole; batches beside it are gone."""
    with Harness(counting(), tmp_path, settings=DriverSettings(keep=KEEP)) as h:
        with pytest.raises(CannotSave, match="no batch was committed"):
            h.save("early")
        with pytest.raises(BadName, match="'../x'") as refused:
            h.save("../x")
        assert str(refused.value.where).startswith(f"{__file__}:")
        for _ in range(3):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        h.save("three")
        kept = h.commit().batch
        for _ in range(LONG):
            h.batch({"rows": [{"k": "a"}]})
        assert recover(job_log(tmp_path / "saved")).floor > kept
        with pytest.raises(CannotRestore, match=r"saved \['three'\]"):
            h.restore(batch=kept)
        h.restart()  # what is pinned is known from the log
        for _ in range(EVERY):
            h.batch({"rows": [{"k": "b"}]})
        with pytest.raises(CannotRestore, match="'other' was never saved"):
            h.restore(saved="other")
        h.restore(saved="three")
        assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", 3), ("b", 3)]
        next_batch = h.commit().batch
        # Positions are those of then: what came since is read again, in one batch.
        out = h.batch({"rows": [{"k": "b"}]})["out"]
        assert max(r["n"] for r in out if r["k"] == "b") == 3 + EVERY + 1
        assert h.commit().batch > next_batch
        with pytest.raises(CannotSave, match="'three' already"):
            h.save("three")
        h.save("again")
        h.restart()
        h.restore(saved="three")
        assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", 3), ("b", 3)]


def test_names_that_were_asked_for_are_given_between_batches(tmp_path):
    """Each once: a driver that starts again finds them in the log."""
    asked: list[str] = []
    settings = DriverSettings(saves=lambda: tuple(asked))
    with Harness(counting(), tmp_path, settings=settings) as h:
        asked.append("first")  # before there is anything to name
        h.batch({"rows": [{"k": "a"}]})
        h.batch({"rows": [{"k": "a"}]})
        asked.append("second")
        h.batch({"rows": [{"k": "a"}]})
        h.restart()
        h.batch({"rows": [{"k": "a"}]})
        saves = recover(job_log(tmp_path / "saved")).saves
        assert {name: commit.batch for name, commit in saves.items()} == {"first": 0, "second": 1}


def test_a_saved_checkpoint_keeps_its_partitions(tmp_path):
    """Also where the job began anew in between: with another number its keys would not find their state."""
    with Harness(counting(), tmp_path) as h:
        h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        h.save("two")
        h.restore(empty=True)
    with Harness(counting(4), tmp_path) as h, pytest.raises(PartitionsChanged, match="2.*4|4.*2"):
        h.restore(saved="two")


def test_a_saved_checkpoint_is_deleted_while_the_job_runs(tmp_path):
    """Its files go with the next sweeps, also behind a restart, and the job goes on from what it has."""
    asked: set[str] = set()
    settings = DriverSettings(keep=KEEP, unsaves=lambda: tuple(asked))

    def files():
        return {path for path in (tmp_path / "saved" / "state").rglob("*") if path.name.startswith("000000000002")}

    with Harness(counting(), tmp_path, settings=settings) as h:
        for _ in range(3):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        h.save("three")
        for _ in range(LONG):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        h.restart()
        for _ in range(LONG):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        assert files()
        asked.add("three")
        for _ in range(LONG):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
        assert not files()
        with pytest.raises(CannotRestore, match="'three' was never saved"):
            h.restore(saved="three")
        asked.clear()
        h.save("three")
        assert recover(job_log(tmp_path / "saved")).saves["three"].batch == h.commit().batch
        assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", 3 + 3 * LONG), ("b", 3 + 3 * LONG)]


def test_a_sweep_reads_some_saved_checkpoints_and_until_then_deletes_nothing_that_they_may_name(tmp_path, monkeypatch):
    """A start waits for none of them, however many there are."""
    monkeypatch.setattr(retention, "SAVES_AT_ONCE", 1)
    with Harness(counting(), tmp_path, settings=DriverSettings(keep=KEEP)) as h:
        for n in range(4):
            h.batch({"rows": [{"k": "a"}, {"k": "b"}]})
            h.save(f"at_{n}")
        h.restart()
        for _ in range(6 * EVERY):
            h.batch({"rows": [{"k": "a"}]})
        for n in range(4):
            h.restore(saved=f"at_{n}")
            assert sorted((r["k"], r["n"]) for r in h.state("step")) == [("a", n + 1), ("b", n + 1)]
