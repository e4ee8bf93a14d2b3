"""Executors die in the middle of batches, by SIGKILL from their own tasks, on a cluster of two (FAULTS 2, decision 224)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import losing_executors
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from losing_executors import A_BATCH, ROWS
from test_kill import end

ROOT = Path(__file__).resolve().parents[2]
# Each day a worker dies with its executor (test_cluster), and a batch is re-run without a cluster.
pytestmark = [
    pytest.mark.integration, pytest.mark.spark, pytest.mark.soak, pytest.mark.fault("F03"), pytest.mark.timeout(900),
]  # fmt: skip


def run(folder: Path, kind: str, *kills: tuple[str, int]) -> dict[str, int]:
    """Run a job to its end and return what it says of itself; all that it has started is gone then."""
    losing_executors.make_inputs(folder)
    path = os.pathsep.join(
        [str(ROOT / "platform"), str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests/crash")]
    )
    command = [sys.executable, losing_executors.__file__, str(folder), kind, json.dumps(kills)]
    log = folder / "log.txt"
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            said, _ = child.communicate(timeout=800)
        finally:
            end(child.pid)
    assert child.returncode == 0, log.read_text()[-4_000:]
    result: dict[str, int] = json.loads(said.splitlines()[-1])
    assert result["died"] == len(kills)
    return result


def rows_of(folder: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of a table, sorted."""
    rows = DeltaTable(str(folder / table)).to_pyarrow_table().select(list(columns))
    return sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def inputs(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of both sources."""
    return [pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("rows", "others")]


def test_state_and_windows_are_those_of_a_run_without_a_death(tmp_path: Path) -> None:
    """SEMANTICS 10.5: in either stage, also twice in a batch, each row is once in state, window and table."""
    run(tmp_path, "state", ("first", 2), ("second", 12), ("first", 22), ("first", 23), ("second", 32), ("second", 33))
    rows, others = inputs(tmp_path)
    assert rows_of(tmp_path, "raw", "id") == [(row["id"],) for row in rows]
    counts, counted = Counter[str](), []
    for first in range(0, ROWS, A_BATCH):  # arrival is by batch, source and position
        for row in [*rows[first : first + A_BATCH], *others[first : first + A_BATCH]]:
            counts[row["user"]] += 1
            counted.append((row["id"], counts[row["user"]]))
    assert rows_of(tmp_path, "counted", "id", "n") == sorted(counted)
    windows: dict[tuple[str, int], list[int]] = {}
    for row in [*rows, *others]:
        windows.setdefault((row["user"], row["t"].second // 10), []).append(row["id"])
    wanted = sorted((user, second * 10, len(ids), sum(ids)) for (user, second), ids in windows.items())
    found = rows_of(tmp_path, "windows", "user", "window_start", "n", "ids")
    assert [(user, start.second, n, ids) for user, start, n, ids in found] == wanted


def test_forks_under_a_kept_plan_read_no_rows_of_another_batch(tmp_path: Path) -> None:
    """Decisions 208 and 217: the plan is kept while executors die, and its shuffle has the rows of the batch alone."""
    result = run(tmp_path, "forks", ("second", 12), ("second", 22), ("second", 23))
    assert (result["kept"], result["planned"]) == (1, 0)
    rows, others = inputs(tmp_path)
    assert rows_of(tmp_path, "raw", "id") == [(row["id"],) for row in rows]
    assert rows_of(tmp_path, "even", "id") == [(row["id"],) for row in rows if row["id"] % 2 == 0]
    assert rows_of(tmp_path, "beside", "id") == [(row["id"],) for row in others]
