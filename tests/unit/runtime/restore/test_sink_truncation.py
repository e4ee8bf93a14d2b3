"""What a restore may have sinks take back is settled before anything is written (SEMANTICS 10.1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from checkpoint_samples import commit, offsets, own
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock import Job
from penstock.checkpoint.log.entries import Place, Restore
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotTruncate
from penstock.runtime.driver.sink_recovery import redo_truncation
from penstock.runtime.restore.sink_truncation import plan_truncation
from penstock.runtime.restore.target import RestoreTarget
from penstock.sinks import Delta
from penstock.sources import MemorySource

SAID = {"source": "batch", "saved": None, "partitions": None}


@pytest.fixture
def log() -> Log:
    """Batches 0 to 2, in slots 2, 4 and 6."""
    filled = Log(MemoryStore())
    owned = own(filled)
    for batch in range(3):
        owned.append(offsets(batch))
        owned.append(commit(batch))
    return filled


def graph_of(table: Path):
    job = Job("job")
    job.source("rows", MemorySource("v int")).write("out", Delta(table))
    return job.graph()


def published(table: Path) -> Path:
    """Return a table that shows the batches of the log: versions 1 to 3."""
    DeltaTable.create(str(table), pa.schema([("v", pa.int32())]))
    for batch in range(3):
        properties = CommitProperties(app_transactions=[Transaction("uuid/out", batch)])
        rows = pa.table({"v": pa.array([batch], pa.int32())})
        write_deltalake(str(table), rows, mode="append", commit_properties=properties)
    return table


def planned(log: Log, table: Path, start: RestoreTarget) -> dict[str, int]:
    return plan_truncation(graph_of(table), lambda sink: f"uuid/{sink}", start.resolve(recover(log), table.parent))


def test_the_version_of_a_kept_batch_is_named(log: Log, tmp_path: Path) -> None:
    """Nothing for the newest, and nothing where that is not wanted."""
    table = published(tmp_path / "out")
    assert planned(log, table, RestoreTarget(restore=True, batch=0, truncate=True)) == {"out": 1}
    assert planned(log, table, RestoreTarget(restore=True, truncate=True)) == {"out": 0}
    assert planned(log, table, RestoreTarget(restore=True, batch=2, truncate=True)) == {}
    assert planned(log, table, RestoreTarget(restore=True, batch=0)) == {}


@pytest.mark.parametrize("place", [None, Place(slot=5), Place(slot=700)])
def test_a_commit_that_stands_elsewhere_is_no_measure(log: Log, tmp_path: Path, place: Place | None) -> None:
    """Of a snapshot that came with a copy of another checkpoint, say: the slots of its log are not those of this one."""
    start = RestoreTarget(restore=True, batch=1, truncate=True)
    point = replace(start.resolve(recover(log), tmp_path), commit=commit(1, place=place))
    table = published(tmp_path / "out")
    with pytest.raises(CannotTruncate, match="batch 1 is neither kept nor saved"):
        plan_truncation(graph_of(table), lambda sink: f"uuid/{sink}", point)


def test_a_sink_that_is_gone_has_nothing_put_back(log: Log, tmp_path: Path) -> None:
    """Its table is known to the code of before only: a start refuses, and a restore does the others."""
    owned = own(log)
    owned.append(Restore(epoch=owned.epoch, writer=owned.writer, batch=0, truncate={"gone": 1, "out": 1}, **SAID))
    asked = []
    engine = SimpleNamespace(
        graph=graph_of(tmp_path / "out"),
        sink=lambda name: SimpleNamespace(
            put_back=lambda target, version, slot, newest: asked.append((name, version, slot, newest))
        ),
    )
    with pytest.raises(CannotTruncate, match="'gone' is to take rows back, and the job has it no longer"):
        list(redo_truncation(engine, lambda sink: f"uuid/{sink}", recover(log), Damage.FAIL))
    hooks = list(redo_truncation(engine, lambda sink: f"uuid/{sink}", recover(log), Damage.LIST))
    assert asked == [("out", 1, 8, 2)]
    assert [hook.when for hook in hooks] == ["before", "truncated out", "after"]
    owned.append(offsets(3, owned.epoch, owned.writer))
    owned.append(commit(3, owned.epoch, owned.writer))
    assert list(redo_truncation(engine, lambda sink: f"uuid/{sink}", recover(log), Damage.FAIL)) == []
