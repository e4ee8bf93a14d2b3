"""Data checkpoints: a plain Delta table that equals the state, and a base behind which nothing older is read (10.3)."""

from __future__ import annotations

import os
import pickle
import pty
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from penstock import EveryBatches, Job, agg, minutes, seconds
from penstock.errors import CannotRestore, CheckpointCorrupt
from penstock.runtime.snapshots.catalog import versions
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import BATCH, idle
from penstock.state.manifest import Manifest
from penstock.testing import Crashed, Harness
from penstock.windows import Sliding, Tumbling

pytestmark = pytest.mark.sample(2, of="data checkpoints")


def at(second: float) -> datetime:
    """Return a moment."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def count(time, key, row, state):
    """Add up what a key has got; a timer tells it a while later."""
    if state.is_timing_out():
        return {"k": key, "n": -1}
    if row is None:
        return {"k": key, "n": -2}
    if row["v"] < 0:
        state.remove()
        state.set_timer(time + timedelta(seconds=30), clock=BATCH)
        return None
    state.update(n=state.get_or({"n": 0})["n"] + row["v"])
    return None


def kept_job(every=2, *, timeout=None, partitions=3) -> Job:
    """Return a job with a state function."""
    job = Job("kept", partitions=partitions)
    job.checkpoint(every=EveryBatches(every))
    rows = job.source("rows", MemorySource("k string, v long"))
    bound = {"timeout": timeout} if timeout is not None else {"unbounded": True}
    rows.key_by("k").map_with_state("step", count, state="n long", output="k string, n long", **bound).write(
        "out", MemorySink()
    )
    return job


def table_rows(h: Harness, step: str = "step", version: int | None = None) -> list[dict]:
    """Return the rows of a step's table, as any reader of Delta finds them."""
    return DeltaTable(h.root / h.job.name / "snapshots" / step, version=version).to_pyarrow_table().to_pylist()


def sorted_rows(rows: list[dict]) -> list[tuple]:
    """Return rows without the column that says in what partition they are."""
    return sorted((tuple(v for k, v in sorted(row.items()) if k != "_state_partition") for row in rows), key=str)


def files_read(h: Harness) -> set[int]:
    """Return the batches whose segments the state in force reads."""
    folder = h.root / h.job.name / "state"
    batches = set()
    for step, refs in h.commit().state.items():
        for partition, ref in refs.items():
            manifest = Manifest.read(folder / step / partition / ref.path)
            batches |= {int(name.split("-")[0]) for name in manifest.files()}
    return batches


def test_10_3_the_table_is_the_state_behind_its_batch(tmp_path):
    """With keys that come, go and wait for timers; and each version that of its own batch."""
    draw, expected = random.Random(7), {}
    with Harness(kept_job(3, timeout=idle(seconds(20))), tmp_path) as h:
        for batch in range(10):
            rows = [{"k": f"k{draw.randrange(30)}", "v": draw.randrange(-1, 5)} for _ in range(8)]
            h.batch({"rows": rows})
            expected[batch] = sorted_rows(h.state("step"))
        kept = versions(h.root / "kept", "step")
        assert [version.commit.batch for version in kept] == [2, 5, 8]
        for version in kept:
            assert sorted_rows(table_rows(h, version=version.version)) == expected[version.commit.batch]
            assert version.commit.snapshots == ({} if version.commit.batch == 2 else version.commit.snapshots)
        newest = h.commit().snapshots["step"]
        assert (newest.batch, newest.version, newest.rows) == (8, kept[-1].version, len(expected[8]))
        timers = DeltaTable(h.root / "kept" / "snapshots" / "step.timers", version=kept[-1].timers)
        waiting = timers.to_pyarrow_table().to_pylist()
        assert waiting
        assert {row["_clock"] for row in waiting} == {"batch"}
        assert min(row["_at"] for row in waiting) > at(9)


