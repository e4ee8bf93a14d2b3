"""Save the newest checkpoint of a stream, or delete a saved one, by its driver or in its place (SEMANTICS 10.2)."""

from __future__ import annotations

from functools import partial

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.roots import job_log
from penstock.errors import CannotSave, Fenced, HolderAlive
from penstock.runtime.driver.savepoint import refuse_save, refuse_unsave, save_at_rest, unsave_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.takeover_policy import HolderWatch, holder_name
from penstock.supervise.commands import Request, generation_of, remember
from penstock.supervise.control import StreamControl
from penstock.supervise.stream import Stream

__all__ = ["save", "unsave"]

_POLL = 0.3
_AGAIN = 5.0
"""Seconds after which a save is asked for again: the driver drops older requests (`runtime.orders.FRESH`)."""


def save(control: StreamControl, by: str | None, name: str, *, patience: float) -> Commit:
    """Name the newest checkpoint, by the driver that runs or in its place, and return its Commit once the log says so.

    `patience` is seconds of silence after which the holder of the log counts as dead (`takeover_after`).
    A repeated request with the same id, if it has one, finds the name it has given.
    Raises CannotSave, and BadName for what is no name.
    """
    log = job_log(control.root / control.job)
    if log is None:
        raise CannotSave(f"{control.job} has no checkpoint yet", where=str(control.root))
    recovered = recover(log, Damage.LIST)
    known = recovered.saves.get(name)
    if known is not None and by is not None and generation_of(control.newest(), by) is not None:
        return known
    refuse_save(name, recovered.commit, {*recovered.saves})
    if by is not None:
        control.records.update(partial(_remembering, by=by))
    _until(control, log, name, patience, wanted=True)
    return recover(log, Damage.LIST).saves[name]


def unsave(control: StreamControl, name: str, *, patience: float) -> None:
    """Delete a named checkpoint, by the driver that runs or in its place, and return once the log says so.

    Raises CannotSave where there is no such name, and BadName for what is none.
    """
    log = job_log(control.root / control.job)
    if log is None:
        raise CannotSave(f"{control.job} has no checkpoint yet", where=str(control.root))
    refuse_unsave(name, {*recover(log, Damage.LIST).saves})
    _until(control, log, name, patience, wanted=False)


def _until(control: StreamControl, log: Log, name: str, patience: float, *, wanted: bool) -> None:
    """Have the driver give or delete a name, or do it in its place."""
    asked_at: float | None = None
    clock = control.clock
    do = save_at_rest if wanted else unsave_at_rest
    try:
        while (name in recover(log, Damage.LIST).saves) is not wanted:
            # A new watch each time: a holder that gave signs of life for a while may give none any more.
            watch = HolderWatch(control.root / control.job, patience=patience, clock=clock)
            me = Identity(holder=holder_name(), code_version="penstock save")
            try:
                do(log, name, me, watch.may_take_over)
            except HolderAlive:
                if asked_at is None or clock.monotonic() - asked_at > _AGAIN:
                    asked_at = clock.monotonic()
                    control.records.update(partial(_asking, name=name, at=clock.wall(), wanted=wanted))
                clock.sleep(_POLL)  # until the batch that runs is done
            except (CannotSave, Fenced):
                if (name in recover(log, Damage.LIST).saves) is not wanted:
                    raise
    finally:
        control.records.update(partial(_asking, name=name, at=None, wanted=wanted))


def _asking(stream: Stream, *, name: str, at: int | None, wanted: bool) -> tuple[Stream, None]:
    asks = stream.saves if wanted else stream.unsaves
    others = {known: since for known, since in asks.items() if known != name}
    return stream.having(**{"saves" if wanted else "unsaves": others if at is None else {**others, name: at}}), None


def _remembering(stream: Stream, *, by: str) -> tuple[Stream, None]:
    return stream if generation_of(stream, by) is not None else remember(stream, by, Request.SAVE.value), None
