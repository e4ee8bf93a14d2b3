"""Name what can go wrong with a checkpoint, its log and its store."""

from __future__ import annotations

from penstock.errors.root import EXIT_FENCED, EXIT_RETRY, PenstockError


class CheckpointError(PenstockError):
    code = "PEN-CKP-000"
    remedy = "Run `penstock checkpoints JOB` to see what can be restored."


class CheckpointCorrupt(CheckpointError):
    """A file is damaged: truncated, altered, or not what its name says."""

    code = "PEN-CKP-001"
    remedy = (
        "Nothing was overwritten. Put the file back from a backup, or go back with `--from` to what "
        "`penstock fsck ROOT` names."
    )


class FormatTooNew(CheckpointError):
    code = "PEN-CKP-002"
    remedy = "Use the newer Penstock that wrote it; nothing was written."


class LogGap(CheckpointError):
    """Slots are missing between slots that exist."""

    code = "PEN-CKP-003"
    remedy = (
        "Put the missing entries back from a backup, or go back with `--from` to what `penstock fsck ROOT` names: a "
        "restore makes up for the gap."
    )


class MetadataMissing(CheckpointError):
    """A log exists but metadata.json does not: a new id would break the dedupe of every sink."""

    code = "PEN-CKP-004"
    remedy = "Put metadata.json back; to give the old sinks up on purpose, start an empty checkpoint elsewhere."


class CheckpointPartial(CheckpointError):
    """Parts of a checkpoint are there, and its log is not: to begin anew would publish all rows a second time."""

    code = "PEN-CKP-028"
    remedy = (
        "Put the missing parts back from a backup. To begin anew all the same, put the folder aside, and run "
        "`penstock run JOB --new-lineage`: then all rows come again."
    )


class FormerCheckpoint(CheckpointError):
    """There is no checkpoint where there was one: with a new uuid all rows would come a second time."""

    code = "PEN-CKP-029"
    remedy = (
        "Mount the checkpoint's volume, or put its folder back. To begin anew, so that all rows come again beside "
        "those that tables have: `penstock run JOB --new-lineage`, or `--from empty`."
    )


class StateMissing(CheckpointError):
    """A commit names state files that are not there."""

    code = "PEN-CKP-005"
    remedy = "Put the files back from a backup, or go back with `--from` to what `penstock fsck ROOT` names."


class NotExclusive(CheckpointError):
    """The store let two writers create the same name."""

    code = "PEN-CKP-006"
    remedy = "Use local disk or HDFS; a store without exclusive create cannot fence a second driver."


class NotShared(CheckpointError):
    """An executor does not see what the driver has written, or the driver not what an executor has."""

    code = "PEN-CKP-023"
    remedy = (
        "Mount the folder on every machine of the cluster, under the same path and for the same user, keep checkpoints "
        "on HDFS, or run with a local master."
    )


class StorageFull(CheckpointError, OSError):
    code = "PEN-CKP-007"
    remedy = "Free space or raise the quota, then start again: the batch is done anew from its offsets."
    exit_code = EXIT_RETRY


class StorageDenied(CheckpointError, PermissionError):
    code = "PEN-CKP-008"
    remedy = "Give the job's user write permission on the checkpoint root, and nobody else."


class StorageUnavailable(CheckpointError):
    code = "PEN-CKP-009"
    remedy = "Wait for the store; nothing was lost and a later start goes on."
    exit_code = EXIT_RETRY


class CommitUnknown(CheckpointError):
    """The outcome of a write cannot be told; nothing was cleaned up."""

    code = "PEN-CKP-010"
    remedy = "Start again: the outcome is read back from the store."
    exit_code = EXIT_RETRY


class SlotTaken(CheckpointError, FileExistsError):
    """Internal to the log: another entry stands in the slot."""

    code = "PEN-CKP-011"
    remedy = "Read the slot to learn who holds the log."


