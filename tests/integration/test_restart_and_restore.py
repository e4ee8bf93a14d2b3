"""Restart, restore and what a Commit keeps (SEMANTICS 10)."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from harness_jobs import ORDERS, order, plain, windowed_job
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from penstock import Job, seconds
from penstock.errors import CannotRestore, PartitionsChanged, PenstockError, StepsChanged
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding, Tumbling

pytestmark = pytest.mark.sample(2, of="restarts and restores")


def test_a_restart_goes_on_where_the_driver_left(tmp_path: Path) -> None:
    """SEMANTICS 10.1, 10.6: state, positions and watermarks are those of the last Commit; ids go on."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        h.restart()
        output = h.batch({"orders": [order("a", 2, 6), order("a", 11)]})
        assert plain(output["out"]) == [("a", 0.0, 10.0, 2, 11)]
        assert h.commit().batch == 2


@pytest.mark.fault("F01")
def test_a_crash_behind_the_commit_is_published_by_the_restart(tmp_path: Path) -> None:
    """DESIGN 4: a committed batch is never computed again, and its publication is done again (F01)."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        h.batch({"orders": [order("a", 11)]}, follow=False)
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch()
        output = h.restart()
        assert plain(output["out"]) == plain(h.output()["out"]) == [("a", 0.0, 10.0, 1, 5)]


def test_a_restore_takes_state_and_positions_back(tmp_path: Path) -> None:
    """SEMANTICS 10.1: rows after B are read again under new batch ids, and none is used twice."""
    with Harness(windowed_job(Sliding(seconds(10), every=seconds(5)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        h.batch({"orders": [order("a", 3, 7), order("a", 10)]})
        before = plain(h.output()["out"])
        newest = h.commit().batch
        h.restore(batch=0)
        assert [r["_rows"] for r in h.state("w")] == [1]
        output = h.batch()
        assert plain(output["out"]) == [("a", -5.0, 5.0, 2, 12), ("a", 0.0, 10.0, 2, 12)]
        assert plain(h.output()["out"]) == before + plain(output["out"])
        assert h.commit().batch > newest + 1


def test_an_empty_restore_begins_again(tmp_path: Path) -> None:
    """SEMANTICS 10.1: restart empty."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        h.restore(empty=True)
        assert h.state("w") == []
        output = h.batch({"orders": [order("a", 12)]})
        assert plain(output["out"]) == [("a", 0.0, 10.0, 1, 5)], "the source is read from its beginning again"


