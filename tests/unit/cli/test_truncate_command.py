"""`penstock restore`, and `penstock run --from … --truncate-sinks`, as people and schedulers run them (SEMANTICS 10.1)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli_runner import Shell
from deltalake import DeltaTable, write_deltalake
from project_samples import JOB, expected_totals, make_project

from penstock.checkpoint.log.entries import Release, Restore, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project of 400 orders in four batches."""
    project = Shell(make_project(tmp_path / "project", rows=400))
    yield project
    project.end()


def events(out: str) -> dict[str, dict[str, Any]]:
    """Return the last event of each name."""
    return {event["event"]: event for event in map(json.loads, out.splitlines())}


def goes_back_and_not_on(shell: Shell) -> None:
    """See a Restore in the log, once for its command, and tables as they were until somebody starts the job."""
    log = Log(LocalStore(shell.root / "checkpoints" / "orders"))
    whole, before = shell.totals(), log.find_tail()
    only = ("restore", "orders", "--from", "batch=2", "--truncate-sinks", "--command", "restored/once", "--json")
    code, out, err = shell.run(*only)
    assert code == 0, err
    seen = events(out)
    assert (seen["restore.superseded"]["back_to"], seen["run.ended"]["ending"]) == (2, "restored")
    assert "batch.committed" not in seen
    added = [log.read(slot) for slot in range(before + 1, log.find_tail() + 1)]
    assert [type(entry) for entry in added] == [Takeover, Restore, Release]
    assert [entry.command for entry in added[:2]] == ["restored/once"] * 2
    assert recover(log).commit == recover(log).kept[2]
    code, out, err = shell.run(*only)
    assert (code, events(out)["run.ended"]["ending"], "restore.done_before" in events(out)) == (0, "restored", True), (
        err
    )
    assert (log.find_tail(), shell.totals()) == (before + 3, whole)


@pytest.mark.sample(seconds=50)
@pytest.mark.fault("F09", "F59")
def test_a_command_has_tables_take_back_rows_once_however_often_it_is_tried(shell: Shell) -> None:
    """What goes away is told first; what somebody else has written since is told instead, and nothing is begun."""
    run = ("run", "orders", "--available-now", "--json")
    code, _, err = shell.run(*run)
    assert code == 0, err
    whole, table = shell.totals(), shell.root / "tables" / "totals"
    assert whole == expected_totals(400)
    goes_back_and_not_on(shell)
    back = (*run, "--from", "batch=1", "--truncate-sinks", "--command", "tried/again")
    code, out, err = shell.run(*back)
    assert code == 0, err
    superseded = events(out)["restore.superseded"]
    assert (superseded["back_to"], superseded["truncate"], superseded["uncounted_before"]) == (1, True, None)
    assert superseded["sinks"]["totals"]["rows"] > 0
    assert shell.totals() == whole, "each row is there once: it went, and came again"
    version = DeltaTable(str(table)).version()
    code, out, err = shell.run(*back)
    assert (code, "restore.done_before" in events(out), "restore.superseded" in events(out)) == (0, True, False), err
    assert (shell.totals(), DeltaTable(str(table)).version()) == (whole, version)

    theirs = pa.Table.from_batches(DeltaTable(str(table)).to_pyarrow_table().slice(0, 1).to_batches())
    write_deltalake(str(table), theirs, mode="append")
    entries = sorted((shell.root / "checkpoints" / "orders" / "log").iterdir())
    code, out, err = shell.run(*run, "--from", "batch=1", "--truncate-sinks")
    assert (code, "restore.superseded" in events(out)) == (78, False)
    assert f"PEN-SNK-004 sink 'totals': version {version + 1} of the table would be undone as well: WRITE" in err
    assert sorted((shell.root / "checkpoints" / "orders" / "log").iterdir()) == entries


@pytest.mark.sample(seconds=35)
@pytest.mark.fault("F69")
def test_two_tries_of_one_command_restore_once_though_one_was_frozen_while_spark_started(shell: Shell) -> None:
    """What it was told before Spark started is old when it owns the log, so it asks again."""
    run = ("run", "orders", "--available-now", "--json")
    code, _, err = shell.run(*run)
    assert code == 0, err
    back = (*run, "--from", "batch=1", "--truncate-sinks", "--command", "dag/run7/task")
    frozen = shell.start(*back)
    assert frozen.stdout is not None
    assert any(json.loads(line)["event"] == "run.starting" for line in frozen.stdout)
    os.kill(frozen.pid, signal.SIGSTOP)
    code, _, err = shell.run(*back)
    assert code == 0, err
    os.kill(frozen.pid, signal.SIGCONT)
    out, err = frozen.communicate()
    assert (frozen.returncode, "restore.done_before" in events(out)) == (0, True), err
    log = Log(LocalStore(shell.root / "checkpoints" / "orders"))
    restores = [entry for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Restore)]
    assert [entry.command for entry in restores] == ["dag/run7/task"]
    assert shell.totals() == expected_totals(400)


@pytest.mark.sample(seconds=45)
def test_a_batch_from_before_a_change_of_partitions_can_be_gone_back_to(tmp_path: Path) -> None:
    """SEMANTICS 10.1: where the code names no number, what is gone back to brings its own; rows come once."""
    shell = Shell(make_project(tmp_path / "project", rows=400, job=JOB.replace(", partitions=2", "")))
    try:
        run = ("run", "orders", "--available-now")
        for more in ((), ("--from", "batch=2", "--partitions", "3"), ("--from", "batch=1", "--truncate-sinks"), ()):
            code, _, err = shell.run(*run, *more)
            assert code == 0, err
        assert shell.totals() == expected_totals(400)
        recovered = recover(Log(LocalStore(shell.root / "checkpoints" / "orders")))
        assert recovered.partitions == {"minutely": 2}
    finally:
        shell.end()
