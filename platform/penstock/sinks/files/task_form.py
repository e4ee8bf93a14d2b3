"""Write rows in a task as the files that a folder shows, so that they do not pass through the driver.

Few rows are left to the driver. It writes those of all tasks as one file, so that a small batch does not become a
file for each task. What it is left is bounded by tasks and folders, and does not grow with the rows (decision 119).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import SinkValueRefused
from penstock.sinks.base import TaskForm
from penstock.sinks.files.formats import FORMATS
from penstock.sinks.files.partitions import name_folders
from penstock.sinks.staged_files import COLUMNS
from penstock.time.arrival import ARRIVAL, arrival_order

__all__ = ["FOLDER", "FORMAT", "WrittenPart", "files_of"]

FORMAT, FOLDER = "format", "folder"
"""In `StagedFile.stats`, with COLUMNS: what `Written` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The bytes of a file, the end of its name, and how many rows it has; `stats` as the Commit has them."""

    data: memoryview
    suffix: str
    rows: int
    stats: Mapping[str, str]


def files_of(form: TaskForm, rows: pa.Table) -> Iterator[WrittenPart | pa.Table]:
    """Yield the files of rows, and at most one table of rows that are left to the driver.

    Rows are in order of arrival where they have ARRIVAL, which the files do not get. Rows of a value that the
    format or a folder's name cannot hold are left too: a gate may withhold them, and the driver raises otherwise.
    """
    if rows.nbytes < form.few:
        yield rows
        return
    left: list[pa.Table] = []
    if ARRIVAL in rows.column_names:
        rows = rows.take(arrival_order(rows[ARRIVAL]))
    try:
        folders = list(name_folders(rows, form.partition_by))
    except SinkValueRefused:
        yield rows
        return
    encoder = FORMATS[form.format]
    hidden = [*form.partition_by, *({ARRIVAL} & {*rows.column_names})]
    columns = pa.schema([column for column in rows.schema if column.name != ARRIVAL])
    packed = b64encode(columns.serialize()).decode()
    for folder, part in folders:
        try:
            data = None if part.nbytes < form.few else encoder.encode(part.drop_columns(hidden))
        except SinkValueRefused:
            data = None
        if data is None:
            left.append(part)
            continue
        stats = {FORMAT: form.format, FOLDER: folder, COLUMNS: packed}
        yield WrittenPart(data=data, suffix=encoder.suffix, rows=part.num_rows, stats=stats)
    if left:
        yield pa.concat_tables(left)
