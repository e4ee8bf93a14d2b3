"""Name what can go wrong while a batch is computed and published: state, sources, operators, sinks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors.root import EXIT_PERSON, EXIT_RETRY, PenstockError


class StateError(PenstockError):
    """Root of all errors of keyed state."""

    code = "PEN-STA-000"
    remedy = "Restart from the last commit."


class WrongPartition(StateError):
    """Rows have reached a state partition that their key does not belong to."""

    code = "PEN-STA-001"
    remedy = "Report this: rows reached a state partition that is not theirs."


class StateTooLarge(StateError):
    """The state of a step exceeds its limit."""

    code = "PEN-STA-002"
    remedy = "Bound the state by time, or raise `state` in [limits] of the configuration."


class StateRowTooLarge(StateTooLarge):
    """The state of one key exceeds its limit."""

    code = "PEN-STA-008"
    remedy = "Keep less for one key, or raise `state_row` in [limits] of the configuration."


class NondeterministicStep(StateError):
    """Two attempts of one task gave different results."""

    code = "PEN-STA-003"
    remedy = "Make the step depend on its rows only; use the batch's time instead of now()."


class IntegerOverflow(StateError, OverflowError):
    """A sum does not fit the type of its result."""

    code = "PEN-STA-004"
    remedy = (
        "Aggregate a wider type: CAST the column to decimal or double. The step keeps its sums; give the aggregate "
        "another name, or the sink another table, where the table has a column of the narrow type."
    )


class SegmentExists(StateError, FileExistsError):
    """A state file of that name exists already."""

    code = "PEN-STA-005"
    remedy = "Report this: every attempt of a task writes under a name of its own. Nothing was overwritten."


class NoState(StateError, LookupError):
    """The function called get() for a key without state."""

    code = "PEN-STA-006"
    remedy = "Ask state.exists() first, or use state.get_or(default)."


class StateMisused(StateError, ValueError):
    """The function made an illegal call on its State."""

    code = "PEN-STA-007"
    remedy = "Correct the function: docs/operators/state.md says which calls are legal when."


class SourceError(PenstockError):
    """Root of all errors of a source."""

    code = "PEN-SRC-000"
    remedy = "Check the source."


class SourceNotFound(SourceError, FileNotFoundError):
    """The file of a source does not exist."""

    code = "PEN-SRC-001"
    remedy = "Correct the path."


class SourceChanged(SourceError):
    """A range of the source no longer gives the rows that it gave."""

    code = "PEN-SRC-002"
    remedy = "Put the file back as it was; a range that was fixed must replay."


class ReadOtherwise(SourceChanged):
    """A file is read in another order, or with other columns, than up to the job's position."""

    code = "PEN-SRC-005"
    remedy = "Set order_by, schema and nulls as they were, or read the file from its beginning with --from empty."


class ReadByOtherRules(SourceChanged):
    """A position in a file was counted by other rules of which records are bad."""

    code = "PEN-SRC-008"
    remedy = (
        "Read the file from its beginning with --from empty, or use the release that wrote the checkpoint, which "
        "reads by its rules."
    )


class BadRecordFound(SourceError, ValueError):
    """A record does not fit the schema of the source."""

    code = "PEN-SRC-004"
    remedy = "Correct the record, or set on_bad_record=BadRecord.QUARANTINE."


class FileUnreadable(BadRecordFound):
    """A file cannot be split into records."""

    code = "PEN-SRC-006"
    remedy = "Correct the file: Parquet, or CSV in UTF-8 in which each quote is closed and no record exceeds 16 MiB."


class SortedCopyDamaged(SourceError):
    """A byte of the sorted copy of a replayed file has changed."""

    code = "PEN-SRC-007"
    remedy = "Start again: the driver makes a new copy from the file."
    exit_code = EXIT_RETRY


class SourceUnavailable(SourceError):
    """The server of a source does not answer."""

    code = "PEN-SRC-009"
    remedy = "Wait for the server; nothing was lost and a later start resumes."
    exit_code = EXIT_RETRY


class SourceGap(SourceChanged):
    """Records that the job has not read are gone from the source."""

    code = "PEN-SRC-010"
    remedy = "Skip them with on_gap=OnGap.SKIP. They are lost, and the log of the job says which they are."


class FixedRangeGone(SourceGap):
    """Records of a batch that is fixed and not committed are gone from the source."""

    code = "PEN-SRC-014"
    remedy = "Set on_gap=OnGap.SKIP, and restore the newest checkpoint: the batch is planned again, without them."


