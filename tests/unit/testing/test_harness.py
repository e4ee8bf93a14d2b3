"""The test kit does what API.md and docs/testing.md say, and refuses what it cannot do."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, copying, order, plain, values, windowed_job

from penstock import Job, agg, seconds
from penstock.errors import JobError, MissingSink, SourceChanged, SuiteError
from penstock.quality import OnFail
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.testing import Crashed, Harness
from penstock.testing.arguments import AskedFor
from penstock.testing.endpoints import with_late_sinks
from penstock.time.triggers import Tick
from penstock.windows import BatchWindow, Session, Tumbling

pytestmark = pytest.mark.sample(5, of="the Harness")

TEN = seconds(10)


def replaying(folder: Path) -> Job:
    """Return a job over six rows in a file, two a batch, that copies them and counts them in windows."""
    path = folder / "rows.csv"
    if not path.exists():
        path.write_text("user,t,v\n" + "".join(f"a,1970-01-01 00:00:{t:02},{t}\n" for t in (1, 2, 11, 12, 21, 22)))
    job = Job("replaying", partitions=1)
    replay = FileReplay(path, order_by="t", rows_per_batch=2, schema=ORDERS)
    rows = job.source("rows", replay, event_time="t", max_out_of_order=seconds(0))
    rows.select("v").write("out", MemorySink())
    rows.window("w", Tumbling(TEN).drop_late()).aggregate(n=agg.count()).write("counts", MemorySink())
    return job


def starts(rows: list[dict[str, Any]]) -> list[float]:
    """Return when windows start."""
    return [row["window_start"].timestamp() for row in rows]


# --- one batch -------------------------------------------------------------------------------


def test_a_call_runs_one_batch_of_a_bounded_source_and_then_only_batches_without_data(tmp_path: Path) -> None:
    """API, test kit; SEMANTICS 2.2: a window that is due closes in the next batch, with or without data."""
    with Harness(replaying(tmp_path), tmp_path / "root") as h:
        assert h.batch() == {"out": [{"v": 1}, {"v": 2}], "counts": []}
        assert h.commit().batch == 0
        output = h.batch()
        assert (values(output), starts(output["counts"])) == ([11, 12], [])
        output = h.batch()
        assert (values(output), starts(output["counts"])) == ([21, 22], [0.0, 10.0, 20.0]), "the end closes all windows"
        assert h.commit().batch == 3, "three batches of rows, and one without"
        assert h.batch() == h.run() == {"out": [], "counts": []}, "nothing is left"


def test_a_root_may_be_a_link_and_need_not_be_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """API, test kit; a job's own root may be no link (F65), which is for whoever deploys it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    with Harness(replaying(tmp_path), "link") as h:
        assert h.batch()["out"] == [{"v": 1}, {"v": 2}]
        assert h.root == tmp_path.resolve() / "real"


def test_a_run_goes_on_to_the_end(tmp_path: Path) -> None:
    """API, test kit: for jobs over bounded sources, also after single batches."""
    with Harness(replaying(tmp_path), tmp_path / "root") as h:
        h.batch(follow=False)
        assert values(h.run()) == [11, 12, 21, 22]
        assert starts(h.output()["counts"]) == [0.0, 10.0, 20.0]


CRASHES = [
    ("FixOffsets", "before"),
    ("FixOffsets", "after"),
    ("Compute", "after"),
    ("CommitBatch", "after"),
    ("PublishSinks", "after"),
    ("Purge", "after"),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("hook", CRASHES, ids=" ".join)
def test_a_restart_finishes_what_was_cut_short_and_no_more(tmp_path: Path, hook: tuple[str, str]) -> None:
    """API, test kit: restart() finishes the batch and returns its rows; run() then goes on."""
    with Harness(replaying(tmp_path), tmp_path / "root") as h:
        h.crash_at(*hook)
        with pytest.raises(Crashed):
            h.run()
        assert values(h.restart()) == [1, 2]
        assert h.commit().batch == 0
        assert values(h.run()) == [11, 12, 21, 22]


def test_a_restart_runs_what_the_batch_made_due(tmp_path: Path) -> None:
    """SEMANTICS 2.2: the batch without data follows at once."""
    with Harness(windowed_job(Tumbling(TEN).drop_late()), tmp_path) as h:
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("a", 1, 5), order("a", 11)]})
        assert plain(h.restart()["out"]) == [("a", 0.0, 10.0, 1, 5)]


