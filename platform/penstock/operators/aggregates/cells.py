"""Partial aggregates: a cell owns some columns, fills them from rows, and merges them by group.

Every cell is commutative and associative: rows may be merged in any order and any grouping.
Cells know neither keys nor windows.
A group is a number from 0 to `groups` - 1, given for each row or partial by `ids` (int64).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "ORDER",
    "Cell",
    "Column",
    "Ids",
    "Partials",
    "Rows",
    "ValueCount",
    "add_at",
    "add_doubles_at",
    "as_arrow",
    "valid_mask",
    "values_of",
]

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Column: TypeAlias = npt.NDArray[Any] | pa.Array
"""A column of partials: numpy for bigints and doubles without nulls, Arrow for everything else."""
Partials = dict[str, Column]

ORDER = ("batch", "source", "partition", "position")
"""What arrival order is made of (SEMANTICS 1.6), greatest first."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to aggregate.

    Attributes:
        inputs: The columns that aggregates read, by name, of any Arrow type.
        times: Event times, int64 microseconds.
        order: The columns of ORDER, int64; empty where no aggregate asks for order.
    """

    inputs: Mapping[str, pa.Array]
    times: npt.NDArray[np.int64]
    order: tuple[npt.NDArray[np.int64], ...] = ()


class Cell(Protocol):
    """Partial aggregates of one kind over one input."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return the columns this cell owns, with their Arrow types."""
        ...

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Aggregate rows into one partial a group; that of a group without rows merges as nothing.

        `ids` is the group of each row (int64, from 0), `groups` how many groups there are.
        """
        ...

    def merge(self, partials: Partials, ids: Ids, groups: int) -> Partials:
        """Merge partials into one a group; `ids` is the group of each partial (int64, from 0).

        Cells with an exact inverse take a `sign` as well, 1 or -1 for each partial (int64): those of -1 are subtracted.
        """
        ...


def as_arrow(column: Column) -> pa.Array:
    """Return a column as an Arrow array, without a copy."""
    return pa.array(column) if isinstance(column, np.ndarray) else column


def valid_mask(array: pa.Array) -> Mask | None:
    """Return which items are not null, or None where all are."""
    if not array.null_count:
        return None
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def values_of(array: pa.Array, fill: object = 0) -> npt.NDArray[np.generic]:
    """Return the items of an array of a numeric type as numpy, nulls replaced."""
    filled = array.fill_null(fill) if array.null_count else array
    values: npt.NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    return values


def add_at(ids: Ids, groups: int, numbers: npt.NDArray[np.int64], sign: Ids | None = None) -> npt.NDArray[np.int64]:
    """Add up by group numbers whose sums fit into 64 bits: counts of rows."""
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, ids, numbers if sign is None else numbers * sign)
    return total


def add_doubles_at(ids: Ids, groups: int, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add up doubles by group."""
    # Without rows bincount forgets the type of its weights.
    return np.bincount(ids, numbers, minlength=groups).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class ValueCount:
    """Count rows, or the values of an input that are not null."""

    column: str
    input: str | None = None

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one bigint."""
        return (pa.field(self.column, pa.int64()),)

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Count by group."""
        valid = None if self.input is None else valid_mask(rows.inputs[self.input])
        return {self.column: np.bincount(ids if valid is None else ids[valid], minlength=groups).astype(np.int64)}

    def merge(self, partials: Partials, ids: Ids, groups: int, sign: Ids | None = None) -> Partials:
        """Add counts up, or subtract them."""
        return {self.column: add_at(ids, groups, partials[self.column], sign)}
