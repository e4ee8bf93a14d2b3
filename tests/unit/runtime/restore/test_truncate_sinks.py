"""A restore whose sinks take back what they have published since (SEMANTICS 10.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from harness_jobs import ORDERS, order

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Restore, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import CannotRestore, CannotSkip, CannotTruncate
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.sink_repair import SinksAtRest, redo
from penstock.sinks import Delta, JsonLines, MemorySink, Parquet
from penstock.sinks.base import Sink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="truncations")

ROWS = [[order("a", 1, 1), order("b", 2, 2)], [order("a", 11, 3)], [order("b", 12, 4)], [order("a", 21, 5)]]
"""Batches 0, 1, 3 and 4: behind the second one and the last a window closes, in a batch without data."""
KEPT = 1


def make_job(tables: Path, *, memory: bool = False, sinks: Mapping[str, Sink] | None = None) -> Job:
    """Return a job that copies rows into one table, and puts the sums of windows into another."""
    into = sinks or {"raw": Delta(tables / "raw"), "sums": Delta(tables / "sums")}
    job = Job("taken_back", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    orders.select("user", "v").write("raw", into["raw"])
    sums = orders.key_by("user").window("w", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("v"))
    sums.select("user", "total").write("sums", into["sums"])
    if memory:
        orders.write("copy", MemorySink())
    return job


def fed(h: Harness) -> None:
    for rows in ROWS:
        h.batch({"orders": rows})


def shown(h: Harness) -> dict[str, list[tuple[Any, ...]]]:
    return {sink: sorted(tuple(row.values()) for row in rows) for sink, rows in h.output().items()}


def versions(tables: Path) -> tuple[int, int]:
    return DeltaTable(str(tables / "raw")).version(), DeltaTable(str(tables / "sums")).version()


def entries(root: Path) -> list[Any]:
    log = Log(LocalStore(root / "taken_back"))
    return [entry for _, entry in log.entries_back(log.find_tail())]


ALL = {"raw": [("a", 1), ("a", 3), ("a", 5), ("b", 2), ("b", 4)], "sums": [("a", 1), ("a", 3), ("b", 2), ("b", 4)]}
THEN = {"raw": [("a", 1), ("a", 3), ("b", 2)], "sums": []}


def test_tables_show_what_they_showed_and_then_each_row_once(tmp_path: Path) -> None:
    """Later batches have higher numbers than any before, and are published once each."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        assert shown(h) == ALL
        used = h.commit().batch
        h.restore(batch=KEPT, truncate_sinks=True)
        assert shown(h) == THEN
        while h.batch()["raw"]:
            pass
        assert shown(h) == ALL
        assert h.commit().batch > used
        h.restart()
        assert shown(h) == ALL


def test_without_it_they_stay_and_come_again(tmp_path: Path) -> None:
    """As before."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        h.restore(batch=KEPT)
        assert shown(h) == ALL
        assert all(not entry.truncate for entry in entries(tmp_path / "root") if isinstance(entry, Restore))


def test_an_empty_restore_empties_what_the_job_has_published(tmp_path: Path) -> None:
    """And nothing that was in the table before."""
    write_deltalake(str(tmp_path / "raw"), pa.table({"user": ["old"], "v": pa.array([0], pa.int32())}))
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        h.restore(empty=True, truncate_sinks=True)
        assert shown(h) == {"raw": [("old", 0)], "sums": []}


def test_a_saved_batch_is_gone_back_to_as_well(tmp_path: Path) -> None:
    """The commit that a name pins says where it stood."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        h.batch({"orders": ROWS[0]})
        h.save("early")
        h.batch({"orders": ROWS[1]})
        h.restore(saved="early", truncate_sinks=True)
        assert shown(h) == {"raw": [("a", 1), ("b", 2)], "sums": []}


