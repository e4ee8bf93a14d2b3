"""What a driver decides before Spark is started: whether it may, and where it begins (SEMANTICS 10.1, DESIGN 11)."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from checkpoint_samples import commit, leave, offsets, own
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock import Job
from penstock.checkpoint.log.entries import Place, Restore, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import CannotRestore, FormerCheckpoint
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.launch import RunOrder, _look_first
from penstock.runtime.restore.target import LAST, RestoreTarget
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource

EMPTY, BACK = RestoreTarget(restore=True), RestoreTarget(restore=True, batch=1)
JOB = Job("job")
JOB.source("rows", MemorySource("v int")).write("sink", MemorySink())
GRAPH = JOB.graph()
WATCH = SimpleNamespace(may_take_over=lambda view: None)


class Told:
    """What is told of a restore."""

    def __init__(self):
        self.answers = []
        self.lines = []

    def answered(self, command):
        self.answers.append(command)

    def superseded(self, undone):
        self.lines += undone.lines()


def looked(folder, start, command="a"):
    """Return where a driver of a command begins, and what it tells."""
    progress = Told()
    return _look_first(folder, WATCH, RunOrder(start=start, command=command), progress, GRAPH), progress


@pytest.fixture
def folder(tmp_path):
    """The checkpoint of a job with batches 0 to 3, the third of which was held, and left."""
    (tmp_path / "job").mkdir(mode=0o700)
    log = Log(LocalStore(tmp_path / "job"))
    open_or_create(log.store, now=0)
    owned = own(log)
    for batch in range(4):
        owned.append(offsets(batch))
        files = {"sink": [StagedFile(path="x", size=1, rows=7, checksum="", stats={})]}
        owned.append(commit(batch, held=files if batch == 2 else {}))
    leave(owned)
    return tmp_path / "job"


@pytest.mark.fault("F13")
def test_one_goes_back_behind_a_commit_that_cannot_be_read(folder):
    """That is what the error of the damage tells one to do."""
    newest = sorted((folder / "log").iterdir())[-2]
    data = newest.read_bytes()
    newest.chmod(0o600)
    newest.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert looked(folder, BACK)[0] == BACK


@pytest.mark.fault("F12")
def test_a_command_that_begins_with_nothing_leaves_a_restore_also_in_a_new_checkpoint(tmp_path):
    """By that its next driver knows that it has begun; without, each would empty the state again."""
    (tmp_path / "job").mkdir(mode=0o700)
    assert looked(tmp_path / "job", EMPTY)[0] == EMPTY
    assert looked(tmp_path / "job", EMPTY, command=None)[0] == LAST
    log = Log(LocalStore(tmp_path / "job"))
    open_or_create(log.store, now=0)
    owned = own(log, command="a")
    fields = {"batch": None, "source": "empty", "saved": None, "partitions": None}
    owned.append(Restore(epoch=owned.epoch, writer=owned.writer, command="a", **fields))
    begins, progress = looked(tmp_path / "job", EMPTY)
    assert (begins, progress.answers) == (LAST, ["a"])


def test_state_that_a_command_has_had_written_anew_is_not_written_again(folder):
    """A driver that the supervisor starts after a crash gets the same words, and the same id."""
    anew = RestoreTarget(restore=True, partitions=4, state=(("step", "table"),))
    assert looked(folder, anew)[0] == anew
    log = Log(LocalStore(folder))
    owned = own(log, command="a")
    kept = commit(3, owned.epoch, owned.writer, place=Place(slot=owned.next_slot - 1, takeover=owned.next_slot - 1))
    fields = {"batch": 3, "source": "batch", "saved": None, "partitions": {"step": 4}, "commit": kept}
    owned.append(Restore(epoch=owned.epoch, writer=owned.writer, command="a", **fields))
    leave(owned)
    begins, progress = looked(folder, anew)
    assert (begins, progress.answers) == (LAST, ["a"])
    assert looked(folder, anew, command="b")[0] == anew


@pytest.mark.parametrize("start", [BACK, EMPTY, RestoreTarget(restore=True, partitions=4)])
def test_a_command_that_only_restores_needs_a_checkpoint(tmp_path, start):
    """It would say that it had restored, and nothing would be there."""
    order = RunOrder(start=start, command="a", goes_on=False)
    with pytest.raises(CannotRestore, match="there is no checkpoint"):
        _look_first(tmp_path / "job", WATCH, order, Told(), GRAPH)


def test_there_is_no_batch_to_go_back_to_in_a_new_checkpoint(tmp_path):
    """Whoever asks; what the error tells to do works."""
    with pytest.raises(CannotRestore, match="nothing can be restored"):
        looked(tmp_path / "job", RestoreTarget(restore=True, partitions=4), command=None)
    with pytest.raises(CannotRestore, match="no checkpoint to restore batch 1 from") as met:
        looked(tmp_path / "job", BACK)
    assert "where there is none yet, start from last" in met.value.remedy
    assert looked(tmp_path / "job", LAST)[0] == LAST


def test_held_rows_that_were_released_are_among_those_that_stay_published(folder):
    """Rows that still wait are not."""
    assert looked(folder, BACK)[1].lines == ["back to batch 1: no sink has published rows after it"]
    records = HeldRecords(LocalStore(folder.parent), "job")
    ruling = records.decide(2, Decision.RELEASE, {"sink": 7}, by="me")
    records.carried_out(2, ruling, by="me")
    assert looked(folder, BACK)[1].lines[1:] == ["  sink: 7 rows of batch 2"]


UUID = "5f0c9bb4-1111-4222-8333-444455556666"


def table_job(table):
    """Return a job that writes a table."""
    job = Job("job")
    job.source("rows", MemorySource("v int")).write("out", Delta(table))
    return job.graph()


def begun(folder, table, **order):
    """Look at a job that has no checkpoint."""
    return _look_first(folder, WATCH, RunOrder(**order), Told(), table_job(table))


@pytest.mark.fault("F19")
@pytest.mark.parametrize("app", [f"{UUID}/out", f"{UUID}/out/held/3", f"{UUID}/out/truncate"])
@pytest.mark.parametrize("summed_up", [False, True])
def test_a_table_remembers_the_checkpoint_that_is_gone(tmp_path, app, summed_up):
    """Also where all of the root is gone with its volume, and where Delta has summed its log up."""
    table, folder = tmp_path / "table", tmp_path / "root" / "job"
    rows = pa.table({"v": [1]})
    write_deltalake(table, rows, commit_properties=CommitProperties(app_transactions=[Transaction(app, 4)]))
    if summed_up:
        write_deltalake(table, rows, mode="append")
        DeltaTable(table).create_checkpoint()
        for commit in (table / "_delta_log").glob("*.json"):
            commit.unlink()
    with pytest.raises(FormerCheckpoint, match=f"the table of sink 'out' has batches of the checkpoint {UUID}"):
        begun(folder, table)
    assert not folder.exists()
    assert begun(folder, table, new_lineage=True) == LAST
    assert begun(folder, table, start=EMPTY) == LAST


@pytest.mark.fault("F19")
def test_rows_of_others_are_no_lineage(tmp_path):
    """A table that was filled by hand, or for another sink, is begun with."""
    table, folder = tmp_path / "table", tmp_path / "root" / "job"
    assert begun(folder, table) == LAST
    for app in ("etl/out", f"{UUID}/other", f"x{UUID}/out"):
        other = CommitProperties(app_transactions=[Transaction(app, 4)])
        write_deltalake(table, pa.table({"v": [1]}), mode="append", commit_properties=other)
    assert begun(folder, table) == LAST


@pytest.mark.remedy("PEN-CKP-029")
@pytest.mark.fault("F19")
@pytest.mark.parametrize("body", [{"last": {"batch": 0}}, {"last": None, "next_batch": 3}])
def test_a_root_remembers_a_job_whose_folder_is_gone(tmp_path, body):
    """By what its drivers told of themselves; one that never came to a batch had nothing to lose."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    records = StatusRecords(LocalStore(root), "job")
    records.put({"last": None, "next_batch": 0})
    assert begun(root / "job", tmp_path / "table") == LAST
    records.put(body)
    with pytest.raises(FormerCheckpoint, match="job has had a checkpoint in this root, and it is gone"):
        begun(root / "job", tmp_path / "table")
    assert begun(root / "job", tmp_path / "table", new_lineage=True) == LAST


@pytest.mark.fault("F19")
def test_a_log_without_entries_is_no_log(tmp_path):
    """A folder that was emptied, and one whose driver was ended before its first entry, which may begin still."""
    root, table = tmp_path / "root", tmp_path / "table"
    (root / "job" / "log").mkdir(mode=0o700, parents=True)
    root.chmod(0o700)
    (root / "job").chmod(0o700)
    assert begun(root / "job", table) == LAST
    StatusRecords(LocalStore(root), "job").put({"last": {"batch": 7}})
    with pytest.raises(FormerCheckpoint, match="job has had a checkpoint in this root, and it is gone"):
        begun(root / "job", table)
    assert begun(root / "job", table, new_lineage=True) == LAST
    with pytest.raises(CannotRestore, match="no checkpoint to restore batch 1 from"):
        looked(root / "job", BACK)
