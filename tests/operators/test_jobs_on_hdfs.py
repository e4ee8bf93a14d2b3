"""Suites of jobs, with their checkpoints on a real HDFS instead of local disk.

The tests are those of other modules; only the folder that they are given stands for one on HDFS.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import test_data_checkpoints
import test_rewriting_restores
import test_state_in_jobs
import test_windows_in_jobs

from penstock.checkpoint.mirror import root_of

pytestmark = [pytest.mark.integration, pytest.mark.fault("F15")]

for module in (test_data_checkpoints, test_rewriting_restores, test_state_in_jobs, test_windows_in_jobs):
    globals().update({name: test for name, test in vars(module).items() if name.startswith("test_") and callable(test)})


@pytest.fixture
def tmp_path(tmp_path: Path, hdfs) -> Path:
    """Return a folder that stands for one on HDFS."""
    folder = root_of(hdfs.url(secrets.token_hex(8)), cache=str(tmp_path))
    folder.mkdir(mode=0o700)
    return folder