def test_10_4_behind_a_data_checkpoint_nothing_older_is_read(tmp_path):
    """The base, and what came since; the results are those of a job without."""
    with Harness(kept_job(4), tmp_path / "a") as h, Harness(kept_job(10**6), tmp_path / "b") as plain:
        for batch in range(10):
            rows = [{"k": f"k{n}", "v": n} for n in range(batch, batch + 3)]
            assert h.batch({"rows": rows}) == plain.batch({"rows": rows})
            if batch in (4, 8):
                assert min(files_read(h)) == batch - 1
        assert sorted_rows(h.state("step")) == sorted_rows(plain.state("step"))
        h.restart()
        assert min(files_read(h)) == 7
        assert sorted_rows(h.state("step")) == sorted_rows(plain.state("step"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("sliding", [False, True], ids=["merged slices", "two stacks"])
def test_windows_have_a_table_of_slices_and_go_on_exactly(tmp_path, sliding):
    """With late rows into slices that a running aggregate holds, sums of doubles, and windows that close."""

    def job(every):
        made = Job("windowed", partitions=2)
        made.checkpoint(every=EveryBatches(every))
        rows = made.source(
            "rows", MemorySource("k string, t timestamp, v double"), event_time="t", max_out_of_order=seconds(3)
        )
        spec = Sliding(seconds(10), every=seconds(1)) if sliding else Tumbling(seconds(10))
        rows.key_by("k").window("w", spec.drop_late()).aggregate(n=agg.count(), s=agg.sum("v"), top=agg.max("v")).write(
            "out", MemorySink()
        )
        return made

    draw = random.Random(3)
    with Harness(job(3), tmp_path / "a") as h, Harness(job(10**6), tmp_path / "b") as plain:
        for batch in range(13):
            rows = [
                {
                    "k": draw.choice("ab"),
                    "t": batch * 2.0 - draw.random() * 5 + 20,
                    "v": float(draw.randrange(-(10**9), 10**9)),
                }
                for _ in range(draw.randrange(6))
            ]
            assert h.batch({"rows": rows}) == plain.batch({"rows": rows}), batch
            assert sorted_rows(h.state("w")) == sorted_rows(plain.state("w"))
            newest = h.commit().snapshots.get("w")
            if newest is not None and newest.batch == h.commit().batch - 1:
                assert min(files_read(h)) >= newest.batch
        assert len(versions(h.root / "windowed", "w")) >= 4
        assert plain.output() == h.output()
        assert set(table_rows(h, "w")[0]) >= {"k", "slice_start", "_state_partition"}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "hook",
    [("FixOffsets", "after"), ("Compute", "after"), ("CommitBatch", "before"), ("CommitBatch", "after")],
    ids=" ".join,
)
def test_a_crash_in_the_batch_that_stands_on_a_base_loses_nothing(tmp_path, hook):
    """Before its Commit the base is nobody's, and behind it everybody's."""
    totals: Counter[str] = Counter()
    with Harness(kept_job(2), tmp_path) as h:
        for batch in range(6):
            rows = [{"k": f"k{n}", "v": n} for n in range(batch, batch + 3)]
            totals.update({row["k"]: row["v"] for row in rows})
            if batch == 2:
                h.crash_at(*hook)
                with pytest.raises(Crashed):
                    h.batch({"rows": rows})
                h.restart()
            else:
                h.batch({"rows": rows})
            assert {row["k"]: row["n"] for row in h.state("step")} == totals
        assert h.commit().snapshots["step"].batch >= 3


def test_partitions_that_did_not_change_are_not_written_again(tmp_path):
    """In the table their files stay; and their segments, which are a base already."""
    with Harness(kept_job(2, partitions=4), tmp_path) as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(40)]})
        for _ in range(4):
            h.batch({"rows": [{"k": "k1", "v": 1}]})
        first, *_, last = versions(h.root / "kept", "step")
        path = h.root / "kept" / "snapshots" / "step"
        files = [set(DeltaTable(path, version=version.version).file_uris()) for version in (first, last)]
        assert len(files[0]) == 4
        assert len(files[0] & files[1]) == 3
        assert sorted_rows(table_rows(h, version=last.version)) != sorted_rows(table_rows(h, version=first.version))


