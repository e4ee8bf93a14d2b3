"""Held batches are released beside a running driver, by it, in a table that delta-spark commits to (F71)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from cli_runner import PATIENCE, Shell
from project_samples import JOB, expected_totals, job_toml, make_project

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.local import LocalStore

pytestmark = pytest.mark.timeout(900)

HOLDS = (
    JOB.replace(
        'totals.write("totals", Delta(conf.table("totals")))',
        """few = {"name": "few", "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "min_value": 900}}]}
    checked = totals.check("holds", suite=few, on_fail=OnFail.HOLD)
    checked.write("totals", Delta(conf.table("totals"), partition_by=("user",)))""",
    )
    .replace("from penstock.sinks", "from penstock.quality import OnFail\nfrom penstock.sinks")
    .replace("    totals = (", '    orders = orders.transform("slow", slowly)\n    totals = (')
    .replace(
        "def build",
        """def sleep(batches):
    import pathlib
    import time

    for batch in batches:
        while any(v >= 200 for v in batch["v"].to_pylist()) and pathlib.Path("slow").exists():
            time.sleep(0.1)
        yield batch


def slowly(frame):
    return frame.mapInArrow(sleep, frame.schema)


def build""",
    )
)


@pytest.fixture
def shell(tmp_path) -> Iterator[Shell]:
    """A project whose totals are held where they are low: two batches, of the first three minutes."""
    project = Shell(make_project(tmp_path / "project", rows_per_batch=100, job=HOLDS))
    (project.root / "conf" / "jobs" / "orders.toml").write_text(job_toml(rows_per_batch=100))
    yield project
    project.end()


def held(shell: Shell) -> list[dict]:
    """Return what is held."""
    return shell.json("held", "orders", "list")["held"]


def commits(shell: Shell) -> list[Commit]:
    """Return the Commits of the job, read here: a command for each look would cost a core."""
    log = job_log(shell.root / "checkpoints" / "orders")
    slots = range(log.find_tail() + 1) if log is not None else ()
    return [entry for slot in slots if isinstance(entry := log.read(slot), Commit)]


@pytest.mark.sample(seconds=100)
@pytest.mark.fault("F71")
def test_what_is_released_beside_a_driver_is_committed_by_it(shell):
    """SEMANTICS 9.4: one process commits to a table, so that no batch and no release is lost or doubled."""
    (shell.root / "slow").touch()
    driver = shell.start("run", "orders")
    deadline = time.monotonic() + PATIENCE
    while not any(entry.held for entry in commits(shell)):
        assert time.monotonic() < deadline
        assert driver.poll() is None
        time.sleep(0.2)
    listed = held(shell)
    command = shell.start("held", "orders", "release", str(listed[0]["batch"]), "--json")
    asks = Records(LocalStore(shell.root / "checkpoints"), "asks", "orders")
    while asks.tail() < 0:
        assert command.poll() is None, command.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (shell.root / "slow").unlink()
    out, err = command.communicate(timeout=PATIENCE)
    assert command.returncode == 0, err
    assert json.loads(out)["rows"] == listed[0]["rows"]
    printed, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, err
    assert [line for line in printed.splitlines() if '"held.decided"' in line], "it was the driver that released"
    [last] = held(shell)
    shell.json("held", "orders", "release", str(last["batch"]))
    assert shell.totals() == expected_totals()