def test_a_job_that_has_ended_takes_no_more_rows(tmp_path: Path) -> None:
    """They would vanish: who feeds rows behind the end is told to restart."""
    with Harness(copying(), tmp_path, settings=DriverSettings(stop_at_end=True)) as h:
        assert values(h.batch({"fed": [{"v": 1}]})) == [1]
        with pytest.raises(JobError, match=r"nothing is left to do.*restart\(\)"):
            h.batch({"fed": [{"v": 2}]})
        h.restart()
        assert values(h.batch({"fed": [{"v": 3}]})) == [3]


# --- batch times -----------------------------------------------------------------------------


def test_a_batch_has_exactly_the_time_that_was_asked_for(tmp_path: Path) -> None:
    """API, test kit: `at` may be a fraction; without it the next multiple of the harness's interval is taken."""
    with Harness(copying(), tmp_path) as h:
        times = []
        for at in (0.5, None, 2.5, 2.75, None, None, 10, None, datetime(1970, 1, 1, 0, 1, tzinfo=UTC)):
            h.batch({"fed": [{"v": 1}]}, at=at)
            times.append(h.commit().time / 1_000_000)
        assert times == [0.5, 1, 2.5, 2.75, 3, 4, 10, 11, 60]


def test_ticks_before_the_time_that_was_asked_for_are_merged() -> None:
    """SEMANTICS 1.3: counted, as where a batch was late."""
    asked = AskedFor(10, 0, at=50)
    assert asked.next(0, 10, 0) == Tick(50, wait=50, merged=3)
    assert asked.next(0, None, 60) == Tick(50, merged=4)
    assert asked.next(0, 50, 50) == Tick(60, wait=10)
    assert AskedFor(10, 5, at=26).next(5, 7, 26) == Tick(26, merged=2)


def test_a_follow_up_takes_the_next_multiple(tmp_path: Path) -> None:
    """SEMANTICS 1.4: the next tick."""
    with Harness(windowed_job(Tumbling(TEN).drop_late()), tmp_path, interval=seconds(2), zero=1) as h:
        h.batch({"orders": [order("a", 1), order("a", 11)]}, at=3.25)
        assert h.commit().time == 5_000_000


def test_a_crash_does_not_change_the_time_that_was_asked_for(tmp_path: Path) -> None:
    """Also where the batch was not yet in the log."""
    with Harness(copying(), tmp_path) as h:
        h.crash_before("FixOffsets")
        with pytest.raises(Crashed):
            h.batch({"fed": [{"v": 1}]}, at=7.5)
        h.restart()
        assert h.commit().time == 7_500_000


def test_a_job_that_needs_ticks_takes_the_interval_of_the_harness(tmp_path: Path) -> None:
    """SEMANTICS 4.1: as from a runner's configuration, where the job's code says none."""
    job = Job("windows", partitions=1)
    job.source("rows", MemorySource("v int")).window("w", BatchWindow(seconds(4))).count().write("out", MemorySink())
    with Harness(job, tmp_path, interval=seconds(2)) as h:
        assert [row["count"] for row in h.batch({"rows": [{"v": 1}]})["out"]] == [1]
        assert [row["count"] for row in h.batch(at=8)["out"]] == [1, 0, 0]
        with pytest.raises(JobError, match="multiple of the job's interval, 2 s"):
            h.batch(at=9)


def test_a_time_that_the_interval_of_the_job_does_not_have_is_refused(tmp_path: Path) -> None:
    """SEMANTICS 1.1: multiples of the interval from the zero time."""
    job = Job("ticking", partitions=1, interval=seconds(2))
    job.source("fed", MemorySource("v int")).write("out", MemorySink())
    with Harness(job, tmp_path, zero=1_700_000_001.5) as h:
        message = r"1700000004 is not the zero time 1700000001\.5 plus a multiple of the job's interval, 2 s"
        with pytest.raises(JobError, match=message):
            h.batch({"fed": [{"v": 1}]}, at=1_700_000_004)
        with pytest.raises(JobError, match=r"1700000001\.5 is not later than the zero time, 1700000001\.5"):
            h.batch({"fed": [{"v": 1}]}, at=1_700_000_001.5)
        assert values(h.batch({"fed": [{"v": 2}]}, at=1_700_000_005.5)) == [2], "what is refused is not fed"
        assert h.commit().time == 1_700_000_005_500_000


