"""Fold the log of a Delta table into a checkpoint of it: `python -m penstock.sinks.log_folding TABLE`.

In a process of its own, with little claim to the processors: to fold it all files of the table are read into memory,
which a driver that runs for months would keep.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["FoldingFailed", "fold_beside"]

_PATIENCE = 600.0
"""Seconds."""


class FoldingFailed(Exception):
    """Say why a log was not folded; readers need it for speed alone."""


def fold_beside(table: str | Path) -> None:
    """Write a checkpoint of a table's log, and delete entries that are older than the table keeps them.

    Returns when that is done, or raises FoldingFailed.
    """
    command = [sys.executable, "-m", "penstock.sinks.log_folding", str(table)]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise FoldingFailed(str(why)) from why
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise FoldingFailed(said[-1] if said else f"its process ended with {done.returncode}")


def _fold(path: str) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(path)
    table.create_checkpoint()
    if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") != "false":
        table.cleanup_metadata()


if __name__ == "__main__":
    os.nice(19)
    _fold(sys.argv[1])
