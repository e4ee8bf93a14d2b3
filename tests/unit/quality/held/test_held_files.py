"""The files of held batches outlive every VACUUM of their table (SEMANTICS 11.5, F71)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from harness_jobs import ORDERS, order

from penstock import Job
from penstock.checkpoint.storage.local import LocalStore
from penstock.quality import OnFail
from penstock.quality.held.decision_records import Decision
from penstock.quality.held.requests import HeldAsks
from penstock.sinks import Delta
from penstock.sources import MemorySource
from penstock.testing import Harness

SMALL = {
    "name": "small",
    "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 100}}],
}


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the driver look at what is asked between any two batches."""
    monkeypatch.setattr("penstock.runtime.process.held_service._LOOK_EVERY", 0.0)


@contextmanager
def held(root: Path) -> Iterator[Harness]:
    """Run a job whose first batch is held, and whose second one is not."""
    job = Job("kept_back", partitions=1)
    rows = job.source("orders", MemorySource(ORDERS)).select("user", "v")
    rows.check("small", suite=SMALL, on_fail=OnFail.HOLD).write("out", Delta(root / "table"))
    with Harness(job, root / "checkpoints") as h:
        h.batch({"orders": [order("a", 1, 500), order("b", 1, 7)]})
        h.batch({"orders": [order("a", 2, 8)]})
        yield h


def shown(root: Path) -> list[int]:
    return sorted(DeltaTable(str(root / "table")).to_pyarrow_table()["v"].to_pylist())


def vacuum(root: Path) -> None:
    """Remove whatever the table does not name, however young."""
    DeltaTable(str(root / "table")).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)


def decide(h: Harness, root: Path, decision: Decision) -> None:
    asks = HeldAsks(LocalStore(root / "checkpoints"), "kept_back")
    asked = asks.ask(0, decision, by="test", at=h._clock.wall())
    h.batch({"orders": [order("a", 3, 9)]})
    assert asks.answer(asked) is not None


@pytest.mark.fault("F71")
def test_rows_are_released_after_a_vacuum(tmp_path: Path) -> None:
    """A6: the table's folder holds none of them until the release, which publishes them once."""
    with held(tmp_path) as h:
        assert not list((tmp_path / "table").glob("000000000000-*.parquet"))
        assert len(list((tmp_path / "checkpoints" / "kept_back" / "staged" / "out").iterdir())) == 1
        vacuum(tmp_path)
        decide(h, tmp_path, Decision.RELEASE)
        assert shown(tmp_path) == [7, 8, 9, 500]
        vacuum(tmp_path)
        assert shown(tmp_path) == [7, 8, 9, 500]


def test_a_discard_leaves_no_file(tmp_path: Path) -> None:
    """Neither below the checkpoint nor in the table's folder."""
    with held(tmp_path) as h:
        decide(h, tmp_path, Decision.DISCARD)
        assert not list((tmp_path / "checkpoints" / "kept_back" / "staged" / "out").iterdir())
        assert shown(tmp_path) == [8, 9]
