"""Give the newest checkpoint a name, with which it is kept whatever is purged, and take names back (SEMANTICS 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.checkpoint.log.entries import Commit, Save, Unsave
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.log.takeover import View
from penstock.errors import BadName, CannotSave
from penstock.graph.names import is_name
from penstock.runtime.driver.ownership import idle_log
from penstock.runtime.driver.retention import Retention
from penstock.runtime.driver.settings import DriverSettings, Identity

__all__ = ["SavedNames", "refuse_save", "refuse_unsave", "save", "save_at_rest", "unsave", "unsave_at_rest"]


def refuse_save(name: str, commit: Commit | None, taken: Collection[str]) -> None:
    """Raise CannotSave where a name is taken, or nothing was committed, and BadName for what is no name."""
    _refuse_no_name(name)
    if name in taken:
        raise CannotSave(f"there is a saved checkpoint {name!r} already; the names in use are {sorted(taken)}")
    if commit is None:
        raise CannotSave("no batch was committed since the job began with nothing")


def _refuse_no_name(name: str) -> None:
    if not is_name(name):
        raise BadName(f"a saved checkpoint is named {name!r}")  # no line of a job has it


def save(owned: OwnedLog, name: str, commit: Commit | None, taken: Collection[str]) -> Save:
    """Append the entry that names a Commit; raises what `refuse_save` raises."""
    refuse_save(name, commit, taken)
    assert commit is not None
    return owned.append(Save(epoch=owned.epoch, writer=owned.writer, name=name, commit=commit))


class SavedNames:
    """The names in the log that a driver owns, and what they keep."""

    def __init__(self, janitor: Retention) -> None:
        self._janitor = janitor
        self._taken: set[str] = set()

    def adopt(self, recovered: Recovered) -> None:
        """Begin with the names of the log."""
        self._taken = {*recovered.saves}

    def hear(self, settings: DriverSettings, owned: OwnedLog, commit: Commit | None) -> None:
        """Carry out requests: give names that are not there, and delete those that are."""
        for name in set(settings.saves()) - self._taken if commit is not None else ():
            self.save(owned, name, commit)
        for name in set(settings.unsaves()) & self._taken:
            self.unsave(owned, name)

    def save(self, owned: OwnedLog, name: str, commit: Commit | None) -> None:
        """Give a Commit a name; raises what `refuse_save` raises."""
        self._janitor.pin(name, save(owned, name, commit, self._taken).commit)
        self._taken.add(name)

    def unsave(self, owned: OwnedLog, name: str) -> None:
        """Delete a name; raises what `refuse_unsave` raises."""
        unsave(owned, name, self._taken)
        self._janitor.let_go(name)
        self._taken.discard(name)


def save_at_rest(log: Log, name: str, identity: Identity, may_take_over: Callable[[View], None]) -> Save:
    """Save for a job that nobody runs: own the log, name the newest checkpoint, and release the log.

    Raises CannotSave, and what `idle_log` raises.
    """
    with idle_log(log, identity, may_take_over, refusal=CannotSave, reason="saved") as (owned, recovered):
        return save(owned, name, recovered.commit, recovered.saves)


def refuse_unsave(name: str, taken: Collection[str]) -> None:
    """Raise CannotSave where there is no such name, and BadName for what is none."""
    _refuse_no_name(name)
    if name not in taken:
        raise CannotSave(f"there is no saved checkpoint {name!r} to delete; the names in use are {sorted(taken)}")


def unsave(owned: OwnedLog, name: str, taken: Collection[str]) -> Unsave:
    """Append the entry that deletes a name; raises what `refuse_unsave` raises."""
    refuse_unsave(name, taken)
    return owned.append(Unsave(epoch=owned.epoch, writer=owned.writer, name=name))


def unsave_at_rest(log: Log, name: str, identity: Identity, may_take_over: Callable[[View], None]) -> Unsave:
    """Delete a name for a job that nobody runs, as `save_at_rest` gives one."""
    reason = "deleted a saved checkpoint"
    with idle_log(log, identity, may_take_over, refusal=CannotSave, reason=reason) as (owned, recovered):
        return unsave(owned, name, recovered.saves)
