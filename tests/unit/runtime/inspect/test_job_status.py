"""How a job stands is told from storage alone: its log and the status record of its driver."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets, own, restore_entry
from project_samples import make_project

from penstock.checkpoint.log.entries import ManifestRef, Release, Restore, Save, StagedFile
from penstock.checkpoint.log.entries import Place as LogPlace
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.config.settings import load_settings
from penstock.errors import FormerCheckpoint
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.savepoint import save_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.inspect.job_status import JobState, kept_checkpoints, read_status
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.takeover_policy import holder_name
from penstock.time.clock import ManualClock

NOW = 1_700_000_000_000_000
ELSEWHERE = "another-host:17:4711"


class Place:
    """A checkpoint root with the log of job `orders`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(NOW)
        settings, _ = load_settings(make_project(root.with_name(f"{root.name}-project")), "orders")
        self.settings = settings.model_copy(update={"root": root})
        self.records = StatusRecords(LocalStore(root), "orders")

    def begin(self, holder: str = ELSEWHERE, writer: str = "w1", **other) -> None:
        self.log = Log(LocalStore(self.root / "orders"))
        open_or_create(self.log.store, now=0)
        self.owned = own(self.log, writer, holder=holder, **other)

    def batch(self, batch: int, **other) -> None:
        owned = self.owned
        owned.append(offsets(batch, owned.epoch, owned.writer))
        owned.append(commit(batch, owned.epoch, owned.writer, **other))

    def leave(self, reason: str = "stopped") -> None:
        self.owned.append(Release(epoch=self.owned.epoch, writer=self.owned.writer, reason=reason))

    def says(self, *, age: float = 1.0, writer: str = "w1", **body) -> None:
        self.records.put({"writer": writer, "at": NOW - round(age * 1_000_000), "state": "running", **body})

    def status(self):
        return read_status(self.settings, "orders", self.clock)

    def kept(self):
        checkpoints = kept_checkpoints(self.settings, "orders")
        assert checkpoints is not None
        return checkpoints[0]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_job_that_never_ran_has_no_checkpoint_and_gets_none_by_being_looked_at(place):
    """Looking makes nothing."""
    assert place.status().state is JobState.NEW
    assert kept_checkpoints(place.settings, "orders") is None
    assert not (place.root / "orders").exists()


def test_a_checkpoint_that_is_gone_is_no_job_that_never_ran(place):
    """F19: the record of the last driver tells of a batch, and a start would be refused with the same code."""
    place.begin()
    place.says()
    place.says(next_batch=1)
    shutil.rmtree(place.root / "orders")
    status = place.status()
    assert (status.state, status.last, status.error["code"]) == (JobState.GONE, None, FormerCheckpoint.code)
    assert status.to_json()["says"] == "its checkpoint is gone"


def test_a_driver_that_beats_is_running(place):
    """What only it knows is in its record."""
    place.begin()
    place.batch(0, watermarks_out={"w": 60_000_000})
    place.owned.append(offsets(1))
    place.says(ms=12.5, left={"s": 70})
    status = place.status()
    assert (status.state, status.holder, status.epoch) == (JobState.RUNNING, ELSEWHERE, 1)
    assert (status.last.batch, status.next_batch, status.pending) == (0, 1, True)
    assert (status.watermarks, status.heartbeat_age) == ({"w": 60_000_000}, 1.0)
    assert (status.record["ms"], status.record["left"]) == (12.5, {"s": 70})
    assert json.loads(json.dumps(status.to_json()))["state"] == "running"


def test_the_lag_of_a_source_without_an_end_is_known_while_a_driver_looks(place):
    """SEMANTICS 8: rows may have come since a driver that is gone has looked."""
    place.begin()
    place.batch(0)
    place.says(left={"file": 70, "topic": None, "new": None}, lag={"topic": 5, "file": 3})
    assert place.status().left == {"file": 70, "topic": 5, "new": None}
    place.says(age=3_600.0, left={"file": 70, "topic": None}, lag={"topic": 5})
    assert place.status().state is JobState.SILENT
    assert place.status().to_json()["rows_left"] == {"file": 70, "topic": None}