def test_a_table_that_somebody_has_edited_is_written_anew_as_a_whole(tmp_path):
    """Else what was edited would stay in it, in partitions that did not change."""
    with Harness(kept_job(2, partitions=4), tmp_path) as h:
        h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(40)]})
        h.batch({"rows": [{"k": "k1", "v": 1}]})
        h.batch({"rows": [{"k": "k1", "v": 1}]})
        path = h.root / "kept" / "snapshots" / "step"
        write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 3), mode="overwrite")
        for _ in range(2):
            h.batch({"rows": [{"k": "k1", "v": 1}]})
        assert h.commit().snapshots["step"].batch == 3
        assert len(table_rows(h)) == 40
        assert [version.commit.batch for version in versions(h.root / "kept", "step")] == [1, 3]


def test_old_versions_go_and_the_newest_stay(tmp_path, settings_keeping):
    """As many as the configuration says."""
    with Harness(kept_job(1), tmp_path, settings=settings_keeping(2)) as h:
        for n in range(7):
            h.batch({"rows": [{"k": "a", "v": n}]})
        newest = h.commit().snapshots["step"].batch
        assert [version.commit.batch for version in versions(h.root / "kept", "step")][-2:] == [newest, newest + 1]
        assert len(versions(h.root / "kept", "step")) == 2
        paths = list((h.root / "kept" / "snapshots" / "step").glob("_state_partition=*/*.parquet"))
        assert len(paths) == 2


@pytest.mark.parametrize("keep", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_delta_s_own_log_goes_with_the_versions(tmp_path, settings_keeping, keep):
    """P9: no more files after 30 data checkpoints than after 20, and each version that is kept can be read."""
    expected, files = {}, []
    with Harness(kept_job(1, timeout=idle(seconds(50))), tmp_path, settings=settings_keeping(keep)) as h:
        for batch in range(30):
            h.batch({"rows": [{"k": f"k{batch}", "v": -1 if batch % 3 else 1}]})
            expected[batch] = sorted_rows(h.state("step"))
            files.append(sum(1 for path in (h.root / "kept" / "snapshots").rglob("*") if path.is_file()))
        assert max(files[20:]) <= max(files[10:20])
        kept = versions(h.root / "kept", "step")
        assert len(kept) == keep
        for version in kept:
            assert sorted_rows(table_rows(h, version=version.version)) == expected[version.commit.batch]
            DeltaTable(h.root / "kept" / "snapshots" / "step.timers", version=version.timers).to_pyarrow_table()


@pytest.fixture
def settings_keeping():
    """Return settings that keep so many versions."""
    from penstock.runtime.driver.settings import DriverSettings
    from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy

    return lambda keep: DriverSettings(data=DataCheckpointPolicy(keep=keep))


def test_segments_that_a_base_stands_for_are_swept(tmp_path, monkeypatch):
    """Once no kept Commit names them."""
    from penstock.runtime.driver import retention
    from penstock.runtime.driver.settings import DriverSettings

    monkeypatch.setattr(retention, "EVERY", 2)
    with Harness(kept_job(4, partitions=2), tmp_path, settings=DriverSettings(keep=3)) as h:
        for n in range(12):
            h.batch({"rows": [{"k": f"k{n + m}", "v": n} for m in range(12)]})
        left = {int(path.name.split("-")[0]) for path in Path(h.root / "kept" / "state").glob("*/*/*.arrow")}
        assert min(left) >= 7


def test_one_that_fails_is_told_and_the_stream_goes_on(tmp_path, caplog):
    """Here a file stands where the table should be."""
    with Harness(kept_job(2), tmp_path) as h:
        (h.root / "kept").mkdir(exist_ok=True)
        (h.root / "kept" / "snapshots").write_text("in the way")
        for n in range(5):
            h.batch({"rows": [{"k": "a", "v": n}]})
        assert h.state("step")[0]["n"] == 10
        assert h.commit().snapshots == {}
        (h.root / "kept" / "snapshots").unlink()
        for n in range(3):
            h.batch({"rows": [{"k": "a", "v": n}]})
        assert h.commit().snapshots["step"].rows == 1


def test_an_interval_goes_by_batch_times(tmp_path):
    """A Duration, as in the configuration."""
    job = kept_job(1)
    job._checkpoints = None
    job.checkpoint(every=minutes(1))
    with Harness(job, tmp_path) as h:
        for second in (1, 30, 59, 61, 90, 120, 122, 124):
            h.batch({"rows": [{"k": "a", "v": 1}]}, at=second)
        assert [version.commit.time // 10**6 for version in versions(h.root / "kept", "step")] == [61, 122]


@pytest.mark.sample(1)
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "record flipped"])
def test_fsck_finds_a_damaged_table_and_the_stream_goes_on(tmp_path, harm):
    """It needs none of it; the next data checkpoint is whole again."""
    from penstock.checkpoint.log.log import Log
    from penstock.checkpoint.storage.local import LocalStore
    from penstock.runtime.inspect.fsck import verify

    with Harness(kept_job(2, partitions=1), tmp_path) as h:
        for n in range(3):
            h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(500)]})
        folder = h.root / "kept"
        log = Log(LocalStore(folder))
        assert verify(log, folder).findings == ()
        table = folder / "snapshots" / "step"
        path = next(table.glob("_penstock/*.json" if "record" in harm else "*=*/*.parquet"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data[:-30]) if harm == "cut" else bytes(data))
        if harm == "remove":
            path.unlink()
        (finding,) = verify(log, folder).findings
        assert finding.what.startswith("snapshot step@0: ")
        assert finding.means.startswith("snapshot=step@0 cannot be restored;")
        with pytest.raises((CannotRestore, CheckpointCorrupt)):
            h.restore(snapshot="0")
        h.restart()
        for _ in range(4):
            h.batch({"rows": [{"k": "k1", "v": 1}]})
        newest = versions(folder, "step")[-1]
        assert (newest.commit.batch > 3, newest.rows) == (True, 500)
        assert len(table_rows(h)) == 500


