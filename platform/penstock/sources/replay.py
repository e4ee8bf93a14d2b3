"""Replay a file in a chosen order, so many rows a batch: real data as if it were arriving."""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from annotated_types import Ge

from penstock.errors import (
    BadRecordFound,
    ConfigError,
    FileUnreadable,
    ReadByOtherRules,
    ReadOtherwise,
    SortedCopyDamaged,
    SourceChanged,
    SourceNotFound,
)
from penstock.graph.argument_types import refuse_other_types
from penstock.graph.nondeterministic import nondeterministic_call
from penstock.graph.policies import BadRecord, OnEnd
from penstock.sources.base import (
    ERROR,
    RAW,
    Ends,
    Position,
    Source,
    Span,
    SplitReader,
    TaskReader,
    Waiting,
    with_hidden,
)
from penstock.sources.csv_records import csv_parts
from penstock.sources.external_sort import ROW, externally_sorted, pieces
from penstock.sources.json_texts import rows_by_cast
from penstock.sources.records import arrow_schema, cast_columns, in_micros
from penstock.sources.replay_pace import ReplayPace, checked_speed
from penstock.sources.sorted_copy import SortedCopy, copies_folder, hold, sweep, write_copy
from penstock.time.clock import Clock, SystemClock

__all__ = ["FileReplay"]

_ONLY = "0"
"""The name of the one partition."""
_ROWS_A_SPLIT = 50_000
_ROWS_A_PIECE = 32_768
_ORDER = "_penstock_order"
_SUFFIXES = (".parquet", ".csv")
_RULES = 2
"""The version of the rules for bad records. They decide the number of each row: a bad record has no value to sort by,
so it sorts last. Positions that name no version have version 1, which changed numbers to fit a float or a decimal
column, and cut quoted values at their line breaks.
"""


@dataclass(frozen=True)
class FileReplay(Source):
    """Describe a Parquet or CSV file that is replayed, sorted by `order_by`, `rows_per_batch` rows a batch.

    `order_by` is a column or a Spark SQL expression; ties keep the order of the file's rows, nulls come last.
    `speed` is how many seconds of the times in `order_by` pass in a second: 60 replays an hour in a minute. It needs a
    column of timestamps, and counts from the first start of the job. What comes due while the job is down waits.
    Another speed counts from the next row on. With None all rows are there at once.
    One partition, bounded: at its end `on_end` says whether all windows close (SEMANTICS 2.1).
    `schema` is Spark DDL; without it the file's own types are taken.
    `nulls` are the CSV texts that mean null.
    """

    path: str | Path
    _: KW_ONLY
    order_by: str
    rows_per_batch: Annotated[int, Ge(1)] = 5_000
    speed: float | None = None
    on_end: OnEnd = OnEnd.CLOSE
    schema: str | None = None
    nulls: Sequence[str] = ("",)
    on_bad_record: BadRecord = BadRecord.QUARANTINE
    live = False

    def __post_init__(self) -> None:
        """Refuse batches without rows, and files that are neither Parquet nor CSV by their names."""
        refuse_other_types(self)
        if self.rows_per_batch < 1:
            raise ConfigError(f"rows_per_batch is {self.rows_per_batch}, and a batch needs at least one row")
        if Path(self.path).suffix not in _SUFFIXES:
            raise ConfigError(f"path {str(self.path)!r} is neither .parquet nor .csv")
        checked_speed(self.speed)
        problem = nondeterministic_call(self.order_by)
        if problem is not None:
            raise ConfigError(f"order_by: {problem}")

    def describe(self) -> str:
        """Return one line for `penstock explain`."""
        return f"FileReplay of {self.path}"

    def open(self, spark: Any) -> ReplayReader:
        """Sort the file once into a copy that the tasks map, and return the reader."""
        path = Path(self.path)
        if not path.is_file():
            raise SourceNotFound("there is no file to replay", where=str(path))
        folder = copies_folder()
        sweep(folder)
        stamp, read_as = _stamp(path), _read_as(self)
        prepared = _copy_path(folder, path, stamp, read_as)
        copy = SortedCopy.opened(prepared)
        if copy is None or not copy.is_whole:
            copy = _sorted(self, path, prepared, stamp, spark)
        return ReplayReader(self, path, copy, stamp, read_as, SystemClock())


