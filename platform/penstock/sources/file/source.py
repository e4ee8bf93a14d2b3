"""Follow the files that appear in a folder, on local disk and HDFS, each of which is read once (SEMANTICS 9.1).

The folder is one partition, and a place is a number of files: the nth file that was read has place n - 1 for ever. The
position knows which files those are, without a list of them all (`positions`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError, SourceNotFound
from penstock.graph.argument_types import refuse_empty, refuse_other_types
from penstock.graph.durations import Duration, hours, seconds
from penstock.graph.policies import Afterwards, BadRecord, OnMissingColumn, OnNewColumn, OnUnreadable
from penstock.sources.base import Source
from penstock.sources.file.formats import FileFormat, HeadedCsv, Lines
from penstock.sources.file.listings import Listing
from penstock.sources.file.parts import ColumnRules, Unreadable
from penstock.sources.file.patterns import Pattern, is_hidden
from penstock.sources.file.reader import AtMost, FilesReader, files
from penstock.sources.file.systems import FileSystem, LocalFiles, file_system
from penstock.sources.file.tasks import METADATA, FilesTaskReader
from penstock.sources.formats import Csv, Format, Raw, Text
from penstock.sources.formats.base import NamingFormat

__all__ = ["Files"]


@dataclass(frozen=True)
class Files(Source):
    """Describe a folder whose files are read once each, in the order of their times, and of their names.

    Files and folders whose names begin with "_" or "." are passed over, as are names such as `x.tmp` and
    `x._COPYING_`. A name that begins with "_" and has a "=" is a partition, and read.

    Args:
        path: A folder, or the URL of one on HDFS as `webhdfs://host:9870/landing`.
        format: What makes rows of a file: `Parquet()`, `Csv(DDL, header=True)`, or the format of a record, such as
            `Json(DDL)`, `Csv(DDL)` and `Text()`, of which each line is one.
        pattern: Which files below the folder are meant, as `*.json` for those right in it, or `day=*/**/*.parquet`. By
            itself all are.
        at_most: How much a batch reads: `files(100)`, or `bytes_(2**30)`, but one file at least.
        afterwards: What becomes of a file when the sinks have its rows.
        move_to: The folder for `Afterwards.MOVE`, where files keep their paths; one that the source does not read.
        settle: For how long a file must have had its content and its name before it is read. It is never read while it
            is empty.
        grace: How much older than the newest file read a file may be that appears now. What is older is not read: it
            is named in a warning, and counted.
        on_bad_record: Whether a record that cannot be decoded goes to quarantine or fails the batch.
        on_unreadable: Whether a file that cannot be split into records fails the batch, or is one bad record.
        on_new_column: What a file means that has a column which the format does not name, by itself a failure. Of JSON
            lines it is a line that is meant, and by itself what the format does not name is ignored.
        on_missing_column: What a file means that lacks a column of the format, by itself a failure. Of JSON lines it is
            a line, and by itself a member that is not there is null.
        with_columns: Columns of the file, which follow those of the format: `_path`, `_modified` (a timestamp), `_size`
            (bytes), `_row` (the number of the row in its file, from 1).
        splits: How many tasks read a batch. They divide its files by size, and Parquet files by their row groups.

    Raises:
        ConfigError: A setting is wrong by itself.
    """

    path: str | Path
    _: KW_ONLY
    format: FileFormat | Format
    pattern: str = "**/*"
    at_most: AtMost = files(100)  # noqa: RUF009 - a frozen value
    afterwards: Afterwards = Afterwards.LEAVE
    move_to: str | Path | None = None
    settle: Duration = seconds(5)  # noqa: RUF009 - as above
    grace: Duration = hours(1)  # noqa: RUF009 - as above
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    on_new_column: OnNewColumn | None = None
    on_missing_column: OnMissingColumn | None = None
    with_columns: Sequence[str] = ()
    splits: int = 1

    def __post_init__(self) -> None:
        refuse_other_types(self)
        refuse_empty(self, "path")
        Pattern(self.pattern)
        for column in self.with_columns:
            if column not in METADATA:
                raise ConfigError(f"with_columns has {column!r}; a file has {', '.join(METADATA)}")
        if self.splits < 1:
            raise ConfigError(f"splits is {self.splits}, and a batch needs a task")
        form = self.file_format
        if isinstance(form, Lines) and not isinstance(form.record, NamingFormat):
            for name in ("on_new_column", "on_missing_column"):
                if getattr(self, name) is not None:
                    kind = type(form.record).__name__
                    raise ConfigError(
                        f"{name} is for Parquet, CSV with a header and JSON; lines of {kind} name no columns"
                    )
        if (self.move_to is not None) is not (self.afterwards is Afterwards.MOVE):
            raise ConfigError("move_to= belongs to afterwards=Afterwards.MOVE, which needs it")
        if self.move_to is not None:
            self._refuse_target(str(self.move_to), str(self.path))

    def _refuse_target(self, target: str, folder: str) -> None:
        there, here = file_system(target), file_system(folder)
        if type(there) is not type(here):
            raise ConfigError(f"move_to={target!r} is on another file system than {folder!r}")
        if isinstance(there, LocalFiles):
            target, folder = os.path.abspath(target), os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
        below = target.rstrip("/").removeprefix(folder.rstrip("/") + "/")
        if target.rstrip("/") == folder.rstrip("/") or (
            below != target.rstrip("/") and not any(map(is_hidden, below.split("/")))
        ):
            raise ConfigError(f"move_to={target!r} is in the folder that is read; a name as _done is passed over there")

    def open(self, spark: Any) -> FilesReader:
        """Return the reader; raises SourceNotFound, FolderUnreadable and SourceUnavailable."""
        there = file_system(self.path)
        if there.folder("") is None:
            raise SourceNotFound("there is no folder to read", where=there.root)
        there.check(changes=self.afterwards is not Afterwards.LEAVE)
        form = self.file_format
        listing = Listing(there, Pattern(self.pattern), settle=self.settle.micros * 1_000)
        columns = form.columns()
        derived = columns is None
        if columns is None:
            # A file need not settle for this: one that is half written tells no columns.
            columns = _columns_of_first(form, there, Listing(there, Pattern(self.pattern), settle=0))
        taken = sorted(set(columns.names) & set(self.with_columns))
        if taken:
            raise ConfigError(f"the format has a column {taken[0]!r} as well as with_columns")
        done = None
        if self.move_to is not None:
            done = file_system(self.move_to)
            _refuse_other_disk(there, done)
        return FilesReader(
            listing,
            FilesTaskReader(
                there,
                form,
                columns,
                tuple(self.with_columns),
                self._rules(form),
                self.on_bad_record,
                self.on_unreadable,
            ),
            at_most=self.at_most,
            grace=self.grace.micros * 1_000,
            afterwards=self.afterwards,
            done=done,
            splits=self.splits,
            derived=derived,
        )

    def _rules(self, form: FileFormat) -> ColumnRules:
        """Return the policies; lines are records, which elsewhere may have more members or fewer."""
        is_lines = isinstance(form, Lines)
        new = OnNewColumn.IGNORE if is_lines else OnNewColumn.FAIL
        missing = OnMissingColumn.NULLS if is_lines else OnMissingColumn.FAIL
        return ColumnRules(self.on_new_column or new, self.on_missing_column or missing)

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"Files {str(self.path).rstrip('/')}/{self.pattern}"

    @property
    def file_format(self) -> FileFormat:
        """Return what makes rows of a whole file."""
        if isinstance(self.format, FileFormat):
            return self.format
        if isinstance(self.format, Csv) and self.format.header:
            return HeadedCsv(self.format)
        return Lines(self.format, skips_empty=not isinstance(self.format, Text | Raw))


def _columns_of_first(form: FileFormat, there: FileSystem, listing: Listing) -> pa.Schema:
    """Return the columns of the first file in order that has some."""
    for entry in sorted(listing.look(), key=lambda entry: entry.key):
        try:
            with there.open(entry.path) as file:
                return form.columns_of(file)
        except Unreadable:
            continue
    problem = f"no file tells the columns; name them, as {type(form).__name__}('id long, at timestamp')"
    raise ConfigError(problem, where=there.root)


def _refuse_other_disk(there: FileSystem, done: FileSystem) -> None:
    if isinstance(there, LocalFiles):
        place = Path(done.root).absolute()
        while not place.exists():
            place = place.parent
        if place.stat().st_dev != Path(there.root).stat().st_dev:
            raise ConfigError("move_to is on another disk, to which no file can be renamed", where=done.root)
