"""Which version of a joined table a batch uses is fixed in its Offsets (SEMANTICS 1.2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_samples import commit, offsets, own

from penstock import EveryBatches, OnNewVersion
from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.join_static import Refresh
from penstock.runtime.driver.table_versions import TABLES, RecordedTables, looks, recorded_tables, tables_of


@pytest.mark.parametrize(
    ("refresh", "batches"),
    [(None, []), (EveryBatches(1), [5, 6, 7, 8]), (EveryBatches(3), [7, 8]), (OnNewVersion(), [4, 5, 6, 7, 8])],
    ids=["never", "every batch", "every three", "on a new version"],
)
def test_a_newer_version_is_due(refresh: Refresh, batches: list[int]) -> None:
    """Counted from the batch that took the last one up."""
    assert [batch for batch in range(4, 9) if looks(refresh, {"taken": 4}, batch)] == batches


def test_a_batch_names_its_versions() -> None:
    """None in the Offsets of jobs that join no table, and of older drivers."""
    offsets = Offsets(epoch=1, writer="w", batch=0, time=0, ranges={}, watermarks={}, limits={}, settings={})
    assert tables_of(offsets) == {}
    versions = {"prices": {"id": "x", "version": 7, "fingerprint": "f", "taken": 0}}
    assert tables_of(offsets.model_copy(update={"settings": {TABLES: versions}})) == versions


def test_the_log_names_the_versions_of_the_next_batch(tmp_path: Path) -> None:
    """Those of a batch that is fixed come before those of the last Commit; without a checkpoint there are none."""
    folder = LocalFolder(tmp_path / "job")
    assert recorded_tables(folder) == RecordedTables()
    owned = own(Log(LocalStore(tmp_path / "job")))
    owned.append(offsets(0))
    committed = {"prices": {"version": 3, "taken": 0}, "rates": {"version": 1, "taken": 0}}
    owned.append(commit(0).model_copy(update={"tables": committed}))
    assert recorded_tables(folder) == RecordedTables(committed=committed, batch=1)
    fixed = {"prices": {"version": 4, "taken": 1}}
    owned.append(offsets(1).model_copy(update={"settings": {TABLES: fixed}}))
    assert recorded_tables(folder) == RecordedTables(fixed=fixed, committed=committed, batch=1)


def test_a_version_is_kept_until_a_newer_one_is_due() -> None:
    """Which the batch that comes next decides, as it does when it is planned."""
    recorded = RecordedTables(committed={"prices": {"taken": 4}}, batch=6)
    assert recorded.kept("prices", None) == {"taken": 4}
    assert recorded.kept("prices", EveryBatches(3)) == {"taken": 4}
    assert recorded.kept("prices", EveryBatches(2)) is None
    assert recorded.kept("prices", OnNewVersion()) is None
    assert recorded.kept("rates", None) is None
