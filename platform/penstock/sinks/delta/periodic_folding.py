"""Have the log of a Delta table folded now and then, by a process of its own (decision 49)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from penstock.sinks.delta.log_checkpoint import LogFolding

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["PeriodicFolding", "folding_interval"]

log = structlog.get_logger()

_EVERY = 100
"""As delta-rs has it where a table does not say."""


def folding_interval(table: DeltaTable) -> int:
    """Return after how many versions a table wants a checkpoint of its log."""
    interval = str(table.metadata().configuration.get("delta.checkpointInterval", ""))
    return int(interval) if interval.isdecimal() and int(interval) else _EVERY


class PeriodicFolding:
    """The folding of one table's log, for as long as somebody publishes into it; `where` names it in warnings."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = path
        self._where = where
        self._folding: LogFolding | None = None

    def after(self, version: int, every: int) -> None:
        """Begin to fold where that is due after a commit; a failure is logged, and a later call tries again."""
        if self._folding is not None and self._folding.why is not None:
            log.warning("no checkpoint of a table's log", table=self._where, why=self._folding.why)
            self._folding = None
        if version % every == 0 and (self._folding is None or not self._folding.runs()):
            self._folding = LogFolding(self._path)

    def wait(self) -> None:
        """Wait for the end of one that runs."""
        if self._folding is not None:
            self._folding.wait()
