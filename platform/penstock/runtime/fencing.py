"""Tell the loss of the log from everything that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.checkpoint.log import Log, OwnedLog, fenced
from penstock.checkpoint.takeover import RELEASED, View, survey
from penstock.errors import CheckpointError, Fenced

__all__ = ["anybody_may", "fencing"]


def anybody_may(_: View) -> None:
    """Let any driver take over; `runtime.holder` has the rules of DESIGN 4."""


@contextmanager
def fencing(log: Log, owner: Callable[[], OwnedLog | None]) -> Iterator[None]:
    """Raise Fenced in place of any error that follows from the loss of the log.

    Who took it over goes on: tables get ahead, and what only older batches need is swept away.
    To the one that sleeps this looks like an old copy of the checkpoint (F31), or like damage.
    """
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        owned, view = owner(), None
        with suppress(CheckpointError):
            view = survey(log)
        # Not the epoch of the view: that counts an entry torn at the end, which is damage and no takeover.
        if owned is None or view is None or view.takeover is None or view.takeover.epoch == owned.epoch:
            raise
        raise fenced(log.path(owned.next_slot), owned.epoch, view.epoch, view.holder or RELEASED) from error
