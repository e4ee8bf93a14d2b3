"""Give the newest checkpoint a name: what it names is kept, whatever is purged (SEMANTICS 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.checkpoint.entries import Commit, Save
from penstock.checkpoint.log import Log, OwnedLog
from penstock.checkpoint.takeover import View
from penstock.errors import CannotSave
from penstock.graph.names import checked_name
from penstock.runtime.resting import own_at_rest, refuse_torn, release_at_rest
from penstock.runtime.settings import Identity

__all__ = ["refuse_save", "save", "save_at_rest"]


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
    Raises CannotSave, and what `own_at_rest` raises.
    """
    owned, recovered = own_at_rest(log, identity, may_take_over, refusal=CannotSave)
    try:
        refuse_torn(recovered, CannotSave)
        return save(owned, name, recovered.commit, recovered.saves)
    finally:
        release_at_rest(owned, recovered, "saved")
