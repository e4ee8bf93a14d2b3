"""Keep Python's garbage collector from stopping a batch: what lives as long as the driver is looked through once."""

from __future__ import annotations

import gc

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered

__all__ = ["ShortPauses"]

_LAST = 64
"""Batches after which all modules are imported and all connections are made."""


class ShortPauses(Listener):
    """Freeze the objects of a driver's process: full collections look only at those that came later.

    A full collection looks through all that is imported: 140 ms in the middle of a batch, as a trace of a driver
    showed. Garbage is collected first, so none is frozen. The first batches import and open more: so again after
    1 batch, 2, 4 and so on. A frozen object is freed as before when its last reference goes.
    """

    def __init__(self) -> None:
        self._batches = 0

    def on_takeover(self, recovered: Recovered) -> None:
        """Freeze what the start has made."""
        _freeze()

    def on_batch_completed(self, commit: Commit) -> None:
        """Freeze what the first batches have made."""
        self._batches += 1
        if self._batches <= _LAST and self._batches & (self._batches - 1) == 0:
            _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()
