"""What a driver notes of its receivers is what `penstock status` says of them (F47)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from project_samples import make_project
from typer.testing import CliRunner
from ui_site import SECOND, Site

from penstock.checkpoint.log.batch_report import BatchReport, Totals, shown_moment
from penstock.cli.main import app
from penstock.cli.status import _status_rows, _totals
from penstock.rates.cores import CoreAdvice
from penstock.receivers.supervisor import ReceiverState, State
from penstock.runtime.driver.stages import Hook
from penstock.runtime.inspect.job_status import JobState, JobStatus
from penstock.runtime.process.heartbeat import DriverStatus
from penstock.runtime.process.job_load import LoadReport
from penstock.time.clock import ManualClock, SystemClock


def report(*, batch: int = 0, load: Mapping[str, float] | None = None) -> BatchReport:
    return BatchReport(
        batch=batch, time=0, read={}, output={}, held={}, late={}, verdicts={}, watermarks={}, staged=0, fetched=0,
        due=None, load=load or {},
    )  # fmt: skip


def test_each_receiver_has_a_line() -> None:
    """With its restarts and its newest error, where there are any."""
    status = DriverStatus({}, SystemClock())
    well = ReceiverState(
        log="orders-0", state=State.RUNNING, epoch=1, rows=12_034, address="127.0.0.1:80", host="worker"
    )
    ill = ReceiverState(log="orders-1", state=State.WAITING, epoch=4, rows=7, restarts=2, error="the port is taken")
    status.on_receivers([well.to_json(), ill.to_json()])
    shown = JobStatus(job="orders", state=JobState.RUNNING, record=status.body())
    assert [text for name, text in _status_rows(shown) if name == "receiver"] == [
        "orders-0 running (127.0.0.1:80, on worker), 12,034 rows",
        "orders-1 waiting to be started again, 7 rows, started again 2 times, last error: the port is taken",
    ]
    assert shown.to_json()["receivers"] == [well.to_json(), ill.to_json()]


def test_a_job_without_receivers_says_nothing_of_them() -> None:
    """Most have none."""
    shown = JobStatus(job="orders", state=JobState.RUNNING)
    assert "receiver" not in dict(_status_rows(shown))


def test_rows_that_were_requeued_have_a_line() -> None:
    """Once there are some, with those that failed again."""
    counts = {"read": 9, "quarantined": 0, "ahead": 0, "filtered": 0, "late": 0, "mostly_late": 0, "mostly_ahead": 0}
    assert dict(_totals(Totals(**counts, requeued=1_200, failed_again=3)))["requeued"] == (
        "1,200 rows of quarantines, of which 3 failed again"
    )
    assert "requeued" not in dict(_totals(Totals(**counts)))


def test_the_time_is_that_of_the_batch_shown() -> None:
    """A driver that was killed between commit and publication has noted that of the batch before."""
    last = report(batch=9)
    for noted, said in ((9, True), (8, False)):
        shown = JobStatus(job="orders", state=JobState.DIED, last=last, record={"last": {"batch": noted}, "ms": 540.4})
        assert dict(_status_rows(shown))["rows"].endswith(", 540 ms") is said
        assert shown.to_json()["ms"] == (540.4 if said else None)


def test_limits_in_force_have_a_line() -> None:
    """Those that the Offsets of the newest batch record, before the rule that left rows (SEMANTICS 8)."""
    record = {"limits": {"rows": 2_000, "max_rate": 50, "rate": 100.0, "bound": {"orders": "rows"}}}
    lines = dict(_status_rows(JobStatus(job="orders", state=JobState.RUNNING, record=record)))
    assert lines["limits"] == "at most 2,000 rows a batch and source, at most 50 rows a second and source"
    assert lines["rate"] == "100 rows a second, by what batches cost"
    assert lines["limited"] == "orders by rows"
    assert "limits" not in dict(_status_rows(JobStatus(job="orders", state=JobState.RUNNING)))


def test_rows_that_wait_in_live_sources_have_a_line() -> None:
    """A topic has no end whose distance would be its lag, and the Commit has what waited as it was planned."""
    lines = {
        rows: dict(_status_rows(JobStatus(job="orders", state=JobState.RUNNING, last=report(load={"waiting": rows}))))
        for rows in (0.0, 3_600.0)
    }
    assert lines[3_600.0]["waiting"] == "3,600 rows of live sources, as the last batch was planned"
    assert "waiting" not in lines[0.0]


LOAD_LINES = ("delay", "garbage", "spilled", "cores")


def test_the_cores_that_a_job_needs_are_in_its_status(tmp_path: Path) -> None:
    """DS2 (decision 125): 1,000 rows a second arrive and cost 1.5 s of a core, a tenth of it garbage collection."""
    site = Site(make_project(tmp_path / "project", rows=10))
    counts = {"source:orders": {"read": 1_000}}
    load = {"late_ms": 40.4, "waiting": 1_000, "task_ms": 1_500.0, "gc_ms": 150.0, "spilled_bytes": 2**20}
    site.batches(3, apart=SECOND, accounting=counts, load=load)
    words = ["status", "orders", "--project", str(site.root)]
    shown = CliRunner().invoke(app, words)
    lines = dict(line.strip().split(maxsplit=1) for line in shown.stdout.splitlines() if line.split()[1:])
    assert {name: lines[name].strip() for name in LOAD_LINES} == {
        "delay": "the last batch began 40 ms after its batch time",
        "garbage": "10% of the time of tasks, in Java",
        "spilled": "3.0 MiB of memory to disk, by the newest batches in Spark",
        "cores": "2 cores needed: 1,000 rows a second arrive, a busy core processes 667",
    }
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["cores_needed"] == {"cores": 2, "offered": 1_000, "per_core": pytest.approx(1_000 / 1.5)}
    assert (told["scheduling_delay_ms"], told["gc_share"], told["spilled_bytes"]) == (40.4, 0.1, 3 * 2**20)


def test_a_load_that_is_not_known_has_no_line() -> None:
    """Without live sources there is no advice, and JSON says null; one core is no cores."""
    idle = JobStatus(job="orders", state=JobState.RUNNING, load=LoadReport(late_ms=0.0, gc_share=0.0, spilled_bytes=0))
    assert not {*LOAD_LINES} & {*dict(_status_rows(idle))}
    assert idle.to_json()["cores_needed"] is None
    one = LoadReport(cores=CoreAdvice(cores=1, offered=5.0, per_core=9_000.0))
    lines = dict(_status_rows(JobStatus(job="orders", state=JobState.RUNNING, load=one)))
    assert lines["cores"] == "1 core needed: 5 rows a second arrive, a busy core processes 9,000"


def test_the_interval_of_data_checkpoints_is_not_called_that_of_batches() -> None:
    """`interval` is what a job has its batches at; both lines of data checkpoints have their name."""
    made = {"last": {"batch": 26, "time": 0}, "interval": {"seconds": 416.0, "why": "as configured"}}
    shown = JobStatus(job="orders", state=JobState.RUNNING, record={"data_checkpoint": made})
    assert [line for line in _status_rows(shown) if line[0] in ("data checkpoint", "interval")] == [
        ("data checkpoint", "batch 26 at 1970-01-01 00:00:00Z"),
        ("data checkpoint", "every 416 s: as configured"),
    ]


def test_what_a_restore_has_undone_waits_for_no_release() -> None:
    """SEMANTICS 11.5: later batches have read its rows again, so it is told apart from what can be published."""
    rows = dict(_status_rows(JobStatus(job="orders", state=JobState.STOPPED, held=(3, 4, 7), undone=(4,))))
    assert rows["held"] == "batches 3, 7 (penstock held orders list)"
    assert rows["undone"] == "batch 4, held and undone by a restore (penstock held orders discard N)"
    assert "held" not in dict(_status_rows(JobStatus(job="orders", state=JobState.STOPPED, held=(4,), undone=(4,))))


def test_what_a_driver_is_at_has_a_line_while_it_runs() -> None:
    """One that waits for a broker is running and gives signs of life; the stage says since when, and in which batch."""
    clock = ManualClock()
    status = DriverStatus({}, clock)
    for hook, said in (
        (Hook("PublishSinks", "before", 7), "PublishSinks of batch 7 since "),
        (Hook("PublishSinks", "published copies", 7), "PublishSinks (published copies) of batch 7 since "),
        (Hook("CommitBatch", "after", 7), "CommitBatch (after) of batch 7 since "),
    ):
        status.on_hook(hook)
        shown = JobStatus(job="orders", state=JobState.RUNNING, record=status.body())
        assert dict(_status_rows(shown))["stage"] == said + shown_moment(clock.wall())
    ended = JobStatus(job="orders", state=JobState.FAILED, record=status.body())
    assert "stage" not in dict(_status_rows(ended))
    status.on_nap()
    waits = JobStatus(job="orders", state=JobState.RUNNING, record=status.body())
    assert dict(_status_rows(waits))["stage"] == "Wait since " + shown_moment(clock.wall())
