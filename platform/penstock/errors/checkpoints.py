"""Name what can go wrong with a checkpoint, its log and its store."""

from __future__ import annotations

from penstock.errors.root import EXIT_FENCED, EXIT_RETRY, PenstockError


class CheckpointError(PenstockError):
    """Root of all errors of a checkpoint, its log and its store."""

    code = "PEN-CKP-000"
    remedy = "Run `penstock checkpoints JOB` to see what can be restored."


class CheckpointCorrupt(CheckpointError):
    """A file is damaged: truncated, altered, or not what its name says."""

    code = "PEN-CKP-001"
    remedy = (
        "Nothing was overwritten. Put the file back from a backup, or restore with `--from` a batch that `penstock "
        "checkpoints JOB` lists and `penstock fsck ROOT` does not name as damaged."
    )


class FormatTooNew(CheckpointError):
    """A newer Penstock has written the file."""

    code = "PEN-CKP-002"
    remedy = "Use the newer Penstock that wrote it; nothing was written."


class LogGap(CheckpointError):
    """Slots are missing between slots that exist."""

    code = "PEN-CKP-003"
    remedy = (
        "Put the missing entries back from a backup, or restore with `--from` a batch that `penstock fsck ROOT` "
        "lists. A restore closes the gap."
    )


class MetadataMissing(CheckpointError):
    """A log exists without its metadata.json: a new uuid would break the deduplication of every sink."""

    code = "PEN-CKP-004"
    remedy = (
        "Put metadata.json back from a backup. To abandon the old sinks on purpose, start an empty checkpoint "
        "elsewhere."
    )


class MetadataDamaged(CheckpointCorrupt):
    """metadata.json is damaged, or of another checkpoint, so that no batch of this one can be restored."""

    code = "PEN-CKP-040"
    remedy = (
        "Put metadata.json back from a backup; nothing was overwritten. To abandon the old sinks on purpose, start an "
        "empty checkpoint elsewhere."
    )


class CheckpointPartial(CheckpointError):
    """A checkpoint has lost its log: a new one would publish all rows a second time."""

    code = "PEN-CKP-028"
    remedy = (
        "Put the missing parts back from a backup. To start from the beginning, rename the folder and run `penstock "
        "run JOB --new-lineage`; all rows are then published a second time."
    )


class FormerCheckpoint(CheckpointError):
    """The job's previous checkpoint is missing: a new one would publish all rows a second time."""

    code = "PEN-CKP-029"
    remedy = (
        "Mount the checkpoint's volume, or put its folder back. To start from the beginning, use `penstock run JOB "
        "--new-lineage`, or `--from empty`; all rows are then published a second time."
    )


class StateMissing(CheckpointError):
    """A commit names state files that do not exist."""

    code = "PEN-CKP-005"
    remedy = "Put the files back from a backup, or restore with `--from` a batch that `penstock fsck ROOT` lists."


class NotExclusive(CheckpointError):
    """The store has let two writers create one name."""

    code = "PEN-CKP-006"
    remedy = "Use local disk or HDFS; a store without exclusive create cannot fence a second driver."


class NotShared(CheckpointError):
    """The driver and an executor do not see the same folder."""

    code = "PEN-CKP-023"
    remedy = (
        "Mount the folder on every machine of the cluster, under the same path and for the same user, keep checkpoints "
        "on HDFS, or run with a local master."
    )


class StorageFull(CheckpointError, OSError):
    """The disk is full, or a quota is exceeded."""

    code = "PEN-CKP-007"
    remedy = "Free space or raise the quota, then start again: the batch is re-run from its offsets."
    exit_code = EXIT_RETRY


class StorageDenied(CheckpointError, PermissionError):
    """The storage denies access to a file."""

    code = "PEN-CKP-008"
    remedy = (
        "Give the job's user write permission on the checkpoint root, and nobody else. Where a table or another folder "
        "is named, give it there."
    )


class StorageUnavailable(CheckpointError):
    """The storage does not answer."""

    code = "PEN-CKP-009"
    remedy = "Wait for the storage; nothing was lost and a later start resumes."
    exit_code = EXIT_RETRY


class CommitUnknown(CheckpointError):
    """The outcome of a write is unknown; nothing was cleaned up."""

    code = "PEN-CKP-010"
    remedy = "Start again: the outcome is read back from the store."
    exit_code = EXIT_RETRY


class SlotTaken(CheckpointError, FileExistsError):
    """Internal to the log: the slot has another entry."""

    code = "PEN-CKP-011"
    remedy = "Read the slot to learn who holds the log."


