"""What the process that folds the log of a Delta table does beside a driver that commits to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.sinks.delta.log_checkpoint import LogFolding


@pytest.mark.slow
def test_a_temporary_file_that_gets_its_name_meanwhile_is_no_trouble(tmp_path: Path) -> None:
    """The list of the folder has it, and it is gone when it is looked at; one that is an hour old is removed."""
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"n": [1]}))
    log = table / "_delta_log"
    (log / f".tmp-{'a' * 32}").symlink_to(log / "gone")  # listed, and not found
    for name, age in (("b", 0), ("c", 7_200)):
        path = log / f".tmp-{name * 32}"
        path.write_bytes(b"{}")
        os.utime(path, (time.time() - age,) * 2)
    folding = LogFolding(table)
    folding.wait()
    assert folding.why is None
    assert (log / "_last_checkpoint").is_file()
    assert (log / f".tmp-{'b' * 32}").is_file()
    assert not (log / f".tmp-{'c' * 32}").exists()