@pytest.mark.fault("F30")
def test_only_kept_batches_can_be_restored_and_files_of_others_go(tmp_path: Path) -> None:
    """DESIGN 5: keep at least K commits with all their files; restart from any of them works (F30)."""
    job = windowed_job(Tumbling(seconds(10)).drop_late())
    with Harness(job, tmp_path, settings=DriverSettings(keep=3)) as h:
        for n in range(16):
            h.batch({"orders": [order(f"user{n}", n * 0.5, n)]})
        with pytest.raises(CannotRestore, match="13"):
            h.restore(batch=2)
        h.restart()
        h.restore(batch=13)
        assert len(h.state("w")) == 14
        segments = sorted((tmp_path / "windowed" / "state" / "w" / "0").glob("*.arrow"))
        assert len(segments) <= 26, "compaction and the sweep bound the files"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (lambda: windowed_job(Tumbling(seconds(20)).drop_late()), StepsChanged),
        (lambda: windowed_job(Tumbling(seconds(10)).drop_late(), partitions=2), PartitionsChanged),
    ],
    ids=["other windows", "other partitions"],
)
def test_a_job_that_would_misread_its_state_is_refused(
    tmp_path: Path, changed: Callable[[], Job], error: type[PenstockError]
) -> None:
    """DESIGN 5, 6: partitions change only by a restore, and state is never read as something else."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        with pytest.raises(error):
            h.restart(changed())


@pytest.mark.fault("F19")
def test_a_deleted_checkpoint_gets_a_new_identity_and_its_batches_are_not_ignored(tmp_path: Path) -> None:
    """F19: with the old id the table would take batches 0 to n for published and lose their rows in silence."""
    table = Delta(tmp_path / "table")
    job = Job("kept", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    orders.select("user", "v").write("out", table)
    with Harness(job, tmp_path / "checkpoints") as h:
        h.batch({"orders": [order("a", 1, 5)]})
    first = (tmp_path / "checkpoints" / "kept" / "metadata.json").read_bytes()
    shutil.rmtree(tmp_path / "checkpoints" / "kept")
    with Harness(job, tmp_path / "checkpoints") as h:
        h.batch({"orders": [order("b", 2, 6)]})
        assert [row["user"] for row in h.output()["out"]].count("b") == 1
    assert (tmp_path / "checkpoints" / "kept" / "metadata.json").read_bytes() != first


@pytest.mark.parametrize("stage", ["FixOffsets", "CommitBatch", "PublishSinks"])
def test_a_drain_closes_all_windows_and_ends_the_job(tmp_path: Path, stage: str) -> None:
    """SEMANTICS 10.6: whenever it is cut short; rows that come later are not read without a restore (2.1)."""
    job = windowed_job(Tumbling(seconds(10)).late_to("late"))
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1, 2), order("b", 12, 3)]})
        kept = h.commit().batch
        h.settings = DriverSettings(drain=True)
        h.restart()
        h.crash_after(stage)
        with pytest.raises(Crashed):
            h.run()
        h.restart()
        h.run()
        assert plain(h.output()["out"]) == [("a", 0.0, 10.0, 1, 2), ("b", 10.0, 20.0, 1, 3)]
        assert all(progress.ended for progress in h.commit().sources.values())
        h.settings = DriverSettings()
        h.restart()
        assert h.run() == {"out": []}
        h.restore(batch=kept)
        h.batch({"orders": [order("b", 14, 4)]})
        assert plain(h.batch(watermark=20)["out"]) == [("b", 10.0, 20.0, 2, 7)]
        assert h.late("late") == []


def test_batch_times_go_on_behind_a_batch_that_a_restore_gives_up(tmp_path: Path) -> None:
    """SEMANTICS 1.1: they strictly increase, also where the newest was fixed and never committed."""
    with Harness(windowed_job(Tumbling(seconds(10)).drop_late()), tmp_path) as h:
        for at in (1, 2, 3):
            h.batch({"orders": [order("a", at)]}, at=at)
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("a", 4)]}, at=40)
        h.restore(batch=1)
        h.batch()
        assert h.commit().time > 40_000_000


def drawing(frame: DataFrame) -> DataFrame:
    """Return the frame with a column that is another each time it is made."""

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield rows.append_column("run", pa.array([uuid.uuid4().hex for _ in range(rows.num_rows)]))

    return frame.mapInArrow(draw, StructType([*frame.schema.fields, StructField("run", StringType())]))


@pytest.mark.fault("F50")
@pytest.mark.parametrize("stage", ["Compute", "CommitBatch"])
def test_rows_that_a_function_makes_anew_each_time_are_published_once(stage: str, tmp_path: Path) -> None:
    """What a run staged before it died is in no table: a batch is of one run, whatever a function makes of its rows."""
    job = Job("random", partitions=1)
    orders = job.source("orders", MemorySource(schema=ORDERS), event_time="t", max_out_of_order=seconds(0))
    orders.transform("draw", drawing).write("out", Delta(tmp_path / "out"))
    with Harness(job, tmp_path / "root") as h:
        h.batch({"orders": [order("a", 1), order("b", 2)]})
        h.crash_after(stage)
        with pytest.raises(Crashed):
            h.batch({"orders": [order("c", 3), order("d", 4)]})
        h.restart()
        h.batch({"orders": [order("e", 5)]})
        shown = h.output()["out"]
    assert sorted(row["user"] for row in shown) == ["a", "b", "c", "d", "e"]
    assert len({row["run"] for row in shown}) == len(shown)
