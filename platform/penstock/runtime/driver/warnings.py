"""Warn of what a batch shows and no error says: partitions that are gone, clocks that are wrong (F44)."""

from __future__ import annotations

import structlog

from penstock.checkpoint.log.batch_report import moment
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered
from penstock.runtime.driver.receipts import added, mostly

__all__ = ["Cautions"]

log = structlog.get_logger()

_EVENTS = {"late": "batch.mostly_late", "too_far_ahead": "batch.mostly_too_far_ahead"}


class Cautions(Listener):
    """Listen to a driver, and log what is likely to be wrong."""

    def __init__(self) -> None:
        self._before: Commit | None = None

    def on_takeover(self, recovered: Recovered) -> None:
        """Begin with what the newest Commit says already."""
        self._before = recovered.commit

    def on_batch_completed(self, commit: Commit) -> None:
        """Log `source.partition_gone`, once for each, and `batch.mostly_late` or `batch.mostly_too_far_ahead`."""
        before, self._before = self._before, commit
        for source, partition in sorted(_gone(commit) - _gone(before)):
            log.warning("source.partition_gone", source=source, partition=partition, batch=commit.batch)
        counted = added(commit.totals, before.totals if before is not None else {}, -1)
        for name, reason in mostly(counted):
            kind, _, of = name.partition(":")
            marks = {"watermark": moment(commit.watermarks_in[of])} if of in commit.watermarks_in else {}
            facts = {kind: of, "batch": commit.batch, "time": moment(commit.time), **marks, **counted[name]}
            log.warning(_EVENTS[reason], **facts)


def _gone(commit: Commit | None) -> set[tuple[str, str]]:
    sources = commit.sources.items() if commit is not None else ()
    return {(source, name) for source, progress in sources for name, p in progress.partitions.items() if p.gone}
