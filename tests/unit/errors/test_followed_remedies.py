"""What an error says to do is done, and helps: the remedies that need no Spark and have no other test.

Each test meets the error first. `tests/docs/test_remedies.py` counts the marks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from checkpoint_samples import commit, leave, offsets, own
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock import Job, agg, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.config.settings import load_settings
from penstock.errors import (
    AlreadyExists,
    BadExpression,
    BadName,
    BadRecordFound,
    CannotRestore,
    CannotSave,
    CheckpointPartial,
    CommitUnknown,
    ConfigError,
    DuplicateName,
    JobError,
    MetadataDamaged,
    MetadataMissing,
    MissingLatePolicy,
    MissingSink,
    NoState,
    NotExclusive,
    NotFound,
    PathEscapes,
    RootUnsafe,
    SourceNotFound,
    StateMisused,
    StateRowTooLarge,
    StateTooLarge,
    SuiteMalformed,
    SuiteNotFound,
    UnboundedState,
    UnknownName,
)
from penstock.graph.timeouts import NEVER
from penstock.quality.suite import load_suite
from penstock.runtime.driver.savepoint import save_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.launch import refuse_to_begin
from penstock.runtime.restore.target import find_restorable
from penstock.sinks import MemorySink
from penstock.sources import BadRecord, FileReplay, MemorySource
from penstock.state.key_state import State
from penstock.state.limits import check_rows, check_sizes
from penstock.windows import Tumbling

ME = Identity(holder="me", writer="me", code_version="test")


def anybody(view: View) -> None:
    """Let whoever asks take over."""


def plain_job(name: str = "job") -> Job:
    """Return a job that may be built."""
    job = Job(name)
    rows(job).write("out", MemorySink())
    return job


def rows(job: Job, name: str = "rows"):
    """Return a stream with event time."""
    return job.source(name, MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(1))


# --- checkpoints -----------------------------------------------------------------------------


@pytest.mark.remedy("PEN-CKP-028")
@pytest.mark.fault("F17")
@pytest.mark.parametrize("remedy", ["put back", "begun anew"])
def test_a_checkpoint_in_part_is_made_whole_or_put_aside(tmp_path: Path, remedy: str) -> None:
    """--new-lineage alone does not begin over what is there; with the folder put aside it does, and that is kept."""
    folder, graph = tmp_path / "job", plain_job().graph()
    made = open_or_create(LocalStore(folder), now=1)
    leave(own(Log(LocalStore(folder))))
    (folder / "staged").mkdir()
    (folder / "staged" / "x.parquet").write_bytes(b"x")
    for part in ("log", "metadata.json"):
        (folder / part).rename(tmp_path / part)
    for new_lineage in (False, True):
        with pytest.raises(CheckpointPartial):
            refuse_to_begin(folder, graph, new_lineage=new_lineage)
    if remedy == "put back":
        for part in ("log", "metadata.json"):
            (tmp_path / part).rename(folder / part)
        assert open_or_create(LocalStore(folder), now=2).uuid == made.uuid
        return
    folder.rename(tmp_path / "aside")
    refuse_to_begin(folder, graph, new_lineage=True)
    assert open_or_create(LocalStore(folder), now=2).uuid != made.uuid
    assert (tmp_path / "aside" / "staged" / "x.parquet").read_bytes() == b"x"


@pytest.mark.remedy("PEN-CKP-004", "PEN-CKP-040")
@pytest.mark.parametrize("remedy", ["put back", "elsewhere"])
@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_metadata_is_put_back_or_an_empty_checkpoint_is_begun_elsewhere(tmp_path: Path, harm: str, remedy: str) -> None:
    """The old identity comes back with its file; elsewhere there is a new one."""
    folder = tmp_path / "job"
    made = open_or_create(LocalStore(folder), now=1)
    leave(own(Log(LocalStore(folder))))
    (folder / "metadata.json").rename(tmp_path / "kept.json")
    if harm == "damaged":
        (folder / "metadata.json").write_bytes((tmp_path / "kept.json").read_bytes()[:-9])
    with pytest.raises(MetadataMissing if harm == "gone" else MetadataDamaged, match="start an empty checkpoint else"):
        open_or_create(LocalStore(folder), now=2)
    if remedy == "put back":
        (tmp_path / "kept.json").rename(folder / "metadata.json")
        assert open_or_create(LocalStore(folder), now=2).uuid == made.uuid
    else:
        assert open_or_create(LocalStore(tmp_path / "elsewhere"), now=2).uuid != made.uuid


@pytest.mark.remedy("PEN-CKP-006")
def test_a_store_that_creates_exclusively_takes_the_place_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local disk does, where the other had no links."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    with monkeypatch.context() as other:
        other.setattr(os, "link", no_links)
        with pytest.raises(NotExclusive):
            LocalStore(tmp_path / "other").create("log/0", b"x")
    LocalStore(tmp_path / "disk").create("log/0", b"x")


@pytest.mark.remedy("PEN-CKP-017")
def test_a_folder_that_is_made_private_is_taken(tmp_path: Path) -> None:
    """With chmod 700, and a real folder in place of a link."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job").chmod(0o770)
    with pytest.raises(RootUnsafe):
        LocalStore(tmp_path / "job")
    (tmp_path / "job").chmod(0o700)
    LocalStore(tmp_path / "job").create("log/0", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "job")
    with pytest.raises(RootUnsafe):
        LocalStore(tmp_path / "link")
    (tmp_path / "link").unlink()
    LocalStore(tmp_path / "link").create("log/0", b"x")