def test_what_was_taken_back_comes_again_with_truncation_only(tmp_path: Path) -> None:
    """Going back to a batch whose rows are not in the tables any more would lose them for good."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        newest = h.commit().batch
        h.restore(batch=KEPT, truncate_sinks=True)
        h.batch({"orders": []})
        with pytest.raises(CannotRestore, match=f"has taken rows of batch {newest} back from raw, sums"):
            h.restore(batch=newest)
        assert h.commit().batch > newest, "the job goes on"
        h.restore(batch=newest, truncate_sinks=True)
        assert shown(h) == ALL
        assert h.batch()["raw"] == []
        h.restore(batch=0)


def test_it_is_known_of_a_saved_batch_too_that_is_older_than_what_is_kept(tmp_path: Path) -> None:
    """No Restore is ever purged, however long ago it took rows back."""
    with Harness(make_job(tmp_path), tmp_path / "root", settings=DriverSettings(keep=1)) as h:
        h.batch({"orders": ROWS[0]})
        h.batch({"orders": ROWS[1]})
        h.save("second")
        saved = h.commit().batch
        h.restore(batch=saved)
        h.restart()
        with pytest.raises(CannotRestore, match="batch 0 is not kept"):
            h.restore(batch=0)
        h.restore(empty=True, truncate_sinks=True)
        for n in range(10):
            h.batch({"orders": [order("c", 30 + n, n)]})
        assert recover(Log(LocalStore(tmp_path / "root" / "taken_back"))).floor > saved
        with pytest.raises(CannotRestore, match=f"a restore to nothing has taken rows of batch {saved} back"):
            h.restore(saved="second")
        h.restore(saved="second", truncate_sinks=True)
        assert shown(h)["raw"] == [("a", 1), ("a", 3), ("b", 2)]


def test_a_sink_that_takes_nothing_back_is_named_before_anything_is_decided(tmp_path: Path) -> None:
    """The job then goes on as it was; where such a sink has no later rows, there is nothing to take back."""
    with Harness(make_job(tmp_path, memory=True), tmp_path / "root") as h:
        fed(h)
        with pytest.raises(CannotTruncate, match=r"sink 'copy' takes nothing back, and has 2 rows of later batches"):
            h.restore(batch=KEPT, truncate_sinks=True)
        assert not any(isinstance(entry, Restore) for entry in entries(tmp_path / "root"))
        assert {sink: rows for sink, rows in shown(h).items() if sink != "copy"} == ALL
        h.restore(batch=h.commit().batch, truncate_sinks=True)


def test_a_sink_that_the_job_has_no_longer_cannot_be_reached(tmp_path: Path) -> None:
    """Its rows would stay."""
    with Harness(make_job(tmp_path, memory=True), tmp_path / "root") as h:
        fed(h)
        h.restart(make_job(tmp_path))
        with pytest.raises(CannotTruncate, match="sink 'copy' is not among the job's sinks any more"):
            h.restore(batch=KEPT, truncate_sinks=True)


@pytest.mark.remedy("PEN-SNK-004")
def test_what_others_have_written_is_not_undone(tmp_path: Path) -> None:
    """Nothing is decided; without truncation the restore is done."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        rows = pa.table({"user": ["theirs"], "v": pa.array([9], pa.int32())})
        write_deltalake(str(tmp_path / "raw"), rows, mode="append")
        with pytest.raises(CannotTruncate, match="sink 'raw': version 5 of the table would be undone as well: WRITE"):
            h.restore(batch=KEPT, truncate_sinks=True)
        assert not any(isinstance(entry, Restore) for entry in entries(tmp_path / "root"))
        h.restore(batch=KEPT)
        assert ("theirs", 9) in shown(h)["raw"]


HOOKS = [
    ("Restore", "before"),
    ("Restore", "after"),
    ("Truncate", "before"),
    ("Truncate", "truncated raw"),
    ("Truncate", "truncated sums"),
    ("Truncate", "after"),
    ("TakeOver", "done"),
]


@pytest.mark.sample(2)
@pytest.mark.fault("F01")
@pytest.mark.parametrize("hook", HOOKS, ids=" ".join)
def test_a_driver_killed_on_the_way_loses_nothing_and_repeats_nothing(hook: tuple[str, str], tmp_path: Path) -> None:
    """Before the entry nothing has happened; behind it each table is put back once, by whoever comes."""
    root = tmp_path / "root"
    with Harness(make_job(tmp_path), root) as h:
        fed(h)
        before = versions(tmp_path)
        h.crash_at(*hook)
        with pytest.raises(Crashed):
            h.restore(batch=KEPT, truncate_sinks=True)
        if hook == ("Restore", "before"):
            h.restart()
            assert (shown(h), versions(tmp_path)) == (ALL, before)
            h.restore(batch=KEPT, truncate_sinks=True)
        else:
            h.restart()
        assert sum(isinstance(entry, Restore) for entry in entries(root)) == 1
        h.restart()
        while h.batch()["raw"]:
            pass
        assert shown(h) == ALL
        # One truncation each; then one batch with all the rows, by which a window closes, and a second one behind it.
        assert versions(tmp_path) == (before[0] + 2, before[1] + 3)