@pytest.mark.parametrize("age", [None, 10.0, 3_600.0])
def test_a_driver_elsewhere_without_a_sign_of_life_is_silent(place, age):
    """Whether it is dead, only watching tells."""
    place.begin()
    if age is not None:
        place.says(age=age)
    assert place.status().state is JobState.SILENT


def test_a_driver_of_this_host_whose_process_is_gone_has_died(place):
    """Its last heartbeat may be a second old."""
    place.begin(f"{socket.gethostname()}:{os.getpid()}:1")
    place.says()
    assert place.status().state is JobState.DIED


def test_a_driver_of_this_host_that_lives_runs(place):
    """This test is it."""
    place.begin(holder_name())
    place.says()
    assert place.status().state is JobState.RUNNING


@pytest.mark.parametrize(("reason", "state"), [("stopped", JobState.STOPPED), ("finished", JobState.FINISHED)])
def test_a_driver_that_left_says_why(place, reason, state):
    """Whatever its last record says."""
    place.begin()
    place.batch(0)
    place.leave(reason)
    place.says()
    status = place.status()
    assert (status.state, status.holder) == (state, None)


@pytest.mark.parametrize(
    ("code", "state"), [(75, JobState.FAILED), (78, JobState.NEEDS_PERSON), (70, JobState.NEEDS_PERSON)]
)
def test_a_driver_that_failed_says_with_what(place, code, state):
    """A retry may help with exit code 75 only."""
    place.begin()
    place.says(state="failed", exit_code=code, error={"code": "PEN-X", "what": "it broke"})
    status = place.status()
    assert (status.state, status.error) == (state, {"code": "PEN-X", "what": "it broke"})


GIVEN_UP = [
    ({"state": "stopped"}, JobState.STOPPED),
    ({"state": "failed", "exit_code": 75}, JobState.FAILED),
    ({"state": "stopped", "writer": "w0"}, JobState.SILENT),
]


@pytest.mark.parametrize(("record", "state"), GIVEN_UP, ids=["told to stop", "by itself", "another's record"])
def test_a_driver_that_released_its_log_behind_an_error_says_why(place, record, state):
    """A batch that is given up at a stop ends with an error of Spark, and is no failure of the job (decision 77)."""
    place.begin()
    place.leave("failed")
    place.says(**record)
    assert place.status().state is state


def test_the_record_of_another_driver_does_not_count(place):
    """Of the one before, or of one that was fenced and does not know it."""
    place.begin()
    place.says(state="failed", exit_code=78)
    place.begin(holder_name(), "w2")
    status = place.status()
    assert (status.state, status.error, status.epoch) == (JobState.SILENT, None, 2)


@pytest.mark.parametrize(
    ("reason", "state"),
    [("finished", JobState.FINISHED), ("stopped", JobState.STOPPED), ("failed", JobState.NEEDS_PERSON)],
)
def test_a_job_is_as_its_driver_left_it_whatever_commands_have_put_down_since(place, reason, state):
    """SEMANTICS 10.2, 11.5: savepoints and held batches of a job that does not run make no end of another kind."""
    place.begin()
    place.batch(0)
    said = {"code": "PEN-X", "what": "it broke"} if reason == "failed" else None
    place.says(state=reason, exit_code=78, error=said, left={"orders": 7})
    place.leave(reason)
    before = place.status()
    me = Identity(holder=holder_name(), code_version="penstock save")
    for name in ("monday", "tuesday"):
        save_at_rest(place.log, name, me, anybody_may)
    after = place.status()
    assert (before.state, before.error, before.left) == (state, said, {"orders": 7})
    assert (after.state, after.error, after.left) == (state, said, {"orders": 7})


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    ("reason", "state"),
    [("finished", JobState.FINISHED), ("stopped", JobState.STOPPED), ("failed", JobState.NEEDS_PERSON),
     (None, JobState.DIED)],
)  # fmt: skip
def test_commands_that_were_killed_change_nothing_about_how_a_driver_left(place, reason, state, kills, *, saved):
    """SEMANTICS 10.2, F09: a save that died with the log is no driver that died, and the next one knows that too."""
    gone = f"{socket.gethostname()}:{os.getpid()}:1"
    place.begin(gone)
    place.batch(0)
    place.says(state=reason or "running", exit_code=78)
    if reason is not None:
        place.leave(reason)
    for number in range(kills):
        place.begin(gone, writer=f"killed{number}", code_version="penstock save")
        if saved:
            pinned = commit(0, place=LogPlace(slot=2, takeover=0))
            place.owned.append(
                Save(epoch=place.owned.epoch, writer=place.owned.writer, name=f"n{number}", commit=pinned)
            )
    assert place.status().state is state
    save_at_rest(place.log, "monday", Identity(holder=holder_name(), code_version="penstock save"), anybody_may)
    assert place.status().state is (state if reason is not None else JobState.STOPPED)