def test_fsck_finds_a_hole_in_the_tables_own_log_and_its_remedy_works(tmp_path):
    """Going back to the snapshot needs no log of Delta's; where the folder is removed the next one is made whole."""
    from penstock.checkpoint.log.log import Log
    from penstock.checkpoint.storage.local import LocalStore
    from penstock.runtime.inspect.fsck import verify

    with Harness(kept_job(2, partitions=1), tmp_path) as h:
        for n in range(5):
            h.batch({"rows": [{"k": f"k{n}", "v": n} for n in range(50)]})
        folder = h.root / "kept"
        log = Log(LocalStore(folder))
        assert verify(log, folder).findings == ()
        table = folder / "snapshots" / "step"
        name = f"step@{versions(folder, 'step')[-1].version}"
        (table / "_delta_log" / f"{1:020d}.json").unlink()
        (finding,) = verify(log, folder).findings
        assert finding.what.startswith(f"the table {table} cannot be read as of version 1: ")
        assert "put the file back from a copy, or remove " in finding.means
        h.restore(snapshot=name)
        shutil.rmtree(table)
        h.restart()
        for _ in range(4):
            h.batch({"rows": [{"k": "k1", "v": 1}]})
        assert verify(log, folder).findings == ()
        assert len(table_rows(h)) == 50