@pytest.mark.fault("F01")
def test_folders_of_files_take_their_rows_back_as_tables_do(tmp_path: Path) -> None:
    """By the manifest and by a listing; a driver that is killed between two of them leaves the rest to the next one."""
    sinks = {"raw": Parquet(tmp_path / "raw"), "sums": JsonLines(tmp_path / "sums")}

    def in_files() -> dict[str, list[tuple[Any, ...]]]:
        sums = [tuple(json.loads(line).values()) for path in named("sums") for line in path.read_text().splitlines()]
        raw = [tuple(row.values()) for path in named("raw") for row in pq.read_table(path).to_pylist()]
        assert {path.name for path in named("raw")} == {path.name for path in (tmp_path / "raw").glob("*.parquet")}
        return {"raw": sorted(raw), "sums": sorted(sums)}

    def named(sink: str) -> list[Path]:
        return [Path(file.path) for file in sinks[sink].files()]

    with Harness(make_job(tmp_path, sinks=sinks), tmp_path / "root") as h:
        fed(h)
        assert in_files() == ALL
        h.crash_at("Truncate", "truncated raw")
        with pytest.raises(Crashed):
            h.restore(batch=KEPT, truncate_sinks=True)
        h.restart()
        assert in_files() == THEN
        h.batch()
        h.batch()
        assert in_files() == ALL


@pytest.mark.fault("F01", "F08")
def test_a_truncation_that_was_cut_short_is_settled_before_another_restore(tmp_path: Path) -> None:
    """So that no driver which lost the log long ago has it still to do."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        h.crash_at("Truncate", "truncated raw")
        with pytest.raises(Crashed):
            h.restore(batch=KEPT, truncate_sinks=True)
        with pytest.raises(CannotRestore, match="only a restore with --truncate-sinks brings them back"):
            h.restore(batch=3)
        assert shown(h) == THEN
        h.restore(batch=0)
        assert shown(h) == THEN


def test_who_writes_between_the_decision_and_the_deed_is_not_undone(tmp_path: Path) -> None:
    """The driver says so and does not go on; a restore without truncation does."""
    with Harness(make_job(tmp_path), tmp_path / "root") as h:
        fed(h)
        h.crash_at("Truncate", "before")
        with pytest.raises(Crashed):
            h.restore(batch=KEPT, truncate_sinks=True)
        rows = pa.table({"user": ["theirs"], "total": pa.array([9], pa.int64())})
        write_deltalake(str(tmp_path / "sums"), rows, mode="append")
        with pytest.raises(CannotTruncate, match="would be undone as well: WRITE"):
            h.restart()
        h.restore(batch=KEPT)
        assert shown(h) == {"raw": THEN["raw"], "sums": sorted([*ALL["sums"], ("theirs", 9)])}


@pytest.mark.remedy("PEN-CKP-030")
@pytest.mark.fault("F70")
def test_nothing_is_published_at_rest_before_a_truncation_is_done(tmp_path: Path) -> None:
    """Rows that a command commits in between would keep the table from being put back; after a start it may."""
    root = tmp_path / "root"
    with Harness(make_job(tmp_path), root) as h:
        fed(h)
        h.crash_at("Truncate", "truncated raw")
        with pytest.raises(Crashed):
            h.restore(batch=KEPT, truncate_sinks=True)
        store = LocalStore(root / "taken_back")
        sinks = SinksAtRest(make_job(tmp_path).graph(), root / "taken_back" / "staged", None)
        again = partial(redo, Log(store), sinks, "sums", read_metadata(store).uuid, Identity(holder="me"), anybody_may)
        with pytest.raises(CannotSkip, match="sink 'sums' is to take rows back.*start the job first"):
            again()
        h.restart()
        assert shown(h) == THEN
    assert again().missing == ()


def test_the_entry_says_what_is_to_be_in_force(tmp_path: Path) -> None:
    """By sink the version of its table; those that show it already are not in it, nor is anything once it is over."""
    root = tmp_path / "root"
    with Harness(make_job(tmp_path), root) as h:
        fed(h)
        h.restore(batch=KEPT, truncate_sinks=True)
        assert recover(Log(LocalStore(root / "taken_back"))).truncation is not None
        h.batch({"orders": ROWS[0]})
        recovered = recover(Log(LocalStore(root / "taken_back")))
        assert (recovered.truncation, recovered.restores[-1].truncate) == (None, {"raw": 2, "sums": 0})
    assert sum(isinstance(entry, Takeover) for entry in entries(root)) == 3