def test_a_time_that_is_not_later_than_the_last_is_refused(tmp_path: Path) -> None:
    """SEMANTICS 1.1: strictly increasing; the message has both numbers."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]}, at=2.5)
        for at, shown in ((2.5, r"2\.5"), (1.25, r"1\.25")):
            with pytest.raises(JobError, match=rf"{shown} is not later than the last one, 2\.5"):
                h.batch({"fed": [{"v": 2}]}, at=at)
        assert values(h.batch({"fed": [{"v": 3}]})) == [3]
        assert h.commit().time == 3_000_000


# --- other code ------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("schema", ["v int", "v long, w string"])
@pytest.mark.parametrize("stage", ["FixOffsets", "CommitBatch"])
def test_a_restart_with_a_job_that_was_built_again_finishes_the_batch(tmp_path: Path, stage: str, schema: str) -> None:
    """API, test kit: the sources and sinks of the new job are those of the old one, as real ones would be."""
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        h.crash_after(stage)
        with pytest.raises(Crashed):
            h.batch({"fed": [[{"v": 2}, {"v": 3}], [{"v": 4}]]})
        assert sorted(values(h.restart(copying(MemorySource(schema))))) == [2, 3, 4]
        gc.collect()
        assert sorted(values(h.batch({"fed": [{"v": 5}]}))) == [5]
        assert sorted(values(h.output())) == [1, 2, 3, 4, 5]
        h.restore(empty=True)
        assert sorted(values(h.batch({"fed": []}))) == [1, 2, 3, 4, 5], "also what the old job was fed"


def test_a_watermark_that_was_said_holds_for_the_new_job(tmp_path: Path) -> None:
    """It is what the sources report from then on."""
    with Harness(windowed_job(Tumbling(TEN).drop_late()), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]}, watermark=5)
        h.restart(windowed_job(Tumbling(TEN).drop_late()))
        h.batch({"orders": [order("a", 50)]})
        assert h.commit().watermarks_out == {"w": 5_000_000}


def test_rows_fed_to_a_source_before_it_takes_over_come_after(tmp_path: Path) -> None:
    """Nothing that a test feeds is lost."""
    ahead = MemorySource("v int")
    ahead.feed([{"v": 2}])
    with Harness(copying(), tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        h.restart(copying(ahead))
        assert values(h.batch({"fed": [{"v": 3}]})) == [2, 3]


def test_what_was_spooled_lives_as_long_as_one_of_the_sources() -> None:
    """A batch that was fixed under the old job is computed under the new one."""
    old, new = MemorySource("v int"), MemorySource("v int")
    new.continue_from(old)
    folder = old.folder
    assert (new.folder, new.id, new.chunks) == (folder, old.id, old.chunks)
    del old
    gc.collect()
    assert folder.is_dir()
    del new
    gc.collect()
    assert not folder.exists()


def test_a_sink_that_the_new_job_no_longer_has_is_passed_over(tmp_path: Path) -> None:
    """The Commit that is published again at the start names it."""
    source = MemorySource("v int")
    both = Job("copying", partitions=1)
    fed = both.source("fed", source)
    fed.write("out", MemorySink())
    fed.write("extra", MemorySink())
    with Harness(both, tmp_path) as h:
        h.batch({"fed": [{"v": 1}]})
        assert h.restart(copying(source)) == {"out": []}
        assert h.batch({"fed": [{"v": 2}]}) == {"out": [{"v": 2}]}
    with Harness(both, tmp_path) as h:
        h.batch({"fed": [{"v": 3}]})
    with Harness(copying(source), tmp_path) as h:
        assert h.batch({"fed": [{"v": 4}]}) == {"out": [{"v": 4}]}


# --- what is returned ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda _: MemorySink(), lambda folder: Delta(folder / "table")], ids=["memory", "Delta"]
)
def test_a_restart_returns_no_rows_that_were_shown_before(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """The start publishes the last Commit again, which changes nothing."""
    with Harness(copying(sink=make(tmp_path)), tmp_path / "root") as h:
        assert values(h.batch({"fed": [{"v": 1}]})) == [1]
        assert h.restart() == {"out": []}
        h.crash_at("PublishSinks", "after")
        with pytest.raises(Crashed):
            h.batch({"fed": [{"v": 2}]})
        assert values(h.restart()) == [2], "published, and not yet shown"
        assert h.restart() == {"out": []}
        assert sorted(values(h.output())) == [1, 2]


def test_late_rows_are_shown_however_their_stream_is_used(tmp_path: Path) -> None:
    """API, test kit: h.late(name) reads the stream itself, and what reads it is not among the job's sinks."""
    job = windowed_job(Tumbling(TEN).late_to("late"))
    job.late("late").with_columns(x="'1'").filter("v > 7").write("kept", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1), order("a", 12)]})
        output = h.batch({"orders": [order("b", 2, 7), order("c", 3, 8)]})
        assert set(output) == set(h.output()) == {"out", "kept"}
        assert [row["x"] for row in output["kept"]] == ["1"]
        assert plain(h.late("late")) == [("b", 2.0, 7, 2.0, 12.0, "w"), ("c", 3.0, 8, 3.0, 12.0, "w")]
        assert {node.name for node in job.graph().sinks} == {"out", "kept"}, "the job is as it was written"
        again = windowed_job(Tumbling(TEN).late_to("late"))
        again.late("late").write("other", MemorySink())
        h.restart(again)
        h.batch({"orders": [order("d", 4, 9)]})
        assert [row["user"] for row in h.late("late")] == ["b", "c", "d"]


