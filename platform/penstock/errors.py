"""Name everything that can go wrong: one root, and for each leaf a stable code and a remedy.

A message says what happened, where, and what to do.
The fields of an error are attributes too, so that callers never parse text.
`exit_code` is what the command ends with: 75 when a retry may help, 77 when fenced, 78 when a person is needed.
Anything else that ends a command is an error in Penstock itself, and ends it with 70, as sysexits calls it.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_SOFTWARE = 70
EXIT_RETRY = 75
EXIT_FENCED = 77
EXIT_PERSON = 78


class PenstockError(Exception):
    """Root of all errors that Penstock raises on purpose.

    `what` happened is one clause, `where` a path, a name or `file:line`; `fields` become attributes.
    """

    code: ClassVar[str] = "PEN-000"
    remedy: ClassVar[str] = "Read the message; it names what was wrong."
    exit_code: ClassVar[int] = EXIT_PERSON

    def __init__(self, what: str, *, where: str | None = None, **fields: object) -> None:
        self.what = what
        self.where = where
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(what)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.code} {self.what}{place}. {self.remedy}"


# --- jobs and their graphs -------------------------------------------------------------------
class JobError(PenstockError, ValueError):
    """The job as written cannot be built."""

    code = "PEN-JOB-001"
    remedy = "Correct the job at the line named."


class BadName(JobError):
    code = "PEN-JOB-002"
    remedy = "Use a lower-case letter, then up to 62 letters, digits or underscores."


class DuplicateName(JobError):
    code = "PEN-JOB-003"
    remedy = "Give each step, source, sink and side stream a name of its own: state and offsets live under it."


class MissingLatePolicy(JobError):
    code = "PEN-JOB-004"
    remedy = "Choose with .drop_late() or .late_to(name): lateness is never a silent default."


class BadExpression(JobError):
    """Spark could not analyse a column, a type or a piece of SQL."""

    code = "PEN-JOB-005"
    remedy = "Correct the expression at the line named."


class UnknownName(JobError, LookupError):
    code = "PEN-JOB-006"
    remedy = "Use one of the names that exist; the message lists them."


class MissingSink(JobError):
    code = "PEN-JOB-008"
    remedy = "Write the stream to a sink: rows may not vanish."


class JobNotFound(JobError, LookupError):
    code = "PEN-JOB-009"
    remedy = "Look at the modules in jobs/; run the command from the project, or pass --project."


# --- configuration ---------------------------------------------------------------------------
class ConfigError(PenstockError, ValueError):
    code = "PEN-CNF-001"
    remedy = "Correct the file at the line named."


class EnvironmentUnfit(PenstockError, RuntimeError):
    """Java, jars or packages are missing or too old."""

    code = "PEN-ENV-001"
    remedy = "Run `make setup`; it says what is missing."


# --- checkpoint ------------------------------------------------------------------------------
class CheckpointError(PenstockError):
    code = "PEN-CKP-000"
    remedy = "Run `penstock checkpoints JOB` to see what can be restored."


class CheckpointCorrupt(CheckpointError):
    """A file is damaged: truncated, altered, or not what its name says."""

    code = "PEN-CKP-001"
    remedy = "Nothing was overwritten. Put the file back from a backup, or restart from an earlier kept batch."


class FormatTooNew(CheckpointError):
    code = "PEN-CKP-002"
    remedy = "Use the newer Penstock that wrote it; nothing was written."


class LogGap(CheckpointError):
    """Slots are missing between slots that exist."""

    code = "PEN-CKP-003"
    remedy = "Put the missing entries back from a backup, or import the checkpoint at an earlier batch."


class MetadataMissing(CheckpointError):
    """A log exists but metadata.json does not: a new id would break the dedupe of every sink."""

    code = "PEN-CKP-004"
    remedy = "Put metadata.json back; to give the old sinks up on purpose, start an empty checkpoint elsewhere."


class StateMissing(CheckpointError):
    """A commit names state files that are not there."""

    code = "PEN-CKP-005"
    remedy = "Put the state folder back from a backup, or restart from an earlier kept batch."


class NotExclusive(CheckpointError):
    """The store let two writers create the same name."""

    code = "PEN-CKP-006"
    remedy = "Use local disk or HDFS; a store without exclusive create cannot fence a second driver."


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
    remedy = "Choose one of the batches listed."


class PartitionsChanged(CheckpointError, ValueError):
    code = "PEN-CKP-015"
    remedy = "Set the old number again: partitions change only with a restore."


class StepsChanged(CheckpointError, ValueError):
    """The job's stateful steps are not those of the checkpoint."""

    code = "PEN-CKP-016"
    remedy = "Bring the step back as it was, or begin again with --from empty."


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