class Fenced(CheckpointError):
    """Another driver holds the log."""

    code = "PEN-CKP-012"
    remedy = "Nothing to do: the other driver goes on. To replace it, stop it first or start with --take-over."
    exit_code = EXIT_FENCED


class HolderAlive(Fenced):
    """The log is held by a driver that may be alive, and nobody allowed a takeover."""

    code = "PEN-CKP-013"
    remedy = "Stop the holder, wait until its heartbeat stands still, or start with --take-over."


class CannotRestore(CheckpointError, LookupError):
    code = "PEN-CKP-014"
    remedy = "Choose one of those listed."


class CannotTruncate(CannotRestore):
    """A sink cannot take back what it has published, or must not be made to."""

    code = "PEN-SNK-004"
    remedy = (
        "Restore without --truncate-sinks, where that is possible: the rows stay, and come again under new batch ids."
    )


class CannotSave(CheckpointError, ValueError):
    code = "PEN-CKP-024"
    remedy = "Choose another name (`penstock checkpoints JOB` lists those in use), or save when a batch was committed."


class CannotSkip(CheckpointError, ValueError):
    """There is nothing that a sink could go on without, or the log cannot be added to."""

    code = "PEN-CKP-030"
    remedy = "Look at `penstock sinks JOB list`, which says what each sink lacks."


class CannotCopy(CheckpointError, ValueError):
    """A checkpoint cannot be exported from, or imported to, where that was asked for."""

    code = "PEN-CKP-025"
    remedy = "Name a folder that is not there yet, and an export that is whole."


class CheckpointMoved(CheckpointError):
    """The log has ended, because the job goes on in a checkpoint elsewhere, under the same uuid."""

    code = "PEN-CKP-026"
    remedy = (
        "Run the job there; here nothing goes on again. To have it here once more, put this folder aside and move it "
        "back with `penstock import DIR JOB --move`."
    )


class MoveUnfinished(CheckpointError):
    """A checkpoint was copied here to go on, and the one that it was copied from has not ended."""

    code = "PEN-CKP-027"
    remedy = (
        "Repeat `penstock import DIR JOB --move` where both folders can be seen, which finishes it. Until the other "
        "log has ended the job may go on there."
    )


class PartitionsChanged(CheckpointError, ValueError):
    code = "PEN-CKP-015"
    remedy = "Set the old number again, or have the state written for the new one: `--from batch=N --partitions P`."


class StepsChanged(CheckpointError, ValueError):
    """The job's stateful steps, its sources or its sinks are not those of the checkpoint."""

    code = "PEN-CKP-016"
    remedy = (
        "Bring it back as it was; `penstock diff JOB` compares all of it. The state of a step that the job no longer "
        "has goes with --drop STEP, everything with --from empty."
    )


class RootUnsafe(CheckpointError, PermissionError):
    code = "PEN-CKP-017"
    remedy = "Make the folder a real one that only the job's user can write (chmod 700)."


class PathEscapes(CheckpointError, ValueError):
    code = "PEN-CKP-018"
    remedy = "Use plain names; a path must stay below the checkpoint root."


class AccountingBroken(CheckpointError):
    """A sum of SEMANTICS 2.10 does not hold: rows were lost or counted twice."""

    code = "PEN-CKP-019"
    remedy = "Nothing was committed. Report this with the numbers in the message."


class AlreadyExists(CheckpointError, FileExistsError):
    """The store holds a file of that name already, whoever wrote it."""

    code = "PEN-CKP-020"
    remedy = "Read the file to learn whose it is; nothing was overwritten."


class NotFound(CheckpointError, FileNotFoundError):
    """The store holds no file of that name."""

    code = "PEN-CKP-021"
    remedy = "Put the file back from a backup if it was removed by hand."


class EntryRefused(CheckpointError, ValueError):
    """An entry breaks a rule of the log and was not written."""

    code = "PEN-CKP-022"
    remedy = "Report this: the driver asked for something the checkpoint could not read back."
