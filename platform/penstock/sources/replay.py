"""Replay a file in a chosen order, so many rows a batch: real data as if it were arriving."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checkpoint.local import storage_errors
from penstock.errors import (
    BadRecordFound,
    ConfigError,
    RootUnsafe,
    SourceChanged,
    SourceNotFound,
)
from penstock.graph.policies import BadRecord, OnEnd
from penstock.sources.base import ERROR, HIDDEN, Position, ReadLimit, Span, with_hidden
from penstock.sources.csv_records import read_csv
from penstock.sources.records import arrow_schema, cast_columns

__all__ = ["FileReplay"]

_ROWS_A_SPLIT = 50_000
_ROW, _ORDER = "_penstock_row", "_penstock_order"


@dataclass(frozen=True)
class FileReplay:
    """Describe a Parquet or CSV file that is replayed, sorted by `order_by`, `rows_per_batch` rows a batch.

    `order_by` is a column or a Spark SQL expression; ties keep the order of the file's rows, nulls come last.
    One partition, bounded: at its end `on_end` says whether all windows close (SEMANTICS 2.1).
    `schema` is Spark DDL; without it the file's own types are taken.
    `nulls` are the CSV texts that mean null.
    """

    path: str | Path
    order_by: str
    rows_per_batch: int = 5_000
    on_end: OnEnd = OnEnd.CLOSE
    schema: str | None = None
    nulls: Sequence[str] = ("",)
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    live: ClassVar[bool] = False

    def __init__(
        self,
        path: str | Path,
        *,
        order_by: str,
        rows_per_batch: int = 5_000,
        on_end: OnEnd = OnEnd.CLOSE,
        schema: str | None = None,
        nulls: Sequence[str] = ("",),
        on_bad_record: BadRecord = BadRecord.QUARANTINE,
    ) -> None:
        if rows_per_batch < 1:
            raise ConfigError(f"rows_per_batch is {rows_per_batch}, and a batch needs at least one row")
        for name, value in locals().items():
            if name != "self":
                object.__setattr__(self, name, value)

    def open(self, spark: Any) -> ReplayReader:
        """Sort the file once into a cache that the tasks map, and return the reader."""
        path = Path(self.path)
        if not path.is_file():
            raise SourceNotFound("there is no file to replay", where=str(path))
        facts: dict[str, Any] = _fingerprint(path)
        facts["read_as"] = _read_as(self)
        prepared = _cache_path(path, facts)
        if not _whole(prepared):
            table = _prepare(self, path, spark)
            if {**_fingerprint(path), "read_as": facts["read_as"]} != facts:
                raise SourceChanged("the file changed while it was read", where=str(path))
            _write_atomically(prepared, table)
        return ReplayReader(self, path, prepared, facts)


class ReplayReader:
    """Follow a sorted file by row number."""

    def __init__(self, spec: FileReplay, path: Path, prepared: Path, facts: dict[str, Any]) -> None:
        self.spec = spec
        self.path = path
        self.prepared = prepared
        self.facts = facts
        with pa.memory_map(str(prepared)) as file:
            table = pa.ipc.open_file(file).read_all()
            self.count = table.num_rows
            self.schema = pa.schema([f for f in table.schema if f.name not in HIDDEN])
            self._refuse_bad(table)
        self.splits = max(1, min(os.cpu_count() or 1, -(-spec.rows_per_batch // _ROWS_A_SPLIT)))

    def latest(self, after: Position | None, limit: ReadLimit) -> Position:
        """Return the row number at most one batch further, with the length and time of the file.

        Raises SourceChanged where the file is not the one that was read up to `after`: its rows have other numbers.
        """
        if after is not None:
            self._refuse_other(after, f"the first {after['row']} rows were read")
        start = after["row"] if after else 0
        rows = self.spec.rows_per_batch if limit.rows is None else min(limit.rows, self.spec.rows_per_batch)
        return {"row": min(start + rows, self.count), **self.facts}

    def newest(self, after: Position | None) -> Position:
        """Return the position behind the last row. Raises SourceChanged as `latest` does."""
        return {**self.latest(after, ReadLimit()), "row": self.count}

    def clamp(self, position: Position, target: Position) -> Position:
        """Return the earlier of two positions."""
        return min(position, target, key=lambda at: int(at["row"]))

    def backlog(self, position: Position | None) -> dict[str, int]:
        """Return the rows behind a position."""
        return {"0": self.count - int(position["row"] if position else 0)}

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the rows' numbers, with the length and time of the file (F39)."""
        return {"from": start["row"] if start else 0, "to": end["row"], **self.facts}

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when the file is not the one whose rows were fixed."""
        self._refuse_other(span, f"rows {span['from']} to {span['to']} were fixed")

    def _refuse_other(self, known: Position, when: str) -> None:
        found = _fingerprint(self.path) if self.path.is_file() else {}
        wanted = {name: known[name] for name in ("length", "modified_ns")}
        if known["read_as"] != self.facts["read_as"]:
            raise SourceChanged(
                f"{when} with another order_by, schema or nulls, and now its rows have other numbers",
                where=str(self.path),
            )
        if found != wanted:
            now = f"now it has {found}" if found else "now it is gone"
            raise SourceChanged(f"{when} when the file had {wanted}, and {now}", where=str(self.path))

    def ended(self, position: Position | None) -> bool:
        """Return whether all rows were read."""
        return bool((position["row"] if position else 0) >= self.count)

    def rows(self, span: Span) -> int | None:
        """Return the number of rows in the span."""
        return int(span["to"] - span["from"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return ("0",)

    def task_reader(self) -> ReplayTaskReader:
        """Return the reader of the sorted copy."""
        return ReplayTaskReader(str(self.prepared))

    def _refuse_bad(self, table: pa.Table) -> None:
        if self.spec.on_bad_record is BadRecord.FAIL and table[ERROR].null_count < table.num_rows:
            row = pc.index(pc.is_valid(table[ERROR]), value=True).as_py()
            raise BadRecordFound(f"{table[ERROR][row].as_py()}", where=str(self.path))


@dataclass(frozen=True)
class ReplayTaskReader:
    """Map the sorted copy inside a task; reads no more than its rows."""

    prepared: str

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield this split's rows."""
        first, last = span["from"], span["to"]
        start = first + (last - first) * split // splits
        stop = first + (last - first) * (split + 1) // splits
        if stop > start:
            with pa.memory_map(self.prepared) as file:
                yield pa.ipc.open_file(file).read_all().slice(start, stop - start)


