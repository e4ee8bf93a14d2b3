"""Find the windows in a Delta table, and their rows.

A window's rows are all rows with its bounds in the files that a report reads. "New" are the files of the commits after
a version. Commits that only rewrite files, such as OPTIMIZE's, bring nothing new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import ReportImpossible
from penstock.sinks.delta.log_entry import actions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Published", "Selection", "Window", "select", "table_id"]

START, END = "window_start", "window_end"
_UTC = pa.timestamp("us", tz="UTC")
_AT_ONCE = 500_000
"""Rows of small windows that are in memory at a time."""
_REFUSED = {"deletionVectors": "deletion vectors", "columnMapping": "column mapping"}


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A window: its bounds in microseconds since 1970, UTC, and how many rows the table was given for it."""

    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which windows a report judges: the `newest` few, those that end in [since, until), or, without either, the new.

    `since` and `until` are microseconds since 1970, UTC.
    """

    newest: int | None = None
    since: int | None = None
    until: int | None = None

    @property
    def is_new(self) -> bool:
        """Return whether it begins where the last report ended."""
        return self.newest is None and self.since is None and self.until is None


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    partition: tuple[tuple[str, str | None], ...]
    version: int


@dataclass(frozen=True, kw_only=True)
class Published:
    """Selected windows of a table, oldest first.

    `version` is the table's version up to which it has new windows, and `more` says that there are newer ones.
    With `gap` the commits after the last report could not be read any more, so that all windows counted as new.
    `passed` counts windows that the selection holds and the limit left out, all older than those that are here.
    """

    table: Path
    version: int
    windows: tuple[Window, ...]
    schema_json: str
    schema: pa.Schema
    files: tuple[_File, ...]
    more: bool = False
    gap: bool = False
    passed: int = 0

    def rows(self, at_most: int) -> Iterator[tuple[Window, pa.Table | None]]:
        """Yield each window with its rows; with None where it has more than `at_most`, which Spark should read."""
        pending: list[Window] = []
        for window in self.windows:
            if window.rows > at_most:
                yield from self._read(pending)
                pending = []
                yield window, None
                continue
            if pending and sum(w.rows for w in pending) + window.rows > _AT_ONCE:
                yield from self._read(pending)
                pending = []
            pending.append(window)
        yield from self._read(pending)

    def frame(self, spark: SparkSession, window: Window) -> DataFrame:
        """Return the rows of a window as Spark reads them."""
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema_json))
        reader = spark.read.schema(schema).option("basePath", str(self.table))
        reader = reader.option("__globPaths__", "false")  # a path is a path, whatever is in its names
        frame = reader.parquet(*(str(f.path) for f in self.files))
        return frame.where(f"{START} = timestamp_micros({window.start}) AND {END} = timestamp_micros({window.end})")

    def _read(self, windows: Sequence[Window]) -> Iterator[tuple[Window, pa.Table]]:
        if not windows:
            return
        low, high = min(w.start for w in windows), max(w.start for w in windows)
        bounds = [(START, ">=", pa.scalar(low, _UTC)), (START, "<=", pa.scalar(high, _UTC))]
        rows = (
            pa.concat_tables([self._file(f, bounds) for f in self.files]) if self.files else self.schema.empty_table()
        )
        rows = rows.sort_by([(START, "ascending"), (END, "ascending")])
        starts, ends = _micros(rows[START]), _micros(rows[END])
        places: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(starts, ends, strict=True)):
            first_last = places.setdefault(key, [place, place])
            first_last[1] = place
        for window in windows:
            first, last = places[window.start, window.end]
            yield window, rows.slice(first, last - first + 1)

    def _file(self, file: _File, bounds: list[tuple[str, str, Any]]) -> pa.Table:
        # What another writer has written may have its moments otherwise, and then all of it is read.
        own = pq.read_schema(file.path)
        filtered = START in own.names and own.field(START).type == _UTC
        rows = pq.read_table(file.path, filters=bounds if filtered else None, partitioning=None)
        return _with_partition(rows, file, self.schema)


def table_id(table: Path) -> str | None:
    """Return the id that a Delta table has from its making on, None where there is no table."""
    from deltalake import DeltaTable

    return str(DeltaTable(str(table)).metadata().id) if DeltaTable.is_deltatable(str(table)) else None


def select(table: Path, selection: Selection, *, after: int | None, at_most: int) -> Published:
    """Return the windows of a table that are selected, the newest `at_most` of them.

    New windows are those of the commits after version `after`; they are taken commit by commit, until there are
    `at_most` or more. Where `after` is None, or a commit since is no more to be read, all windows count as new.
    Raises ReportImpossible for a table that is not there, has no window columns, or hides rows from plain readers.
    """
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(table)):
        raise ReportImpossible("there is no Delta table: nothing was published yet", where=str(table))
    delta = DeltaTable(str(table))
    schema = pa.schema(delta.schema().to_arrow())
    if START not in schema.names or END not in schema.names:
        raise ReportImpossible(f"the table has no columns {START} and {END}: it holds no windows", where=str(table))
    for name in (START, END):
        if not pa.types.is_timestamp(schema.field(name).type):
            raise ReportImpossible(f"the column {name} is {schema.field(name).type} and no moment", where=str(table))
    mapped = delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    for feature in (*(delta.protocol().reader_features or ()), *(("columnMapping",) if mapped else ())):
        if feature in _REFUSED:
            raise ReportImpossible(f"the table uses {_REFUSED[feature]}", where=str(table))
    newest = delta.version()
    facts: dict[str, Any] = {"table": table, "schema_json": delta.schema().to_json(), "schema": schema}
    known = selection.is_new and after is not None and after <= newest  # a replaced table begins with lower versions
    commits = _commits(table, after, newest) if known and after is not None else None
    if commits is not None:
        return _new(facts, commits, newest, at_most)
    files = tuple(_file_of(table, action, newest) for action in _snapshot(delta))
    windows = [w for w in _windows(files) if _within(w, selection)]
    limit = at_most if selection.newest is None else min(selection.newest, at_most)
    kept = windows[-limit:] if limit else []
    selected = len(windows) if selection.newest is None else min(selection.newest, len(windows))
    gap = selection.is_new and after is not None
    return Published(version=newest, windows=tuple(kept), files=files, gap=gap, passed=selected - len(kept), **facts)


def _new(facts: dict[str, Any], commits: Sequence[tuple[int, list[_File]]], newest: int, at_most: int) -> Published:
    files: list[_File] = []
    windows: list[Window] = []
    taken = newest
    for version, added in commits:
        if not added:
            continue
        if windows and len(windows) >= at_most:
            return Published(version=taken, windows=tuple(windows), files=tuple(files), more=True, **facts)
        files += added
        windows, taken = _windows(files), version
    return Published(version=newest, windows=tuple(windows), files=tuple(files), **facts)


def _commits(table: Path, after: int, newest: int) -> list[tuple[int, list[_File]]] | None:
    """Return the files of each commit after a version, None where one cannot be read any more."""
    commits = []
    for version in range(after + 1, newest + 1):
        actions = actions_of(table, version)
        if actions is None:
            return None
        added = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
        files = [_file_of(table, add, version) for add in added]
        if not all(file.path.is_file() for file in files):
            return None  # rewritten since, and swept
        commits.append((version, files))
    return commits


def _snapshot(table: Any) -> list[dict[str, Any]]:
    """Return the files of a table's newest version, as its log names them."""
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    return [{"path": row["path"], "partitionValues": row.get("partition") or {}} for row in rows]


