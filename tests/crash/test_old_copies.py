"""A checkpoint that is older than its tables: put back from a backup, or robbed of its newest entries (F31).

The tables remember which batch they were given last. A log that ends before it would use the same batch ids again for
other rows, and the tables would take them for rows they have.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from fake_engine import PARTITIONS, FakeEngine, NoSink, NoSource, Witness, World, make_driver, windowed_job

from penstock import agg
from penstock.errors import CannotRestore, CheckpointCopied, PenstockError, SinkAhead
from penstock.graph.durations import seconds
from penstock.graph.graph import JobGraph
from penstock.graph.job import Job
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget
from penstock.windows import Tumbling

SPARSE = [0, 1, 2, 9, 10, 11, 12, 40]
"""In batches of two rows, batch 2 is the first to close windows, and batch 3 closes none."""


def windows_only() -> JobGraph:
    """Return a job whose only sink shows nothing in most batches."""
    job = Job("sparse", partitions=PARTITIONS)
    numbers = job.source("numbers", NoSource(), event_time="t", max_out_of_order=seconds(0))
    sums = numbers.key_by("parity").window("sums", Tumbling(seconds(4)).drop_late())
    sums.aggregate(ids=agg.count()).write("windows", NoSink())
    return job.graph()


def ran(world: World, store: Witness, graph: JobGraph, batches: int) -> None:
    """Let a driver run so many batches, whole, and die."""
    driver = make_driver(world, store, "first", graph=graph, engine=FakeEngine(world, graph, "first"))
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", batches - 1):
            return


def restarted(world: World, store: Witness, graph: JobGraph) -> PenstockError | None:
    """Start a driver over what is there, and return what it ended with; None where it runs out of rows."""
    try:
        for hook in make_driver(world, store, "second", graph=graph).run():
            if hook.stage == "Wait":
                break
    except PenstockError as error:
        return error
    return None


@pytest.mark.fault("F31")
@pytest.mark.parametrize("lost", [1, 2, 3, 4])
@pytest.mark.parametrize("graph", [windowed_job(0), windows_only()], ids=["a row a batch", "rows now and then"])
def test_a_log_that_ends_before_its_tables_is_refused(tmp_path: Path, graph: JobGraph, lost: int) -> None:
    """Whatever the last batches in the log happened to show, and though more rows have come since."""
    world, store = World(root=tmp_path, times=SPARSE[:6], closed=False), Witness()
    world.times += SPARSE[6:]
    ran(world, store, graph, 3)
    newest = {sink: max(table.versions.values()) for sink, table in world.tables.items() if table.versions}
    assert newest["windows"] == 2
    for path in sorted(path for path in store._files if path.startswith("log/"))[-lost:]:
        store.delete(path)
    world.batch_rows = 1
    shown = {sink: list(table.shown) for sink, table in world.tables.items()}
    error = restarted(world, store, graph)
    assert isinstance(error, SinkAhead), error
    assert {sink: table.shown for sink, table in world.tables.items()} == shown


@pytest.mark.fault("F31")
def test_a_restore_over_damage_does_not_use_ids_that_a_table_has(tmp_path: Path) -> None:
    """The newest entries are lost, and the one that is now the last is damaged: how many ids were used is not known."""
    world, store = World(root=tmp_path, times=[float(i) for i in range(12)]), Witness()
    ran(world, store, windowed_job(0), 6)
    slots = sorted(path for path in store._files if path.startswith("log/"))
    for path in slots[-6:]:
        store.delete(path)
    store._files[slots[-7]] = store._files[slots[-7]][:-1]
    person = make_driver(world, store, "person", graph=windowed_job(0))
    with pytest.raises(SinkAhead):
        list(restore(person, RestoreTarget(restore=True, batch=0)))


@pytest.mark.fault("F31")
def test_a_batch_of_a_copy_is_in_no_restored_checkpoint(tmp_path: Path) -> None:
    """Its rows in the table are another driver's: a start is refused, and a restore that would keep the batch."""
    world, store = World(root=tmp_path, times=[float(i) for i in range(12)]), Witness()
    ran(world, store, windowed_job(0), 4)
    raw = world.tables["raw"]
    raw.files = {app: ["of another run"] for app in raw.files}
    assert isinstance(restarted(world, store, windowed_job(0)), CheckpointCopied)
    for batch, refused in ((3, True), (2, False)):
        person = make_driver(world, store, "person", graph=windowed_job(0))
        with pytest.raises(CannotRestore, match="batch 3 .* restore one before") if refused else nullcontext():
            list(restore(person, RestoreTarget(restore=True, batch=batch)))
    assert restarted(world, store, windowed_job(0)) is None