@pytest.mark.remedy("PEN-CKP-018", "PEN-CKP-020", "PEN-CKP-021")
def test_a_store_takes_plain_names_keeps_what_it_has_and_finds_what_is_put_back(tmp_path: Path) -> None:
    """A name that is taken tells by its file whose it is."""
    store = LocalStore(tmp_path / "job")
    with pytest.raises(PathEscapes):
        store.create("../x", b"x")
    store.create("log/x", b"mine")
    with pytest.raises(AlreadyExists):
        store.create("log/x", b"theirs")
    assert store.read("log/x") == b"mine"
    (tmp_path / "job" / "log" / "x").rename(tmp_path / "backup")
    with pytest.raises(NotFound):
        store.read("log/x")
    (tmp_path / "backup").rename(tmp_path / "job" / "log" / "x")
    assert store.read("log/x") == b"mine"


@pytest.mark.remedy("PEN-CKP-014", "PEN-CKP-024")
def test_another_name_saves_and_a_batch_that_is_listed_can_be_gone_back_to() -> None:
    """What the errors list is what works; what was too early works once a batch was committed."""
    log, empty = Log(MemoryStore()), Log(MemoryStore())
    leave(own(empty))
    with pytest.raises(CannotSave, match="no batch was committed"):
        save_at_rest(empty, "first", ME, anybody)
    owned = own(log)
    owned.append(offsets(0))
    owned.append(commit(0))
    leave(owned)
    save_at_rest(log, "first", ME, anybody)
    with pytest.raises(CannotSave, match="the names in use are"):
        save_at_rest(log, "first", ME, anybody)
    save_at_rest(log, "second", ME, anybody)
    with pytest.raises(CannotRestore) as met:
        find_restorable(recover(log), batch=9)
    assert "0" in met.value.what
    assert find_restorable(recover(log), batch=0).batch == 0


# --- jobs and configuration ------------------------------------------------------------------


def with_a_bare_duration(*, better: bool) -> None:
    Tumbling(seconds(10) if better else 10)


def with_an_empty_filter(*, better: bool) -> None:
    rows(Job("job")).filter("k = 'a'" if better else "  ")


def with_bad_name(*, better: bool) -> None:
    Job("orders_2" if better else "Orders-2")


def with_one_name_twice(*, better: bool) -> None:
    job = plain_job()
    rows(job, "others" if better else "rows").write("more", MemorySink())
    job.graph()


def without_late_policy(*, better: bool) -> None:
    window = Tumbling(seconds(1))
    stream = rows(Job("job")).key_by("k").window("w", window.drop_late() if better else window)
    stream.aggregate(n=agg.count()).write("out", MemorySink())


def with_a_side_stream_of_nobody(*, better: bool) -> None:
    job = Job("job")
    windows = rows(job).key_by("k").window("w", Tumbling(seconds(1)).late_to("late"))
    windows.aggregate(n=agg.count()).write("out", MemorySink())
    job.late("late" if better else "nobody").write("late", MemorySink())
    if not better:
        job.late("late").write("aside", MemorySink())
    job.graph()


def without_sink(*, better: bool) -> None:
    job = Job("job")
    stream = rows(job)
    if better:
        stream.write("out", MemorySink())
    job.graph()


def without_bound(*, better: bool) -> None:
    bound = {"unbounded": True} if better else {}
    stream = rows(Job("job")).key_by("k").map_with_state(
        "step", lambda *_: None, state="n long", output="k string", **bound
    )  # fmt: skip
    stream.write("out", MemorySink())


@pytest.mark.remedy("PEN-JOB-001", "PEN-JOB-002", "PEN-JOB-003", "PEN-JOB-004", "PEN-JOB-005")
@pytest.mark.remedy("PEN-JOB-006", "PEN-JOB-008", "PEN-JOB-010")
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (with_a_bare_duration, JobError),
        (with_an_empty_filter, BadExpression),
        (with_bad_name, BadName),
        (with_one_name_twice, DuplicateName),
        (without_late_policy, MissingLatePolicy),
        (with_a_side_stream_of_nobody, UnknownName),
        (without_sink, MissingSink),
        (without_bound, UnboundedState),
    ],
    ids=lambda make: make.__name__,
)
def test_a_job_that_is_corrected_as_it_is_told_is_built(make: Callable[..., None], error: type[Exception]) -> None:
    """With nothing else changed."""
    with pytest.raises(error):
        make(better=False)
    make(better=True)