@pytest.mark.fault("F13")
def test_an_emptied_entry_of_the_tables_own_log_is_found_and_spreads_to_no_later_snapshot(tmp_path):
    """Delta takes an empty file for a version that changes nothing: its table has keys twice (10.3)."""
    from penstock.checkpoint.log.log import Log
    from penstock.checkpoint.storage.local import LocalStore
    from penstock.runtime.inspect.fsck import verify

    with Harness(kept_job(1), tmp_path) as h:
        h.batch({"rows": [{"k": f"k{n}", "v": 1} for n in range(60)]})
        for _ in range(3):
            h.batch({"rows": [{"k": "k1", "v": 1}]})
        h.batch({"rows": [{"k": f"k{n}", "v": 1} for n in range(60)]})
        folder = h.root / "kept"
        log = Log(LocalStore(folder))
        assert verify(log, folder).findings == ()
        newest = versions(folder, "step")[-1].version
        entry = folder / "snapshots" / "step" / "_delta_log" / f"{newest - 1:020d}.json"
        entry.write_bytes(b"")
        h.batch({"rows": [{"k": "k2", "v": 1}]})
        (finding,) = verify(log, folder).findings
        assert finding.what == (f"the table {entry.parents[1]} cannot be read as of version {newest - 1}: "
                                "its log shows other files than the snapshot has")  # fmt: skip
        assert "other programs get an error or wrong rows of that version" in finding.means
        state = {row["k"]: row["n"] for row in table_rows(h)}
        assert len(table_rows(h)) == 60
        assert (state["k1"], state["k2"], state["k3"]) == (5, 3, 2)


class Loud:
    """An order that complains while it is read."""

    def __reduce__(self):
        return os.write, (2, b"warned")


_ON_A_TERMINAL = """
import fcntl, os, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
modes = termios.tcgetattr(0)
modes[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, modes)
words = [sys.executable, "-m", "penstock.runtime.snapshots.writer", *sys.argv[1:]]
helper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
_, status = os.waitpid(helper.pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", end="", flush=True)
if os.WIFSTOPPED(status):
    helper.kill()
"""
"""A driver at a terminal with `tostop` that has a helper, and says how that went."""


class TestHelperProcess:
    """One that is made by a process of its own, which may die, hang or print."""

    @staticmethod
    def helper_settings(make):
        """Return settings with this maker."""
        from penstock.runtime.driver.settings import DriverSettings
        from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy

        return DriverSettings(data=DataCheckpointPolicy(make=make, patience=600.0))

    def test_it_is_stood_on_when_it_is_made_and_one_that_was_killed_is_made_again(self, tmp_path):
        """The batches never wait for it."""
        from penstock.runtime.snapshots.scheduler import HelperProcess
        from tools.waiting import until

        made, groups = [], []

        class Held(HelperProcess):
            """One that does nothing until it is let."""

            def __init__(self, order):
                super().__init__(order)
                self._process.send_signal(signal.SIGSTOP)
                made.append(self._process)
                groups.append((os.getsid(made[-1].pid), os.getpgid(made[-1].pid) == made[-1].pid))

        with Harness(kept_job(2), tmp_path, settings=self.helper_settings(Held)) as h:
            for n in range(3):
                h.batch({"rows": [{"k": f"k{m}", "v": n} for m in range(20)]})
            assert len(made) == 1
            made[0].kill()
            made[0].wait()
            for n in range(3):
                h.batch({"rows": [{"k": f"k{m}", "v": n} for m in range(20)]})
            assert h.commit().snapshots == {}
            assert len(made) == 2
            made[1].send_signal(signal.SIGCONT)
            until(lambda: made[1].poll() is not None)
            h.batch({"rows": [{"k": "k1", "v": 1}]})
            assert h.commit().snapshots["step"].rows == 20
            assert min(files_read(h)) >= h.commit().snapshots["step"].batch
        assert all(process.poll() is not None for process in made), "none outlives its driver's run"
        # Linux divides processors by sessions first: in one of its own its low priority would not count.
        assert set(groups) == {(os.getsid(0), True)}

    def test_a_terminal_that_stops_who_writes_from_the_background_stops_no_maker(self, tmp_path):
        """`stty tostop`: what modules of a job warn of goes to the driver's terminal, from a group of its own."""
        order, said = tmp_path / "order", tmp_path / "answer"
        order.write_bytes(pickle.dumps(Loud()))
        terminal, driver_end = pty.openpty()
        driver = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, str(order), str(said)],
            stdin=driver_end, stdout=subprocess.PIPE, stderr=driver_end, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        ended = driver.communicate(timeout=120)[0]
        os.write(driver_end, b".")  # else a read of nothing would wait
        written = os.read(terminal, 1_000)
        os.close(terminal)
        os.close(driver_end)
        assert (ended, written.rstrip(b"."), said.is_file()) == (b"ended", b"warned", True)

    def test_a_maker_that_cannot_even_begin_ends_no_batch(self, tmp_path):
        """No memory for a process, say."""

        def none(order):
            raise OSError("no memory")

        with Harness(kept_job(1), tmp_path, settings=self.helper_settings(none)) as h:
            for n in range(3):
                h.batch({"rows": [{"k": "a", "v": n}]})
            assert h.state("step")[0]["n"] == 3
            assert h.commit().snapshots == {}

    def test_one_that_hangs_is_given_up(self, tmp_path):
        """And does not keep old commits for ever."""
        from penstock.runtime.driver.settings import DriverSettings
        from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy

        ended = []

        class Hangs:
            def __init__(self, order):
                pass

            def poll(self):
                return None

            def end(self):
                ended.append(self)

        settings = DriverSettings(data=DataCheckpointPolicy(make=Hangs, patience=0.0))
        with Harness(kept_job(2), tmp_path, settings=settings) as h:
            for n in range(5):
                h.batch({"rows": [{"k": "a", "v": n}]})
            assert len(ended) == 2
            assert h._run.driver.data.pinned() == set()


