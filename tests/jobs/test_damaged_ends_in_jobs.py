"""The last entry of a real job's log is damaged: Spark and Delta as they are, and each row is shown once (F13, F68)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock import Job
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import CheckpointCorrupt
from penstock.sinks import Delta
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness

DAMAGES = {
    "header": lambda data: b"\0" + data[1:],
    "body": lambda data: data[:-1],
    "all of it": lambda data: b"",
}
STOPS = {"commit", "published"}
"""What a start must not go on behind by itself; other entries decided nothing."""


def copying(table: Path) -> Job:
    """Return a job that copies its rows into a table."""
    job = Job("job", partitions=1)
    job.source("rows", MemorySource(schema="v long")).select("v").write("out", Delta(table))
    return job


def leave_behind(h: Harness, last: str) -> None:
    """Do a batch of row 3 up to a point, and die there."""
    at = {
        "offsets": ("FixOffsets", "after"),
        "commit": ("CommitBatch", "after"),
        "published": ("Purge", "after"),
        "takeover": ("TakeOver", "claimed"),
        "save": ("FixOffsets", "before"),
    }[last]
    if last == "save":
        h.save("name")
    h.crash_at(*at)
    with suppress(Crashed):
        if last == "takeover":
            h.restart()
        else:
            h.batch({"rows": [{"v": 3}]})


@pytest.mark.sample(2)
@pytest.mark.fault("F13", "F68")
@pytest.mark.parametrize(
    ("last", "harm"),
    [
        ("offsets", "body"),
        ("commit", "header"),
        ("published", "all of it"),
        ("takeover", "all of it"),
        ("save", "body"),
    ],
)
def test_each_row_is_shown_once_whatever_was_damaged(tmp_path: Path, last: str, harm: str) -> None:
    """A start goes on, or names the damage, and going back to the newest batch that is kept is all that is needed."""
    table = tmp_path / "table"
    with Harness(copying(table), tmp_path / "root") as h:
        for n in range(3):
            h.batch({"rows": [{"v": n}]})
        leave_behind(h, last)
        log = Log(LocalStore(tmp_path / "root" / "job"))
        path = tmp_path / "root" / "job" / log.path(log.find_tail())
        assert f'"kind":"{last.replace("published", "commit")}"'.encode() in path.read_bytes()
        path.write_bytes(DAMAGES[harm](path.read_bytes()))
        stopped = False
        try:
            h.restart()
        except CheckpointCorrupt:
            stopped = True
            h.restore(batch=recover(log, Damage.LIST).kept[-1].batch, truncate_sinks=True)
        assert stopped == (last in STOPS)
        h.batch({"rows": [{"v": 99}]})
    done = [0, 1, 2, 99] if last == "takeover" else [0, 1, 2, 3, 99]
    assert sorted(DeltaTable(table).to_pyarrow_table()["v"].to_pylist()) == done
