"""A restart that cannot work is refused before the driver that lives is ended (F79)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from project_samples import JOB, make_project
from yards import QUICK, Yard

from penstock.checkpoint.entries import Restore, Takeover
from penstock.supervise.stream import Phase

KEEP_ALL = "\n[checkpoint]\nkeep = 10000\n"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def yard(tmp_path) -> Iterator[Yard]:
    """Orders for many small batches, and a supervisor."""
    found = Yard(make_project(tmp_path / "project", rows=20_000, rows_per_batch=20_000, more=QUICK + KEEP_ALL))
    found.supervise()
    yield found
    found.end()


def refused(yard: Yard, code: str, *words: str) -> None:
    """See a restart refused with a code, and the driver go on as if nobody had asked."""
    before = yard.stream()
    exit_code, _, said = yard.run("restart", "orders", *words)
    assert (exit_code, code in said) == (78, True), said
    after = yard.stream()
    assert (after.first, after.generation, after.phase) == (before.first, before.generation, Phase.RUNNING)
    assert after.driver == before.driver
    yard.until_commits(yard.commits() + 1)


@pytest.mark.fault("F79")
def test_a_restart_that_a_start_would_refuse_ends_nothing(yard):
    """State, partitions, dropped steps, the batch and the code are judged by what a start judges them by."""
    assert yard.json("start", "orders", "--wait")["outcome"] == "done"
    yard.until_commits(5)
    kept = yard.commits() - 2
    refused(yard, "PEN-CKP-014", "--state", "minutely=./nosuch")
    refused(yard, "PEN-JOB", "--state", "minutely=totals")
    refused(yard, "PEN-CKP-015", "--partitions", "7")
    refused(yard, "PEN-CKP-016", "--drop", "minutely")
    code = yard.root / "jobs" / "orders.py"
    code.write_text(JOB.replace('agg.sum("v")', 'agg.sum("w")'))
    refused(yard, "PEN-JOB-005")
    code.write_text(JOB.replace('"minutely"', '"by_minute"'))
    refused(yard, "PEN-CKP-016", "--from", f"batch={kept}")
    code.write_text(JOB)
    assert [takeover.generation for takeover in yard.entries(Takeover)] == [1]

    exit_code, said, _ = yard.run("restart", "orders", "--from", f"batch={kept}", "--truncate-sinks", "--check")
    assert (exit_code, said.strip()) == (0, "orders: the restart would be accepted")
    assert yard.stream().generation == 1
    assert yard.json("restart", "orders", "--from", f"batch={kept}", "--truncate-sinks", "--wait")["outcome"] == "done"
    assert [restore.batch for restore in yard.entries(Restore)] == [kept]
