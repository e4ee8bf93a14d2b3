"""The page of all streams: trouble first, at a price that does not grow with the logs, and whatever a record says."""

from __future__ import annotations

import re

import pytest
from checkpoint_samples import commit, offsets, own, restore_entry
from hypothesis import given
from hypothesis import strategies as st
from project_samples import JOB, job_toml, make_project
from ui_site import NOW, SECOND, Site

from penstock.checkpoint.log.entries import Restore, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.quality.held.decision_records import Decision, HeldRecords
from penstock.runtime.process.heartbeat import DriverStatus, StatusRecords
from penstock.runtime.process.project import find_project
from penstock.supervise.stream import Phase, Wish
from penstock.ui.reading import read_streams

FILE = StagedFile(path="a", size=2_048, rows=5, checksum="x", stats={})
GATE = {"check": "gate", "unit": NOW, "status": "passed", "rows": 3, "action": "publish", "results": []}


@pytest.fixture
def site(tmp_path):
    return Site(make_project(tmp_path / "project", rows=10))


@pytest.fixture
def reads(monkeypatch):
    """What is read of checkpoints, in the order of reading."""
    paths = []
    read = LocalStore.read

    def counted(store, path):
        paths.append(path)
        return read(store, path)

    monkeypatch.setattr(LocalStore, "read", counted)
    return paths


def add_job(site, name):
    (site.root / "jobs" / f"{name}.py").write_text(JOB.replace('"orders"', f'"{name}"', 1))
    (site.root / "conf" / "jobs" / f"{name}.toml").write_text(job_toml())


def listed(site, query=""):
    return re.findall(r'id="job-(\w+)"', site.get(f"/{query}").text)


def test_the_page_reads_as_much_of_a_long_log_as_of_a_short_one(site, reads):
    """However many batches a job keeps (issue 17, finding 13)."""
    site.batches(20)
    site.text("/")
    short = len(reads)
    add_job(site, "long")
    site.batches(200, "long")
    reads.clear()
    site.text("/")
    assert short < 40
    assert len(reads) <= 2 * short


def test_jobs_in_trouble_come_first(site):
    """Then those that wait, those that run, and those that are over; in each by name."""
    for job, phase in {
        "a_runs": Phase.RUNNING, "b_failed": Phase.FAILED, "c_waits": Phase.BACKOFF, "d_over": Phase.STOPPED, "e_failed": Phase.FAILED,
    }.items():  # fmt: skip
        add_job(site, job)
        site.stream(job, phase=phase, wish=Wish.RUN, generation=1)
    (site.root / "conf" / "jobs" / "orders.toml").write_text("keep = ")
    assert listed(site) == ["b_failed", "e_failed", "orders", "c_waits", "a_runs", "d_over"]
    assert listed(site, "?show=failed") == ["b_failed", "e_failed", "orders"]
    assert listed(site, "?show=running") == ["a_runs"]
    assert listed(site, "?job=FAILED") == ["b_failed", "e_failed"]
    assert listed(site, "?show=nonsense&job=x") == []
    assert "No job matches. All jobs" in site.text("/?job=x")
    assert "6 jobs 3 failed 1 waiting 1 running 1 stopped" in site.text("/")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "odd",
    [{"at": "not a number"}, {"error": "no mapping"}, {"held": "x"}, {"held": ["x", None]}, {"judged": 7}, {"judged": {"batch": 1, "verdicts": {"x": "y"}}},
     {"left": {"a": "b"}}, {"rows_per_second": "fast"}, {"stage": 5}, {"last": []}, {"exit_code": "x", "state": ["failed"]}],
    ids=lambda odd: next(iter(odd)),
)  # fmt: skip
def test_an_odd_record_breaks_nothing(site, odd):
    """What can be made out of the job is shown; so are all others."""
    add_job(site, "other")
    site.batches(2)
    site.batches(2, "other")
    site.says(**odd)
    for page in ("/", "/jobs/orders"):
        text = site.text(page)
        assert "cannot be shown" not in text
    assert sorted(listed(site)) == ["orders", "other"]


def test_a_part_that_cannot_be_rendered_breaks_no_other(site, monkeypatch):
    """Whatever it was that nobody foresaw."""
    add_job(site, "other")
    site.stream("orders", phase=Phase.RUNNING, since=NOW, generation=1)

    def broken(micros):
        raise ValueError("an hour without minutes")

    monkeypatch.setattr("penstock.ui.rendering.span", broken)
    text = site.text("/")
    assert "This job cannot be shown PEN-000 ValueError: an hour without minutes" in text
    assert "other ■ never run" in text


