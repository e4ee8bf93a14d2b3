"""What errors of sinks tell a person to do works, typed as they say it (SEMANTICS 9.5, 9.6, F70, F74)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_runner import Shell
from deltalake import DeltaTable
from project_samples import JOB, expected_totals, job_toml, make_project

from penstock.sinks.delta.log_entry import entry_name

pytestmark = pytest.mark.timeout(900)

PICKY = JOB.replace(
    '    totals.write("totals", Delta(conf.table("totals")))',
    '    totals.write("totals", Delta(conf.table("totals")))\n    orders.select("v").write("picky", Picky())',
).replace(
    "def build",
    """from penstock.sinks.base import Publisher, Sink


class Picky(Sink, Publisher):
    def open(self, staging, spark):
        return self

    def publish(self, publication):
        if publication.batch == 3:
            raise OverflowError("date value out of range")

    def version(self, app):
        return None

    def describe(self):
        return "picky"


def build""",
)


@pytest.fixture
def shell(tmp_path) -> Iterator[Shell]:
    """A project with a sink that cannot hold what is in batch 3."""
    project = Shell(make_project(tmp_path / "project", job=PICKY))
    yield project
    project.end()


@pytest.mark.sample(seconds=45)
@pytest.mark.remedy("PEN-SNK-006", "PEN-SNK-007")
@pytest.mark.fault("F70", "F74")
def test_a_sink_that_refuses_a_batch_and_one_that_lost_some_have_a_way_on(shell):
    """Skip, then redo; nothing is lost of the other sink, and the log has the count."""
    code, _, err = shell.run("run", "orders")
    assert (code, "PEN-SNK-007" in err) == (78, True), err
    assert "penstock sinks JOB skip SINK" in err
    listed = shell.json("sinks", "orders", "list")["sinks"]
    assert {row["sink"]: row["waiting"] for row in listed} == {"totals": {}, "picky": {"3": 100}}
    assert shell.json("sinks", "orders", "skip", "picky")["sinks"][0]["waiting"] == {"3": 100}
    code, _, err = shell.run("run", "orders")
    assert code == 0, err
    assert shell.totals() == expected_totals()

    table = shell.root / "tables" / "totals"
    newest = DeltaTable(str(table)).version()
    (table / "_delta_log" / entry_name(newest)).unlink()
    code, _, err = shell.run("run", "orders")
    assert (code, "PEN-SNK-006" in err, "whose files are there" in err) == (78, True, True), err
    lost = shell.json("sinks", "orders", "list")["sinks"][0]["missing"]
    assert shell.json("sinks", "orders", "redo", "totals")["sinks"][0]["missing"] == lost
    assert shell.totals() == expected_totals()
    assert shell.json("sinks", "orders", "list")["sinks"][0]["missing"] == {}
    code, out, _ = shell.run("sinks", "orders", "skip", "totals")
    assert (code, out) == (0, "totals shows all that the log has for it\n"), "a try again of a task is no failure"


@pytest.mark.sample(seconds=30)
@pytest.mark.remedy("PEN-ENV-003")
def test_what_a_job_will_need_is_looked_at_before_its_first_commit(shell):
    """Without the jars of delta-spark a partitioned table takes nothing; with those that `penstock doctor` fetches it does."""
    job = JOB.replace('Delta(conf.table("totals"))', 'Delta(conf.table("totals"), partition_by=("user",))')
    (shell.root / "jobs" / "orders.py").write_text(job)
    (shell.root / ".jars").unlink()
    code, _, err = shell.run("run", "orders", java=True)
    assert (code, "PEN-ENV-003" in err, "into .jars of the project" in err) == (78, True, True), err
    assert not (shell.root / "tables").exists()
    code, out, err = shell.run("doctor")
    assert (code, "fetched into" in out) == (0, True), err
    (shell.root / "conf" / "jobs" / "orders.toml").write_text(job_toml(rows_per_batch=1_000))  # its commits are slow
    code, _, err = shell.run("run", "orders")
    assert code == 0, err
    assert shell.totals() == expected_totals()