class TopicReplaced(SourceChanged):
    """A topic has the name of one that the job has read, and is another."""

    code = "PEN-SRC-011"
    remedy = "Read the new topic from its beginning with --from empty, or give the job the old one back."


class TopicNotFound(SourceError, LookupError):
    """No topic has this name, or the user may not describe it."""

    code = "PEN-SRC-012"
    remedy = "Correct the name, create the topic, or permit the user to describe it."


class SourceRefused(SourceError, PermissionError):
    """The server of a source refuses the user or its settings."""

    code = "PEN-SRC-013"
    remedy = "Correct the credentials, the permissions or the options of the source."


class CertificateRefused(SourceRefused):
    """The server of a source and the source do not accept each other's certificates."""

    code = "PEN-SRC-016"
    remedy = (
        "Give the certificate of the authority that signed the server's: for Kafka as ssl.ca.location in options=, for "
        "a schema registry in the environment variable REQUESTS_CA_BUNDLE. A broker that asks for a certificate also "
        "needs ssl.certificate.location and ssl.key.location."
    )


class SchemaNotFound(SourceError, LookupError):
    """A schema registry has no schema to read a topic by."""

    code = "PEN-SRC-017"
    remedy = "Register a schema for the subject, or give the format the schema= or the subject= to read by."


class FolderUnreadable(SourceError, PermissionError):
    """A folder or a file of a source may not be read, or not be changed as the job wants it."""

    code = "PEN-SRC-020"
    remedy = "Give the user of the job read permission, and with afterwards= write permission on the folder as well."


class FileChanged(SourceChanged):
    """A file of a batch that is fixed and not committed was written again."""

    code = "PEN-SRC-021"
    remedy = (
        "Put the file back with its time and length, or restore the newest checkpoint: the batch is planned again, "
        "with the files that are there."
    )


class FileVanished(SourceChanged, FileNotFoundError):
    """A file of a batch that is fixed and not committed is gone."""

    code = "PEN-SRC-022"
    remedy = (
        "Put the file back with its time and length, or restore the newest checkpoint: the batch is planned again, "
        "without the file."
    )


class ColumnsChanged(SourceError, ValueError):
    """A file has a column that the source does not know, or lacks one."""

    code = "PEN-SRC-023"
    remedy = (
        "Correct the columns of the source, or say what such a file means: on_new_column=OnNewColumn.IGNORE, "
        "on_missing_column=OnMissingColumn.NULLS."
    )


class InputUnreadable(FileUnreadable):
    """A file of a folder that is read cannot be split into records, or has another type in a column."""

    code = "PEN-SRC-024"
    remedy = (
        "Set on_unreadable=OnUnreadable.QUARANTINE, which makes one bad record of it, or remove the file and restore "
        "the newest checkpoint."
    )


class ColumnsForgotten(SourceChanged):
    """The first file of a folder has other columns than the one that the job took its columns from."""

    code = "PEN-SRC-025"
    remedy = "Give the format the columns that the message names, as DDL."


class UserFunctionError(PenstockError):
    """A function or an expression of the job raised."""

    code = "PEN-OPR-001"
    remedy = "Correct it, or filter the rows that it cannot take. Nothing was committed, and the batch is re-run."


class DecoderFailed(UserFunctionError, SourceError):
    """The function that makes rows of records raised, or returned something else than its output."""

    code = "PEN-SRC-015"
    remedy = "Correct the function. It marks a record that it cannot take by a text in the column _error."


class WrongOutput(UserFunctionError, TypeError):
    """A state function returned rows that do not fit the declared columns."""

    code = "PEN-OPR-004"
    remedy = (
        "Return what the DDL of the step declares, or correct the DDL. With on_error=OnError.QUARANTINE the step "
        "quarantines such rows."
    )


class EventTimeMissing(WrongOutput):
    """A vectorised function emitted a row without event time to an event-time step."""

    code = "PEN-OPR-021"
    remedy = (
        "Have the function give each row its event time, or filter such rows after the step. If event_time= is a "
        "column of the output, on_error=OnError.QUARANTINE quarantines the input of the call."
    )


class UnfitValue(UserFunctionError, ValueError):
    """A row for a state function has a value without a Python object, such as a timestamp beyond the year 9999."""

    code = "PEN-OPR-020"
    remedy = (
        "Filter such rows or CAST the column before the step, or give the step on_error=OnError.QUARANTINE and its "
        "quarantine a sink. Nothing was committed, and the batch is re-run."
    )


