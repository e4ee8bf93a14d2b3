"""Tell the loss of the log from everything that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from penstock.checkpoint.log.log import Log, OwnedLog, fenced
from penstock.checkpoint.log.takeover import RELEASED, View, survey
from penstock.errors import CheckpointError, Fenced, PenstockError

__all__ = ["FAILED", "anybody_may", "fencing"]

FAILED = "failed"
"""The reason of the Release of a driver that ends with an error."""


def anybody_may(_: View) -> None:
    """Let any driver take over; `runtime.holder` has the rules of DESIGN 4."""


@contextmanager
def fencing(log: Log, owner: Callable[[], OwnedLog | None], leave: Callable[[], Iterable[object]]) -> Iterator[None]:
    """Raise Fenced in place of any error that follows from the loss of the log; `leave` it after any other.

    A Takeover that no Release follows is never purged, so starts that fail in turn would let the log grow (F10).
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
            with suppress(PenstockError, OSError):  # as after a crash, then
                for _ in leave():
                    pass
            raise
        raise fenced(log.path(owned.next_slot), owned.epoch, view.epoch, view.holder or RELEASED) from error