def test_a_late_stream_that_nobody_reads_needs_no_sink(tmp_path: Path) -> None:
    """API, test kit; and the job can be run again elsewhere, where none of its rows were late."""
    job = windowed_job(Tumbling(TEN).late_to("late"))
    for folder, interval in (("one", None), ("two", seconds(1))):
        with Harness(job, tmp_path / folder, interval=interval) as h:
            assert h.late("late") == []
            h.batch({"orders": []}, watermark=12)
            assert h.batch({"orders": [order("a", 1)]}) == {"out": []}
            assert len(h.late("late")) == 1
        with Harness(job, tmp_path / folder) as h:
            assert len(h.late("late")) == 1, "those of this checkpoint so far"


def test_a_quarantine_of_a_window_that_nobody_reads_needs_no_sink(tmp_path: Path) -> None:
    """API, test kit; SEMANTICS 3: a session without a gap is counted, and what holds it is not among the job's sinks."""
    job = windowed_job(Session("v").drop_late())
    with Harness(job, tmp_path) as h:
        assert h.batch({"orders": [order("a", 1, 1), order("b", 1, 0)]}) == {"out": []}
        assert h.commit().totals["window:w"]["quarantined"] == 1
    with pytest.raises(MissingSink):
        job.graph()
    job.quarantine("w").write("aside", MemorySink())
    with Harness(job, tmp_path / "read") as h:
        aside = h.batch({"orders": [order("c", 1, 0)]})["aside"]
        assert [row["user"] for row in aside] == ["b", "c"], "what the source was fed before is read here too"


def test_late_streams_with_long_names_are_told_apart() -> None:
    """A sink's name has room for 63 characters, and so has a stream's."""
    job = Job("long", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    streams = [f"{'late' * 15}_{i}" for i in range(2)] + ["late"]
    for i, stream in enumerate(streams):
        spec = Tumbling(TEN).late_to(stream)
        orders.window(f"w{i}", spec).aggregate(n=agg.count()).write(f"out{i}", MemorySink())
    seen, names = with_late_sinks(job)
    assert set(names) == set(streams)
    assert len({node.name for node in seen.graph().sinks}) == 6


# --- suites ----------------------------------------------------------------------------------


def test_suites_are_found_in_the_project_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """API, where things are: the nearest parent with conf/penstock.toml; quality= says otherwise."""
    rule = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 1}}
    (tmp_path / "conf" / "quality").mkdir(parents=True)
    (tmp_path / "conf" / "quality" / "small.json").write_text(json.dumps({"name": "small", "expectations": [rule]}))
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path / "tests")

    def checked() -> Job:
        job = Job("checked", partitions=1)
        rows = job.source("fed", MemorySource("v int"))
        rows.check("gate", suite="small", on_fail=OnFail.DROP).write("out", MemorySink())
        return job

    with pytest.raises(SuiteError, match="no folder for suites"), Harness(checked(), tmp_path / "root"):
        pass
    (tmp_path / "conf" / "penstock.toml").write_text("")
    with Harness(checked(), tmp_path / "root") as h:
        assert values(h.batch({"fed": [{"v": 1}, {"v": 2}]})) == [1]
    with pytest.raises(SuiteError, match="there is no"), Harness(checked(), tmp_path / "other", quality="."):
        pass


def test_a_source_of_another_process_is_told_from_this_one(tmp_path: Path) -> None:
    """SEMANTICS 9.1: where the spooled rows are gone with the object that fed them, the start fails."""
    h = Harness(copying(), tmp_path)
    h.restart()
    h.crash_after("FixOffsets")
    with pytest.raises(Crashed):
        h.batch({"fed": [{"v": 1}]})
    del h
    gc.collect()
    with pytest.raises(SourceChanged), Harness(copying(), tmp_path):
        pass


def test_functions_of_modules_that_this_process_finds_are_found_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a test module: who runs tests puts its folder on the path, when Spark may have started long ago."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "found_elsewhere.py").write_text("def counted(time, key, row, state):\n    return {'v': row['v'] + 1}\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    module = importlib.import_module("found_elsewhere")
    job = Job("elsewhere", partitions=1)
    step = job.source("fed", MemorySource("v int")).map_with_state(
        "step", module.counted, state="n long", output="v int", unbounded=True
    )
    step.write("out", MemorySink())
    with Harness(job, tmp_path / "root") as h:
        assert values(h.batch({"fed": [{"v": 1}]})) == [2]
