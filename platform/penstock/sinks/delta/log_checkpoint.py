"""Fold the log of a Delta table into a checkpoint of it, and clean it: `python -P log_checkpoint.py TABLE`.

It runs in a process of its own, at low priority. Folding reads the entries of all files of the table into memory,
which a driver that runs for months would never return. The process imports nothing of Penstock, and ends by itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

__all__ = ["LogFolding"]

_PATIENCE = 600
"""Seconds."""
_GRACE = 3_600.0
"""Seconds after which nobody writes a temporary file any more."""
_TEMP = re.compile(r"\.tmp-[0-9a-f]{32}")
_PLAIN_WRITER = 3
_FEATURES = {"appendOnly", "checkConstraints", "invariants", "timestampNtz", "variantType"}
"""Features of writers that a checkpoint of the log has nothing to do with."""


class LogFolding:
    """A process that writes a checkpoint of a table's log and deletes entries that the table keeps no longer.

    Readers need it for speed alone, so nobody waits for it; what has gone wrong is asked for later.
    """

    def __init__(self, table: Path) -> None:
        self.why: str | None = None
        """Why it did not do its work; None where it did, or runs."""
        # A daemon: a driver that ends leaves the process to itself.
        self._thread = Thread(target=self._run, args=(str(table),), name="penstock-fold", daemon=True)
        self._thread.start()

    def runs(self) -> bool:
        """Return whether it has not ended yet."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self, table: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter
                [sys.executable, "-P", __file__, table],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
                # Ctrl-C is for the driver: better a second more than a log half cleaned. In a session of its own
                # Linux would divide the processors by sessions, and its priority would count within its own.
                process_group=0,
            )
        except OSError as why:
            self.why = str(why)
            return
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        if done.returncode:
            self.why = lines[-1] if lines else f"its process ended with {done.returncode}"


def _fold(path: str) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(path)
    protocol = table.protocol()
    features = set(protocol.writer_features or ())
    if protocol.min_writer_version > _PLAIN_WRITER and not (features and features <= _FEATURES):
        return  # it has become a table that delta-rs must not write; who made it one folds it
    table.create_checkpoint()
    log = Path(path) / "_delta_log"
    # Before entries go that it has taken in: delta-rs syncs nothing.
    for made in (log / f"{table.version():020}.checkpoint.parquet", log / "_last_checkpoint", log):
        _sync(made)
    if str(table.metadata().configuration.get("delta.enableExpiredLogCleanup")).lower() != "false":
        table.cleanup_metadata()
    for entry in (Path(path) / "_delta_log").iterdir():
        # What a process left that died between writing an entry and giving it its name (F15).
        # A driver that commits meanwhile gives its temporary file the name of an entry.
        with suppress(FileNotFoundError):
            if _TEMP.fullmatch(entry.name) and entry.stat().st_mtime < time.time() - _GRACE:
                entry.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    os.nice(19)
    signal.alarm(_PATIENCE)
    _fold(sys.argv[1])