@pytest.mark.remedy("PEN-CNF-001")
def test_a_line_that_is_corrected_is_read(tmp_path: Path) -> None:
    """The error names file, line and what the key takes."""
    (tmp_path / "conf" / "jobs").mkdir(parents=True)
    (tmp_path / "conf" / "penstock.toml").write_text("")
    file = tmp_path / "conf" / "jobs" / "orders.toml"
    file.write_text('[run]\ntrigger = "hourly"\n')
    with pytest.raises(ConfigError, match="as_fast") as met:
        load_settings(tmp_path, "orders")
    assert str(met.value.where).endswith("orders.toml:2")
    file.write_text('[run]\ntrigger = "as_fast"\n')
    load_settings(tmp_path, "orders")


@pytest.mark.remedy("PEN-QLT-004", "PEN-QLT-005")
def test_a_suite_is_put_where_it_is_looked_for_and_corrected_at_its_line(tmp_path: Path) -> None:
    """First it is not there, then it is no JSON."""
    path = tmp_path / "s.json"
    with pytest.raises(SuiteNotFound):
        load_suite(path, where="jobs/j.py:7")
    path.write_text('{"expectations": [],}')
    with pytest.raises(SuiteMalformed) as met:
        load_suite(path, where="jobs/j.py:7")
    assert met.value.where == f"{path}:1"
    expectation = '{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "k"}}'
    path.write_text(f'{{"name": "s", "expectations": [{expectation}]}}')
    load_suite(path, where="jobs/j.py:7")


# --- sources and state -----------------------------------------------------------------------


@pytest.mark.remedy("PEN-SRC-001", "PEN-SRC-004")
@pytest.mark.parametrize("remedy", ["corrected", "quarantine"])
def test_a_path_and_a_record_are_corrected_or_the_record_is_put_aside(tmp_path: Path, remedy: str) -> None:
    """A replay that fails on a bad record opens once the record is good, or allowed to be bad."""
    path = tmp_path / "rows.csv"
    path.write_text("k,s\n1,a\n2\n")
    with pytest.raises(SourceNotFound):
        FileReplay(tmp_path / "row.csv", order_by="k").open(None)
    with pytest.raises(BadRecordFound):
        FileReplay(path, order_by="k", on_bad_record=BadRecord.FAIL).open(None)
    if remedy == "corrected":
        path.write_text("k,s\n1,a\n2,b\n")
        assert FileReplay(path, order_by="k", on_bad_record=BadRecord.FAIL).open(None).count == 2
    else:
        assert FileReplay(path, order_by="k", on_bad_record=BadRecord.QUARANTINE).open(None).count == 2


@pytest.mark.remedy("PEN-STA-002", "PEN-STA-008")
def test_a_limit_that_is_raised_lets_the_state_be() -> None:
    """Of a step, and of what it keeps for one key; or less is kept."""
    with pytest.raises(StateTooLarge):
        check_sizes({"w": 6_000}, {"w": 5_000})
    check_sizes({"w": 6_000}, {"w": 7_000})
    large, small = (pa.table({"k": ["a"], "seen": [["x" * size]]}) for size in (1_000, 100))
    with pytest.raises(StateRowTooLarge):
        check_rows(large, ["k"], step="s", part="state", cap=300)
    check_rows(large, ["k"], step="s", part="state", cap=3_000)
    check_rows(small, ["k"], step="s", part="state", cap=300)


@pytest.mark.remedy("PEN-STA-006", "PEN-STA-007")
def test_a_function_that_asks_first_and_updates_what_it_has_not_removed_is_run() -> None:
    """As the page on state says."""
    state = State({"n": None}, NEVER, event=False)
    with pytest.raises(NoState):
        state.get()
    assert not state.exists()
    assert state.get_or({"n": 3}) == {"n": 3}
    state.update(n=1)
    state.remove()
    with pytest.raises(StateMisused):
        state.update(n=2)
    corrected = State({"n": None}, NEVER, event=False)
    corrected.update(n=2)
    assert corrected.get() == {"n": 2}


@pytest.mark.remedy("PEN-CKP-010")
def test_a_write_whose_outcome_is_open_is_read_back_by_the_next_start() -> None:
    """It had not landed: the next owner finds that out, and writes it."""
    store = FaultyStore(MemoryStore(), Plan(Fault.BEFORE, at=10**6))
    owned = own(Log(store))
    store.plan, store.calls = Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON), 0
    with pytest.raises(CommitUnknown):
        owned.append(offsets(0))
    store.plan = None
    again = own(Log(store), "w2")
    assert recover(Log(store)).pending is None
    again.append(offsets(0, epoch=again.epoch, writer="w2"))
    pending = recover(Log(store)).pending
    assert pending is not None
    assert pending.batch == 0
