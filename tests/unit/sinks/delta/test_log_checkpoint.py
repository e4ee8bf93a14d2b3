"""What the process that folds the log of a Delta table does beside a driver that commits to it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.sinks.delta import log_checkpoint
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


def test_its_low_priority_counts_beside_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux divides processors by sessions first, so in one of its own it had as much as the whole driver.

    It has a group of its own, so that Ctrl-C does not reach it.
    """
    script = tmp_path / "said.py"
    script.write_text("import os, sys; sys.exit(f'{os.getsid(0)} {os.getpgid(0) == os.getpid()}')")
    monkeypatch.setattr(log_checkpoint, "__file__", str(script))
    folding = LogFolding(tmp_path)
    folding.wait()
    assert folding.why == f"{os.getsid(0)} True"
