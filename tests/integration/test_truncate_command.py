"""`penstock run --from … --truncate-sinks` as people and schedulers run it (SEMANTICS 10.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from project_samples import expected_totals, make_project
from shells import Shell

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project of 400 orders in four batches."""
    found = Shell(make_project(tmp_path / "project", rows=400))
    yield found
    found.end()


def events(told: str) -> dict[str, dict[str, Any]]:
    """Return the last event of each name."""
    return {event["event"]: event for event in map(json.loads, told.splitlines())}


@pytest.mark.fault("F09", "F59")
def test_a_command_has_tables_take_back_rows_once_however_often_it_is_tried(shell: Shell) -> None:
    """What goes away is told first; what somebody else has written since is told instead, and nothing is begun."""
    run = ("run", "orders", "--available-now", "--json")
    code, _, err = shell.run(*run)
    assert code == 0, err
    whole, table = shell.totals(), shell.root / "tables" / "totals"
    assert whole == expected_totals(400)
    back = (*run, "--from", "batch=1", "--truncate-sinks", "--command", "tried/again")
    code, out, err = shell.run(*back)
    assert code == 0, err
    said = events(out)["restore.superseded"]
    assert (said["back_to"], said["truncate"], said["uncounted_before"]) == (1, True, None)
    assert said["sinks"]["totals"]["rows"] > 0
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