# --- state -----------------------------------------------------------------------------------
class StateError(PenstockError):
    code = "PEN-STA-000"
    remedy = "Restart from the last commit."


class WrongPartition(StateError):
    code = "PEN-STA-001"
    remedy = "Report this: rows reached a state partition that is not theirs."


class StateTooLarge(StateError):
    code = "PEN-STA-002"
    remedy = "Bound the state by time, or raise `state` in [limits] of the configuration."


class NondeterministicStep(StateError):
    """Two runs of one task answered differently."""

    code = "PEN-STA-003"
    remedy = "Make the step depend on its rows only; use the batch's time instead of now()."


class IntegerOverflow(StateError, OverflowError):
    code = "PEN-STA-004"
    remedy = "Aggregate a wider type: CAST the column to decimal or double."


class SegmentExists(StateError, FileExistsError):
    """A state file of that name is there already."""

    code = "PEN-STA-005"
    remedy = "Report this: every attempt of a task writes under a name of its own. Nothing was overwritten."


# --- sources ---------------------------------------------------------------------------------
class SourceError(PenstockError):
    code = "PEN-SRC-000"
    remedy = "Check the source."


class SourceNotFound(SourceError, FileNotFoundError):
    code = "PEN-SRC-001"
    remedy = "Correct the path."


class SourceChanged(SourceError):
    """A range no longer gives the rows it gave."""

    code = "PEN-SRC-002"
    remedy = "Put the file back as it was; a range that was fixed must replay."


class BadRecordFound(SourceError, ValueError):
    code = "PEN-SRC-004"
    remedy = "Correct the record, or set on_bad_record=BadRecord.QUARANTINE."


# --- operators -------------------------------------------------------------------------------
class UserFunctionError(PenstockError):
    """A function or an expression of the user's raised."""

    code = "PEN-OPR-001"
    remedy = "Correct it, or filter what it cannot take; nothing was committed, and the batch is done again."


class ComputeFailed(PenstockError, RuntimeError):
    """The Spark job of a batch failed for a reason that is not the user's."""

    code = "PEN-OPR-002"
    remedy = "Nothing was committed. Read the cause; a retry runs the same batch again."
    exit_code = EXIT_RETRY


class EngineGone(PenstockError, RuntimeError):
    """The Java side of Spark died."""

    code = "PEN-OPR-003"
    remedy = "Start again; give the driver more memory if it ran out."
    exit_code = EXIT_RETRY


# --- sinks -----------------------------------------------------------------------------------
class SinkError(PenstockError):
    code = "PEN-SNK-000"
    remedy = "Check the sink; the batch is committed and will be published at the next start."
    exit_code = EXIT_RETRY


class SinkAhead(SinkError):
    """The sink holds a later version of this checkpoint than the log (F31)."""

    code = "PEN-SNK-001"
    remedy = "The checkpoint is older than the table: restore the newer checkpoint."
    exit_code = EXIT_PERSON


class SinkConflict(SinkError):
    code = "PEN-SNK-002"
    remedy = "Another writer keeps committing to the table; start again."


class SinkSchemaMismatch(SinkError, ValueError):
    code = "PEN-SNK-003"
    remedy = "Write to a table with the stream's columns, or to a new one."
    exit_code = EXIT_PERSON


# --- quality ---------------------------------------------------------------------------------
class SuiteError(PenstockError, ValueError):
    """A suite cannot be compiled into the stream."""

    code = "PEN-QLT-001"
    remedy = "Remove the expectation named, or check it in a report instead."


class SuiteMalformed(SuiteError):
    """A suite is not what a suite looks like: not JSON, a key unknown or twice, a value of the wrong type."""

    code = "PEN-QLT-004"
    remedy = "Correct the suite at the place named; docs/quality.md shows one."


class SuiteNotFound(SuiteError, FileNotFoundError):
    code = "PEN-QLT-005"
    remedy = "Put the suite at that path, or correct the name in the job."


class GateError(PenstockError, RuntimeError):
    """The gate itself failed; the batch stays closed (SEMANTICS 11.8)."""

    code = "PEN-QLT-002"
    remedy = "Nothing was committed or published. Correct the cause and start again."


class GateStopped(PenstockError):
    """A gate with OnFail.STOP did not pass."""

    code = "PEN-QLT-003"
    remedy = "Change the suite and start again, or run with --gate N=publish, N=drop or N=hold."


class HeldDecided(PenstockError, ValueError):
    """A held batch was released or discarded before, or a restore has undone it."""

    code = "PEN-QLT-006"
    remedy = "Look at `penstock held JOB list`: a batch is decided once."


class HeldNotFound(PenstockError, LookupError):
    code = "PEN-QLT-007"
    remedy = "Choose one of the batches that `penstock held JOB list` shows."