def _fingerprint(path: Path) -> dict[str, int]:
    found = path.stat()
    return {"length": found.st_size, "modified_ns": found.st_mtime_ns}


def _read_as(spec: FileReplay) -> str:
    """Digest what decides which row has which number, beside the file."""
    said = json.dumps([spec.order_by, spec.schema, list(spec.nulls)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _cache_path(path: Path, facts: dict[str, Any]) -> Path:
    said = json.dumps([str(path.resolve()), facts], sort_keys=True)
    return _cache_folder() / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.arrow"


def _cache_folder() -> Path:
    """Return the folder of sorted copies; one that another user could have filled is refused (F65)."""
    with storage_errors("TMPDIR"):
        folder = Path(tempfile.gettempdir()) / f"penstock-replay-{os.getuid()}"
    with storage_errors(str(folder)):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RootUnsafe("the folder of sorted copies is not private", where=str(folder))
    return folder


def _whole(path: Path) -> bool:
    """Return whether the sorted copy is there and can be read; after a power cut a part of it may have its name."""
    try:
        with pa.memory_map(str(path)) as file:
            pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException):
        return False
    return True


def _write_atomically(path: Path, table: pa.Table) -> None:
    temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with storage_errors(str(path)):
        try:
            with temporary.open("xb") as file:
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
                file.flush()
                os.fsync(file.fileno())  # a power cut could leave the name without the rows
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _prepare(spec: FileReplay, path: Path, spark: Any) -> pa.Table:
    table, errors, raw = _load(spec, path)
    order = _order(spec, table, spark)
    positions = pa.array(range(table.num_rows), pa.int64())
    sort = pc.sort_indices(
        pa.table({"k": order, "row": positions}), sort_keys=[("k", "ascending"), ("row", "ascending")]
    )
    chosen = table.take(sort)
    return with_hidden(
        chosen,
        0,
        positions,
        None if errors is None else errors.take(sort),
        None if raw is None else raw.take(sort),
    ).combine_chunks()


def _order(spec: FileReplay, table: pa.Table, spark: Any) -> pa.ChunkedArray:
    if spec.order_by in table.column_names:
        return table[spec.order_by]
    from pyspark.sql.functions import expr

    numbered = table.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))
    frame = spark.createDataFrame(numbered).select(_ROW, expr(spec.order_by).alias(_ORDER))
    return frame.toArrow().sort_by(_ROW)[_ORDER]


def _load(spec: FileReplay, path: Path) -> tuple[pa.Table, pa.Array | None, pa.Array | None]:
    wanted = None if spec.schema is None else arrow_schema(spec.schema)
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError("only .parquet and .csv files can be replayed", where=str(path))
    try:
        if path.suffix == ".csv":
            return read_csv(path, wanted, spec.nulls)
        table = pq.read_table(path)
        if wanted is None:
            return _micros(table), None, None
        return cast_columns(table.select(wanted.names), wanted, where=str(path))
    except KeyError as why:
        raise ConfigError(f"the file has no such column: {why}", where=str(path)) from why
    except pa.ArrowInvalid as why:
        raise BadRecordFound(f"the file cannot be read: {why}", where=str(path)) from why


def _micros(table: pa.Table) -> pa.Table:
    """Return the table with timestamps in microseconds, the only ones Spark holds; those with a zone in UTC."""
    kinds = [
        pa.timestamp("us", tz="UTC" if f.type.tz else None) if pa.types.is_timestamp(f.type) else f.type
        for f in table.schema
    ]
    return table.cast(pa.schema([pa.field(f.name, kind) for f, kind in zip(table.schema, kinds, strict=True)]))