class ReplayReader(SplitReader):
    """Follow a sorted file by row number."""

    def __init__(
        self,
        spec: FileReplay,
        path: Path,
        copy: SortedCopy,
        stamp: dict[str, int],
        read_as: tuple[str, str],
        clock: Clock,
    ) -> None:
        self.spec = spec
        self.path = path
        self.prepared = copy.path
        weakref.finalize(self, os.close, hold(copy.path))
        self._stamp = stamp
        self._read_as = read_as
        self.facts: dict[str, Any] = {
            "length": stamp["length"],
            "digest": copy.facts["digest"],
            "read_as": read_as[0],
            "rules": _RULES,
        }
        self._bad = copy.facts["bad"]
        self.count = copy.rows
        self.schema = copy.schema
        self._pace = None if spec.speed is None else ReplayPace(copy, spec.order_by, spec.speed, clock)
        self._began: dict[str, Any] | None = None
        if spec.on_bad_record is BadRecord.FAIL and copy.facts["bad"] is not None:
            raise BadRecordFound(copy.facts["bad"], where=str(path))
        self.splits = max(1, min(os.cpu_count() or 1, -(-spec.rows_per_batch // _ROWS_A_SPLIT)))

    def backlog(self, after: Position | None) -> dict[str, Waiting]:
        """Return the rows after a position that are due, of which a batch reads `rows_per_batch`.

        Raises SourceChanged where the file is not the one that was read up to `after`, or where other settings give
        its rows other numbers.
        """
        if after is not None:
            self._refuse_other(after, f"the first {after['row']} rows were read")
        start = int(after["row"]) if after else 0
        due = self.count if self._pace is None else max(start, self._pace.due(self._pace_at(after, self._pace)))
        return {_ONLY: Waiting.of_rows(start, due, at_most=self.spec.rows_per_batch)}

    def position(self, after: Position | None, ends: Ends) -> Position:
        """Return the row number, with what tells the file from others, and since when its rows come at a pace."""
        if after is not None and after["row"] == ends[_ONLY]:
            pace = after.get("pace")
        else:
            pace = None if self._pace is None else self._pace_at(after, self._pace)
        return {"row": ends[_ONLY], **self.facts, **({} if pace is None else {"pace": dict(pace)})}

    def _pace_at(self, after: Position | None, pace: ReplayPace) -> Mapping[str, Any]:
        """Return the pace of a position; one at another speed, or at none, ends there, and the new one begins."""
        if after is not None and after.get("pace", {}).get("speed") == pace.speed:
            known: Mapping[str, Any] = after["pace"]
            return known
        if self._began is None:
            self._began = pace.begun(int(after["row"]) if after else 0)
        return self._began

    def span(self, start: Position | None, end: Position) -> Span:
        """Return the rows' numbers, with the length and digest of the file (F39)."""
        return {"from": start["row"] if start else 0, "to": end["row"], **self.facts}

    def verify(self, span: Span) -> None:
        """Raise SourceChanged when the file is not the one whose rows were fixed."""
        self._refuse_other(span, f"rows {span['from']} to {span['to']} were fixed")

    def _refuse_other(self, known: Position, when: str) -> None:
        if known["read_as"] not in self._read_as:
            problem = f"{when} with another order_by, schema or nulls, and now its rows have other numbers"
            raise ReadOtherwise(problem, where=str(self.path))
        rules = known.get("rules", 1)
        if rules > _RULES or (rules < _RULES and self._may_have_moved()):
            problem = (
                f"{when} by the reading rules of version {rules}; by version {_RULES} its rows may have other numbers"
            )
            raise ReadByOtherRules(problem, where=str(self.path))
        stamp = self._found()
        # A position of an older release has the time of the file, and no digest.
        wanted = {name: known[name] for name in ("length", "digest", "modified_ns") if name in known}
        if {name: stamp.get(name) for name in wanted} != wanted:
            now = f"now it has {stamp}" if stamp else "now it is gone"
            raise SourceChanged(f"{when} when the file had {wanted}, and {now}", where=str(self.path))

    def _may_have_moved(self) -> bool:
        """Return whether version 1 of the rules may have given a row of the file another number; also when in doubt."""
        fit = self._bad is not None and self.spec.schema is not None  # else no value was made to fit a type
        bent = fit and any(pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in self.schema.types)
        return bent or (self.path.suffix == ".csv" and _may_break_lines(self.path))

    def _found(self) -> dict[str, Any]:
        """Return what tells the file from others as it is now; nothing where it is gone."""
        if not self.path.is_file():
            return {}
        stamp = _stamp(self.path)
        digest = self.facts["digest"] if stamp == self._stamp else _digest(self.path)
        if digest == self.facts["digest"]:
            self._stamp = stamp  # the same bytes, written or copied again
        return {**stamp, "digest": digest}

    def ended(self, position: Position | None) -> bool:
        """Return whether all rows were read."""
        return bool((position["row"] if position else 0) >= self.count)

    def rows(self, span: Span) -> int | None:
        """Return the number of rows in the span."""
        return int(span["to"] - span["from"])

    def partitions(self, span: Span) -> tuple[str, ...]:
        """Return the one partition."""
        return (_ONLY,)

    def task_reader(self) -> ReplayTaskReader:
        """Return the reader of the sorted copy."""
        return ReplayTaskReader(str(self.prepared))


@dataclass(frozen=True)
class ReplayTaskReader(TaskReader):
    """Map the sorted copy inside a task; reads no more than the pieces that its rows lie in."""

    prepared: str

    def read(self, span: Span, split: int, splits: int) -> Iterator[pa.Table]:
        """Yield this split's rows."""
        first, last = span["from"], span["to"]
        start = first + (last - first) * split // splits
        stop = first + (last - first) * (split + 1) // splits
        if stop > start:
            copy = SortedCopy.opened(Path(self.prepared))
            if copy is None:
                raise SortedCopyDamaged("a sorted copy cannot be read", where=self.prepared)
            yield from copy.read(start, stop)

    def decoded(self, texts: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[str | None]]:
        """Return the rows of JSON by column; of a record with too many fields or too few nobody knows the columns."""
        return rows_by_cast(texts, schema)


def _stamp(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"length": status.st_size, "modified_ns": status.st_mtime_ns}


def _digest(path: Path) -> str:
    """Return what tells the bytes of a file from others."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _may_break_lines(path: Path) -> bool:
    """Return whether a CSV file may have values with line breaks: a line has a quote that it does not close."""
    with path.open(encoding="latin-1") as file:
        return any(line.count('"') % 2 for line in file)


def _read_as(spec: FileReplay) -> tuple[str, str]:
    """Digest what decides which row has which number, beside the file; the second is as older releases said it.

    A schema is what it parses to: a space more in its text changes nothing.
    """
    schema = None if spec.schema is None else str(arrow_schema(spec.schema))
    return _said([spec.order_by, schema, list(spec.nulls)]), _said([spec.order_by, spec.schema, list(spec.nulls)])


def _said(words: list[Any]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def _copy_path(folder: Path, path: Path, stamp: dict[str, int], read_as: tuple[str, str]) -> Path:
    identity = json.dumps([str(path.resolve()), stamp, read_as[0], _RULES], sort_keys=True)
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.arrow"


def _sorted(spec: FileReplay, path: Path, prepared: Path, stamp: dict[str, int], spark: Any) -> SortedCopy:
    """Sort a file into its copy; memory is bounded, but for a CSV file without a schema."""
    facts: dict[str, Any] = {"bad": None, "digest": _digest(path)}
    parts = _parts(spec, path, facts)
    head = next(parts)
    visible = pa.schema([f for f in head.schema if f.name not in (ERROR, RAW, ROW)])
    all_parts = chain([head], parts)
    tables = externally_sorted(all_parts, lambda part: _order(spec, part, spark), prepared.parent)

    def placed() -> Iterator[pa.Table]:
        first = 0
        for table in pieces(tables, _ROWS_A_PIECE):
            positions = pa.array(np.arange(first, first + table.num_rows))
            yield with_hidden(table.select(visible.names), 0, positions, table[ERROR], table[RAW])
            first += table.num_rows
        if _stamp(path) != stamp:
            raise SourceChanged("the file changed while it was read", where=str(path))

    write_copy(prepared, visible, placed(), facts)
    copy = SortedCopy.opened(prepared)
    assert copy is not None
    return copy


def _order(spec: FileReplay, part: pa.Table, spark: Any) -> pa.ChunkedArray:
    if spec.order_by in part.column_names:
        return part[spec.order_by]
    from pyspark.sql.functions import expr

    # Of a table with an empty chunk in front of others, createDataFrame loses rows (pyspark 4.2.0).
    rows = part.drop_columns([ERROR, RAW]).combine_chunks()
    frame = spark.createDataFrame(rows).select(ROW, expr(spec.order_by).alias(_ORDER))
    return frame.toArrow().sort_by(ROW)[_ORDER]


def _parts(spec: FileReplay, path: Path, facts: dict[str, Any]) -> Iterator[pa.Table]:
    """Yield the rows of the file in its order, at least one table, with ERROR, RAW and their number ROW.

    What was wrong with the first bad record is noted in `facts`.
    """
    first = 0
    for table, errors, raw in _load(spec, path):
        n = table.num_rows
        rows = table.append_column(ERROR, pa.nulls(n, pa.string()) if errors is None else errors)
        rows = rows.append_column(RAW, pa.nulls(n, pa.string()) if raw is None else raw)
        if errors is not None and facts["bad"] is None and errors.null_count < n:
            facts["bad"] = next(error for error in errors.to_pylist() if error is not None)
        yield rows.append_column(ROW, pa.array(np.arange(first, first + n)))
        first += n


def _load(spec: FileReplay, path: Path) -> Iterator[tuple[pa.Table, pa.Array | None, pa.Array | None]]:
    wanted = None if spec.schema is None else arrow_schema(spec.schema)
    try:
        if path.suffix == ".csv":
            yield from csv_parts(path, wanted, spec.nulls)
            return
        for table in _parquet(path):
            yield (
                (in_micros(table), None, None)
                if wanted is None
                else cast_columns(table.select(wanted.names), wanted, where=str(path))
            )
    except KeyError as why:
        raise ConfigError(f"the file has no such column: {why}", where=str(path)) from why
    except pa.ArrowInvalid as why:
        raise FileUnreadable(f"the file cannot be read: {why}", where=str(path)) from why


def _parquet(path: Path) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file, at least one table."""
    with pq.ParquetFile(path) as file:
        yield file.schema_arrow.empty_table()
        for batch in file.iter_batches():
            yield pa.Table.from_batches([batch])