def test_a_base_of_a_batch_below_the_floor_is_not_swept_while_it_is_made(tmp_path, monkeypatch):
    """Its files are named by the newest batch, and those it is made from are of the state in force."""
    from penstock.runtime.driver import retention
    from penstock.runtime.driver.settings import DriverSettings
    from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy
    from penstock.runtime.snapshots.writer import answer

    monkeypatch.setattr(retention, "EVERY", 2)

    class Late:
        def __init__(self, order):
            self.order, self.said, self.asked = order, answer(order), 0

        def poll(self):
            self.asked += 1
            return self.said if self.asked > 6 else None

        def end(self):
            pass

    settings = DriverSettings(keep=2)
    with Harness(kept_job(3), tmp_path, settings=settings) as h:
        for n in range(8):
            h.batch({"rows": [{"k": f"k{m}", "v": n} for m in range(9)]})
        old = versions(h.root / "kept", "step")[0]
        assert old.commit.batch < h.commit().floor
        h.settings = DriverSettings(keep=2, data=DataCheckpointPolicy(make=Late))
        h.restore(snapshot=str(old.version))
        for n in range(12):
            h.batch({"rows": [{"k": f"k{m}", "v": n} for m in range(9)]})
        assert h.commit().snapshots["step"].batch >= old.commit.batch
        assert len(h.state("step")) == 9


def test_an_old_drivers_table_is_not_written_behind_a_newer_ones(tmp_path):
    """A helper may outlive the hold of the log for a while."""
    from dataclasses import replace

    from penstock.errors import Fenced
    from penstock.runtime.driver.settings import DriverSettings
    from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy, InPlace
    from penstock.runtime.snapshots.writer import take_snapshots

    orders = []

    def noted(order):
        orders.append(order)
        return InPlace(order)

    with Harness(kept_job(2), tmp_path, settings=DriverSettings(data=DataCheckpointPolicy(make=noted))) as h:
        for n in range(5):
            h.batch({"rows": [{"k": "a", "v": n}]})
        h.restart()
        for n in range(5):
            h.batch({"rows": [{"k": "a", "v": n}]})
        before = table_rows(h)
        with pytest.raises(Fenced):
            take_snapshots(replace(orders[0], run="late"))
        assert table_rows(h) == before
