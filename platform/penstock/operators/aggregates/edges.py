"""Find the first and the last row of a group, by event time and then by arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregates.cells import ORDER, Ids, Partials, Rows, as_arrow

__all__ = ["Edge"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Keep where the first or the last row stands, and its values, null or not, of one or more inputs.

    `prefix` starts the names of the columns that say where: event time, then ORDER.
    `inputs` are triples of input, column and type.
    """

    prefix: str
    inputs: tuple[tuple[str, str, pa.DataType], ...]
    last: bool

    @property
    def places(self) -> tuple[str, ...]:
        """Return the columns that say where the row stands, greatest first."""
        return tuple(f"{self.prefix}_{part}" for part in ("time", *ORDER))

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return five bigints and one column of each input's type."""
        where = tuple(pa.field(place, pa.int64()) for place in self.places)
        return where + tuple(pa.field(column, kind) for _, column, kind in self.inputs)

    def reduce(self, rows: Rows, ids: Ids, groups: int) -> Partials:
        """Find the edge of the rows of each group."""
        places = (rows.times, *rows.order)
        if len(places) != len(self.places):
            raise ValueError(f"first and last need the columns of arrival order: {', '.join(ORDER)}")
        won = _winners(places, ids, groups, last=self.last)
        found: Partials = {name: place[won] for name, place in zip(self.places, places, strict=True)}
        index = pa.array(won)
        return found | {column: rows.inputs[name].take(index) for name, column, _ in self.inputs}

    def merge(self, partials: Partials, ids: Ids, groups: int) -> Partials:
        """Find the edge of the partials of each group."""
        places = [partials[name] for name in self.places]
        won = _winners(places, ids, groups, last=self.last)
        found: Partials = {name: place[won] for name, place in zip(self.places, places, strict=True)}
        index = pa.array(won)
        return found | {column: as_arrow(partials[column]).take(index) for _, column, _ in self.inputs}


def _winners(places: Sequence[npt.NDArray[np.int64]], ids: Ids, groups: int, *, last: bool) -> Ids:
    """Return for each group the index of the row whose places come first, or last, compared one after another.

    Each place is one pass over the rows that are still equal, so nothing is sorted.
    Every group must have a row.
    """
    rows = np.arange(len(ids))
    limits = np.iinfo(np.int64)
    for place in places:
        at, values = ids[rows], place[rows]
        best = np.full(groups, limits.min if last else limits.max, dtype=np.int64)
        (np.maximum if last else np.minimum).at(best, at, values)
        rows = rows[values == best[at]]
        if len(rows) == groups:
            break
    won = np.empty(groups, dtype=np.int64)
    won[ids[rows]] = rows
    return won
