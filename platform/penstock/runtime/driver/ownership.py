"""Own the log of a job that nobody runs, for a command that adds to it and finishes no batch: a Save, a move."""

from __future__ import annotations

from collections.abc import Callable

from penstock.checkpoint.log.compaction import compact
from penstock.checkpoint.log.entries import Release, Takeover
from penstock.checkpoint.log.log import Log, OwnedLog
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.log.takeover import View, claim, confirm, survey
from penstock.errors import CheckpointError, Fenced
from penstock.runtime.driver.retention import purge_at_rest
from penstock.runtime.driver.settings import Identity

__all__ = ["hold_idle_log", "refuse_torn", "release_at_rest"]

_ATTEMPTS = 5


def hold_idle_log(
    log: Log, identity: Identity, may_take_over: Callable[[View], None], *, refusal: type[CheckpointError]
) -> tuple[OwnedLog, Recovered]:
    """Take the log over, and return it with where the job stands.

    `may_take_over` raises where somebody holds the log that is looked at; it is asked again whoever comes in between.
    Raises `refusal` for a log whose end cannot be read, with nothing written; Fenced where somebody takes the job
    meanwhile; CheckpointMoved; and what `recover` raises.
    """
    for _ in range(_ATTEMPTS):
        found = recover(log)
        refuse_torn(found, refusal)
        view = survey(log)
        may_take_over(view)
        slot = claim(log, view, _takeover(identity, view, found))
        if slot is not None:
            return confirm(log, slot), recover(log)
    raise Fenced("other drivers kept taking the log over")


def _takeover(identity: Identity, view: View, found: Recovered) -> Takeover:
    """Return the entry of a command, which changes neither partitions nor where rows go."""
    sinks = {} if found.committed_by is None else found.committed_by.sinks
    return identity.takeover(view, found.partitions or {}, sinks)


def refuse_torn(recovered: Recovered, refusal: type[CheckpointError]) -> None:
    """Raise where an entry at the end must be given up first.

    Only a driver may do that, which knows the sinks; behind what a command adds it would be damage for ever.
    """
    if recovered.damaged:
        raise refusal(
            f"the log's last entry cannot be read: {recovered.damaged[0].reason}; start the job first, which gives "
            "it up where no sink shows that it was a batch",
            where=recovered.damaged[0].path,
        )


def release_at_rest(owned: OwnedLog, recovered: Recovered, reason: str) -> None:
    """Leave the log as the driver before has left it: what was known of the sinks is known still."""
    shown = dict(recovered.published)
    compact(owned.log, owned)
    purge_at_rest(owned)
    owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason=reason, published=shown))