def _file_of(table: Path, add: dict[str, Any], version: int) -> _File:
    path = unquote(add["path"])
    if "://" in path or not (table / path).resolve().is_relative_to(table.resolve()):
        raise ReportImpossible("the table has files that lie outside its folder", where=path)
    # To partition by an empty text is, in a Delta table, to partition by null.
    values = {name: None if v in (None, "") else str(v) for name, v in (add.get("partitionValues") or {}).items()}
    return _File(table / path, tuple(sorted(values.items())), version)


def _windows(files: Sequence[_File]) -> list[Window]:
    """Return the windows in some files, oldest first; raises ReportImpossible where rows have none."""
    if not files:
        return []
    bare = pa.schema([(START, _UTC), (END, _UTC)])
    parts = [_with_partition(pq.read_table(f.path, columns=_columns_of(f), partitioning=None), f, bare) for f in files]
    counted = pa.concat_tables(parts).group_by([START, END]).aggregate([([], "count_all")])
    if counted[START].null_count or counted[END].null_count:
        raise ReportImpossible("the table has rows without a window", where=str(files[0].path.parent))
    named = zip(_micros(counted[START]), _micros(counted[END]), counted["count_all"].to_pylist(), strict=True)
    return sorted(Window(*window) for window in named)


def _columns_of(file: _File) -> list[str]:
    return [name for name in (START, END) if name not in dict(file.partition)]


def _with_partition(rows: pa.Table, file: _File, schema: pa.Schema) -> pa.Table:
    """Return the rows in the columns of a schema: what the file's folder says of some, and null of those it lacks."""
    values = dict(file.partition)
    columns = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(_partition_value(values[field.name], field.type), rows.num_rows))
        elif field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a value of the log of a table, where moments stand without their zone, which is UTC."""
    if text is None or not (pa.types.is_timestamp(kind) and kind.tz):
        return pa.array([text], pa.string()).cast(kind)[0]
    moment = datetime.fromisoformat(text)
    return pa.scalar(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC), kind)


def _within(window: Window, selection: Selection) -> bool:
    since, until = selection.since, selection.until
    return (since is None or window.end >= since) and (until is None or window.end < until)


def _micros(column: pa.ChunkedArray) -> list[int]:
    return list(pc.cast(column, pa.int64()).to_pylist())