def test_an_imported_job_has_no_record_of_the_driver_of_a_former_checkpoint(place):
    """10.2: a job of its name ended in this root before, and its error and the rows that it left are none of this."""
    place.begin()
    place.says(state="failed", exit_code=78, error={"code": "PEN-X", "what": "it broke"}, left={"orders": 7}, held=[3])
    shutil.rmtree(place.root / "orders")
    place.begin(writer="w2", code_version="penstock import")
    exported = commit(5, 1, "w2", place=LogPlace(slot=0, takeover=0))
    place.owned.append(restore_entry(place.owned, batch=5, source="import", commit=exported))
    place.leave("imported")
    status = place.status()
    assert (status.state, status.error, status.left, status.held) == (JobState.STOPPED, None, {}, ())


def test_damage_in_the_log_needs_a_person_and_is_shown(place):
    """The command shows it instead of failing."""
    place.begin()
    for batch in range(3):
        place.batch(batch)
    (place.root / "orders" / "log" / "000000000004").write_bytes(b"")
    place.says()
    status = place.status()
    assert status.state is JobState.NEEDS_PERSON
    assert (status.error["code"], status.error["where"]) == ("PEN-CKP-001", "log/000000000004")


def test_held_batches_and_a_restore_are_shown(place):
    """The state in force is that of the restored batch."""
    place.begin()
    file = StagedFile(path="x", size=1, rows=1, checksum="", stats={})
    place.batch(0, watermarks_out={"w": 1})
    place.batch(1, held={"out": [file]}, watermarks_out={"w": 2})
    place.owned.append(Restore(epoch=1, writer="w1", batch=0, source="batch", saved=None, partitions=None))
    status = place.status()
    assert (status.held, status.last.batch, status.goes_on_from, status.watermarks) == ((1,), 1, 0, {"w": 1})
    assert (status.undone, status.publishable) == ((1,), ())
    assert [(p.report.batch, p.undone) for p in place.kept()] == [(0, False), (1, True)]


def test_a_batch_whose_state_is_gone_cannot_be_restored(place):
    """The file that is missing is named."""
    place.begin()
    folder = place.root / "orders" / "state" / "w" / "0"
    folder.mkdir(parents=True)
    (folder / "there.json").touch()
    for batch, name in enumerate(("there.json", "gone.json")):
        place.batch(batch, state={"w": {"0": ManifestRef(path=name, size=0, checksum="")}})
    assert [(p.restorable, p.missing) for p in place.kept()] == [(True, None), (False, "state/w/0/gone.json")]


def test_kept_batches_are_those_from_the_floor_on_with_the_names_they_were_saved_under(place):
    """Oldest first."""
    place.begin()
    for batch in range(4):
        place.batch(batch, floor=max(0, batch - 1))
    saved = place.kept()[-1].report.batch
    newest = place.log.read(place.log.find_tail())
    place.owned.append(Save(epoch=1, writer="w1", name="monday", commit=newest))
    assert [(p.report.batch, p.saved) for p in place.kept()] == [(2, ()), (saved, ("monday",))]
    assert json.loads(json.dumps(place.kept()[1].to_json()))["saved"] == ["monday"]
