"""Name what can go wrong while rows are published."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors.root import EXIT_PERSON, EXIT_RETRY, PenstockError


class SinkError(PenstockError):
    """A sink failed; the batch is committed."""

    code = "PEN-SNK-000"
    remedy = "Check the sink; the batch is committed and will be published at the next start."
    exit_code = EXIT_RETRY


class SinkAhead(SinkError):
    """The sink holds a later version of this checkpoint than the log (F31)."""

    code = "PEN-SNK-001"
    remedy = (
        "The checkpoint is older than the table: restore the newer checkpoint. If a job runs a copy of this one, that "
        "copy is the newer checkpoint: continue with it, and end this job."
    )
    exit_code = EXIT_PERSON


class CheckpointCopied(SinkError):
    """The sink shows this batch with the rows of another driver, which runs a copy of the checkpoint (F31)."""

    code = "PEN-SNK-025"
    remedy = (
        "End the jobs of all copies but one. The one whose batches the sink shows simply continues. This one can only "
        "continue if the sink shows no later batch: `penstock sinks JOB skip SINK` leaves out its rows of this batch, "
        "and counts them."
    )
    exit_code = EXIT_PERSON


class SinkConflict(SinkError):
    """Others write to the sink at the same time."""

    code = "PEN-SNK-002"
    remedy = (
        "If a driver of a copy of this checkpoint writes to the sink, end it. If a transaction of Kafka took too long, "
        "raise transaction.timeout.ms among the sink's options. Then start again."
    )


class SinkBehind(SinkError):
    """The sink no longer shows batches that it was known to show (SEMANTICS 9.5).

    `shown` is the newest that it shows, -1 for none; `missing` are the others.
    """

    shown: int = -1
    missing: Sequence[int] = ()

    code = "PEN-SNK-006"
    remedy = (
        "Look whether the rows are there. If they are, `penstock sinks JOB skip SINK` skips them, with a count: a redo "
        "would write them twice. If not, put the target back from a backup. `penstock sinks JOB redo SINK` publishes "
        "what is missing then, as long as its files exist. Otherwise `penstock restore JOB --from batch=N`, to a batch "
        "before them, has them computed and published again, or `skip` continues without them."
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
        "Make the columns of the stream and those of the target agree, or write to a new target. ALTER TABLE … ADD "
        "COLUMNS gives a table a new column, and RESTORE TABLE a Delta table those that it had. In PostgreSQL, ALTER "
        "TABLE … ALTER COLUMN … TYPE gives a column another type. Skip the rows that were committed for the old target "
        "with `penstock sinks JOB skip SINK`, which counts them."
    )
    exit_code = EXIT_PERSON


class SinkUnavailable(SinkError):
    """The server of a sink does not answer; whether it has the batch is asked at the next start (F57, F58)."""

    code = "PEN-SNK-009"
    remedy = (
        "Wait for the server, or correct its address where that is wrong. A later start publishes a batch that is "
        "committed, unless the sink shows it."
    )


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


class DatabaseNotFound(SinkError, LookupError):
    """The server of a sink has no database or schema of this name."""

    code = "PEN-SNK-016"
    remedy = "Create it, or correct its name in the dsn or in the name of the table."
    exit_code = EXIT_PERSON


class DatabaseDenied(SinkError, PermissionError):
    """The server of a sink rejects the user, the password, or what the user does."""

    code = "PEN-SNK-017"
    remedy = "Correct user and password in the dsn, or grant the user what the message names, then start again."
    exit_code = EXIT_PERSON


class KeysNotUnique(SinkError, ValueError):
    """A table that rows are to replace others in has no unique index of the keys."""

    code = "PEN-SNK-018"
    remedy = "Create a unique index of just the keys, not partial and not deferrable, or correct keys=[...]."
    exit_code = EXIT_PERSON


class BatchFunctionError(SinkRefused):
    """The function of `foreach_batch` raised; each start calls it again with the same batch."""

    code = "PEN-SNK-019"
    remedy = "Correct the function and start again, or skip the batch: `penstock sinks JOB skip SINK`."


class OutputDenied(SinkError, PermissionError):
    """The user may not write into the folder of a sink, or may not read what is there."""

    code = "PEN-SNK-020"
    remedy = "Give the job's user the right to read and write the folder, or name another one, then start again."
    exit_code = EXIT_PERSON


class ManifestDamaged(SinkError, ValueError):
    """A file of the manifest of a sink's folder is gone, or not what was written."""

    code = "PEN-SNK-021"
    remedy = (
        "Restore the file from a backup. Without one, remove it: the next batch writes that of a batch again, from the "
        "data files in the folder."
    )
    exit_code = EXIT_PERSON


class KeysRepeated(SinkError, ValueError):
    """A table that rows are to replace others in has several rows of a key."""

    code = "PEN-SNK-023"
    remedy = "Delete all but one row of each key from the table, write to a new one, or correct keys=[...]."
    exit_code = EXIT_PERSON


class UpsertImpossible(SinkError, ValueError):
    """A Delta table asks for more of who replaces its files than new files."""

    code = "PEN-SNK-024"
    remedy = "Write to a table without that property or feature, remove it from the table, or use Mode.APPEND."
    exit_code = EXIT_PERSON
