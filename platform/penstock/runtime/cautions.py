"""Warn of what a batch shows and no error says: partitions that are gone."""

from __future__ import annotations

import structlog

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.recovery import Recovered

__all__ = ["Cautions"]

log = structlog.get_logger()


class Cautions:
    """Listen to a driver and log each warning once."""

    def __init__(self) -> None:
        self._gone: set[tuple[str, str]] = set()

    def on_takeover(self, recovered: Recovered) -> None:
        """Begin with what the newest Commit says already."""
        self._gone = _gone(recovered.commit)

    def on_batch_completed(self, commit: Commit) -> None:
        """Log `source.partition_gone` for each partition that this batch was the first to miss (SEMANTICS 2.4)."""
        found = _gone(commit)
        for source, partition in sorted(found - self._gone):
            log.warning("source.partition_gone", source=source, partition=partition, batch=commit.batch)
        self._gone = found


def _gone(commit: Commit | None) -> set[tuple[str, str]]:
    sources = commit.sources.items() if commit is not None else ()
    return {(source, name) for source, progress in sources for name, p in progress.partitions.items() if p.gone}
