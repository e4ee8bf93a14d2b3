"""A step whose code names no number of state partitions gets what its checkpoint has, or else Spark's cores."""

from __future__ import annotations

import os
import sys

import pytest
from checkpoint_samples import commit, leave, offsets, own, run_batch
from project_samples import JOB, make_project

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Restore
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from penstock.graph.partitions import usable_cores
from penstock.runtime.process.project import find_project, spark_cores
from penstock.runtime.restore.target import parse_start
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project whose job names no number; its one step is `minutely`, its master local[2]."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    return make_project(tmp_path / "project", rows=10, job=JOB.replace(", partitions=2", ""))


def partitions(root, **options) -> int:
    """Return the partitions of `minutely` as the loader builds the job."""
    (step,) = find_project(root).load("orders", **options).job.graph().steps
    return step.partitions


def began(root, number: int):
    """Write a log whose driver had so many partitions, and return the log."""
    (root / "checkpoints").mkdir(mode=0o700)
    log = Log(LocalStore(root / "checkpoints" / "orders"))
    owned = own(log, partitions={"minutely": number})
    run_batch(owned, 0)
    leave(owned)
    return log


def test_a_new_job_has_as_many_as_spark_has_cores(root):
    """Without a checkpoint the master tells: eight tasks on two cores would only be dearer."""
    assert partitions(root) == 2
    (root / "conf" / "penstock.toml").write_text('[spark]\nmaster = "local[5]"\n')
    assert partitions(root) == 5


def test_a_job_keeps_its_number_on_another_machine(root):
    """The checkpoint has it: a start on more cores is no change of the job."""
    began(root, 3)
    assert partitions(root) == 3


def test_a_restore_that_names_a_number_means_the_steps_that_name_none(root):
    """`--partitions 6` needs no edit of the code, and what the Restore wrote holds from then on."""
    log = began(root, 3)
    assert partitions(root, start=parse_start("last").having(partitions=6, state={}, truncate=False)) == 6
    owned = own(log, "w2", partitions={"minutely": 3})
    owned.append(Restore(epoch=2, writer="w2", source="batch", batch=0, saved=None, partitions={"minutely": 6}))
    leave(owned)
    assert partitions(root) == 6


def test_a_job_that_goes_back_has_the_number_of_what_it_goes_back_to(root):
    """Behind a change of partitions as before it; a command that has gone back already goes on from where it is."""
    log = began(root, 3)
    owned = own(log, "w2", partitions={"minutely": 3})
    six = owned.append(Restore(epoch=2, writer="w2", source="batch", batch=0, saved=None, partitions={"minutely": 6}))
    leave(owned)
    owned = own(log, "w3", partitions={"minutely": 6})
    run_batch(owned, 1)
    leave(owned)
    assert six.partitions == {"minutely": partitions(root)} == {"minutely": 6}
    assert partitions(root, start=parse_start("batch=0")) == 3
    assert partitions(root, start=parse_start("batch=1")) == 6
    assert partitions(root, start=parse_start("batch=7")) == 6, "the start says that it is not kept"
    assert partitions(root, start=parse_start("empty")) == 6
    owned = own(log, "w4", partitions={"minutely": 3}, command="c")
    owned.append(Restore(epoch=4, writer="w4", source="batch", batch=0, saved=None, partitions=None, command="c"))
    leave(owned)
    owned = own(log, "w5", partitions={"minutely": 3})
    owned.append(Restore(epoch=5, writer="w5", source="batch", batch=1, saved=None, partitions=None))
    leave(owned)
    assert partitions(root, start=parse_start("batch=0")) == 3
    assert partitions(root, start=parse_start("batch=0"), command="c") == 6


@pytest.mark.fault("F13")
@pytest.mark.parametrize("lost", [(0,), (0, 4)], ids=["the Takeover", "the newest Commit as well"])
def test_a_job_keeps_its_number_where_the_entry_that_says_it_is_lost(root, lost):
    """What batches were run with stands in their Offsets too; a restore reads the state by it."""
    (root / "checkpoints").mkdir(mode=0o700)
    log = Log(LocalStore(root / "checkpoints" / "orders"))
    owned = own(log, partitions={"minutely": 3})
    for batch in range(2):
        owned.append(offsets(batch, settings={"partitions": {"minutely": 3}}))
        owned.append(commit(batch))
    for slot in lost:
        path = root / "checkpoints" / "orders" / log.path(slot)
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-9])
    assert partitions(root) == 3


def test_a_log_that_cannot_be_read_does_not_keep_a_job_from_being_explained(root):
    """The start reads it again and says what is wrong with it."""
    log = began(root, 3)
    for slot in range(4):
        (root / "checkpoints" / "orders" / log.path(slot)).write_bytes(b"")
    assert partitions(root) == 2


def test_a_number_in_the_code_is_nobody_elses_to_choose(root):
    """Also where the checkpoint has another: the start refuses that by its own rule."""
    (root / "jobs" / "orders.py").write_text(JOB.replace("partitions=2", "partitions=4"))
    began(root, 3)
    assert partitions(root, start=parse_start("last").having(partitions=6, state={}, truncate=False)) == 4


def test_a_job_outside_of_a_project_has_the_cores_of_this_process():
    """Those it may use, which a container may have lowered; a step of the whole stream has one."""
    job = Job("plain")
    rows = job.source("s", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    keyed = rows.key_by("k").window("keyed", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count())
    whole = rows.window("whole", Tumbling(seconds(1)).drop_late()).aggregate(n=agg.count())
    for name, stream in (("a", keyed), ("b", whole)):
        stream.write(name, MemorySink())
    assert {step.name: step.partitions for step in job.graph().steps} == {"keyed": usable_cores(), "whole": 1}
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("master", "conf", "cores"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[2,4]", {}, 2),
        ("local[*]", {}, usable_cores()),
        ("local[*,2]", {}, usable_cores()),
        ("local-cluster[2,3,512]", {}, 6),
        ("spark://host:7077", {}, 8),
        ("spark://host:7077", {"spark.cores.max": "12"}, 12),
        ("yarn", {"spark.executor.instances": "5"}, 5),
        ("yarn", {"spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ("yarn", {"spark.executor.instances": "5", "spark.default.parallelism": "7"}, 7),
        ("local[100000]", {}, 4096),
    ],
)
def test_the_cores_that_settings_tell_of(master, conf, cores):
    """A cluster that nothing is said of counts as two small machines."""
    assert spark_cores(master, conf) == cores
