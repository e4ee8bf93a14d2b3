"""A checkpoint that an older commit wrote is read, and gone on from, as if the job had never stopped (F22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock import state
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.roots import job_log
from penstock.runtime.inspect.fsck import verify
from penstock.state.manifest import Manifest
from penstock.testing import Harness
from tests.support.stored_checkpoint import (
    BATCHES,
    NAME,
    ON_EVENT_TIME,
    ROOT,
    SAVED,
    SAVED_AT,
    SNAPSHOT_EVERY,
    STORED,
    TABLE,
    WRITTEN,
    job_in,
    one_batch,
    plain,
    settings,
    unpacked,
)

pytestmark = [pytest.mark.fault("F22"), pytest.mark.sample(1, of="stored checkpoints")]


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Unpack the checkpoint into the test's folder, and return what the job put out without a stop."""
    return unpacked(tmp_path)


def opened(folder: Path, *, partitions: int = 2) -> Harness:
    """Return a harness over the unpacked checkpoint, in another process than the one that wrote it."""
    return Harness(job_in(folder, partitions=partitions), folder / ROOT, settings=settings())


def by_event_time(batch: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what is the same behind a restore, where batches have later times."""
    return {sink: batch[sink] for sink in ON_EVENT_TIME}


def rows_of(sink: str, batches: list[dict[str, list[str]]]) -> list[str]:
    """Return what a sink gets of some batches."""
    return sorted(row for batch in batches for row in batch[sink])


def test_the_archive_is_small_and_has_every_part_of_state(stored: dict[str, Any], tmp_path: Path) -> None:
    """What is not in it, it cannot show: running aggregates, fronts, late rows, timers, deadlines, and all they need."""
    assert STORED.stat().st_size < 200_000
    log = job_log(tmp_path / ROOT / NAME)
    assert log is not None
    commit = recover(log).commit
    assert commit is not None
    assert commit.batch == WRITTEN - 1
    parts: dict[str, set[str]] = {}
    for step, partitions in commit.state.items():
        for partition, ref in partitions.items():
            manifest = Manifest.read(tmp_path / ROOT / NAME / "state" / step / partition / ref.path)
            parts.setdefault(step, set()).update(manifest.chains)
    assert parts == {
        "blocks": {"slices", "running", "total", "front", "late"},
        "exact": {"slices", "running", "late"},
        "hops": {"slices"},
        "counts": {"state"},
        "rings": {"state", "deadlines", "event_timers", "overdue"},
        "idles": {"state", "idle", "batch_timers"},
    }
    assert set(commit.snapshots) == set(commit.state)
    assert all(any(batch[sink] for batch in stored["batches"]) for sink in stored["batches"][0])


def test_what_it_keeps_is_read_without_the_job(stored: dict[str, Any], tmp_path: Path) -> None:
    """`penstock.state.read` needs no code of the job; fsck finds nothing damaged."""
    log = job_log(tmp_path / ROOT / NAME)
    assert log is not None
    assert verify(log, tmp_path / ROOT / NAME).findings == ()
    for step, rows in stored["kept"].items():
        assert plain(state.read(tmp_path / ROOT, NAME, step).to_pylist()) == rows, step


@pytest.mark.slow
def test_it_goes_on_behind_a_restart(stored: dict[str, Any], tmp_path: Path) -> None:
    """The batch whose offsets were fixed is finished in taking over, and so on to the end, each as it would have been."""
    with opened(tmp_path) as h:
        for sink, rows in h.output().items():
            # A sink in memory went with the process, and has what was published since: the last batch again, and this.
            since = 0 if sink == "blocks_out" else WRITTEN - 1
            assert plain(rows) == rows_of(sink, stored["batches"][since : WRITTEN + 1]), sink
        for batch in range(WRITTEN + 1, BATCHES):
            assert one_batch(h) == stored["batches"][batch], batch
    table = DeltaTable(tmp_path / TABLE).to_pyarrow_table().to_pylist()
    assert plain(table) == rows_of("blocks_out", stored["batches"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("back", "batch"),
    [
        ({"batch": WRITTEN - 4}, WRITTEN - 4),
        ({"saved": SAVED}, SAVED_AT),
        ({"snapshot": "1"}, 2 * SNAPSHOT_EVERY - 1),
    ],
    ids=["batch", "saved", "snapshot"],
)
def test_it_goes_back(back: dict[str, Any], batch: int, stored: dict[str, Any], tmp_path: Path) -> None:
    """To a kept batch, a savepoint and a data checkpoint; batch for batch the same rows come again."""
    with opened(tmp_path) as h:
        h.restore(**back)
        for again in range(batch + 1, batch + 7):
            assert by_event_time(one_batch(h)) == by_event_time(stored["batches"][again]), again


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 5])
def test_it_is_rescaled(partitions: int, stored: dict[str, Any], tmp_path: Path) -> None:
    """State written anew for another number of partitions gives the same rows."""
    with opened(tmp_path) as h:
        h.restore(partitions=partitions, job=job_in(tmp_path, partitions=partitions))
        for batch in range(WRITTEN + 1, WRITTEN + 8):
            assert by_event_time(one_batch(h)) == by_event_time(stored["batches"][batch]), batch