class ComputeFailed(PenstockError, RuntimeError):
    """The Spark job of a batch failed, and not because of the job's code."""

    code = "PEN-OPR-002"
    remedy = "Nothing was committed. Read the cause; a retry re-runs the same batch."
    exit_code = EXIT_RETRY


class EngineGone(PenstockError, RuntimeError):
    """Spark's JVM died."""

    code = "PEN-OPR-003"
    remedy = "Start again; give the driver more memory if it ran out."
    exit_code = EXIT_RETRY


class SinkError(PenstockError):
    """A sink failed; the batch is committed."""

    code = "PEN-SNK-000"
    remedy = "Check the sink; the batch is committed and will be published at the next start."
    exit_code = EXIT_RETRY


class SinkAhead(SinkError):
    """The sink holds a later version of this checkpoint than the log (F31)."""

    code = "PEN-SNK-001"
    remedy = "The checkpoint is older than the table: restore the newer checkpoint."
    exit_code = EXIT_PERSON


class SinkConflict(SinkError):
    """Other writers commit to the table all the time."""

    code = "PEN-SNK-002"
    remedy = "Another writer keeps committing to the table; start again."


class SinkBehind(SinkError):
    """The sink no longer shows batches that it was known to show (SEMANTICS 9.5).

    `shown` is the newest that it shows, -1 for none; `missing` are the others.
    """

    shown: int = -1
    missing: Sequence[int] = ()

    code = "PEN-SNK-006"
    remedy = (
        "`penstock sinks JOB redo SINK` publishes them again if their files exist. Otherwise `penstock restore JOB "
        "--from batch=N`, to a batch before them, has them computed and published again, and `penstock sinks JOB "
        "skip SINK` skips them, with a count."
    )
    exit_code = EXIT_PERSON


class SinkRefused(SinkError):
    """A sink rejected a committed batch; each start publishes it again (SEMANTICS 9.6)."""

    code = "PEN-SNK-007"
    remedy = (
        "Correct the sink and start again, or skip that batch: `penstock sinks JOB skip SINK`, which the log counts."
    )
    exit_code = EXIT_PERSON


class SinkValueRefused(SinkError, ValueError):
    """A row breaks a rule of the sink's table; nothing was committed (SEMANTICS 9.6)."""

    code = "PEN-SNK-008"
    remedy = "Filter such rows, or check them in a gate, or remove the rule from the table; the batch is re-run."
    exit_code = EXIT_PERSON


class SinkForgets(SinkError):
    """The table is configured to forget which batches it has received (F59)."""

    code = "PEN-SNK-005"
    remedy = "Unset delta.setTransactionRetentionDuration: the table's memory keeps batches from being published twice."
    exit_code = EXIT_PERSON


class SinkSchemaMismatch(SinkError, ValueError):
    """The table does not accept the stream's columns (F70)."""

    code = "PEN-SNK-003"
    remedy = (
        "Give the table the stream's columns again (RESTORE TABLE restores what it had), or write to a new one. "
        "Skip the rows that were committed for the old one with `penstock sinks JOB skip SINK`, which counts them."
    )
    exit_code = EXIT_PERSON


class SinkUnavailable(SinkError):
    """The server of a sink does not answer; whether it has the batch is asked at the next start (F57, F58)."""

    code = "PEN-SNK-009"
    remedy = "Wait for the server; the batch is committed, and a later start publishes it unless the sink shows it."


class SinkBusy(SinkError):
    """A sink cannot take a committed batch yet (F56).

    `retry_after` is how many seconds to wait. The driver publishes the same batch again, with the same publisher.
    """

    retry_after: float = 1.0

    code = "PEN-SNK-010"
    remedy = "Give the sink room; the batch is committed and will be published at the next start."


class SinkNotFound(SinkError, LookupError):
    """The target of a sink does not exist, or the user may not describe it."""

    code = "PEN-SNK-011"
    remedy = "Create the topic, have the sink create it with new_topic=NewTopic(...), or correct its name."
    exit_code = EXIT_PERSON


class SinkDenied(SinkError, PermissionError):
    """The server of a sink rejects the user or its settings."""

    code = "PEN-SNK-012"
    remedy = "Correct the credentials, the permissions or the options of the sink, then start again."
    exit_code = EXIT_PERSON


class RecordTooLarge(SinkValueRefused):
    """A row is larger as a record than the topic allows; nothing was committed (F41)."""

    code = "PEN-SNK-013"
    remedy = "Raise max.message.bytes of the topic, or filter or shorten such rows; the batch is re-run."