class Fenced(CheckpointError):
    """Another driver has acquired the log, with a newer epoch."""

    code = "PEN-CKP-012"
    remedy = "Nothing to do: the other driver runs the job. To replace it, stop it first or start with --take-over."
    exit_code = EXIT_FENCED


class HolderAlive(Fenced):
    """The driver that holds the log may be alive, and a takeover is not allowed."""

    code = "PEN-CKP-013"
    remedy = "Stop the holder, wait until its heartbeat stops, or start with --take-over."


class CannotRestore(CheckpointError, LookupError):
    """The checkpoint to restore does not exist, or can no longer be restored."""

    code = "PEN-CKP-014"
    remedy = (
        "Choose one of those listed; where there is none yet, start from last. Each new batch of a running stream "
        "takes the place of the oldest: suspend the stream first, then they stay until the restart."
    )


class CannotTruncate(CannotRestore):
    """A sink cannot be truncated to the restored batch."""

    code = "PEN-SNK-004"
    remedy = (
        "Restore without --truncate-sinks, where that is possible: the rows stay, and are published a second time "
        "under new batch ids."
    )


class CannotSave(CheckpointError, ValueError):
    """A savepoint cannot be created under this name."""

    code = "PEN-CKP-024"
    remedy = "Choose another name (`penstock checkpoints JOB` lists those in use), or save once a batch is committed."


class CannotSkip(CheckpointError, ValueError):
    """A sink and the log cannot be reconciled before the job starts."""

    code = "PEN-CKP-030"
    remedy = (
        "Start the job: it makes its checkpoint, gives up a damaged last entry, and has sinks take rows back that a "
        "restore undoes. Then `penstock sinks JOB list` says what each sink lacks."
    )


class CannotCopy(CheckpointError, ValueError):
    """An export or import cannot use this folder."""

    code = "PEN-CKP-025"
    remedy = "Name a folder that does not exist yet, and an export that is complete."


class CheckpointMoved(CheckpointError):
    """The log has ended: the job was moved to another place, under the same uuid."""

    code = "PEN-CKP-026"
    remedy = (
        "Run the job there; this checkpoint is closed. To have it here again, rename this folder and move it back "
        "with `penstock import DIR JOB --move`."
    )


class MoveUnfinished(CheckpointError):
    """A checkpoint was moved here, and the log at its old place has not ended."""

    code = "PEN-CKP-027"
    remedy = (
        "Repeat `penstock import DIR JOB --move` where both folders are visible, which finishes the move. Until the "
        "other log has ended the job may resume there."
    )


class PartitionsChanged(CheckpointError, ValueError):
    """The job has another number of state partitions than the checkpoint."""

    code = "PEN-CKP-015"
    remedy = "Set the old number again, or rescale the state to the new one: `--from batch=N --partitions P`."


class StepsChanged(CheckpointError, ValueError):
    """The job's stateful steps, sources or sinks are not those of the checkpoint."""

    code = "PEN-CKP-016"
    remedy = (
        "Undo the change; `penstock diff JOB` compares job and checkpoint. A step starts empty under another name. "
        "To drop the state of a step, or the position of a source, that the job no longer has, use --drop NAME; to "
        "drop everything, --from empty. In Airflow's form, name it under Steps and sources to drop; to drop "
        "everything, choose JOB empty under Job and checkpoint."
    )


class RootUnsafe(CheckpointError, PermissionError):
    """The checkpoint root is a link, or other users may write to it."""

    code = "PEN-CKP-017"
    remedy = "Make the folder a real one that only the job's user can write (chmod 700)."


class PathEscapes(CheckpointError, ValueError):
    """A path leads out of the checkpoint root."""

    code = "PEN-CKP-018"
    remedy = "Use plain names; a path must stay below the checkpoint root."


class AccountingBroken(CheckpointError):
    """A sum of the row accounting does not hold: rows were lost or counted twice (SEMANTICS 2.10)."""

    code = "PEN-CKP-019"
    remedy = "Nothing was committed. Report this with the numbers in the message."


class AlreadyExists(CheckpointError, FileExistsError):
    """The store has a file of that name already."""

    code = "PEN-CKP-020"
    remedy = "Read the file to learn whose it is; nothing was overwritten."


class NotFound(CheckpointError, FileNotFoundError):
    """The store has no file of that name."""

    code = "PEN-CKP-021"
    remedy = "Put the file back from a backup if it was removed by hand."


class EntryRefused(CheckpointError, ValueError):
    """An entry breaks a rule of the log and was not written."""

    code = "PEN-CKP-022"
    remedy = "Report this: the driver asked for something the checkpoint could not read back."
