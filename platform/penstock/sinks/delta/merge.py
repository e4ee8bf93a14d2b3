"""Replace rows of a Delta table by their keys: copy on write of the files that have them.

The steps of one merge, all of them before the commit::

    prune      partitions, and bounds in the footers of files, exclude files and parts of files
    look       of the other parts the columns of the key are read
    rewrite    the other rows of files that have a key go into new files of their partition
    add        the new rows go into files of their own

New rows change again soon, and old rows seldom do. Apart from each other, the next batch rewrites the few new rows
and leaves the many old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.sinks.delta.data_files import DataFile, FileWriter, TableFiles, discard, partition_text
from penstock.sinks.delta.log_entry import Actions
from penstock.sinks.keys import without_retracted

__all__ = ["KeySet", "Rewrite", "as_compared", "by_partition", "last_of_keys", "merge", "split_by_partition"]

_PLACE = "_penstock_place"
_FEW = 100
"""Values of a key that prune files one by one; of more, only the least and the greatest do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What a commit does to the files of a version: it removes some and adds others."""

    version: int
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]

    def actions(self, now: int, *, data_change: bool = True) -> Actions:
        """Return what the commit's entry says of files; `now` in milliseconds since 1970.

        Without `data_change` the rows are the same as before, and who reads the table as a stream gets none of them.
        """
        return [
            *(file.removed(now, data_change=data_change) for file in self.removed),
            *(file.added(now, data_change=data_change) for file in self.added),
        ]

    def discard(self, folder: Path) -> None:
        """Delete the new files: another program's commit came first."""
        discard(folder, self.added)


class KeySet:
    """The keys of some rows, to tell which other rows have one of them.

    `rows` has each key once, and no null in it.
    """

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        self._values = rows.select(self.keys)
        self._rows = as_compared(rows, keys).combine_chunks()

    def condition(self) -> pc.Expression | None:
        """Return a condition that all rows with one of the keys meet, by which files are left out."""
        return reduce(and_, (self._range(key) for key in self.keys)) if self._rows.num_rows else None

    def among(self, rows: pa.Table) -> pa.BooleanArray:
        """Return for each row whether it has one of the keys."""
        rows = as_compared(rows, self.keys)
        if len(self.keys) == 1:
            (key,) = self.keys
            return pc.is_in(rows[key], value_set=self._rows[key].combine_chunks(), skip_nulls=True)
        places = pa.array(np.arange(rows.num_rows))
        ours = rows.append_column(_PLACE, places)
        has = np.zeros(rows.num_rows, dtype=bool)
        has[ours.join(self._rows, self.keys, join_type="inner")[_PLACE].to_numpy()] = True
        return pa.array(has)

    def _range(self, key: str) -> pc.Expression:
        column, field = self._values[key], ds.field(key)
        is_float = pa.types.is_floating(column.type)
        if is_float and pc.any(pc.is_nan(column)).as_py():
            return pc.scalar(value=True)  # footers leave NaN out of their bounds
        ends, values = pc.min_max(column), pc.unique(column)
        within = (field >= ends["min"]) & (field <= ends["max"])
        return within & field.isin(values) if len(values) <= _FEW and not is_float else within


def as_compared(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the columns of a key, in which values are equal that are one key to Spark (SEMANTICS 3.4).

    Arrow tells 0.0 from -0.0, and some of its functions NaN from NaN. So floating numbers are their bits, the same ones
    for all that are equal.
    """
    return pa.table({key: _bits(rows[key]) if pa.types.is_floating(rows[key].type) else rows[key] for key in keys})


def _bits(column: pa.ChunkedArray) -> pa.Array:
    numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy() + 0.0  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers.view(np.int64), mask=~column.is_valid().to_numpy())


def last_of_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return of the rows of each key the last one, in the order in which they are."""
    placed = as_compared(rows, keys).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    last = placed.group_by(list(keys)).aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
    return rows.take(pa.array(np.sort(last.to_numpy())))


def merge(files: TableFiles, rows: pa.Table, keys: Sequence[str], folder: Path, prefix: str, target: int) -> Rewrite:
    """Write the files of a version of a table in which rows have replaced those with their keys.

    Nothing is committed. Without a commit `Rewrite.discard` deletes what was written.

    Args:
        files: The table as it is.
        rows: The new rows, each key once, in the table's columns. Those that are retracted are written nowhere.
        keys: The columns of the key.
        folder: The table's folder, where new files go.
        prefix: The beginning of their names.
        target: The bytes of a file, about.
    """
    rows = rows.select(files.schema.names).cast(files.schema)
    key_set = KeySet(rows, keys)
    removed: list[DataFile] = []
    added: list[DataFile] = []
    try:
        touched = [
            file
            for file, fragment in files.where(key_set.condition())
            if any(pc.any(key_set.among(part)).as_py() for part in files.batches(fragment, keys))
        ]
        for partition, group in by_partition(touched):
            with FileWriter(folder, prefix, files.schema, partition=partition, target=target) as writer:
                for file in group:
                    for part in files.batches(files.whole(file)):
                        writer.write(part.filter(pc.invert(key_set.among(part))))
                    removed.append(file)
            added += writer.files
        for partition, part in split_by_partition(without_retracted(rows), files.partition_by):
            with FileWriter(folder, prefix, files.schema, partition=partition, target=target) as writer:
                writer.write(part)
            added += writer.files
    except BaseException:
        discard(folder, added)
        raise
    return Rewrite(version=files.version, removed=tuple(removed), added=tuple(added))


def split_by_partition(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition, with the texts that the log has for its values."""
    if not partition_by:
        yield {}, rows
        return
    placed = rows.select(list(partition_by)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    groups = placed.group_by(list(partition_by), use_threads=False).aggregate([(_PLACE, "list")])
    for group in groups.to_pylist():
        values = {name: partition_text(group[name], rows.schema.field(name).type) for name in partition_by}
        yield values, rows.take(pa.array(group[f"{_PLACE}_list"], pa.int64()))


def by_partition(files: Iterable[DataFile]) -> Iterator[tuple[dict[str, str | None], list[DataFile]]]:
    """Yield files by the partition that they are of."""
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in files:
        groups.setdefault(tuple(sorted(file.partition.items())), []).append(file)
    for values, group in groups.items():
        yield dict(values), group
