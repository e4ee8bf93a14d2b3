"""Make up for entries of a log that are missing, on behalf of who goes back behind them (decision 52)."""

from __future__ import annotations

import structlog

from penstock.checkpoint.log.entries import Void
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, recover
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import LogGap
from penstock.runtime.restore.target import RestoreTarget

__all__ = ["close_gaps", "refuse_gaps"]

log = structlog.get_logger()


def close_gaps(entries: Log, start: RestoreTarget, folder: CheckpointFolder, writer: str) -> None:
    """Put a Void into each slot that is missing, so that the end of the log is found again.

    Where no batch has followed, nobody knows which ids the missing entries have used: those are given up with them.
    Until the Restore follows the job is refused as before, because nobody who held the log has written these.
    Raises CannotRestore where there is nothing to go back to, and then the log stands as it stood.
    """
    recovered = recover(entries, Damage.LIST)
    missing = sorted(
        {slot for problem in recovered.problems if isinstance(problem, LogGap) for slot in _slots(problem)}
    )
    if not missing:
        return
    start.resolve(recovered, folder)
    begun = [*(kept.commit for kept in recovered.kept), *([recovered.pending] if recovered.pending is not None else [])]
    newest = max((entry.place.slot for entry in begun if entry.place is not None), default=-1)
    reason = "the entry is missing; a restore makes up for it"
    for slot in missing:
        log.warning("log.gap_closed", slot=slot)
        used = recovered.used + len(missing) if slot == missing[-1] > newest else None
        entries.append_at(slot, Void(epoch=1, writer=writer, slot=slot, reason=reason, batch=used))


def refuse_gaps(recovered: Recovered) -> None:
    """Raise LogGap where an entry has gone since, because a Restore alone does not make up for it."""
    for problem in recovered.problems:
        if isinstance(problem, LogGap):
            raise problem


def _slots(gap: LogGap) -> list[int]:
    slots: list[int] = gap.fields["missing"]  # type: ignore[assignment]
    return slots
