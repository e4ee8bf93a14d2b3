"""Suites of jobs, with their checkpoints on a real HDFS instead of local disk.

The tests are those of other modules; only the folder that they are given stands for one on HDFS. More of them are in
test_more_jobs_on_hdfs, for `make soak`.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_export as exports
import test_requeued_rows as requeues
import test_snapshots_writer as data
import test_state_functions_in_jobs as state
import test_state_rewrite as restores
from deltalake import DeltaTable

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.locate import root_of
from penstock.errors import CannotCopy
from penstock.runtime.driver.settings import DriverSettings
from penstock.runtime.snapshots.catalog import versions
from penstock.runtime.snapshots.delta_table import working_copy
from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy
from penstock.testing import Harness

pytestmark = [pytest.mark.integration, pytest.mark.sample(1, of="jobs on HDFS")]

test_windows = state.test_windows_stand_behind_state_functions_and_before_them
test_10_4_truncation = data.test_10_4_behind_a_data_checkpoint_nothing_older_is_read


def test_an_import(tmp_path: Path) -> None:
    """From HDFS to a folder of this machine, and from there to HDFS again, where it goes on."""
    job, export = restores.job_of("idle", partitions=2), LocalFolder(tmp_path.here.parent / "export")
    with Harness(job, tmp_path / "a") as old:
        for n in range(3):
            old.batch({"rows": [{"k": f"k{i}", "v": n} for i in range(9)]}, at=10 * (n + 1))
        exports.exported(tmp_path / "a", export)
        kept = old.state("step")
    (tmp_path / "a").remove_all()
    exports.imported(export, tmp_path / "b")
    with pytest.raises(CannotCopy, match="already"):
        exports.imported(export, tmp_path / "b")
    job = restores.job_of("idle", partitions=2)
    with Harness(job, tmp_path / "b") as new:
        assert new.state("step") == kept


def test_10_3_the_table_on_hdfs_is_the_state_and_old_versions_go(tmp_path: Path) -> None:
    """It is an ordinary Delta table there, with the files of the versions that are kept, and can be gone back to."""
    states = []
    settings = DriverSettings(keep=2, data=DataCheckpointPolicy(keep=2))
    with Harness(data.kept_job(1, partitions=1), tmp_path, settings=settings) as h:
        for n in range(7):
            h.batch({"rows": [{"k": f"k{n}", "v": n}]})
            states.append(data.sorted_rows(h.state("step")))
        table = h.root / "kept" / "snapshots" / "step"
        kept = versions(h.root / "kept", "step")
        assert len(kept) == 2
        files = [path for path in table.files() if path.name.endswith(".parquet") and path.parent.name != "_delta_log"]
        assert len(files) == 2
        with working_copy(table) as copy:
            (name,) = pa.table(DeltaTable(copy).get_add_actions())["path"].to_pylist()
        rows = pq.read_table((table / name).fetch()).to_pylist()
        assert data.sorted_rows(rows) == states[-1]
        snapshot = min(kept, key=lambda version: version.commit.batch)
        h.restore(snapshot=str(snapshot.version))
        assert snapshot.commit.batch < 6
        assert data.sorted_rows(h.state("step")) == states[snapshot.commit.batch]


def test_10_5_a_requeue(tmp_path: Path) -> None:
    """The rows that are sent lie in the checkpoint until their batch is published."""
    requeues.test_a_crash_at_any_stage_doubles_and_loses_none(tmp_path, "CommitBatch", "after")


@pytest.fixture
def tmp_path(tmp_path: Path, hdfs) -> CheckpointFolder:
    """Return a folder on HDFS."""
    return root_of(hdfs.url(secrets.token_hex(8)), cache=str(tmp_path))
