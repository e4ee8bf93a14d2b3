"""Sinks of files whose tasks leave no row to the driver, and files as such tasks stage them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.sinks import JsonLines, Parquet
from penstock.sinks.base import Staged, TaskForm, Written
from penstock.sinks.files.task_form import FOLDER, FORMAT, WrittenPart, files_of
from penstock.sinks.staged_files import stage_bytes, stage_table

__all__ = ["TaskJsonLines", "TaskParquet", "stage_by_form", "staged_of"]


@dataclass(frozen=True)
class TaskParquet(Parquet):
    """Parquet, of which tasks write files of a row."""

    def task_form(self) -> TaskForm:
        """Leave nothing."""
        return replace(super().task_form(), few=0)


@dataclass(frozen=True)
class TaskJsonLines(JsonLines):
    """JSON lines, of which tasks write files of a row."""

    def task_form(self) -> TaskForm:
        """Leave nothing."""
        return replace(super().task_form(), few=0)


def stage_by_form(rows: pa.Table, form: TaskForm, folder: CheckpointFolder, name: str) -> Iterator[StagedFile]:
    """Stage rows as a task does, and yield the files as a Commit names them."""
    for number, part in enumerate(files_of(form, rows)):
        place, stats = f"{name}-{number}", dict[str, Any]()
        if isinstance(part, WrittenPart):
            file = stage_bytes(part.data, folder, f"{place}.{part.suffix}", rows=part.rows)
            stats = dict(part.stats)
        else:
            file = stage_table(part, folder, f"{place}.parquet")
        yield StagedFile(**file, stats=stats)


def staged_of(file: StagedFile) -> Staged:
    """Return a file of a Commit as publishers are given it."""
    stats = file.stats
    written = Written(format=str(stats[FORMAT]), folder=str(stats[FOLDER])) if FORMAT in stats else None
    return Staged(path=file.path, size=file.size, rows=file.rows, checksum=file.checksum, written=written)
