"""Name what can go wrong while senders push rows."""

from __future__ import annotations

from penstock.errors.checkpoints import CheckpointCorrupt
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
    remedy = (
        "Put the folder blocks of the checkpoint back, or begin with the blocks that are there by --from empty. Blocks "
        "that are put back after that are not read."
    )


class BlockDamaged(CheckpointCorrupt):
    """A block of rows that a receiver has acknowledged, and that the job has not read, is not what was written."""

    code = "PEN-SRC-041"
    remedy = (
        "Put the file back from a backup, or begin with the blocks that are whole by --from empty. A batch from before "
        "this block reads on to it as well."
    )


class RowsTooLarge(SourceError, ValueError):
    """The rows of one call of a receiver's store, or one request, are more than a block holds."""

    code = "PEN-SRC-032"
    remedy = "Store fewer rows at a time: a block has at most 64 MiB."


class ReceiversTakeAllCores(SourceError, ValueError):
    """The receivers of a job would take every core of its executors on a cluster, so no batch could run."""

    code = "PEN-SRC-033"
    remedy = (
        "Give the job more cores than it has receivers, as by spark.cores.max or spark.executor.instances under "
        "[spark.conf], or use fewer receivers."
    )
    exit_code = EXIT_RETRY


class CannotListen(SourceError, OSError):
    """A receiver cannot have the address that senders are to reach it by."""

    code = "PEN-SRC-040"
    remedy = (
        "End the process that has the port, or give the source another host= or port=. Where the job runs already, the "
        "receiver is started again until it can listen."
    )
    exit_code = EXIT_RETRY
