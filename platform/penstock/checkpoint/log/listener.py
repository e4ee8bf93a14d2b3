"""State what a driver tells those who listen to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.recovery import Recovered

__all__ = ["Listener"]


class Listener:
    """Hear what a driver has done; subclass it, and say what is of interest.

    The driver calls each method on its own thread, between stages, so none may wait. An error in one ends the driver.
    After a crash the next driver repeats nothing: what a listener has missed is in the log.
    """

    def on_takeover(self, recovered: Recovered) -> None:
        """Hear what the log says of the job, when the driver owns it: once for each takeover."""

    def on_answered(self, command: str) -> None:
        """Hear that another try of the command has restored meanwhile, so that this one does nothing."""

    def on_batch_submitted(self, offsets: Offsets) -> None:
        """Hear that a batch is planned; its Offsets go into the log next."""

    def on_batch_started(self, offsets: Offsets) -> None:
        """Hear that a batch is computed: also one that was planned by another driver, which died."""

    def on_waiting(self, limits: Mapping[str, Any], held_back: Mapping[str, Sequence[str]]) -> None:
        """Hear that there is no batch to run now, by which limits, and in which partitions these keep rows."""

    def on_publishing(self, commit: Commit, sinks: Sequence[str]) -> None:
        """Hear that some sinks get a committed batch next; heard again where a start publishes it again."""

    def on_batch_completed(self, commit: Commit) -> None:
        """Hear that a batch is committed, published and acknowledged."""

    def on_receivers(self, states: Sequence[dict[str, Any]]) -> None:
        """Hear how the receivers of the job are, where that has changed; between batches."""

    def on_data_checkpoint(self, event: dict[str, Any]) -> None:
        """Hear which data checkpoint is the newest, and when the next one is due; after each batch."""
