"""Give the newest checkpoint a name: what it names is kept, whatever is purged (SEMANTICS 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.checkpoint.entries import Commit, Release, Save, Takeover
from penstock.checkpoint.log import Log, OwnedLog
from penstock.checkpoint.recovery import Recovered, recover
from penstock.checkpoint.takeover import View, claim, confirm, survey
from penstock.errors import CannotSave, Fenced
from penstock.graph.names import checked_name
from penstock.runtime.settings import Identity

__all__ = ["refuse_save", "save", "save_at_rest"]

_ATTEMPTS = 5


def _sound(log: Log) -> Recovered:
    """Return where the job stands; raises CannotSave where an entry at the end must be given up first.

    Only a driver may do that, which knows the sinks; behind a Save it would be damage for ever.
    """
    recovered = recover(log)
    if recovered.damaged:
        raise CannotSave(
            f"the log's last entry cannot be read: {recovered.damaged[0].reason}; start the job first, which gives "
            "it up where no sink shows that it was a batch",
            where=recovered.damaged[0].path,
        )
    return recovered


def refuse_save(name: str, commit: Commit | None, taken: Collection[str]) -> None:
    """Raise CannotSave where a name is taken, or nothing was committed, and JobError for what is no name."""
    checked_name(name, "a saved checkpoint")
    if name in taken:
        raise CannotSave(f"there is a saved checkpoint {name!r} already; the names in use are {sorted(taken)}")
    if commit is None:
        raise CannotSave("no batch was committed since the job began with nothing")


def save(owned: OwnedLog, name: str, commit: Commit | None, taken: Collection[str]) -> Save:
    """Append the entry that names a Commit; raises what `refuse_save` raises."""
    refuse_save(name, commit, taken)
    assert commit is not None
    return owned.append(Save(epoch=owned.epoch, writer=owned.writer, name=name, commit=commit))


def save_at_rest(log: Log, name: str, identity: Identity, may_take_over: Callable[[View], None]) -> Save:
    """Save for a job that nobody runs: own the log, name the newest checkpoint, and release the log.

    Nothing is published and no batch is finished: the next driver does that, as if nobody had been there.
    `may_take_over` raises where somebody holds the log that is looked at; it is asked again whoever comes in between.
    Raises CannotSave, Fenced where somebody takes the job meanwhile, and what `recover` raises.
    """
    for _ in range(_ATTEMPTS):
        found = _sound(log)
        view = survey(log)
        may_take_over(view)
        known = view.takeover
        takeover = Takeover(
            epoch=view.next_epoch,
            writer=identity.writer,
            command=identity.command,
            generation=known.generation if known is not None else 0,
            holder=identity.holder,
            code_version=identity.code_version,
            partitions=dict(found.partitions or {}),
        )
        slot = claim(log, view, takeover)
        if slot is not None:
            break
    else:
        raise Fenced("other drivers kept taking the log over")
    owned = confirm(log, slot)
    recovered = recover(log)
    try:
        _sound(log)
        return save(owned, name, recovered.commit, {*recovered.saves, *recovered.lost_saves})
    finally:
        shown = dict(recovered.published)
        owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason="saved", published=shown))
