"""Name what can go wrong while rows are read."""

from __future__ import annotations

from penstock.errors.root import EXIT_RETRY, PenstockError
from penstock.errors.work import UserFunctionError


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
    """A source is of another kind, or is read in another order or with other columns, than up to the job's position."""

    code = "PEN-SRC-005"
    remedy = (
        "Set the kind of the source, order_by, schema, nulls and changes as they were, or read from the beginning with "
        "--from empty."
    )


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
    remedy = "Correct the record, or set on_bad_record=BadRecord.QUARANTINE, in a file on_bad_record = 'quarantine'."


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
    remedy = (
        "Wait for the server, or correct its address where that is wrong. Nothing was lost, and a later start resumes."
    )
    exit_code = EXIT_RETRY


class SourceGap(SourceChanged):
    """Records that the job has not read are gone from the source."""

    code = "PEN-SRC-010"
    remedy = (
        "Skip them with on_gap=OnGap.SKIP, in a file on_gap = 'skip'. They are lost, and the log of the job says which "
        "they are."
    )


class FixedRangeGone(SourceGap):
    """Records of a batch that is fixed and not committed are gone from the source."""

    code = "PEN-SRC-014"
    remedy = (
        "Set on_gap=OnGap.SKIP, in a file on_gap = 'skip', and restore the newest checkpoint, or `--from empty` if "
        "there is none: the batch is planned again, without them."
    )


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
        "Put the file back with its time and length. Or restore the newest checkpoint, or `--from empty` if there is "
        "none: the batch is planned again, with the files that are there."
    )


class FileVanished(SourceChanged, FileNotFoundError):
    """A file of a batch that is fixed and not committed is gone."""

    code = "PEN-SRC-022"
    remedy = (
        "Put the file back with its time and length. Or restore the newest checkpoint, or `--from empty` if there is "
        "none: the batch is planned again, without the file."
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
        "Set on_unreadable=OnUnreadable.QUARANTINE, in a file on_unreadable = 'quarantine', which makes one bad record "
        "of it. Or remove the file, and restore the newest checkpoint, or `--from empty` if there is none."
    )


class ColumnsForgotten(SourceChanged):
    """A folder or a table has other columns than those that the job took from it at its first start."""

    code = "PEN-SRC-025"
    remedy = "Name the columns: those of files as DDL of their format, those of a table with columns=."


class RateChanged(SourceChanged):
    """A Rate makes other rows than up to the job's position."""

    code = "PEN-SRC-026"
    remedy = "Set rows_per_second, ramp and partitions as they were, or read from the beginning with --from empty."


class TableReplaced(SourceChanged):
    """A Delta table is at the path of one that the job has read, and is another."""

    code = "PEN-SRC-027"
    remedy = "Read the new table from its beginning with --from empty, or give the job the old one back."


class RowsRewritten(SourceChanged):
    """A version of a Delta table deletes or updates rows, and the job reads new rows only."""

    code = "PEN-SRC-028"
    remedy = (
        "Pass over such versions with on_rewrite=OnRewrite.SKIP, or read the change data feed with changes=True and "
        "--from empty."
    )


class TableUnreadable(SourceError, ValueError):
    """A Delta table is written in a way that the source does not read."""

    code = "PEN-SRC-029"
    remedy = (
        "Put a damaged file back, or change the setting that the message names. Deletion vectors go by REORG TABLE … "
        "APPLY (PURGE), a change data feed comes by delta.enableChangeDataFeed, from the next version on."
    )


class DecoderFailed(UserFunctionError, SourceError):
    """The function that makes rows of records raised, or returned something else than its output."""

    code = "PEN-SRC-015"
    remedy = "Correct the function. It marks a record that it cannot take by a text in the column _error."
