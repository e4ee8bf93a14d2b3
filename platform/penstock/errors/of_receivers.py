"""Name what can go wrong while senders push rows."""

from __future__ import annotations

from penstock.errors.of_sources import SourceChanged, SourceError
from penstock.errors.root import EXIT_RETRY


class EpochSealed(SourceError):
    """A receiver writes a block after another one was started in its place."""

    code = "PEN-SRC-030"
    remedy = "Send the rows again: they were not acknowledged, and the receiver that was started since keeps them."
    exit_code = EXIT_RETRY


class BlocksGone(SourceChanged, LookupError):
    """Rows that a receiver has acknowledged, and that the job has not read, are gone from its checkpoint."""

    code = "PEN-SRC-031"
    remedy = "Put the folder blocks of the checkpoint back, or begin with the blocks that are there by --from empty."