def test_what_was_held_long_ago_is_told_until_somebody_decides(site):
    """Though its batch is no longer among those that the page reads; the driver's record names it."""
    site.batches(1, held={"totals": [FILE]})
    log = Log(LocalStore(site.root / "checkpoints" / "orders"))
    owned = own(log, writer="w2")
    for batch in range(1, 30):
        owned.append(offsets(batch, owned.epoch, owned.writer))
        owned.append(commit(batch, owned.epoch, owned.writer, time=NOW - SECOND))
    site.says(writer="w2", held=[0])
    assert "1 batch held" in site.text("/")
    records = HeldRecords(site.store(), "orders")
    records.carried_out(0, records.decide(0, Decision.DISCARD, {"totals": 5}, by="t"), by="t")
    assert "batch held" not in site.text("/")


def test_what_a_restore_has_undone_long_ago_is_offered_for_no_release(site):
    """10.1, 11.5: the driver's record tells of the restore as well, which is before what the page reads."""
    site.batches(1, held={"totals": [FILE]})
    log = Log(LocalStore(site.root / "checkpoints" / "orders"))
    owned = own(log, writer="w2")
    owned.append(restore_entry(owned, source="empty"))
    status = DriverStatus({"writer": "w2", "holder": "h"}, site.clock)
    status.on_takeover(recover(log), {})
    for batch in range(1, 30):
        owned.append(offsets(batch, owned.epoch, owned.writer))
        owned.append(commit(batch, owned.epoch, owned.writer, time=NOW - SECOND))
    StatusRecords(site.store(), "orders").put(status.body())
    assert "batch held" not in site.text("/")
    rows = read_streams(find_project(given=site.root), site.clock)
    assert [(row.reading.status.held, row.reading.status.undone) for row in rows] == [((0,), (0,))]


def test_a_job_whose_checkpoint_is_gone_is_in_trouble_though_its_stream_was_stopped(site):
    """F19: it comes first, and its page says what a start would say."""
    add_job(site, "other")
    site.stream("other", phase=Phase.RUNNING, since=NOW, generation=1)
    site.stream(phase=Phase.STOPPED, since=NOW, generation=1)
    site.says(next_batch=7)
    text = site.text("/")
    assert text.index("orders ✖ STOPPED") < text.index("other ● RUNNING")
    assert "✖ its checkpoint is gone" in text
    assert "1 failed" in text
    page = site.text("/jobs/orders")
    assert "PEN-CKP-029" in page
    assert "put its folder back" in page


def test_a_checkpoint_that_is_gone_is_not_shown_as_a_stream_that_nobody_has_started(site):
    """F19: who runs a job without a supervisor has a record of its driver, and none of a stream."""
    site.says(next_batch=7)
    page = site.text("/jobs/orders")
    assert "PEN-CKP-029" in page
    assert "No stream was started yet" not in page


def test_the_last_verdict_outlives_batches_without_one(site):
    """Not every batch closes a window; the driver's record tells of the last that did."""
    site.batches(20)
    site.says(judged={"batch": 3, "verdicts": {"passed": 2}})
    assert "✓ 2 passed batch 3" in site.text("/")
    assert "✓ 2 passed batch 3" in site.text("/jobs/orders")


def test_old_data_have_their_own_time(site):
    """Their distance from now says nothing: a watermark is not 13 years late."""
    site.batches(2, watermarks_out={"minutely": NOW - 13 * 365 * 86_400 * SECOND})
    text = site.text("/")
    assert "2010-11-17 22:13:20Z old data" in text
    assert "13 years" not in text
    assert "13 years" not in site.text("/jobs/orders")


STEPS = st.lists(st.sampled_from(["batch", "batch", "batch", "back", "empty", "restart", "offsets"]), max_size=40)


@given(steps=STEPS, newest=st.integers(1, 8), data=st.data())
def test_the_end_of_a_log_tells_where_the_job_stands(steps, newest, data):
    """As reading all of it does, also where a restore goes back behind what is read (SEMANTICS 10.1)."""
    log = Log(MemoryStore())
    owned, used, known, pending = own(log), -1, [], None
    for step in steps:
        mine = {"epoch": owned.epoch, "writer": owned.writer}
        if step in ("batch", "offsets") and pending is None:
            used = pending = used + 1
            owned.append(offsets(pending, **mine))
        if step == "batch":
            owned.append(commit(pending, **mine))
            known.append(pending)
            pending = None
        elif step in ("back", "empty") and known:
            target = data.draw(st.sampled_from(known)) if step == "back" else None
            source = "empty" if target is None else "batch"
            owned.append(Restore(**mine, batch=target, source=source, saved=None, partitions=None))
            pending = None
        elif step == "restart":
            owned = own(log)
    whole, end = recover(log, Damage.LIST), recover(log, Damage.LIST, newest=newest)
    for field in ("tail", "commit", "pending", "next_batch", "last_takeover", "last_published_commit", "used", "time"):
        assert getattr(end, field) == getattr(whole, field), field
    # Of the newest ids: one that a restore has given up counts as one.
    above = whole.kept[-1].batch - newest if whole.kept else 0
    assert [kept for kept in end.kept if kept.batch > above] == [kept for kept in whole.kept if kept.batch > above]
    assert end.problems == whole.problems == ()
